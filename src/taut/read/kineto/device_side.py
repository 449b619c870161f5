"""The accelerator side of a Kineto trace: kernels and copies on streams, the calls that launched them, communication."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.device_words import stream_lane
from taut.core.tables import NULL, Kind
from taut.read.columns import Codes, grouped_max
from taut.read.communication_families import is_communication
from taut.read.kineto.collectives import add_collectives
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import ANNOTATION, COPY, CPU_OP, DEVICE, RUNTIME, is_checkpoint
from taut.read.kineto.event_ops import add_waits, event_names, thread_lanes
from taut.read.kineto.process_groups import Groups
from taut.read.op_rows import Rows, after_device, issuer

_LOADING = ("data_load", "dataload", "data_loading", "dataloader")


def add_device_side(events: Events, rows: Rows, groups: Groups) -> None:
    """Add the ops of a trace with accelerator events."""
    work = events.rows(DEVICE, COPY)
    calls = _used_calls(events, work, rows)
    lane, name = thread_lanes(events, rows, calls, "thread"), event_names(events, rows, calls)
    waits = events.named(calls, lambda name: "ynchronize" in name)
    begin = after_device(events.start[calls], events.end[calls], waits, events.end[work])
    call_rows = rows.add(begin, events.end[calls], kind=Kind.COORDINATE, lane=lane, name=name)
    by = issuer(events.correlation[calls], events.correlation[work])
    launch = np.append(call_rows, NULL)[by]
    copies = events.kind[work] == COPY
    collective = ~copies & events.named(work, is_communication)
    own = work[~collective]
    rows.add(
        events.start[own],
        events.end[own],
        kind=np.where(copies[~collective], Kind.COMMUNICATE, Kind.COMPUTE),
        lane=_stream_lanes(events, rows, own),
        name=event_names(events, rows, own),
        size=events.size[own],
        launch=launch[~collective],
    )
    lane, issued = _stream_lanes(events, rows, work[collective]), np.append(calls, -1)[by[collective]]
    add_collectives(events, rows, groups, work[collective], launch[collective], issued, lane)
    graphs = events.named(calls, lambda name: "GraphLaunch" in name)
    rows.counts["cuda graph launches"] += int(graphs.sum())
    rows.counts["launched by cuda graphs"] += int(np.append(graphs, False)[by].sum())
    add_inputs(events, rows, events.chosen(ANNOTATION, is_input), "input")
    saves = np.concatenate([events.chosen(kind, is_checkpoint) for kind in (CPU_OP, ANNOTATION)])
    add_waits(events, rows, outermost(events, saves), "checkpoint", "checkpoint")


def _is_loader(name: str) -> bool:
    return name.startswith("enumerate(DataLoader)#")


def is_input(name: str) -> bool:
    """Whether an annotation is the wait for the next batch, as torch or as people call it."""
    return _is_loader(name) or name.lower() in _LOADING


def add_inputs(events: Events, rows: Rows, chosen: Ints, lane: str) -> None:
    """Add waits for the next batch, by the name of their annotation."""
    for code in np.unique(events.name[chosen]).tolist():
        name = "DataLoader" if _is_loader(events.names[code]) else events.names[code]
        add_waits(events, rows, chosen[events.name[chosen] == code], lane, f"input: {name}")


def outermost(events: Events, chosen: Ints) -> Ints:
    """The events among these that lie inside no other of them on the same thread."""
    order = chosen[np.lexsort((-events.end[chosen], events.start[chosen], events.place[chosen]))]
    return order[events.end[order] > grouped_max(events.place[order], events.end[order])]


def _is_wait(name: str) -> bool:
    return "ynchronize" in name or name in _WAITS


_WAITS = ("cudaMemcpy", "hipMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2", "urEventWait", "urQueueFinish")


def _used_calls(events: Events, work: Ints, rows: Rows) -> Ints:
    """Runtime calls that launched something or waited; the others cost nobody anything and are dropped."""
    calls = events.rows(RUNTIME)
    correlation = events.correlation[calls]
    used = (correlation > 0) & np.isin(correlation, events.correlation[work])
    used |= events.named(calls, _is_wait)
    rows.counts["dropped: runtime calls that launch nothing"] += int((~used).sum())
    return calls[used]


def _stream_lanes(events: Events, rows: Rows, work: Ints) -> Ints:
    numbers = Codes()
    for device, _ in events.streams:
        numbers[device]  # in the order of their first event, for those that are no numbers
    number = {device: device if type(device) is int and device >= 0 else at for device, at in numbers.items()}
    lanes = rows.lanes.of(stream_lane(stream, number[device] if len(number) > 1 else None) for device, stream in events.streams)
    return lanes[events.place[work]] if len(lanes) else work
