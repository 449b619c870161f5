"""Charges for accelerators divided over what was held on their host meanwhile; what nobody held is idle."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.exact_parts import MOST, ManyShares
from taut.core.ids import numbered, rows_of_ids
from taut.core.tables import Table
from taut.ledger.bill.charge_items import CODE, EACH, HOST, ITEM_WORDS, UNKNOWN
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.holdings import Holdings
from taut.ledger.bill.hosts import NONE
from taut.ledger.bill.overlap import Spans, pairs, reached
from taut.ledger.bill.rows import Booked

HOUR_NS = 3_600 * 10**9
# Hours of a host beyond its time by more than this are hours of each of its accelerators.
MORE_THAN_TIME = 1.02
SLACK_NS = 120 * 10**9
"""So much more than the time may be charged: least quantities and rounding."""


class Parts(Struct, frozen=True):
    """Parts of charges, in the order of charges."""

    charge: Ints
    """Row of ``ChargeRows``."""
    holding: Ints
    """Row of ``Holdings``; -1 for idle accelerators."""
    weight: Ints
    """Accelerator time by which the charge is divided."""
    rank_ns: Ints
    """Of it, what no other charge of the same host and time counts."""


def book_rows(rows: ChargeRows, holdings: Holdings, capacity: Ints) -> Table:
    """All charges of the period as Booked rows, except for what rounding leaves."""
    accelerators = rows.accelerator()
    other = np.flatnonzero(rows.in_period & rows.kept & ~accelerators)
    parts = _parts(rows, holdings, capacity, np.flatnonzero(accelerators))
    charges, first = np.unique(parts.charge, return_index=True)
    shares = ManyShares(parts.weight, first)
    effective, billed = (shares.of_units(money[charges]) for money in (rows.effective, rows.billed))
    kept = (effective != 0) | (billed != 0) | (parts.rank_ns > 0)
    split = _booked_parts(rows, holdings, parts, effective, billed, kept)
    alone = _booked_alone(rows, other)
    return Table(Booked, {name: np.concatenate((split[name], alone[name])) for name in split})


def _parts(rows: ChargeRows, holdings: Holdings, capacity: Ints, charges: Ints) -> Parts:
    spans = rows.spans.take(charges)
    holding, among = pairs(holdings.spans, spans)
    order = np.argsort(among, kind="stable")
    holding, among = holding[order], among[order]
    low, high = (np.maximum(holdings.spans.start[holding], spans.start[among]),
                 np.minimum(holdings.spans.end[holding], spans.end[among]))  # fmt: skip
    weight = holdings.rank_ns(holding, low, high)
    own = counted_once(spans)
    rank_ns = holdings.rank_ns(holding, np.maximum(low, own.start[among]), np.minimum(high, own.end[among]))
    used = _sum(weight, among, len(charges))
    idle = np.clip(np.rint(charged_ns(rows, capacity, charges)) - used, 0, MOST / 4).astype(np.int64)
    idle_ns = np.where(own.length > 0, np.rint(idle * (own.length / np.maximum(spans.length, 1))), 0).astype(np.int64)
    alone = np.flatnonzero((idle > 0) | (np.bincount(among, minlength=len(charges)) == 0))
    return _with_idle(charges, Parts(among, holding, weight, rank_ns), alone, idle[alone], idle_ns[alone])


def _with_idle(charges: Ints, parts: Parts, alone: Ints, idle: Ints, idle_ns: Ints) -> Parts:
    """The parts with those that nobody held behind the others of their charge."""
    charge = np.concatenate((parts.charge, alone))
    order = np.argsort(charge, kind="stable")
    return Parts(
        charges[charge[order]],
        np.concatenate((parts.holding, np.full(len(alone), NONE)))[order],
        np.concatenate((parts.weight, idle))[order],
        np.concatenate((parts.rank_ns, idle_ns))[order],
    )


def counted_once(spans: Spans) -> Spans:
    """Of each charge the time that no earlier one of its host covers: accelerator time counts there, and once."""
    order = np.lexsort((-spans.end, spans.start, spans.host))
    some = spans.take(order)
    start = some.start.copy()
    if len(some) > 1:
        same = some.host[1:] == some.host[:-1]
        start[1:] = np.where(same, np.maximum(some.start[1:], reached(some)[:-1]), some.start[1:])
    back = rows_of_ids(order, len(order))
    return Spans(spans.host, start[back], np.maximum(spans.end, start[back]))


def charged_ns(rows: ChargeRows, capacity: Ints, charges: Ints) -> Floats:
    """Accelerator time that charges are for, together with those of the same SKU, host and time.

    Where a unit is none of time, what the others of the same host and time say; else all accelerators of the host throughout.
    """
    spans = rows.spans.take(charges)
    own = own_charged_ns(rows, capacity, charges)
    known = ~np.isnan(own)
    moment, moments = numbered(spans.host, spans.start, spans.end)
    alike, groups = numbered(moment, sku_codes(rows)[charges])
    of_sku = np.bincount(alike[known], own[known], minlength=groups)
    most = np.zeros(moments)
    np.maximum.at(most, moment[known], of_sku[alike[known]])
    told = np.zeros(moments, dtype=np.bool_)
    told[moment[known]] = True
    whole = capacity[spans.host] * spans.length.astype(np.float64)
    # Least quantities are for more than the time: nobody could have held that.
    return np.minimum(np.where(known, of_sku[alike], np.where(told[moment], most[moment], whole)), whole)


def own_charged_ns(rows: ChargeRows, capacity: Ints, charges: Ints) -> Floats:
    """Accelerator time that each charge's own quantity says; NaN where its unit is none of time."""
    span, host = rows.spans.take(charges), rows.host[charges]
    ns, each = rows.hours[charges] * HOUR_NS, rows.each[charges]
    return np.where(each == UNKNOWN, np.nan, np.where(of_each(ns, each, span.length), ns, ns * capacity[host]))


