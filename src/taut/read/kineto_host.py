"""The host side of a Kineto trace without an accelerator: operators on threads, gloo collectives."""

from __future__ import annotations

from collections import deque

import numpy as np

from taut.read.columns import Ints, Mask, containing
from taut.read.kineto_device import is_loader, message_bytes, outermost, peer_argument
from taut.read.kineto_events import CPU_OP, NOTE, Events, is_checkpoint
from taut.read.kineto_json import CommArgs, elements
from taut.read.kineto_rows import NAME_LENGTH, Groups, Rows, communicate_name, coordinate, thread_lanes
from taut.read.words import element_bytes, verb_of
from taut.tables import NULL, Kind, Verb

# The input of a c10d call that gloo's annotation shows: the second where the first is the output.
_SENT = {
    "c10d::_allgather_base_": 1,
    "c10d::_reduce_scatter_base_": 1,
    "c10d::allgather_": 1,
    "c10d::alltoall_base_": 1,
}
_SENT |= {"c10d::reduce_scatter_": 1, "c10d::gather_": 1, "c10d::scatter_": 1}


def add_host_side(events: Events, rows: Rows, groups: Groups) -> None:
    """Ops of a trace that has only host events."""
    ops = events.rows(CPU_OP)
    calls = outermost(events, events.chosen(CPU_OP, lambda name: name.startswith("c10d::")))
    transfers = events.chosen(NOTE, lambda name: name.startswith("gloo:"))
    outer = outermost(events, ops)
    rows.counts["dropped: nested cpu_op"] += len(ops) - len(outer)
    outer = _outside_transfers(events, outer, calls, transfers, rows)
    call_rows = _add_ops(events, outer, calls, rows)
    _add_transfers(events, transfers, calls, call_rows, rows, groups)
    inputs = events.chosen(NOTE, _is_input)
    idle = inputs[~_holds_op(events, inputs, ops)]
    for code in np.unique(events.name[idle]).tolist():
        name = "DataLoader" if is_loader(events.names[code]) else events.names[code]
        coordinate(rows, events, idle[events.name[idle] == code], "input", f"input: {name}")
    coordinate(rows, events, outermost(events, events.chosen(NOTE, is_checkpoint)), "checkpoint", "checkpoint")


def _is_input(name: str) -> bool:
    return is_loader(name) or name.lower() in ("data_load", "dataload", "data_loading", "dataloader")


def _holds_op(events: Events, notes: Ints, ops: Ints) -> Mask:
    """Whether an operator begins inside the annotation on its thread."""
    around = containing(events.place[notes], events.start[notes], events.end[notes], events.place[ops], events.start[ops])
    return np.isin(np.arange(len(notes)), around)


def _outside_transfers(events: Events, outer: Ints, calls: Ints, transfers: Ints, rows: Rows) -> Ints:
    """Without the copies that a collective makes on a run-loop thread of its own: they are part of it."""
    loops = transfers[~np.isin(events.place[transfers], events.place[calls])]
    around = containing(events.place[loops], events.start[loops], events.end[loops], events.place[outer], events.start[outer])
    rows.counts["dropped: inside a collective"] += int((around >= 0).sum())
    return outer[around < 0]


def _add_ops(events: Events, outer: Ints, calls: Ints, rows: Rows) -> Ints:
    """Outermost operators, cut where they issue collectives; returns the row of each call."""
    holder = containing(events.place[outer], events.start[outer], events.end[outer], events.place[calls], events.start[calls])
    whole = outer[~np.isin(np.arange(len(outer)), holder)]
    rows.add(
        events.start[whole],
        events.end[whole],
        kind=Kind.COMPUTE,
        lane=thread_lanes(events, rows, whole, "thread"),
        name=rows.renamed(events, whole),
        size=events.size[whole],
    )
    call_rows = rows.add(
        events.start[calls],
        events.end[calls],
        kind=Kind.COORDINATE,
        lane=thread_lanes(events, rows, calls, "thread"),
        name=rows.renamed(events, calls),
    )
    _add_pieces(events, outer, calls, holder, rows)
    return call_rows


