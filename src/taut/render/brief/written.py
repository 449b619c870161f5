"""Estimates as a briefing writes them: ``28 % (24–33)``. An interval that says no more than its value is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from taut.render.text import UNKNOWN, safe, three
from taut.result.types import Estimate, Unit

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
    if scale == 100 and value == high == digits(100):  # all, or nothing: the other end alone says something
        return f"at least {low}{unit}"
    if scale == 100 and value == low == digits(0):
        return f"at most {high}{unit}"
    apart = " to " if "−" in low or low.startswith("-") else "–"
    return f"{value}{unit} ({low}{apart}{high})"
