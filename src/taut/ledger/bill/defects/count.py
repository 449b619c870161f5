"""Hosts that are charged for another number of accelerators than they have."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Ints, Mask
from taut.core.ids import numbered
from taut.ledger.bill.capacity import Capacity, most_common
from taut.ledger.bill.charge_items import accelerator_counts
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found
from taut.ledger.bill.defects.left_out import tried_before
from taut.ledger.bill.divided_charges import HOUR_NS, of_each, sku_codes

KIND = "accelerator count"
HOSTS = 3
"""So many hosts must agree before they tell what another of their kind has."""


def find(rows: ChargeRows, capacity: Capacity) -> tuple[list[Found], Capacity]:
    """One defect per SKU; and what hosts have, now that the bill is not believed."""
    some = np.flatnonzero(rows.accelerator() & (rows.effective >= 0))
    said, by_hours = _charged_accelerators(rows, some)
    has = true_count(rows, capacity, some)
    host = rows.host[some]
    off = (said > 0) & (has[host] > 0) & (said != has[host])
    # Hours of accelerators that are fewer than the host has may be those of a part of the time, unless more were held.
    off &= ~tried_before(rows)[some]
    off &= ~by_hours | (said > has[host]) | ((capacity.charged[host] == said) & (capacity.held_alone[host] > said))
    found = [_found(rows, some[one], said[one], has) for one in _by_sku(rows, some, off)]
    return found, replace(capacity, count=np.where(has > 0, has, capacity.count))


def true_count(rows: ChargeRows, capacity: Capacity, some: Ints) -> Ints:
    """Accelerators of each host by others than the charges that are tried; 0 where nobody else tells.

    The prices; else what one job held at once, if that is more than the bill knows of; else, for hosts on which no more was
    ever held, what those have that are charged for as many as were held on them.
    """
    told = np.where(capacity.sku > 0, capacity.sku, capacity.charged)
    agreeing = (told > 0) & (told == capacity.held)
    usual = most_common(np.zeros(int(agreeing.sum()), np.int64), told[agreeing], 1)[0] if agreeing.sum() >= HOSTS else 0
    alike = (told > 0) & (told != usual) & (capacity.held == usual) & (usual > 0)
    alike &= agreeing.sum() > alike.sum()
    more = (told > 0) & (capacity.held_alone > told)
    found = np.where(capacity.given > 0, capacity.given, np.where(more, capacity.held_alone, np.where(alike, usual, 0)))
    return np.where((found == 0) & _mixed(rows, some, told), told, found)


def _mixed(rows: ChargeRows, some: Ints, told: Ints) -> Mask:
    """Hosts whose charges name different counts: most of them are right."""
    said, by_hours = _charged_accelerators(rows, some)
    known = (said > 0) & ~by_hours
    wrong = np.zeros(len(told), dtype=np.bool_)
    wrong[rows.host[some][known & (said != told[rows.host[some]])]] = True
    return wrong


def _charged_accelerators(rows: ChargeRows, some: Ints) -> tuple[Ints, Mask]:
    """Accelerators that each charge is for, 0 if unknown: by its words, or where hours are those of each by these."""
    span, sku = rows.spans.take(some), sku_codes(rows)[some]
    ns = np.where(np.isnan(rows.hours[some]), 0, rows.hours[some]) * HOUR_NS
    each = of_each(ns, rows.each[some], span.length)
    group, count = numbered(span.host, span.start, span.end, sku)
    together = np.bincount(group[each], ns[each], minlength=count)[group] / np.maximum(span.length, 1)
    whole = np.rint(together)
    count_of = np.where((whole >= 1) & (np.abs(together - whole) < 0.02 * whole), whole, 0).astype(np.int64)
    return np.where(each, count_of, accelerator_counts(rows.v)[some]), each


def _by_sku(rows: ChargeRows, some: Ints, off: Mask) -> list[Ints]:
    at = np.flatnonzero(off)
    sku = sku_codes(rows)[some[at]]
    return [at[sku == one] for one in np.unique(sku).tolist()]


def _found(rows: ChargeRows, some: Ints, said: Ints, has: Ints) -> Found:
    """What is charged for accelerators that are not there, or is not charged for those that are."""
    host = rows.host[some]
    excess = 1 - has[host] / said
    effective, billed = (np.rint(money[some] * excess).astype(np.int64) for money in (rows.effective, rows.billed))
    hosts = np.unique(host)
    names = ", ".join(rows.hosts[one] for one in hosts[:3].tolist()) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")
    because = f"charged for {_numbers(said)} accelerators a host where {names} have {_numbers(has[host])}"
    return Found(KIND, some, because, effective, billed)


def _numbers(values: Ints) -> str:
    return " or ".join(str(one) for one in np.unique(values)[:4].tolist())
