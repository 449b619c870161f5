"""Many wholes shared out at once, each without a remainder: as ``exact_shares`` does it one by one, on arrays."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.decimal_units import Wholes

MOST = 2.0**62
"""Weights of one whole add up to less."""


class ManyShares:
    """Weights of parts, those of each whole one after the other from its place in ``first``; each whole has at least one.

    Weights that are all 0 count as equal. Raises ValueError for weights below 0, or whose sum is too large.
    """

    def __init__(self, weights: Ints, first: Ints) -> None:
        count = np.diff(first, append=len(weights))
        self._of = np.repeat(np.arange(len(first)), count)
        self._first = first
        if len(weights) and (int(weights.min()) < 0 or float(np.add.reduceat(weights.astype(np.float64), first).max()) >= MOST):
            raise ValueError("weights are from 0 to 2⁶²")
        total = np.add.reduceat(weights, first) if len(first) else weights
        nothing = total == 0
        self._weights = np.where(nothing[self._of], 1, weights)
        self._total = np.where(nothing, count, total)
        self._many = np.flatnonzero(count[self._of] > 1)

    def of(self, wholes: Wholes) -> Wholes:
        """Every whole shared out; its parts add up to it exactly, and the largest remainders get what is left."""
        parts: Wholes = wholes[self._of]
        if not len(self._many):
            return parts
        many, of = self._many, self._of[self._many]
        total = self._total[of].astype(object)
        product = parts[many] * self._weights[many].astype(object)
        parts[many] = product // total
        remainder = np.zeros(len(parts), dtype=np.int64)
        remainder[many] = (product - parts[many] * total).astype(np.int64)
        left = (wholes - np.add.reduceat(parts, self._first)).astype(np.int64)
        parts[self._largest(remainder, left)] += 1
        return parts

    def _largest(self, remainder: Ints, left: Ints) -> Ints:
        """Parts with the largest remainders of each whole, as many as are left of it; ties go to the first."""
        order = np.lexsort((-remainder, self._of))
        place = np.arange(len(order)) - self._first[self._of]
        found: Ints = order[place < left[self._of]]
        return found
