"""The accelerator side of a Kineto trace: kernels on streams, the calls that launched them, NCCL collectives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taut.read.columns import Ints, containing, grouped_max
from taut.read.kineto_events import CPU_OP, DEVICE, NOTE, RUNTIME, Events, is_checkpoint
from taut.read.kineto_json import CommArgs, elements, integer
from taut.read.kineto_rows import Groups, Rows, communicate_name, coordinate, thread_lanes
from taut.read.words import element_bytes, is_collective_kernel, kernel_verb, verb_of
from taut.tables import NULL, Kind, Verb


def add_device_side(events: Events, rows: Rows, groups: Groups) -> None:
    """Ops of a trace with accelerator events."""
    work, calls = events.rows(DEVICE), events.rows(RUNTIME)
    calls = _used_calls(events, work, calls, rows)
    call_rows = _add_calls(events, calls, rows)
    issuer = _issuer(events.correlation[calls], events.correlation[work])
    launch = np.append(call_rows, NULL)[issuer]
    collective = events.named(work, is_collective_kernel)
    _add_work(events, work[~collective], launch[~collective], rows)
    _add_collectives(events, work[collective], launch[collective], np.append(calls, -1)[issuer[collective]], rows, groups)
    _count_graphs(events, calls, issuer, rows)
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


def _issuer(calls: Ints, work: Ints) -> Ints:
    """For each device event the index of the call of the same correlation, or -1."""
    if not len(calls):
        return np.full(len(work), -1, dtype=np.int64)
    order = np.argsort(calls, kind="stable")
    at = np.minimum(np.searchsorted(calls[order], work, "left"), len(calls) - 1)
    return np.where((calls[order][at] == work) & (work > 0), order[at], -1)


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


def _count_graphs(events: Events, calls: Ints, issuer: Ints, rows: Rows) -> None:
    graphs = events.named(calls, lambda name: "GraphLaunch" in name)
    rows.counts["cuda graph launches"] += int(graphs.sum())
    rows.counts["launched by cuda graphs"] += int(np.append(graphs, False)[issuer].sum())


def _add_collectives(events: Events, work: Ints, launch: Ints, call: Ints, rows: Rows, groups: Groups) -> None:
    """Communication kernels with what the kernel, its issuing ops and its annotation say about the rendezvous."""
    about = [Collective(events, groups, row, list(sources), rows) for row, sources in _sources(events, work, call)]
    rows.add(
        events.start[work],
        events.end[work],
        kind=Kind.COMMUNICATE,
        lane=_stream_lanes(events, rows, work),
        name=np.array([communicate_name(rows, "nccl", c.verb) for c in about], dtype=np.int64),
        verb=np.array([c.verb for c in about], dtype=np.int64),
        group=rows.groups.of(c.group for c in about),
        seq=np.array([c.seq for c in about], dtype=np.int64),
        size=np.array([c.size for c in about], dtype=np.int64),
        peer=np.array([c.peer for c in about], dtype=np.int64),
        launch=launch,
    )


def _sources(events: Events, work: Ints, call: Ints) -> Iterator[tuple[int, list[int]]]:
    """Each kernel with the events that describe it, the most telling first."""
    thread, at = events.place[call], events.start[call]
    thread = np.where(call >= 0, thread, -1)
    layers = []
    for test, kind in ((_is_param_comms, CPU_OP), (_is_nccl_note, NOTE), (_is_c10d, CPU_OP)):
        about = events.chosen(kind, test)
        found = containing(events.place[about], events.start[about], events.end[about], thread, at)
        if test is _is_param_comms:
            found = _by_external_id(events, about, work, found)
        layers.append(np.append(about, -1)[found].tolist())
    for row, *sources in zip(work.tolist(), *layers, strict=True):
        yield row, [row, *(source for source in sources if source >= 0)]


def _by_external_id(events: Events, about: Ints, work: Ints, found: Ints) -> Ints:
    """Fill what containment left open; old traces repeat the correlation as External id, which links nothing."""
    own = events.external[work]
    own = np.where(own == events.correlation[work], -1, own)
    external = np.array([integer(events.comm[row].external) for row in about.tolist()], dtype=np.int64)
    return np.where(found >= 0, found, _issuer(external, own))


def _is_param_comms(name: str) -> bool:
    return name == "record_param_comms"


def _is_nccl_note(name: str) -> bool:
    return name.startswith(("nccl:", "rccl:"))


def _is_c10d(name: str) -> bool:
    return name.startswith("c10d::")


class Collective:
    """One communication kernel: what all its sources together say."""

    def __init__(self, events: Events, groups: Groups, row: int, sources: list[int], rows: Rows) -> None:
        said = [events.comm.get(source) or CommArgs() for source in sources]
        names = [events.names[events.name[source]] for source in sources]
        self.group = groups.name(said)
        self.verb = self._verb(said, names, rows)
        self.seq = next((n for s in said for n in (integer(s.Seq), integer(s.seq)) if n >= 0), NULL)
        self.size = max(map(message_bytes, said), default=NULL)
        self.peer = self._peer(said, names, groups)

    def _verb(self, said: list[CommArgs], names: list[str], rows: Rows) -> Verb:
        words = [s.collective for s in said if isinstance(s.collective, str)] + names[1:]
        verb = next((verb for verb in map(verb_of, words) if verb), kernel_verb(names[0]))
        if verb is Verb.NONE:
            rows.counts["coalesced"] += 1
            return Verb.ALL_TO_ALL
        return verb

    def _peer(self, said: list[CommArgs], names: list[str], groups: Groups) -> int:
        if self.verb in (Verb.SEND, Verb.RECV):
            sides = [integer(s.target if self.verb is Verb.SEND else s.source) for s in said]
            index = next((side for side in sides if side >= 0), NULL)
            if index >= 0:
                return min(groups.member(self.group, index), 2**31 - 1)
        roots = (peer_argument(name, s.concrete) for name, s in zip(names, said, strict=True))
        index = next((root for root in roots if root >= 0), NULL)
        return min(groups.member(self.group, index), 2**31 - 1)


_PEER_ARGUMENT = {"c10d::send": 2, "c10d::recv_": 2, "c10d::broadcast_": 2, "c10d::reduce_": 3, "c10d::gather_": 3}
_PEER_ARGUMENT["c10d::scatter_"] = 3


def peer_argument(name: str, concrete: object) -> int:
    """The peer or root among the recorded arguments of a c10d call, as a rank of its group; -1 if not recorded."""
    at = _PEER_ARGUMENT.get(name)
    return integer(concrete[at]) if at is not None and isinstance(concrete, list) and len(concrete) > at else NULL


def message_bytes(said: CommArgs) -> int:
    """Bytes of the larger message, from the recorded element counts or else from the recorded shapes."""
    if said.in_elements is None and said.dims is None:
        return NULL
    types = said.types if isinstance(said.types, list) else []
    item = element_bytes(said.dtype) or next((n for n in map(element_bytes, types) if n), 0)
    counted = max(integer(said.in_elements), integer(said.out_elements))
    if counted < 0 and isinstance(said.dims, list):
        counted = max(map(elements, said.dims), default=-1)
    return counted * item if counted >= 0 and item and counted < 2**58 else NULL
