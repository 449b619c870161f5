"""Columns of codes as the words they stand for: what other tools read from a run folder needs no look-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Codes, Column

if TYPE_CHECKING:
    import pyarrow as pa

Words = Mapping[str, Sequence[str]]
"""Column → what its codes 0, 1, … are called; a code below 0 is null."""


def unique(words: Sequence[str]) -> list[str]:
    """The words, each of them once: one that comes again gets its number behind it."""
    seen: dict[str, int] = {}
    known = set(words)
    out = []
    for word in words:
        seen[word] = seen.get(word, 0) + 1
        name = word
        while seen[word] > 1 and name in known:
            name = f"{word} ({seen[word]})"
            seen[word] += name in known
        known.add(name)
        out.append(name)
    return out


def worded(table: pa.Table, words: Words) -> pa.Table:
    """The table with these columns dictionary-encoded."""
    import pyarrow as pa

    for name, spelled in words.items():
        codes = table[name].to_numpy()
        missing = codes < 0
        indices = pa.array(codes, mask=missing) if missing.any() else pa.array(codes)  # without a mask nothing is copied
        column = pa.DictionaryArray.from_arrays(indices, pa.array(list(spelled), pa.string()))
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def values_of(column: pa.ChunkedArray) -> Column:
    """The values of a column of numbers or words without empty cells.

    Not by ``to_numpy``: where pandas is installed, the first one of a process loads it, which takes longer than most tables.
    """
    import pyarrow as pa

    parts = [_words(chunk) if pa.types.is_string(chunk.type) else _numbers(chunk) for chunk in column.chunks]
    kind = object if pa.types.is_string(column.type) else column.type.to_pandas_dtype()
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, kind), *parts])


def _numbers(array: pa.Array) -> Column:
    """The values of an array of numbers, where they lie in memory."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        return _numbers(array.cast(pa.uint8())).view(np.bool_)
    kind, memory = np.dtype(array.type.to_pandas_dtype()), array.buffers()[1]
    if memory is None or not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(memory, kind, len(array), array.offset * kind.itemsize)


def _words(array: pa.Array) -> Column:
    """The words of an array, each of them one object."""
    coded = array.dictionary_encode()
    found: Column = np.array([*coded.dictionary.to_pylist(), ""], dtype=object)[_numbers(coded.indices)]
    return found


def codes_of(column: pa.ChunkedArray, words: Sequence[str], dtype: str) -> Column:
    """The codes of a dictionary-encoded column; ValueError for a word that is none of these."""
    place = {word: code for code, word in enumerate(words)}
    parts: list[Codes] = []
    for chunk in column.chunks:
        found = chunk.dictionary.to_pylist()
        unknown = next((word for word in found if word not in place), None)
        if unknown is not None:
            raise ValueError(f"{str(unknown)[:40]!r} is no word of this column")
        code = np.array([*(place[word] for word in found), -1], dtype=dtype)
        index = _numbers(chunk.indices)
        if chunk.null_count:
            index = np.where(_numbers(chunk.is_valid()), index, len(found))
        parts.append(code[index])
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])
