"""Ratios and shares of many units with an interval: units in order of time, drawn again in blocks of neighbours."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Mask, Numbers
from taut.core.interval import estimate, over, share
from taut.result.types import Estimate

BLOCKS = 500
"""More units than this are drawn again in blocks: bounds the memory."""


def ratio(part: Numbers | Mask, whole: Numbers) -> Estimate | None:
    """Sum over sum, units in order of time."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    if not len(part) or not whole.sum() > 0:
        return None
    if len(part) > BLOCKS:
        cuts = np.linspace(0, len(part), BLOCKS + 1).astype(np.int64)[:-1]
        part, whole = np.add.reduceat(part, cuts), np.add.reduceat(whole, cuts)
    return estimate(lambda s: over(part[s].sum(axis=-1), whole[s].sum(axis=-1)), len(part))


def proportion(flags: Mask) -> Estimate | None:
    """Share of units; of many, by blocks."""
    return share(flags) if len(flags) <= BLOCKS else ratio(flags, np.ones(len(flags)))
