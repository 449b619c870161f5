"""Communication kernels of a Kineto trace: which host events describe each, and what they say about the rendezvous.

Usually the call that records the parameters surrounds the launch. Calls made inside a coalescing block launch nothing
themselves: one kernel carries all of them, launched when the block ends. Kernels of a CUDA graph have no call at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taut.core.tables import NULL, Kind, Verb
from taut.read.columns import Ints, containing
from taut.read.kineto.event_columns import CPU_OP, NOTE, Events
from taut.read.kineto.json_events import CommArgs, elements, integer
from taut.read.op_rows import Groups, Rows, communicate_name, issuer
from taut.read.verb_words import element_bytes, kernel_verb, verb_of

NO_GROUP = "collectives that do not name their group"
UNTOLD = "grouped sends and receives without their calls"

Call = list[int]
"""The events that describe one call, the most telling first."""


def add_collectives(
    events: Events, work: Ints, launch: Ints, call: Ints, lane: Ints, rows: Rows, groups: Groups
) -> None:  # fmt: skip
    """Communication kernels as ops; one that carries several sends and receives is one op for each, of one interval."""
    found = [
        (place, Rendezvous(events, groups, calls))
        for place, carried in enumerate(_carried(events, work, call))
        for calls in carried
    ]
    at, about = np.array([place for place, _ in found], dtype=np.int64), [met for _, met in found]
    rows.counts[UNTOLD] += sum(met.verb is Verb.NONE for met in about)
    rows.counts[NO_GROUP] += sum(bool(met.verb) and not met.group for met in about)
    rows.add(
        events.start[work[at]],
        events.end[work[at]],
        kind=Kind.COMMUNICATE,
        lane=lane[at],
        name=np.array([communicate_name(rows, "nccl", met.verb) for met in about], dtype=np.int64),
        verb=np.array([met.verb for met in about], dtype=np.int64),
        group=np.array([rows.groups[met.group] if met.group else NULL for met in about], dtype=np.int64),
        seq=np.array([met.seq for met in about], dtype=np.int64),
        size=np.array([met.size for met in about], dtype=np.int64),
        peer=np.array([met.peer for met in about], dtype=np.int64),
        launch=launch[at],
    )


class Rendezvous:
    """What all calls behind one rendezvous together say: their sizes add up, the rest is that of the first."""

    def __init__(self, events: Events, groups: Groups, calls: list[Call]) -> None:
        said = [[events.said(source) for source in call] for call in calls]
        names = [[events.names[events.name[source]] for source in call] for call in calls]
        self.verb = self._verb(said[0], names[0])
        self.group = groups.name(said[0], "nccl") if self.verb else ""
        self.seq = next((n for s in said[0] for n in (integer(s.Seq), integer(s.seq)) if n >= 0), NULL)
        sizes = [max(map(message_bytes, one), default=NULL) for one in said]
        self.size = min(sum(sizes), 2**62) if min(sizes) >= 0 else NULL
        self.peer = self._peer(said[0], names[0], groups)

    def _verb(self, said: list[CommArgs], names: list[str]) -> Verb:
        words = [s.collective for s in said if isinstance(s.collective, str)] + names[1:]
        return next((verb for verb in map(verb_of, words) if verb), kernel_verb(names[0]))

    def _peer(self, said: list[CommArgs], names: list[str], groups: Groups) -> int:
        if self.verb in (Verb.SEND, Verb.RECV):
            sides = [integer(s.target if self.verb is Verb.SEND else s.source) for s in said]
            told = next((side for side in sides if side >= 0), NULL)
            if told >= 0:
                # Torch writes a global rank here; what is none of the group's ranks can only be a place among them.
                inside = told in groups.ranks.get(self.group, [told])
                return min(told if inside else groups.member(self.group, told), 2**31 - 1)
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


def _carried(events: Events, work: Ints, call: Ints) -> Iterator[list[list[Call]]]:
    """For each kernel its rendezvous, each as the calls behind it."""
    thread, at = np.where(call >= 0, events.place[call], -1), events.start[call]
    about = [events.chosen(kind, test) for test, kind in ((_is_param_comms, CPU_OP), (_is_nccl_note, NOTE), (_is_c10d, CPU_OP))]
    params, _, ops = about
    found = [containing(events.place[rows], events.start[rows], events.end[rows], thread, at) for rows in about]
    found[0] = _by_external_id(events, params, work, found[0])
    layers = [np.append(rows, -1)[place] for rows, place in zip(about, found, strict=True)]
    blocks = _blocks(events, work, layers[0], layers[1], params, ops)
    for place, (row, *sources) in enumerate(zip(work.tolist(), *(layer.tolist() for layer in layers), strict=True)):
        told = [source for source in sources if source >= 0]
        yield [[[row, *one, *told] for one in calls] for calls in blocks[place]] if place in blocks else [[[row, *told]]]


def _by_external_id(events: Events, about: Ints, work: Ints, found: Ints) -> Ints:
    """Fill what containment left open; old traces repeat the correlation as External id, which links nothing."""
    own = np.array([integer(events.said(row).external) for row in work.tolist()], dtype=np.int64)
    own = np.where(own == events.correlation[work], -1, own)
    external = np.array([integer(events.said(row).external) for row in about.tolist()], dtype=np.int64)
    return np.where(found >= 0, found, issuer(external, own))


def _blocks(events: Events, work: Ints, param: Ints, note: Ints, params: Ints, ops: Ints) -> dict[int, list[list[Call]]]:
    """Rendezvous of the kernels that were launched when a coalescing block ended, by the kernel's place.

    A block that launched as many kernels as it holds collectives launched one for each; otherwise the first carries all.
    """
    ends = np.unique(note[(note >= 0) & (param < 0)])
    ends = ends[events.named(ends, lambda name: "coalesced" in name)]
    if not len(ends):
        return {}
    silent = params[~np.isin(params, param)]
    silent = silent[[events.said(row).collective != "wait" for row in silent.tolist()]]
    if not len(params):
        silent = ops[events.named(ops, lambda name: verb_of(name) in (Verb.SEND, Verb.RECV))]
    launched: dict[int, list[int]] = {}
    for place in np.argsort(events.start[work], kind="stable").tolist():
        launched.setdefault(int(note[place]), []).append(place)
    out: dict[int, list[list[Call]]] = {}
    for end, calls in _pending(events, ends, silent):
        around = containing(events.place[ops], events.start[ops], events.end[ops], events.place[calls], events.start[calls])
        told = [
            list(dict.fromkeys((call, *ops[[i]].tolist()) if i >= 0 else (call,)))
            for call, i in zip(calls, around, strict=True)
        ]
        out.update(_shared_out(events, launched[end], told))
    return out


def _shared_out(events: Events, places: list[int], calls: list[Call]) -> dict[int, list[list[Call]]]:
    hops = [verb_of(_word(events, call)) in (Verb.SEND, Verb.RECV) for call in calls]
    if len(calls) == len(places) and not any(hops):
        return {place: [[call]] for place, call in zip(places, calls, strict=True)}
    return {places[0]: [[call] for call in calls] if all(hops) else [calls]}


def _word(events: Events, call: Call) -> str:
    said = events.said(call[0]).collective
    return said if isinstance(said, str) else events.names[events.name[call[0]]]


def _pending(events: Events, ends: Ints, calls: Ints) -> Iterator[tuple[int, list[int]]]:
    """Each end of a block with the calls of its thread since the end before, of the group that was called last."""
    rows = np.concatenate([calls, ends])
    is_end = np.arange(len(rows)) >= len(calls)
    order = np.lexsort((events.start[rows], events.place[rows]))
    thread, waiting = -1, list[int]()
    for row, ended in zip(rows[order].tolist(), is_end[order].tolist(), strict=True):
        if events.place[row] != thread:
            thread, waiting = int(events.place[row]), []
        if not ended:
            waiting.append(row)
            continue
        groups = [(events.said(call).group, events.said(call).group_id) for call in waiting]
        if waiting:
            yield row, [call for call, group in zip(waiting, groups, strict=True) if group == groups[-1]]
        waiting = []


def _is_param_comms(name: str) -> bool:
    return name == "record_param_comms"


def _is_nccl_note(name: str) -> bool:
    return name.startswith(("nccl:", "rccl:"))


def _is_c10d(name: str) -> bool:
    return name.startswith("c10d::")
