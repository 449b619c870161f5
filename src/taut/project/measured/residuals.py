"""How far replicas stray at the gates where they meet, and how late the last of many more would be.

An arrival is what all have in common, plus what a replica is later by for good, plus jitter. Jitter is drawn from the
measured one; its last tenth is smoothed and continued by a tail, because the last of thousands lies beyond what was seen.
What replicas differ by for good was seen of few, so its spread is drawn too. Jitter that lasts over steps, or over the
gates of a step, is drawn so that it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, log1p, sqrt

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.project.measured.fitted_noise import FittedNoise, chance_beyond, fitted
from taut.project.pauses import Law

# How jitter goes on beyond what was seen: both have the measured mean excess over the last tenth.
TAILS = ("normal", "exponential")
# Share of the jitter that is its tail …
TAIL_SHARE = 0.1
# … or so many of the largest, if that is more.
TAIL_LEAST = 10
# Points of a distribution's table, and bins for what replicas differ by for good.
POINTS, BINS = 256, 32


@dataclass(frozen=True)
class Residuals:
    """Deviations of replicas' arrivals from the mean of their gate, split; tracks × windows × replicas, ns.

    A track is one gate of a step over all steps; tracks of one pool are alike.
    """

    track: Ints
    """Per gate that grows: its track."""
    window: Ints
    pool: Ints
    """Per track."""
    jitter_ns: Floats
    """NaN where a replica was not there."""
    lasting_ns: Floats
    """Tracks × replicas."""
    last_ns: Floats
    """Per gate: how much later than the mean the last one was."""
    rho: float
    """Correlation of a replica's jitter between the gates of a step."""
    phi: float
    """The same between steps."""
    host: Ints
    """Host of each replica; -1 where it has several, or one that is not known."""

    @cached_property
    def fits(self) -> list[tuple[FittedNoise, Mask]]:
        """Per pool: its noise in the keys of a scenario, and which of its arrivals are hiccups."""
        return [fitted(self.jitter_ns[self.pool == pool], self.host) for pool in range(int(self.pool.max()) + 1)]

    @property
    def seen(self) -> int:
        """Arrivals behind the smallest of the pools."""
        count = np.bincount(self.pool, weights=np.isfinite(self.jitter_ns).sum(axis=(1, 2)))
        return int(count.min()) if len(count) else 0


@dataclass(frozen=True)
class Arrivals:
    """When replicas came to gates, a row for each op."""

    gate: Ints
    replica: Ints
    arrived_ns: Floats


def residuals(at: Arrivals, track: Ints, window: Ints, pool: Ints, replicas: int, windows: int) -> Residuals:
    """Arrivals split into what is common, lasting and jitter; gates have a track and a window each, tracks a pool."""
    gates = len(track)
    when = np.full((gates, replicas), -np.inf)
    np.maximum.at(when, (at.gate, at.replica), at.arrived_ns)
    there = np.isfinite(when)
    when = np.where(there, when, 0.0)
    few = np.maximum(there.sum(axis=1), 1)
    apart = np.where(there, when - (when.sum(axis=1) / few)[:, None], np.nan)
    cells = np.full((int(track.max()) + 1, windows, replicas), np.nan)
    cells[track, window] = apart
    seen = np.maximum(np.isfinite(cells).sum(axis=1), 1)
    lasting = np.nansum(cells, axis=1) / seen
    # The mean of few takes part of the spread with it, as in Bessel's correction: the roots give it back.
    back = _spread_correction(replicas)
    jitter = (cells - lasting[:, None]) * back * np.sqrt(seen / np.maximum(seen - 1, 1))[:, None]
    last = np.where(there, apart, -np.inf).max(axis=1)
    return Residuals(track, window, pool, jitter, lasting * back, last, *_correlations(jitter), np.arange(replicas))


def _spread_correction(replicas: int) -> float:
    return sqrt(replicas / max(replicas - 1, 1))


def _correlations(jitter: Floats) -> tuple[float, float]:
    """(correlation between the gates of a step, between steps), neither below nothing."""
    spread = np.sqrt(np.maximum(np.nansum(jitter**2, axis=(1, 2)) / np.maximum(np.isfinite(jitter).sum(axis=(1, 2)), 1), 1e-9))
    z = np.nan_to_num(jitter / spread[:, None, None])
    power = max(float((z**2).mean()), 1e-9)
    n = len(z)
    # Variance of a mean of n: (1 + (n - 1) rho) / n of the single variance; solved for rho.
    rho = (n * float((z.mean(axis=0) ** 2).mean()) / power - 1) / (n - 1) if n > 1 else 0.0
    phi = float((z[:, 1:] * z[:, :-1]).mean()) / power if z.shape[1] > 1 else 0.0
    return float(np.clip(rho, 0.0, 1.0)), float(np.clip(phi, 0.0, 0.95))


def lateness(s: Residuals, more: int, windows: Ints, tail: str, seed: int) -> Floats:
    """How much later each gate opens when ``more`` replicas join: draws × gates, ns. Draw i sees the windows ``windows[i]``."""
    from scipy.special import log_ndtr

    rng = np.random.default_rng(seed)
    draws, pools = len(windows), int(s.pool.max()) + 1
    level, back = log_ndtr(_chances(s, draws, rng)), _spread_correction(s.lasting_ns.shape[1])
    wide = _widths(s, draws, rng)
    # Few replicas do not tell the mean of all either.
    lasting = rng.standard_normal((draws, min(more, LISTED))) + rng.standard_normal((draws, 1)) / sqrt(s.lasting_ns.shape[1])
    out = np.zeros((draws, len(s.track)))
    for pool in range(pools):
        tracks = np.flatnonzero(s.pool == pool)
        mine = np.flatnonzero(s.pool[s.track] == pool)
        fit, late = s.fits[pool]
        body = np.where(late, np.nan, s.jitter_ns[tracks])
        for i in range(draws):
            values = body[:, windows[i]].ravel()
            values = np.sort(values[np.isfinite(values)])
            x, chance = _last_of(values, wide[i, pool] * lasting[i], more, tail, back, (fit.drawn(rng), fit.per_unit))
            out[i, mine] = np.interp(level[i, mine], chance, x)
    return np.maximum(out - s.last_ns, 0.0)


