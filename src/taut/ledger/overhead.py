"""Control overhead: rank time that controllers took, op by op, and the action that took it.

Three ways. *Pauses*: a rank does nothing after an action on it until its next op begins; only what lies after the action,
and only where the pause is longer than any gap of its class without an action, what is above their median. *Waits*: what
others waited at gates for such a pause. *Own work*: what a caller does between a failed attempt and the next one (back-off),
and host work of a rank while a controller is at work on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.control.call_attempts import attempt_of
from taut.control.on_graph import LONGEST_NS, Projection, project
from taut.core.array_types import Indices, Ints
from taut.core.ids import numbered, total, weighed
from taut.core.tables import NULL, Kind
from taut.diagnose.discarded_calls import thrown_away
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.exposed import Exposed
from taut.replay.reference import gap_classes
from taut.replay.timeline import Timeline


@dataclass(frozen=True)
class Overhead:
    """Per op, ns: what controllers took of the exposed time around it."""

    on: Projection
    pause_ns: Ints
    """Of the idle time before it."""
    wait_ns: Ints
    """Of its exposed wait."""
    own_ns: Ints
    """Of its exposed work: all or nothing."""
    action: Ints
    """Row of the action, -1 for none; of several the one before the pause."""
    discarded_ns: Ints
    """Of its exposed work what was thrown away: it belongs to an attempt whose result nobody used."""
    attempt: Ints
    """Row of that attempt, -1 for none."""

    @property
    def ns(self) -> Ints:
        """All overhead."""
        return self.pause_ns + self.wait_ns + self.own_ns

    def rank_ns(self, rows: Ints) -> int:
        """What some actions took, and what was thrown away of them."""
        return total(self.ns[np.isin(self.action, rows)]) + total(self.discarded_ns[np.isin(self.attempt, rows)])

    def controller(self, ops: Ints) -> str | None:
        """Who took most of the time before some ops; None where nobody did."""
        before = self.pause_ns[ops] + self.own_ns[ops]
        if not before.any():
            return None
        names = self.on.graph.trace.actions.controller[self.action[ops[before > 0]]].astype(str)
        words, which = np.unique(names, return_inverse=True)
        return str(words[int(np.argmax(weighed(which, before[before > 0])))]) or None


def overhead(graph: Graph, observed: Timeline, blame: Blame, shown: Exposed, free: Ints, gap_wait_ns: Ints) -> Overhead:
    """What the actions of a trace took. ``free`` is idle time that is nobody's loss, ``gap_wait_ns`` exposed wait for gaps."""
    on = project(graph)
    own = _own(on)
    action = own.copy()
    own_ns = np.where(own >= 0, shown.working, np.int64(0))
    idle = shown.idle - free
    hit, by = on.next_ops(np.flatnonzero(on.interferes))
    pause = np.zeros(len(graph), dtype=np.int64)
    after = np.minimum(idle[hit], graph.ops.start_ns[hit] - on.begin_ns[by])
    # Only what lies after the action, and only above what is usual without one.
    pause[hit] = np.minimum(np.maximum(after, 0), _above_usual(graph, idle, hit))
    action[hit] = np.where(pause[hit] > 0, by, action[hit])
    wait, cause = _waits(graph, observed, blame, pause, gap_wait_ns)
    action = np.where((action < 0) & (cause >= 0), action[cause], action)
    gone = _thrown_away(on)
    return Overhead(on, pause, wait, own_ns, action, np.where((gone >= 0) & (own < 0), shown.working, np.int64(0)), gone)


def _above_usual(graph: Graph, idle: Ints, hit: Ints) -> Ints:
    """Idle time before some ops above what is usual where nobody acted; 0 where it is no longer than that gets anywhere.

    Usual is the median of the class on the rank, else on any rank, else nothing.
    """
    cls, classes = gap_classes(graph)
    wanted = np.zeros(classes, dtype=bool)
    wanted[cls[hit]] = True
    calm = wanted[cls]
    calm[hit] = False
    rows = np.flatnonzero(calm)
    both = np.concatenate([rows, hit])
    cell, cells = numbered(cls[both], graph.rank_index[both])
    middle, _ = _middle(cell[: len(rows)], cells, idle[rows])
    any_middle, longest = _middle(cls[rows], classes, idle[rows])
    mine, of_all = middle[cell[len(rows) :]], cls[hit]
    usual = np.where(mine >= 0, mine, np.maximum(any_middle[of_all], 0))
    return np.where(idle[hit] > longest[of_all], idle[hit] - usual, 0)


