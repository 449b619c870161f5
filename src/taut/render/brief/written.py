"""Estimates as a briefing writes them: ``28 % (24–33)``. An interval that says no more than its value is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from math import floor, log10
from typing import Literal, TypeAlias

from taut.render.text import UNKNOWN, safe, three
from taut.result.types import Estimate, Unit

LENGTHS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"))
SURE = 0.9995
"""Confidence from which it is written as more than 99.9 %."""
_Digits: TypeAlias = Callable[[float], str]


def share(estimate: Estimate | None) -> str:
    """A share 0–1 in percent, with its interval."""
    if estimate is None:
        return UNKNOWN
    if estimate.lo is not None and estimate.hi is not None and estimate.lo <= 0.0005 and estimate.hi >= 0.9995:
        return "not decided: 0–100 %"
    return _with_ends(estimate, 100, " %", _percent)


def times(estimate: Estimate | None) -> str:
    """A factor, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, " ×", three)


def plain(estimate: Estimate | None, unit: str = "") -> str:
    """A number in some unit, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, f" {unit}" if unit else "", three)


def worth(estimate: Estimate | None, currency: str | None) -> str:
    """Money, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, f" {safe(currency or '')}".rstrip(), cash)


def possible(estimate: Estimate, unit: Literal["share", "money"]) -> str:
    """What something may bring back that is only known to be lost: from nothing to all of it."""
    most = estimate.value if estimate.hi is None else estimate.hi
    return f"0 to {percent(most) if unit == 'share' else cash(most)}"


def sure(confidence: float) -> str:
    """One minus a chance; nobody is sure by more digits than people read."""
    return "over 99.9 %" if confidence >= SURE else percent(confidence)


def amounts(values: Sequence[str | Decimal | float | None]) -> list[str]:
    """Amounts of one column, all with the same digits behind the point: three that count of the smallest shown, at most."""
    known = [abs(float(value)) for value in values if value is not None and float(value)]
    largest = max(known, default=0.0)
    if largest >= 99.5 or not known:
        return [UNKNOWN if value is None else cash(float(value)) for value in values]
    digits = 2 if largest >= 0.995 else min(2 - floor(log10(largest)), 9)
    return [UNKNOWN if value is None else f"{float(value):,.{digits}f}" for value in values]


def times_of(values: Sequence[int | None]) -> list[str]:
    """Lengths of time of one column, ns, in one unit."""
    least = min((abs(value) for value in values if value), default=0)
    unit_ns, unit = next(((ns, name) for ns, name in LENGTHS if least >= ns), LENGTHS[-1])
    return [UNKNOWN if value is None else f"{value / unit_ns:,.1f} {unit}" for value in values]


def answered(estimate: Estimate | None, unit: Unit | None, currency: str | None = None) -> str:
    """The answer to a question, in the unit that it has."""
    if unit == "share":
        return share(estimate)
    if unit == "times":
        return times(estimate)
    if unit == "money":
        return worth(estimate, currency)
    digits: _Digits = "{:,.0f}".format if unit in ("ranks", "controllers") else three
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, f" {unit}", digits)


def percent(value: float | None) -> str:
    """A share 0–1 in percent, without more digits than people read."""
    if value is None:
        return UNKNOWN
    return "<0.1 %" if 0 < value < 0.0005 else f"{_percent(100 * value)} %"


def cash(value: float) -> str:
    """An amount: three digits of a large one, whole from a hundred on, cents below, two digits that count below one."""
    if abs(value) >= 99_950:  # three digits: nobody knows more
        digits = len(f"{abs(value):.0f}") - 3
        return f"{round(value, -digits):,.0f}"
    if abs(value) >= 99.5:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 0.995 or value == 0 else f"{value:.2g}"


def _percent(value: float) -> str:
    """Digits of a percentage: one behind the point below ten, and close to a hundred, where it tells something."""
    fine = abs(value) < 9.95 or 99 < abs(value) < 100
    text = f"{value:.1f}" if fine else f"{value:,.0f}"
    return text.removesuffix(".0").replace("-", "−")


def _with_ends(estimate: Estimate, scale: float, unit: str, digits: _Digits) -> str:
    value = digits(scale * estimate.value)
    if estimate.lo is None:
        return f"{value}{unit}"
    low = digits(scale * estimate.lo)
    if estimate.hi is None:
        return f"at least {value}{unit}" if low == value else f"{value}{unit} (at least {low})"
    high = digits(scale * estimate.hi)
    if low == value == high:
        return f"{value}{unit}"
    if value == high and low == digits(0.0):  # a bound, and no interval around anything
        return f"at most {high}{unit}"
    if scale == 100 and value == high == digits(100):  # all, or nothing: the other end alone says something
        return f"at least {low}{unit}"
    if scale == 100 and value == low == digits(0):
        return f"at most {high}{unit}"
    apart = " to " if "−" in low or low.startswith("-") else "–"
    return f"{value}{unit} ({low}{apart}{high})"
