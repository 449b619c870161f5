"""Arrow columns → numpy: times, whole numbers and texts of any type that a table may hold them in.

Nothing is cut to fit: a number that is no rank is a refusal that names the column and the number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Codes, Ints, Mask, Numbers
from taut.core.errors import InputRefused
from taut.core.ids import taken
from taut.core.tables import NULL
from taut.read.dates import FAR as FAR

if TYPE_CHECKING:
    import pyarrow as pa

UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
INT32, INT64 = 2**31 - 1, 2**63 - 1


def times_ns(column: pa.ChunkedArray, name: str, label: str) -> tuple[Ints, Mask | np.bool_]:
    """Times of one column as whole ns, and where they were times at all.

    Timestamps and durations know their unit. A number has that of the column's name (``_ns``, ``_us``, ``_ms``, ``_s``);
    else floats are seconds and integers ns.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return _scaled(column.cast(width).cast(pa.int64()), int(UNITS_NS[kind.unit]))
    values = numbers(column, name, label)
    suffix = name.lower().rsplit("_", 1)[-1]
    if values.dtype == np.int64 and UNITS_NS.get(suffix, 1.0) == 1.0:
        near = values.min() > -FAR and values.max() < FAR  # most columns: no mask is made for them
        return values.astype(np.int64, copy=False), np.True_ if near else (values > -FAR) & (values < FAR)
    factor = UNITS_NS.get(suffix, 1e9 if values.dtype.kind == "f" else 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = values.astype(np.float64) * factor if values.dtype.kind == "f" or factor != 1.0 else values
        ok = np.isfinite(wide) & (wide > -FAR) & (wide < FAR)
    return np.rint(np.where(ok, wide, 0)).astype(np.int64), ok


def _scaled(column: pa.ChunkedArray, factor: int) -> tuple[Ints, Mask]:
    """Whole numbers times a factor, and where there are some that small."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    ok = valid & (values > -FAR // factor) & (values < FAR // factor)
    return np.where(ok, values, 0) * factor, ok


def has_any(column: pa.ChunkedArray, name: str, label: str) -> bool:
    """Whether a column of times holds any, in range or not."""
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        return bool(column.null_count < len(column))
    return bool(np.isfinite(numbers(column, name, label).astype(np.float64)).any())


def numbers(column: pa.ChunkedArray, name: str, label: str) -> Numbers:
    """The numbers of a column: integers as they are, where there is none NaN; refuses what holds none."""
    import pyarrow as pa

    column = decoded(column)
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type) or pa.types.is_float16(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise InputRefused(label, f"column {name[:80]} holds no numbers", f"it holds {str(column.type)[:40]}")
    if column.null_count:
        column = column.cast(pa.float64(), safe=False)
    found: Numbers = column.to_numpy(zero_copy_only=False)
    return found


def wholes(column: pa.ChunkedArray, name: str, label: str, least: int = -INT32 - 1, most: int = INT32) -> Ints:
    """The whole numbers of a column, NULL where there is none; refuses fractions, and numbers out of bounds."""
    import pyarrow as pa

    column = decoded(column)
    if column.null_count and pa.types.is_integer(column.type):
        there: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        values: Numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    else:
        values = numbers(column, name, label)
        there = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(1, dtype=np.bool_)
    if values.dtype.kind == "f":
        values = np.where(there, values, 0)
        _refuse_fractions(values, name, label)
    _refuse_beyond(values if there.all() else values[there], name, label, least, most)
    if not there.all() and least > NULL:
        raise InputRefused(label, f"column {name[:80]} holds nothing in some row", "fill it, or leave the row out")
    whole: Ints = np.asarray(values, dtype=np.int64 if values.dtype.kind in "fu" else None)
    return whole if there.all() else np.where(there, whole, NULL)


def _refuse_beyond(values: Numbers, name: str, label: str, least: int, most: int) -> None:
    if not len(values) or (values.min() >= least and values.max() <= most):
        return
    found = _short(values.min() if values.min() < least else values.max())
    why = f"column {name[:80]} holds {found}, but its numbers go from {least} to {most}"
    raise InputRefused(label, why, "number from 0 on")


def _refuse_fractions(values: Numbers, name: str, label: str) -> None:
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(values) < 2.0**63) | (np.floor(values) != values)
    if bad.any():
        found = _short(values[int(np.argmax(bad))])
        raise InputRefused(label, f"column {name[:80]} holds {found}, which is no whole number", "write whole numbers")


def _short(value: np.generic) -> str:
    return f"{value:g}" if isinstance(value, np.floating) else str(value)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column itself where it is coded and holds numbers: what it holds, not its codes."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type) or pa.types.is_string(column.type.value_type):
        return column
    return column.cast(column.type.value_type)


def words(column: pa.ChunkedArray, name: str, label: str, *, in_order: bool = True) -> tuple[list[str], Codes]:
    """The distinct texts of a column and a code per row; no text is the empty one.

    ``in_order``: the texts in order of appearance; else in any, which is quicker where the file has codes of its own.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type) or not _is_string(column.type.value_type):
        try:
            column = decoded(column).cast(pa.string())
        except (pa.ArrowException, ValueError):
            raise InputRefused(label, f"column {name[:80]} holds {str(column.type)[:40]}, not text") from None
        column = column.dictionary_encode()
    encoded = column.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    texts = ["" if text is None else str(text) for text in encoded.dictionary.to_pylist()]
    index = encoded.indices
    if encoded.indices.null_count:
        index, texts = index.fill_null(len(texts)), [*texts, ""]
    return _used(texts, index.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), in_order)


def _is_string(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _used(texts: list[str], code: Codes, in_order: bool) -> tuple[list[str], Codes]:
    """Only texts that some row has: there are no more of them than rows."""
    from taut.core.group_kernels import first_rows

    first = first_rows(code, 0, len(texts))
    order = np.argsort(first, kind="stable") if in_order else np.arange(len(texts))
    order = order[first[order] >= 0]
    if len(order) == len(texts) and (order == np.arange(len(texts))).all():
        return texts, code
    new = np.zeros(len(texts), dtype=np.int32)
    new[order] = np.arange(len(order))
    return [texts[i] for i in order.tolist()], taken(new, code)
