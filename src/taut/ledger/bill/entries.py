"""Held time, what was booked and what energy it took → entries: the rows that lines, categories and drill-downs are sums of.

An entry has its money, its joules and its accelerator time once, so that every sum over entries counts each of them once.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask, Texts
from taut.core.ids import sums
from taut.core.tables import NULL, Table, col, concat
from taut.ledger.bill.day_parts import in_days
from taut.ledger.bill.idle_days import idle_by_day
from taut.ledger.bill.period import DAY_NS

TIME, IDLE = "accelerator time", "idle accelerators"
UNCHARGED = {
    "missing": "used without a charge, at what its host costs otherwise",
    "open": "used without a charge yet, at what its host costs otherwise",
    "host": "on a host that the bill does not have, at the price given, else at what others cost",
    "tolerance": "used minutes beyond its charge",
}
"""Why something that was used has no charge → from what its money is."""


class Entry:
    """One row of a bill before it is summed up."""

    item: str = col("str", "what is paid for: a word of bill.categories.ITEMS", "")
    fate: str = col("str", "fate of the ledger; empty outside its cells", "")
    cause: str = col("str", "finding, controller or end of an attempt; empty for none", "")
    source: str = col("str", "measured, modelled or given", "given")
    origin: str = col("str", "from what", "")
    job: str = col("str", "id of the job; empty for none", "")
    team: str = col("str", "who is shown its cost; empty if nobody told", "")
    host: str = col("str", "host; empty for none", "")
    rank: int = col("int32", "participant of a traced job; -1 for none")
    day: int = col("int32", "day since 1970 in UTC; -1 if it belongs to none, or to several")
    rank_ns: int = col("int64", "accelerator time, ns; -1 outside the cells")
    money: int = col("int64", "effective cost, in units of the bill", 0)
    priced: int = col("int8", "1 if money is known, 0 if not", 0)
    billed: int = col("int64", "billed cost, in units of the bill", 0)
    joules: float = col("float64", "energy; NaN for none", np.nan)
    kg_co2e: float = col("float64", "carbon, kg; NaN for none", np.nan)


def entries_of(
    held: Table, booked: Table, uncharged: Table, bill: str | None, prices: str, teams: Texts | None = None
) -> Table:
    """Entries of held time with the money of what was booked for it, then what was booked for no held time.

    ``bill`` names the bill that charges are from, ``prices`` what stands for it where there is none; what was used without a
    charge (``Uncharged``) has entries of its own. ``teams`` are those of charges, by their tags.
    """
    in_parts = idle_by_day(booked)
    alone = in_parts.take(in_parts.held < 0)
    return concat(Entry, [_of_time(held, booked), _of_charges(alone, bill or prices, teams), _of_uncharged(held, uncharged)])


def _of_time(held: Table, booked: Table) -> Table:
    paid = booked.take(booked.held >= 0)
    money, billed = (sums(paid.held, amount, len(held)) for amount in (paid.effective, paid.billed))
    priced = np.zeros(len(held), dtype=np.int8)
    priced[paid.held] = 1
    columns = {name: held.columns[name] for name in ("fate", "cause", "source", "origin", "job", "team", "host", "rank")}
    return Table(
        Entry,
        columns
        | {
            "item": np.full(len(held), TIME, dtype=object),
            "day": days_of(held.start_ns, held.end_ns),
            "rank_ns": held.rank_ns,
            "money": money,
            "priced": priced,
            "billed": billed,
        },
        len(held),
    )


def _of_charges(booked: Table, told: str, teams: Texts | None) -> Table:
    team = np.full(len(booked), "", dtype=object)
    if teams is not None and len(teams):
        team = np.where(booked.charge >= 0, teams[np.maximum(booked.charge, 0)], "").astype(object)
    rows = Table(
        Entry,
        {
            "item": booked.item,
            "team": team,
            "host": booked.host,
            "day": days_of(booked.start_ns, booked.end_ns),
            "source": np.where(booked.charge >= 0, "measured", "given").astype(object),
            "origin": np.full(len(booked), told, dtype=object),
            "rank_ns": np.where(booked.item == IDLE, booked.rank_ns, NULL),
            "money": booked.effective,
            "billed": booked.billed,
            "priced": np.ones(len(booked), dtype=np.int8),
        },
        len(booked),
    )
    return in_days(rows, booked.start_ns, booked.end_ns)


def _of_uncharged(held: Table, uncharged: Table) -> Table:
    """What was used and is not in the bill, at what it would have cost; its time stands with the held rows already."""
    some = uncharged.take(uncharged.effective != 0)
    if not len(some):
        return Table(Entry, {}, 0)
    mine = np.maximum(some.held, 0)
    used = some.held >= 0
    empty = np.full(len(some), "", dtype=object)
    whose = {
        name: np.where(used, held.columns[name][mine], empty) if len(held) else empty
        for name in ("fate", "cause", "job", "team")
    }
    rows = Table(
        Entry,
        whose
        | {
            "item": np.where(used, TIME, IDLE).astype(object),
            "host": some.host,
            "day": days_of(some.start_ns, some.end_ns),
            "origin": np.array([UNCHARGED[why] for why in some.why.tolist()], dtype=object),
            "rank_ns": np.where(used, NULL, some.rank_ns),
            "money": some.effective,
            "priced": np.ones(len(some), dtype=np.int8),
        },
        len(some),
    )
    return in_days(rows, some.start_ns, some.end_ns)


def days_of(start: Ints, end: Ints) -> Ints:
    """The day that an interval lies in; -1 for several, or none."""
    first, last = start // DAY_NS, (np.maximum(end, start + 1) - 1) // DAY_NS
    one: Mask = (start >= 0) & (first == last)
    return np.where(one, first, NULL)
