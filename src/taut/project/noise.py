"""Noise of work: distributions as tables of quantiles, so that a draw is a look-up whatever the distribution is.

A table holds the quantiles of work over its mean at GRID points that lie evenly in log odds; between them it is linear,
beyond them it goes on as it ended. What several ranks do between two rendezvous counts as the longest of them, and a
chunk of layers is the sum of many of these: both are put into the table, so that one draw stands for them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log1p, pi, sqrt
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Mask, Numbers
from taut.core.jit import kernel
from taut.core.normal_score import normal_score
from taut.project.training.scenario import Noise

# Points of a table, and the log odds of its ends: chances of one in ten thousand million.
POINTS, REACH = 2049, 23.0
GRID = np.linspace(-REACH, REACH, POINTS)
# Parts of equal chance between which a draw may be looked up without a logarithm.
CELLS = 1 << 12
# Sums that are drawn to know their distribution.
DRAWN = 1 << 16
EULER = 0.5772156649015329
# Keys of ``[noise]`` that are amplitudes.
SCALED_KEYS = ("spread", "times", "step_spread", "ranks_spread", "drift_share", "hiccup_ms", "periodic_ms")


def scaled(noise: Noise, times: float) -> Noise:
    """Noise with its amplitudes multiplied; 0 is none."""
    kind = "none" if times == 0 else noise.distribution
    return replace(noise, distribution=kind, **{name: getattr(noise, name) * times for name in SCALED_KEYS})


def without_pauses(noise: Noise) -> Noise:
    """Noise of work alone."""
    return replace(noise, hiccups_per_1000_steps=0.0, hiccup_ms=0.0, periodic_every_s=0.0, periodic_ms=0.0)


def quantile(noise: Noise, chance: Floats, upper: Floats, measured: Floats | None = None) -> Floats:
    """Work over its mean that is not exceeded with this chance; ``upper`` is one minus it, where that is known better."""
    c, kind = noise.spread, noise.distribution
    if kind == "none":
        return np.ones_like(chance)
    if kind == "measured":
        assert measured is not None, "residuals of the run in noise.run"
        return np.maximum(1 + noise.times * (np.quantile(measured, chance) - 1), 0.0)
    if kind == "exponential":
        return 1 + c * (-np.log(upper) - 1)
    if kind == "gumbel":
        # A Gumbel variable has the variance (pi · scale)² / 6 and the mean scale · Euler's constant.
        scale = c * sqrt(6) / pi
        return 1 + scale * (-np.log(-np.log1p(-upper)) - EULER)
    if kind == "pareto":
        a = noise.tail
        # Pareto with exponent a has the mean a / (a - 1): scaled to a mean of 1 first.
        return np.maximum(1 + noise.times * (upper ** (-1 / a) * (a - 1) / a - 1), 0.0)
    z = normal_score(chance, upper)
    if kind == "gaussian":
        return np.maximum(1 + c * z, 0.0)
    # A lognormal variable of mean 1 and coefficient of variation c has sigma² = log(1 + c²), mu = -sigma² / 2.
    wide = log1p(c * c)
    return np.exp(sqrt(wide) * z - wide / 2)


class RunNoise(NamedTuple):
    """What a scenario may take from a measured run."""

    residuals: Floats
    """Work over its reference, hiccups left out."""
    hiccups: Noise | None = None
    """The keys of its hiccups; None where it has none that could be told."""


def residuals(work_ns: Numbers, reference_ns: Floats, compute: Mask) -> Floats:
    """Work of a measured run's compute ops over their references, where they have one, scaled to a mean of one."""
    known = compute & (np.nan_to_num(reference_ns) > 0) & (work_ns > 0)
    ratio = work_ns[known] / reference_ns[known]
    return ratio / ratio.mean() if len(ratio) else ratio


def odds(x: Floats) -> tuple[Floats, Floats]:
    """(chance, one minus it) of log odds."""
    return 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))


@kernel()
def at_log_odds(table: Floats, x: float) -> float:
    """The value of a table at log odds; beyond its ends that of the end."""
    points = len(table)
    at = min(max((x + REACH) * ((points - 1) / (2 * REACH)), 0.0), points - 1.0)
    k = min(int(at), points - 2)
    return float(table[k] + (at - k) * (table[k + 1] - table[k]))


