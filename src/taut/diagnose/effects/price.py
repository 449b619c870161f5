"""What effects cost: replays with their own time taken out, alone and with all others, and 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.diagnose.effects.scores import HABIT
from taut.diagnose.effects.search import Effect, level, total_cut
from taut.diagnose.effects.series import Series
from taut.replay.own_time import OwnTime
from taut.replay.timeline import Change, walls

DRAWS = 400
"""Resamples of an interval: the ends of a 95 % interval are then known to 1 % of its length (Efron and Tibshirani 1993)."""
INTERVAL = (0.025, 0.975)


class Price(Struct, frozen=True):
    """Wall time that fixing saves, by step, and the share of the steps concerned with its 95 % interval."""

    saved_ns: Ints
    first: int
    """Index of the first step that counts: that of the onset."""
    last: int
    value: float
    lo: float
    hi: float


class Pricing:
    """Replays of one job under effects."""

    def __init__(self, own: OwnTime, series: Series, seed: int = 0) -> None:
        self.own, self.series = own, series
        self._base = walls(own.graph, ())
        self._draws = np.random.default_rng(seed)

    def saved_ns(self, cut_ns: Floats, transfers: Sequence[Change] = ()) -> Ints:
        """Wall time saved in each step if own times were shorter by so much, and transfers changed."""
        return self._base - walls(self.own.graph, [*self.own.shortened(cut_ns), *transfers])

    def price(self, group: Sequence[Effect], others: Sequence[Effect], transfers: Sequence[Change] = ()) -> Price:
        """What fixing the effects of one place saves: the larger of alone and beside everything else."""
        cut, rest = total_cut(group, self.own.ns), total_cut(others, self.own.ns)
        alone = self.saved_ns(cut)
        saved = alone
        if len(others) or len(transfers):
            together = self.saved_ns(cut + rest, transfers) - self.saved_ns(rest, transfers)
            saved = max(alone, together, key=lambda some: int(some.sum()))
        main = max(group, key=lambda one: float(one.cut_ns.sum()))
        first, last = min(one.shape.first for one in group), max(one.shape.last for one in group)
        return self.interval(saved, self._drawn_sizes(main, others), first, last)

    def interval(self, saved: Ints, sizes: Floats, first: int, last: int) -> Price:
        """The share of the wall from onset to end, with steps drawn in blocks and sizes as they were drawn."""
        wall, some = self.own.wall_ns[first:].astype(np.float64), saved[first:].astype(np.float64)
        value = float(some.sum() / max(wall.sum(), 1))
        if len(wall) <= 3:  # nothing says how steps differ
            return Price(saved, first, last, value, 0.0, min(2 * max(value, 0.0), 1.0))
        drawn = self._drawn_steps(len(wall))
        shares = np.clip(sizes * some[drawn].sum(axis=1) / wall[drawn].sum(axis=1), 0, 1)
        lo, hi = np.quantile(shares, INTERVAL)
        return Price(saved, first, last, value, min(float(lo), value), max(float(hi), value))

    def _drawn_sizes(self, effect: Effect, others: Sequence[Effect]) -> Floats:
        """Sizes of an effect in drawn steps over its size; of one without a past also as healthy ranks differ."""
        if effect.is_by_step or effect.size <= 0:
            return np.ones(DRAWS)
        own = np.maximum(self.own.ns - total_cut(others, self.own.ns), 0)
        excess, shape = self.series.excess_of(own, effect.place.rows), effect.shape
        away = excess - level(excess, shape)[0] * shape.weight
        drawn = self._drawn_steps(len(away))
        sizes = np.array([level(away[one] + effect.size * shape.weight, shape)[0] for one in drawn])
        if shape.kind == "always":
            sizes = sizes + HABIT / np.sqrt(len(effect.place.rows)) * self._draws.standard_normal(DRAWS)
        return np.asarray(sizes / effect.size, np.float64)

    def _drawn_steps(self, steps: int) -> Ints:
        """Steps drawn with replacement in blocks of the cube root of their number (Hall et al. 1995)."""
        length = max(1, round(steps ** (1 / 3)))
        starts = self._draws.integers(0, steps, (DRAWS, -(-steps // length)))
        return ((starts[:, :, None] + np.arange(length)) % steps).reshape(DRAWS, -1)[:, :steps]
