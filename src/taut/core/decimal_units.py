"""Columns of decimals with 18 places: as whole units of the last place and back, and as text."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from taut.core.array_types import Ints, Mask

PLACES = 18
ONE = 10**PLACES
Wholes: TypeAlias = NDArray[np.object_]
"""Python integers, which have no limit."""
_HALF = (1 << 64) - 1


def units_of(column: pa.Array) -> tuple[Wholes, Mask]:
    """Units of the last place, 0 where a cell is null, and which are null."""
    low, high = _words(column)
    missing: Mask = column.is_null().to_numpy(zero_copy_only=False)
    units = high.astype(object) * (_HALF + 1) + low.astype(object)
    units[missing] = 0
    return units, missing


def decimals_of(units: Wholes, missing: Mask) -> pa.Array:
    """The column that has these units."""
    words = np.empty((len(units), 2), dtype=np.uint64)
    words[:, 0] = (units & _HALF).astype(np.uint64)
    words[:, 1] = (units >> 64).astype(np.int64).view(np.uint64)
    there = pa.array(~missing).buffers()[1] if missing.any() else None
    return pa.Array.from_buffers(_money(), len(units), [there, pa.py_buffer(words)])


def texts_of(column: pa.Array) -> pa.Array:
    """Decimals without an exponent and without zeros at their end; null stays null."""
    size = pc.abs(column)
    if len(column) and (pc.max(size).as_py() or 0) >= 1 << 63:
        return pa.array([None if one is None else _text(f"{one:f}") for one in column.to_pylist()], pa.string())
    whole = size.cast(pa.int64(), safe=False)
    # Both wrap around at 2⁶⁴, and what is left behind the point is smaller than that.
    rest = _words(size)[0] - whole.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) * np.uint64(ONE)
    behind = pc.utf8_rtrim(pc.utf8_lpad(pa.array(rest).cast(pa.string()), PLACES, "0"), "0")
    text = pc.utf8_rtrim(pc.binary_join_element_wise(whole.cast(pa.string()), behind, "."), ".")
    below: Mask = pc.less(column, 0).fill_null(False).to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(below), pc.binary_join_element_wise("-", text, ""), text) if below.any() else text


def _text(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _words(column: pa.Array) -> tuple[NDArray[np.uint64], Ints]:
    """The two halves of every number; those of a null cell mean nothing."""
    column = column.cast(_money())
    words = np.frombuffer(column.buffers()[1], dtype="<u8", count=2 * (column.offset + len(column))).reshape(-1, 2)
    words = words[column.offset :]
    return words[:, 0], words[:, 1].copy().view(np.int64)


def _money() -> pa.DataType:
    return pa.decimal128(38, PLACES)
