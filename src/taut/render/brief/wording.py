"""Figures of a briefing as text: intervals, units, money."""

from __future__ import annotations

from decimal import Decimal

from taut.render.text import percent
from taut.result.types import Estimate

UNKNOWN = "not measured"


def shown(value: Estimate | None, unit: str | None = "share", currency: str | None = None) -> str:
    """A number with its interval and unit: ``28 % (24–33)``."""
    if value is None:
        return UNKNOWN
    return _with_interval(value, unit, currency)


def _with_interval(value: Estimate, unit: str | None, currency: str | None) -> str:
    times = 100 if unit == "share" else 1
    numbers = [None if one is None else times * float(one) for one in (value.value, value.lo, value.hi)]
    digits = _digits(numbers, unit)
    middle, lo, hi = (None if one is None else f"{one:,.{digits}f}" for one in numbers)
    ends = "" if lo is None and hi is None else f" ({lo or '?'}–{hi or 'no limit'})"
    mark = {"share": " %", "times": " ×", "ranks": " ranks", "ms": " ms", "attempts": " attempts"}.get(unit or "", "")
    sign = f" {currency}" if unit == "money" and currency else ""
    return f"{middle}{mark}{sign}{ends}"


def _digits(numbers: list[float | None], unit: str | None) -> int:
    """As many decimals as tell the ends of the interval apart, at most two."""
    if unit == "ranks":
        return 0
    known = [one for one in numbers if one is not None]
    largest = max(map(abs, known), default=0.0)
    return 0 if largest >= 100 else 1 if largest >= 10 else 2


def share(value: float | None) -> str:
    """A share, 0–1, as people say it."""
    return UNKNOWN if value is None else percent(value)


def amount(value: Decimal | float | str | None, currency: str | None) -> str:
    """Money as page one says it: whole units from 100 on, two digits that matter below."""
    if value is None or currency is None:
        return "not priced"
    number = Decimal(str(value))
    if abs(number) >= 100:
        return f"{number:,.0f} {currency}"
    return f"{number:,.2f} {currency}" if abs(number) >= 1 else f"{number:.2g} {currency}"
