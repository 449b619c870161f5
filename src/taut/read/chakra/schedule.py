"""Plans of all ranks → traces: every op as early as its dependencies, its lane and its rendezvous allow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused
from taut.core.jit import kernel
from taut.core.tables import NULL, Kind, Trace, Verb
from taut.read.chakra.reader import trace_of
from taut.read.contents import Plan
from taut.read.verb_words import HOPS

LAID_OUT = "starts were laid out behind what each op depends on, not measured: idle time and its causes are not seen"
SHORTEST = "collectives last as long as their quickest member: the time of the others includes waiting"
INSTANT = "some messages have no duration: they are waited for, but take no time themselves"
ALONE = "some messages have no counterpart on the other ranks, or another one: they are laid out alone"
CIRCULAR = "some messages wait for each other in a circle: they are laid out alone"
HOP = ""
# A hop: HOP, sender, receiver and tag. A collective: the name of its group, and its ranks.
Channel = tuple[str, int, int, int] | tuple[str, tuple[int, ...]]
LONGEST_NS = 4e18
# A message without a duration lasts so long: what meets must end after it began.
LEAST_NS = 1


def laid_out(plans: Sequence[Plan]) -> list[tuple[str, Trace]]:
    """The traces of plans, on one clock that begins with 0."""
    ranks = _ranks(plans)
    offset = np.concatenate([[0], np.cumsum([len(plan.place) for plan in plans])])
    duration = np.concatenate([plan.duration_ns for plan in plans])
    duration[np.concatenate([_untimed(plan) for plan in plans])] = LEAST_NS
    if duration.sum(dtype=np.float64) > LONGEST_NS:
        raise InputRefused(plans[0].label, "durations of more than a century together", "check their unit: they are µs")
    gates = _Gates(plans, ranks, offset, duration)
    start, end, circular = _times(*_edges(plans, offset), duration, gates)
    traces = []
    for plan, rank, at, to in zip(plans, ranks, offset[:-1].tolist(), offset[1:].tolist(), strict=True):
        plan.notes.append(LAID_OUT)
        if (gates.of[at:to] >= 0).any():
            plan.notes.append(SHORTEST)
        notes = (
            ("messages without a duration", _untimed(plan), INSTANT),
            ("messages that wait in a circle", circular[at:to], CIRCULAR),
            ("messages without a counterpart", gates.alone[at:to], ALONE),
        )
        for reason, which, note in notes:
            if which.any():
                plan.counts[reason] = int(which.sum())
                plan.notes.append(note)
        traces.append((plan.label, trace_of(plan, rank, start[at:to], end[at:to])))
    return traces


def _untimed(plan: Plan) -> Mask:
    """Messages without a duration."""
    message = (plan.columns["kind"] == Kind.COMMUNICATE) & (plan.columns["verb"] != Verb.NONE)
    untimed: Mask = message & (plan.duration_ns == 0)
    return untimed


def _ranks(plans: Sequence[Plan]) -> list[int]:
    """The ranks; plans that name none take those that are free, in their order, with a note."""
    taken = {plan.rank for plan in plans}
    free = (rank for rank in range(len(plans) + len(taken)) if rank not in taken)
    ranks = []
    for plan in plans:
        rank = plan.rank
        if rank < 0:
            rank = next(free)
            plan.notes.append(f"{plan.label} does not name its rank: taken as rank {rank} from the order of the files")
        ranks.append(rank)
    return ranks


def _edges(plans: Sequence[Plan], offset: Ints) -> tuple[Ints, Ints]:
    """Dependencies, and the order of each lane."""
    parts = []
    for plan, at in zip(plans, offset[:-1].tolist(), strict=True):
        rows = np.flatnonzero(plan.serial)
        rows = rows[np.lexsort((plan.place[rows], plan.columns["lane"][rows]))]
        same = np.diff(plan.columns["lane"][rows]) == 0
        parts += [(plan.source + at, plan.target + at), (rows[:-1][same] + at, rows[1:][same] + at)]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


class _Gates:
    """Which messages meet: the k-th of a group on every rank, the k-th of a channel at both ends."""

    def __init__(self, plans: Sequence[Plan], ranks: Sequence[int], offset: Ints, duration: Ints) -> None:
        self.of: Ints = np.full(len(duration), NULL, dtype=np.int64)
        """Gate of each op, -1 for none."""
        self.alone: Mask = np.zeros(len(duration), dtype=np.bool_)
        """Messages whose counterparts are missing or of another kind."""
        queues: dict[Channel, dict[int, list[int]]] = {}
        for plan, rank, at in zip(plans, ranks, offset[:-1].tolist(), strict=True):
            rows = np.flatnonzero((plan.columns["kind"] == Kind.COMMUNICATE) & (plan.columns["verb"] != Verb.NONE))
            for row in rows[np.argsort(plan.place[rows])].tolist():
                if (channel := _channel(plan, rank, row)) is not None:
                    key, side = channel
                    queues.setdefault(key, {}).setdefault(side, []).append(row + at)
        verb = np.concatenate([plan.columns["verb"] for plan in plans])
        lasts: list[int] = []
        for key, sides in queues.items():
            # The k-th messages of all sides meet; unequal counts or verbs mean that the sides are not comparable.
            lines = np.array(list(sides.values())) if len({len(line) for line in sides.values()}) == 1 else None
            if lines is None or (key[0] != HOP and (verb[lines] != verb[lines[0]]).any()):
                self.alone[[row for line in sides.values() for row in line]] = True
            elif len(lines) > 1:
                self.of[lines] = np.arange(len(lasts), len(lasts) + lines.shape[1])
                known = np.where(duration[lines] > LEAST_NS, duration[lines], LONGEST_NS).min(axis=0)
                lasts += np.where(known < LONGEST_NS, known, LEAST_NS).astype(np.int64).tolist()
        self.lasts: Ints = np.array(lasts, dtype=np.int64)
        """How long each gate's transfer takes: as long as its quickest member."""