# Replicas whose lasting difference is drawn one by one; more of them are as many times these.
LISTED = 4096


def _chances(s: Residuals, draws: int, rng: np.random.Generator) -> Floats:
    """Standard normal numbers, draws × gates: shared by the gates of a step as jitter is, and lasting over steps as it does.

    Gates of one pool and step (the groups of other stages, of other tensor-parallel members) have one number.
    """
    windows, pools = s.jitter_ns.shape[1], int(s.pool.max()) + 1
    z = rng.standard_normal((windows, draws, pools + 1))
    for w in range(1, windows):
        z[w] = s.phi * z[w - 1] + sqrt(1 - s.phi**2) * z[w]
    each = sqrt(s.rho) * z[:, :, -1:] + sqrt(1 - s.rho) * z[:, :, :-1]
    return each[s.window, :, s.pool[s.track]].T


def _widths(s: Residuals, draws: int, rng: np.random.Generator) -> Floats:
    """Standard deviation of what replicas differ by for good, draws × pools, ns.

    Means over steps differ by it and by what jitter leaves in them; few replicas tell its square as χ² has it.
    """
    pools = int(s.pool.max()) + 1
    replicas, windows = s.lasting_ns.shape[1], s.jitter_ns.shape[1]
    tracks = np.bincount(s.pool, minlength=pools)
    free = max(replicas - 1, 1)
    found = np.bincount(s.pool, weights=(s.lasting_ns**2).sum(axis=1) / replicas, minlength=pools) / tracks
    count = np.isfinite(s.jitter_ns).sum(axis=(1, 2))
    noise = np.bincount(s.pool, weights=np.nansum(s.jitter_ns**2, axis=(1, 2)) / np.maximum(count, 1), minlength=pools) / tracks
    # Effective number of independent steps of an AR(1) series.
    steady = windows * (1 - s.phi) / (1 + s.phi)
    # The sample variance of few replicas is chi-squared: its reciprocal draws the true one.
    drawn: Floats = found * (free / rng.chisquare(free, draws))[:, None]
    left: Floats = np.maximum(drawn - noise / max(steady, 1.0), 0.0)
    return np.sqrt(left)


def _last_of(
    values: Floats, lasting: Floats, more: int, tail: str, back: float, hiccups: tuple[Law | None, float]
) -> tuple[Floats, Floats]:
    """(x, log of the chance that all of ``more`` replicas come before x): each has its lasting lateness plus jitter.

    A mean of few takes more from an exponential tail than from a spread, once more the same factor. ``hiccups`` are their law,
    and how many replicas have one at once.
    """
    law, at_once = hiccups
    edges = np.linspace(lasting.min(), lasting.max() + 1e-9, BINS + 1)
    count = np.histogram(lasting, edges)[0] * (more / len(lasting))
    bins, count = (0.5 * (edges[:-1] + edges[1:]))[count > 0], count[count > 0]
    start, share, scale = _tail(values)
    scale *= back if tail == "exponential" else 1.0
    far = max(values[-1], start + scale * (12 + np.log(more)), law.mean_ns if law else 0.0)
    x = np.linspace(np.median(values) + bins.min(), far + bins.max(), POINTS)
    if law is not None:
        # Beyond the others, as far as the longest of all hiccups may be, in even ratios.
        beyond = law.mean_ns * exp(6 * sqrt(log1p(law.spread**2)))
        x = np.unique(np.concatenate([x, np.geomspace(max(far, 1.0), max(far, beyond) + scale, POINTS // 2)]))
    at = x[:, None] - bins
    upper = np.interp(at, values, 1 - (np.arange(len(values)) + 0.5) / len(values), left=1 - 1e-9)
    upper = np.where(at > start, share * _beyond((at - start) / scale, share, tail), upper)
    if law is not None:
        upper = upper + chance_beyond(law, at) / at_once
    return x, np.maximum.accumulate(np.log1p(-np.clip(upper, 0.0, 1 - 1e-9)) @ count)


def _tail(values: Floats) -> tuple[float, float, float]:
    """(where the tail of sorted values begins, share of them beyond, their mean excess)."""
    beyond = min(max(TAIL_LEAST, round(TAIL_SHARE * len(values))), len(values) // 2)
    start = float(values[-beyond - 1])
    return start, beyond / len(values), max(float((values[-beyond:] - start).mean()), 1.0)


def _beyond(excess: Floats, share: float, tail: str) -> Floats:
    """Chance of more than this many mean excesses beyond the start of the tail, given that it is reached."""
    if tail == "exponential":
        return np.exp(-np.maximum(excess, 0.0))
    from scipy.special import ndtr, ndtri

    # Mean excess of a normal variable beyond z (inverse Mills ratio minus z) scales the tail.
    z = -float(ndtri(share))
    mean = float(np.exp(-z * z / 2) / sqrt(2 * np.pi) / share) - z
    left: Floats = ndtr(-(z + np.maximum(excess, 0.0) * mean)) / share
    return left
