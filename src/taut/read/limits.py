"""Caps on what is read: ranks that fit their column, years between the events of one trace, rows of one file."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge

# Ranks are kept in 32 bits: a larger one would become another.
RANKS = 2**31
YEAR_NS = 31_557_600 * 10**9
# Between the first and the last event. Sums over many ranks still fit 64 bits.
WALL_NS = 10 * YEAR_NS


def near(start: Ints, end: Ints) -> Mask:
    """Which events lie within the longest time of the middle one and do not last longer themselves."""
    if not len(start) or int(end.max()) - int(start.min()) <= WALL_NS:
        return np.ones(len(start), dtype=np.bool_)
    middle = int(np.median(start))
    low, high = max(middle - WALL_NS // 2, -(2**63)), min(middle + WALL_NS // 2, 2**63 - 1)
    return (start >= low) & (end <= high) & (start <= end)


def check_wall(start: Ints, end: Ints, label: str) -> None:
    """Refuse events that lie too far apart to be of one job."""
    wall = int(end.max()) - int(start.min()) if len(start) else 0
    if not 0 <= wall <= WALL_NS:
        raise InputRefused(label, f"its events lie {wall / YEAR_NS:,.0f} years apart", "check its times, or leave it out")


def check_count(count: int, most: int, what: str, label: str, remedy: str) -> None:
    """Refuse a file with more of something than a job has: that is a mistake, or worse."""
    if count > most:
        raise TooLarge(label, f"more than {most:,} {what}", remedy)
