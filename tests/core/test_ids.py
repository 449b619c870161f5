"""Dense ids of columns, whatever their values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_calls import in_machine_code
from taut.core.group_kernels import dense_ids
from taut.core.ids import FEW_WORDS, coded, dense, distinct, greatest, least, numbered, sums, word_ids

values = st.sampled_from([-(2**63), -(2**62), -1, 0, 1, 2**31, 2**62, 2**63 - 1])


@given(st.lists(st.tuples(values, values, values), min_size=1, max_size=20))
def test_combinations_are_numbered_in_their_order(rows: list[tuple[int, int, int]]) -> None:
    ids, count = numbered(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))
    ordered = sorted(set(rows))
    assert (ids.tolist(), count) == ([ordered.index(row) for row in rows], len(ordered))


@given(st.lists(st.tuples(values, st.integers(-3, 3), st.booleans()), min_size=1, max_size=20))
def test_codes_are_the_same_numbers_in_32_bits(rows: list[tuple[int, int, bool]]) -> None:
    first, then, last = zip(*rows, strict=True)
    keys = np.array(first, dtype=np.int64), np.array(then, dtype=np.int32), np.array(last, dtype=np.bool_)
    codes, count = coded(*keys)
    assert codes.dtype == np.int32
    assert (codes.tolist(), count) == (numbered(*keys)[0].tolist(), numbered(*keys)[1])


def test_extremes_and_sums_of_each_id() -> None:
    ids, some = np.array([2, 0, 2], dtype=np.int32), np.array([-5, 2**62, 2**61])
    limits = np.iinfo(np.int64)
    assert least(ids, 4, some).tolist() == [2**62, limits.max, -5, limits.max]
    assert greatest(ids, 4, some).tolist() == [2**62, limits.min, 2**61, limits.min]
    assert sums(ids, some, 4).tolist() == [2**62, 0, 2**61 - 5, 0]
    with pytest.raises(IndexError):
        sums(ids, some, 2)


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


def test_dense_ids_by_bits_are_those_of_a_table() -> None:
    packed = np.random.default_rng(5).integers(0, 3000, 500)
    for values in (packed, packed.astype(np.int32), np.arange(64), np.array([31, 32, 63, 64, 0])):
        span = int(values.max()) + 1
        (compiled, count), (plain, distinct_values) = in_machine_code(dense_ids, values, span), dense_ids.plain(values, span)
        assert (compiled.tolist(), count) == (plain.tolist(), distinct_values)
        assert plain.tolist() == np.unique(values, return_inverse=True)[1].tolist()
