"""Samples as JSON lines → Arrow columns, as a table would have them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from taut.errors import InputRefused
from taut.read.columns import Codes
from taut.read.json_fields import Keys, decoded

_TEXT, _NUMBER, _TIME = (str | int, ""), (float | str | bool | None, None), (float | int | str | None, None)
FIELDS = {
    "metric": _TEXT, "value": _NUMBER, "time_ns": (int | None, None), "time": _TIME, "timestamp": _TIME,
    "component": _TEXT, "rank": _TEXT, "host": _TEXT, "gpu": _TEXT,
    "limit": (float | str | None, None), "limit_source": (str | None, None), "unit": (str | None, None),
}  # fmt: skip
"""What a line may hold, with its type and default; what else it holds is not looked at."""
TIMES = ("time_ns", "time", "timestamp")
"""Of several times the first that is there counts."""
NUMBERS = ("value", "limit", *TIMES)


def columns(data: bytes, label: str) -> tuple[list[str], list[Any]]:
    """Names and columns of what the lines hold."""
    import pyarrow as pa

    raw = bytes(data)
    try:
        rows = decoded(raw, lambda keys: _rows(raw, keys))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not readable as JSON lines ({str(error)[:120]})", "one object a line") from None
    told = {name: list(map(attrgetter(name), rows)) for name in FIELDS if rows and hasattr(rows[0], name)}
    told = {name: column for name, column in told.items() if column.count(None) < len(column)}
    time = next((name for name in TIMES if name in told), "time")
    made = {name: _numbers(told[name]) if name in NUMBERS else _words(told[name]) for name in told if name not in TIMES}
    made[time] = _numbers(told.get(time, [None] * len(rows)))
    return list(made), [pa.chunked_array([column]) for column in made.values()]


def _rows(raw: bytes, keys: Keys) -> list[Any]:
    return list(msgspec.json.Decoder(keys.struct("Line", FIELDS, gc=False)).decode_lines(raw))


def _words(values: Sequence[object]) -> Any:
    """Texts that are mostly alike, each once, and which of them every row has."""
    import pyarrow as pa

    codes, words = Codes(), Codes()
    of = codes.of(values)
    merged = words.of(map(text, codes))
    return pa.DictionaryArray.from_arrays(pa.array(merged[of].astype(np.int32)), pa.array(list(words), pa.string()))


def _numbers(values: Sequence[object]) -> Any:
    """Values as Arrow: numbers where all are, else texts."""
    import pyarrow as pa

    kinds = set(map(type, values))
    if kinds == {str}:
        return pa.array(values, pa.string())
    if kinds == {float}:
        return pa.array(np.array(values, dtype=np.float64))
    for kind in (pa.float64(),) if float in kinds else (pa.int64(), pa.float64()):  # the former would cut fractions off
        with suppress(pa.ArrowException, OverflowError, TypeError):
            return pa.array(values, kind)
    return pa.array(list(map(text, values)), pa.string())


def text(value: object) -> str:
    """A value as text; nothing is the empty one."""
    return "" if value is None else str(value)
