"""What was used without a charge: held time that no charge of its host covers, at what the host costs otherwise."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.exact_parts import ManyShares
from taut.core.ids import greatest, least, numbered, rows_of_ids, sums
from taut.core.tables import Table
from taut.ledger.bill.capacity import Capacity
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.divided_charges import HOUR_NS
from taut.ledger.bill.holdings import Holdings
from taut.ledger.bill.overlap import Spans, merged, pairs, uncovered
from taut.ledger.bill.period import Period
from taut.ledger.bill.rows import Uncharged

TOLERANCE_NS = 300 * 10**9
"""Held time of so little beyond a charge is no missing charge: clocks of schedulers and providers differ by minutes."""
ALWAYS_ON = 0.9
"""A host that is charged for this share of the time from its first charge to its last, a gap apart, is never switched off …"""
TIMES_GAP = 2
"""… if it is charged for at least so many times the gap."""


class Gaps(Struct, frozen=True):
    """Time without a charge on hosts that were held in it."""

    spans: Spans
    why: Texts
    """A word of ``Uncharged.why`` for each."""


def used_without_charge(rows: ChargeRows, holdings: Holdings, capacity: Capacity, period: Period, rates: Ints) -> Table:
    """Held time that no charge pays for, at what its host costs otherwise.

    ``rates``: what an accelerator hour costs on each host that the bill does not name, in units; -1 where nobody knows.
    """
    gaps = gaps_of(merged(rows.spans.take(rows.accelerator())), holdings.busy, period)
    found = _priced(gaps, holdings, capacity.count, _host_rates(rows, capacity, rates, gaps))
    return found.replace(host=np.array([*rows.hosts, ""], dtype=object)[found.host.astype(np.int64)])


def gaps_of(cover: Spans, busy: Spans, period: Period) -> Gaps:
    """Where hosts were busy and not covered, both merged.

    A host that is charged around the clock would have been charged for all of a gap; others for the time they were busy.
    """
    gaps = uncovered(np.unique(busy.host), cover, *period)
    at_gap, at_busy = pairs(gaps, busy)
    met = _met(gaps.take(at_gap), busy.take(at_busy))
    in_bill = np.isin(gaps.host, np.unique(cover.host))
    longest = np.zeros(len(gaps), dtype=np.int64)
    np.maximum.at(longest, at_gap, met.length)
    due = in_bill & (longest > TOLERANCE_NS)
    charged = _as_charged(cover, gaps, _hulls(gaps, at_gap, met))
    whole = due & around_the_clock(cover, charged)
    away = "host" if len(cover) else "unbilled"  # a bill of something else does not tell what is missing
    why = np.where(in_bill, np.where(due, "missing", "tolerance"), away).astype(object)
    split = ~whole[at_gap]
    small = np.where((met.length <= TOLERANCE_NS) & in_bill[at_gap], "tolerance", why[at_gap])
    return Gaps(_joined(charged.take(whole), met.take(split)), np.concatenate((why[whole], small[split])))


def _hulls(gaps: Spans, at: Ints, met: Spans) -> Spans:
    """From the first to the last busy moment in each gap; of gaps without any, nothing."""
    start, end = gaps.end.copy(), gaps.start.copy()
    np.minimum.at(start, at, met.start)
    np.maximum.at(end, at, met.end)
    return Spans(gaps.host, start, np.maximum(start, end))


def _as_charged(cover: Spans, gaps: Spans, used: Spans) -> Spans:
    """What of each gap a host that is never switched off was on: before its first charge since it was first used, behind the
    last until it was last used, between charges all of it.
    """
    first, last = _reach(cover, gaps)
    start = np.where(gaps.end <= first, used.start, gaps.start)
    end = np.where(gaps.start >= last, used.end, gaps.end)
    return Spans(gaps.host, start, np.maximum(start, end))


def around_the_clock(cover: Spans, gaps: Spans) -> Mask:
    """Gaps of hosts that have few others: they are never switched off."""
    first, last = _reach(cover, gaps)
    covered = np.bincount(cover.host, cover.length, minlength=int(gaps.host.max(initial=0)) + 1)[gaps.host]
    inner = (gaps.start >= first) & (gaps.end <= last)
    time = last - first - np.where(inner, gaps.length, 0)
    found: Mask = (covered > 0) & (covered >= ALWAYS_ON * time) & (covered >= TIMES_GAP * gaps.length)
    return found


def _reach(cover: Spans, gaps: Spans) -> tuple[Ints, Ints]:
    """The first and the last charged moment of the host of each gap."""
    hosts = int(max(cover.host.max(initial=-1), gaps.host.max(initial=-1))) + 1
    first, last = least(cover.host, hosts, cover.start), np.maximum(greatest(cover.host, hosts, cover.end), -1)
    return first[gaps.host], last[gaps.host]


def host_hour_rates(rows: ChargeRows) -> Floats:
    """What an hour of each host costs by its own charges: the median over its charged times, in units; NaN without any."""
    some = np.flatnonzero(rows.accelerator() & (rows.effective > 0))
    span = rows.spans.take(some)
    group, count = numbered(span.host, span.start, span.end)
    row = rows_of_ids(group, count)
    hours = np.zeros(count)
    told = np.where(np.isnan(rows.hours[some]), 0, rows.hours[some]) * HOUR_NS
    np.maximum.at(hours, group, np.where((told > 0) & (told < span.length), told, span.length))
    cost = np.bincount(group, rows.effective[some].astype(np.float64), minlength=count) / np.maximum(hours, 1) * HOUR_NS
    return _medians(span.host[row], cost, len(rows.hosts))


def _host_rates(rows: ChargeRows, capacity: Capacity, given: Ints, gaps: Gaps) -> Floats:
    """Units of money an hour of the host, for each gap; 0 within tolerance, and where nobody knows."""
    own = host_hour_rates(rows)
    with np.errstate(invalid="ignore"):
        usual = np.nanmedian(own / capacity.count) if (~np.isnan(own)).any() else 0.0
    told = np.where(given >= 0, given, usual) * capacity.count
    rate = np.where(np.isnan(own), told, own)[gaps.spans.host] if len(own) else np.zeros(len(gaps.why))
    return np.where(np.isin(gaps.why, ("tolerance", "unbilled")), 0.0, rate)


def _priced(gaps: Gaps, holdings: Holdings, capacity: Ints, rate: Floats) -> Table:
    """Gaps as rows: what each holding used of them, and what nobody did."""
    order = np.lexsort((gaps.spans.start, gaps.spans.host))
    spans, why, rate = gaps.spans.take(order), gaps.why[order], rate[order]
    at, holding = pairs(spans, holdings.spans)
    low = np.maximum(spans.start[at], holdings.spans.start[holding])
    high = np.minimum(spans.end[at], holdings.spans.end[holding])
    used = holdings.rank_ns(holding, low, high)
    total, whole = sums(at, used, len(spans)), capacity[spans.host] * spans.length
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
    return Table(
        Uncharged,
        {
            "held": held,
            "host": np.array(spans.host[span], dtype=object),
            "start_ns": np.concatenate((low, spans.start[alone]))[back],
            "end_ns": np.concatenate((high, spans.end[alone]))[back],
            "rank_ns": weight,
            "effective": ManyShares(weight, first).of_units(money[found]),
            "why": why[span],
        },
        len(span),
    )


def _met(one: Spans, other: Spans) -> Spans:
    return Spans(one.host, np.maximum(one.start, other.start), np.minimum(one.end, other.end))


def _joined(one: Spans, other: Spans) -> Spans:
    return Spans(
        np.concatenate((one.host, other.host)), np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end))
    )


def _medians(group: Ints, value: Floats, groups: int) -> Floats:
    """The lower median of each group; NaN for groups without values."""
    out = np.full(groups, np.nan)
    if len(group):
        order = np.lexsort((value, group))
        found, first, often = np.unique(group[order], return_index=True, return_counts=True)
        out[found] = value[order][first + (often - 1) // 2]
    return out