EVENLY = np.arange(CELLS + 1) / CELLS


def at_even_chances(quantiles: Floats) -> Floats:
    """A table at CELLS + 1 chances that lie evenly."""
    return np.interp(EVENLY, odds(GRID)[0], quantiles)


def longest(noise: Noise, members: int, measured: Floats | None = None) -> Floats:
    """Quantiles at GRID of the longest of so many ranks."""
    upper = odds(GRID)[1]
    # The n-th root of a chance near one loses its digits; one minus it does not.
    each = -np.expm1(np.log1p(-np.minimum(upper, 1 - 1e-16)) / members)
    return quantile(noise, np.clip(1 - each, 1e-300, 1.0), np.clip(each, 1e-300, 1.0), measured)


def table(
    noise: Noise, members: int = 1, parts: int = 1, seed: int = 0, measured: Floats | None = None, drawn: int = DRAWN
) -> Floats:
    """Quantiles at GRID of the mean of so many parts, each the longest of so many ranks; sums are known from so many draws."""
    if measured is not None:
        return _summed(noise, members, parts, seed, measured, drawn)
    return _cached_table(of_ops(noise), members, parts, seed, drawn).copy()


def of_ops(noise: Noise) -> Noise:
    """What of the noise belongs to single ops: the rest changes no table."""
    return Noise(noise.distribution, noise.spread, noise.tail, times=noise.times)


@lru_cache(maxsize=64)
def _cached_table(noise: Noise, members: int, parts: int, seed: int, drawn: int) -> Floats:
    """What scales and policies ask for again and again."""
    return _summed(noise, members, parts, seed, None, drawn)


def _summed(noise: Noise, members: int, parts: int, seed: int, measured: Floats | None, drawn: int) -> Floats:
    one = longest(noise, members, measured)
    if parts <= 1 or noise.distribution == "none":
        return one
    rng = np.random.default_rng(seed)
    heavy = noise.distribution in ("pareto", "measured")
    return _smooth(np.sort(_fresh(one, parts, rng, drawn) if heavy else _doubled(one, parts, rng, drawn)))


def _doubled(one: Floats, parts: int, rng: np.random.Generator, drawn: int) -> Floats:
    """Means of so many parts: draws that lie evenly, added to themselves in another order for 2, 4, 8 … parts.

    Quick, and the mean is met; but a draw is in as many sums as there are parts, and so must not decide any.
    """
    chance = (np.arange(drawn) + rng.random(drawn)) / drawn
    doubled, total = np.interp(np.log(chance) - np.log1p(-chance), GRID, one), np.zeros(drawn)
    # Binary exponentiation: sums of 1, 2, 4 … parts, added where the bit of parts is set.
    for bit in range(parts.bit_length()):
        doubled = doubled + rng.permutation(doubled) if bit else doubled
        if parts >> bit & 1:
            total += rng.permutation(doubled)
    return total / parts


def _fresh(one: Floats, parts: int, rng: np.random.Generator, drawn: int) -> Floats:
    """Means of so many parts, each drawn anew."""
    total = np.zeros(drawn)
    for _ in range(min(parts, 64)):
        u = rng.random(drawn)
        total += np.interp(np.log(u) - np.log1p(-u), GRID, one)
    mean = total / min(parts, 64)
    if parts > 64:  # the more parts, the nearer to their mean: as the square root says
        mean = mean.mean() + (mean - mean.mean()) * sqrt(64 / parts)
    return mean


def longest_mean(quantiles: Floats, members: float) -> float:
    """Expected longest of so many draws from a table."""
    # P(longest of n < x) = P(one < x)^n, and log P of a log odds x is -log(1 + exp(-x)).
    edges = np.append(GRID[:-1] + (GRID[1] - GRID[0]) / 2, np.inf)
    below = np.exp(-members * np.log1p(np.exp(-edges)))
    return float(quantiles @ np.diff(below, prepend=0.0))


