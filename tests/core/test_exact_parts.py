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
from taut.core.exact_shares import Shares

MONEY = st.decimals(min_value=-(10**15), max_value=10**15, allow_nan=False, allow_infinity=False, places=18)
GROUPS = st.lists(st.tuples(MONEY, st.lists(st.integers(0, 2**58), min_size=1, max_size=6)), max_size=6)


@given(GROUPS)
def test_parts_are_those_of_one_whole_alone_and_add_up(groups: list[tuple[Decimal, list[int]]]) -> None:
    weights = np.array([one for _, some in groups for one in some], dtype=np.int64)
    first = np.cumsum([0, *(len(some) for _, some in groups)])[:-1].astype(np.int64)
    wholes, _ = units_of(pa.array([whole for whole, _ in groups], pa.decimal128(38, 18)))
    alone = [Fraction(part) for whole, some in groups for part in Shares(some).of(whole)]
    assert [Fraction(part, ONE) for part in ManyShares(weights, first).of(wholes)] == alone


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
