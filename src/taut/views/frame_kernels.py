"""Kernels of the timeline: what rows do piece by piece, cells of a frame, and the ops that lie in one.

A piece of a row is a stretch of time in which it does one thing: ``begin << 4 | code``, up to the begin of the next. The last
piece of a row begins where the axis ends.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Indices, Ints, Letters, Mask
from taut.core.jit import kernel, numpy_twin_of_kernel

IDLE, NOTHING = 10, 15
"""Codes of a row that does nothing in a segment, and of what no segment covers."""
WAITING = 3
"""Level of a wait among the levels of work; the least level of all lanes shows."""
BLOCK = 64
"""Ops of a row of which the last end is kept together."""
STRIDE = 16
"""Codes that a column has room for."""


@kernel(lists=True)
def flattened(
    first: Ints,
    order: Indices,
    zero: Ints,
    window: Indices,
    start: Ints,
    end: Ints,
    work: Ints,
    lane: Indices,
    lanes: int,
    state: Letters,
    wait: Letters,
    level: Ints,
    opens: Ints,
    closes: Ints,
    wall: int,
) -> tuple[Ints, Ints]:
    """What each row does: (its pieces, the first piece of each row and how many there are).

    Ops order[first[r]:first[r+1]] of row r come by arrival. The least level of all lanes counts, of equals the op with the
    lowest number, as in the ledger; idle is what lies in a stretch ``opens`` … ``closes``, nothing what lies in none.
    """
    rows = len(first) - 1
    out = np.empty(3 * len(order) + rows * (2 * len(opens) + 2), np.int64)
    begin = np.zeros(rows + 1, np.int64)
    current = np.full(lanes, -1, np.int64)
    count = 0
    for row in range(rows):
        begin[row] = count
        current[:] = -1
        now, i, hi, used, told, k = 0, first[row], first[row + 1], 0, -1, 0
        while now < wall:  # from one change to the next: an arrival, an opening or an end
            while i < hi and zero[window[order[i]]] + start[order[i]] <= now:
                v = order[i]
                if zero[window[v]] + end[v] > now:
                    current[lane[v]] = v
                    used = max(used, lane[v] + 1)
                i += 1
            until = min(wall, zero[window[order[i]]] + start[order[i]]) if i < hi else wall
            best, best_level, code = -1, 9, IDLE
            for slot in range(used):
                v = current[slot]
                if v < 0:
                    continue
                stop = zero[window[v]] + end[v]
                if stop <= now:
                    current[slot] = -1
                    continue
                opening = stop - work[v]
                what = WAITING if now < opening else level[state[v]]
                until = min(until, opening if now < opening else stop)
                if what < best_level or (what == best_level and v < best):
                    best, best_level = v, what
                    code = wait[v] if now < opening else state[v]
            if best < 0:
                while k < len(opens) and closes[k] <= now:
                    k += 1
                if k == len(opens) or now < opens[k]:
                    code = NOTHING
                    until = min(until, opens[k] if k < len(opens) else wall)
                else:
                    until = min(until, closes[k])
            if code != told:
                out[count] = now << 4 | code
                count += 1
                told = code
            now = until
        out[count] = wall << 4 | NOTHING
        count += 1
    begin[rows] = count
    return out[:count].copy(), begin


@kernel(lists=True)
def at_or_before(pieces: Ints, lo: int, hi: int, ns: int) -> int:
    """The last piece of lo … hi − 1 that begins no later; the first where none does."""
    while hi - lo > 1:
        middle = (lo + hi) // 2
        if pieces[middle] >> 4 <= ns:
            lo = middle
        else:
            hi = middle
    return lo


@numpy_twin_of_kernel
def painted_plain(
    pieces: Ints, first: Ints, first_row: int, rows: int, begin: int, end: int, columns: int, lines: int
) -> Letters:
    """``painted`` by numpy."""
    out = np.full((lines, columns), -1, np.int8)
    count = columns if columns <= end - begin else end - begin  # columns of less than a nanosecond repeat their neighbours
    lefts = np.array([begin + c * (end - begin) // count for c in range(count + 1)])
    repeated = np.arange(columns) * count // columns
    for line in range(lines):
        held = np.zeros((count, STRIDE), np.int64)
        for row in range(first_row + line * rows // lines, first_row + (line + 1) * rows // lines):
            mine = pieces[first[row] : first[row + 1]]
            times = np.unique(np.concatenate([lefts, np.clip(mine >> 4, begin, end)]))
            code = mine[np.searchsorted(mine >> 4, times[:-1], side="right") - 1] & 15
            column = np.searchsorted(lefts, times[:-1], side="right") - 1
            np.add.at(held, (column, code), np.diff(times))
        known = held[:, :NOTHING]
        out[line] = np.where(known.any(axis=1), known.argmax(axis=1), -1)[repeated]
    return out


@kernel(plain=painted_plain)
def painted(pieces: Ints, first: Ints, first_row: int, rows: int, begin: int, end: int, columns: int, lines: int) -> Letters:
    """Lines × columns: the code that holds most of the time, of equals the lowest; -1 where nothing is.

    Column c shows begin + ⌊c · span / columns⌋ up to the next one's, at least a nanosecond; lines share out rows likewise.
    """
    out = np.full((lines, columns), -1, np.int8)
    step, rest = (end - begin) // columns, (end - begin) % columns
    held = np.empty(columns * STRIDE, np.int64)
    for line in range(lines):
        held[:] = 0
        for row in range(first_row + line * rows // lines, first_row + (line + 1) * rows // lines):
            i = at_or_before(pieces, first[row], first[row + 1], begin)
            code, until = pieces[i] & 15, pieces[i + 1] >> 4
            left, carried = begin, 0
            for c in range(columns):
                right = left + step
                carried += rest  # what rounding down has lost so far, in parts of a column
                if carried >= columns:
                    carried -= columns
                    right += 1
                shown = max(right, left + 1)
                at = left
                while until < shown:
                    held[c * STRIDE + code] += until - at
                    at = until
                    i += 1
                    code, until = pieces[i] & 15, pieces[i + 1] >> 4
                held[c * STRIDE + code] += shown - at
                if until <= right and c + 1 < columns:
                    i += 1
                    code, until = pieces[i] & 15, pieces[i + 1] >> 4
                left = right
        for c in range(columns):
            most = 0
            for code in range(NOTHING):
                if held[c * STRIDE + code] > most:
                    most = held[c * STRIDE + code]
                    out[line, c] = code
    return out


@kernel(lists=True)
def last_ends(first: Ints, order: Indices, zero: Ints, window: Indices, end: Ints) -> tuple[Ints, Ints]:
    """(Last end among each BLOCK ops of a row, the first block of each row and how many there are)."""
    rows = len(first) - 1
    begin = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        begin[row + 1] = begin[row] + (first[row + 1] - first[row] + BLOCK - 1) // BLOCK
    out = np.full(begin[rows], -(1 << 62), np.int64)
    for row in range(rows):
        for i in range(first[row], first[row + 1]):
            b = begin[row] + (i - first[row]) // BLOCK
            out[b] = max(out[b], zero[window[order[i]]] + end[order[i]])
    return out, begin


@kernel(lists=True)
def arrived(order: Indices, lo: int, hi: int, zero: Ints, window: Indices, start: Ints, ns: int) -> int:
    """The first of the places lo … hi − 1 whose op arrives at this time or later; hi where none does."""
    while lo < hi:
        middle = (lo + hi) // 2
        if zero[window[order[middle]]] + start[order[middle]] < ns:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel(lists=True)
def in_view(
    first: Ints,
    order: Indices,
    zero: Ints,
    window: Indices,
    start: Ints,
    end: Ints,
    ends: Ints,
    blocks: Ints,
    first_row: int,
    rows: int,
    begin: int,
    stop: int,
    most: int,
) -> tuple[Ints, int]:
    """(Ops of some rows between two times, row by row, how many there are); none where there are more than ``most``."""
    found = np.empty(most + 1, np.int64)
    count = 0
    for row in range(first_row, first_row + rows):
        lo = arrived(order, first[row], first[row + 1], zero, window, start, begin)
        hi = arrived(order, first[row], first[row + 1], zero, window, start, stop)
        if count + hi - lo > most:
            return found[:0].copy(), most + 1
        for b in range(blocks[row], blocks[row] + (lo - first[row] + BLOCK - 1) // BLOCK):
            if ends[b] <= begin:
                continue
            i = first[row] + (b - blocks[row]) * BLOCK
            for place in range(i, min(i + BLOCK, lo)):
                v = order[place]
                if zero[window[v]] + end[v] > begin:
                    if count == most:
                        return found[:0].copy(), most + 1
                    found[count] = v
                    count += 1
        if count + hi - lo > most:
            return found[:0].copy(), most + 1
        for place in range(lo, hi):
            found[count] = order[place]
            count += 1
    return found[:count].copy(), count


@kernel(lists=True)
def meeting(gates: Ints, first: Ints, members: Indices, row: Ints, first_row: int, rows: int) -> Mask:
    """Per gate of some: whether one of its members, which come by row, is among some rows."""
    out = np.zeros(len(gates), np.bool_)
    for k in range(len(gates)):
        lo, hi = first[gates[k]], first[gates[k] + 1]
        stop = hi
        while lo < hi:  # the first member from first_row on
            middle = (lo + hi) // 2
            if row[members[middle]] < first_row:
                lo = middle + 1
            else:
                hi = middle
        out[k] = lo < stop and row[members[lo]] < first_row + rows
    return out