def _channel(plan: Plan, rank: int, row: int) -> tuple[Channel, int] | None:
    """What an op has in common with its counterparts, and which side of it this is; None if that is not recorded."""
    verb, peer, group = (int(plan.columns[key][row]) for key in ("verb", "peer", "group"))
    if verb in HOPS:
        ends = (rank, peer) if verb == Verb.SEND else (peer, rank)
        return ((HOP, *ends, int(plan.tag[row])), verb) if peer >= 0 else None
    if group < 0:
        return None
    name = plan.groups[group]
    return (name, tuple(plan.group_ranks.get(name, ()))), rank


def _times(source: Ints, target: Ints, duration: Ints, gates: _Gates) -> tuple[Ints, Ints, Mask]:
    """(start, end, messages of gates in a circle, which are taken apart)."""
    n, gate = len(duration), gates.of
    order = np.argsort(source, kind="stable")
    first = np.searchsorted(source[order], np.arange(n + 1))
    pending = np.bincount(target, minlength=n)
    circular: Mask = np.zeros(n, dtype=np.bool_)
    while True:
        members = np.argsort(gate, kind="stable")
        members = members[gate[members] >= 0]
        begin = np.searchsorted(gate[members], np.arange(len(gates.lasts) + 1))
        start, end = sweep(first, target[order], pending, duration, gate, members, begin, gates.lasts)
        stuck = (end < 0) & (gate >= 0)
        if not stuck.any():
            return start, end, circular
        # Gates that wait for each other never open: their messages become ordinary ops, and the sweep starts anew.
        apart = np.isin(gate, gate[stuck])
        circular |= apart
        gate = np.where(apart, NULL, gate)


@kernel(lists=True)
def sweep(
    first: Ints,
    target: Ints,
    pending: Ints,
    duration: Ints,
    gate: Ints,
    members: Ints,
    begin: Ints,
    lasts: Ints,
) -> tuple[Ints, Ints]:
    """(start, end) of ops in the order in which they become possible; -1 for the end of what never does.

    An op starts when the last of what it depends on has ended; an op of a gate ends when the gate's last member has
    started and the transfer is over. ``first`` and ``target`` are the dependencies by source, ``members`` and ``begin``
    the ops by gate.
    """
    n = len(duration)
    start, end, left, queue = np.zeros(n, np.int64), np.full(n, -1, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    arrived, opens = np.zeros(len(lasts), np.int64), np.zeros(len(lasts), np.int64)
    count = 0
    for v in range(n):
        left[v] = pending[v]
        if pending[v] == 0:
            queue[count] = v
            count += 1
    at = 0
    while at < count:
        v = queue[at]
        at += 1
        g = gate[v]
        low, high = 0, 1
        if g >= 0:
            arrived[g] += 1
            opens[g] = max(opens[g], start[v])
            low, high = begin[g], begin[g + 1]
            if arrived[g] < high - low:
                continue
        for k in range(low, high):
            m = members[k] if g >= 0 else v
            end[m] = opens[g] + lasts[g] if g >= 0 else start[v] + duration[v]
            for i in range(first[m], first[m + 1]):
                w = target[i]
                start[w] = max(start[w], end[m])
                left[w] -= 1
                if left[w] == 0:
                    queue[count] = w
                    count += 1
    return start, end
