"""Rows of held time cut at moments: at midnights, at the borders of a period, where a trace begins and ends.

Of a row with a begin, accelerator time is accelerators × length, before and after.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut.core.array_types import Ints
from taut.core.tables import Table
from taut.ledger.bill.period import DAY_NS, Period


def cut_at(held: Table, borders: Ints) -> Table:
    """The rows, each cut at all of some ascending moments that lie inside it."""
    start, end = held.start_ns, held.end_ns
    first = np.searchsorted(borders, start, side="right")
    count = np.where(start >= 0, np.maximum(np.searchsorted(borders, end, side="left") - first, 0), 0) + 1
    if (count == 1).all():
        return held
    return _pieces(held, count, lambda row, turn: borders[first[row] + turn])


def cut_at_days(held: Table) -> Table:
    """The rows, each cut at the midnights (UTC) inside it."""
    first = held.start_ns // DAY_NS + 1
    count = np.where(held.start_ns >= 0, np.maximum(-(-held.end_ns // DAY_NS) - first, 0), 0) + 1
    if (count == 1).all():
        return held
    return _pieces(held, count, lambda row, turn: (first[row] + turn) * DAY_NS)


def inside(held: Table, period: Period) -> Table:
    """What lies inside a period, rows cut at its borders; rows without a date stay."""
    cut = cut_at(held, np.array(period, dtype=np.int64))
    return cut.take((cut.start_ns < 0) | ((cut.start_ns >= period[0]) & (cut.end_ns <= period[1])))


def _pieces(held: Table, count: Ints, border: Callable[[Ints, Ints], Ints]) -> Table:
    """Every row in so many pieces; ``border`` tells the end of a row's piece, by its place from 0, unless it is the last."""
    row = np.repeat(np.arange(len(held)), count)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    inner = np.flatnonzero(turn < count[row] - 1)
    end = held.end_ns[row].copy()
    end[inner] = border(row[inner], turn[inner])
    start = held.start_ns[row].copy()
    start[inner + 1] = end[inner]
    cut = held.take(row)
    timed = start >= 0
    rank_ns = np.where(timed, cut.accelerators.astype(np.int64) * (end - start), cut.rank_ns)
    share = (end - start) / np.maximum(cut.end_ns - cut.start_ns, 1)
    return cut.replace(start_ns=start, end_ns=end, rank_ns=rank_ns, joules=np.where(timed, cut.joules * share, cut.joules))
