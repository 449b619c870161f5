"""Dense ids for combinations of columns, and running numbers inside them: what grouping is made of here."""

from __future__ import annotations

from typing import Any

import numpy as np


def numbered(*keys: Any) -> tuple[Any, int]:
    """Dense ids of the distinct combinations of keys, in their lexicographic order, and how many there are."""
    packed = np.zeros(len(keys[0]), dtype=np.int64)
    if len(packed) == 0:
        return packed, 0
    span = 1
    for column in keys:
        key = np.asarray(column)
        low, high = int(key.min()), int(key.max())
        if span * (high - low + 1) > 1 << 62:
            distinct, packed = np.unique(packed, return_inverse=True)
            span = len(distinct)
        if span > 1:
            packed *= high - low + 1
        packed = packed + (key.astype(np.int64) - low)
        span *= high - low + 1
    if span <= 16 * len(packed) + 1024:
        present = np.zeros(span, dtype=bool)
        present[packed] = True
        dense = np.cumsum(present) - 1
        return dense[packed], int(dense[-1]) + 1
    distinct, ids = np.unique(packed, return_inverse=True)
    return ids.ravel(), len(distinct)


def distinct(values: Any) -> Any:
    """The distinct values of an integer column, ascending; without sorting where their range is small."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low > 16 * len(values) + 1024:
        return np.unique(values)
    present = np.zeros(high - low + 1, dtype=bool)
    present[values - low] = True
    return np.flatnonzero(present) + low


def occurrence(*keys: Any) -> Any:
    """Running number of each row among the rows with the same keys, in row order."""
    from taut.graph.kernels import turn

    ids, count = numbered(*keys)
    return turn(ids, count)[0]


def least(ids: Any, count: int, values: Any) -> Any:
    """Smallest value of each id."""
    out = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(out, ids, values)
    return out


def greatest(ids: Any, count: int, values: Any) -> Any:
    """Largest value of each id."""
    out = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(out, ids, values)
    return out