def _middle(cell: Indices, cells: int, values: Ints) -> tuple[Ints, Ints]:
    """(lower median, largest) of the values of each cell, -1 where it has none."""
    # Sorted by cell and value, the median of a cell lies half its rows before its last.
    order = np.lexsort((values, cell))
    count = np.bincount(cell, minlength=cells)
    last = np.cumsum(count) - 1
    ordered = np.append(values[order], NULL)
    has = count > 0
    return (
        np.where(has, ordered[np.where(has, last - count // 2, -1)], NULL),
        np.where(has, ordered[np.where(has, last, -1)], NULL),
    )


def _waits(graph: Graph, observed: Timeline, blame: Blame, pause: Ints, gap_wait_ns: Ints) -> tuple[Ints, Ints]:
    """Of each op's exposed wait what a pause caused, and the op with the longest of these pauses, -1 for none."""
    from taut.replay.wait_kernels import part_of_gaps

    ns, cause = np.zeros(len(graph), dtype=np.int64), np.full(len(graph), NULL, dtype=np.int64)
    waits = blame.waits.take(blame.waits.gap_ns > 0)
    if not pause.any() or not len(waits):
        return ns, cause
    part, most = part_of_gaps(waits.op, waits.gap_ns, observed.bound, observed.opener, graph.gap_ns, blame.gap_reference, pause)
    exposed = gap_wait_ns[waits.op]
    # Floats may round up: a part is never more than what is exposed.
    share = np.where(part == waits.gap_ns, exposed, np.floor(exposed * (part / waits.gap_ns)).astype(np.int64))
    ns[waits.op] = np.minimum(share, exposed)
    cause[waits.op] = np.where(ns[waits.op] > 0, most, NULL)
    return ns, cause


def _own(on: Projection) -> Ints:
    """Of each op the action whose controller did it, -1 for none."""
    out: Ints = on.inside(np.flatnonzero(on.graph.ops.kind == Kind.COORDINATE))
    _back_off(on, out)
    return out


def _thrown_away(on: Projection) -> Ints:
    """Of each op the attempt that it belongs to, where nobody used the result; -1 for none."""
    actions = on.graph.trace.actions
    # What lies inside another attempt that was thrown away has no time of its own.
    rows = np.flatnonzero(thrown_away(actions) & (on.segment >= 0) & (actions.busy_ns > 0))
    end = on.begin_ns[rows] + np.minimum(actions.busy_ns[rows], LONGEST_NS)
    out: Ints = attempt_of(on.graph, rows, on.segment[rows], on.begin_ns[rows], end)
    return out


def _back_off(on: Projection, out: Ints) -> None:
    """Ops that fill the time from the end of a failed attempt to the next, on the rank that tries again."""
    graph, actions = on.graph, on.graph.trace.actions
    before = actions.parent
    rows = np.flatnonzero((before >= 0) & (before < len(actions)) & (actions.attempt > 0) & (on.segment >= 0))
    was = before[rows]
    known = (actions.busy_ns[was] > 0) & (on.segment[was] == on.segment[rows]) & (actions.rank[was] == actions.rank[rows])
    rows, was = rows[known & (actions.rank[rows] >= 0)], was[known & (actions.rank[rows] >= 0)]
    begin, end = on.begin_ns[was] + np.minimum(actions.busy_ns[was], LONGEST_NS), on.begin_ns[rows]
    wanted = {
        (int(s), int(r), int(a), int(b)): row
        for s, r, a, b, row in zip(on.segment[rows], actions.rank[rows], begin, end, rows.tolist(), strict=True)
        if b > a
    }
    if not wanted:
        return
    ops, of = graph.ops, graph.segment[graph.window]
    some = np.flatnonzero(
        np.isin(ops.start_ns, begin) & np.isin(ops.end_ns, end) & np.isin(ops.kind, (Kind.COMPUTE, Kind.COORDINATE))
    )
    for op in some.tolist():
        key = int(of[op]), int(ops.rank[op]), int(ops.start_ns[op]), int(ops.end_ns[op])
        out[op] = wanted.get(key, int(out[op]))
