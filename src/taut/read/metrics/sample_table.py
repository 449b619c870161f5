"""Tables of samples → what was found: CSV, Parquet and JSON lines; tidy (a row per sample) or wide (a column per metric).

Columns stay Arrow arrays, and texts are looked at once per distinct one, so that a long table costs little more than a
short one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.errors import InputRefused, TooLarge
from taut.core.ids import numbered
from taut.core.tables import NULL
from taut.read.columns import float_or_nan, grouped
from taut.read.contents import Found
from taut.read.dates import date_ns, ns_per_unit, number_ns
from taut.read.files import size_cap
from taut.read.metrics import json_lines
from taut.read.metrics.prometheus_text import labels_in
from taut.read.metrics.series import TEXT, WHERE, check_series
from taut.read.metrics.vocabulary import known, plain, rate_of, split_unit
from taut.read.table_file import ParquetTable, open_table, readable

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.core.array_types import Json

    Columns = dict[str, pa.ChunkedArray]
    """Plain name → Arrow column."""

TIME = ("time", "timestamp", "ts", "time_ns", "time_us", "time_ms", "time_s", "timestamp_ns", "timestamp_ms")
"""Columns that hold the time."""
METRIC = ("metric", "metric_name", "__name__")
"""Columns that hold the metric's name, of tidy tables."""
LABELS = ("labels", "tags")
"""Columns that hold further labels: a map, a struct, JSON, or as Prometheus writes them."""
IGNORED = ("uuid", "name", "serial", "pci_bus_id", "driver_version", "count", "pstate", "loss", "step", "unit")
"""Columns of wide tables that are no metrics."""
# Bytes that a cell takes at most while a table is turned into series.
CELL = 64
_NUMBER = re.compile(r"\s*+(0x[0-9a-fA-F]{1,16}|[-+]?[0-9.]+(?:[eE][-+]?\d+)?)\s*+([^\d\s].{0,19})?\s*+")

_BARE = r"^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$"
# Cells in which a column's unit must show.
FIRST = 1000


def is_table(names: Sequence[str]) -> bool:
    """Whether columns of these names are a table of samples."""
    header = [plain(split_unit(name)[0]) for name in names]
    if not any(name in header for name in TIME):
        return False
    tidy = "value" in header and any(name in header for name in METRIC)
    return tidy or any(known(name) or rate_of(name, "") for name in header)


def from_csv(data: bytes, label: str) -> tuple[list[Found], bool]:
    """What a CSV holds, and whether its times are dates without a zone."""
    file = open_table(data, label)
    _once(file.names, label)
    return _found(file.names, file.read(file.names, as_text=True).columns, label)


def from_parquet(data: bytes, label: str) -> tuple[list[Found], bool]:
    """What a Parquet file holds, and whether its times have no zone; columns of what is no sample are not read."""
    import pyarrow as pa

    file = ParquetTable(data, label)
    _once(file.names, label)
    labels = [field.name for field in file.schema if plain(field.name) in LABELS]
    names = [f.name for f in file.schema if f.name in labels or not (pa.types.is_nested(f.type) or pa.types.is_binary(f.type))]
    if file.rows * max(len(names), 1) * CELL > (cap := size_cap()):
        raise TooLarge(label, f"more than {cap // CELL:,} cells", "write the metrics of one job")
    table = file.read(names, nested=labels)
    with readable(label, "Parquet file"):
        return _found(names, table.columns, label)


def parquet_columns(data: bytes) -> list[str]:
    """The names of a Parquet file's columns; none if it is damaged."""
    try:
        return ParquetTable(data, "").names
    except InputRefused:
        return []


def from_lines(data: bytes, label: str) -> tuple[list[Found], bool]:
    """What JSON lines hold, and whether their times are dates without a zone."""
    return _found(*json_lines.columns(data, label), label)


def _once(header: Sequence[str], label: str) -> None:
    if len({plain(split_unit(name)[0]) for name in header}) != len(header):
        raise InputRefused(label, "two columns of one name", "name every column once")


def _found(header: Sequence[str], arrays: Sequence[pa.ChunkedArray], label: str) -> tuple[list[Found], bool]:
    import pyarrow as pa

    columns: Columns = {}
    units = {plain(split_unit(name)[0]): split_unit(name)[1] for name in header}
    for name, array in zip(units, arrays, strict=True):
        if pa.types.is_struct(array.type) and name in LABELS:
            parts = array.combine_chunks().flatten() if array.num_chunks else []
            columns |= {plain(f.name): pa.chunked_array([part]) for f, part in zip(array.type, parts, strict=False)}
        else:
            columns[name] = array
    time, zoneless = _times(columns, label)
    metric = next((name for name in METRIC if name in columns), "")
    if metric and "value" in columns:
        return list(_tidy(columns, time, metric, label)), zoneless
    return list(_wide(columns, units, time, label)), zoneless


