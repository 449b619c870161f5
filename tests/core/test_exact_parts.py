"""Many wholes shared out at once: the same parts as one by one."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.decimal_units import ONE, decimals_of, texts_of, units_of
from taut.core.exact_parts import ManyShares

MONEY = st.decimals(min_value=-(10**15), max_value=10**15, allow_nan=False, allow_infinity=False, places=18)
GROUPS = st.lists(st.tuples(MONEY, st.lists(st.integers(0, 2**58), min_size=1, max_size=6)), max_size=6)


def shared_out(whole: Decimal, weights: list[int]) -> list[Fraction]:
    """Parts of one whole in exact fractions: rounded down to 18 decimals, the largest remainders get what is left."""
    known = weights if any(weights) else [1] * len(weights)
    units = int(Fraction(whole) * ONE)
    parts = [divmod(units * weight, sum(known)) for weight in known]
    left = units - sum(part for part, _ in parts)
    last = sorted(range(len(parts)), key=lambda i: (-parts[i][1], i))[:left]
    return [Fraction(part + (i in last), ONE) for i, (part, _) in enumerate(parts)]


@given(GROUPS)
def test_parts_are_those_of_one_whole_alone_and_add_up(groups: list[tuple[Decimal, list[int]]]) -> None:
    weights = np.array([one for _, some in groups for one in some], dtype=np.int64)
    first = np.cumsum([0, *(len(some) for _, some in groups)])[:-1].astype(np.int64)
    wholes, _ = units_of(pa.array([whole for whole, _ in groups], pa.decimal128(38, 18)))
    alone = [part for whole, some in groups for part in shared_out(whole, some)]
    assert [Fraction(part, ONE) for part in ManyShares(weights, first).of(wholes)] == alone


UNITS = st.integers(-(2**62), 2**62) | st.integers(-(2**49), 2**49)


@given(st.lists(st.tuples(UNITS, st.lists(st.integers(0, 2**58) | st.integers(0, 9), min_size=1, max_size=6)), max_size=6))
def test_wholes_of_64_bits_have_the_same_parts(groups: list[tuple[int, list[int]]]) -> None:
    weights = np.array([one for _, some in groups for one in some], dtype=np.int64)
    first = np.cumsum([0, *(len(some) for _, some in groups)])[:-1].astype(np.int64)
    wholes = np.array([whole for whole, _ in groups], dtype=np.int64)
    shares = ManyShares(weights, first)
    assert shares.of_units(wholes).tolist() == shares.of(wholes.astype(object)).tolist()


@given(st.lists(st.tuples(st.integers(-(2**61), 2**61), st.lists(st.integers(0, 2**55), min_size=1, max_size=6)), max_size=5))
def test_parts_add_up_to_their_whole_and_lie_on_its_side(wholes: list[tuple[int, list[int]]]) -> None:
    weights = np.array([one for _, parts in wholes for one in parts], dtype=np.int64)
    sizes = np.array([len(parts) for _, parts in wholes], dtype=np.int64)
    first = np.cumsum(sizes) - sizes
    found = ManyShares(weights, first).of_units(np.array([whole for whole, _ in wholes], dtype=np.int64))
    for (whole, parts), begin in zip(wholes, first.tolist(), strict=True):
        mine = found[begin : begin + len(parts)]
        assert mine.sum() == whole
        assert (np.sign(mine) * np.sign(whole) >= 0).all()
        total = sum(parts)
        if total and abs(whole) < 2**50:
            assert all(abs(one * total - whole * part) < total for one, part in zip(mine.tolist(), parts, strict=True))


def test_weights_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="weights are from 0"):
        ManyShares(np.array([2, -1]), np.array([0]))


@given(st.lists(st.none() | MONEY))
def test_units_are_the_column_and_texts_mean_it(cells: list[Decimal | None]) -> None:
    column = pa.array([None, *cells], pa.decimal128(38, 18))[1:]  # an array that does not begin where its memory does
    units, missing = units_of(column)
    assert decimals_of(units, missing).to_pylist() == column.to_pylist()
    texts = texts_of(column).to_pylist()
    assert [None if text is None else Decimal(text) for text in texts] == cells
    assert all("E" not in text and not (("." in text) and text.endswith(("0", "."))) for text in texts if text is not None)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0", "0"), ("-0.5", "-0.5"), ("100", "100"), ("1E-18", "0." + "0" * 17 + "1"), ("-12E18", "-12" + "0" * 18)],
)
def test_texts_have_no_exponent(amount: str, text: str) -> None:
    assert texts_of(pa.array([Decimal(amount)], pa.decimal128(38, 18))).to_pylist() == [text]
