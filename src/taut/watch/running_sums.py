"""What the sequential tests compute of running sums: reflected at zero, their age, and how often they get high by chance."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask


def reflected(begin: Floats, more: Floats) -> Floats:
    """Running sums that are never below zero (rows × series)."""
    free = begin + np.cumsum(more, axis=0)
    return free - np.minimum(np.minimum.accumulate(free, axis=0), 0.0)


def last_known(values: Floats, valid: Mask, before: Floats) -> Floats:
    """Of every row, and of the one after the last, the value that was known last before it (rows + 1 × series)."""
    row = np.maximum.accumulate(np.where(valid, np.arange(1, len(values) + 1)[:, None], 0), axis=0)
    all_rows = np.concatenate([before[None], values])
    return np.concatenate([before[None], np.take_along_axis(all_rows, row, axis=0)])


def age(before: Ints, sums: Floats) -> Ints:
    """Steps since a sum was last zero."""
    zero = sums[::-1] <= 0
    out: Ints = np.where(zero.any(axis=0), np.argmax(zero, axis=0), before + len(sums))
    return out


def exponent(k: Floats, clip: Floats) -> Floats:
    """θ > 0 with log(1 + (exp(θc) - 1 - θc) / c²) = θk, by bisection."""
    low, high = np.zeros_like(k), np.full_like(k, 2.0) * np.maximum(k, 1.0)
    for _ in range(48):
        middle = (low + high) / 2
        exponential = np.minimum(middle * clip, 500.0)
        above = np.log1p((np.expm1(exponential) - exponential) / clip**2) > middle * k
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low
