"""Charges of a month in every kind that a bill has, as rows of FOCUS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace

from taut.result.types import FocusRow

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
