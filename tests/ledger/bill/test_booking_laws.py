"""Any bill on any holdings: every unit of money is in one place, every accelerator nanosecond too."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bill_months import HOUR, at
from taut.core.errors import InputRefused
from taut.core.tables import Table
from taut.ledger.bill.booking import book
from taut.ledger.bill.rows import Held
from taut.read.focus.focus_columns import COLUMNS
from taut.read.focus.focus_reader import Charges, column_type

Rows = list[dict[str, object]]
Uses = list[tuple[str, int, int, int]]
BEGIN, END = at("05T00:00"), at("06T00:00")
MONEY = st.decimals(-1000, 1000, places=11) | st.just(Decimal(0))
TIMES = st.integers(-4, 28).map(lambda hours: BEGIN + hours * HOUR) | st.integers(BEGIN, END).map(lambda t: t // 1000 * 1000)
HOSTS = ("node1", "node2", "gpu-7.cluster", "")
CATEGORIES = ("Usage", "Usage", "Usage", "Usage", "Tax", "Credit", "Purchase", "Adjustment")
CHARGE = st.fixed_dictionaries({
    "BilledCost": MONEY, "EffectiveCost": MONEY, "ChargePeriodStart": TIMES, "ChargePeriodEnd": TIMES,
    "ResourceName": st.sampled_from((*HOSTS, "elsewhere")), "ChargeCategory": st.sampled_from(CATEGORIES),
    "ChargeClass": st.sampled_from((None, None, None, "Correction")), "InvoiceId": st.sampled_from((None, "i1", "i2")),
    "ServiceCategory": st.sampled_from(("Compute", "Compute", "AI and Machine Learning", "Storage")),
    "CommitmentDiscountStatus": st.sampled_from((None, None, "Used", "Unused")), "ConsumedQuantity": MONEY.map(abs),
    "ConsumedUnit": st.sampled_from(("Hours", "GPU-Hours", "GB", None)), "SkuId": st.sampled_from(("s1", "s2", None)),
    "ContractedUnitPrice": st.sampled_from((None, Decimal(2))), "PricingQuantity": MONEY.map(abs),
    "BillingPeriodStart": st.just(BEGIN), "BillingPeriodEnd": st.just(END), "BillingCurrency": st.just("EUR"),
    "ResourceId": st.sampled_from(("r1", "r2", None)), "SubAccountId": st.sampled_from(("own", "own", "other")),
})  # fmt: skip
USE = st.tuples(st.sampled_from(HOSTS), TIMES, TIMES, st.integers(1, 9))


def charges(rows: Rows) -> Charges:
    """A bill as the reader would make it."""
    columns: dict[str, pa.Array] = {}
    for column in COLUMNS:
        cells = [row.get(column.name) for row in rows]
        kind = column_type(column.name)
        if column.kind == "time":
            columns[column.name] = pa.array([None if one is None else int(str(one)) // 1000 for one in cells], pa.int64()).cast(
                kind
            )
        elif column.kind == "number":
            columns[column.name] = pa.array(cells, kind)
        else:
            columns[column.name] = pa.array(cells, pa.string()).dictionary_encode().cast(kind)
    columns["row"] = pa.array(np.arange(1, len(rows) + 1))
    columns["file"] = pa.array(["bill.csv"] * len(rows), pa.string()).dictionary_encode()
    return Charges(pa.table(columns), "1.4", (), (), (), (), ())


def holdings(uses: Uses) -> Table:
    """Rows of Held, some of which end before they begin."""
    host, start, end, count = (np.array([use[i] for use in uses], dtype=object) for i in range(4))
    start, end, count = start.astype(np.int64), end.astype(np.int64), count.astype(np.int64)
    rank_ns = count * np.maximum(end - start, 0)
    return Table(Held, {"host": host, "start_ns": start, "end_ns": end, "rank_ns": rank_ns, "accelerators": count}, len(uses))


def units(rows: Rows, column: str, unit: int, **having: object) -> int:
    some = [row for row in rows if all(row[key] == value for key, value in having.items())]
    return round(sum((Decimal(str(row[column])) for row in some), Decimal(0)) * unit)


@settings(max_examples=30)
@given(st.lists(CHARGE, max_size=12), st.lists(USE, max_size=8))
def test_booked_and_removed_are_the_charges_to_the_unit(rows: Rows, uses: Uses) -> None:
    found = book(holdings(uses), charges(rows))
    assert found.effective == units(rows, "EffectiveCost", found.unit)
    assert found.booked.effective.sum() + found.removed == found.effective
    assert found.booked.billed.sum() + found.removed_billed == found.billed


@settings(max_examples=30)
@given(st.lists(CHARGE, min_size=1, max_size=12), st.lists(USE, max_size=8))
def test_each_invoice_is_what_it_bills(rows: Rows, uses: Uses) -> None:
    found = book(holdings(uses), charges(rows))
    expected = {one: units(rows, "BilledCost", found.unit, InvoiceId=one) for one in {row["InvoiceId"] for row in rows}}
    assert {one.id: Decimal(one.billed) * found.unit for one in found.invoices} == expected
    assert all(Decimal(one.billed) - Decimal(one.allocated) == Decimal(one.residual) for one in found.invoices)
    assert sum(Decimal(one.residual) for one in found.invoices) * found.unit == found.removed_billed


@settings(max_examples=30)
@given(st.lists(CHARGE, max_size=12), st.lists(USE, max_size=8))
def test_accelerator_time_counts_once(rows: Rows, uses: Uses) -> None:
    table = holdings(uses)
    found = book(table, charges(rows))
    low, high = np.maximum(table.start_ns, BEGIN), np.minimum(table.end_ns, END)
    inside = np.where(table.host == "", 0, table.accelerators * np.maximum(high - low, 0)) if rows else table.rank_ns * 0
    booked, lost = found.booked.held >= 0, found.uncharged.held >= 0
    assert found.booked.rank_ns[booked].sum() + found.uncharged.rank_ns[lost].sum() == inside.sum()


@settings(max_examples=30)
@given(st.lists(CHARGE, min_size=1, max_size=8), st.integers(0, 7), st.lists(USE, max_size=4))
def test_no_currency_is_added_to_another(rows: Rows, which: int, uses: Uses) -> None:
    marked = [row | {"BillingCurrency": "USD" if i % 8 == which else "EUR"} for i, row in enumerate(rows)]
    both = len({row["BillingCurrency"] for row in marked}) == 2
    try:
        found = book(holdings(uses), charges(marked))
        assert not both
    except InputRefused:
        assert both
        found = book(holdings(uses), charges(marked), currency="EUR")
    assert found.effective == units(marked, "EffectiveCost", found.unit, BillingCurrency=found.currency)
