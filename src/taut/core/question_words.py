"""What a what-if is asked with, in words: what is set to its reference, scaled or delayed. Nonsense is refused in a line."""

from __future__ import annotations

from typing import TypeAlias

FIX_KEYS = ("rank", "stage", "dp_rank", "class", "link", "gate")
SCALE_KEYS = ("work", "bandwidth", "gaps")
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e3
"""Of what is scaled as a whole."""
HIGHEST = (1 << 63) - 1
"""The largest whole number that tables hold: of seeds, ranks and steps."""
LONGEST_DELAY_MS = 1e9
"""Twelve days: far more, and times in nanoseconds overflow."""

Delay: TypeAlias = tuple[int, int, int, int | None]
"""Rank, step, nanoseconds, and the op where one is given."""


def fix_words(value: str) -> tuple[str, str]:
    """``rank=3`` → key and label."""
    key, equals, label = value.partition("=")
    if not equals or not label or key not in FIX_KEYS:
        raise ValueError(f"{value!r}: give KEY=VALUE with KEY one of {', '.join(FIX_KEYS)}")
    return key, label


def factor_words(value: str) -> tuple[str, float]:
    """``work=0.9`` → what is scaled, and its factor."""
    key, _, said = value.partition("=")
    if key not in SCALE_KEYS:
        raise ValueError(f"{value!r}: give KEY=FACTOR with KEY one of {', '.join(SCALE_KEYS)}")
    try:
        factor = float(said)
    except ValueError:
        raise ValueError(f"{value!r}: {said!r} is no number") from None
    if not (LEAST_FACTOR <= factor <= MOST_FACTOR or (key == "gaps" and factor == 0)):  # nan neither
        or_none = ", or 0 for none" if key == "gaps" else ""
        raise ValueError(f"{value!r}: give a factor from {LEAST_FACTOR:g} to {MOST_FACTOR:g}{or_none}")
    return key, factor


def delay_words(value: str) -> Delay:
    """``rank=3,step=10,ms=40`` → rank, step and nanoseconds; ``op=N`` behind it names the op."""
    pairs = [part.partition("=")[::2] for part in value.split(",", 4)]
    found = dict(pairs)
    try:
        if sorted(key for key, _ in pairs if key != "op") != ["ms", "rank", "step"] or len(found) < len(pairs):
            raise ValueError
        rank, step, ms = int(found["rank"]), int(found["step"]), float(found["ms"])
        op = int(found["op"]) if "op" in found else None
    except ValueError:
        raise ValueError(f"{value!r}: write it like rank=3,step=10,ms=40") from None
    if not 0 <= ms <= LONGEST_DELAY_MS:  # nan neither
        raise ValueError(f"{value!r}: give ms from 0 to {LONGEST_DELAY_MS:.0f}")
    if max(abs(rank), abs(step), abs(op or 0)) > HIGHEST:
        raise ValueError(f"{value!r}: no job has so many ranks or steps")
    return rank, step, round(ms * 1e6), op