def with_jumps(x: Floats) -> Floats:
    """Values in order, and just before each: a distribution that jumps there does not begin to rise before."""
    return np.unique(np.concatenate([x, x * (1 - 1e-12)]))


def mixture(body: Floats, other: Floats, share: float) -> Floats:
    """The table of a variable that is drawn from another table with this chance."""
    x = with_jumps(np.concatenate([body, other]))
    (low, high), (other_low, other_high) = (odds(np.interp(x, one, GRID, left=-4 * REACH)) for one in (body, other))
    # Both sides are mixed, so that neither loses its digits.
    low, high = (1 - share) * low + share * other_low, (1 - share) * high + share * other_high
    found: Floats = np.interp(GRID, np.log(np.maximum(low, 1e-300)) - np.log(np.maximum(high, 1e-300)), x)
    return found


def _smooth(values: Floats) -> Floats:
    """Quantiles at GRID of sorted draws; beyond the draws the last hundredth on either side tells how it goes on."""
    n = len(values)
    chance = (np.arange(n) + 0.5) / n
    at = np.log(chance) - np.log1p(-chance)
    out = np.interp(GRID, at, values)
    few = n // 100
    for side, a, b in ((1, -few, -few // 10), (-1, few, few // 10)):
        beyond = side * (GRID - at[b]) > 0
        slope = (values[b] - values[a]) / (at[b] - at[a])
        out[beyond] = values[b] + slope * (GRID[beyond] - at[b])
    return np.maximum(out, 0.0)


@dataclass
class Slowness:
    """How much longer groups of ranks take in a step: for good, in that step, and slowly drifting; the slowest member counts.

    Steps are asked for in order, because a drift has a past.
    """

    noise: Noise
    shape: tuple[int, int, int]
    """Replicas, stages, members of a group."""
    seed: int
    by_speed: bool = False
    """Whether devices of like speed are together, and replicas get work by the speed of their slowest."""
    draw: int = 0
    """Which draw of devices it is; what varies from step to step is the same in all of them."""
    lasting: Floats = field(init=False)
    drift: Floats | None = field(init=False)

    def __post_init__(self) -> None:
        n = self.noise
        of_devices = n.ranks_spread, n.slow_share, n.slow_factor, n.drift_share > 0
        self.lasting, self.drift = _lasting(of_devices, self.shape, (self.seed, 1, self.draw), self.by_speed)

    def __call__(self, step: int) -> Floats:
        """Replicas × stages: the factor of a step."""
        n, factor = self.noise, self.lasting
        rng = np.random.default_rng((self.seed, 2, step))
        if n.step_spread:
            factor = factor * (1 + n.step_spread * rng.standard_normal(self.shape))
        if self.drift is not None:
            # An Ornstein-Uhlenbeck process sampled once a step: stationary, with the correlation `left` from step to step.
            left = exp(-1 / n.drift_steps)
            self.drift = left * self.drift + sqrt(1 - left * left) * rng.standard_normal(self.shape)
            factor = factor * (1 + n.drift_share * self.drift)
        return np.ascontiguousarray(np.maximum(factor, 0.0).max(axis=2))


# A search asks the same devices at every scale, with every policy and mechanism.
@lru_cache(maxsize=8)
def _lasting(
    of_devices: tuple[float, float, float, bool], shape: tuple[int, int, int], seed: tuple[int, int, int], by_speed: bool
) -> tuple[Floats, Floats | None]:
    """(how many times as long as usual each device takes for good, where its drift begins if it drifts)."""
    rng, (spread, slow_share, slow_factor, drifts) = np.random.default_rng(seed), of_devices
    lasting = 1 + spread * rng.standard_normal(shape)
    if slow_share:
        lasting *= np.where(rng.random(shape) < slow_share, slow_factor, 1.0)
    drift = rng.standard_normal(shape) if drifts else None
    if by_speed:
        lasting = np.sort(lasting, axis=None).reshape(shape)
        pace = lasting.max(axis=(1, 2), keepdims=True)
        # Work by speed: the harmonic mean keeps the total work of all replicas.
        lasting /= pace * (1 / pace).mean()
    return lasting, drift
