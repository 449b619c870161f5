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


def codes_of(column: pa.ChunkedArray, words: Sequence[str], dtype: str) -> Column:
    """The codes of a dictionary-encoded column; ValueError for a word that is none of these."""
    import pyarrow as pa

    place = {word: code for code, word in enumerate(words)}
    parts: list[Codes] = []
    for chunk in column.chunks:
        found = chunk.dictionary.to_pylist()
        unknown = next((word for word in found if word not in place), None)
        if unknown is not None:
            raise ValueError(f"{str(unknown)[:40]!r} is no word of this column")
        code = np.array([*(place[word] for word in found), -1], dtype=np.int32)
        index = chunk.indices.fill_null(len(found)) if chunk.null_count else chunk.indices
        parts.append(code[index.to_numpy(zero_copy_only=False)])
    joined = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    return joined.astype(pa.from_numpy_dtype(np.dtype(dtype)).to_pandas_dtype())
