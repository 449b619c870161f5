"""A value by the hour (a tariff, carbon of the grid, temperature outside) in a CSV: when it begins to hold, and what it is.

A row holds up to the next one, but no longer than rows usually are apart: an hour that the file leaves out is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, tzinfo
from itertools import pairwise
from math import isfinite
from pathlib import Path

from taut.core.errors import InputRefused
from taut.core.prices import Hourly
from taut.read.config_text import load_text
from taut.read.dates import date_ns
from taut.read.table_file import csv_rows

# A year of quarters of an hour takes 2 MiB.
MOST_BYTES = 64 << 20
BEGIN = ("time", "from", "start", "begin", "hour", "datetime", "datetime (utc)", "timestamp", "date")
END = ("until", "end", "to")
HOUR_NS = 3_600_000_000_000
TARIFF: Mapping[str, float] = {"per_kwh": 1.0, "per_mwh": 1e-3, "price": 1.0, "tariff": 1.0, "value": 1.0}
CARBON: Mapping[str, float] = {
    "kg_per_kwh": 1.0, "kg_co2e_per_kwh": 1.0, "g_per_kwh": 1e-3, "g_co2e_per_kwh": 1e-3, "gco2eq_per_kwh": 1e-3,
    "carbon intensity gco₂eq/kwh (life cycle)": 1e-3, "carbon intensity gco₂eq/kwh (direct)": 1e-3,
}  # fmt: skip
TEMPERATURE: Mapping[str, float] = {"temperature_c": 1.0, "temperature": 1.0, "celsius": 1.0, "value": 1.0}
"""Columns that hold the value, the best name first → the factor for the unit that it is kept in."""


def load(path: Path, columns: Mapping[str, float], zone: tzinfo | None = None) -> Hourly:
    """The series of a file. Dates without a zone are of ``zone``, or UTC."""
    rows: list[tuple[int, int | None, float]] = []
    before: datetime | None = None
    for line, row in csv_rows(load_text(path, "give one period", MOST_BYTES), str(path)):
        place = f"{path}:{line}"
        begin, end, name = _first(row, BEGIN), _first(row, END), _first(row, columns)
        if begin is None or name is None:
            raise InputRefused(
                place,
                f"no column for {'time' if begin is None else 'the value'}",
                f"name the columns time and {next(iter(columns))}",
            )
        at, before = _moment(row[begin], zone, before, place)
        until = None if end is None else _moment(row[end], zone, None, place)[0]
        value = _value(row[name], place)
        if value is not None:
            rows.append((at, until, value * columns[name]))
    if not rows:
        raise InputRefused(path, "no row holds a time and a value", f"columns needed: time, {next(iter(columns))}")
    return _series(path.name, str(path), rows)


def _first(row: Mapping[str, str], names: Mapping[str, float] | tuple[str, ...]) -> str | None:
    return next((name for name in names if name in row), None)


def _value(text: str, place: str) -> float | None:
    """The number in a cell; None where it is empty: that hour is not known."""
    if text.strip().lower() in ("", "nan", "na", "n/a", "null", "-"):
        return None
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not isfinite(found) or abs(found) > 1e12:
        raise InputRefused(place, f"{text[:40]!r} is no number", "leave the cell empty where nothing is known")
    return found


def _moment(text: str, zone: tzinfo | None, before: datetime | None, place: str) -> tuple[int, datetime | None]:
    """A date as ns, and as its clock showed it. Of the hour that clocks show twice in autumn, the second row is the later."""
    found = date_ns(text)
    if found is None:
        raise InputRefused(place, f"{text[:40]!r} is no date", "write it like 2026-10-01T14:00Z")
    if not found[1] or zone is None:
        return found[0], None
    shown = datetime.fromisoformat(text.strip().replace("/", "-"))
    local = shown.replace(tzinfo=zone, fold=int(before is not None and shown <= before))
    exact = date_ns(local.isoformat())
    return (exact or found)[0], shown


def _series(name: str, label: str, rows: list[tuple[int, int | None, float]]) -> Hourly:
    rows.sort(key=lambda row: row[0])
    apart = [later[0] - row[0] for row, later in pairwise(rows)]
    if 0 in apart:
        at = datetime.fromtimestamp(rows[apart.index(0)][0] // 10**9).astimezone().isoformat()
        raise InputRefused(label, f"two values for {at}", "keep one; name the zone, if clocks showed the hour twice")
    usual = min(Counter(apart).most_common(1)[0][0], 31 * 24 * HOUR_NS) if apart else HOUR_NS
    following = [row[0] for row in rows[1:]] + [rows[-1][0] + usual]
    ends = [min(later, row[1] or row[0] + usual) for row, later in zip(rows, following, strict=True)]
    return Hourly(name, tuple(row[0] for row in rows), tuple(ends), tuple(row[2] for row in rows))
