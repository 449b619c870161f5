"""Batch means: a window is cut into parts one after the other, and how they differ gives the interval of the whole."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from taut.core.array_types import Floats, Mask
from taut.project.workload import Estimate

# Parts, and the quantile of Student's t that gives an interval of 95 % from them (seven degrees of freedom).
COUNT, STUDENT = 8, 2.365


class Blocks:
    """Parts of a window by when things came."""

    def __init__(self, window: tuple[float, float], came: Floats) -> None:
        begin, end = window
        self.of = np.clip((came - begin) / (end - begin) * COUNT, 0, COUNT - 1).astype(int)

    def mean(self, values: Floats) -> Estimate | None:
        """The mean of the values that are known."""

        def of(some: Mask) -> float | None:
            known = values[some & np.isfinite(values)]
            return float(known.mean()) if len(known) else None

        return self.estimate(of(np.ones(len(values), bool)), of)

    def estimate(self, value: float | None, part: Callable[[Mask], float | None]) -> Estimate | None:
        """A value with its interval, from the same of every part (a mask of what came in it)."""
        if value is None:
            return None
        each = [one for k in range(COUNT) if (one := part(self.of == k)) is not None]
        if len(each) < COUNT:
            return Estimate(value)
        error = STUDENT * float(np.std(each, ddof=1)) / sqrt(COUNT)
        return Estimate(value, max(value - error, 0.0), value + error)
