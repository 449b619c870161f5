"""Rows in groups, by kernels: running numbers, counting sorts, order inside a group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Codes, Floats, Indices, Ints, Numbers
from taut.core.jit import kernel, numpy_twin_of_kernel


@numpy_twin_of_kernel
def turn_plain(ids: Indices, count: int) -> tuple[Codes, Codes]:
    """``turn`` by numpy."""
    order, begin = group_sort_plain(ids, count)
    nth = np.empty(len(ids), np.int32)
    nth[order] = np.arange(len(ids)) - begin[ids[order]]
    return nth, np.diff(begin).astype(np.int32)


@numpy_twin_of_kernel
def group_sort_plain(cell: Indices, cells: int) -> tuple[Codes, Ints]:
    """``group_sort`` by numpy."""
    begin = np.zeros(cells + 1, np.int64)
    np.cumsum(np.bincount(cell, minlength=cells), out=begin[1:])
    return np.argsort(cell, kind="stable").astype(np.int32), begin


@kernel(plain=turn_plain)
def turn(ids: Indices, count: int) -> tuple[Codes, Codes]:
    """(running number of each row among those with its id, rows per id)."""
    rows = np.zeros(count, np.int32)
    nth = np.empty(len(ids), np.int32)
    for i in range(len(ids)):
        nth[i] = rows[ids[i]]
        rows[ids[i]] += 1
    return nth, rows


@kernel(plain=group_sort_plain)
def group_sort(cell: Indices, cells: int) -> tuple[Codes, Ints]:
    """Counting sort: (order, begin of each cell in it)."""
    begin = np.zeros(cells + 1, np.int64)
    for c in cell:
        begin[c + 1] += 1
    for c in range(cells):
        begin[c + 1] += begin[c]
    fill = begin[:-1].copy()  # where the next row of each cell goes
    order = np.empty(len(cell), np.int32)
    for i in range(len(cell)):
        order[fill[cell[i]]] = i
        fill[cell[i]] += 1
    return order, begin


@numpy_twin_of_kernel
def take_rows_plain(values: NDArray[Any], rows: Indices, out: NDArray[Any]) -> int:
    """``take_rows`` by numpy."""
    out[:] = values[rows]
    return len(rows)


@kernel(plain=take_rows_plain)
def take_rows(values: NDArray[Any], rows: Indices, out: NDArray[Any]) -> int:
    """Write the values of some rows, all from 0 on (numpy would first copy the rows into 64 bits); returns how many."""
    for k in range(len(rows)):
        out[k] = values[rows[k]]
    return len(rows)


@numpy_twin_of_kernel
def add_digit_plain(packed: Indices, digit: Indices, low: int, wide: int) -> int:
    """``add_digit`` by numpy."""
    packed *= packed.dtype.type(wide)
    packed += np.subtract(digit, low, dtype=np.int64).astype(packed.dtype)
    return len(packed)


@kernel(plain=add_digit_plain)
def add_digit(packed: Indices, digit: Indices, low: int, wide: int) -> int:
    """Give every number one more digit, of ``wide`` values from ``low`` on; returns how many numbers these are."""
    for i in range(len(packed)):
        packed[i] = packed[i] * wide + (np.int64(digit[i]) - low)
    return len(packed)


@numpy_twin_of_kernel
def dense_ids_plain(packed: Indices, span: int) -> tuple[Codes, int]:
    """``dense_ids`` by numpy."""
    present = np.zeros(span, dtype=bool)
    present[packed] = True
    dense = np.cumsum(present, dtype=np.int32)
    return dense[packed] - np.int32(1), int(dense[-1])


@kernel()
def set_bits(word: int) -> int:
    """How many of the lowest 32 bits of a number are set; it has no others."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) & 0xFFFFFFFF) >> 24


@kernel()
def mark_numbers(packed: Indices, words: Ints) -> int:
    """Set the bits of numbers from 0 on, 32 of them in a word; returns how many numbers these are."""
    for i in range(len(packed)):
        at = np.int64(packed[i])
        words[at >> 5] |= np.int64(1) << (at & 31)
    return len(packed)


@kernel()
def bits_before(words: Ints) -> tuple[Codes, int]:
    """(Bits that are set before each word, how many are set)."""
    before = np.empty(len(words), np.int32)
    count = 0
    for w in range(len(words)):
        before[w] = count
        count += set_bits(words[w])
    return before, count


@kernel()
def number_places(packed: Indices, words: Ints, before: Codes, ids: Codes) -> int:
    """Write how many bits are set below that of each number; returns how many numbers these are."""
    for i in range(len(packed)):
        at = np.int64(packed[i])
        ids[i] = before[at >> 5] + set_bits(words[at >> 5] & ((np.int64(1) << (at & 31)) - 1))
    return len(packed)


@kernel(plain=dense_ids_plain)
def dense_ids(packed: Indices, span: int) -> tuple[Codes, int]:
    """(Place of each number among the distinct ones, ascending, how many there are), of numbers from 0 on and below ``span``.

    A bit for every number that may occur: of a table of places 32 times as much would be written and read.
    """
    words = np.zeros((span >> 5) + 1, np.int64)
    mark_numbers(packed, words)
    before, count = bits_before(words)
    ids = np.empty(len(packed), np.int32)
    number_places(packed, words, before, ids)
    return ids, count


@numpy_twin_of_kernel
def extremes_plain(ids: Indices, count: int, values: Indices, sign: int) -> Ints:
    """``extremes`` by numpy."""
    limits = np.iinfo(np.int64)
    out = np.full(count, limits.min if sign > 0 else limits.max)
    (np.maximum if sign > 0 else np.minimum).at(out, ids, values)
    return out


