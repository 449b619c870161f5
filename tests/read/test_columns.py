"""What surrounds a point, and tracks on which intervals do not overlap, against the plain way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.read.columns import Codes, containing, serialise

# Threads are seldom numbered densely, and a call may have none.
GROUPS = st.sampled_from([-1, 0, 3, 1 << 40])
TIMES = st.integers(0, 12)
INTERVALS = st.lists(st.tuples(GROUPS, TIMES, st.integers(0, 6)), max_size=8)
QUERIES = st.lists(st.tuples(GROUPS, TIMES), max_size=12)


def columns(rows: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return list(np.array(rows, dtype=np.int64).reshape(-1, width).T)


@given(INTERVALS, QUERIES)
def test_the_innermost_interval_around_a_point(intervals: list[tuple[int, int, int]], queries: list[tuple[int, int]]) -> None:
    """It begins last of those of its group that are not over; of equal beginnings the shorter, of equal ones the later."""
    group, start, length = columns(intervals, 3)
    expected = []
    for thread, at in queries:
        around = [i for i, (of, begin, lasts) in enumerate(intervals) if of == thread and begin <= at <= begin + lasts]
        expected.append(max(around, key=lambda i: (intervals[i][1], -intervals[i][2], i), default=-1))
    assert containing(group, start, start + length, *columns(queries, 2)).tolist() == expected


@given(st.lists(st.tuples(TIMES, st.integers(0, 6)), max_size=10))
def test_lanes_are_serial_and_the_lowest_free_one_is_taken(rows: list[tuple[int, int]]) -> None:
    start, length = (1_000_000 * column for column in columns(rows, 2))  # far from what counts as rounding
    lanes = Codes()
    lane, end, _ = serialise(np.full(len(rows), lanes["a"]), start, start + length, lanes)
    busy: dict[int, int] = {}
    names = list(lanes)
    for i in np.lexsort((end, start)).tolist():
        track = next(k for k in range(len(rows)) if busy.get(k, 0) <= start[i])
        assert names[lane[i]] == ("a" if track == 0 else f"a/{track}")
        busy[track] = int(end[i])
