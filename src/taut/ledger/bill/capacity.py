"""How many accelerators each host of a bill has, and who says so."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.ids import numbered, rows_of_ids
from taut.core.prices import HostFacts
from taut.ledger.bill.charge_items import EACH, HOST, accelerator_counts
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.divided_charges import HOUR_NS, of_each, sku_codes
from taut.ledger.bill.holdings import Holdings
from taut.ledger.bill.hosts import Hosts

SOURCES = ("the prices", "the SKU", "the hours charged", "the most ever held at once", "other hosts")


class Capacity(Struct, frozen=True):
    """Accelerators of each host by code."""

    count: Ints
    source: Ints
    """Index into SOURCES."""
    given: Ints
    """What the prices say; 0 for nothing. Likewise below."""
    sku: Ints
    """What most charges of the host say in words."""
    charged: Ints
    """What its charged hours come to."""
    held: Ints
    """The most that was held at once."""
    held_alone: Ints
    """The most that one held row has."""


def capacity_of(rows: ChargeRows, holdings: Holdings, hosts: Hosts, facts: HostFacts) -> Capacity:
    """The surest of what is said: by the prices, by the SKU, by charged hours, by what was held."""
    count = len(rows.hosts)
    given = np.full(count, facts.accelerators or 0)
    for name, told in facts.accelerators_of.items():
        if (code := hosts.equal(name)) >= 0:
            given[code] = told
    sku, charged = sku_count(rows), hours_count(rows)
    held = holdings.most_at_once(count)
    said = np.stack((given, sku, charged, held))
    known = said[:, (said > 0).any(axis=0)]
    usual = int(np.median(known.max(axis=0))) if known.size else 1
    said = np.vstack((said, np.full(count, max(usual, 1))))
    source = (said > 0).argmax(axis=0)
    return Capacity(said[source, np.arange(count)], source, given, sku, charged, held, holdings.largest(count))


def mark_single(rows: ChargeRows, most_held: Ints) -> None:
    """Hours of charges for one accelerator are those of each, where several such rows stand for one time of a host of more.

    ``most_held`` is the most that was held at once on each host.
    """
    one = (rows.each == HOST) & (accelerator_counts(rows.v) == 1) & rows.accelerator() & (rows.effective >= 0)
    some = np.flatnonzero(one)
    some = some[most_held[rows.host[some]] > 1]
    span = rows.spans.take(some)
    group, count = numbered(span.host, span.start, span.end, sku_codes(rows)[some])
    rows.each[some[(np.bincount(group, minlength=count) > 1)[group]]] = EACH


def sku_count(rows: ChargeRows) -> Ints:
    """The count that most charges of each host name: for a unit of the host, in words; 0 where none does."""
    told = np.where(rows.each != EACH, accelerator_counts(rows.v), 0)
    some = np.flatnonzero(rows.accelerator() & (told > 0))
    return most_common(rows.host[some], told[some], len(rows.hosts))


def hours_count(rows: ChargeRows) -> Ints:
    """Accelerators that were charged together for the same host and time, where hours are those of each; 0 for none."""
    each = of_each(rows.hours * HOUR_NS, rows.each, rows.spans.length)
    some = np.flatnonzero(rows.accelerator() & ~np.isnan(rows.hours) & each & (rows.effective >= 0))
    span = rows.spans.take(some)
    group, count = numbered(span.host, span.start, span.end, sku_codes(rows)[some])
    together = np.bincount(group, rows.hours[some] * HOUR_NS, minlength=count)
    row = rows_of_ids(group, count)
    at_once = together / np.maximum(span.length[row], 1)
    near = np.rint(at_once)
    full = (near >= 1) & (np.abs(at_once - near) < 0.02 * near)
    return most_common(span.host[row][full], near[full].astype(np.int64), len(rows.hosts))


def most_common(group: Ints, value: Ints, groups: int) -> Ints:
    """The value that most rows of each group have, the larger of two that are equally common; 0 for groups without rows."""
    out = np.zeros(groups, dtype=np.int64)
    if len(group):
        base = int(value.max()) + 1
        found, often = np.unique(group * base + value, return_counts=True)
        order = np.lexsort((found % base, often, found // base))
        out[(found // base)[order]] = (found % base)[order]  # the last of each group stays
    return out
