"""How likely it is that events, each of which falls on some place by chance, are so many on one of them, or weigh so much."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, log1p

import numpy as np

from taut.core.array_types import Floats, Mask, Numbers

DRAWS, DRAWN = 9999, 500
"""Samples drawn to tell how events fall by chance, and the most events that are drawn."""


def heaped(weights: Numbers, mine: Mask, share: float, places: int) -> float:
    """Chance that events on one place (a mask) are so many, or weigh so much, of all events, each falling there with ``share``.

    The smaller of two chances, twice: of the count, and of the weight (seeded draws): small events say little of large ones.
    Of many events the count says enough, and draws would take too much memory.
    """
    counted = concentrated(int(mine.sum()), len(weights), share, places)
    if len(weights) > DRAWN:
        return counted
    # Seeded by the number of events, so that the same events give the same chance.
    drawn = (np.random.default_rng(len(weights)).random((DRAWS, len(weights))) < share) @ weights
    weighed = places * (1 + np.count_nonzero(drawn >= (weights * mine).sum() * (1 - 1e-9))) / (DRAWS + 1)
    return min(1.0, 2 * min(counted, weighed))


def concentrated(hits: int, events: int, share: float, places: int) -> float:
    """Chance that some place of many gets at least ``hits`` of the events, each falling there with chance ``share``."""
    return concentrated_in(hits, [(events, share)], places)


def concentrated_in(hits: int, events: Sequence[tuple[int, float]], places: int) -> float:
    """The same of events of several kinds, so many of each, which fall there with chances of their own."""
    total = np.ones(1)
    for count, share in events:
        total = np.convolve(total, _binomial(count, share))
    return min(1.0, places * float(total[hits:].sum()))


def _binomial(count: int, share: float) -> Floats:
    """Chance of 0, 1, … count hits."""
    if not 0 < share < 1:
        certain: Floats = np.eye(1, count + 1, count if share >= 1 else 0)[0]
        return certain
    hits = np.arange(count + 1)
    ways = lgamma(count + 1) - np.array([lgamma(k + 1) + lgamma(count - k + 1) for k in hits.tolist()])
    out: Floats = np.exp(ways + hits * log(share) + (count - hits) * log1p(-share))
    return out
