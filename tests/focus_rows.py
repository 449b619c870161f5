"""Charges of a bill as rows of FOCUS, in every kind that a bill has, and a plain writer of such bills.

Bills of tests, of ``bench/demo_money.py`` and of ``validation/`` are made with it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from taut.render.focus_table import COLUMNS, OWN, VERSIONS, chosen

START = datetime(2026, 10, 1, tzinfo=UTC)
NO_USAGE = dict.fromkeys(("consumed_quantity", "consumed_unit", "resource_id", "resource_name", "resource_type"))
NO_PRICE = dict.fromkeys((
    "pricing_category", "pricing_quantity", "pricing_unit", "list_unit_price", "contracted_unit_price", "sku_id",
    "sku_price_id",
))  # fmt: skip
PLAN = {
    "commitment_discount_category": "Spend", "commitment_discount_id": "plan", "commitment_discount_name": "one year",
    "commitment_discount_type": "Plan", "commitment_discount_unit": "EUR", "commitment_discount_quantity": Decimal("1.9"),
}  # fmt: skip


class FocusRow(Struct, frozen=True, kw_only=True):
    """A charge, or an allocated part of one, as a row of FOCUS: each field is the column of that name."""

    billed_cost: Decimal | None
    effective_cost: Decimal | None
    list_cost: Decimal | None
    contracted_cost: Decimal | None
    billing_currency: str
    billing_account_id: str
    billing_period_start: datetime
    billing_period_end: datetime
    charge_period_start: datetime
    charge_period_end: datetime
    charge_category: str = "Usage"
    invoice_issuer_name: str
    service_provider_name: str
    service_category: str = "Compute"
    service_name: str
    billing_account_name: str | None = None
    billing_account_type: str | None = None
    charge_class: str | None = None
    charge_description: str | None = None
    charge_frequency: str = "Usage-Based"
    invoice_id: str | None = None
    invoice_detail_id: str | None = None
    host_provider_name: str | None = None
    """None: the service provider."""
    publisher_name: str | None = None
    """None: the service provider."""
    service_subcategory: str | None = None
    resource_id: str | None = None
    """Of an allocated part: that of its origin."""
    resource_name: str | None = None
    resource_type: str | None = None
    region_id: str | None = None
    region_name: str | None = None
    availability_zone: str | None = None
    sub_account_id: str | None = None
    sub_account_name: str | None = None
    sub_account_type: str | None = None
    sku_id: str | None = None
    sku_price_id: str | None = None
    sku_meter: str | None = None
    sku_price_details: str | None = None
    """JSON text."""
    pricing_category: str | None = None
    pricing_quantity: Decimal | None = None
    pricing_unit: str | None = None
    list_unit_price: Decimal | None = None
    contracted_unit_price: Decimal | None = None
    pricing_currency: str | None = None
    pricing_currency_contracted_unit_price: Decimal | None = None
    pricing_currency_effective_cost: Decimal | None = None
    pricing_currency_list_unit_price: Decimal | None = None
    consumed_quantity: Decimal | None = None
    consumed_unit: str | None = None
    commitment_discount_category: str | None = None
    commitment_discount_id: str | None = None
    commitment_discount_name: str | None = None
    commitment_discount_quantity: Decimal | None = None
    commitment_discount_status: str | None = None
    commitment_discount_type: str | None = None
    commitment_discount_unit: str | None = None
    capacity_reservation_id: str | None = None
    capacity_reservation_status: str | None = None
    contract_applied: str | None = None
    """JSON text."""
    commitment_program_eligibility_details: str | None = None
    """JSON text."""
    tags: str | None = None
    """JSON text; of an allocated part those of its origin."""
    x_taut_origin: str | None = None
    """The charge of which this is a part: FOCUS has no column for it."""
    x_taut_item: str | None = None
    """What is paid for: an item of a bill."""
    x_taut_category: str | None = None
    """Category of the bill, by item and fate."""
    x_taut_fate: str | None = None
    x_taut_cause: str | None = None
    x_taut_job: str | None = None
    x_taut_team: str | None = None


Cell = str | Decimal | datetime | None
CELLS: dict[str, Callable[[FocusRow], Cell]] = {
    **{column.name: attrgetter(field) for column in (*COLUMNS, *OWN) for field in FocusRow.__struct_fields__
       if column.name in (field, "".join(part.capitalize() for part in field.split("_")))},
    "ProviderName": attrgetter("service_provider_name"),
    "PublisherName": lambda row: row.publisher_name or row.service_provider_name,
    "HostProviderName": lambda row: row.host_provider_name or row.service_provider_name,
}  # fmt: skip


def render(rows: Sequence[FocusRow], out: BinaryIO, version: str = VERSIONS[-1]) -> None:
    """Write rows as a FOCUS file in CSV."""
    filled = {name for name, cell in CELLS.items() if any(cell(row) is not None for row in rows)}
    names = [column.name for column in chosen(filled, version)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_text(CELLS[name](row)) if name in CELLS else "" for name in names] for row in rows)
    out.write(text.getvalue().encode())


def _text(cell: Cell) -> str:
    if isinstance(cell, datetime):
        return cell.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{cell.normalize():f}" if isinstance(cell, Decimal) else cell or ""


def usage(hour: int = 0, **cells: object) -> FocusRow:
    """An hour of a host at list price, with some cells changed."""
    cost = Decimal("31.2188")
    row = FocusRow(
        billed_cost=cost, effective_cost=cost, list_cost=cost, contracted_cost=cost, billing_currency="EUR",
        billing_account_id="a1", billing_account_name="Research", billing_period_start=START,
        billing_period_end=datetime(2026, 11, 1, tzinfo=UTC), charge_period_start=START + timedelta(hours=hour),
        charge_period_end=START + timedelta(hours=hour + 1), invoice_issuer_name="A Cloud", service_provider_name="A Cloud",
        service_name="Virtual machines", charge_description="a host, one hour", resource_id=f"i-{hour}",
        resource_name=f"node{hour}", resource_type="Instance", region_id="r1", region_name="Region", sku_id="gpu8",
        sku_price_id="gpu8.list", pricing_category="Standard", pricing_quantity=Decimal(1), pricing_unit="Hours",
        list_unit_price=cost, contracted_unit_price=cost, consumed_quantity=Decimal(1), consumed_unit="Hours",
        invoice_id="inv-1", invoice_detail_id="1", tags='{"cluster": "c1"}', x_taut_origin=f"bill.csv:{hour + 1}",
    )  # fmt: skip
    return replace(row, **cells)


def month() -> list[FocusRow]:
    """Usage, spot, used and unused commitment, its purchase, a tax, a credit, a correction."""
    credit = dict.fromkeys(("billed_cost", "effective_cost", "list_cost", "contracted_cost"), Decimal("-7.77"))
    return [
        usage(), usage(1, pricing_category="Dynamic", billed_cost=Decimal("9.1"), effective_cost=Decimal("9.1")),
        usage(2, **PLAN, commitment_discount_status="Used", pricing_category="Committed", billed_cost=Decimal(0)),
        usage(3, **PLAN, **NO_USAGE, commitment_discount_status="Unused", pricing_category="Committed", billed_cost=Decimal(0)),
        usage(4, **PLAN, **NO_USAGE, charge_category="Purchase", charge_frequency="Recurring", effective_cost=Decimal(0)),
        usage(5, **NO_PRICE, **NO_USAGE, charge_category="Tax", charge_frequency="Recurring"),
        usage(6, **NO_PRICE, **NO_USAGE, **credit, charge_category="Credit", charge_frequency="One-Time"),
        usage(7, **credit, charge_class="Correction", pricing_quantity=None, pricing_unit=None),
    ]  # fmt: skip
