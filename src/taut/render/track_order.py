"""Intervals on tracks: which of them lie side by side, and the order of the events that draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Ints
from taut.core.jit import kernel
from taut.core.tables import NULL

if TYPE_CHECKING:
    from taut.core.tables import Array

BEGIN, WORK, WORKED, END = 0, 1, 2, 3
"""Events of a row: it begins; if it was held up, its work begins and ends; it ends."""


def in_order(
    track: Array, start_ns: Array, end_ns: Array, opening_ns: Array | None = None, opener: Array | None = None
) -> tuple[Array, Array, Array]:
    """Row, kind and time of every event, in the order of time.

    Events of one track that fall on one nanosecond keep their order; across tracks an opener begins before the work
    that it held up.
    """
    order = np.lexsort((end_ns, start_ns, track))
    after = np.arange(len(order))
    count = np.full(len(order), 2)
    if opener is not None:
        after = np.maximum(after, opener)
        count[opener != NULL] = 4
    rows = np.repeat(order, count[order])
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(count[order]) - count[order], count[order])
    events = np.where(count[rows] == 4, nth, nth * END)
    opening_ns = start_ns if opening_ns is None else opening_ns
    at_ns = np.choose(events, [times[rows] for times in (start_ns, opening_ns, end_ns, end_ns)])
    turn = np.where(events == BEGIN, 2 * rows, 2 * after[rows] + 1)
    tracks = np.cumsum(np.diff(track[rows], prepend=track[rows][:1]) != 0) * 2 * len(order)
    turn = np.maximum.accumulate(turn + tracks) - tracks
    by_time = np.lexsort((turn, at_ns))
    return rows[by_time], events[by_time], at_ns[by_time]


@kernel(lists=True)
def side_by_side(place: Ints, start: Ints, end: Ints, by_end: Ints) -> Ints:
    """Which of the parallel tracks of its place each row takes: the one that was freed last, else a new one.

    Rows come in the order of place, start, end; ``by_end`` lists them in the order of place, end, row.
    """
    n = len(start)
    out = np.full(n, -1, np.int64)
    free = np.empty(n, np.int64)
    done = frees = tracks = 0
    for i in range(n):
        if i == 0 or place[i] != place[i - 1]:
            done = i
            frees = tracks = 0
        while done < n and place[by_end[done]] == place[i] and end[by_end[done]] <= start[i] and out[by_end[done]] >= 0:
            free[frees] = out[by_end[done]]
            frees += 1
            done += 1
        if frees:
            frees -= 1
            out[i] = free[frees]
        else:
            out[i] = tracks
            tracks += 1
    return out


def beside(place: Array, start_ns: Array, end_ns: Array) -> Array:
    """How many tracks of its place lie before that of each row, such that no two rows of a track overlap."""
    order = np.lexsort((end_ns, start_ns, place))
    row = np.argsort(order)
    by_end = row[np.lexsort((row, end_ns, place))]
    return side_by_side(place[order], start_ns[order], end_ns[order], by_end)[row]
