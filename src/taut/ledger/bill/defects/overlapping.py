"""The same resource charged twice for the same time, by rows that are not the same."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered
from taut.ledger.bill.capacity import Capacity, most_common
from taut.ledger.bill.charge_rows import NO_TIME, ChargeRows
from taut.ledger.bill.defects.found import Found
from taut.ledger.bill.divided_charges import HOUR_NS, MORE_THAN_TIME, SLACK_NS, of_each, sku_codes
from taut.ledger.bill.hosts import NONE
from taut.ledger.bill.overlap import Spans, covered_ns, merged, reached

KIND = "overlapping periods"


def find(rows: ChargeRows, capacity: Capacity) -> list[Found]:
    """Rows of one resource and SKU whose quantities are more than the time that they cover together holds."""
    some, hours = _timed(rows, capacity)
    key, count = _resources(rows, some)
    spans = Spans(key, rows.spans.start[some], rows.spans.end[some])
    doubled = _doubled(spans, hours)
    if not doubled.any():
        return []
    at = np.flatnonzero(doubled)
    usual = most_common(key, spans.length, count)
    begin = most_common(key, spans.start % np.maximum(usual[key], 1), count)
    odd = (spans.length != usual[key]) | (spans.start % np.maximum(usual[key], 1) != begin[key])
    twice = _twice(spans.take(at), odd[at])
    share = np.minimum(twice / np.maximum(spans.length[at], 1), 1.0)
    charges = some[at[share > 0]]
    share = share[share > 0]
    effective, billed = (np.rint(money[charges] * share).astype(np.int64) for money in (rows.effective, rows.billed))
    names = rows.resources(charges)
    because = f"{len(charges):,} charges of {names} are for time for which others of the same SKU charge it already"
    return [Found(KIND, charges, because, effective, billed)]


def _timed(rows: ChargeRows, capacity: Capacity) -> tuple[Ints, Floats]:
    """Charges for usage by time of a resource that is named, and how much of the resource's time each is for, ns."""
    used = rows.v.is_("ChargeCategory", "Usage") & ~rows.v.correction() & rows.kept & rows.v.there("ResourceId")
    used &= (rows.spans.start != NO_TIME) & (rows.spans.length > 0) & ~np.isnan(rows.hours) & (rows.hours > 0)
    used &= rows.is_item("accelerator time", "unmatched") & (rows.effective >= 0) & (rows.billed >= 0)
    some = np.flatnonzero(used)
    ns = rows.hours[some] * HOUR_NS
    host = rows.host[some]
    each = of_each(ns, rows.each[some], rows.spans.length[some])
    # Hours of accelerators fill the time of the host only together; of a host that is not known they prove nothing.
    known = np.append(capacity.count, 0)[np.where(host == NONE, len(capacity.count), host)]
    return some, np.where(each, ns / np.where(known > 0, known, np.inf), ns)


def _resources(rows: ChargeRows, some: Ints) -> tuple[Ints, int]:
    resource = rows.v.words("ResourceId")[1]
    return numbered(resource[some], sku_codes(rows)[some])


def _doubled(spans: Spans, ns: Floats) -> Mask:
    """Rows of a stretch of overlapping rows that are for more time than it has."""
    out = np.zeros(len(spans), dtype=np.bool_)
    if not len(spans):
        return out
    order = np.lexsort((spans.start, spans.host))
    some = spans.take(order)
    reach = reached(some)
    new = np.append(True, (some.host[1:] != some.host[:-1]) | (some.start[1:] >= reach[:-1]))
    stretch = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(some)) - 1
    asked = np.bincount(stretch, ns[order])
    long = (reach[last] - some.start[first]).astype(np.float64)
    out[order] = (asked > long * MORE_THAN_TIME + SLACK_NS)[stretch] & (np.bincount(stretch) > 1)[stretch]
    return out


def _twice(spans: Spans, odd: Mask) -> Ints:
    """How long each row charges what rows before it charge: first come those of usual length and begin, in order."""
    regular = np.flatnonzero(~odd)
    out = np.zeros(len(spans), dtype=np.int64)
    out[regular] = _behind(spans.take(regular))
    rest = np.flatnonzero(odd)
    out[rest] = np.maximum(covered_ns(spans.take(rest), merged(spans.take(regular))), _behind(spans.take(rest)))
    return out


def _behind(spans: Spans) -> Ints:
    """How much of each lies in those that begin before it, or with it and come earlier in the bill."""
    order = np.lexsort((np.arange(len(spans)), spans.start, spans.host))
    some = spans.take(order)
    out = np.zeros(len(spans), dtype=np.int64)
    if len(some) > 1:
        same = some.host[1:] == some.host[:-1]
        shared = np.minimum(reached(some)[:-1], some.end[1:]) - some.start[1:]
        out[order[1:]] = np.where(same, np.maximum(shared, 0), 0)
    return out
