"""Do some runs differ by more than their own jitter explains? Many series at once, each a row of every run's table.

Null hypothesis: the steps of all runs are draws of one stationary process per run with a common level; each run may
have its own spread, heavy tails, and steps that resemble their neighbours (AR(1)). Levels are trimmed means (a fifth off
either end), their errors come from the winsorised spread (Yuen), and grow with the redness of the steps: its bias
corrected, raised by half a standard error, and no less than what the other series of the runs show. The statistic is
Brown and Forsythe's, which needs no equal spreads and for two runs is Welch's t squared. Size and power: docs/compare.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Numbers

LEAST_STEPS = 5
"""Steps of a run below which its own jitter is not known."""
LEAST_ALONE = 24
"""Steps from which the jitter of one run alone is known well enough to judge another run by it."""
CLEAR = 3.0
"""Spreads of a run's steps by which another run must be apart to be judged by that run alone: skewed steps look quiet by
chance, and a run that only varies more has not shifted."""
TRIMMED = 0.2
"""Share of the steps that is taken off either end."""
CAUTION = 0.5
"""Standard errors that are added to the redness of a series."""
REDDEST = 0.9
"""A series of steps is not taken to be redder than this."""
POOLED = 8
"""Series from which the redness of the others is a floor for each."""
FLOOR = 1e-3
"""Spread that every series has at least, as a share of its level: clocks and rounding."""
SURE = 0.95
"""Coverage of intervals."""


class Level(Struct, frozen=True):
    """Of every series of one run its trimmed mean, the square of that mean's error, and what the error is worth."""

    mean: Floats
    error: Floats
    """Squared standard error."""
    freedom: Floats
    """Degrees of freedom of the error."""
    spread: Floats
    """Of single steps."""
    steps: int


class Difference(Struct, frozen=True):
    """Per series: the chance under the null, and the spread of levels between runs with its interval."""

    p: Floats
    between: Floats
    lo: Floats
    hi: Floats


def levels(runs: Sequence[Numbers], trimmed: float = TRIMMED) -> list[Level]:
    """Level of every series (row) in every run (table of series × steps)."""
    cut = [_cut(table, trimmed) for table in runs]
    steps = sum(table.shape[1] for table in runs)
    red = sum(rho * table.shape[1] for (*_, rho), table in zip(cut, runs, strict=True)) / steps
    if len(red) >= POOLED:
        red = np.maximum(red, np.median(red))
    red = np.clip(red + CAUTION / np.sqrt(steps), 0.0, REDDEST)
    # The variance of a mean of AR(1) steps, against independent ones.
    wider = (1 + red) / (1 - red)
    return [
        Level(mean, error * wider, np.maximum((kept - 1) / wider, 1.0), np.sqrt(error * table.shape[1]), table.shape[1])
        for (mean, error, kept, _), table in zip(cut, runs, strict=True)
    ]


def _cut(table: Numbers, trimmed: float) -> tuple[Floats, Floats, int, Floats]:
    """Trimmed mean, squared error if steps were independent, steps kept, lag-1 correlation without its bias."""
    y = np.asarray(table, dtype=np.float64)
    n = y.shape[1]
    off = int(trimmed * n)
    kept = n - 2 * off
    ordered = np.sort(y, axis=1)
    mean = ordered[:, off : n - off].mean(axis=1)
    inside = np.clip(y, ordered[:, [off]], ordered[:, [n - 1 - off]])
    rest = inside - inside.mean(axis=1, keepdims=True)
    power = (rest**2).sum(axis=1)
    rho = (rest[:, 1:] * rest[:, :-1]).sum(axis=1) / np.where(power > 0, power, 1.0)
    # Yuen: the winsorised sum of squares over k(k − 1), with k the steps that were kept.
    error = np.maximum(power / (kept * (kept - 1)), (FLOOR * np.abs(mean)) ** 2 / n)
    return mean, error, kept, (n * rho + 1) / max(n - 4, n / 2)  # taking the mean out hides (1 + 4ρ)/n of it


