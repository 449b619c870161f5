"""How likely it is that hiccups, which happen to any rank, strike one of them so often: told by what the others have."""

from __future__ import annotations

from math import lgamma

import numpy as np

from taut.core.array_types import Floats, Mask
from taut.core.change_points import ACCIDENTS

FEW_RANKS = 8
"""Ranks from which another one that is late more often than the rest may be left out of what the rest tells."""
DOUBTED = 0.1
"""Chance of so many hiccups of the others, if there are as many as ACCIDENTS, below which that is not believed."""


def by_accident(late: Mask, asked: slice = slice(None)) -> Floats:
    """Per rank that is asked: chance that hiccups make any rank late in so many windows (mask, ranks × windows).

    How often they happen is told by the other ranks, the worst of many left out, and by a prior that expects ACCIDENTS. Where
    the others have so many that it is wrong, as on a busy machine, one that expects nothing (Jeffreys') is asked as well.
    """
    return np.array([min(1.0, len(late) * chance) for chance in _chances(late, asked)])


def one_by_accident(late: Mask, rank: int) -> float:
    """Chance that hiccups make this rank late in so many windows, which is known to be slow and was not picked for it."""
    return _chances(late, slice(rank, rank + 1))[0]


def _chances(late: Mask, asked: slice) -> list[float]:
    """Per rank that is asked, not corrected for how many there are."""
    ranks, windows = late.shape
    mine = late.sum(axis=1)
    worst = np.sort(mine)[::-1]
    # Among few ranks the worst of the others is too large a part of what tells.
    left_out = ranks >= FEW_RANKS
    others = mine.sum() - mine - left_out * np.where(mine == worst[0], worst[1] if ranks > 1 else 0, worst[0])
    seen = max(ranks - 1 - left_out, 0) * windows
    return [
        max(_at_least(int(k), windows, a + n, b + seen - n) for a, b in _priors(int(n), seen))
        for k, n in zip(mine[asked], others[asked], strict=True)
    ]


def _priors(hits: int, seen: int) -> tuple[tuple[float, float], ...]:
    """Steps with and without a hiccup that are taken as seen before any are: what is expected, and nothing if that is wrong."""
    usual = 1.0, 1 / ACCIDENTS
    return (usual, (0.5, 0.5)) if hits and _at_least(hits, seen, *usual) < DOUBTED else (usual,)


def as_large_by_accident(late: Mask, excess: Floats) -> Floats:
    """The same, counting on all ranks only what is half as large as the rank is late, or more: small delays are no stops."""
    out = np.ones(len(late))
    for rank in np.flatnonzero(late.sum(axis=1) > 1).tolist():
        as_large = late & (excess >= 0.5 * np.median(excess[rank, late[rank]]))
        out[rank] = by_accident(as_large, slice(rank, rank + 1))[0]
    return out


def _at_least(hits: int, tries: int, a: float, b: float) -> float:
    """Chance of so many hits or more of a beta-binomial variable."""
    first = (
        lgamma(tries + 1)
        - lgamma(hits + 1)
        - lgamma(tries - hits + 1)
        + lgamma(a + hits)
        + lgamma(b + tries - hits)
        - lgamma(a + b + tries)
        + lgamma(a + b)
        - lgamma(a)
        - lgamma(b)
    )
    k = np.arange(hits, tries, dtype=np.float64)
    ratio = (tries - k) / (k + 1) * (a + k) / (b + tries - k - 1)  # of one chance to the one before
    log = first + np.concatenate([[0.0], np.cumsum(np.log(ratio))])
    return min(1.0, float(np.exp(log).sum()))
