"""Amounts shared out without a remainder: the largest remainders get the last decimals, ties the first in order."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

PLACES = 18
"""Decimals of a ratio, and of an amount unless its whole has more."""


def ratios(amounts: Sequence[Decimal]) -> list[Decimal]:
    """What share of their sum each of some amounts is, with 18 decimals; the shares add up to exactly 1.

    Amounts that are all 0 have equal shares. Raises ValueError where amounts that are not all 0 add up to 0: no share of
    nothing is anything.
    """
    return split(Decimal(1), amounts)


def split(whole: Decimal, weights: Sequence[Decimal | int]) -> list[Decimal]:
    """A whole shared out by weights; the parts add up to it exactly. Raises ValueError like ``ratios``, or for no weight."""
    if not weights:
        raise ValueError("nothing to share among")
    places = max(PLACES, -exponent(whole))
    units = _whole(whole, places)
    shares = _wholes(weights)
    total = sum(shares)
    if not total:
        if any(shares):
            raise ValueError("weights that add up to 0 have no shares")
        shares, total = [1] * len(shares), len(shares)
    if total < 0:
        shares, total = [-one for one in shares], -total
    parts = [divmod(units * one, total) for one in shares]
    left = units - sum(part for part, _ in parts)
    lucky = set(sorted(range(len(parts)), key=lambda i: (-parts[i][1], i))[:left])
    return [_decimal(part + (i in lucky), places) for i, (part, _) in enumerate(parts)]


def exponent(number: Decimal) -> int:
    """The power of ten of a number's last digit."""
    found = number.as_tuple().exponent
    if not isinstance(found, int):
        raise ValueError(f"{number} is no amount")
    return found


def _wholes(weights: Sequence[Decimal | int]) -> list[int]:
    """Weights as whole numbers of the same proportions."""
    numbers = [Decimal(one) for one in weights]
    places = max(0, *(-exponent(one) for one in numbers))
    return [_whole(one, places) for one in numbers]


def _whole(number: Decimal, places: int) -> int:
    sign, digits, power = number.as_tuple()
    found: int = int("".join(map(str, digits))) * 10 ** (int(power) + places)
    return -found if sign else found


def _decimal(units: int, places: int) -> Decimal:
    """A number of units of the last decimal, exactly; the context's precision does not matter."""
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -places))
