"""Medians of classes of ops or gates: the usual duration that excess is measured against."""

from __future__ import annotations

from taut.core.array_types import Floats, Indices, Mask, Numbers
from taut.core.group_kernels import group_sort
from taut.core.ids import coded
from taut.replay.cell_medians import medians


def class_medians(values: Numbers, cls: Indices, count: int, use: Mask | None = None) -> Floats:
    """The median of each class over the rows in use (all of them if none are named); NaN where a class has none."""
    if use is not None:
        values, cls = values[use], cls[use]
    return medians(values, *group_sort(cls, count))


def medians_of(values: Numbers, *keys: Indices) -> Floats:
    """Per row: the median of the rows that have the same keys."""
    cls, count = coded(*keys)
    return class_medians(values, cls, count)[cls]
