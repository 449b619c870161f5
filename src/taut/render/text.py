"""Values as people read them: durations, shares, money, and names that cannot harm a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.core.json_text import UNSEEN

if TYPE_CHECKING:
    from decimal import Decimal

UNITS = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
"""Nanoseconds in each unit, largest first."""
UNKNOWN = "–"
"""What is not known."""

# Same width, so that a table stays a table.
_PLAIN = str.maketrans({"–": "-", "−": "-", "·": "|", "…": "~", "µ": "u", "×": "x", "≥": ">", "→": ">", "±": "~"})


def safe(text: object) -> str:
    """Text with everything that is not shown (escapes, controls, direction marks, tags, newlines) written as an escape."""
    string = str(text)
    if string.isprintable() and (string.isascii() or not UNSEEN.search(string)):
        return string
    return "".join(c if c.isprintable() and not UNSEEN.match(c) else c.encode("unicode_escape").decode() for c in string)


def plain(text: str) -> str:
    """The same text in ASCII, for a terminal that cannot show more."""
    return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()


def middle(text: str, width: int) -> str:
    """The text, its middle left out where it is longer: ids of jobs differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) * 2 // 3
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def three(value: float) -> str:
    """A number with three significant digits and no exponent."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f}"


def duration(ns: float | None) -> str:
    """Nanoseconds in the largest unit that gives at least one of it; hours and minutes from two on."""
    if ns is None:
        return UNKNOWN
    for unit_ns, unit in UNITS:
        least = 2 * unit_ns if unit in ("h", "min") else unit_ns
        if abs(ns) >= least * 0.9995:
            return f"{three(ns / unit_ns)} {unit}"
    return f"{ns:.0f} ns"


def size(count: int | None) -> str:
    """Bytes in decimal units; empty if not recorded."""
    if count is None:
        return ""
    for unit_bytes, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit_bytes * 0.9995:
            return f"{three(count / unit_bytes)} {unit}"
    return f"{count} B"


def percent(share: float | None) -> str:
    """A share 0–1 as a percentage; what is there but small is not shown as zero."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def money(amount: Decimal | str | None, currency: str | None) -> str:
    """An amount with its currency: cents, or two significant digits below one."""
    if amount is None:
        return UNKNOWN
    from decimal import Decimal  # here, because every line on stderr needs this file, and few need money

    value = Decimal(amount)
    decimals = 2 if value == 0 or abs(value) >= 1 else min(1 - value.adjusted(), 6)
    return f"{value:,.{decimals}f} {safe(currency or '')}".rstrip()


def span(first: int, last: int) -> str:
    """A range of steps: ``step 3`` or ``steps 3–9``."""
    return f"step {first}" if first == last else f"steps {first}–{last}"


def count(number: int, noun: str) -> str:
    """``1 rank``, ``4 ranks``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
