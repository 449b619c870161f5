"""Many protobuf messages of one shape, made from columns.

Building messages one by one in Python takes microseconds a field, and a run has millions of ops. So the protobuf
library writes one message of each shape, the bytes that hold its numbers are found by changing them, and numpy puts the
numbers of all rows into copies. A varint may be longer than it need be: a column takes equally many bytes in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from taut.core.tables import Array

FIXED = 8
"""Bytes of a number that is no varint (fixed64, double): columns of uint64 and float64."""
LONGEST = 10
"""Bytes of a negative varint: 64 bits, seven to a byte."""


def stamp(make: Callable[[Sequence[Any]], bytes], columns: Sequence[Array]) -> Array:
    """Serialised messages, a row of bytes each; ``make`` serialises the message with the given values in it.

    Columns of int64 are varints, those of uint64 and float64 have a fixed width; a column of two dimensions is a
    repeated field, which ``make`` gets as a list.
    """
    widths = [_width(column) for column in columns]
    values = [_samples(column, width) for column, width in zip(columns, widths, strict=True)]
    first = [low for low, _ in values]
    blank = np.frombuffer(make(first), dtype=np.uint8)
    out = np.tile(blank, (len(columns[0]), 1))
    for k, (column, width) in enumerate(zip(columns, widths, strict=True)):
        cells = column.reshape(len(column), -1)
        if cells.shape[1] == 0:
            continue
        other = np.frombuffer(make([*first[:k], values[k][1], *first[k + 1 :]]), dtype=np.uint8)
        changed = np.flatnonzero(other != blank)
        for cell, begin in zip(cells.T, changed[:: len(changed) // cells.shape[1]], strict=True):
            out[:, begin : begin + width] = _encoded(cell, width)
    return out


def weave(parts: Iterable[tuple[Array, Array]], count: int) -> bytes:
    """Messages of several shapes in one order: each part has the places of its messages among all, and their bytes."""
    parts = list(parts)
    length = np.zeros(count + 1, dtype=np.int64)
    for places, messages in parts:
        length[places + 1] = messages.shape[1]
    begin = np.cumsum(length)
    out = np.empty(int(begin[-1]), dtype=np.uint8)
    for places, messages in parts:
        out[begin[places][:, None] + np.arange(messages.shape[1])] = messages
    return out.tobytes()


def _width(column: Array) -> int:
    """Bytes that every number of a column fits into."""
    if column.dtype != np.int64:
        return FIXED
    if column.min(initial=0) < 0:
        return LONGEST
    return max(-(-int(column.max(initial=0)).bit_length() // 7), 1)


def _samples(column: Array, width: int) -> tuple[Any, Any]:
    """Two values of that width which differ from their first byte on."""
    low: Any
    high: Any
    if column.dtype != np.int64:
        low, high = np.array([0, 0x0101010101010101], dtype=np.uint64).view(column.dtype).tolist()
    elif width == LONGEST:
        low, high = -(1 << 63), -1
    else:
        low, high = 1 << 7 * (width - 1), (1 << 7 * width) - 1
    return (low, high) if column.ndim == 1 else ([low] * column.shape[1], [high] * column.shape[1])


def _encoded(column: Array, width: int) -> Array:
    """The bytes of every number, a row each."""
    if column.dtype != np.int64:
        return np.ascontiguousarray(column).view(np.uint8).reshape(-1, FIXED)
    shift = 7 * np.arange(width, dtype=np.uint64)
    digits = (column.astype(np.uint64)[:, None] >> shift & np.uint64(0x7F)).astype(np.uint8)
    digits[:, :-1] |= 0x80
    return digits
