"""Many wholes shared out at once, each without a remainder, on arrays.

One rule for all money and time: every part is rounded down, and the largest remainders get what is left, ties the first.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.decimal_units import Wholes

MOST = 2.0**63
"""Weights of one whole add up to less."""
QUICK_WHOLE, QUICK_TOTAL = 1 << 50, 1 << 60
"""Below both, a quotient in floating point is off by one or two, and what is left of the product fits 64 bits."""


class ManyShares:
    """Weights of parts, those of each whole one after the other from its place in ``first``; each whole has at least one.

    Weights that are all 0 count as equal. Raises ValueError for weights below 0, or whose sum is too large.
    """

    def __init__(self, weights: Ints, first: Ints) -> None:
        count = np.diff(first, append=len(weights))
        self._of = np.repeat(np.arange(len(first)), count)
        self._first = first
        if len(weights) and (int(weights.min()) < 0 or float(np.add.reduceat(weights.astype(np.float64), first).max()) >= MOST):
            raise ValueError("weights are from 0 to 2⁶³")
        total = np.add.reduceat(weights, first) if len(first) else weights
        nothing = total == 0
        self._weights = np.where(nothing[self._of], 1, weights)
        self._total = np.where(nothing, count, total)
        self._several = count > 1

    def of(self, wholes: Wholes) -> Wholes:
        """Every whole shared out; its parts add up to it exactly. Wholes may be of any size."""
        parts: Wholes = wholes[self._of]
        remainder = np.zeros(len(parts), dtype=np.int64)
        many = np.flatnonzero(self._several[self._of])
        if len(many):
            parts[many], remainder[many] = self._long_division(many, parts[many])
            parts[self._largest(remainder, (wholes - np.add.reduceat(parts, self._first)).astype(np.int64))] += 1
        return parts

    def of_units(self, wholes: Ints) -> Ints:
        """The same, of wholes that fit 64 bits; quicker."""
        parts = wholes[self._of]
        remainder = np.zeros(len(parts), dtype=np.int64)
        quick = (np.abs(wholes) < QUICK_WHOLE) & (self._total < QUICK_TOTAL)
        for some, division in ((quick, self._division), (~quick, self._long_division)):
            many = np.flatnonzero((some & self._several)[self._of])
            if len(many):
                parts[many], remainder[many] = division(many, parts[many])
        if len(parts):
            parts[self._largest(remainder, wholes - np.add.reduceat(parts, self._first))] += 1
        return parts

    def _division(self, part: Ints, whole: Ints) -> tuple[Ints, Ints]:
        """Quotient, rounded down, and remainder of whole × weight ÷ total."""
        weight, total = self._weights[part], self._total[self._of[part]]
        about = np.floor(whole * (weight / total)).astype(np.int64)
        # Both products wrap around at 2⁶⁴; their difference is right all the same, because it is small.
        more, remainder = np.divmod(whole * weight - about * total, total)
        return about + more, remainder

    def _long_division(self, part: Ints, whole: Ints | Wholes) -> tuple[Ints | Wholes, Ints]:
        """The same in Python's integers, which have no limit."""
        total = self._total[self._of[part]].astype(object)
        product = whole.astype(object) * self._weights[part].astype(object)
        quotient = product // total
        return quotient, (product - quotient * total).astype(np.int64)

    def _largest(self, remainder: Ints, left: Ints) -> Ints:
        """Parts with the largest remainders of each whole, as many as are left of it; ties go to the first."""
        some = np.flatnonzero((left > 0)[self._of])
        of = self._of[some]
        order = np.lexsort((-remainder[some], of))
        place = np.arange(len(some)) - np.searchsorted(of, of)
        taken: Mask = place < left[of]
        return some[order[taken]]
