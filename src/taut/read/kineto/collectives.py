"""Communication kernels of a Kineto trace: which host events describe each, and what they record about the rendezvous.

Usually the call that records the parameters surrounds the launch. Calls made inside a coalescing block launch nothing
themselves: one kernel carries all of them, launched when the block ends. Kernels of a CUDA graph have no call at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from taut.core.array_types import Ints, Json
from taut.core.ids import distinct
from taut.core.tables import NULL, Verb
from taut.read.columns import containing
from taut.read.communication_families import NO_VERB, OPERATORS, Communication, communication
from taut.read.json_values import elements, integer
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import ANNOTATION, CPU_OP
from taut.read.kineto.json_events import CommArgs
from taut.read.kineto.process_groups import Groups
from taut.read.op_rows import Message, Rows, issuer
from taut.read.verb_words import HOPS, element_bytes, verb_of

NO_GROUP = "collectives that do not name their group"
NO_CALLS = "grouped sends and receives without their calls"

# The events that describe one call, the most detailed first.
Call = list[int]


def add_collectives(events: Events, rows: Rows, groups: Groups, work: Ints, launch: Ints, call: Ints, lane: Ints) -> None:
    """Add communication kernels as ops; one that carries several sends and receives is one op for each, of one interval."""
    known = {code: communication(events.names[code]) or _UNKNOWN for code in distinct(events.name[work]).tolist()}
    by_kernel = [known[code] for code in events.name[work].tolist()]
    found = [
        (place, _message(events, groups, by_kernel[place], calls))
        for place, rendezvous in enumerate(_rendezvous(events, work, call))
        for calls in rendezvous
    ]
    at, messages = np.array([place for place, _ in found], dtype=np.int64), [message for _, message in found]
    silent = [by_kernel[place] for place, message in found if message.verb is Verb.NONE]
    rows.counts[NO_CALLS] += sum(one.hops for one in silent)
    rows.counts[NO_VERB] += sum(not one.hops and not one.word for one in silent)
    rows.counts[NO_GROUP] += sum(bool(message.verb) and not message.group for message in messages)
    rows.add_messages("nccl", messages, events.start[work[at]], events.end[work[at]], lane[at], launch[at])


_UNKNOWN = Communication("nccl", Verb.NONE, "")
# Verbs whose larger message is an input of the operator that calls them.
_SIZED = (Verb.ALL_REDUCE, Verb.REDUCE_SCATTER)


def _message(events: Events, groups: Groups, kernel: Communication, calls: list[Call]) -> Message:
    """What all calls behind one rendezvous together record: their sizes add up, the rest is that of the first."""
    described = [[(_name(events, source), events.comm_args(source)) for source in call] for call in calls]
    names, first = [name for name, _ in described[0]], [args for _, args in described[0]]
    sizes = [max([message_bytes(args) for name, args in call if _tells_size(name)], default=NULL) for call in described]
    if kernel.word:
        group = groups.of_library(first, kernel.family) if kernel.verb else ""
        sized = kernel.size == "call" or (kernel.size == "operator" and kernel.verb in _SIZED)
        return Message(kernel.verb, group, sizes[0] if sized else NULL, name=kernel.word)
    words = [a.collective for a in first if isinstance(a.collective, str)] + names[1:]
    verb = next((verb for verb in map(verb_of, words) if verb), kernel.verb)
    group = groups.name(first, "nccl") if verb else ""
    size = min(sum(sizes), 2**62) if min(sizes) >= 0 else NULL
    seq = next((n for a in first for n in (integer(a.Seq), integer(a.seq)) if n >= 0), NULL)
    return Message(verb, group, size, min(_peer(verb, group, first, names, groups), 2**31 - 1), seq)


def _name(events: Events, row: int) -> str:
    return events.names[int(events.name[row])]


@lru_cache(4096)
def _tells_size(name: str) -> bool:
    """Whether an event tells the size of what it surrounds: an operator outside c10d may have only the smaller message."""
    return OPERATORS.match(name) is None or verb_of(name) in _SIZED


def _peer(verb: Verb, group: str, args: list[CommArgs], names: list[str], groups: Groups) -> int:
    """Global rank of the peer or root, -1 if it is not recorded."""
    if verb in HOPS:
        sides = [integer(a.target if verb is Verb.SEND else a.source) for a in args]
        peer = next((side for side in sides if side >= 0), NULL)
        if peer >= 0:
            # Torch writes a global rank here; what is none of the group's ranks can only be a place among them.
            inside = peer in groups.ranks.get(group, [peer])
            return peer if inside else groups.member(group, peer)
    roots = (peer_argument(name, a.concrete) for name, a in zip(names, args, strict=True))
    return groups.member(group, next((root for root in roots if root >= 0), NULL))


_PEER_ARGUMENT = {
    "c10d::send": 2,
    "c10d::recv_": 2,
    "c10d::broadcast_": 2,
    "c10d::reduce_": 3,
    "c10d::gather_": 3,
    "c10d::scatter_": 3,
}


def peer_argument(name: str, concrete: Json) -> int:
    """The peer or root among the recorded arguments of a c10d call, as a rank of its group; -1 if not recorded."""
    at = _PEER_ARGUMENT.get(name)
    return integer(concrete[at]) if at is not None and isinstance(concrete, list) and len(concrete) > at else NULL


def message_bytes(args: CommArgs) -> int:
    """Bytes of the larger message, from the recorded element counts or else from the recorded shapes."""
    if args.in_elements is None and args.dims is None:
        return NULL
    types = args.types if isinstance(args.types, list) else []
    item = element_bytes(args.dtype) or next((n for n in map(element_bytes, types) if n), 0)
    counted = max(integer(args.in_elements), integer(args.out_elements))
    if counted < 0 and isinstance(args.dims, list):
        counted = max(map(elements, args.dims), default=-1)
    return counted * item if counted >= 0 and item and counted < 2**58 else NULL


def _rendezvous(events: Events, work: Ints, call: Ints) -> Iterator[list[list[Call]]]:
    """For each kernel its rendezvous, each as the calls behind it."""
    thread, at = np.where(call >= 0, events.place[call], -1), events.start[call]
    params = events.chosen(CPU_OP, lambda name: name == "record_param_comms")
    notes = events.chosen(ANNOTATION, lambda name: name.startswith(("nccl:", "rccl:")))
    ops = events.chosen(CPU_OP, lambda name: name.startswith("c10d::") or OPERATORS.match(name) is not None)
    sources = (params, notes, ops)
    found = [containing(events.place[rows], events.start[rows], events.end[rows], thread, at) for rows in sources]
    # Where no launch was recorded, an id may link the kernel to its call.
    found[0] = _by_external_id(events, params, work, found[0])
    layers = [np.append(rows, -1)[place] for rows, place in zip(sources, found, strict=True)]
    blocks = _blocks(events, work, layers[0], layers[1], params, ops)
    for place, (row, *around) in enumerate(zip(work.tolist(), *(layer.tolist() for layer in layers), strict=True)):
        own = [source for source in around if source >= 0]
        yield [[[row, *one, *own] for one in calls] for calls in blocks[place]] if place in blocks else [[[row, *own]]]


def _by_external_id(events: Events, about: Ints, work: Ints, found: Ints) -> Ints:
    """Fill what containment left open; old traces repeat the correlation as External id, which links nothing."""
    left = np.flatnonzero(found < 0)
    if not len(left):
        return found
    own, external = (
        np.array([integer(events.comm_args(row).external) for row in rows.tolist()], dtype=np.int64)
        for rows in (work[left], about)
    )
    found[left] = issuer(external, np.where(own == events.correlation[work[left]], -1, own))
    return found


def _blocks(events: Events, work: Ints, param: Ints, note: Ints, params: Ints, ops: Ints) -> dict[int, list[list[Call]]]:
    """Rendezvous of the kernels that were launched when a coalescing block ended, by the kernel's place.

    A block that launched as many kernels as it holds collectives launched one for each; otherwise the first carries all.
    """
    ends = np.unique(note[(note >= 0) & (param < 0)])
    ends = ends[events.named(ends, lambda name: "coalesced" in name)]
    if not len(ends):
        return {}
    silent = params[~np.isin(params, param)]
    silent = silent[[events.comm_args(row).collective != "wait" for row in silent.tolist()]]
    if not len(params):
        silent = ops[events.named(ops, lambda name: verb_of(name) in HOPS)]
    launched: dict[int, list[int]] = {}
    for place in np.argsort(events.start[work], kind="stable").tolist():
        launched.setdefault(int(note[place]), []).append(place)
    out: dict[int, list[list[Call]]] = {}
    for end, calls in _calls_of_blocks(events, ends, silent):
        around = containing(events.place[ops], events.start[ops], events.end[ops], events.place[calls], events.start[calls])
        described = [
            list(dict.fromkeys((call, *ops[[i]].tolist()) if i >= 0 else (call,)))
            for call, i in zip(calls, around, strict=True)
        ]
        out.update(_assigned(events, launched[end], described))
    return out


def _assigned(events: Events, places: list[int], calls: list[Call]) -> dict[int, list[list[Call]]]:
    """The rendezvous of each kernel of one block, by the kernel's place."""
    words = [(events.comm_args(call[0]).collective, events.names[events.name[call[0]]]) for call in calls]
    hops = [verb_of(word if isinstance(word, str) else name) in HOPS for word, name in words]
    if len(calls) == len(places) and not any(hops):
        return {place: [[call]] for place, call in zip(places, calls, strict=True)}
    return {places[0]: [[call] for call in calls] if all(hops) else [calls]}


def _calls_of_blocks(events: Events, ends: Ints, calls: Ints) -> Iterator[tuple[int, list[int]]]:
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
        groups = [(args.group, args.group_id) for args in map(events.comm_args, waiting)]
        if waiting:
            yield row, [call for call, group in zip(waiting, groups, strict=True) if group == groups[-1]]
        waiting = []
