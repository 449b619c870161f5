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
OUTLIER = 4.0
"""Spreads above the median from which a step is a spike."""
REMOVED = 2.0
"""Levels taken out of a series before its autocorrelation is estimated."""
UNSURE = 4.0
"""A spread taken from n steps is uncertain itself: the alarm is raised by this many nths, which keeps the size."""
LEAST_OUTSIDE, LEAST_INSIDE = 4, 3
"""Steps that must lie outside a span, to know the level before, and inside it."""
LEAST_STEPS = LEAST_OUTSIDE + LEAST_INSIDE
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
    z = np.clip(_standard(y), -CLIP, CLIP)
    total = np.concatenate([np.zeros((count, 1)), np.cumsum(z, axis=1)], axis=1)
    edges = np.unique(np.linspace(0, n, min(n, GRID) + 1).astype(np.int64))
    first, last = np.triu_indices(len(edges), 1)
    begin, end = edges[first], edges[last]
    inside = end - begin
    keep = (inside >= LEAST_INSIDE) & (n - inside >= LEAST_OUTSIDE)
    keep &= (begin >= LEAST_OUTSIDE) | (2 * inside <= n)  # what was there from the start, most of the time, is the level
    begin, end, inside = begin[keep], end[keep], inside[keep].astype(np.float64)
    alarm = NormalDist().inv_cdf(1 - FALSE_ALARMS / (len(begin) * count)) * (1 + UNSURE / n)
    out = []
    for i in range(count):
        within = total[i, end] - total[i, begin]
        score = (within / inside - (total[i, -1] - within) / (n - inside)) * np.sqrt(inside * (n - inside) / n)
        best = int(np.argmax(score))
        a, b = int(begin[best]), int(end[best])
        before, within = np.delete(z[i], slice(a, b)), z[i, a:b]
        clear = float(score[best]) / _redness(z[i] - np.where(_between(n, a, b), within.mean(), before.mean()))
        if clear > alarm and np.median(within) - np.median(before) > MOSTLY:
            out.append(Span(i, a, b - 1, clear))
    return out


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
