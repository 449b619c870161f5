"""Amounts shared out without a remainder: the largest remainders get the last decimals, ties the first in order."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation

PLACES = 18
"""Decimals of a ratio, and of an amount unless its whole has more."""
# Wide enough for any amount; a longer one is refused, never rounded.
_EXACT = Context(prec=1000, Emax=10**6, Emin=-(10**6), traps=[Inexact, InvalidOperation])


class Shares:
    """Weights by which wholes are shared out. Raises ValueError for none, and for weights that cancel each other out.

    Weights that are all 0 count as equal.
    """

    def __init__(self, weights: Sequence[Decimal | int]) -> None:
        if not weights:
            raise ValueError("nothing to share among")
        numbers = [Decimal(one) for one in weights]
        places = max(0, max(-_last(one) for one in numbers))
        parts = [_units(one, places) for one in numbers]
        total = sum(parts)
        if not total and any(parts):
            raise ValueError("weights that add up to 0 have no shares")
        if not total:
            parts, total = [1] * len(parts), len(parts)
        self._parts, self._total = ([-one for one in parts], -total) if total < 0 else (parts, total)

    def of(self, whole: Decimal) -> list[Decimal]:
        """A whole shared out; the parts add up to it exactly."""
        places = max(PLACES, -_last(whole))
        units = _units(whole, places)
        parts = [divmod(units * one, self._total) for one in self._parts]
        left = units - sum(part for part, _ in parts)
        lucky = set(sorted(range(len(parts)), key=lambda i: (-parts[i][1], i))[:left])
        return [Decimal(part + (i in lucky)).scaleb(-places, _EXACT) for i, (part, _) in enumerate(parts)]


def ratios(amounts: Sequence[Decimal]) -> list[Decimal]:
    """What share of their sum each of some amounts is, with 18 decimals; the shares add up to exactly 1.

    Amounts that are all 0 have equal shares. Raises ValueError where amounts that are not all 0 add up to 0: no share of
    nothing is anything.
    """
    return Shares(amounts).of(Decimal(1))


def split(whole: Decimal, weights: Sequence[Decimal | int]) -> list[Decimal]:
    """A whole shared out by weights; the parts add up to it exactly. Raises ValueError like ``Shares``."""
    return Shares(weights).of(whole)


def _last(number: Decimal) -> int:
    """The power of ten of a number's last digit."""
    found = number.as_tuple().exponent
    if not isinstance(found, int):
        raise ValueError(f"{number} is no amount")
    return found


def _units(number: Decimal, places: int) -> int:
    """How many of the last decimal a number is."""
    try:
        return int(number.scaleb(places, _EXACT))
    except (Inexact, InvalidOperation):
        raise ValueError(f"an amount of more than {_EXACT.prec} digits") from None
