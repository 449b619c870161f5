"""Dense ids for combinations of columns, and running numbers inside them: what grouping is made of here."""

from __future__ import annotations

import math
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask, Numbers, Texts
from taut.core.row_shares import is_shared, over_groups, over_rows, threads_at_work
from taut.core.scratch import empty, kept

Scalar = TypeVar("Scalar", bound=np.generic)
FEW_WORDS = 10_000
"""Rows up to which a dictionary takes less time than importing what is quicker for many."""
FEW_NUMBERS = 1 << 16
"""Rows, and numbers that they may hold, up to which numpy takes less time than loading a kernel: most files have fewer."""


def numbered(*keys: Indices | Mask) -> tuple[Ints, int]:
    """Dense ids of the distinct combinations of keys, in their lexicographic order, and how many there are."""
    from taut.core.group_kernels import dense_ids

    n = len(keys[0])
    if n == 0:
        return np.zeros(0, dtype=np.int64), 0
    # Keys as digits of one number, each in its own range; a key is made dense first where the number would not fit 62 bits.
    packed, span = np.zeros(n, dtype=np.int64), 1
    for key in keys:
        low, high = _extent(key)
        wide = high - low + 1
        if wide == 1:
            continue
        if span * wide > 1 << 62:
            found, packed = np.unique(packed, return_inverse=True)
            span = len(found)
            if span * wide > 1 << 62:
                found, key = np.unique(key, return_inverse=True)
                low, wide = 0, len(found)
        _add_digit(packed, key, low, wide, n <= FEW_NUMBERS)
        span *= wide
    if span <= 16 * n + 1024:  # a table of all numbers is quicker than sorting, if it is not much longer than the rows
        dense_id, count = (dense_ids.plain if max(n, span) <= FEW_NUMBERS else _dense_ids)(packed, span)
        return (kept(packed), span) if count == span else (kept(dense_id.astype(np.int64)), count)
    found, ids = np.unique(packed, return_inverse=True)
    return kept(ids.ravel()), len(found)


def coded(*keys: Indices | Mask) -> tuple[Codes, int]:
    """``numbered`` in 32 bits, for ids that only tell groups apart: half of the memory. Do not multiply them."""
    n = len(keys[0])
    ranges = [_extent(key) for key in keys] if n else []
    span = math.prod(high - low + 1 for low, high in ranges)
    if not n or span > min(16 * n + 1024, 1 << 31):
        ids, count = numbered(*keys)
        return kept(ids.astype(np.int32)), count
    packed = np.zeros(n, dtype=np.int32)
    for key, (low, high) in zip(keys, ranges, strict=True):
        if high > low:
            _add_digit(packed, key, low, high - low + 1)
    dense_id, count = _dense_ids(packed, span)
    return (kept(packed), span) if count == span else (kept(dense_id), count)


def _add_digit(packed: Indices, key: Indices | Mask, low: int, wide: int, by_numpy: bool = False) -> None:
    """Give every number one more digit, that of its key."""
    from taut.core.group_kernels import add_digit

    add = add_digit.plain if by_numpy else add_digit
    over_rows(lambda share: add(packed[share], key[share], low, wide), len(packed))


def _dense_ids(packed: Indices, span: int) -> tuple[Codes, int]:
    """Place of each number among the distinct ones, ascending, and how many there are; numbers are below ``span``."""
    from taut.core.group_kernels import bits_before, dense_ids, mark_numbers, number_places

    if not is_shared() or span * threads_at_work() > len(packed) << 4:  # tables of all shares would be longer than the rows are
        return dense_ids(packed, span)

    def marked(share: slice) -> Ints:
        words = np.zeros((span >> 5) + 1, dtype=np.int64)
        mark_numbers(packed[share], words)
        return words

    words = reduce(np.bitwise_or, over_rows(marked, len(packed)))
    before, count = bits_before(words)
    ids = empty((len(packed),), np.int32)
    over_rows(lambda share: number_places(packed[share], words, before, ids[share]), len(packed))
    return ids, count


def in_groups(group: Indices, groups: int, start: Ints, end: Ints) -> tuple[Codes, Ints]:
    """Rows by group, then start, then end: (order, begin of each group in it)."""
    from taut.core.group_kernels import group_sort, order_groups, sort_groups

    if not is_shared():
        return order_groups(group, groups, start, end)
    order, begin = group_sort(group, groups)
    start, end = np.ascontiguousarray(start), np.ascontiguousarray(end)
    over_groups(lambda share: sort_groups(order, begin[share.start : share.stop + 1], start, end), begin)
    return order, begin


def _extent(key: Indices | Mask) -> tuple[int, int]:
    """The smallest and the largest value of a column with rows."""
    if key.strides == (0,):
        return int(key[0]), int(key[0])
    ends = over_rows(lambda share: (int(key[share].min()), int(key[share].max())), len(key))
    return min(low for low, _ in ends), max(high for _, high in ends)


def taken(values: NDArray[Scalar], rows: Indices) -> NDArray[Scalar]:
    """``values[rows]`` of many rows, all from 0 on."""
    from taut.core.group_kernels import take_rows

    values, out = np.ascontiguousarray(values), empty((len(rows),), values.dtype.type)
    over_rows(lambda share: take_rows(values, rows[share], out[share]), len(rows))
    return out


