"""Student's distribution, for spreads that are known from few values: its upper tail, and where that tail begins; and Fisher's.

Written out here because scipy takes longer to import than a short analysis takes (``tests/core/test_student.py`` compares).
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

NORMAL = 1e5
"""Degrees of freedom from which the normal distribution is the same."""
TINY = 1e-300


def student_tail(t: float, free: float) -> float:
    """Chance of a value above ``t`` with so many degrees of freedom (at least one)."""
    if free >= NORMAL:
        return NormalDist().cdf(-t)
    tail = 0.5 * _incomplete_beta(max(free, 1.0) / 2, 0.5, max(free, 1.0) / (max(free, 1.0) + t * t))
    return tail if t >= 0 else 1 - tail


@lru_cache(maxsize=256)
def student_quantile(tail: float, free: float) -> float:
    """The value above which lies this share of the distribution (below one half)."""
    if free >= NORMAL:
        return NormalDist().inv_cdf(1 - tail)
    low, high = 0.0, 1.0
    while student_tail(high, free) > tail and high < inf:
        low, high = high, 2 * high
    at = 0.5 * (low + high)
    for _ in range(100):
        found = student_tail(at, free)
        low, high = (at, high) if found > tail else (low, at)
        # Newton on the logarithm of the tail, whose slope is minus density over tail; the middle where it leaves the bracket.
        further = at + (log(found) - log(tail)) * found / _density(at, free)
        if abs(further - at) <= 1e-13 * at or high - low <= 1e-13 * high:
            return further if low <= further <= high else at
        at = further if low < further < high else 0.5 * (low + high)
    return at


def fisher_tail(ratio: float, top: float, bottom: float) -> float:
    """Chance of a ratio of two variances above this one, with so many degrees of freedom above and below the line."""
    return _incomplete_beta(bottom / 2, top / 2, bottom / (bottom + top * ratio))


def least_fisher_tail(ratio: float, top: int, bottom: int) -> float:
    """What ``fisher_tail`` is at least, in a tenth of its time: the first term of a series all of whose terms are positive."""
    a, b, x = bottom / 2, top / 2, bottom / (bottom + top * ratio)
    return 1.0 if x >= 1 else exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a


def _density(t: float, free: float) -> float:
    """Density at ``t``."""
    n = max(free, 1.0)
    return exp(lgamma((n + 1) / 2) - lgamma(n / 2) - (n + 1) / 2 * log1p(t * t / n)) / sqrt(n * pi)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _continued_fraction(a, b, x) / a
    return 1 - front * _continued_fraction(b, a, 1 - x) / b


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method, to the last bit that matters; it needs about √max(a, b) terms."""
    c, d = 1.0, 1 / _apart_from_zero(1 - (a + b) * x / (a + 1))
    out = d
    for m in range(1, 100 + 10 * int(sqrt(max(a, b)))):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart_from_zero(1 + term * d)
            c = _apart_from_zero(1 + term / c)
            out *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return out


def _apart_from_zero(x: float) -> float:
    return x if abs(x) > TINY else TINY
