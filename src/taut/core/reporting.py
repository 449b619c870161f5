"""What is worth reporting, and durations and dates as sentences name them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

LISTED_SHARE = 0.03
"""A loss below this share of the wall, or of what was paid for, is not listed."""
STUCK_TOLD = 2
"""Stuck jobs in a verdict; the others are counted."""
FIRST_DATE_NS = 631_152_000_000_000_000
"""1990: earlier times are those of a log that counts from its own begin, or names no year."""


def spell(ns: float) -> str:
    """A duration in the unit a person would use."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.1f} {unit}" if abs(ns) < 100 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def dated(ns: int | None) -> str:
    """A time as a sentence names it: ``2026-01-01 09:00:00 UTC``; empty for one that is not known, or is no date."""
    if ns is None or ns < FIRST_DATE_NS:
        return ""
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 10**9):%Y-%m-%d %H:%M:%S} UTC"


def stuck_text(sentences: Sequence[str]) -> str:
    """The first of the sentences on stuck jobs, and how many more there are; empty if there are none."""
    more = len(sentences) - STUCK_TOLD
    rest = f"{more:,} more {'job is' if more == 1 else 'jobs are'} stuck." if more > 0 else ""
    return " ".join(filter(None, (*sentences[:STUCK_TOLD], rest)))
