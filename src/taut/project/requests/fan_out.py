"""Tails at scale: what a request takes that asks many leaves at once, from what one leaf takes; and what hedging buys.

A distribution is a table of quantiles at GRID, as in ``noise.py``. Leaves are independent here. Real ones share load,
switches and the root that asks them, so what is measured lies above this: the difference is what they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil

import numpy as np

from taut.core.array_types import Floats
from taut.core.errors import UsageError
from taut.core.normal_score import normal_score
from taut.project.noise import GRID, odds

TAILS = ("lognormal", "pareto")


def through(quantiles: Mapping[float, float], tail: str = "lognormal") -> Floats:
    """The distribution through given quantiles (chance: value), and nothing else of it.

    Between them and beyond, the log of the value is linear in the normal score (lognormal) or in the log odds (pareto).
    """
    if len(quantiles) < 2 or min(quantiles.values()) <= 0 or not 0 < min(quantiles) <= max(quantiles) < 1:
        raise UsageError(f"{dict(quantiles)}: give two quantiles or more, with chances between 0 and 1 and values above 0")
    return _through(tuple(sorted(quantiles.items())), tail)


@lru_cache(maxsize=64)
def _through(quantiles: tuple[tuple[float, float], ...], tail: str) -> Floats:
    chance, value = (np.array(column) for column in zip(*quantiles, strict=True))
    at, x = (_score(np.log(chance) - np.log1p(-chance), tail), _score(GRID, tail))
    slope = np.diff(np.log(value)) / np.diff(at)
    k = np.clip(np.searchsorted(at, x) - 1, 0, len(slope) - 1)
    return np.asarray(value[k] * np.exp(slope[k] * (x - at[k])))


def _score(x: Floats, tail: str) -> Floats:
    """Log odds as they are, or as normal scores."""
    if tail == "pareto":
        return x
    return normal_score(*odds(x))


def percentile(table: Floats, chance: float) -> float:
    """The value that is not exceeded with this chance."""
    return float(np.interp(np.log(chance) - np.log1p(-chance), GRID, table))


def fan_out(table: Floats, leaves: int, share: float = 1.0) -> Floats:
    """Time until this share of the leaves has answered, if they are independent: an order statistic."""
    from scipy.special import betaincinv

    first = min(leaves, max(1, ceil(share * leaves - 1e-9)))
    lower, upper = odds(GRID)
    # Of each leaf's chance, and of one minus it, the smaller keeps its digits.
    quick, slow = betaincinv(first, leaves - first + 1, lower), betaincinv(leaves - first + 1, first, upper)
    at = np.where(
        slow < 0.5, np.log1p(-np.minimum(slow, 0.5)) - np.log(slow), np.log(quick) - np.log1p(-np.minimum(quick, 0.5))
    )
    return np.asarray(np.interp(at, GRID, table))


def hedged(table: Floats, delay: float) -> tuple[Floats, float]:
    """(distribution, share of requests sent twice) where a second leaf is asked after a delay and the first answer counts."""
    value = np.unique(np.concatenate([table, table + delay]))
    late = _late(table, value) + np.where(value > delay, _late(table, value - delay), 0.0)
    falls = np.concatenate([[True], np.diff(late) < 0])
    at = np.interp(np.logaddexp(0, GRID), -late[falls], value[falls])
    return at, float(np.exp(_late(table, delay)))


def _late(table: Floats, value: float | Floats) -> Floats:
    """Log chance to take longer than a value."""
    return -np.logaddexp(0, np.interp(value, table, GRID))
