"""Critical-path turnover: how much of the path that sets the step time changes from step to step.

Null hypothesis: jitter is independent, so in every step it is drawn anew who is late, and the path follows. The work of
ops that meet nobody is exchanged at random among the role peers of their step (among steps, for a rank that has no
peer) and the graph replayed: under the null that changes nothing, so the observed turnover is one more draw of the
same lot and the test has its size exactly, whatever the distribution. A path that is held (a slow rank, a long stage)
turns over less than that, one that alternates with the state the last step left behind turns over more.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints
from taut.core.ids import greatest, least, numbered
from taut.graph import Graph
from taut.replay.timeline import Timeline
from taut.result import types

DRAWS = 39
"""Replays of the null: with the observed one forty, so that p (two-sided) is at least 0.05, and at most 5 % of healthy
jobs have that."""
NULL_OPS = 30_000
"""Ops that the null is replayed with: the first steps of a large job. Where two steps do not fit, there is no p."""


CLOSE = 1e-12
"""Turnovers that differ by less are equal: sums of floats."""


class Turnover(Struct, frozen=True):
    """Turnover of the critical path."""

    distance: Floats
    """Per window: Jaccard distance of its critical (rank, class) pairs from those of the window before; NaN: first."""
    lot: Floats | None
    """Mean distance over the tested windows: observed, then in each replay of the null; None if it was not asked."""
    tested: int
    """Windows that the test looks at."""

    @property
    def value(self) -> float | None:
        """Mean over the windows; None below two of them."""
        return float(np.nanmean(self.distance)) if np.isfinite(self.distance).any() else None

    @property
    def p(self) -> float | None:
        """Chance of a turnover at least as high, or as low, under independent jitter: its place in the lot, two-sided."""
        if self.lot is None:
            return None
        # Ties count on both sides, so that the test is never too eager.
        share = min((self.lot >= self.lot[0] - CLOSE).mean(), (self.lot <= self.lot[0] + CLOSE).mean())
        return min(1.0, 2 * float(share))

    def entry(self) -> types.Turnover:
        """The turnover as ``--json`` has it."""
        return types.Turnover(
            value=self.value,
            p=self.p,
            windows=len(self.distance),
            tested_windows=self.tested,
            expected=None if self.lot is None else float(self.lot[1:].mean()),
        )


def turnover(graph: Graph, gap_free: Timeline, *, seed: int = 0) -> Turnover:
    """Turnover of the critical path of the gap-free timeline, and its null."""
    from taut.replay.ripples import closers, turnovers

    if len(graph.ranks) < 2:
        return Turnover(np.full(len(graph.steps), np.nan), None, 0)
    last = closers(gap_free.end_ns, gap_free.opener, graph.window, len(graph.steps))
    distance = turnovers(last, gap_free.bound, gap_free.opener, *_places(graph, len(graph)))
    ops = min(len(graph), NULL_OPS)
    tested = int(graph.window[ops:].min()) if ops < len(graph) else len(graph.steps)
    if tested < 2:
        return Turnover(distance, None, 0)
    return Turnover(distance, _lot(graph, ops, tested, np.random.default_rng(seed)), tested)


def _places(graph: Graph, ops: int) -> tuple[Indices, int, Ints, int]:
    """Window and cell (a class on a rank) of the first ops, each with how many there are."""
    g = graph
    cell, cells = g.on_rank(g.ops.name, len(g.names))
    return g.window[:ops], len(g.steps), cell[:ops], cells


def _lot(graph: Graph, ops: int, windows: int, rng: np.random.Generator) -> Floats:
    """Mean distances with the work as it is and as the null draws it, over the first ops of the graph's program."""
    from taut.core.group_kernels import group_sort
    from taut.replay.ripples import shuffled, turnovers_of_many

    g = graph
    rows, cell, cells = _exchangeable(g, ops)
    order, begin = group_sort(cell, cells)
    work, lots = g.work_ns[:ops], rows[order]
    drawn = np.stack([work, *(shuffled(work, lots, begin, rng.random(len(lots))) for _ in range(DRAWS))])
    # The program is in event order: the first ops of it are a program of their own.
    events = g.events if ops == len(g) else g.events[: np.flatnonzero(g.events == ops)[0]]
    ptr, none = g.pred_ptr[: ops + 1], np.zeros(ops, dtype=np.int64)
    distance = turnovers_of_many(
        events,
        ptr,
        g.pred[: ptr[-1]],
        g.lag_ns[: ptr[-1]],
        g.join[:ops],
        g.wait[:ops],
        g.wait_lag_ns[:ops],
        g.slots,
        none,
        drawn,
        *_places(g, ops),
    )
    means: Floats = np.nanmean(distance[:, 1:windows], axis=1)
    return means


def _exchangeable(graph: Graph, ops: int) -> tuple[Ints, Ints, int]:
    """(those of the first ops that meet nobody, the lot each draws from, how many lots).

    What slows a gate slows all of it and says nothing about who is late, so the work of its members stays. So does
    what a whole step has more: lots are drawn within a step where the class has peers there.
    """
    rows = np.flatnonzero(graph.gate[:ops] < 0)
    table = graph.ops
    cls, classes = numbered(graph.roles[rows], table.name[rows], table.size[rows], graph.place[rows])
    rank = table.rank[rows]
    alone = (least(cls, classes, rank) == greatest(cls, classes, rank))[cls]
    return rows, *numbered(cls, np.where(alone, -1, graph.window[rows]))
