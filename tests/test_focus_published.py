"""A bill that is exported as FOCUS 1.4, against the rules of the specification, written out as data.

Nothing is shared with what writes the rows or with what checks bills: the file is parsed with the standard library, and the
rules are those of the columns' pages of the specification (Cost and Usage 1.4, split cost allocation).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from focus_rows import month, render
from taut.cli import main

# fmt: off
PRESENT = (
    "BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory "
    "ChargeClass ChargeDescription ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost HostProviderName "
    "InvoiceIssuerName ListCost PricingQuantity PricingUnit ServiceCategory ServiceName ServiceProviderName"
)
WITH_SPLIT_ALLOCATION = "AllocatedMethodId AllocatedResourceId AllocatedResourceName AllocatedTags AllocatedMethodDetails"
REMOVED = "ProviderName PublisherName"
NEVER_NULL = (
    "BilledCost BillingAccountId BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory ChargeFrequency "
    "ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost HostProviderName InvoiceIssuerName ListCost "
    "ServiceCategory ServiceName ServiceProviderName"
)
ALLOWED = {
    "ChargeCategory": "Usage|Purchase|Tax|Credit|Adjustment", "ChargeClass": "Correction",
    "ChargeFrequency": "One-Time|Recurring|Usage-Based", "CommitmentDiscountCategory": "Spend|Usage",
    "CommitmentDiscountStatus": "Used|Unused", "PricingCategory": "Standard|Dynamic|Committed|Other",
    "ServiceCategory": "AI and Machine Learning|Analytics|Business Applications|Compute|Databases|Developer Tools|Multicloud|"
    "Identity|Integration|Internet of Things|Management and Governance|Media|Migration|Mobile|Networking|Security|Storage|Web|"
    "Other",
}
FORMAT = {
    **dict.fromkeys(("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"),
                    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingQuantity", "ConsumedQuantity",
                     "CommitmentDiscountQuantity"), r"-?\d+(\.\d+)?(E-?\d+)?"),
    **dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice"), r"\d+(\.\d+)?(E-?\d+)?"),
    "BillingCurrency": "[A-Z]{3}",
}
NULL_WHERE_NULL = (
    "PricingUnit PricingQuantity, ConsumedUnit ConsumedQuantity, CommitmentDiscountCategory CommitmentDiscountId, "
    "CommitmentDiscountName CommitmentDiscountId, CommitmentDiscountType CommitmentDiscountId, "
    "CommitmentDiscountStatus CommitmentDiscountId, CommitmentDiscountUnit CommitmentDiscountQuantity, "
    "CommitmentDiscountQuantity CommitmentDiscountId, ResourceName ResourceId, ResourceType ResourceId, RegionName RegionId, "
    "InvoiceDetailId InvoiceId, AllocatedResourceName AllocatedResourceId, AllocatedTags AllocatedMethodId, "
    "AllocatedMethodDetails AllocatedMethodId, AllocatedResourceId AllocatedMethodId, ConsumedQuantity SkuPriceId, "
    "PricingCategory SkuPriceId"
)
THERE_WHERE_THERE = (
    "PricingUnit PricingQuantity, ConsumedUnit ConsumedQuantity, CommitmentDiscountCategory CommitmentDiscountId, "
    "CommitmentDiscountType CommitmentDiscountId, CommitmentDiscountUnit CommitmentDiscountQuantity, ResourceType ResourceId, "
    "RegionName RegionId, InvoiceDetailId InvoiceId, AllocatedResourceName AllocatedResourceId, "
    "AllocatedMethodDetails AllocatedMethodId"
)
PRICED = "PricingCategory PricingQuantity ListUnitPrice ContractedUnitPrice SkuId SkuPriceId"
"""Null for taxes; not null for usage and purchases that are no corrections."""
ADDED_UP = "BilledCost EffectiveCost ListCost ContractedCost PricingQuantity ConsumedQuantity CommitmentDiscountQuantity"
# fmt: on
OF_THE_PART = {*ADDED_UP.split(), *WITH_SPLIT_ALLOCATION.split()}
Row = dict[str, str]


def exported(folder: Path) -> bytes:
    """A month of charges, as ``taut export`` writes it from the run folder of its bill."""
    with (folder / "bill.csv").open("wb") as out:
        render(month(), out, "1.4")
    (folder / "sacct.txt").write_text(
        "JobID|State|Start|End|AllocTRES|NodeList\n"
        "1|FAILED|2026-10-01T00:10:00|2026-10-01T00:40:00|gres/gpu=1|node0\n"
        "2|COMPLETED|2026-10-01T00:40:00|2026-10-01T01:20:00|gres/gpu=1|node0\n"
        "3|COMPLETED|2026-10-01T01:20:00|2026-10-01T02:47:13|gres/gpu=1|node[1-2]\n"
    )
    run, log, charges = (str(folder / name) for name in ("bill", "sacct.txt", "bill.csv"))
    for command in (["bill", log, "--focus", charges, "-o", run], ["export", run, "--to", "focus"]):
        assert CliRunner().invoke(main, command).exit_code == 0
    return (folder / "bill" / "focus.csv").read_bytes()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """What is written of a month of charges, each in parts."""
    text = exported(tmp_path_factory.mktemp("bill"))
    return list(csv.DictReader(io.StringIO(text.decode())))


def pairs(text: str) -> list[tuple[str, str]]:
    return [(one, other) for one, other in (pair.split() for pair in text.split(", "))]


def test_columns_that_every_file_has_are_there_and_removed_ones_are_not(rows: list[Row]) -> None:
    assert {*PRESENT.split(), *WITH_SPLIT_ALLOCATION.split()} <= set(rows[0])
    assert not {*REMOVED.split()} & set(rows[0])
    own = [name for name in rows[0] if name.startswith("x_")]
    assert list(rows[0])[-len(own) :] == own
    assert all(re.fullmatch(r"[A-Z][A-Za-z0-9]{0,49}", name) for name in rows[0] if name not in own)


def test_what_is_never_null_is_there(rows: list[Row]) -> None:
    assert [(column, i) for column in NEVER_NULL.split() for i, row in enumerate(rows) if not row[column]] == []


def test_values_are_allowed_and_formats_kept(rows: list[Row]) -> None:
    found = [
        (column, row[column])
        for rules in (ALLOWED, FORMAT) for column, pattern in rules.items() for row in rows
        if row[column] and not re.fullmatch(pattern, row[column])
    ]  # fmt: skip
    assert found == []


def test_columns_are_null_and_there_together(rows: list[Row]) -> None:
    assert [(one, other) for one, other in pairs(NULL_WHERE_NULL) for row in rows if row[one] and not row[other]] == []
    assert [(one, other) for one, other in pairs(THERE_WHERE_THERE) for row in rows if row[other] and not row[one]] == []


def test_what_is_priced_has_a_price_and_a_tax_has_none(rows: list[Row]) -> None:
    for row in rows:
        if row["ChargeCategory"] == "Tax":
            assert not any(row[column] for column in PRICED.split())
        elif row["ChargeCategory"] in ("Usage", "Purchase") and row["ChargeClass"] != "Correction":
            assert all(row[column] for column in PRICED.split())


def test_usage_is_measured_and_nothing_else(rows: list[Row]) -> None:
    for row in rows:
        used = row["ChargeCategory"] == "Usage" and row["CommitmentDiscountStatus"] != "Unused"
        assert bool(row["ConsumedQuantity"]) == used or row["ChargeClass"] == "Correction"
        if row["ChargeCategory"] == "Usage" and row["CommitmentDiscountId"]:
            assert row["CommitmentDiscountStatus"]
        if row["ChargeCategory"] in ("Usage", "Purchase") and row["CommitmentDiscountId"]:
            assert row["CommitmentDiscountQuantity"]


def test_costs_are_price_times_quantity(rows: list[Row]) -> None:
    for row in rows:
        for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
            if row[price] and row["PricingQuantity"]:
                assert abs(Decimal(row[cost]) - Decimal(row[price]) * Decimal(row["PricingQuantity"])) < Decimal("1E-16")


def test_credits_and_purchases_cost_what_they_must(rows: list[Row]) -> None:
    for row in rows:
        if row["ChargeCategory"] == "Credit":
            assert row["EffectiveCost"] == row["ListCost"] == row["ContractedCost"] == row["BilledCost"]
        if row["ChargeCategory"] == "Purchase":
            assert row["ChargeFrequency"] != "Usage-Based"
            assert Decimal(row["EffectiveCost"]) == 0 or not row["CommitmentDiscountId"]


def test_periods_run_forwards_inside_the_billing_period(rows: list[Row]) -> None:
    for row in rows:
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]


def test_details_have_the_form_of_their_schema(rows: list[Row]) -> None:
    assert any(row["AllocatedMethodId"] for row in rows)
    for row in rows:
        if not row["AllocatedMethodId"]:  # a charge that nobody shares
            assert (row["AllocatedMethodDetails"], row["x_taut_ratio"]) == ("", "1")
            continue
        details = json.loads(row["AllocatedMethodDetails"])
        assert [name for name in details if name != "Elements" and not name.startswith("x_")] == []
        assert details["Elements"]
        for element in details["Elements"]:
            assert isinstance(element["AllocatedRatio"], int | float)
            assert isinstance(element["UsageUnit"], str)
            assert isinstance(element.get("UsageQuantity", 0), int | float)


def test_parts_are_their_origin_and_add_up_to_it(rows: list[Row]) -> None:
    origins: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        origins[row["x_taut_origin"]].append(row)
    whole = io.BytesIO()
    render(month(), whole, "1.4")
    charges = {row["x_taut_origin"]: row for row in csv.DictReader(io.StringIO(whole.getvalue().decode()))}
    assert set(origins) == set(charges)
    for origin, parts in origins.items():
        details = [part["AllocatedMethodDetails"] for part in parts if part["AllocatedMethodDetails"]]
        ratio = [json.loads(one, parse_float=Decimal)["Elements"] for one in details]
        assert sum(Decimal(element["AllocatedRatio"]) for elements in ratio for element in elements) == (1 if details else 0)
        assert sum(Decimal(part["x_taut_ratio"]) for part in parts) == 1
        assert len(details) == (len(parts) if details else 0)
        for column in ADDED_UP.split():
            cells = [part[column] for part in parts]
            assert sum(map(Decimal, filter(None, cells))) == Decimal(charges[origin][column] or 0)
        same = [column for column in charges[origin] if column not in OF_THE_PART and not column.startswith("x_")]
        assert all(part[column] == charges[origin][column] for part in parts for column in same)


def test_tags_of_a_part_are_not_those_of_its_origin(rows: list[Row]) -> None:
    for row in rows:
        if row["AllocatedTags"]:
            assert not set(json.loads(row["AllocatedTags"])) & set(json.loads(row["Tags"] or "{}"))