def positions(found: Ints, values: Indices) -> Indices:
    """Where each value stands among the distinct ones, ascending; without a search where these have no holes."""
    if int(found[-1]) - int(found[0]) == len(found) - 1:
        return values if found[0] == 0 else values - found[0]
    return np.searchsorted(found, values)


def distinct(values: Indices) -> Ints:
    """The distinct values of an integer column, ascending; without sorting where their range is small."""
    from taut.core.group_kernels import first_rows

    if len(values) == 0:
        return np.zeros(0, dtype=np.int64)
    low, high = _extent(values)
    wide, few = high - low + 1, len(values) <= FEW_NUMBERS
    if wide > (FEW_NUMBERS if few else 16 * len(values) + 1024):
        ordered: Ints = np.sort(values).astype(np.int64, copy=False)
        begins: Mask = np.append(True, ordered[1:] != ordered[:-1])
        return ordered[begins]
    if few:
        return np.flatnonzero(np.bincount(np.subtract(values, low, dtype=np.int64))) + low
    return np.flatnonzero(first_rows(values, low, wide) >= 0) + low


def dense(values: Indices) -> tuple[Ints, Ints]:
    """The distinct values of an integer column, ascending, and for each row which of them it holds."""
    ids, count = numbered(values)
    found = np.zeros(count, dtype=np.int64)
    found[ids] = values
    return found, ids


def occurrence(*keys: Indices | Mask) -> Ints:
    """Running number of each row among the rows with the same keys, in row order."""
    from taut.core.group_kernels import turn

    ids, count = numbered(*keys)
    return turn(ids, count)[0].astype(np.int64)


def least(ids: Indices, count: int, values: Indices) -> Ints:
    """Smallest value of each id."""
    from taut.core.group_kernels import extremes

    return extremes(_bounded(ids, values, count), count, values, -1)


def greatest(ids: Indices, count: int, values: Indices) -> Ints:
    """Largest value of each id."""
    from taut.core.group_kernels import extremes

    return extremes(_bounded(ids, values, count), count, values, 1)


def _bounded(ids: Indices, values: Indices, count: int) -> Indices:
    """Ids from 0 on, as kernels take them: negative ones count from the end. Others raise IndexError."""
    if len(ids) != len(values):
        raise ValueError(f"{len(ids)} ids for {len(values)} values")
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
    if low < -count or high >= count:
        raise IndexError(f"ids are not all below {count}")
    return ids if low >= 0 else np.where(ids < 0, ids + count, ids)


def total(values: Indices) -> int:
    """The exact sum of integers, also where it does not fit 64 bits: many ranks for a long time."""
    if len(values) == 0:
        return 0
    most = max(abs(int(values.min())), abs(int(values.max())))
    if most * len(values) < 1 << 63:
        return int(values.sum(dtype=np.int64))
    # High and low halves are summed apart: neither sum overflows.
    return (int((values >> 32).sum(dtype=np.int64)) << 32) + int((values & 0xFFFFFFFF).sum(dtype=np.int64))


def sums(ids: Indices, values: Indices, count: int) -> Ints:
    """The exact sum of the integers of each id, where it fits 64 bits."""
    from taut.core.group_kernels import group_sums

    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if least == most == 0:
        return np.zeros(count, dtype=np.int64)
    add = group_sums.plain if len(values) <= FEW_NUMBERS else group_sums
    return add(_bounded(ids, values, count), count, values)


def rows_of_ids(ids: Indices, count: int, absent: int = 0) -> Ints:
    """The row in which each id stands, the last of several; ``absent`` for ids of no row."""
    rows = np.full(count, absent, dtype=np.int64)
    rows[ids] = np.arange(len(ids))
    return rows


def weighed(ids: Indices, weights: Numbers | Mask, count: int = 0) -> Floats:
    """The sum of the weights of each id, in floating point."""
    return np.asarray(np.bincount(ids, weights=weights, minlength=count), dtype=np.float64)  # numpy types it as integers


def word_ids(column: Texts) -> tuple[Codes, list[str]]:
    """Words as numbers, in order of appearance, and the words; the empty word is -1."""
    ids, words = _few_ids(column) if len(column) <= FEW_WORDS else _many_ids(column)
    if "" in words:
        empty = words.index("")
        ids = np.where(ids == empty, np.int32(-1), ids - (ids > empty)).astype(np.int32)
        words.pop(empty)
    return ids, words


def _few_ids(column: Texts) -> tuple[Codes, list[str]]:
    written = column.tolist()
    words = list(dict.fromkeys(written))
    number = {word: k for k, word in enumerate(words)}
    return np.fromiter(map(number.__getitem__, written), np.int32, len(written)), words


def _many_ids(column: Texts) -> tuple[Codes, list[str]]:
    import pyarrow as pa

    found = pa.array(column, type=pa.string()).dictionary_encode()
    words: list[str] = found.dictionary.to_pylist()
    return found.indices.to_numpy(zero_copy_only=False).astype(np.int32), words
