"""Sequential tests of many series at once: which of them stands higher than it used to, since a moment ago.

Every series has a level and a spread, learned from its first steps and then slowly followed while nothing is suspected. Two
statistics run over what comes in, each a sum that is never below zero (CUSUM):

- *Level*: w - k, where w is the standardised value with its memory taken out (AR(1), one coefficient for kindred series),
  clipped at c so that a hiccup is no level. For independent w of mean 0, variance at most 1 and at most c, Bennett's bound of
  their exponential moment and Lundberg's inequality give P(sum ≥ h) ≤ exp(-θ h) at any step, with θ the root of
  log(1 + (exp(θc) - 1 - θc) / c²) = θk, whatever the tails. So h = log(series × steps an hour ÷ rate) ÷ θ keeps the false
  alarms of the whole panel below the rate. k is at least half of what would matter (a share of the step), and grows by what
  is not known of the level.
  A step in which a series has no value changes nothing.
- *Spikes*: the log likelihood ratio of far more frequent outliers against as many as there were: a rank that stalls now and
  then has no level. Its θ is 1.

What its ranks waited for a core, more or less than usually, is first taken out of a series (regression, one slope for kindred
series), and of what is above its level also the rest of these waits: a busy host takes everybody's time in turn.

Null hypothesis: a series has one level, that may wander no faster than it is followed; outliers come at one rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from math import log

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.watch.running_sums import age, exponent, last_known, reflected

RATE = 0.02
"""False alarms an hour, of all series together."""
SKIPPED, FIRST = 3, 24
"""Steps that are not learned from (a job warms up), and steps after which a series has a level."""
LEAST_SAMPLED = 3
"""Values in each of two blocks from which a series that has some steps only has a level."""
BLOCK = 32
"""Steps after which levels are looked at again: what is newer does not count yet."""
MEMORY = 512
"""Steps that a level remembers."""
CLIP, LEAST_K = 4.0, 0.75
UNSURE = 3.0
"""Standard errors of a level that k grows by."""
MATTERS = 0.04
"""Share of a step: a series that rises by less is left alone."""
FLOOR = 0.002
"""Least spread, as a share of a step: clocks and timers tell no better."""
MOST_MEMORY = 0.9
SPIKE, SPIKE_SHARE = 5.0, 0.1
"""An outlier is this many spreads, and this share of a step, above its level …"""
LEAST_SPIKES, MORE_SPIKES, SPIKES = 0.01, 4.0, 0.15
"""… as often as this at least; what is looked for is so many times as often, and this often at least."""
KIN_STEPS = 64
"""Steps that what is known of kindred series counts for, beside a series' own outliers."""
PRIOR_SLOPE, PRIOR_WAIT, MOST_SLOPE = 0.5, 0.02, 2.0
"""What a wait for a core adds before that is known, as if seen in FIRST steps with waits of this share of a step; at most."""
DOUBT, DOUBT_WAIT, LEAST_DOUBT, MOST_DOUBT = 0.05, 0.1, 0.01, 0.3
"""Part of the longest wait for a core that a series of the step may be off by, before that is known, as if seen in FIRST steps
with waits of this share of a step; at least and at most."""
RECENT = 16
"""Steps that tell how a series is now."""


class Suspected(Struct, frozen=True):
    """A series that stands higher than it did."""

    series: int
    shift: float
    """By how much, in its own unit."""
    spikes: bool
    """Whether in some steps only."""
    age: int
    """Steps since it was last as it should be."""


