"""The two closings of a bill: what was used against effective cost, and each invoice against what its charges became."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.ids import numbered, sums
from taut.core.tables import Table
from taut.ledger.bill.charge_items import CODE
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.money_units import amount
from taut.ledger.bill.rows import Booked
from taut.result.types import Invoice, Unmatched


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
    held = rounded + sums(place[booked.charge[some]], booked.billed[some], len(names))
    billed = rounded + sums(invoice[rows.in_period], charged[rows.in_period], len(names))
    taken = sums(invoice[rows.in_period], (charged - rows.billed)[rows.in_period], len(names))
    seen = np.bincount(invoice[rows.in_period], minlength=len(names)) > 0
    return [
        Invoice(
            id=names[i],
            billed=amount(int(billed[i]), rows.unit),
            allocated=amount(int(held[i]), rows.unit),
            residual=amount(int(billed[i] - held[i]), rows.unit),
            explained=amount(int(taken[i]), rows.unit),
            closes=bool(billed[i] == held[i]),
        )
        for i in np.flatnonzero(seen).tolist()
    ]


def unmatched(rows: ChargeRows, known_hosts: int) -> list[Unmatched]:
    """Accelerator charges that meet no host, by resource, the dearest first."""
    some = np.flatnonzero(
        (rows.item == CODE["unmatched"]) & rows.in_period & rows.kept & ((rows.effective != 0) | (rows.billed != 0))
    )
    texts, resource = rows.v.words("ResourceId")
    names, name = rows.v.words("ResourceName")
    group, count = numbered(resource[some], name[some])
    money = sums(group, rows.effective[some], count)
    first, often = np.zeros(count, dtype=np.int64), np.bincount(group, minlength=count)
    first[group[::-1]] = some[::-1]
    return [
        Unmatched(
            resource=texts[resource[first[i]]] or names[name[first[i]]],
            money=amount(int(money[i]), rows.unit),
            rows=int(often[i]),
            remedy=_remedy(texts[resource[first[i]]], known_hosts),
        )
        for i in np.lexsort((first, -np.abs(money))).tolist()
    ]


def _remedy(resource: str | None, known_hosts: int) -> str:
    if not known_hosts:
        return "the logs name no hosts: give logs that do"
    if not resource:
        return "the charge names no resource: export the bill with ResourceId or tags"
    return "name its host under hosts in the prices, or tag the resource with its host's name"
