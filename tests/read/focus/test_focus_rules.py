"""Rules of the specification: each broken by one cell of a row that follows all others."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
import pytest

from focus_bills import bill, usage
from taut.read.focus.focus_reader import read_focus

TAX = {
    "ChargeCategory": "Tax", "PricingCategory": "", "PricingQuantity": "", "PricingUnit": "", "ListUnitPrice": "",
    "ContractedUnitPrice": "", "SkuId": "", "SkuPriceId": "", "ConsumedQuantity": "", "ConsumedUnit": "",
    "ChargeFrequency": "Recurring",
}  # fmt: skip
NO_SKU = {"SkuMeter": "", "SkuPriceDetails": ""}
COMMITTED = {
    "CommitmentDiscountId": "c1", "CommitmentDiscountCategory": "Spend", "CommitmentDiscountName": "plan",
    "CommitmentDiscountStatus": "Used", "CommitmentDiscountType": "Plan", "PricingCategory": "Committed", "BilledCost": "0",
    "EffectiveCost": "12",
}  # fmt: skip
BOUGHT = {"ChargeCategory": "Purchase", "ConsumedQuantity": "", "ConsumedUnit": "", "ChargeFrequency": "One-Time"}
QUANTITY = {"CommitmentDiscountQuantity": "12", "CommitmentDiscountUnit": "EUR"}
SHARED = {
    "AllocatedMethodId": "m", "AllocatedResourceId": "job-1", "AllocatedResourceName": "job-1",
    "AllocatedMethodDetails": '{"Elements": [{"AllocatedRatio": 1}]}',
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "cells"),
    [
        ("1.0", {}), ("1.0", TAX), ("1.0", COMMITTED), ("1.1", COMMITTED | QUANTITY), ("1.4", SHARED),
        ("1.0", {"ListCost": "20.004", "ContractedCost": "20.004", "PricingQuantity": "10.002"}),
        ("1.0", {"ChargeClass": "Correction", "ChargePeriodStart": "2026-09-05T10:00:00Z", "ListCost": "3", "SkuId": ""}),
        ("1.2", {"InvoiceId": ""}), ("1.0", TAX | {"ChargeCategory": "Credit", "ListUnitPrice": "2", "ListCost": "9"}),
    ],
)  # fmt: skip
def test_a_row_that_follows_the_rules_breaks_none(version: str, cells: dict[str, str], tmp_path: Path) -> None:
    assert read_focus(bill(tmp_path, [usage(version, **cells)])).broken == ()


# fmt: off
CASES = [
    ("1.0", {"ListCost": ""}, "ListCost-C-003-M"),
    ("1.0", {"BillingAccountId": " "}, "BillingAccountId-C-001-M"),
    ("1.0", {"ChargeCategory": "usage", "ConsumedQuantity": "", "ConsumedUnit": ""}, "ChargeCategory-C-003-M"),
    ("1.0", {"ChargeClass": "Refund"}, "ChargeClass-C-005-C"),
    ("1.0", {"ChargeFrequency": "Usage-based"}, "ChargeFrequency-C-003-M"),
    ("1.0", {"PricingCategory": "On-Demand"}, "PricingCategory-C-007-M"),
    ("1.0", {"ServiceCategory": "GPU"}, "ServiceCategory-C-003-M"),
    ("1.0", {"BillingCurrency": "Euro"}, "BillingCurrency-C-003-M"),
    ("1.0", {"ChargePeriodEnd": "2026-10-05 11:00:00"}, "ChargePeriodEnd-C-002-M"),
    ("1.0", {"ChargePeriodEnd": "2026-10-05T10:00:00Z"}, "ChargePeriodEnd-C-004-M"),
    ("1.0", {"ChargePeriodStart": "2026-09-30T23:00:00Z"}, "ChargePeriod-in-BillingPeriod"),
    ("1.0", {"BillingPeriodStart": "2026-11-01T00:00:00Z", "ChargeClass": "Correction"}, "BillingPeriodEnd-C-004-M"),
    ("1.0", {"ListCost": "20.02"}, "ListCost-C-009-C"),
    ("1.0", {"ContractedCost": "19"}, "ContractedCost-C-009-C"),
    ("1.0", {"ListUnitPrice": "-2", "ListCost": "-20"}, "ListUnitPrice-C-008-M"),
    ("1.0", {"SkuPriceId": ""}, "SkuPriceId-C-005-C"),
    ("1.0", {"PricingUnit": ""}, "PricingUnit-C-006-C"),
    ("1.0", {"ConsumedQuantity": "", "ConsumedUnit": ""}, "ConsumedQuantity-C-006-C"),
    ("1.0", TAX | {"SkuId": "s"}, "SkuId-C-004-C"),
    ("1.0", TAX | {"ChargeCategory": "Credit", "EffectiveCost": "1"}, "EffectiveCost-C-010-C"),
    ("1.0", {"ChargeCategory": "Purchase", "ConsumedQuantity": "", "ConsumedUnit": ""}, "ChargeFrequency-C-004-C"),
    ("1.0", COMMITTED | {"CommitmentDiscountStatus": ""}, "CommitmentDiscountStatus-C-004-C"),
    ("1.0", COMMITTED | {"CommitmentDiscountType": ""}, "CommitmentDiscountType-C-005-C"),
    ("1.0", {"CommitmentDiscountName": "plan"}, "CommitmentDiscountName-C-004-C"),
    ("1.0", COMMITTED | BOUGHT, "EffectiveCost-C-005-C"),
    ("1.1", COMMITTED, "CommitmentDiscountQuantity-C-005-C"),
    ("1.1", QUANTITY, "CommitmentDiscountQuantity-C-007-C"),
    ("1.1", {"SkuPriceDetails": "[1]"}, "SkuPriceDetails-C-001-M"),
    ("1.1", {"CapacityReservationId": "r"}, "CapacityReservationStatus-C-004-C"),
    ("1.0", {"Tags": "{team: vision}"}, "Tags-C-001-M"),
    ("1.0", {"ResourceType": ""}, "ResourceType-C-005-C"),
    ("1.0", {"RegionId": ""}, "RegionName-C-004-C"),
    ("1.2", {"SubAccountType": ""}, "SubAccountType-C-005-C"),
    ("1.3", {"HostProviderName": ""}, "HostProviderName-NotNull"),
    ("1.3", SHARED | {"AllocatedMethodId": "", "AllocatedMethodDetails": ""}, "AllocatedMethodId-NotNull"),
    ("1.4", SHARED | {"AllocatedResourceName": ""}, "AllocatedResourceName-NotNull"),
    ("1.4", SHARED | {"AllocatedMethodDetails": '{"Elements": []}'}, "AllocatedMethodDetails-Elements"),
    ("1.4", SHARED | {"AllocatedMethodDetails": '{"Elements": [{"AllocatedRatio": 0.4}]}'}, "AllocatedMethodDetails-Sum"),
    ("1.4", {"InvoiceDetailId": ""}, "InvoiceDetailId-NotNull"),
    ("1.4", TAX | NO_SKU | {"ChargeCategory": "Adjustment", "PricingCategory": "Other"}, "PricingCategory-SkuPriceId"),
    ("1.4", TAX | NO_SKU | {"ChargeCategory": "Credit", "ListUnitPrice": "2", "ListCost": "9"}, "ListCost-C-008-C"),
]
# fmt: on


@pytest.mark.parametrize(("version", "cells", "rule"), CASES)
def test_a_rule_is_named_with_its_row_and_its_amount(version: str, cells: dict[str, str], rule: str, tmp_path: Path) -> None:
    path = bill(tmp_path, [usage(version), usage(version, **cells)])
    (broken,) = read_focus(path).broken
    assert (broken.rule, broken.rows, broken.first) == (rule, 1, (f"{path}:2",))
    billed = cells.get("BilledCost", "20.00")
    assert broken.money == {cells.get("BillingCurrency", "EUR"): Decimal(billed)}


def test_rows_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    rows = [usage("1.2"), usage("1.2", SkuId="s2"), usage("1.2", BillingCurrency="USD"), usage("1.2", InvoiceId="inv-2")]
    found = {one.rule: one for one in read_focus(bill(tmp_path, rows)).broken}
    assert set(found) == {"SkuPriceId-C-008-M", "BillingCurrency-C-005-M"}
    assert found["BillingCurrency-C-005-M"].money == {"EUR": Decimal(40), "USD": Decimal(20)}


def test_ratios_of_one_origin_in_several_rows_add_up(tmp_path: Path) -> None:
    rows = []
    for origin, ratios in (("a", (0.25, 0.75)), ("b", (0.5, 0.25))):
        for i, ratio in enumerate(ratios):
            details = f'{{"Elements": [{{"AllocatedRatio": {ratio}}}]}}'
            part = SHARED | {"AllocatedResourceId": f"j{i}", "AllocatedMethodDetails": details}
            rows.append(usage("1.4", **part, x_origin=origin))
    (broken,) = read_focus(bill(tmp_path, rows)).broken
    assert (broken.rule, broken.rows) == ("AllocatedMethodDetails-Sum", 2)


def test_rounding_is_judged_by_the_decimals_that_a_provider_writes(tmp_path: Path) -> None:
    prices = {"ListUnitPrice": "2.00001", "ContractedUnitPrice": "2.00001"}
    fine = usage(ProviderName="Fine", ListCost="20.0001", ContractedCost="20.0001", **prices)
    coarse = usage(ListCost="20.00", PricingQuantity="10.001", ConsumedQuantity="10.001")
    assert read_focus(bill(tmp_path, [fine, coarse | {"ContractedCost": "20.00"}])).broken == ()


def test_the_same_rule_of_two_files_is_named_once(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        bill(tmp_path, [usage(ServiceCategory="GPU")], name)
    (broken,) = read_focus(tmp_path).broken
    assert (broken.rows, len(broken.first), broken.money) == (2, 2, {"EUR": Decimal(40)})


def test_the_published_sample_closes_and_the_rules_that_its_validator_names_are_named(shared: Path) -> None:
    charges = read_focus(shared / "focus" / "focus_sample.csv")
    assert round(pc.sum(charges.table["BilledCost"]).as_py(), 3) == Decimal("20.520")
    assert round(pc.sum(charges.table["EffectiveCost"]).as_py(), 3) == Decimal("14.977")
    named = {one.validator for one in (*charges.broken, *charges.disputed)} - {""}
    assert named == {
        "BillingPeriodEnd_IsDateTime", "BillingPeriodStart_IsDateTime", "ChargeFrequency_Enum", "ChargePeriodEnd_IsDateTime",
        "ChargePeriodStart_IsDateTime", "ContractedCost_NotNull", "InvoiceIssuer_Required", "Provider_Required",
        "Publisher_Required", "ResourceID_Required", "SkuPriceId_Nullable",
    }  # fmt: skip
    assert {one.validator for one in charges.disputed} == {
        "InvoiceIssuer_Required", "Provider_Required", "Publisher_Required", "ResourceID_Required",
    }  # fmt: skip
