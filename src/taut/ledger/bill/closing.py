"""The two closings of a bill: what was used against effective cost, and each invoice against what its charges became."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.ids import numbered
from taut.core.tables import Table
from taut.ledger.bill.capacity import Capacity
from taut.ledger.bill.charge_items import CODE
from taut.ledger.bill.charge_rows import ChargeRows, Period
from taut.ledger.bill.divided_charges import HOUR_NS
from taut.ledger.bill.exact_parts import amount, parted
from taut.ledger.bill.holdings import Holdings
from taut.ledger.bill.overlap import Spans, merged, pairs, uncovered
from taut.ledger.bill.rows import Booked, Uncharged
from taut.result.types import Invoice, Unmatched

TOLERANCE_NS = 300 * 10**9
"""Held time of so little beyond a charge is no missing charge: clocks of schedulers and providers differ by minutes."""
ALWAYS_ON = 0.9
"""A host that is charged for this share of the time from its first charge to its last, a gap apart, is never switched off."""


def rounding_rows(rows: ChargeRows) -> tuple[Table, Ints]:
    """What charges have beyond whole units, one row per invoice where it comes to any; and billed of all invoices."""
    names, invoice = rows.invoice()
    effective, billed = rows.rounding(invoice, len(names))
    whole, _ = rows.rounding(np.zeros_like(invoice), 1)
    effective[-1] += whole[0] - effective.sum()  # sums of invoices that are rounded each are not the sum of all
    some = (effective != 0) | (billed != 0)
    count = int(some.sum())
    row = {"item": np.full(count, "rounding", dtype=object), "effective": effective[some], "billed": billed[some]}
    return Table(Booked, row, count), billed


def invoices(rows: ChargeRows, booked: Table, rounded: Ints, charged: Ints) -> list[Invoice]:
    """Each invoice: what it bills, and what of it Booked rows hold.

    ``rounded`` is what rounding adds to each, ``charged`` the billed cost of every charge before defects took from it.
    """
    names, invoice = rows.invoice()
    place = np.full(int(rows.index.max(initial=0)) + 1, len(names) - 1)
    place[rows.index] = invoice
    some = booked.charge >= 0
    held = rounded + _sums(booked.billed[some], place[booked.charge[some]], len(names))
    billed = rounded + _sums(charged[rows.in_period], invoice[rows.in_period], len(names))
    seen = np.bincount(invoice[rows.in_period], minlength=len(names)) > 0
    return [
        Invoice(id=names[i], billed=amount(int(billed[i]), rows.unit), allocated=amount(int(held[i]), rows.unit),
                residual=amount(int(billed[i] - held[i]), rows.unit), closes=bool(billed[i] == held[i]))
        for i in np.flatnonzero(seen).tolist()
    ]  # fmt: skip


def unmatched(rows: ChargeRows, known_hosts: int) -> list[Unmatched]:
    """Accelerator charges that meet no host, by resource, the dearest first."""
    some = np.flatnonzero(
        (rows.item == CODE["unmatched"]) & rows.in_period & rows.kept & ((rows.effective != 0) | (rows.billed != 0))
    )
    texts, resource = rows.v.words("ResourceId")
    names, name = rows.v.words("ResourceName")
    group, count = numbered(resource[some], name[some])
    money = _sums(rows.effective[some], group, count)
    first, often = np.zeros(count, dtype=np.int64), np.bincount(group, minlength=count)
    first[group[::-1]] = some[::-1]
    return [
        Unmatched(
            resource=texts[resource[first[i]]] or names[name[first[i]]], money=amount(int(money[i]), rows.unit),
            rows=int(often[i]), remedy=_remedy(texts[resource[first[i]]], known_hosts),
        )
        for i in np.lexsort((first, -np.abs(money))).tolist()
    ]  # fmt: skip


def _remedy(resource: str | None, known_hosts: int) -> str:
    if not known_hosts:
        return "the logs name no hosts: give logs that do"
    if not resource:
        return "the charge names no resource: export the bill with ResourceId or tags"
    return "name its host under hosts in the prices, or tag the resource with its host's name"


def used_without_charge(rows: ChargeRows, holdings: Holdings, capacity: Capacity, period: Period, rates: Ints) -> Table:
    """Held time that no charge pays for, at what its host costs otherwise.

    A host that is charged around the clock would have been charged for all of the gap; others for the time they were held.
    ``rates``: what an accelerator hour costs on each host that the bill does not name, in units; -1 where nobody knows.
    """
    cover = merged(rows.spans.take(rows.accelerator()))
    busy = merged(holdings.spans)
    hosts = np.unique(busy.host)
    gaps = uncovered(hosts, cover, *period)
    at_gap, at_busy = pairs(gaps, busy)
    met = _met(gaps.take(at_gap), busy.take(at_busy))
    in_bill = np.isin(gaps.host, np.unique(cover.host))
    longest = np.zeros(len(gaps), dtype=np.int64)
    np.maximum.at(longest, at_gap, met.length)
    due = in_bill & (longest > TOLERANCE_NS)
    whole = due & around_the_clock(cover, gaps)
    split = ~whole[at_gap]
    spans = _joined(gaps.take(whole), met.take(split))
    away = "host" if len(cover) else "unbilled"  # a bill of something else does not tell what is missing
    why = np.where(in_bill, np.where(due, "missing", "tolerance"), away).astype(object)
    words = np.concatenate((why[whole], np.where(met.length <= TOLERANCE_NS, "tolerance", why[at_gap])[split]))
    rate = _host_rates(rows, capacity, rates, spans, words)
    found = _priced(spans, words, holdings, capacity.count, rate)
    return found.replace(host=np.array([*rows.hosts, ""], dtype=object)[found.host.astype(np.int64)])


def around_the_clock(cover: Spans, gaps: Spans) -> Mask:
    """Gaps between two charges of a host that has few others: it is never switched off."""
    hosts = int(max(cover.host.max(initial=-1), gaps.host.max(initial=-1))) + 1
    first, last = np.full(hosts, np.iinfo(np.int64).max), np.full(hosts, -1)
    np.minimum.at(first, cover.host, cover.start)
    np.maximum.at(last, cover.host, cover.end)
    covered = np.bincount(cover.host, cover.length, minlength=hosts)
    steady = covered[gaps.host] >= ALWAYS_ON * ((last - first)[gaps.host] - gaps.length)
    found: Mask = steady & (gaps.start > first[gaps.host]) & (gaps.end < last[gaps.host])
    return found


def host_hour_rates(rows: ChargeRows) -> Floats:
    """What an hour of each host costs by its own charges: the median over its charged times, in units; NaN without any."""
    some = np.flatnonzero(rows.accelerator() & (rows.effective > 0))
    span = rows.spans.take(some)
    group, count = numbered(span.host, span.start, span.end)
    row = np.zeros(count, dtype=np.int64)
    row[group] = np.arange(len(some))
    hours = np.zeros(count)
    told = np.where(np.isnan(rows.hours[some]), 0, rows.hours[some]) * HOUR_NS
    np.maximum.at(hours, group, np.where((told > 0) & (told < span.length), told, span.length))
    cost = np.bincount(group, rows.effective[some].astype(np.float64), minlength=count) / np.maximum(hours, 1) * HOUR_NS
    return _medians(span.host[row], cost, len(rows.hosts))


def _host_rates(rows: ChargeRows, capacity: Capacity, given: Ints, spans: Spans, why: Texts) -> Floats:
    """Units of money an hour of the host, for each span; 0 within tolerance, and where nobody knows."""
    own = host_hour_rates(rows)
    with np.errstate(invalid="ignore"):
        usual = np.nanmedian(own / capacity.count) if (~np.isnan(own)).any() else 0.0
    told = np.where(given >= 0, given, usual) * capacity.count
    rate = np.where(np.isnan(own), told, own)[spans.host] if len(own) else np.zeros(len(spans))
    return np.where(np.isin(why, ("tolerance", "unbilled")), 0.0, rate)


def _priced(spans: Spans, why: Texts, holdings: Holdings, capacity: Ints, rate: Floats) -> Table:
    """Spans of hosts without a charge as rows: what each holding used of them, and what nobody did."""
    order = np.lexsort((spans.start, spans.host))
    spans, why, rate = spans.take(order), why[order], rate[order]
    at, holding = pairs(spans, holdings.spans)
    low = np.maximum(spans.start[at], holdings.spans.start[holding])
    high = np.minimum(spans.end[at], holdings.spans.end[holding])
    used = holdings.rank_ns(holding, low, high)
    total, whole = _sums(used, at, len(spans)), capacity[spans.host] * spans.length
    idle = np.where(why == "missing", np.maximum(whole - total, 0), 0)
    alone = np.flatnonzero(idle > 0)
    span = np.concatenate((at, alone))
    back = np.argsort(span, kind="stable")
    span, weight = span[back], np.concatenate((used, idle[alone]))[back]
    found, first = np.unique(span, return_index=True)
    # A host that the bill knows is charged as a whole; of others only what was held is sure.
    share = np.where(why == "host", total / np.maximum(whole, 1), 1.0)
    money = np.rint(rate * share * (spans.length / HOUR_NS)).astype(np.int64)
    held = np.concatenate((holdings.index[holding], np.full(len(alone), -1)))[back]
    return Table(Uncharged, {
        "held": held, "host": np.array(spans.host[span], dtype=object),
        "start_ns": np.concatenate((low, spans.start[alone]))[back], "end_ns": np.concatenate((high, spans.end[alone]))[back],
        "rank_ns": weight, "effective": parted(money[found], weight, first), "why": why[span],
    }, len(span))  # fmt: skip


def _met(one: Spans, other: Spans) -> Spans:
    return Spans(one.host, np.maximum(one.start, other.start), np.minimum(one.end, other.end))


def _joined(one: Spans, other: Spans) -> Spans:
    return Spans(
        np.concatenate((one.host, other.host)), np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end))
    )


def _sums(values: Ints, group: Ints, count: int) -> Ints:
    out = np.zeros(count, dtype=np.int64)
    np.add.at(out, group, values)
    return out


def _medians(group: Ints, value: Floats, groups: int) -> Floats:
    """The lower median of each group; NaN for groups without values."""
    out = np.full(groups, np.nan)
    if len(group):
        order = np.lexsort((value, group))
        found, first, often = np.unique(group[order], return_index=True, return_counts=True)
        out[found] = value[order][first + (often - 1) // 2]
    return out