def differ(runs: Sequence[Numbers]) -> Difference | None:
    """Whether the levels of two or more runs differ; None where a run has too few steps to know its jitter."""
    from scipy.special import fdtrc, fdtri

    if len(runs) < 2 or min(table.shape[1] for table in runs) < LEAST_STEPS:
        return None
    found = levels(runs)
    weight = np.array([[level.steps] for level in found], dtype=np.float64)
    mean, error, freedom = (np.stack([getattr(x, key) for x in found]) for key in ("mean", "error", "freedom"))
    share = weight / weight.sum()
    seen = (weight * (mean - (share * mean).sum(axis=0)) ** 2).sum(axis=0)
    parts = weight * (1 - share) * error
    expected = parts.sum(axis=0)
    safe = np.where(expected > 0, expected, 1.0)
    ratio = np.where(expected > 0, seen / safe, 0.0)  # Brown and Forsythe's F*; its degrees of freedom follow Satterthwaite
    top, bottom = len(runs) - 1, safe**2 / np.where(expected > 0, (parts**2 / freedom).sum(axis=0), 1.0)
    per_square = float((weight * (1 - share)).sum())

    def spread(level: Floats | float) -> Floats:
        squared: Floats = np.maximum(seen / level - expected, 0.0) / per_square
        return np.sqrt(squared)

    tail = (1 - SURE) / 2  # the F distribution of the ratio, inverted, bounds the variance between runs
    return Difference(
        np.where(expected > 0, fdtrc(top, bottom, ratio), 1.0),
        spread(1.0),
        spread(fdtri(top, bottom, 1 - tail)),
        spread(fdtri(top, bottom, tail)),
    )


def shifted(before: Numbers, after: Numbers) -> Floats | None:
    """Chance per series that two runs are draws of one process, their levels compared; None where too few steps tell.

    What begins in the middle of a run makes its steps look red and wide, which hides it. So the difference is judged by
    the jitter of both runs, and, where they are long enough and their levels clearly apart, by that of either alone: the
    smallest chance, times three.
    """
    from scipy.special import stdtr

    both = differ([before, after])
    if both is None:
        return None
    (a,), (b,) = levels([before]), levels([after])
    if min(a.steps, b.steps) < LEAST_ALONE:
        return both.p
    apart = np.abs(a.mean - b.mean)
    chances: list[Floats] = [both.p]
    for one, other in ((a, b), (b, a)):
        # The other mean has the same jitter under the null, over its own number of steps.
        error = np.sqrt(one.error * (1 + one.steps / other.steps))
        chance = 2 * stdtr(one.freedom, -apart / np.where(error > 0, error, 1.0))
        chances.append(np.where(apart >= CLEAR * one.spread, chance, 1.0))
    smallest: Floats = np.min(chances, axis=0)
    return np.minimum(len(chances) * smallest, 1.0)


class Ratio(Struct, frozen=True):
    """How much higher one level is than another: natural logarithm, its squared error and degrees of freedom."""

    log: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        """Chance of such a ratio where both levels are the same."""
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.log) / np.sqrt(self.error)))

    @property
    def estimate(self) -> dict[str, float]:
        """The ratio with its interval."""
        from scipy.special import stdtrit

        reach = float(stdtrit(self.freedom, (1 + SURE) / 2)) * np.sqrt(self.error)
        return {k: float(np.exp(self.log + s * reach)) for k, s in (("value", 0), ("lo", -1), ("hi", 1))}


def ratio(before: Numbers, after: Numbers, trimmed: float = TRIMMED) -> Ratio | None:
    """Of two series of positive values, after over before; None where too few steps tell."""
    if min(len(before), len(after)) < LEAST_STEPS:
        return None
    a, b = levels([np.asarray(run, dtype=np.float64)[None, :] for run in (before, after)], trimmed)
    if a.mean[0] <= 0 or b.mean[0] <= 0:
        return None
    errors = np.array([a.error[0] / a.mean[0] ** 2, b.error[0] / b.mean[0] ** 2])
    freedom = errors.sum() ** 2 / (errors**2 / [a.freedom[0], b.freedom[0]]).sum()
    return Ratio(float(np.log(b.mean[0] / a.mean[0])), float(errors.sum()), float(freedom))


def pooled(ratios: Sequence[Ratio]) -> Ratio | None:
    """What several ratios say together, the surer ones more."""
    if not ratios:
        return None
    # Weighting by inverse squared errors gives the least error of all weighted means.
    weight = np.array([1 / r.error for r in ratios])
    log = float((weight * [r.log for r in ratios]).sum() / weight.sum())
    return Ratio(log, float(1 / weight.sum()), float(sum(r.freedom for r in ratios)))