def of_each(ns: Floats, each: Ints, length: Ints) -> Mask:
    """Whether hours are those of each accelerator: their unit says so, or they are more than the host's time holds."""
    found: Mask = (each == EACH) | ((each == HOST) & (ns > length * MORE_THAN_TIME + SLACK_NS))
    return found


def sku_codes(rows: ChargeRows) -> Ints:
    """What is charged: the SKU, or where none is named its words."""
    sku, meter = rows.v.words("SkuId")[1], rows.v.words("ChargeDescription")[1]
    return numbered(sku, np.where(rows.v.null("SkuId"), meter, 0))[0]


def _booked_parts(
    rows: ChargeRows, holdings: Holdings, parts: Parts, effective: Ints, billed: Ints, kept: Mask
) -> dict[str, Ints | Texts]:
    charge, holding = parts.charge[kept], parts.holding[kept]
    idle = holding == NONE
    row = np.where(idle, 0, holding)
    spans = rows.spans.take(charge)
    start, end, index = (
        (holdings.spans.start, holdings.spans.end, holdings.index) if len(holdings) else (np.zeros(1, np.int64),) * 3
    )
    words = np.array(["accelerator time", "idle accelerators"], dtype=object)
    return {
        "held": np.where(idle, NONE, index[row]), "charge": rows.index[charge], "item": words[idle.astype(np.int64)],
        "host": _names(rows)[rows.host[charge]],
        "start_ns": np.where(idle, spans.start, np.maximum(spans.start, start[row])),
        "end_ns": np.where(idle, spans.end, np.minimum(spans.end, end[row])),
        "rank_ns": parts.rank_ns[kept], "effective": effective[kept], "billed": billed[kept],
    }  # fmt: skip


def _booked_alone(rows: ChargeRows, charges: Ints) -> dict[str, Ints | Texts]:
    """Charges that are not divided."""
    item = rows.item[charges].copy()
    # Accelerators of a host that is known, but at no time, or for none: nobody held them.
    item[item == CODE["accelerator time"]] = CODE["idle accelerators"]
    spans = rows.spans.take(charges)
    known = spans.start >= 0
    return {
        "held": np.full(len(charges), NONE), "charge": rows.index[charges],
        "item": np.array(ITEM_WORDS, dtype=object)[item], "host": _names(rows)[rows.host[charges]],
        "start_ns": np.where(known, spans.start, -1), "end_ns": np.where(known, spans.end, -1),
        "rank_ns": np.zeros(len(charges), dtype=np.int64), "effective": rows.effective[charges],
        "billed": rows.billed[charges],
    }  # fmt: skip


def _names(rows: ChargeRows) -> Texts:
    """Hosts by code; the last, which is that of -1, has no name."""
    return np.array([*rows.hosts, ""], dtype=object)


def _sum(values: Ints, group: Ints, count: int) -> Ints:
    """Exact sums of values that are in the order of their groups."""
    out = np.zeros(count, dtype=np.int64)
    if len(values):
        first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        out[group[first]] = np.add.reduceat(values, first)
    return out