def _add_pieces(events: Events, outer: Ints, calls: Ints, holder: Ints, rows: Rows) -> None:
    """What is left of an operator before, between and after the calls inside it."""
    inside: dict[int, list[int]] = {}
    for call, held in zip(calls.tolist(), holder.tolist(), strict=True):
        if held >= 0 and int(outer[held]) != call:
            inside.setdefault(int(outer[held]), []).append(call)
    pieces: list[tuple[int, int, int, int, int]] = []
    for op, held_calls in inside.items():
        name = events.names[events.name[op]][:NAME_LENGTH]
        lane, size = rows.lanes[f"thread {events.threads[events.place[op]]}"], int(events.size[op])
        at, part = int(events.start[op]), name
        for call in sorted(held_calls, key=lambda row: int(events.start[row])):
            pieces.append((at, max(at, int(events.start[call])), lane, rows.names[part], size))
            at, part = int(events.end[call]), f"{name} (after)"
        pieces.append((at, max(at, int(events.end[op])), lane, rows.names[part], size))
    if pieces:
        start, end, lane_of, name_of, size_of = np.array(pieces, dtype=np.int64).T
        rows.add(start, end, kind=Kind.COMPUTE, lane=lane_of, name=name_of, size=size_of)


def _add_transfers(events: Events, transfers: Ints, calls: Ints, call_rows: Ints, rows: Rows, groups: Groups) -> None:
    transfers = transfers[np.argsort(events.start[transfers], kind="stable")]
    issued = _match(events, transfers, calls)
    about = [
        _rendezvous(events, row, int(calls[i]) if i >= 0 else -1, groups)
        for row, i in zip(transfers.tolist(), issued, strict=True)
    ]
    rows.counts["collectives without their call"] += issued.count(-1)
    rows.add(
        events.start[transfers],
        events.end[transfers],
        kind=Kind.COMMUNICATE,
        lane=thread_lanes(events, rows, transfers, "gloo"),
        name=np.array([communicate_name(rows, "gloo", verb) for verb, *_ in about], dtype=np.int64),
        verb=np.array([verb for verb, *_ in about], dtype=np.int64),
        group=rows.groups.of(group for _, group, *_ in about),
        size=np.array([size for *_, size, _ in about], dtype=np.int64),
        peer=np.array([peer for *_, peer in about], dtype=np.int64),
        launch=np.append(call_rows, NULL)[np.array(issued, dtype=np.int64)],
    )


def _match(events: Events, transfers: Ints, calls: Ints) -> list[int]:
    """For each transfer the index of the call that issued it: in order, of the same kind and size."""
    waiting: dict[tuple[Verb, int], deque[int]] = {}
    for i in np.argsort(events.start[calls], kind="stable").tolist():
        name = events.names[events.name[calls[i]]]
        waiting.setdefault((_shown_as(name), _sent(name, events.comm[int(calls[i])])), deque()).append(i)
    issued = []
    for row in transfers.tolist():
        verb = verb_of(events.names[events.name[row]])
        sizes = elements(events.comm[row].dims)
        queue = waiting.get((verb, sizes)) or waiting.get((verb, -1))
        if queue and events.start[calls[queue[0]]] <= events.start[row]:
            issued.append(queue.popleft())
        else:
            issued.append(-1)
    return issued


def _shown_as(call: str) -> Verb:
    """The verb under which gloo annotates a call: its reduce-scatter is an all-reduce."""
    verb = verb_of(call)
    return Verb.ALL_REDUCE if verb is Verb.REDUCE_SCATTER else verb


def _sent(name: str, said: CommArgs) -> int:
    at = _SENT.get(name, 0)
    return elements(said.dims[at]) if isinstance(said.dims, list) and len(said.dims) > at else -1


def _rendezvous(events: Events, row: int, call: int, groups: Groups) -> tuple[Verb, str, int, int]:
    """Verb, group, bytes and peer of one transfer, from its annotation and the call that issued it."""
    said, name = events.comm[row], events.names[events.name[row]]
    if call < 0:
        return verb_of(name), groups.name([said]), message_bytes(said), NULL
    asked, issuer = events.comm[call], events.names[events.name[call]]
    group = groups.name([said, asked])
    peer = groups.member(group, peer_argument(issuer, asked.concrete))
    size = max(message_bytes(said), message_bytes(asked))
    types = said.types if isinstance(said.types, list) else []
    if size < 0 and types:
        size = elements(asked.dims) * element_bytes(types[0])
    return verb_of(issuer) or verb_of(name), group, size, min(peer, 2**31 - 1)
