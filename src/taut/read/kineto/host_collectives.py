"""Collectives that the host runs (gloo, MPI, UCC): their annotations, and the calls that issued them.

In a job with an accelerator such a transfer copies to the host, waits for that, moves the data and copies back. Its
annotation holds all of it; the transfer itself lies between the wait and the copy back.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL, Verb
from taut.read.columns import containing
from taut.read.communication_families import is_communication
from taut.read.json_values import elements, integer
from taut.read.kineto.collectives import NO_GROUP, message_bytes, peer_argument
from taut.read.kineto.device_side import outermost
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import ANNOTATION, CPU_OP, DEVICE, HOOKS, RUNTIME
from taut.read.kineto.event_ops import thread_lanes
from taut.read.kineto.process_groups import HOST_LIBRARIES, Groups
from taut.read.op_rows import Message, Rows
from taut.read.verb_words import element_bytes, verb_of

NOTES = tuple(f"{library}:" for library in HOST_LIBRARIES)
NEVER_RAN = "collectives called without a device event"

# The input of a c10d call that gloo's annotation shows: the second where the first is the output.
_SENT = {
    "c10d::_allgather_base_": 1,
    "c10d::_reduce_scatter_base_": 1,
    "c10d::allgather_": 1,
    "c10d::alltoall_base_": 1,
    "c10d::reduce_scatter_": 1,
    "c10d::gather_": 1,
    "c10d::scatter_": 1,
}


class Transfers(Struct, frozen=True):
    """Annotations of transfers, the call that issued each (-1 if none), and when their data moved."""

    notes: Ints
    calls: Ints
    start: Ints
    end: Ints


def add_host_collectives(events: Events, rows: Rows, groups: Groups) -> None:
    """Add the collectives that the host runs in a trace with accelerator events."""
    hops = events.chosen(CPU_OP, lambda name: name in HOOKS)
    calls, notes = calls_and_transfers(events, hops)
    kernels = events.chosen(DEVICE, is_communication)
    if not len(notes) and not len(hops):
        if not len(kernels):
            rows.counts[NEVER_RAN] += int(events.named(calls, lambda name: verb_of(name) > 0).sum())
        return
    launches = events.rows(RUNTIME)
    launches = launches[np.isin(events.correlation[launches], events.correlation[kernels])]
    # What launches a kernel of communication is known by the kernel.
    calls, notes = calls[~_holds(events, calls, launches)], notes[~_holds(events, notes, launches)]
    issued = matched(events, notes, calls)
    found = _between_copies(events, notes, np.append(calls, -1)[issued])
    add_transfers(events, rows, groups, found, thread_lanes(events, rows, notes, "thread"), NULL)
    add_hops(events, hops, rows)


def _between_copies(events: Events, notes: Ints, calls: Ints) -> Transfers:
    """From the last wait for the device to the first copy after it, inside the annotation and on its thread."""
    start, end = events.start[notes].copy(), events.end[notes].copy()
    runtime = events.rows(RUNTIME)
    around = containing(
        events.place[notes], events.start[notes], events.end[notes], events.place[runtime], events.start[runtime]
    )
    waits = (around >= 0) & events.named(runtime, lambda name: "ynchronize" in name)
    np.maximum.at(start, around[waits], np.minimum(events.end[runtime[waits]], end[around[waits]]))
    copies = (around >= 0) & events.named(runtime, lambda name: "emcpy" in name or "LaunchKernel" in name)
    copies[copies] = events.start[runtime[copies]] >= start[around[copies]]
    np.minimum.at(end, around[copies], events.start[runtime[copies]])
    return Transfers(notes, calls, start, end)


def _holds(events: Events, notes: Ints, chosen: Ints) -> Mask:
    """Whether one of the others begins inside the event, on its thread."""
    place, start, end = events.place, events.start, events.end
    around = containing(place[notes], start[notes], end[notes], place[chosen], start[chosen])
    return np.isin(np.arange(len(notes)), around)


def calls_and_transfers(events: Events, hops: Ints) -> tuple[Ints, Ints]:
    """The calls into the library and the annotations of its transfers, in order; none that belongs to a hook of taut's."""
    calls = outermost(events, events.chosen(CPU_OP, lambda name: name.startswith("c10d::")))
    notes = events.chosen(ANNOTATION, lambda name: name.startswith(NOTES))
    notes = notes[~inside(events, notes, hops)]
    return calls[~inside(events, calls, hops)], notes[np.argsort(events.start[notes], kind="stable")]


