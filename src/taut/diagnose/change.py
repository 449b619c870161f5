"""When something became slower: spans of steps in which a series stands above its own level outside them.

Null hypothesis: the steps of a series are exchangeable up to noise. Two alternatives are tested. *Level*: the mean over a
span exceeds the mean outside it; values are clipped at CLIP spreads first, so that a lone hiccup, however long, is no
level; corrected for all spans and all series. *Spikes*: outliers fall on one place more often than chance would put them
there, whatever their size: independent heavy tails do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from statistics import NormalDist
from typing import Any

import numpy as np

FALSE_ALARMS = 0.01
"""Chance that a run without any change has a span found in any of its series, for each of the two tests."""
CLIP = 3.0
"""Spreads beyond which a single step says no more about the level."""
MOSTLY = 1.0
"""Spreads by which most of a span's steps must stand above most of the others: spikes are no level."""
APART, LEAST_APART = 6.0, 5
"""Spreads between the lower fifth of a span and the upper fifth of the rest from which no chance explains it, and the
steps such a span must have: hiccups do not come in fives."""
OUTLIER = 4.0
"""Spreads above the median from which a step is a spike."""
REMOVED = 2.0
"""Levels taken out of a series before its autocorrelation is estimated."""
UNSURE = 4.0
"""A spread taken from n steps is uncertain itself: the alarm is raised by this many nths, which keeps the size."""
LEAST_OUTSIDE, LEAST_INSIDE = 3, 3
"""Steps that must lie outside a span, to know the level before, and inside it."""
LEAST_STEPS = LEAST_OUTSIDE + LEAST_INSIDE
AT_ONCE = 1024
"""Series searched at once: bounds the memory."""
GRID = 128
"""Longer series are searched at this many places."""


@dataclass(frozen=True)
class Span:
    """One series was higher in windows first … last."""

    series: int
    first: int
    last: int
    score: float
    """In standard errors."""


def noise(y: Any) -> Any:
    """Spread of each series from step to step: from differences, so that a level that jumps is not counted as noise."""
    steps = np.diff(y, axis=1)
    own = 1.4826 * np.median(np.abs(steps), axis=1) / np.sqrt(2)
    return np.maximum(np.maximum(own, np.median(own)), 1e-3 * np.abs(np.median(y)) + 1.0)


def levels(y: Any) -> list[Span]:
    """At most one span for every series (row of ``y``)."""
    count, n = y.shape
    if n < LEAST_STEPS or count == 0:
        return []
    z = _standard(y)
    edges = np.unique(np.linspace(0, n, min(n, GRID) + 1).astype(np.int64))
    first, last = np.triu_indices(len(edges), 1)
    begin, end = edges[first], edges[last]
    inside = end - begin
    keep = (inside >= LEAST_INSIDE) & (n - inside >= LEAST_OUTSIDE)
    keep &= (begin >= LEAST_OUTSIDE) | (2 * inside <= n)  # what was there from the start, most of the time, is the level
    begin, end = begin[keep], end[keep]
    alarm = NormalDist().inv_cdf(1 - FALSE_ALARMS / (len(begin) * count)) * (1 + UNSURE / n)
    wide, narrow = np.clip(z, -2 * CLIP, 2 * CLIP), np.clip(z, -CLIP, CLIP)
    far, near = _best(wide, begin, end), _best(narrow, begin, end)
    out = []
    for i in np.flatnonzero((near[2] > alarm) | (far[2] > alarm)).tolist():
        span = _apart(z[i], i, int(far[0][i]), int(far[1][i]), float(far[2][i]))
        span = span or _higher(narrow[i], i, int(near[0][i]), int(near[1][i]), float(near[2][i]), alarm)
        out += [span] if span else []
    return out


def _best(z: Any, begin: Any, end: Any) -> tuple[Any, Any, Any]:
    """Of every series the span with the largest difference of means, in standard errors: begin, end, score."""
    count, n = z.shape
    total = np.concatenate([np.zeros((count, 1)), np.cumsum(z, axis=1)], axis=1)
    inside = (end - begin).astype(np.float64)
    best, at = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    for first in range(0, count, AT_ONCE):
        some = total[first : first + AT_ONCE]
        within = some[:, end] - some[:, begin]
        score = (within / inside - (some[:, -1:] - within) / (n - inside)) * np.sqrt(inside * (n - inside) / n)
        at[first : first + AT_ONCE] = np.argmax(score, axis=1)
        best[first : first + AT_ONCE] = score.max(axis=1)
    return begin[at], end[at], best


def _apart(z: Any, series: int, a: int, b: int, score: float) -> Span | None:
    """A span whose steps nearly all lie far above nearly all the others: unmistakable, however few those are."""
    low, high = np.quantile(z[a:b], 0.2), np.quantile(np.delete(z, slice(a, b)), 0.8)
    return Span(series, a, b - 1, score) if b - a >= LEAST_APART and low - high >= APART else None


def _higher(z: Any, series: int, a: int, b: int, score: float, alarm: float) -> Span | None:
    """A span whose mean is higher by more than chance explains."""
    outside, within = np.delete(z, slice(a, b)), z[a:b]
    clear = score / _redness(z - np.where(_between(len(z), a, b), within.mean(), outside.mean()))
    return Span(series, a, b - 1, clear) if clear > alarm and np.median(within) - np.median(outside) > MOSTLY else None


def _between(n: int, a: int, b: int) -> Any:
    return (np.arange(n) >= a) & (np.arange(n) < b)


def _redness(rest: Any) -> float:
    """By how much more the mean of such a series wanders than that of independent steps (AR(1), from lag 1).

    Taking the best span's levels out first makes a series look less red than it is: hence the correction.
    """
    rho = float((rest[1:] * rest[:-1]).sum() / max((rest**2).sum(), 1e-12))
    rho = min(rho + (1 + 4 * rho) * REMOVED / len(rest), 0.95)
    wide = max(1.4826 * float(np.median(np.abs(rest))), 1.0)
    return wide * float(np.sqrt((1 + rho) / (1 - rho))) if rho > 0 else wide


def outliers(y: Any) -> Any:
    """Mask of the steps that stand far above the median of their series."""
    return _standard(y) > OUTLIER


def _standard(y: Any) -> Any:
    return (y - np.median(y, axis=1, keepdims=True)) / noise(y)[:, None]


def concentrated(hits: int, events: int, share: float, places: int) -> float:
    """Chance that some place of many gets at least ``hits`` of the events, each falling there with chance ``share``."""
    tail = sum(comb(events, k) * share**k * (1 - share) ** (events - k) for k in range(hits, events + 1)) if hits else 1.0
    return min(1.0, places * tail)
