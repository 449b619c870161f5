"""Held time, what was booked and what energy it took → entries: the rows that lines, categories and drill-downs are sums of.

An entry has its money, its joules and its accelerator time once, so that every sum over entries counts each of them once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Mask, Texts
from taut.core.tables import NULL, Table, col, concat
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.rows import Booked, Held

TIME = "accelerator time"


@dataclass(frozen=True)
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


def entries_of(held: Table, booked: Table, bill: str | None = None) -> Table:
    """Entries of held time with the money of what was booked for it, then what was booked for no held time.

    ``bill`` names the bill that charges are from; None where prices stand for one.
    """
    return concat(Entry, [_of_time(held, booked, bill), _of_charges(booked.take(booked.held < 0), bill)])


def _of_time(held: Table, booked: Table, bill: str | None) -> Table:
    paid = booked.take(booked.held >= 0)
    money, billed = (np.zeros(len(held), dtype=np.int64) for _ in range(2))
    np.add.at(money, paid.held, paid.effective)
    np.add.at(billed, paid.held, paid.billed)
    priced = np.zeros(len(held), dtype=np.int8)
    priced[paid.held] = 1
    columns = {name: held.columns[name] for name in ("fate", "cause", "source", "origin", "job", "team", "host", "rank")}
    return Table(
        Entry,
        columns | {
            "item": np.full(len(held), TIME, dtype=object), "day": _days(held.start_ns, held.end_ns), "rank_ns": held.rank_ns,
            "money": money, "priced": priced, "billed": billed,
        }, len(held),
    )  # fmt: skip


def _of_charges(booked: Table, bill: str | None) -> Table:
    told = "the prices" if bill is None else bill
    return Table(
        Entry,
        {
            "item": booked.item, "host": booked.host, "day": _days(booked.start_ns, booked.end_ns),
            "source": np.where(booked.charge >= 0, "measured", "given").astype(object),
            "origin": np.full(len(booked), told, dtype=object),
            "rank_ns": np.where(booked.item == "idle accelerators", booked.rank_ns, NULL),
            "money": booked.effective, "billed": booked.billed, "priced": np.ones(len(booked), dtype=np.int8),
        }, len(booked),
    )  # fmt: skip


def _days(start: Ints, end: Ints) -> Ints:
    """The day that an interval lies in; -1 for several, or none."""
    first, last = start // DAY_NS, (np.maximum(end, start + 1) - 1) // DAY_NS
    one: Mask = (start >= 0) & (first == last)
    return np.where(one, first, NULL)


def constant(text: str, count: int) -> Texts:
    """A column of one word."""
    return np.full(count, text, dtype=object)


__all__ = ["TIME", "Booked", "Entry", "Held", "constant", "entries_of"]
