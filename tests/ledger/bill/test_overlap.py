"""Intervals of hosts against each other, beside the plain way of asking every pair."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.ledger.bill.overlap import Spans, merged, pairs, uncovered

SPAN = st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 40)).map(lambda s: (s[0], s[1], s[1] + s[2]))


def spans(rows: list[tuple[int, int, int]]) -> Spans:
    return Spans(*(np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)))


def moments(rows: Spans) -> set[tuple[int, int]]:
    """Every host and unit of time that is covered."""
    return {
        (h, t) for h, s, e in zip(rows.host.tolist(), rows.start.tolist(), rows.end.tolist(), strict=True) for t in range(s, e)
    }


@given(st.lists(SPAN, max_size=12), st.lists(SPAN, max_size=12))
def test_pairs_are_all_that_share_a_host_and_time(one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]) -> None:
    left, right = pairs(spans(one), spans(other))
    expected = [(i, j) for i, a in enumerate(one) for j, b in enumerate(other) if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]]
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == expected
    assert (np.diff(left) >= 0).all()


@given(st.lists(SPAN, max_size=12))
def test_merged_covers_the_same_once(rows: list[tuple[int, int, int]]) -> None:
    found = merged(spans(rows))
    assert moments(found) == moments(spans(rows))
    assert int(found.length.sum()) == len(moments(found))


@given(st.lists(SPAN, max_size=12), st.integers(0, 40), st.integers(1, 60))
def test_what_is_left_open_is_the_rest_of_the_period(rows: list[tuple[int, int, int]], start: int, long: int) -> None:
    hosts = np.arange(3)
    period = {(h, t) for h in range(3) for t in range(start, start + long)}
    found = uncovered(hosts, merged(spans(rows)), start, start + long)
    assert moments(found) == period - moments(spans(rows))
