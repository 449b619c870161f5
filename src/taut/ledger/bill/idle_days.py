"""Idle parts of charges that last for several days, put into the days in which nobody held what is charged.

A charge for a host costs the same in every moment: what is idle of it on a day is the day's part of the charge less what was
held then. Where more was held on some day than that comes to, the host was on for a part of the time only, nobody tells when,
and the idle part stays whole, to be divided by time.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.exact_parts import ManyShares
from taut.core.tables import Table, concat
from taut.ledger.bill.day_parts import MOST_DAYS
from taut.ledger.bill.period import DAY_NS

IDLE = "idle accelerators"


def idle_by_day(booked: Table) -> Table:
    """The booked rows, with idle ones of several days cut at midnights where it is known how much of them is in each day."""
    first, last = booked.start_ns // DAY_NS, (booked.end_ns - 1) // DAY_NS
    wide = (booked.item == IDLE) & (booked.charge >= 0) & (booked.start_ns >= 0) & (last > first) & (last - first < MOST_DAYS)
    idle = np.flatnonzero(wide & (booked.effective > 0))
    if not len(idle):
        return booked
    days = (last - first + 1)[idle]
    begin = np.cumsum(days) - days
    row = np.repeat(np.arange(len(idle)), days)
    day = first[idle][row] + np.arange(len(row)) - begin[row]
    left, fits = _left(booked, idle, begin, row, day)
    return _cut(booked, idle, fits, row, day, left)


def _left(booked: Table, idle: Ints, begin: Ints, row: Ints, day: Ints) -> tuple[Floats, Mask]:
    """What of each day is idle, in units of money, and the idle rows for which none comes to less than nothing."""
    place = np.full(int(booked.charge.max(initial=-1)) + 2, -1, dtype=np.int64)  # the last is that of no charge
    place[booked.charge[idle]] = np.arange(len(idle))
    of = place[booked.charge]
    used = np.flatnonzero((booked.held >= 0) & (of >= 0))
    mine = of[used]
    at = begin[mine] + booked.start_ns[used] // DAY_NS - booked.start_ns[idle][mine] // DAY_NS
    inside = booked.start_ns[used] // DAY_NS == (booked.end_ns[used] - 1) // DAY_NS
    inside &= (booked.start_ns[used] >= booked.start_ns[idle][mine]) & (booked.end_ns[used] <= booked.end_ns[idle][mine])
    taken = np.bincount(at[inside], booked.effective[used][inside], minlength=len(row))
    whole = booked.effective[idle] + np.bincount(mine, booked.effective[used], minlength=len(idle))
    low, high = _bounds(booked, idle, row, day)
    length = (booked.end_ns - booked.start_ns)[idle]
    left = whole[row] * ((high - low) / length[row]) - taken
    fits = np.ones(len(idle), dtype=np.bool_)
    fits[mine[~inside]] = False
    fits[row[left < -1e-6 * whole[row] - np.bincount(mine, minlength=len(idle))[row]]] = False  # beyond rounding
    return np.maximum(left, 0), fits


def _bounds(booked: Table, idle: Ints, row: Ints, day: Ints) -> tuple[Ints, Ints]:
    return np.maximum(booked.start_ns[idle][row], day * DAY_NS), np.minimum(booked.end_ns[idle][row], (day + 1) * DAY_NS)


def _cut(booked: Table, idle: Ints, fits: Mask, row: Ints, day: Ints, left: Floats) -> Table:
    """Rows that fit in parts by day, which add up to them exactly."""
    some = fits[row]
    kept = np.ones(len(booked), dtype=np.bool_)
    kept[idle[fits]] = False
    if not some.any():
        return booked
    low, high = _bounds(booked, idle, row, day)
    mine = row[some]
    shares = ManyShares(np.rint(left[some]).astype(np.int64), np.flatnonzero(np.diff(mine, prepend=-1)))
    whole = booked.take(idle[fits])
    amounts = {name: shares.of_units(whole.columns[name]) for name in ("effective", "billed", "rank_ns")}
    parts = booked.take(idle[mine]).replace(start_ns=low[some], end_ns=high[some], **amounts)
    return concat(booked.row, [booked.take(kept), parts])