@kernel(plain=extremes_plain)
def extremes(ids: Indices, count: int, values: Indices, sign: int) -> Ints:
    """The largest value of each id, or with a negative sign the smallest."""
    if sign > 0:
        out = np.full(count, -(1 << 63), np.int64)
        for i in range(len(ids)):
            out[ids[i]] = max(out[ids[i]], values[i])
    else:
        out = np.full(count, (1 << 63) - 1, np.int64)
        for i in range(len(ids)):
            out[ids[i]] = min(out[ids[i]], values[i])
    return out


@numpy_twin_of_kernel
def group_sums_plain(ids: Indices, count: int, values: Indices) -> Ints:
    """``group_sums`` by numpy."""
    out = np.zeros(count, np.int64)
    np.add.at(out, ids, values)
    return out


@kernel(plain=group_sums_plain)
def group_sums(ids: Indices, count: int, values: Indices) -> Ints:
    """The sum of the values of each id."""
    out = np.zeros(count, np.int64)
    for i in range(len(ids)):
        out[ids[i]] += values[i]
    return out


@numpy_twin_of_kernel
def table_sums_plain(row: Indices, rows: int, column: Indices, columns: int, values: Numbers) -> Floats:
    """``table_sums`` by numpy."""
    cell = row.astype(np.int64) * columns + column
    return np.asarray(np.bincount(cell, weights=values, minlength=rows * columns), dtype=np.float64)


@kernel(plain=table_sums_plain)
def table_sums(row: Indices, rows: int, column: Indices, columns: int, values: Numbers) -> Floats:
    """The sum of the values of each cell of a table, in floating point, row after row."""
    out = np.zeros(rows * columns, np.float64)
    for i in range(len(values)):
        out[row[i] * columns + column[i]] += values[i]
    return out


@numpy_twin_of_kernel
def table_totals_plain(row: Indices, rows: int, column: Indices, columns: int, values: Ints) -> Ints:
    """``table_totals`` by numpy."""
    out = np.zeros(rows * columns, np.int64)
    np.add.at(out, row.astype(np.int64) * columns + column, values)
    return out


@kernel(plain=table_totals_plain)
def table_totals(row: Indices, rows: int, column: Indices, columns: int, values: Ints) -> Ints:
    """The exact sum of the values of each cell of a table, row after row."""
    out = np.zeros(rows * columns, np.int64)
    for i in range(len(values)):
        out[row[i] * columns + column[i]] += values[i]
    return out


@numpy_twin_of_kernel
def first_rows_plain(ids: Indices, low: int, count: int) -> Ints:
    """``first_rows`` by numpy."""
    first = np.full(count, -1, np.int64)
    first[ids[::-1] - low] = np.arange(len(ids))[::-1]
    return first


@kernel(plain=first_rows_plain)
def first_rows(ids: Indices, low: int, count: int) -> Ints:
    """The first row of each of so many ids from ``low`` on, -1 where there is none."""
    first = np.full(count, -1, np.int64)
    for i in range(len(ids)):
        if first[ids[i] - low] < 0:
            first[ids[i] - low] = i
    return first


@numpy_twin_of_kernel
def add_at_plain(out: Ints, ids: Indices, rows: Indices, values: Ints) -> int:
    """``add_at`` by numpy."""
    np.add.at(out, ids[rows], values)
    return len(rows)


@kernel(plain=add_at_plain)
def add_at(out: Ints, ids: Indices, rows: Indices, values: Ints) -> int:
    """Add the values of some rows to the sums of their ids; returns how many rows these are."""
    for k in range(len(rows)):
        out[ids[rows[k]]] += values[k]
    return len(rows)


@numpy_twin_of_kernel
def order_groups_plain(group: Indices, groups: int, start: Ints, end: Ints) -> tuple[Codes, Ints]:
    """``order_groups`` by numpy."""
    begin = np.zeros(groups + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=groups), out=begin[1:])
    return np.lexsort((end, start, group)).astype(np.int32), begin


FEW_ROWS = 24
"""Groups up to this size are sorted by insertion alone."""


@numpy_twin_of_kernel
def sort_groups_plain(order: Codes, begin: Ints, start: Ints, end: Ints) -> int:
    """``sort_groups`` by numpy."""
    mine = order[begin[0] : begin[-1]]
    group = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    mine[:] = mine[np.lexsort((end[mine], start[mine], group))]
    return len(mine)


@kernel(plain=sort_groups_plain)
def sort_groups(order: Codes, begin: Ints, start: Ints, end: Ints) -> int:
    """Put the rows of each group in the order of start, then end, in place; returns how many rows these are."""
    for g in range(len(begin) - 1):
        lo, hi = begin[g], begin[g + 1]
        # Large groups are sorted by start unless they are in order already; the insertion sort that follows then only
        # settles equal starts, and is linear.
        if hi - lo > FEW_ROWS:
            tidy = True
            for k in range(lo + 1, hi):
                if start[order[k]] < start[order[k - 1]]:
                    tidy = False
                    break
            if not tidy:
                mine = order[lo:hi]
                order[lo:hi] = mine[np.argsort(start[mine], kind="mergesort")]
        for k in range(lo + 1, hi):
            v = order[k]
            j = k
            while j > lo:
                u = order[j - 1]
                if start[u] < start[v] or (start[u] == start[v] and end[u] <= end[v]):
                    break
                order[j] = u
                j -= 1
            order[j] = v
    return int(begin[len(begin) - 1] - begin[0])  # kernels take no negative index


@kernel(plain=order_groups_plain)
def order_groups(group: Indices, groups: int, start: Ints, end: Ints) -> tuple[Codes, Ints]:
    """Rows by group, then start, then end: (order, begin of each group in it)."""
    order, begin = group_sort(group, groups)
    sort_groups(order, begin, start, end)
    return order, begin
