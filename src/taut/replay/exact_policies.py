"""Policies on a measured graph: what the wall clock would have been had replicas met otherwise. Names are those of scenarios.

Exact, given unchanged work: local steps (data-parallel reductions of the other steps are left out, gates and transfers) and
semi-synchronous (a replica waits for what all had done so many steps ago). Both hold for consecutive steps in their order:
what replicas are late by adds up within a block of steps, and steps in another order would even it out.

A step's window ends when the last op of any rank ends; between two meetings replicas run ahead of each other across windows,
so walls are compared over whole blocks, from one meeting to the next. Blocks begin at every step in turn (at most
``PHASES`` ways to cut the run, of a large one fewer), so that no step is left out for the number of steps; what no whole
block holds is not counted.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
from msgspec import Struct, structs

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import greatest, numbered, occurrence
from taut.core.interval import LEVEL, Z, drawn, over
from taut.core.student import student_quantile
from taut.core.tables import NULL, Kind
from taut.graph import Graph
from taut.replay.after_meetings import Bound, bound_to_meetings
from taut.replay.chained import chained
from taut.replay.data_parallel import DataParallel, data_parallel
from taut.replay.engine import sweep
from taut.replay.timeline import completion, window_times
from taut.result.types import Estimate

PHASES = 8
"""Ways to cut a run into blocks, at most."""
VISITS, LEAST_PHASES = 5_000_000, 2
"""Op visits that these may cost together: a large run is cut in fewer ways, but in two at least."""


NEVER = -(1 << 60)
"""Lag of an edge that holds nobody up."""


class Measured(Struct, frozen=True):
    """A measured job, ready for policies."""

    graph: Graph
    """With the work and gaps that policies are applied to; its ops may be in another order than those it was made of."""
    met: DataParallel
    window_ns: Ints
    """How long each window took, without a policy."""
    place: Ints
    """Per window: how many steps of its run came before it."""
    run_steps: Ints
    """Per window: consecutive steps of its run."""
    at: Ints
    """Per op that meets other replicas: the window in which they meet; -1 for the others."""
    target: Ints
    """Per edge: the op that it leads to."""
    between: Ints
    """Edges from one replica to another: meetings that were not recorded as such."""

    @property
    def consecutive(self) -> bool:
        """Whether most steps follow one that was recorded; else they are samples."""
        return 2 * int(np.count_nonzero(self.place)) >= len(self.place) - 1

    def whole(self, steps: int) -> Mask:
        """Per window: whether a whole block of so many consecutive steps begins with it."""
        return np.asarray(self.place + steps <= self.run_steps)


class Outcome(Struct, frozen=True):
    """Walls of blocks of consecutive steps, in order, without and with a policy."""

    without_ns: Floats
    with_ns: Floats
    """What is surely saved follows from it."""
    most_ns: Floats | None = None
    """Of a bounded policy: the walls if all goes well."""
    steps: int = 1
    """Steps of a block."""
    blocks: float = 0.0
    """Whole blocks that do not overlap."""

    @property
    def saved(self) -> Estimate | None:
        """Share of the wall that the policy saves, with an interval from blocks drawn again; None where no block is whole."""
        sure = _share(self.without_ns, self.with_ns, self.steps, self.blocks)
        if sure is None or self.most_ns is None:
            return sure
        most = _share(self.without_ns, self.most_ns, self.steps, self.blocks)
        high = None if most is None or most.hi is None else max(most.hi, sure.value)
        return Estimate(value=sure.value, lo=sure.lo, hi=high)


NOTHING = Outcome(without_ns=np.zeros(0), with_ns=np.zeros(0))
"""Of a job that no policy can relax: no share is known."""


def _share(without: Floats, with_: Floats, steps: int, blocks: float) -> Estimate | None:
    """1 − Σ with ÷ Σ without. Blocks overlap, so runs of them are drawn; few whole blocks widen the interval (Student)."""
    if not len(without) or not without.sum() > 0:
        return None
    value = 1 - float(with_.sum() / without.sum())
    if blocks < 2:
        return Estimate(value=value, lo=None, hi=None)
    each = max(1, round(len(without) / blocks))  # overlapping blocks for each whole one
    again = drawn(len(without), max(each, round(len(without) ** (1 / 3))))
    found = 1 - over(with_[again].sum(axis=1), without[again].sum(axis=1))
    low, high = np.nanquantile(found, LEVEL)
    wide = student_quantile(LEVEL[0], blocks - 1) / Z * sqrt(blocks / (blocks - 1))
    return Estimate(
        value=value, lo=value - wide * max(value - float(low), 0.0), hi=value + wide * max(float(high) - value, 0.0)
    )


def measured(
    graph: Graph,
    work_ns: Ints | None = None,
    gap_ns: Ints | None = None,
    met: DataParallel | None = None,
    bound: Bound | None = None,
) -> Measured:
    """A job ready for policies, with other work and gaps where given (findings mended, say).

    ``bound`` is the graph bound to its meetings, where that is known: for all work and gaps it is the same.
    """
    work, gap = (old if new is None else new for old, new in ((graph.work_ns, work_ns), (graph.gap_ns, gap_ns)))
    met = data_parallel(graph) if met is None else met
    bound = bound_to_meetings(graph, met.ops) if bound is None else bound
    return _measured(chained(bound.with_times(work, gap)), structs.replace(met, ops=met.ops[bound.was]))


def _measured(joined: Graph, met: DataParallel) -> Measured:
    """The job of a graph that is bound to its meetings, its steps behind one another; ``met`` is by its ops."""
    run = joined.segment
    first = np.searchsorted(run, run)
    at = np.full(len(joined), NULL, dtype=np.int64)
    mine = np.flatnonzero(met.ops)
    at[mine] = greatest(joined.gate, int(joined.gate.max(initial=-1)) + 2, joined.window)[joined.gate[mine]]
    target = np.repeat(np.arange(len(joined)), np.diff(joined.pred_ptr))
    unit = met.unit[joined.rank_index]
    return Measured(
        graph=joined,
        met=met,
        window_ns=windows(joined),
        place=np.arange(len(run)) - first,
        run_steps=np.bincount(run)[run] if len(run) else np.zeros(0, dtype=np.int64),
        at=at,
        target=target,
        between=np.flatnonzero(unit[joined.pred] != unit[target]),
    )


def outlined(graph: Graph, met: DataParallel) -> Measured:
    """A job as far as it tells which policies can be asked about: nothing is replayed, no window has a time."""
    run, none = graph.segment, np.zeros(0, dtype=np.int64)
    if graph.trace.relative and len(graph.steps):  # as ``chained`` joins them
        run = np.cumsum(np.diff(graph.steps, prepend=graph.steps[:1]) != 1) - 1
    return Measured(
        graph=graph,
        met=met,
        window_ns=np.zeros(len(run), dtype=np.int64),
        place=np.arange(len(run)) - np.searchsorted(run, run),
        run_steps=np.bincount(run)[run] if len(run) else none,
        at=none,
        target=none,
        between=none,
    )


def with_work(job: Measured, bound: Bound, work_ns: Ints, gap_ns: Ints) -> Measured:
    """The job that was measured on ``bound``, with other work and gaps, in the order of the ops that it was made of."""
    given = bound.with_times(work_ns, gap_ns)
    joined = chained(given)
    if joined is given:
        return structs.replace(job, graph=joined, window_ns=windows(joined))
    return _measured(joined, job.met)


def windows(graph: Graph) -> Ints:
    """How long each window takes."""
    _, end, _, _ = sweep(*graph.program(graph.join, graph.wait), graph.slots, graph.work_ns, graph.gap_ns)
    return window_times(graph, completion(graph, end))


def local_steps(job: Measured, steps: int, phase: int | None = None) -> Outcome:
    """Replicas meet in every so many-th step only; reductions of the other steps are left out, gates and transfers.

    With a ``phase`` only the blocks count that begin so many steps, and whole blocks, after the first of their run.
    """
    if job.met.refused or not job.consecutive:
        return NOTHING
    from concurrent.futures import ThreadPoolExecutor

    ways = min(steps, max(min(PHASES, VISITS // max(len(job.graph), 1)), LEAST_PHASES))
    phases = steps * np.arange(ways) // ways if phase is None else np.array([phase % steps])
    begins = job.whole(steps)
    out = job.window_ns.astype(np.float64)
    with ThreadPoolExecutor(2) as pool:
        lengths = list(pool.map(lambda one: windows(local(job, steps, one)), phases.tolist()))
    for one, length in zip(phases.tolist(), lengths, strict=True):
        mine = np.flatnonzero(begins & ((job.place - one) % steps == 0))
        out[mine] = _over(length, mine, steps)
        begins[mine] = False
    chosen = np.flatnonzero(job.whole(steps) & ~begins)
    return Outcome(
        without_ns=_over(job.window_ns, chosen, steps).astype(np.float64),
        with_ns=out[chosen],
        steps=steps,
        blocks=float((np.unique(job.graph.segment, return_counts=True)[1] // steps).sum()),
    )


def local(job: Measured, steps: int, phase: int = 0) -> Graph:
    """The graph in which replicas meet in the last step of every block, the first of which begins after ``phase`` steps."""
    return apart(job, (job.place - phase) % steps != steps - 1)


def _over(length: Ints, first: Ints, steps: int) -> Ints:
    """Sums over so many windows from each first one on."""
    total = np.append(0, np.cumsum(length))
    return np.asarray(total[first + steps] - total[first])


def apart(job: Measured, alone: Mask) -> Graph:
    """The graph in which replicas do not meet in these windows, nor transfer; ranks of one replica still meet there."""
    g, rows = job.graph, np.flatnonzero((job.at >= 0) & alone[job.at])
    slot = np.where(g.join[rows] >= 0, g.join[rows], g.wait[rows])
    own, count = numbered(slot, job.met.unit[g.rank_index[rows]])
    joins, waits = g.join[rows] >= 0, g.wait[rows] >= 0
    comes = np.bincount(own[joins], minlength=count)
    # Who would wait for nobody but itself does not wait.
    waits &= comes[own] > joins
    join, wait, work, gate = (column.copy() for column in (g.join, g.wait, g.work_ns, g.gate))
    join[rows] = np.where(joins, g.slots + own, NULL)
    wait[rows] = np.where(waits, g.slots + own, NULL)
    work[rows], work[_calls(g, rows)], gate[rows] = 0, 0, NULL
    lag = g.lag_ns
    if len(job.between):
        lag = lag.copy()
        lag[job.between[alone[g.window[job.target[job.between]]]]] = NEVER
    return with_slots(replace(g, work_ns=work, gate=gate, lag_ns=lag), join, wait, g.slots + count)


def _calls(graph: Graph, rows: Ints) -> Ints:
    """The host's calls that launched these ops and no others: what is left out is not called."""
    launch = graph.ops.launch
    own = launch[rows[launch[rows] >= 0]]
    if not len(own):
        return own
    all_of, left_out = (np.bincount(some, minlength=len(graph)) for some in (launch[launch >= 0], own))
    return np.flatnonzero((left_out > 0) & (left_out == all_of) & (graph.ops.kind == Kind.COORDINATE))


