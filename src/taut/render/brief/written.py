"""Estimates as a briefing writes them: ``28 % (24–33)``. An interval that says no more than its value is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from taut.render.text import UNKNOWN, safe, three
from taut.result.types import Estimate

_Digits: TypeAlias = Callable[[float], str]


def share(estimate: Estimate | None) -> str:
    """A share 0–1 in percent, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 100, " %", _percent)


def times(estimate: Estimate | None) -> str:
    """A factor, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, " ×", three)


def plain(estimate: Estimate | None, unit: str = "") -> str:
    """A number in some unit, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, f" {unit}" if unit else "", three)


def worth(estimate: Estimate | None, currency: str | None) -> str:
    """Money, with its interval."""
    return UNKNOWN if estimate is None else _with_ends(estimate, 1, f" {safe(currency or '')}".rstrip(), cash)


def cash(value: float) -> str:
    """An amount: whole from a hundred on, cents below, two digits that count below one."""
    if abs(value) >= 99.5:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 0.995 or value == 0 else f"{value:.2g}"


def _percent(value: float) -> str:
    return f"{value:,.1f}".replace("-", "−")


def _with_ends(estimate: Estimate, scale: float, unit: str, digits: _Digits) -> str:
    value, low, high = (None if one is None else digits(scale * one) for one in (estimate.value, estimate.lo, estimate.hi))
    if low is None or low == value == high:
        return f"{value}{unit}"
    if high is None:
        return f"{value}{unit} (at least {low})"
    if scale == 100 and value == high == digits(100):  # all, or nothing: the other end alone says something
        return f"at least {low}{unit}"
    if scale == 100 and value == low == digits(0):
        return f"at most {high}{unit}"
    return f"{value}{unit} ({low}{' to ' if low.startswith(('-', '−')) else '–'}{high})"
