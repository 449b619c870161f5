"""Places that became slower, and the series of a graph in which they show: sums per step, and what a class usually takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from statistics import NormalDist

import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask, Numbers
from taut.core.change_points import Span
from taut.core.ids import coded, weighed
from taut.core.scratch import kept
from taut.core.tables import Kind
from taut.diagnose.class_medians import class_medians
from taut.graph import Graph
from taut.replay.exposed import copies

LATE = 0.5
"""Members that end at least this share of the latest member's lateness later than before are receivers of slow links."""
RECURS = 3
"""Steps from which something recurs, where there are enough to tell: one or two are accidents."""
FALSE_ALARMS = 0.02
"""Chance that spikes of a run, if it has any, are said to be of one place though they fall anywhere."""


class Place(Struct, frozen=True):
    """One rank, or some directed links, slower in windows first … last."""

    first: int
    last: int
    score: float
    spikes: bool
    extra_ns: float
    """Mean per window, ns."""
    tests: int = 1
    """Spans and series among which it is the best."""
    rank: int = -1
    """Index of the rank; -1 for links."""
    links: tuple[tuple[int, int], ...] = ()
    name: int = -1
    """Index of the class name that takes longer on all ranks; -1 for one rank, and for links."""
    grows: bool = False
    """Whether it gets slower from step to step."""
    gates: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Mask over the gates whose transfers it holds up; empty where a rank holds up none by itself."""

    @property
    def total_ns(self) -> float:
        """Over its windows."""
        return self.extra_ns * (self.last - self.first + 1)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Its links, as ``sender:receiver``."""
        return tuple(f"{sender}:{receiver}" for sender, receiver in self.links)

    def holds(self, window: Indices) -> Mask:
        """Which windows lie in its span."""
        return (window >= self.first) & (window <= self.last)

    @property
    def owners(self) -> set[int]:
        """Ranks that all the links share: whose network interface it may be."""
        return shared_ends(self.links)


def shared_ends(links: Iterable[tuple[int, int]]) -> set[int]:
    """Ranks that all of some links have in common."""
    ends = [set(pair) for pair in links]
    return set.intersection(*ends) if ends else set()


class Series:
    """Sums of a graph by step, and what its classes take outside some of them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.windows, self.count = len(graph.steps), len(graph.ranks)
        self.own = (graph.ops.kind != Kind.COMMUNICATE) | copies(graph)

    @cached_property
    def classes(self) -> tuple[Codes, int]:
        """The same op of the same rank at the same place in the step."""
        ops = self.graph.ops
        return coded(ops.rank, ops.name, ops.size, self.graph.place)

    def let_go(self) -> None:
        """Let go of the class of every op, which is found again when asked."""
        self.__dict__.pop("classes", None)

    def outside(self, values: Ints, ops: Ints, windows: Mask) -> Floats:
        """For each of ``ops``: median of its class outside some windows (a mask); NaN where there is none."""
        return self._median_of_kin(values, ops, lambda kin: ~windows[self.graph.window[kin]])

    def outside_of(self, values: Ints, ops: Ints, but: Mask) -> Floats:
        """The same outside of some ops (a mask)."""
        return self._median_of_kin(values, ops, lambda kin: ~but[kin])

    def _median_of_kin(self, values: Ints, ops: Ints, in_use: Callable[[Ints], Mask]) -> Floats:
        cls, count = self.classes
        asked = np.zeros(count, dtype=bool)
        asked[cls[ops]] = True
        kin = np.flatnonzero(asked[cls])
        return class_medians(values[kin], cls[kin], count, in_use(kin))[cls[ops]]

    def table(self, values: Numbers, key: Indices, count: int, window: Indices) -> Floats:
        """Sums of values by key (below ``count``) and window."""
        cell = kept(key.astype(np.int64, copy=False) * self.windows + window)
        return weighed(cell, values, count * self.windows).reshape(count, self.windows)


def all_along(graph: Graph, rank: int) -> Place:
    """A rank (index) in all steps, about which nothing else is known."""
    return Place(0, len(graph.steps) - 1, 0.0, False, 0.0, rank=rank)


def score_of(chance: float) -> float:
    """A chance as standard errors of a normal variable; none where it is as likely as not."""
    return NormalDist().inv_cdf(1 - min(max(chance, 1e-16), 0.5))


def extra_ns(series: Floats, span: Span, but: Mask | None = None) -> float:
    """Mean inside the span above the mean outside it, some windows (a mask) left out there."""
    outside = np.ones(len(series), dtype=bool) if but is None else ~but
    outside[span.first : span.last + 1] = False
    inside = series[span.first : span.last + 1]
    return float(inside.mean() - series[outside].sum() / max(np.count_nonzero(outside), 1))
