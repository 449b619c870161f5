"""Zeros that take no memory: columns of large jobs in which nothing is written, gaps that there are none of, lags, phases."""

from __future__ import annotations

import mmap

import numpy as np

from taut.core.array_types import Ints

FEW_BYTES = 1 << 20
"""Arrays up to this size are made as any other."""


def zeros(count: int) -> Ints:
    """So many zeros; a page of them is in memory once something was written there."""
    if 8 * count <= FEW_BYTES:
        return np.zeros(count, dtype=np.int64)
    return np.frombuffer(mmap.mmap(-1, 8 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.int64)


def without_zeros(values: Ints) -> Ints:
    """The values, where all are 0 in no memory."""
    return values if values.any() else zeros(len(values))
