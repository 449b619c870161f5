"""Amounts are shared out without a remainder."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.exact_shares import ratios, split

AMOUNT = st.decimals(min_value=-(10**12), max_value=10**12, allow_nan=False, allow_infinity=False, places=9)
WEIGHT = st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False) | st.integers(0, 2**63)


def exact(parts: list[Decimal]) -> Fraction:
    """Their sum, which no context rounds."""
    return sum(map(Fraction, parts), Fraction(0))


@given(AMOUNT, st.lists(WEIGHT, min_size=1, max_size=12))
def test_any_split_adds_up_exactly(whole: Decimal, weights: list[Decimal | int]) -> None:
    parts = split(whole, weights)
    assert len(parts) == len(weights)
    assert exact(parts) == Fraction(whole)
    total = sum(map(Fraction, weights))
    for part, weight in zip(parts, weights, strict=True):
        share = Fraction(weight) / total if total else Fraction(1, len(weights))
        assert abs(Fraction(part) - Fraction(whole) * share) < Fraction(1, 10**18)


@given(st.lists(AMOUNT, min_size=1, max_size=12).filter(lambda amounts: sum(map(Fraction, amounts)) != 0))
def test_ratios_add_up_to_one_exactly(amounts: list[Decimal]) -> None:
    assert exact(ratios(amounts)) == 1


def test_the_largest_remainder_gets_the_last_decimal() -> None:
    third = Decimal("0.333333333333333333")
    assert ratios([Decimal(1)] * 3) == [third + Decimal("1E-18"), third, third]
    assert split(Decimal("0.03"), [1, 1, 1]) == [Decimal("0.01")] * 3
    assert split(Decimal(-10), [1, 3]) == [Decimal("-2.5"), Decimal("-7.5")]


def test_credits_have_the_ratios_of_charges() -> None:
    assert ratios([Decimal(-1), Decimal(-3)]) == ratios([Decimal(1), Decimal(3)]) == [Decimal("0.25"), Decimal("0.75")]


def test_nothing_is_shared_equally_and_what_cancels_out_not_at_all() -> None:
    assert ratios([Decimal(0), Decimal(0)]) == [Decimal("0.5"), Decimal("0.5")]
    with pytest.raises(ValueError, match="add up to 0"):
        ratios([Decimal(1), Decimal(-1)])
    with pytest.raises(ValueError, match="nothing to share among"):
        split(Decimal(1), [])