class Panel:
    """The tests of all series of a job; rows are steps, columns series, NaN where a series has no value."""

    def __init__(self, kind: Ints, rate: float = RATE) -> None:
        self.kind, self.rate = kind, rate
        count = len(kind)
        self.n, self.level, self.variance = np.zeros(count), np.zeros(count), np.zeros(count)
        self.rho = np.zeros(count)
        self.usual_wait, self.slope = np.zeros(count), np.full(count, PRIOR_SLOPE)
        """Waits for a core that a series has anyway, and what each second more adds to it."""
        self.doubt = np.full(count, DOUBT)
        """Part of the longest wait of a step that a series may be off by."""
        self._with_waits, self._with_doubt = np.zeros((2, count)), np.zeros((5, count))
        self.sum, self.spiking = np.zeros(count), np.zeros(count)
        self.rate_of_spikes = np.full(count, LEAST_SPIKES)
        self.steps, self.step_s = 0, 1.0
        self._first, self._first_waits = list[Floats](), list[Floats]()
        self._block, self._block_waits = list[Floats](), list[Floats]()
        self._held: tuple[Floats, Floats] | None = None
        self._products = np.zeros((2, count))
        self._spikes = np.zeros((2, count))
        self._before, self._was_spike = np.zeros(count), np.zeros(count)
        self._ages = np.zeros((2, count), np.int64)
        self.since_spike = np.full(count, MEMORY)
        """Steps since the last outlier that is not alone: one of a kind may come at any time."""
        self._k, self._clip, self._limit, self._limit_of_spikes = (np.zeros(count) for _ in range(4))
        self.recent: deque[Floats] = deque(maxlen=RECENT)
        """The last steps as they came; beside them without what waits for a core explain."""
        self._told: deque[Floats] = deque(maxlen=RECENT)

    # -- what comes in --------------------------------------------------------------------------------------------------

    def feed(self, rows: Floats, step_s: float, waits: Floats | None = None) -> list[tuple[int, int]]:
        """Take steps in; returns (row, series) of all sums that crossed their limit, in order.

        ``waits``: how long the ranks of each series waited for a core, in the same unit.
        """
        waits = np.zeros_like(rows) if waits is None else waits
        crossed: list[tuple[int, int]] = []
        done = 0
        while done < len(rows):
            # Levels change at fixed steps only, whatever pieces steps come in.
            room = FIRST + SKIPPED - self.steps if self.steps < FIRST + SKIPPED else BLOCK - len(self._block)
            part = rows[done : done + room]
            self.step_s = step_s if self.steps < FIRST + SKIPPED else self.step_s + (step_s - self.step_s) * 0.01
            crossed += [(done + row, one) for row, one in self._piece(part, waits[done : done + room])]
            done += len(part)
        return crossed

    def _piece(self, rows: Floats, waits: Floats) -> list[tuple[int, int]]:
        rows, waits = rows.copy(), waits.copy()  # what is kept of them must not keep all that came
        self.recent.extend(rows[-RECENT:])
        learning = self.steps < FIRST + SKIPPED
        skipped = max(SKIPPED - self.steps, 0)
        self.steps += len(rows)
        if learning:
            self._first += list(rows[skipped:])
            self._first_waits += list(waits[skipped:])
            self._told.extend(rows[-RECENT:])
            if self.steps >= FIRST + SKIPPED:
                self._begin(self._learned())
            return []
        self._block += list(rows)
        self._block_waits += list(waits)
        rows = self._without_waits(rows, waits)
        self._told.extend(rows[-RECENT:])
        over = self._advance(rows)
        if len(self._block) == BLOCK:
            self._follow()
        return list(zip(*map(np.ndarray.tolist, np.nonzero(over)), strict=True))

    def _advance(self, rows: Floats) -> Mask:
        """Add steps to the sums; returns which sums crossed their limit when (rows × series)."""
        unit = self.scaled(rows)
        valid = np.isfinite(unit)
        plain, before = self._without_memory(unit, valid)
        more = np.where(valid, np.clip(plain, -self._clip, self._clip) - self._k, 0.0)
        sums = reflected(self.sum, more)
        spike = unit > self._as_spike()
        was_spike = last_known(spike.astype(np.float64), valid, self._was_spike)
        begins = spike & (was_spike[:-1] == 0)
        ratios = reflected(self.spiking, np.where(valid, np.where(begins, *self._ratios()), 0.0))
        ready = self.n >= FIRST  # the first values of a series that has few may be alike
        over = ready & ((sums >= self._limit) | (ratios >= self._limit_of_spikes))
        was = np.concatenate([[(self.sum >= self._limit) | (self.spiking >= self._limit_of_spikes)], over[:-1]])
        self.sum, self.spiking = np.where(ready, sums[-1], 0.0), np.where(ready, ratios[-1], 0.0)
        self._before, self._was_spike = before, was_spike[-1]
        again = begins & (ratios > 1.5 * self._ratios()[0])
        self.since_spike = age(self.since_spike, np.where(again, 0.0, 1.0))
        self._ages = np.stack([age(before, one) for before, one in zip(self._ages, (sums, ratios), strict=True)])
        crossed: Mask = over & ~was
        return crossed

    def _without_memory(self, unit: Floats, valid: Mask) -> tuple[Floats, Floats]:
        """(values less what their own past explains, the last value of every series)."""
        wide = self._clip * np.sqrt((1 + self.rho) / (1 - self.rho))
        clipped = np.where(valid, np.clip(unit, -wide, wide), 0.0)
        past = last_known(clipped, valid, self._before)
        return (clipped - self.rho * past[:-1]) / np.sqrt(1 - self.rho**2), past[-1]

    # -- waits for a core -----------------------------------------------------------------------------------------------

    def _learned(self) -> Floats:
        """The first steps, without what waits for a core explain of them."""
        rows, waits = np.array(self._first), np.array(self._first_waits)
        self._first, self._first_waits = [], []
        self.usual_wait = waits.mean(axis=0)
        known: Mask = np.asarray(np.isfinite(rows).any(axis=0))
        self.level = np.nanmean(np.where(known, rows, 0.0), axis=0)
        self._learn_waits(rows, waits, known)
        return self._without_waits(rows, waits)

    def _learn_waits(self, rows: Floats, waits: Floats, mine: Mask) -> None:
        """What waits add to some series, and how long they usually are."""
        more = np.where(np.isfinite(rows) & mine, waits - self.usual_wait, 0.0)
        apart = np.where(np.isfinite(rows) & mine, rows - self.level, 0.0)
        self._with_waits = (1 - len(rows) / MEMORY) * self._with_waits + [(more * apart).sum(axis=0), (more**2).sum(axis=0)]
        prior = FIRST * (PRIOR_WAIT * self.step_s) ** 2
        for kind in np.unique(self.kind):
            kin = self.kind == kind
            product, square = self._with_waits[:, kin].sum(axis=1)
            self.slope[kin] = np.clip((product + PRIOR_SLOPE * prior) / (square + prior), 0.0, MOST_SLOPE)
        self._learn_doubt(apart - self.slope * more, waits, np.isfinite(rows) & mine)

    def _learn_doubt(self, left: Floats, waits: Floats, known: Mask) -> None:
        """How squares of what waits leave unexplained grow with those of the longest wait: one slope for kindred series."""
        longest = np.where(known, np.abs(waits).max(axis=1, keepdims=True), 0.0) ** 2
        square = np.where(known, left, 0.0) ** 2
        sums = [one.sum(axis=0) for one in (known, longest, square, longest * square, longest**2)]
        self._with_doubt = (1 - len(left) / MEMORY) * self._with_doubt + sums
        prior = FIRST * (DOUBT_WAIT * self.step_s) ** 4
        for kind in np.unique(self.kind):
            kin = self.kind == kind
            n, x, y, xy, xx = self._with_doubt[:, kin].sum(axis=1)
            found = (xy - x * y / max(n, 1.0) + DOUBT**2 * prior) / (xx - x * x / max(n, 1.0) + prior)
            self.doubt[kin] = np.clip(np.sqrt(max(found, 0.0)), LEAST_DOUBT, MOST_DOUBT)

    def _without_waits(self, rows: Floats, waits: Floats) -> Floats:
        more = waits - self.usual_wait
        less = rows - self.slope * more
        # A wait may have delayed more than waits do on the whole, but never by more than it was long.
        rest = np.maximum(1 - self.slope, 0.0) * np.maximum(more, 0.0)
        less = np.maximum(less - rest, np.minimum(less, self.level))
        # The longer waits are, the less a step tells: what is above or below the level counts as less.
        spread, doubt = self.spread(), self.doubt * np.abs(waits).max(axis=1, keepdims=True)
        tells = np.where(self.n > 0, spread / np.hypot(spread, doubt), 1.0)
        return np.asarray(self.level + (less - self.level) * tells)

    # -- levels ---------------------------------------------------------------------------------------------------------

    def _begin(self, rows: Floats, least: int = FIRST // 2) -> None:
        """Learn levels from the first steps, of series that have so many values."""
        n = np.isfinite(rows).sum(axis=0)
        usable = n >= least
        some = np.where(usable, rows, 0.0)
        middle = np.nanmedian(some, axis=0)
        apart = 1.4826 * np.nanmedian(np.abs(some - middle), axis=0)
        wide = CLIP * np.maximum(apart, FLOOR * self.step_s)
        clipped = np.clip(some, middle - wide, middle + wide)
        self.level = np.where(usable, np.nanmean(clipped, axis=0), 0.0)
        self.variance = np.where(usable, np.nanvar(clipped, axis=0, ddof=1), 0.0)
        self.n = np.where(usable, n, 0.0)
        self._remember(clipped, some)
        self._set_limits()

    def _follow(self) -> None:
        """A block is full: learn from the one before it, of series that are not suspected."""
        block, waits = np.array(self._block), np.array(self._block_waits)
        self._block, self._block_waits = [], []
        before, self._held = self._held, (block, waits)
        new = (self.n == 0) & (np.isfinite(block).sum(axis=0) >= FIRST // 2)
        if new.any():
            self._begin_late(block, new)
        if before is not None:
            both = np.concatenate([before[0], block])
            few = np.minimum(*(np.isfinite(one).sum(axis=0) for one in (before[0], block)))
            sampled = (self.n == 0) & (few >= LEAST_SAMPLED)
            if sampled.any():
                self._begin_late(both, sampled, 2 * LEAST_SAMPLED)
        if before is None:
            return
        calm = (self.sum < self._limit / 2) & (self.spiking < self._limit_of_spikes / 3) & (self.n > 0)
        held = self._without_waits(*before)
        wide = CLIP * self.spread()
        clipped = np.clip(held, self.level - wide, self.level + wide)
        m = np.where(calm, np.isfinite(held).sum(axis=0), 0)
        seen = np.where(m > 0, held, 0.0)
        clipped = np.where(m > 0, clipped, 0.0)
        mean = np.nanmean(clipped, axis=0)
        square = np.nanmean((clipped - self.level) ** 2, axis=0)
        part = m / np.maximum(self.n + m, 1)
        self.variance += part * np.where(m > 0, square - self.variance, 0.0)
        self.level += part * np.where(m > 0, mean - self.level, 0.0)
        self.n = np.minimum(self.n + m, MEMORY)
        self._learn_waits(*before, calm)
        longer = part * np.where(m > 0, before[1].mean(axis=0) - self.usual_wait, 0.0)
        self.usual_wait += longer
        self.level += self.slope * longer  # what was taken out as unusual is usual now
        self._remember(np.where(m > 0, clipped, np.nan), seen)
        self._set_limits()

    def _begin_late(self, block: Floats, new: Mask, least: int = FIRST // 2) -> None:
        """Series that came later than the others."""
        kept = self.level, self.variance, self.n
        self._begin(block, least)
        self.level, self.variance, self.n = (
            np.where(new, now, before) for now, before in zip((self.level, self.variance, self.n), kept, strict=True)
        )
        self._set_limits()

    def _remember(self, clipped: Floats, seen: Floats | None = None) -> None:
        """How alike neighbouring steps are, over kindred series; how often outliers come."""
        valid = np.isfinite(clipped)
        apart = np.where(valid, clipped - self.level, 0.0)
        past = last_known(apart, valid, np.zeros(len(self.n)))[1:-1]
        fade = 1 - len(clipped) / MEMORY
        self._products = fade * self._products + [(apart[1:] * past).sum(axis=0), (apart[1:] ** 2).sum(axis=0)]
        scale = np.maximum(self.variance, 1e-300)
        for kind in np.unique(self.kind):
            mine = np.flatnonzero((self.kind == kind) & (self.n > 0))
            if len(mine):
                product, square = (self._products[:, mine] / scale[mine]).sum(axis=1)
                sure = np.sqrt(square / max(np.mean(self._products[1, mine] / scale[mine]), 1e-9) * len(clipped))
                found = product / max(square, 1e-9) + 1 / max(sure, 1.0)
                self.rho[mine] = min(max(found, 0.0), MOST_MEMORY)
        if seen is not None:
            spikes = (self.scaled(seen) > self._as_spike()).sum(axis=0)
            self._spikes = fade * self._spikes + [spikes, np.full(len(self.n), len(seen))]
            self._set_rate_of_spikes()

    def _set_rate_of_spikes(self) -> None:
        """A series has outliers as often as it had, and no more seldom than its kin."""
        count, steps = self._spikes
        for kind in np.unique(self.kind):
            mine = self.kind == kind
            kin = count[mine].sum() / max(steps[mine].sum(), 1.0)
            own = (count[mine] + KIN_STEPS * kin) / (steps[mine] + KIN_STEPS)
            self.rate_of_spikes[mine] = np.clip(1.5 * own, LEAST_SPIKES, 0.5)

    def _set_limits(self) -> None:
        tests = 2 * max(int((self.n > 0).sum()), 1) * 3600 / max(self.step_s, 1e-6)
        far = log(max(tests / self.rate, 2.0))
        spread = np.maximum(self.spread(), 1e-300)
        matters = MATTERS / 2 * self.step_s * np.sqrt((1 - self.rho) / (1 + self.rho)) / spread
        self._k = np.maximum(LEAST_K + UNSURE / np.sqrt(np.maximum(self.n, 1)), matters)
        self._clip = np.maximum(CLIP, 3 * self._k)
        self._limit = far / exponent(self._k, self._clip)
        self._limit_of_spikes = np.full(len(self.n), far)

    def _as_spike(self) -> Floats:
        return np.maximum(SPIKE, SPIKE_SHARE * self.step_s / np.maximum(self.spread(), 1e-300))

    def _ratios(self) -> tuple[Floats, Floats]:
        usual = self.rate_of_spikes
        often = np.minimum(np.maximum(MORE_SPIKES * usual, SPIKES), 0.9)
        return np.log(often / usual), np.log((1 - often) / (1 - usual))

    # -- what is known ---------------------------------------------------------------------------------------------------

    def spread(self) -> Floats:
        """Of every series, widened by what is not known of it, and no less than half that of its kin."""
        own = np.sqrt(self.variance)
        out = np.maximum(own, FLOOR * self.step_s)
        for kind in np.unique(self.kind):
            mine = (self.kind == kind) & (self.n > 0)
            if mine.any():
                out[mine] = np.maximum(out[mine], np.median(own[mine]) / 2)
        return np.asarray(out * (1 + 2 / np.sqrt(2 * np.maximum(self.n, 1))))

    def scaled(self, rows: Floats) -> Floats:
        """Values in spreads above their level; NaN of series without one."""
        return np.where(self.n > 0, (rows - self.level) / np.maximum(self.spread(), 1e-300), np.nan)

    @property
    def learned(self) -> bool:
        """Whether there are levels."""
        return bool((self.n > 0).any())

    def suspects(self, crossed: Set[int] = frozenset()) -> list[Suspected]:
        """Series that are above their limit now, or crossed it a moment ago, the farthest first."""
        level, spikes = self.sum / np.maximum(self._limit, 1e-300), self.spiking / np.maximum(self._limit_of_spikes, 1e-300)
        far = np.where(self.n > 0, np.maximum(level, spikes), 0.0)
        shift = self.shift()
        return [
            Suspected(int(one), float(shift[one]), bool(level[one] < 1), int(self._ages[int(level[one] < 1), one]))
            for one in np.argsort(-far, kind="stable")
            if far[one] >= 1 or int(one) in crossed
        ]

    def shift(self) -> Floats:
        """How far the last steps lie above the level, on average, in the unit of the series."""
        if not self._told:
            return np.zeros(len(self.n))
        rows = np.array(self._told)
        valid = np.isfinite(rows)
        total = np.where(valid, rows - self.level, 0.0).sum(axis=0)
        return np.asarray(total / np.maximum(valid.sum(axis=0), 1))

    def accept(self, series: Ints) -> None:
        """Take how some series are now for their level: what they rose by was looked into."""
        rows = np.array(self._told)[:, series]
        rows = rows[:, np.isfinite(rows).any(axis=0)] if rows.size else rows
        if rows.shape[1:] == (len(series),):
            self.level[series] = np.nanmedian(rows, axis=0)
        self.n[series] = np.minimum(self.n[series], FIRST)
        self.calm(series)
        self._set_limits()

    def calm(self, series: Ints) -> None:
        """Begin sums anew."""
        self.sum[series] = self.spiking[series] = 0.0
