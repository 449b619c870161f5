"""Entries whose charge lasts for several days, day by day: money and time in proportion to the part of it in each day.

Entries that are alike but for their amounts are added up first, so that a month of many small charges stays small.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.exact_parts import ManyShares
from taut.core.ids import numbered, rows_of_ids, sums, word_ids
from taut.core.tables import Table, concat
from taut.ledger.bill.period import DAY_NS

MOST_DAYS = 400
"""Charges of more days than a year has, and a month, stay undivided: their dates are rather wrong."""
WORDS = ("item", "fate", "cause", "source", "origin", "job", "team", "host")
AMOUNTS = ("money", "billed", "rank_ns")


def in_days(entries: Table, start_ns: Ints, end_ns: Ints) -> Table:
    """The entries, those of several days in parts that add up to them exactly; entries without time stay as they are."""
    first, last = start_ns // DAY_NS, (end_ns - 1) // DAY_NS
    several = (start_ns >= 0) & (last > first) & (last - first < MOST_DAYS)
    if not several.any():
        return entries
    some, start, end = entries.take(several), start_ns[several], end_ns[several]
    codes = [word_ids(some.columns[name])[0] for name in WORDS]
    group, count = numbered(*codes, some.rank, some.rank_ns >= 0, some.priced, start, end)
    example = rows_of_ids(group, count)
    return concat(entries.row, [entries.take(~several), _parts(_summed(some, group, example), start[example], end[example])])


def _summed(some: Table, group: Ints, example: Ints) -> Table:
    """One entry for each group; time outside the cells stays marked as such."""
    amounts = {name: sums(group, some.columns[name], len(example)) for name in AMOUNTS}
    inside = some.rank_ns[example] >= 0
    amounts["rank_ns"] = np.where(inside, amounts["rank_ns"], some.rank_ns[example])
    return some.take(example).replace(**amounts)


def _parts(whole: Table, start: Ints, end: Ints) -> Table:
    first = start // DAY_NS
    days = (end - 1) // DAY_NS - first + 1
    begin = np.cumsum(days) - days
    row = np.repeat(np.arange(len(whole)), days)
    day = first[row] + np.arange(len(row)) - begin[row]
    length = np.minimum(end[row], (day + 1) * DAY_NS) - np.maximum(start[row], day * DAY_NS)
    inside = whole.rank_ns >= 0
    shares = ManyShares(length, begin)
    amounts = {name: shares.of_units(whole.columns[name]) for name in ("money", "billed")}
    time = np.where(inside[row], shares.of_units(np.where(inside, whole.rank_ns, 0)), whole.rank_ns[row])
    return whole.take(row).replace(day=day, rank_ns=time, **amounts)
