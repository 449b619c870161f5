"""The accelerator side of a Kineto trace: kernels on streams, the calls that launched them, NCCL collectives."""

from __future__ import annotations

import numpy as np

from taut.core.tables import NULL, Kind
from taut.read.columns import Ints, grouped_max
from taut.read.kineto.collectives import add_collectives
from taut.read.kineto.event_columns import CPU_OP, DEVICE, NOTE, RUNTIME, Events, is_checkpoint
from taut.read.op_rows import Groups, Rows, coordinate, issuer, thread_lanes
from taut.read.verb_words import is_collective_kernel


def add_device_side(events: Events, rows: Rows, groups: Groups) -> None:
    """Ops of a trace with accelerator events."""
    work, calls = events.rows(DEVICE), events.rows(RUNTIME)
    calls = _used_calls(events, work, calls, rows)
    call_rows = _add_calls(events, calls, rows)
    by = issuer(events.correlation[calls], events.correlation[work])
    launch = np.append(call_rows, NULL)[by]
    collective = events.named(work, is_collective_kernel)
    _add_work(events, work[~collective], launch[~collective], rows)
    met, lane = work[collective], _stream_lanes(events, rows, work[collective])
    add_collectives(events, met, launch[collective], np.append(calls, -1)[by[collective]], lane, rows, groups)
    _count_graphs(events, calls, by, rows)
    coordinate(rows, events, events.chosen(NOTE, is_loader), "input", "input: DataLoader")
    saves = np.concatenate([events.chosen(kind, is_checkpoint) for kind in (CPU_OP, NOTE)])
    coordinate(rows, events, outermost(events, saves), "checkpoint", "checkpoint")


def is_loader(name: str) -> bool:
    """Whether an annotation is the wait for the next batch."""
    return name.startswith("enumerate(DataLoader)#")


def outermost(events: Events, chosen: Ints) -> Ints:
    """The events among these that lie inside no other of them on the same thread."""
    order = chosen[np.lexsort((-events.end[chosen], events.start[chosen], events.place[chosen]))]
    return order[events.end[order] > grouped_max(events.place[order], events.end[order])]


def _is_wait(name: str) -> bool:
    return "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")


def _used_calls(events: Events, work: Ints, calls: Ints, rows: Rows) -> Ints:
    """Runtime calls that launched something or waited; the others cost nobody anything and are dropped."""
    correlation = events.correlation[calls]
    used = (correlation > 0) & np.isin(correlation, events.correlation[work])
    used |= events.named(calls, _is_wait)
    rows.counts["dropped: runtime calls that launch nothing"] += int((~used).sum())
    return calls[used]


def _add_calls(events: Events, calls: Ints, rows: Rows) -> Ints:
    lane, name = thread_lanes(events, rows, calls, "thread"), rows.renamed(events, calls)
    return rows.add(events.start[calls], events.end[calls], kind=Kind.COORDINATE, lane=lane, name=name)


def _stream_lanes(events: Events, rows: Rows, work: Ints) -> Ints:
    several = len({device for device, _ in events.streams}) > 1
    lanes = rows.lanes.of(
        f"device {device} stream {stream}" if several else f"stream {stream}" for device, stream in events.streams
    )
    return lanes[events.place[work]] if len(lanes) else work


def _add_work(events: Events, work: Ints, launch: Ints, rows: Rows) -> None:
    rows.add(
        events.start[work],
        events.end[work],
        kind=Kind.COMPUTE,
        lane=_stream_lanes(events, rows, work),
        name=rows.renamed(events, work),
        size=events.size[work],
        launch=launch,
    )


def _count_graphs(events: Events, calls: Ints, by: Ints, rows: Rows) -> None:
    graphs = events.named(calls, lambda name: "GraphLaunch" in name)
    rows.counts["cuda graph launches"] += int(graphs.sum())
    rows.counts["launched by cuda graphs"] += int(np.append(graphs, False)[by].sum())
