"""Blame: every observed wait split without remainder, and its fault part charged to the ops that caused it.

Two arrivals at a gate meet at their lowest common ancestor in the binding forest; what made the last one late lies on
its branch below. The split is made on the gap-free replay, because a gap is a shadow until proven otherwise; what the
observed wait has beyond it is blamed on gaps in excess of their class, and what remains is unexplained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from msgspec import Struct, structs

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import distinct, sums, total
from taut.core.interval import FALSE_ALARMS
from taut.core.scratch import kept, zeros
from taut.core.student import student_quantile
from taut.core.tables import Table, col, constant
from taut.graph import Graph
from taut.graph.joined import Joined
from taut.replay import reference
from taut.replay.timeline import Change, Timeline, replay


class Wait:
    """One wait of one op at its gate; the five parts sum to it exactly."""

    op: int = col("int64", "the waiting op")
    opener: int = col("int64", "the op that arrived last")
    wait_ns: int = col("int64", "gate opening minus arrival, ns", 0)
    fault_ns: int = col("int64", "net excess of the last arriver outside its peers' prediction interval, ns", 0)
    jitter_ns: int = col("int64", "ordinary variation that the gate turned into waiting, ns", 0)
    structural_ns: int = col("int64", "wait that remains with every op at its reference, ns", 0)
    gap_ns: int = col("int64", "gaps of the last arriver in excess of their class, ns", 0)
    unexplained_ns: int = col("int64", "the rest, ns", 0)


PARTS = ("fault_ns", "jitter_ns", "structural_ns", "gap_ns", "unexplained_ns")


SQUARE, SQUARE_PER_OP = 1 << 22, 64
"""Pairs of ranks that are all held, whatever the ops are, and for each op; of more only those that occur are."""
PART = 1 << 18
"""Ops whose rank and role are looked at at once."""
SLOTS = 4_194_302
"""Pairs that are held then, and one slot for what finds none; a prime without it, because a slot is a remainder."""


class WaitTotals(Struct, frozen=True):
    """What was waited over a run, and its five parts, rank-ns."""

    wait_ns: int
    fault_ns: int
    jitter_ns: int
    structural_ns: int
    gap_ns: int
    unexplained_ns: int


class Pairs(Struct, frozen=True):
    """Sums for pairs of ranks, in the order of their number: cause × ranks + victim."""

    ranks: int
    number: Ints
    ns: Ints

    def above(self, share: float) -> tuple[Ints, Ints, Ints]:
        """(cause, victim, sum) of the pairs above this share of the largest, as indices of ranks."""
        found = np.flatnonzero(self.ns > share * self.ns.max(initial=0))
        number = self.number[found]
        return number // self.ranks, number % self.ranks, self.ns[found]


def _pairs(ranks: int, faults: Sequence[Ints], gaps: Sequence[Ints]) -> Pairs:
    """What faults and gaps gave to pairs, together: (numbers, sums) each, the numbers empty where all pairs are held."""
    if not len(faults[0]):
        both = faults[1] + gaps[1]
        number = np.flatnonzero(both)
        return Pairs(ranks, number, both[number])
    held = [np.flatnonzero(number >= 0) for number in (faults[0], gaps[0])]
    number, of = np.unique(np.concatenate([faults[0][held[0]], gaps[0][held[1]]]), return_inverse=True)
    return Pairs(ranks, number, sums(of, np.concatenate([faults[1][held[0]], gaps[1][held[1]]]), len(number)))


class AtSome(Struct, frozen=True):
    """Time of some ops, ns; all others have none."""

    ops: Indices
    ns: Ints

    def of_all(self, count: int) -> Ints:
        """The same for each of so many ops."""
        out = np.zeros(count, dtype=np.int64)
        out[self.ops] = self.ns
        return out


def _at_some(ns: Ints) -> AtSome:
    """The ops that have any of this time: of waits few ops are the cause."""
    ops = np.flatnonzero(ns)
    return AtSome(ops.astype(np.int32), ns[ops])


class Blame(Struct, frozen=True, dict=True):
    """Who caused which wait."""

    graph: Graph
    waits: Table
    score: Floats
    """Per wait: net excess of the last arriver in units of its peers' spread; NaN where no reference exists."""
    threshold: float
    """Scores above this are fault."""
    free: float
    """Degrees of freedom behind the spreads: scores are Student's."""
    fault: AtSome
    """Wait of others that the excess of an op caused, rank-ns."""
    gap: AtSome
    """Wait of others that the gap before an op caused, rank-ns."""
    pairs: Pairs
    """Cause rank × victim rank, fault and gap together, rank-ns."""
    peers: reference.Reference
    gap_reference: Floats
    ordinary_ns: Ints
    """Per window: how long it takes with every op at its reference, without gaps."""
    part_of_fault: Callable[[Mask], Ints]
    """Per wait: what of its fault part some ops caused, ns."""

    @property
    def fault_ns(self) -> Ints:
        """Per op: wait of others that its excess caused, rank-ns."""
        return self.fault.of_all(len(self.graph))

    @property
    def gap_ns(self) -> Ints:
        """Per op: wait of others that the gap before it caused, rank-ns."""
        return self.gap.of_all(len(self.graph))

    @property
    def usual_ns(self) -> Ints:
        """Per op: its work at its reference, where it has one, else as it was."""
        return at_reference(self.graph, self.peers)

    def usual_at(self, ops: Indices) -> Ints:
        """The same of some ops."""
        return _at_reference(self.graph.work_ns[ops], self.peers.value_ns[ops])

    def mended_by(self, changes: Sequence[Change]) -> Blame:
        """The same where fault is what these changes mend, and nothing else: the rest of it is jitter, which nobody mends."""
        waits, mends = self.waits, np.zeros(len(self.graph), dtype=bool)
        for change in changes:
            mends[change.ops] = True
        if not waits.fault_ns.any() or mends[self.fault.ops].all():
            return self
        fault = self.part_of_fault(mends)
        return structs.replace(self, waits=waits.replace(fault_ns=fault, jitter_ns=waits.jitter_ns + waits.fault_ns - fault))

    @cached_property
    def totals(self) -> WaitTotals:
        """The five parts and their sum over the run, rank-ns."""
        return WaitTotals(*(total(self.waits.columns[column]) for column in ("wait_ns", *PARTS)))

    @cached_property
    def usual_gap_ns(self) -> Ints:
        """Gap before every op, at most its reference where there is one."""
        if not self.graph.gap_ns.any():
            return self.graph.gap_ns
        at_most = np.where(np.isnan(self.gap_reference), np.inf, self.gap_reference)
        return kept(np.minimum(self.graph.gap_ns, at_most).astype(np.int64))

    @property
    def excess_ns(self) -> Floats:
        """Work above the leave-one-out reference, per op; 0 where there is no reference."""
        return kept(_excess(self.graph.work_ns, self.peers.value_ns))

    def excess_at(self, ops: Indices | Mask) -> Floats:
        """The same of some ops."""
        return _excess(self.graph.work_ns[ops], self.peers.value_ns[ops])

    @cached_property
    def matrix(self) -> Ints:
        """Cause rank × victim rank as a table of all pairs, of jobs that are not too large for one."""
        out = np.zeros((len(self.graph.ranks), len(self.graph.ranks)), dtype=np.int64)
        cause, victim, caused = self.pairs.above(0.0)
        out[cause, victim] = caused
        return out

    @cached_property
    def caused_ns(self) -> Ints:
        """Per rank: wait that it caused, fault and gap together, rank-ns."""
        rank, ranks = self.graph.rank_index, len(self.graph.ranks)
        return sums(rank[self.fault.ops], self.fault.ns, ranks) + sums(rank[self.gap.ops], self.gap.ns, ranks)


