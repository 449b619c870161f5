"""Sets of time: sorted intervals that do not touch, as two arrays, and what is common to two such sets."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints


class Spans(Struct, frozen=True):
    """Intervals in order of time, none of which overlaps or touches the next."""

    start: Ints
    end: Ints

    @property
    def ns(self) -> int:
        """Their length together."""
        return int((self.end - self.start).sum())

    def __and__(self, other: Spans) -> Spans:
        """The time that is in both."""
        return _where_deep(self, other, 2)

    def __or__(self, other: Spans) -> Spans:
        """The time that is in either."""
        return union(np.concatenate([self.start, other.start]), np.concatenate([self.end, other.end]))

    def __sub__(self, other: Spans) -> Spans:
        """The time that is in this one and not in the other."""
        if not len(self.start) or not len(other.start):
            return self
        low, high = min(self.start[0], other.start[0]), max(self.end[-1], other.end[-1])
        outside = Spans(np.concatenate([[low], other.end]), np.concatenate([other.start, [high]]))
        return self & outside


def union(start: Ints, end: Ints) -> Spans:
    """All time under any of some intervals."""
    some = end > start
    start, end = start[some], end[some]
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    new = np.concatenate([[True], start[1:] > end[:-1]])
    return Spans(start[new], end[np.concatenate([new[1:], [True]])])


def _where_deep(one: Spans, other: Spans, depth: int) -> Spans:
    """Where so many of two sets overlap."""
    at = np.concatenate([one.start, other.start, one.end, other.end])
    turn = np.repeat([1, -1], len(at) // 2)
    order = np.lexsort((-turn, at))  # what begins where another ends comes first, and leaves nothing between
    at, deep = at[order], np.cumsum(turn[order])
    inside = np.flatnonzero(deep[:-1] >= depth) if len(at) else np.zeros(0, dtype=np.int64)
    return union(at[inside], at[inside + 1]) if len(inside) else Spans(at[:0], at[:0])
