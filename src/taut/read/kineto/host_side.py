"""The host side of a Kineto trace without an accelerator: operators on threads, gloo collectives."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL, Kind
from taut.read.columns import containing
from taut.read.kineto.device_side import add_inputs, is_input, outermost
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import ANNOTATION, CPU_OP, HOOKS, is_checkpoint
from taut.read.kineto.event_ops import add_waits, event_names, thread_lanes
from taut.read.kineto.host_collectives import (
    NEVER_RAN,
    Transfers,
    add_hops,
    add_transfers,
    calls_and_transfers,
    inside,
    matched,
)
from taut.read.kineto.process_groups import Groups
from taut.read.op_rows import NAME_LENGTH, Rows
from taut.read.verb_words import verb_of

ENGINE = "autograd::engine::evaluate_function"
# An operator that waited does something this soon after the transfer (a busy host wakes it late), and had done nothing for
# this long before.
WOKEN_NS, WAITED_NS = 5_000_000, 200_000


def add_host_side(events: Events, rows: Rows, groups: Groups) -> None:
    """Add the ops of a trace that has only host events."""
    ops = events.rows(CPU_OP)
    hops = events.chosen(CPU_OP, lambda name: name in HOOKS)
    calls, transfers = calls_and_transfers(events, hops)
    outer = outermost(events, ops)
    saves = outermost(events, events.chosen(ANNOTATION, is_checkpoint))
    saves = saves[~_holds_op(events, saves, calls)]  # one that communicates is not one op
    outer = outer[~inside(events, outer, saves)]
    # Only the outermost operators are ops: what they call is inside of them.
    outer = outer[~np.isin(outer, hops) & ~events.named(outer, _is_wait)]
    rows.counts["dropped: nested cpu_op"] += len(ops) - len(outer)
    outer = _outside_transfers(events, outer, calls, transfers, rows)
    issued = matched(events, transfers, calls)
    waits = _waits(events, transfers, issued, calls, ops, outer)
    rows.counts["waits inside operators cut out"] += len(waits)
    call_rows = _add_ops(events, outer, calls, waits, rows)
    lane, launch = thread_lanes(events, rows, transfers, "gloo"), np.append(call_rows, NULL)[issued]
    found = Transfers(transfers, np.append(calls, -1)[issued], events.start[transfers], events.end[transfers])
    add_transfers(events, rows, groups, found, lane, launch)
    add_hops(events, hops, rows)
    if not len(transfers):
        rows.counts[NEVER_RAN] += int(events.named(calls, lambda name: verb_of(name) > 0).sum())
    inputs = events.chosen(ANNOTATION, is_input)
    add_inputs(events, rows, inputs[~_holds_op(events, inputs, ops)])
    add_waits(events, rows, saves, "checkpoint")


def _holds_op(events: Events, notes: Ints, ops: Ints) -> Mask:
    """Whether an operator begins inside the annotation on its thread."""
    around = containing(events.place[notes], events.start[notes], events.end[notes], events.place[ops], events.start[ops])
    return np.isin(np.arange(len(notes)), around)


def _outside_transfers(events: Events, outer: Ints, calls: Ints, transfers: Ints, rows: Rows) -> Ints:
    """Without the copies that a collective makes on a run-loop thread of its own: they are part of it."""
    loops = transfers[~np.isin(events.place[transfers], events.place[calls])]
    within = inside(events, outer, loops)
    rows.counts["dropped: inside a collective"] += int(within.sum())
    return outer[~within]


def _waits(events: Events, transfers: Ints, issued: Ints, calls: Ints, ops: Ints, outer: Ints) -> Ints:
    """(thread, start, end) of the time that operators spend blocked until a transfer ends, one row each.

    Some are named after it. Of the others, only an operator that wraps others can wait inside: an engine's node, or one
    that issues collectives itself. It waited if nothing happens on its thread until the transfer ends, and something does
    at once afterwards; what an operator without others inside does meanwhile is its own work.
    """
    place, start, end = events.place, events.start, events.end
    wraps = events.named(outer, lambda name: name.startswith(ENGINE))
    holder = containing(place[outer], start[outer], end[outer], place[calls], start[calls])
    wraps[holder[holder >= 0]] = True
    known = issued >= 0
    thread, ended = place[calls[issued[known]]], end[transfers[known]]
    around = containing(place[outer], start[outer], end[outer], thread, ended)
    inside = (around >= 0) & wraps[around] if len(outer) else np.zeros(len(thread), dtype=np.bool_)
    named = events.chosen(CPU_OP, _is_wait)
    found = [np.stack([place[named], start[named], end[named]], axis=1)]
    for t in np.unique(thread[inside]).tolist():
        mine = ops[place[ops] == t]
        turns = np.concatenate([start[mine], end[mine]])
        begins = (np.arange(len(turns)) < len(mine))[np.argsort(turns, kind="stable")]
        turns.sort()
        at = np.unique(ended[inside & (thread == t)])
        k = np.searchsorted(turns, at)
        # The last condition: what began before the transfer ended and ends next is one operator at its own work.
        waited = (turns[k] - at <= WOKEN_NS) & (at - turns[k - 1] >= WAITED_NS) & ~(begins[k - 1] & ~begins[k])
        found.append(np.stack([np.full(len(at), t), turns[k - 1], at], axis=1)[waited])
    return np.concatenate(found)


def _is_wait(name: str) -> bool:
    return name.endswith("::wait_tensor")


def _add_ops(events: Events, outer: Ints, calls: Ints, waits: Ints, rows: Rows) -> Ints:
    """Outermost operators, cut where they issue collectives and where they wait for them; returns the row of each call."""
    holder = containing(events.place[outer], events.start[outer], events.end[outer], events.place[calls], events.start[calls])
    waiting = containing(events.place[outer], events.start[outer], events.end[outer], waits[:, 0], waits[:, 1])
    whole = outer[~np.isin(np.arange(len(outer)), [*holder, *waiting])]
    rows.add(
        events.start[whole],
        events.end[whole],
        kind=Kind.COMPUTE,
        lane=thread_lanes(events, rows, whole, "thread"),
        name=event_names(events, rows, whole),
        size=events.size[whole],
    )
    call_rows = rows.add(
        events.start[calls],
        events.end[calls],
        kind=Kind.COORDINATE,
        lane=thread_lanes(events, rows, calls, "thread"),
        name=event_names(events, rows, calls),
    )
    inside: dict[int, list[tuple[int, int]]] = {}
    for call, held in zip(calls.tolist(), holder.tolist(), strict=True):
        if held >= 0 and int(outer[held]) != call:
            inside.setdefault(int(outer[held]), []).append((int(events.start[call]), int(events.end[call])))
    for (_, since, until), held in zip(waits.tolist(), waiting.tolist(), strict=True):
        if held >= 0:
            inside.setdefault(int(outer[held]), []).append((since, until))
    _add_pieces(events, inside, rows)
    return call_rows


def _add_pieces(events: Events, inside: dict[int, list[tuple[int, int]]], rows: Rows) -> None:
    """What is left of an operator before, between and after the calls and waits inside it."""
    pieces: list[tuple[int, int, int, int, int]] = []
    for op, held in inside.items():
        name = events.names[events.name[op]][:NAME_LENGTH]
        lane, size = rows.lanes[f"thread {events.threads[events.place[op]]}"], int(events.size[op])
        at, part = int(events.start[op]), name
        for begin, end in sorted(held):
            if begin > at:
                pieces.append((at, begin, lane, rows.names[part], size))
            at, part = max(at, end), f"{name} (after)"
        pieces.append((at, max(at, int(events.end[op])), lane, rows.names[part], size))
    if pieces:
        start, end, lane_of, name_of, size_of = np.array(pieces, dtype=np.int64).T
        rows.add(start, end, kind=Kind.COMPUTE, lane=lane_of, name=name_of, size=size_of)