def _tidy(columns: Columns, time: Ints, metric: str, label: str) -> Iterator[Found]:
    """One row per sample → one series per metric, unit and place."""
    names = [metric, *(name for name in ("unit", *_about()) if name in columns)]
    words, code = _together([_words(columns[name]) for name in names], len(time))
    value, limit = _numbers(columns["value"])[0], _numbers(columns["limit"])[0] if "limit" in columns else None
    sources, source = _words(columns["limit_source"]) if "limit_source" in columns else ([""], np.zeros(len(time), np.int64))
    check_series(len(words), label)
    for key, mine in zip(words, _rows(code, len(words)), strict=True):
        labels = dict(zip(names, key, strict=True))
        name, unit = labels.pop(metric), labels.pop("unit", "")
        if listed := next((name for name in LABELS if name in labels), ""):
            labels |= labels_in(labels.pop(listed))
        its_limit = None if limit is None else limit[mine]
        yield Found(name, labels, time[mine], value[mine], unit, its_limit, sources[source[mine[0]]])


def _wide(columns: Columns, units: Mapping[str, str], time: Ints, label: str) -> Iterator[Found]:
    """One column per metric → one series per place and column."""
    about = [name for name in _about() if name in columns]
    places, code = _together([_words(columns[name]) for name in about], len(time))
    labels = [dict(zip(about, place, strict=True)) for place in places]
    limits = {name for name in columns if name.removesuffix("_limit") in columns and name.endswith("_limit")}
    aside = {*TIME, *IGNORED, *about, *limits, *(f"{name}_source" for name in limits)}
    check_series(len(places) * len(columns), label)
    rows = _rows(code, len(places))
    for name, column in columns.items():
        if name in aside:
            continue
        value, unit = _numbers(column)
        limit = _numbers(columns[f"{name}_limit"])[0] if f"{name}_limit" in limits else None
        source = next(iter(_words(columns[f"{name}_limit_source"])[0]), "") if f"{name}_limit_source" in columns else ""
        for its, mine in zip(labels, rows, strict=True):
            its_limit = None if limit is None else limit[mine]
            yield Found(name, its, time[mine], value[mine], units.get(name) or unit, its_limit, source)


def _about() -> list[str]:
    """Columns that may say where a sample was taken."""
    return [*(name for names in WHERE.values() for name in names), *LABELS]


def _rows(code: Ints, count: int) -> list[Ints]:
    """The rows of each code, in their order."""
    return np.split(grouped(code), np.cumsum(np.bincount(code, minlength=count))[:-1]) if count else []


def _together(columns: Sequence[tuple[list[str], Ints]], rows: int) -> tuple[list[tuple[str, ...]], Ints]:
    """Several columns as one: the distinct combinations of their words, in order of appearance, and a code per row."""
    if not columns:
        return ([()] if rows else []), np.zeros(rows, dtype=np.int64)
    code, count = np.zeros(rows, dtype=np.int64), 1 if rows else 0
    for words, column in columns:
        if len(words) > 1:
            code, count = numbered(code * len(words) + column)
    # Rows backwards, so that the first row of each code is written last and stays.
    first = np.empty(count, dtype=np.int64)
    first[code[::-1]] = np.arange(rows)[::-1]
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(count)
    at = first[order].tolist()
    return list(zip(*([words[column[i]] for i in at] for words, column in columns), strict=True)), rank[code]


def _words(column: pa.ChunkedArray) -> tuple[list[str], Ints]:
    """A column as its distinct texts and a code per row; nothing is the empty text."""
    import pyarrow as pa

    if pa.types.is_map(column.type):
        column = pa.chunked_array([pa.array([_flat(row.as_py()) for row in column], pa.string())])
    elif pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array([str(row.as_py())[: 10 * TEXT] for row in column], pa.string())])
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    words = [json_lines.text(word)[: 10 * TEXT] for word in encoded.dictionary.to_pylist()]
    index = encoded.indices
    if encoded.null_count:
        index, words = index.fill_null(len(words)), [*words, ""]
    return words, index.to_numpy(zero_copy_only=False).astype(np.int64)


