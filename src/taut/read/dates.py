"""Many dates of one shape at once: ``2026-01-01T10:00:00``, with a fraction, with ``Z``. Other shapes go elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.read.columns import Ints

LONGEST = 27
LATEST_S = 9_000_000_000
"""Dates up to here fit ns."""
_MARKS = {4: b"-", 7: b"-", 10: b"T ", 13: b":", 16: b":"}
_PLACES = {"year": (0, 4), "month": (5, 7), "day": (8, 10), "hour": (11, 13), "minute": (14, 16), "second": (17, 19)}
_LIMITS = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}


def parsed(texts: Sequence[Any]) -> tuple[Ints, Ints, bool] | None:
    """(seconds since 1970, ns on top of them, whether no zone is named) of dates of one shape, to the µs; else None."""
    letters = _letters(texts)
    if letters is None:
        return None
    size = len(letters)
    zone = bool(letters[-1, 0] == ord("Z"))
    end = size - zone
    if (zone and (letters[-1] != ord("Z")).any()) or end == 20 or end > 26 or (end > 19 and (letters[19] != ord(".")).any()):
        return None
    if not all(np.logical_or.reduce([letters[at] == mark for mark in marks]).all() for at, marks in _MARKS.items()):
        return None
    part = {name: _number(letters[first:last]) for name, (first, last) in _PLACES.items()}
    fraction = _number(letters[20:end]) if end > 20 else np.zeros(len(texts), dtype=np.int32)
    if any(number is None for number in (*part.values(), fraction)):
        return None
    if not all(((part[name] >= low) & (part[name] <= high)).all() for name, (low, high) in _LIMITS.items()):
        return None
    days = _days(part["year"], part["month"], part["day"])
    if days is None:
        return None
    seconds = days * 86_400 + (part["hour"] * 3600 + part["minute"] * 60 + part["second"])
    return seconds, fraction.astype(np.int64) * 10 ** (29 - max(end, 20)), not zone


def _letters(texts: Sequence[Any]) -> Any:
    """The letters of texts that are as long as a date, a row for each place in them; None if not all are such texts.

    A line for each: as many lines as texts, all of one length, can only be the texts.
    """
    size = len(texts[0]) if len(texts) and type(texts[0]) is str else 0
    if not 19 <= size <= LONGEST:
        return None
    try:
        lines = ("\n".join(texts) + "\n").encode("latin-1", "replace")
    except TypeError:
        return None
    if len(lines) != len(texts) * (size + 1) or lines.count(b"\n") != len(texts):
        return None
    letters = np.frombuffer(lines, dtype=np.uint8).reshape(-1, size + 1).T.copy()
    return letters[:-1] if (letters[-1] == ord("\n")).all() else None


def _number(letters: Any) -> Any:
    """The numbers that rows of digits are, most significant first; None if something else is among them."""
    digits = letters - ord("0")  # below that wraps around
    if (digits > 9).any():
        return None
    out = np.zeros(digits.shape[1], dtype=np.int32)
    for row in digits:
        out = out * 10 + row
    return out


def _days(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970; None if a month has no such day, or there is no such year."""
    months = (year - 1970) * 12 + month - 1
    low, high = int(months.min()), int(months.max())
    starts = np.arange(low, high + 2).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good = (day <= np.diff(starts)[months - low]).all() and (year > 0).all()
    return starts[months - low] + day - 1 if good else None
