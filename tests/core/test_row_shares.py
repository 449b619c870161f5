"""Shares of rows and groups, and work that is done meanwhile."""

from __future__ import annotations

import threading
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core import ids, row_shares, scratch
from taut.core.row_shares import is_shared, meanwhile, over_groups, over_rows

cuts = st.tuples(st.integers(1, 3), st.integers(1, 9))


@given(cut=cuts, count=st.integers(0, 40))
def test_shares_are_all_rows_once_in_their_order(cut: tuple[int, int], count: int) -> None:
    with row_shares.side_by_side(*cut):
        shares = over_rows(lambda share: list(range(share.start, share.stop)), count)
    assert list(chain(*shares)) == list(range(count))
    assert all(len(share) <= cut[1] for share in shares)


@given(cut=cuts, sizes=st.lists(st.integers(0, 12), max_size=12))
def test_shares_of_groups_are_all_groups_once_in_their_order(cut: tuple[int, int], sizes: list[int]) -> None:
    begin = np.cumsum([0, *sizes])
    with row_shares.side_by_side(*cut):
        shares = over_groups(lambda share: list(range(share.start, share.stop)), begin)
    assert list(chain(*shares)) == list(range(len(sizes)))


def test_without_a_team_all_rows_are_one_share_of_this_thread() -> None:
    here = threading.get_ident()
    assert over_rows(lambda share: (share, threading.get_ident()), 10**9) == [(slice(0, 10**9), here)]
    assert meanwhile(threading.get_ident)() == here
    with row_shares.side_by_side(1):
        assert not is_shared()


def test_shares_are_as_many_as_threads_and_worth_one() -> None:
    least = row_shares.LEAST_ROWS
    with row_shares.side_by_side(4):
        assert is_shared()
        assert len(over_rows(lambda share: share, 8 * least)) == 4
        assert len(over_rows(lambda share: share, 2 * least)) == 2
        assert len(over_rows(lambda share: share, least)) == 1
    assert not is_shared()


def test_who_works_on_a_share_hands_on_none() -> None:
    with row_shares.side_by_side(2, rows=1):
        inner = over_rows(lambda _: over_rows(lambda share: share, 5), 8)
        assert inner == [[slice(0, 5)]] * 8
        others = [meanwhile(lambda: meanwhile(lambda: over_rows(lambda share: share.start, 3))()) for _ in range(8)]
        assert [told() for told in others] == [[0, 1, 2]] * 8


def test_what_fails_in_a_share_or_meanwhile_fails_here() -> None:
    def fail(*_: slice) -> None:
        raise ValueError("a share")

    with row_shares.side_by_side(2, rows=1):
        with pytest.raises(ValueError, match="a share"):
            over_rows(fail, 3)
        told = meanwhile(fail)
        with pytest.raises(ValueError, match="a share"):
            told()


def test_nothing_is_done_meanwhile_where_memory_is_short() -> None:
    with row_shares.side_by_side(2), scratch.columns_on_disk():
        assert meanwhile(threading.get_ident)() == threading.get_ident()


@given(cut=cuts, seed=st.integers(0, 1000), wide=st.sampled_from([1, 3, 40, 5000]))
def test_ids_orders_and_rows_are_the_same_in_any_shares(cut: tuple[int, int], seed: int, wide: int) -> None:
    rng = np.random.default_rng(seed)
    key, other = rng.integers(-wide, wide, 60), rng.integers(0, 3, 60).astype(np.int32)
    start = rng.integers(0, 5, 60)

    def told() -> list[object]:
        codes, count = ids.coded(key, other)
        order, begin = ids.in_groups(other, 3, start, key)
        found = (codes, ids.numbered(key, other)[0], order, begin, ids.taken(key, order), ids.taken(key[::-1], order))
        return [count, *(one.tolist() for one in found)]

    alone = told()
    with row_shares.side_by_side(*cut):
        assert told() == alone


def test_who_asks_for_shares_waits_for_nobody_who_waits_for_it() -> None:
    held, asked = threading.Lock(), threading.Event()

    def needs_lock(_: slice) -> None:
        asked.wait(10)
        with held:
            pass

    def holds_lock() -> int:
        with held:
            asked.set()
            return sum(over_rows(lambda share: share.stop - share.start, 6))

    with row_shares.side_by_side(2, rows=1):
        told = meanwhile(holds_lock)
        over_rows(needs_lock, 4)
        assert told() == 6
