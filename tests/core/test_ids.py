"""Dense ids of columns, whatever their values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.core.ids import FEW_WORDS, dense, distinct, numbered, word_ids

values = st.sampled_from([-(2**63), -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1])


@given(st.lists(st.tuples(values, values, values), min_size=1, max_size=20))
def test_combinations_are_numbered_in_their_order(rows: list[tuple[int, int, int]]) -> None:
    ids, count = numbered(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))
    ordered = sorted(set(rows))
    assert (ids.tolist(), count) == ([ordered.index(row) for row in rows], len(ordered))


def test_keys_far_from_zero_in_front_of_others_fit() -> None:
    far = (1 << 61) - 9
    first, then = np.array([far, far + 1, far, far + 1]), np.array([7, 0, 0, 7])
    ids, count = numbered(first, then)
    assert (ids.tolist(), count) == ([1, 2, 0, 3], 4)


@given(st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(-5, 5)))
def test_distinct_values_and_which_of_them_each_row_holds(rows: list[int]) -> None:
    values = np.array(rows, dtype=np.int64)
    found, ids = dense(values)
    assert found.tolist() == distinct(values).tolist() == sorted(set(rows))
    assert found[ids].tolist() == rows


@given(st.lists(st.sampled_from(["", "a", "b", "ä"]), min_size=1, max_size=8))
def test_words_are_numbered_as_they_appear_few_or_many(few: list[str]) -> None:
    words = list(dict.fromkeys(word for word in few if word))
    ids = [words.index(word) if word else -1 for word in few]
    times = FEW_WORDS // len(few) + 1
    for again in (1, times):
        found = word_ids(np.array(few * again, dtype=np.object_))
        assert (found[0].tolist(), found[1]) == (ids * again, words)
