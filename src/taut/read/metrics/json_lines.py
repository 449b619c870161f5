"""Samples as JSON lines → Arrow columns, as a table would have them."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.read.columns import Codes, compact, joined
from taut.read.dates import same_form_ns
from taut.read.json_fields import Keys, decoded, line_slabs

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.core.array_types import Json
    from taut.read.columns import Values

_TEXT, _TIME = (str | int, ""), (float | int | str | None, None)
TEXTS = {
    "metric": _TEXT, "component": _TEXT, "rank": _TEXT, "host": _TEXT, "gpu": _TEXT,
    "limit_source": (str | None, None), "unit": (str | None, None),
}  # fmt: skip
NUMBERS = {"value": (float | str | bool | None, None), "limit": (float | str | None, None)}
TIMES = {"time_ns": (int | None, None), "time": _TIME, "timestamp": _TIME}
"""What a line may hold, with type and default; of several times the first counts. What else it holds is not looked at."""


def columns(data: bytes, label: str) -> tuple[list[str], list[pa.ChunkedArray]]:
    """Names and columns of what the lines hold."""
    import pyarrow as pa

    try:
        made = decoded(data, lambda keys: _columns(data, keys))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not readable as JSON lines ({str(error)[:120]})", "one object a line") from None
    return list(made), [pa.chunked_array([column]) for column in made.values()]


def _columns(raw: bytes, keys: Keys) -> dict[str, pa.Array]:
    line = keys.struct("Line", {**TEXTS, **NUMBERS, **TIMES}, gc=False)
    codes = {name: Codes() for name in TEXTS if name in line.__struct_fields__}
    numbers: dict[str, list[Values]] = {name: [] for name in (*NUMBERS, *TIMES) if name in line.__struct_fields__}
    texts: dict[str, list[Ints]] = {name: [np.empty(0, dtype=np.int64)] for name in codes}
    count = 0
    for rows in line_slabs(raw, msgspec.json.Decoder(line)):
        for name, words in codes.items():
            texts[name].append(words.of(map(attrgetter(name), rows)))
        for name, parts in numbers.items():
            parts.append(compact(list(map(attrgetter(name), rows))))
        count += len(rows)
    time = next((name for name in TIMES if any(map(_has_some, numbers.get(name, ())))), "time")
    made = {name: _words(words, np.concatenate(texts[name])) for name, words in codes.items()}
    made.setdefault("metric", _words(Codes({"": 0}), np.zeros(count, dtype=np.int64)))
    made |= {name: _numbers(numbers.get(name) or [[None] * count]) for name in NUMBERS}
    made[time] = _times(numbers.get(time) or [[None] * count])
    return made


def _words(codes: Codes, of: Ints) -> pa.DictionaryArray:
    """Texts that are mostly alike as Arrow: each once, and which of them every row has; a number is its text."""
    import pyarrow as pa

    words = Codes()
    merged = words.of(map(text, codes))
    return pa.DictionaryArray.from_arrays(pa.array(merged[of].astype(np.int32)), pa.array(list(words), pa.string()))


def _has_some(part: Values) -> bool:
    return not isinstance(part, list) or part.count(None) < len(part)


def _numbers(parts: list[Values]) -> pa.Array:
    """The parts of a column as Arrow: numbers where all are, else texts."""
    import pyarrow as pa

    values = joined(parts)
    if isinstance(values, np.ndarray):
        return pa.array(values)
    kinds = set(map(type, values))
    if kinds == {str}:
        return pa.array(values, pa.string())
    for kind in (pa.float64(),) if float in kinds else (pa.int64(), pa.float64()):  # the latter would cut fractions off
        with suppress(pa.ArrowException, OverflowError, TypeError):
            return pa.array(values, kind)
    return pa.array(list(map(text, values)), pa.string())


def _times(parts: list[Values]) -> pa.Array:
    """The same; dates of one form are read here, all at once."""
    import pyarrow as pa

    values: list[Any] = list(chain.from_iterable(parts)) if all(isinstance(part, list) for part in parts) else []
    found = same_form_ns(values)
    if found is None:
        return _numbers(parts)
    time, bare = found
    return pa.array(time).cast(pa.timestamp("ns", None if bare else "UTC"))


def text(value: Json) -> str:
    """A value as text; nothing is the empty one."""
    return "" if value is None else str(value)
