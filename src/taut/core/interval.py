"""Estimates with intervals: steps drawn again in blocks, because neighbouring steps resemble each other."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from taut.core.array_types import Floats, Ints, Mask, Numbers
from taut.result.types import Estimate

DRAWS = 200
"""Resamples behind an interval."""
LEVEL = (0.025, 0.975)
"""Quantiles of the resamples that are the ends of an interval: it covers 95 %."""
Z = 1.96
"""The same in standard errors."""
NORMAL_WIDTH = 3.29
"""q95 − q05 of a normal distribution in standard deviations."""
FALSE_ALARMS = 0.01
"""Chance that a whole run of healthy, Gaussian jitter has any fault blamed: Bonferroni over its waits, and over the
ranks, because the last arriver is chosen among them. Student's, because few steps tell a spread badly."""


def drawn(count: int, block: int | None = None, draws: int = DRAWS, seed: int = 0) -> Ints:
    """Moving-block resamples of 0 … count − 1, draws × count: runs of neighbours, ∛count long unless given, joined up.

    Blocks run on from the last step to the first, so that every step is drawn equally often.
    """
    # Blocks of ∛n steps: long enough to keep neighbours together, short enough that there are many.
    block = min(max(1, block or round(count ** (1 / 3))), count)
    first = np.random.default_rng(seed).integers(0, count, size=(draws, -(-count // block)))
    return ((first[:, :, None] + np.arange(block)) % count).reshape(draws, -1)[:, :count]


def estimate(statistic: Callable[[Ints], Floats], count: int) -> Estimate | None:
    """A statistic of steps with its interval; it takes step numbers along the last axis. None where it has no value."""
    value = float(statistic(np.arange(count))) if count else np.nan
    if not np.isfinite(value):
        return None
    if count < 2:
        return Estimate(value=value, lo=None, hi=None)
    again = statistic(drawn(count))
    again = again[np.isfinite(again)]
    low, high = np.quantile(again, LEVEL) if len(again) else (value, value)
    return Estimate(value=value, lo=min(float(low), value), hi=max(float(high), value))


def share(flags: Mask, block: int | None = None) -> Estimate | None:
    """The share of steps that are flagged: the wider of the block interval and the binomial one (Wilson).

    Where all steps agree, resampling would claim certainty; where they come in runs, the binomial one would.
    """
    n = len(flags)
    if n == 0:
        return None
    p, z2 = float(flags.mean()), Z * Z / n
    # Wilson's score interval: its middle and half of its width.
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    low, high = np.quantile(flags[drawn(n, block)].mean(axis=-1), LEVEL)
    return Estimate(value=p, lo=max(0.0, min(float(low), middle - half)), hi=min(1.0, max(float(high), middle + half)))


def share_of(part: Numbers, whole: Numbers) -> Estimate | None:
    """Which share of all steps a part of each is, with its interval."""
    return estimate(lambda s: part[s].sum(axis=-1) / np.maximum(whole[s].sum(axis=-1), 1), len(whole))


def over(part: Numbers, whole: Numbers) -> Floats:
    """A ratio, NaN where the whole is not positive."""
    return part / np.where(whole > 0, whole, np.nan)
