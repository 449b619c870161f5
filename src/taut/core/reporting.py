"""What is worth reporting, and durations as sentences name them."""

from __future__ import annotations

LISTED_SHARE = 0.03
"""A loss below this share of the wall, or of what was paid for, is not listed."""


def spell(ns: float) -> str:
    """A duration in the unit a person would use."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.1f} {unit}" if abs(ns) < 100 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"