def with_slots(graph: Graph, join: Indices, wait: Indices, slots: int) -> Graph:
    """The graph with other slots; who waits nowhere ends when it arrives."""
    events = graph.events
    ends = np.flatnonzero(events < 0)
    gone = ends[wait[~events[ends]] < 0]
    join, wait = (column.astype(np.int32, copy=False) for column in (join, wait))
    return replace(graph, join=join, wait=wait, slots=slots, events=np.delete(events, gone) if len(gone) else events)


def semi_synchronous(job: Measured, steps: int) -> Outcome:
    """Nobody is more than so many steps ahead of the slowest; every step moves what it moved.

    A run begins with all replicas together and ends when the last is done, which saves less than a longer one would.
    """
    if job.met.refused or not job.consecutive:
        return NOTHING
    length = windows(stale(job, steps))
    usable = job.run_steps > steps
    each = max(1, steps + 1)
    return Outcome(
        without_ns=job.window_ns[usable].astype(np.float64),
        with_ns=length[usable].astype(np.float64),
        steps=1,
        blocks=float((np.unique(job.graph.segment[usable], return_counts=True)[1] // each).sum()) if usable.any() else 0.0,
    )


def stale(job: Measured, steps: int) -> Graph:
    """The graph in which a replica waits at each meeting for what all had done so many steps before."""
    g, rows = job.graph, np.flatnonzero(job.at >= 0)
    gates = int(g.gate.max(initial=-1)) + 1
    slot_of, window_of = np.full((2, gates + 1), NULL, dtype=np.int64)
    joins = rows[g.join[rows] >= 0]
    slot_of[g.gate[joins]] = g.join[joins]
    window_of[g.gate[rows]] = job.at[rows]
    # Gates of one group and turn, step by step: the turn is by when they opened.
    some = np.unique(g.gate[rows])
    some = some[np.argsort(g.gates.opens_ns[some], kind="stable")]
    group, window = g.gates.group[some].astype(np.int64), window_of[some]
    track, _ = numbered(group, occurrence(group, window))
    key = track * len(g.steps) + window
    order = np.argsort(key)
    found = np.minimum(np.searchsorted(key[order], key - steps), max(len(key) - 1, 0))
    there = (key[order][found] == key - steps) & (job.place[window] >= steps)
    behind = np.full(gates + 1, NULL, dtype=np.int64)
    behind[some] = np.where(there, slot_of[some[order][found]], NULL)
    wait = g.wait.astype(np.int64)
    wait[rows] = np.where(g.wait[rows] >= 0, behind[g.gate[rows]], NULL)
    # In the order of events a slot must be complete before anybody looks at it; where it is not, nobody waits for it.
    when = np.zeros((2, len(g)), dtype=np.int64)
    ends = g.events < 0
    when[0, g.events[~ends]] = np.flatnonzero(~ends)
    when[1, ~g.events[ends]] = np.flatnonzero(ends)
    full = greatest(g.join[joins], g.slots + 1, when[0, joins])
    wait[rows] = np.where((wait[rows] >= 0) & (full[wait[rows]] < when[1, rows]), wait[rows], NULL)
    return with_slots(g, g.join.astype(np.int64), wait, g.slots)
