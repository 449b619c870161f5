"""Does a quantity rise or fall from run to run? Mann–Kendall for the test, Theil–Sen for the slope.

Null hypothesis: the values are a stationary series, perhaps red (AR(1)): what came before may linger, but nothing leads
anywhere. Few values are also counted out exactly against all their orders, and the larger chance is taken. With red
noise the statistic varies more (Hamed and Rao); the redness is taken from the ranks of what the slope leaves over, its
bias corrected, and raised by its own standard error, because it is known from few values and underrating it is what
raises false alarms. Size and power are in docs/compare.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations
from math import erfc, sqrt
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Numbers
from taut.core.normal_score import normal_score

LEAST = 3
"""Values below which there is no trend to speak of: two points always lie on a line."""
EXACT = 7
"""Up to this many values all their orders are counted."""
BIAS, LOSS = 2.0, 4.0
"""Level and slope are taken out before the redness is estimated, which makes a series of n values look less red: by so many
nths, and by so many nths of itself."""
MOST_AUTOCORRELATED = 0.95
"""Beyond this a series wanders so much that nothing can be concluded, and reporting that needs a finite number."""
ON_A_LINE = 1e-9
"""Values that stray from a line by less than this share of the largest lie on it."""
SURE = 0.95
"""Coverage of the interval of a slope."""


class Trend(Struct, frozen=True):
    """A slope per value with its interval, and the chance of such an order without a trend."""

    slope: float
    lo: float | None
    hi: float | None
    """None where so few values bound nothing."""
    p: float


def trend(values: Sequence[float] | Numbers) -> Trend | None:
    """The trend of values in their order; None for fewer than three."""
    y = np.asarray(values, dtype=np.float64)
    n = len(y)
    if n < LEAST:
        return None
    first, last = np.triu_indices(n, 1)
    slopes = np.sort((y[last] - y[first]) / (last - first))
    slope = float(np.median(slopes))
    score = float(np.sign(y[last] - y[first]).sum())
    rho = _autocorrelation(y - slope * np.arange(n), float(np.abs(y).max()))
    spread = float(np.sqrt(_variance(y, rho)))
    lo, hi = _interval(slopes, spread, n)
    return Trend(slope, lo, hi, _chance(y, score, spread, rho))


def _chance(y: Floats, score: float, spread: float, rho: float) -> float:
    if spread == 0:
        return 1.0
    # The statistic moves in steps of two: one is taken off, the usual correction for continuity.
    normal = erfc(max(abs(score) - 1, 0) / spread / sqrt(2))
    if len(y) > EXACT:
        return normal
    return max(_exact_chance(y, score), normal if rho > 0 else 0.0)


def _exact_chance(y: Floats, score: float) -> float:
    """Share of all orders of these values whose statistic is as far from zero."""
    first, last = _orders(len(y))
    sign = np.sign(y[:, None] - y[None, :])
    return float((np.abs(sign[last, first].sum(axis=1)) >= abs(score)).mean())


@cache
def _orders(n: int) -> tuple[Ints, Ints]:
    """Of every order of n values, which value comes before which."""
    orders = np.array(list(permutations(range(n))))
    first, last = np.triu_indices(n, 1)
    return orders[:, first], orders[:, last]


def _autocorrelation(rest: Floats, level: float) -> float:
    """Lag-1 correlation of the normal scores of a series, without its bias, and as large as it may well be.

    Nothing left over is nothing that could be red.
    """
    n = len(rest)
    if np.ptp(rest) <= ON_A_LINE * level:
        return 0.0
    rank = _ranks(np.round(rest / level, 9))  # values that differ by rounding only are tied
    scores = normal_score((rank - 0.5) / n, (n + 0.5 - rank) / n)
    power = float((scores**2).sum())
    rho = float((scores[1:] * scores[:-1]).sum()) / power if power > 0 else 0.0
    return float(np.clip((rho + BIAS / n) / max(1 - LOSS / n, 0.5) + 1 / np.sqrt(n), 0.0, MOST_AUTOCORRELATED))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1 on, those of equal values their mean; scipy.stats takes 40 MB and longer to import than to do this."""
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[which]


def _variance(y: Floats, rho: float) -> float:
    """Variance of the statistic under the null: ties lower it, redness raises it."""
    n = len(y)
    ties = np.unique(y, return_counts=True)[1].astype(np.float64)
    # Kendall's variance with its correction for ties.
    plain = (n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    lag = np.arange(1, n)
    # Correlation of the ranks of normal values that are correlated by ρ, and Hamed and Rao's factor made of it.
    ranks = 6 / np.pi * np.arcsin(rho**lag / 2)
    wider = 1 + 2 / (n * (n - 1) * (n - 2)) * float(((n - lag) * (n - lag - 1) * (n - lag - 2) * ranks).sum())
    return float(plain * wider)


def _interval(slopes: Floats, spread: float, n: int) -> tuple[float | None, float | None]:
    """The slopes between which the statistic could not tell a trend from none."""
    reach = NormalDist().inv_cdf((1 + SURE) / 2) * spread
    low = int(np.floor((len(slopes) - reach) / 2))
    return (None, None) if low < 1 or n <= LEAST else (float(slopes[low - 1]), float(slopes[len(slopes) - low]))


def corrected(chances: Sequence[float | None]) -> list[float | None]:
    """Benjamini–Hochberg: of what is listed at q, at most that share is false; what was not tested stays None."""
    known = [i for i, p in enumerate(chances) if p is not None]
    p = np.array([chances[i] for i in known], dtype=np.float64)
    order = np.argsort(-p, kind="stable")
    # From the largest chance down: p · m / rank, and never more than what a larger chance got.
    scaled = p[order] * len(p) / (len(p) - np.arange(len(p)))
    q = np.empty(len(p))
    q[order] = np.minimum(np.minimum.accumulate(scaled), 1.0) if len(p) else scaled
    out: list[float | None] = [None] * len(chances)
    for i, value in zip(known, q.tolist(), strict=True):
        out[i] = value
    return out
