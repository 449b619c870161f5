"""Sets of time against sets of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.core.spans import Spans, union

SOME = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=12)


def spans(pairs: list[tuple[int, int]]) -> Spans:
    start = np.array([s for s, _ in pairs], dtype=np.int64)
    return union(start, start + np.array([n for _, n in pairs], dtype=np.int64))


def moments(found: Spans) -> set[int]:
    return {t for s, e in zip(found.start.tolist(), found.end.tolist(), strict=True) for t in range(s, e)}


@given(SOME, SOME)
def test_sets_of_time_behave_like_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    a, b = spans(one), spans(other)
    assert moments(a) == {t for s, n in one for t in range(s, s + n)}
    for found, expected in (
        (a & b, moments(a) & moments(b)),
        (a | b, moments(a) | moments(b)),
        (a - b, moments(a) - moments(b)),
    ):
        assert moments(found) == expected
        assert found.ns == len(expected)
        assert (found.start[1:] > found.end[:-1]).all(), "none touches the next"