def _flat(row: Sequence[tuple[Json, Json]] | None) -> str:
    """A map as one text."""
    return "" if not row else msgspec.json.encode({str(key): json_lines.text(value) for key, value in row}).decode()


def _numbers(column: pa.ChunkedArray) -> tuple[Floats, str]:
    """Numbers in cells such as ``512.3 W``, ``0x4`` or ``[N/A]`` (NaN), and the unit they carry."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        texts, code = _words(column)
        value, unit = _numbers(pa.chunked_array([pa.array(texts, pa.string())]))
        return value[code], unit
    all_numbers = _plain_numbers(column)
    if all_numbers is not None:
        return all_numbers, ""
    unit = next((found[2].strip() for text in column[:FIRST].to_pylist() if (found := _cell(text)) and found[2]), "")
    bare = pc.utf8_rtrim(pc.utf8_trim_whitespace(column), f" {unit}")
    plain = _plain_numbers(pc.if_else(pc.match_substring_regex(bare, _BARE), bare, None))
    value = np.full(len(column), np.nan) if plain is None else plain
    odd = np.flatnonzero(np.isnan(value))
    words, code = _words(column.take(odd))
    known = [_number(found[1] if (found := _cell(word)) else word) for word in words]
    value[odd] = np.array(known, dtype=np.float64)[code]
    return value, unit


def _cell(text: str | None) -> re.Match[str] | None:
    return _NUMBER.fullmatch((text or "")[:TEXT])


def _plain_numbers(column: pa.ChunkedArray) -> Floats | None:
    """The numbers of a column that holds nothing else, NaN where there is none; None if it holds other texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        return np.full(len(column), np.nan)
    try:
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        number = (pc.utf8_trim_whitespace(column) if text else column).cast(pa.float64(), safe=text)
    except pa.ArrowInvalid:
        return None
    found: Floats = number.to_numpy().copy()
    return found


def _number(text: str) -> float:
    return float(int(text, 16)) if re.fullmatch("0x[0-9a-fA-F]{1,16}", text) else float_or_nan(text)


def _times(columns: Columns, label: str) -> tuple[Ints, bool]:
    """Times in ns, NULL where there is none; and whether they were dates without a zone."""
    name = next((n for n in TIME if n in columns), "")
    if not name:
        raise InputRefused(label, "no column holds the time", "name it time, timestamp or time_ns")
    return _moments(columns[name], name)


def _moments(column: pa.ChunkedArray, name: str) -> tuple[Ints, bool]:
    """The times of one column, by its type, its name, or the size of its numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        texts, code = _words(column)
        time, zoneless = _moments(pa.chunked_array([pa.array(texts, pa.string())]), name)
        return time[code], zoneless
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        moments = column.cast(pa.timestamp("ns"), safe=False).cast(pa.int64())
        return moments.fill_null(NULL).to_numpy(), getattr(column.type, "tz", None) is None
    number = _plain_numbers(column)
    if number is None:
        for zone in (None, "UTC"):
            dates = _dates(column, zone)
            if dates is not None:
                return dates, zone is None
        words, code = _words(column)
        number = np.array([_number(word) for word in words], dtype=np.float64)[code]
        if not np.isfinite(number).any():
            found = [date_ns(word) or (NULL, False) for word in words]
            return np.array([at for at, _ in found], dtype=np.int64)[code], any(bare for _, bare in found)
    if name.endswith("_ns"):
        return _exact(column), False
    unit = {"_us": 1e3, "_ms": 1e6, "_s": 1e9}.get(name[name.rfind("_") :])
    size = np.abs(number[np.isfinite(number)])
    return number_ns(number, unit or ns_per_unit(size.max(initial=0.0))), False


def _exact(column: pa.ChunkedArray) -> Ints:
    """Whole ns: those of an epoch do not fit a float."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        whole: Ints = column.cast(pa.int64(), safe=False).fill_null(NULL).to_numpy()
        return whole
    words, code = _words(column)
    known = [int(w) if re.fullmatch(r"\s*\d{1,18}|[1-3]\d{18}\s*", w, re.ASCII) else NULL for w in words]
    return np.array(known, dtype=np.int64)[code]


def _dates(column: pa.ChunkedArray, zone: str | None) -> Ints | None:
    """The ns of dates, none of which or all of which name a zone; None for others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        dashed = pc.replace_substring(pc.utf8_trim_whitespace(column.cast(pa.string())), "/", "-")
        time = dashed.cast(pa.timestamp("us", zone)).cast(pa.timestamp("ns", zone)).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    found: Ints = time.fill_null(NULL).to_numpy()
    return found
