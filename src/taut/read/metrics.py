"""Metrics beside the traces: what sensors and counters of components said while the job ran.

Four shapes, told by content: tidy CSV and JSON lines (time, component, metric, value; optionally limit, limit_source and
unit), wide CSV (one column per metric, as ``nvidia-smi --query-gpu`` and the lab write it; ``X_limit`` is the limit of
``X``), and the answer of Prometheus to ``query_range``. Units are converted here, counters become rates per second, and
a metric that is another's limit becomes that. A time without a unit is read by its size: seconds, ms, µs or ns.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np

from taut.errors import InputRefused, TooLarge
from taut.read.columns import Codes
from taut.read.metric_ranks import apply
from taut.read.metric_series import TIME, WHERE, Metrics, Series, components, metrics_of, numbers, series_of, times, whole
from taut.read.metric_words import KNOWN, plain, rate_of, split_unit

__all__ = ["Metrics", "apply", "load", "sniff"]

MOST_SERIES = 200_000
"""More series than this in one file are a mistake, or worse."""
HEADER = 1 << 20
"""Bytes in which the first line of a table must end."""
IGNORED = ("uuid", "name", "serial", "pci_bus_id", "driver_version", "count", "pstate", "loss", "step", "unit")
"""Columns of wide tables that are no metrics."""


def sniff(head: bytes) -> bool:
    """JSON lines or a CSV with metric and value, a CSV with a time and known metrics, or a Prometheus matrix."""
    text = head.lstrip()
    line = text.split(b"\n", 1)[0]
    if b"\x00" in line:
        return False
    if line[:1] == b"{":
        return (b'"resultType"' in text and b'"matrix"' in text) or (
            b'"metric"' in line and b'"value"' in line and b'"traceEvents"' not in line
        )
    header = [plain(split_unit(c)[0]) for c in _cells(line)]
    if not any(name in header for name in TIME):
        return False
    return {"metric", "value"} <= set(header) or any(name in KNOWN or rate_of(name, "") for name in header)


def load(data: bytes, label: str) -> Metrics:
    """The series of one file."""
    start = data[: 64 << 10].lstrip()
    if start[:1] != b"{":
        return _csv(data, label)
    return _matrix(data, label) if b'"resultType"' in start else _lines(data, label)


def _cells(line: bytes) -> list[str]:
    return [cell.strip().strip('"') for cell in line.decode("utf-8", "replace").split(",")]


def _csv(data: bytes, label: str) -> Metrics:
    import pyarrow as pa
    import pyarrow.csv

    header = _cells(data.lstrip()[:HEADER].split(b"\n", 1)[0])
    if len(set(header)) != len(header):
        raise InputRefused(label, "two columns of one name", "name every column once")
    read = pyarrow.csv.ReadOptions(column_names=header, skip_rows=1)
    texts = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False)
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(data), read_options=read, convert_options=texts)
    except pa.ArrowInvalid as error:
        raise InputRefused(label, f"not a readable CSV ({str(error).splitlines()[0][:120]})") from None
    columns = {plain(split_unit(name)[0]): table[name].to_pylist() for name in header}
    units = {plain(split_unit(name)[0]): split_unit(name)[1] for name in header}
    if {"metric", "value"} <= set(columns):
        return _tidy(columns, label)
    return _wide(columns, units, label)


class _Line(msgspec.Struct):
    """One sample as a JSON line; what else the line holds is not looked at."""

    metric: str | int = ""
    value: float | str | bool | None = None
    time: float | int | str | None = None
    timestamp: float | int | str | None = None
    time_ns: int | None = None
    component: str | int = ""
    rank: str | int = ""
    host: str | int = ""
    gpu: str | int = ""
    limit: float | str | None = None
    limit_source: str | None = None
    unit: str | None = None


def _lines(data: bytes, label: str) -> Metrics:
    try:
        rows = msgspec.json.Decoder(_Line).decode_lines(bytes(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not readable as JSON lines ({str(error)[:120]})", "one object a line") from None
    columns = {f: [_text(getattr(row, f)) for row in rows] for f in _Line.__struct_fields__}
    given = next((t for t in ("time_ns", "time", "timestamp") if any(columns[t])), "time")
    for name in {"time_ns", "time", "timestamp"} - {given}:
        del columns[name]
    return _tidy(columns, label)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _tidy(columns: dict[str, list[str]], label: str) -> Metrics:
    """One row per sample → one series per component, metric and unit."""
    rows = len(columns["metric"])
    blank = [""] * rows
    time, zoneless = times(columns, label)
    value = numbers(columns["value"])[0]
    unit = columns.get("unit", blank)
    keys = Codes()
    code = keys.of(zip(components(columns, rows), columns["metric"], unit, columns.get("limit_source", blank), strict=True))
    _few(len(keys), label)
    limit = numbers(columns["limit"])[0] if "limit" in columns else np.full(rows, np.nan)
    order = np.argsort(code, kind="stable")
    ends = np.searchsorted(code[order], np.arange(1, len(keys)))
    known: list[Any] = list(keys)
    series: list[Series] = []
    for mine in np.split(order, ends) if rows else ():
        component, metric, its_unit, source = known[code[mine[0]]]
        series += series_of(component, metric, its_unit, time[mine], value[mine], limit[mine], source)
    return metrics_of(label, series, zoneless)


def _wide(columns: dict[str, list[str]], units: dict[str, str], label: str) -> Metrics:
    """One column per metric → one series per component and column."""
    rows = len(next(iter(columns.values())))
    time, zoneless = times(columns, label)
    places = Codes()
    where = places.of(components(columns, rows))
    about = {*TIME, *IGNORED, *(name for names in WHERE.values() for name in names)}
    limits = {name for name in columns if name.removesuffix("_limit") in columns and name.endswith("_limit")}
    sources = {f"{name}_source" for name in limits}
    _few(len(places) * len(columns), label)
    series: list[Series] = []
    for name, cells in columns.items():
        if name in about or name in limits or name in sources:
            continue
        value, unit = numbers(cells)
        limit = numbers(columns[f"{name}_limit"])[0] if f"{name}_limit" in limits else np.full(rows, np.nan)
        source = next(iter(columns.get(f"{name}_limit_source", ())), "")
        for code, component in enumerate(places):
            mine = where == code
            series += series_of(str(component), name, units[name] or unit, time[mine], value[mine], limit[mine], source)
    return metrics_of(label, series, zoneless)


class _Found(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Found] = []


class _Answer(msgspec.Struct):
    data: _Data
    status: str = ""


def _matrix(data: bytes, label: str) -> Metrics:
    try:
        found = msgspec.json.decode(bytes(data), type=_Answer).data.result
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputRefused(
            label, f"not a matrix of Prometheus ({str(error)[:120]})", "save the answer of query_range"
        ) from None
    _few(len(found), label)
    series: list[Series] = []
    for one in found:
        name = one.metric.get("__name__", "")
        if not name:
            raise InputRefused(label, "a result without a metric name", "query the metric itself, not an expression")
        labels = {plain(key): [value] for key, value in one.metric.items()}
        component = next(components(labels, 1))
        time = np.rint(np.array([at for at, _ in one.values], dtype=np.float64) * 1e9)
        value = numbers([text for _, text in one.values])[0]
        series += series_of(component, name, "", whole(time), value, np.full(len(value), np.nan), "")
    return metrics_of(label, series, False)


def _few(count: int, label: str) -> None:
    if count > MOST_SERIES:
        raise TooLarge(label, f"more than {MOST_SERIES:,} series", "write the metrics of one job")
