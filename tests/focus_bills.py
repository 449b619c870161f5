"""Small FOCUS bills that follow the rules, to be broken one cell at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

USAGE = {
    "BilledCost": "20.00", "EffectiveCost": "20.00", "ListCost": "20.00", "ContractedCost": "20.00", "ListUnitPrice": "2.00",
    "ContractedUnitPrice": "2.00", "PricingQuantity": "10", "PricingUnit": "Hours", "PricingCategory": "Standard",
    "ConsumedQuantity": "10", "ConsumedUnit": "Hours", "BillingAccountId": "a1", "BillingAccountName": "Research",
    "BillingCurrency": "EUR", "BillingPeriodStart": "2026-10-01T00:00:00Z", "BillingPeriodEnd": "2026-11-01T00:00:00Z",
    "ChargePeriodStart": "2026-10-05T10:00:00Z", "ChargePeriodEnd": "2026-10-05T11:00:00Z", "ChargeCategory": "Usage",
    "ChargeClass": "", "ChargeDescription": "a host with eight GPUs, one hour", "ChargeFrequency": "Usage-Based",
    "InvoiceIssuerName": "A Cloud, Inc.", "ProviderName": "A Cloud", "PublisherName": "A Cloud",
    "ServiceCategory": "Compute", "ServiceName": "Virtual machines", "ResourceId": "i-1", "ResourceName": "node1",
    "ResourceType": "Instance", "RegionId": "r1", "RegionName": "Region One", "SkuId": "s1", "SkuPriceId": "s1.p1",
    "SubAccountId": "sub1", "SubAccountName": "training", "CommitmentDiscountId": "", "CommitmentDiscountCategory": "",
    "CommitmentDiscountName": "", "CommitmentDiscountStatus": "", "CommitmentDiscountType": "",
    "Tags": '{"team": "vision"}',
}  # fmt: skip
"""An hour of a host in version 1.0."""
V11 = {"CommitmentDiscountQuantity": "", "CommitmentDiscountUnit": "", "SkuMeter": "GPU hours",
       "SkuPriceDetails": '{"GpuCount": 8}', "ServiceSubcategory": "Virtual Machines",
       "CapacityReservationId": "", "CapacityReservationStatus": ""}  # fmt: skip
V12 = {"InvoiceId": "inv-1", "BillingAccountType": "Account", "SubAccountType": "Project", "PricingCurrency": "EUR",
       "PricingCurrencyEffectiveCost": "20.00"}  # fmt: skip
V13 = {"HostProviderName": "A Cloud", "ServiceProviderName": "A Cloud", "AllocatedMethodId": "", "AllocatedResourceId": "",
       "AllocatedResourceName": "", "AllocatedTags": "", "AllocatedMethodDetails": "", "ContractApplied": ""}  # fmt: skip
V14 = {"InvoiceDetailId": "line-1", "CommitmentProgramEligibilityDetails": ""}
ADDED = {"1.0": {}, "1.1": V11, "1.2": V11 | V12, "1.3": V11 | V12 | V13, "1.4": V11 | V12 | V13 | V14}
Row = Mapping[str, str]


def usage(version: str = "1.0", **cells: str) -> dict[str, str]:
    """One row of a version that follows its rules, with some cells changed."""
    row = USAGE | ADDED[version]
    if version == "1.4":
        row = {name: cell for name, cell in row.items() if name not in ("ProviderName", "PublisherName")}
    return row | cells


def text(rows: Sequence[Row], without: Sequence[str] = ()) -> str:
    """Rows as CSV."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in without]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def bill(folder: Path, rows: Sequence[Row], name: str = "bill.csv", without: Sequence[str] = ()) -> Path:
    """A file with these rows."""
    path = folder / name
    path.write_text(text(rows, without), encoding="utf-8")
    return path
