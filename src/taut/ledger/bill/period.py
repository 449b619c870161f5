"""The time that a bill is of: a month, a day, or from one day to another, in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from taut.core.errors import UsageError

DAY_NS = 86_400_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?", re.ASCII)


Period: TypeAlias = tuple[int, int]
"""First moment and the moment behind the last, ns since 1970, UTC."""


def period_of(text: str) -> Period:
    """``2026-10``, ``2026-10-05``, ``2026-10-01/2026-10-15`` (the last day is not in it). Raises UsageError."""
    first, slash, last = text.partition("/")
    begin, end = _span(first, text)
    if slash:
        end = _span(last, text)[0]
    if end <= begin:
        raise UsageError(f"--period {text}: ends before it begins; write it like 2026-10-01/2026-10-15")
    return _ns(begin), _ns(end)


def _span(part: str, text: str) -> tuple[datetime, datetime]:
    """First moment of a day or a month, and the one behind its last."""
    found = _ONE.fullmatch(part.strip())
    try:
        if not found:
            raise ValueError
        year, month, day = int(found[1]), int(found[2]), int(found[3] or 1)
        begin = datetime(year, month, day, tzinfo=UTC)
        if found[3]:
            return begin, begin + timedelta(days=1)
        return begin, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--period {text}: no period; write 2026-10, 2026-10-05 or 2026-10-01/2026-10-15") from None


def _ns(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


def date_text(ns: int) -> str:
    """A moment as JSON has it."""
    seconds, rest = divmod(ns, 1_000_000_000)
    text = f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"


def day_text(day: int) -> str:
    """Days since 1970 as a date."""
    return f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"


MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def period_words(period: Period) -> str:
    """A period as a sentence names it: ``October 2026``, ``2026-10-05``, ``2026-10-01 to 2026-10-14``."""
    begin, end = (_EPOCH + timedelta(microseconds=ns // 1000) for ns in period)
    last = end - timedelta(microseconds=1)
    month = datetime(begin.year, begin.month, 1, tzinfo=UTC)
    if begin == month and end == datetime(begin.year + begin.month // 12, begin.month % 12 + 1, 1, tzinfo=UTC):
        return f"{MONTHS[begin.month - 1]} {begin.year}"
    first, until = f"{begin:%Y-%m-%d}", f"{last:%Y-%m-%d}"
    return first if first == until else f"{first} to {until}"