def _excess(work: Ints, reference_ns: Floats) -> Floats:
    excess = work - reference_ns
    excess[np.isnan(excess)] = 0.0
    return excess


def at_reference(graph: Graph, peers: reference.Reference) -> Ints:
    """Work of every op at its leave-one-out reference, where it has one, ns."""
    return kept(_at_reference(graph.work_ns, peers.value_ns))


def _at_reference(work: Ints, reference_ns: Floats) -> Ints:
    from taut.replay.wait_kernels import rounded_reference

    return rounded_reference(work, reference_ns)


def _degrees_of_freedom(graph: Graph) -> float:
    """Of the spreads of a run: (steps − 1) × ranks of its smallest role; of a single step what its ranks tell."""
    wide, parts = len(graph.ranks) + 1, (slice(first, first + PART) for first in range(0, len(graph), PART))
    found = [distinct(graph.roles[some].astype(np.int64) * wide + graph.rank_index[some]) for some in parts]
    pairs = distinct(np.concatenate(found))
    ranks = int(np.unique(pairs // wide, return_counts=True)[1].min()) if len(pairs) else 1
    return float(max((len(graph.steps) - 1) * ranks, ranks - 1, 1))


def blame(graph: Graph, observed: Timeline, gap_free: Timeline, both: Joined | None = None) -> Blame:
    """Split and charge every wait of the observed timeline; references come from a baseline where there is one."""
    from taut.replay.wait_kernels import split_gaps, split_work

    # A table of all pairs of ranks where that is small, else a hash table of those that occur.
    slots = 0 if len(graph.ranks) ** 2 <= SQUARE + SQUARE_PER_OP * len(graph) else SLOTS
    peers = reference.peers(graph)
    peers = peers if both is None else reference.baseline(both, peers)
    # What still waits with every op at its reference is structural.
    ordinary = replay(replace(graph, work_ns=np.maximum(at_reference(graph, peers), 0)), gaps=False)
    ordinary_ns = ordinary.window_ns
    gap_reference = reference.gap_peers(graph)
    if both is not None:
        before = reference.baseline_medians(both, both.graph.gap_ns)[0]
        gap_reference = np.where(np.isnan(before), gap_reference, before)
    waited = np.flatnonzero(observed.opener >= 0)  # who waits at all has somebody who ended it
    wait, ordinary_wait = observed.wait_at(waited), ordinary.wait_at(waited)
    del ordinary  # a timeline of all ops, of which only this much is asked
    # Of an observed wait at most the gap-free one is split by work; what is beyond that can only come from gaps.
    whole = gap_free.wait_at(waited)
    least = np.minimum(wait, np.maximum(whole, 0))
    rank, ranks = graph.rank_index, len(graph.ranks)
    free = _degrees_of_freedom(graph)
    threshold = student_quantile(FALSE_ALARMS / max(len(waited) * ranks, 1), free)
    # What has no reference because its class is a mixture is taken as it was: the rest of a branch still tells who is late.
    value, cell, within, between = peers.value_ns, peers.cell, peers.within_of_cell_ns, peers.between_of_cell_ns
    if peers.mixed.any():
        value, cell = np.where(peers.mixed, graph.work_ns, value), np.arange(len(graph), dtype=np.int32)
        within, between = (np.where(peers.mixed, 0.0, spread) for spread in (peers.within_ns, peers.between_ns))

    def split(rows: Ints | slice, some: Mask) -> tuple[Ints, Ints, Floats, Ints, Ints, Ints]:
        """What ``split_work`` makes of some waits, of whose fault parts only what some ops caused is told."""
        t = gap_free
        return split_work(
            waited[rows],
            least[rows],
            ordinary_wait[rows],
            threshold,
            whole[rows],
            t.bound,
            t.opener,
            graph.work_ns,
            value,
            cell,
            within,
            between,
            rank,
            ranks,
            slots,
            some,
        )

    fault, structural, score, cause, *faults = split(slice(None), np.ones(len(graph), dtype=bool))

    def part_of_fault(some: Mask) -> Ints:
        """Per wait: what of its fault part some ops caused."""
        out, rows = np.zeros(len(waited), dtype=np.int64), np.flatnonzero(fault)
        out[rows] = split(rows, some)[0]
        return out

    unknown = np.isnan(score) & (least > 0)  # no reference on one of the branches
    structural = np.where(unknown, 0, structural)
    jitter = np.where(unknown, 0, least - fault - structural)
    rest = wait - fault - structural - jitter
    if constant(gap_reference):  # no class has a gap: nothing is blamed on one
        gap, gap_cause = np.zeros_like(rest), zeros(len(graph))
        gaps = [np.full(slots, -1, np.int64), np.zeros(slots if slots > 0 else ranks * ranks, np.int64)]
    else:
        gap, gap_cause, *gaps = split_gaps(
            waited, rest, observed.bound, observed.opener, graph.gap_ns, gap_reference, rank, ranks, slots
        )
    table = Table(
        Wait,
        {
            "op": waited,
            "opener": observed.opener[waited],
            "wait_ns": wait,
            "fault_ns": fault,
            "jitter_ns": jitter,
            "structural_ns": structural,
            "gap_ns": gap,
            "unexplained_ns": rest - gap,
        },
    )
    return Blame(
        graph,
        table,
        score,
        threshold,
        free,
        _at_some(cause),
        _at_some(gap_cause),
        _pairs(ranks, faults, gaps),
        peers,
        gap_reference,
        ordinary_ns,
        part_of_fault,
    )