def add_transfers(events: Events, rows: Rows, groups: Groups, found: Transfers, lane: Ints, launch: Ints | int) -> None:
    """Add transfers as ops of communication."""
    messages = [
        _transfer(events, row, call, groups) for row, call in zip(found.notes.tolist(), found.calls.tolist(), strict=True)
    ]
    rows.counts[NO_GROUP] += sum(not message.group for message in messages)
    rows.counts["collectives without their call"] += int((found.calls < 0).sum())
    of = np.array([HOST_LIBRARIES.index(_library(events, row)) for row in found.notes.tolist()], dtype=np.int64)
    for code in np.unique(of).tolist():
        at = np.flatnonzero(of == code)
        some = [messages[i] for i in at.tolist()]
        issued = launch if isinstance(launch, int) else launch[at]
        rows.add_messages(HOST_LIBRARIES[code], some, found.start[at], found.end[at], lane[at], issued)


def _library(events: Events, row: int) -> str:
    name: str = events.names[events.name[row]]
    return name.partition(":")[0]


def inside(events: Events, chosen: Ints, around: Ints) -> Mask:
    """Whether each event begins inside one of the others, on the same thread."""
    place, start, end = events.place, events.start, events.end
    return containing(place[around], start[around], end[around], place[chosen], start[chosen]) >= 0


def add_hops(events: Events, hops: Ints, rows: Rows) -> None:
    """Sends and receives that taut's own hook recorded with both ends."""
    messages = []
    for row in hops.tolist():
        verb, args = verb_of(events.names[events.name[row]]), events.comm_args(row)
        peer = integer(args.target if verb is Verb.SEND else args.source)
        messages.append(Message(verb, "", message_bytes(args), min(max(peer, NULL), 2**31 - 1), integer(args.Seq)))
    rows.add_messages("gloo", messages, events.start[hops], events.end[hops], thread_lanes(events, rows, hops, "thread"))


def matched(events: Events, transfers: Ints, calls: Ints) -> Ints:
    """For each transfer the index of the call that issued it: in order, of the same kind and size."""
    waiting: dict[tuple[Verb, int], deque[int]] = {}
    for i in np.argsort(events.start[calls], kind="stable").tolist():
        name, dims = events.names[events.name[calls[i]]], events.comm_args(int(calls[i])).dims
        verb, at = verb_of(name), _SENT.get(name, 0)
        if verb is Verb.REDUCE_SCATTER:
            verb = Verb.ALL_REDUCE  # gloo makes one of the other, and annotates it so
        size = elements(dims[at]) if isinstance(dims, list) and len(dims) > at else -1
        waiting.setdefault((verb, size), deque()).append(i)
    issued = []
    for row in transfers.tolist():
        verb = verb_of(events.names[events.name[row]])
        sizes = elements(events.comm_args(row).dims)
        queue = waiting.get((verb, sizes)) or waiting.get((verb, -1))
        if queue and events.start[calls[queue[0]]] <= events.start[row]:
            issued.append(queue.popleft())
        else:
            issued.append(-1)
    return np.array(issued, dtype=np.int64)


def _transfer(events: Events, row: int, call: int, groups: Groups) -> Message:
    """One transfer, from its annotation and the call that issued it."""
    args, name, library = events.comm_args(row), events.names[events.name[row]], _library(events, row)
    if call < 0:
        return Message(verb_of(name), groups.name([args], library), message_bytes(args))
    asked, issuer = events.comm_args(call), events.names[events.name[call]]
    group = groups.name([args, asked], library)
    peer = groups.member(group, peer_argument(issuer, asked.concrete))
    size = max(message_bytes(args), message_bytes(asked))
    types = args.types if isinstance(args.types, list) else []
    if size < 0 and types:
        size = elements(asked.dims) * element_bytes(types[0])
    return Message(verb_of(issuer) or verb_of(name), group, size, min(peer, 2**31 - 1))
