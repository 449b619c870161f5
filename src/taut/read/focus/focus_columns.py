"""The columns of the Cost and Usage dataset of FOCUS: what they hold, since when, and whether a file must have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
NEWEST = VERSIONS[-1]
Kind = Literal["number", "text", "time", "json"]


class Column(Struct, frozen=True):
    """One column: its name, what it holds, the versions that have it, and whether each of those wants it in every file."""

    name: str
    kind: Kind = "text"
    since: str = "1.0"
    until: str = NEWEST
    mandatory: bool = False


def _of(kind: Kind, names: str, since: str = "1.0", until: str = NEWEST, mandatory: bool = False) -> tuple[Column, ...]:
    return tuple(Column(name, kind, since, until, mandatory) for name in names.split())


COLUMNS: tuple[Column, ...] = (
    *_of("number", "BilledCost ContractedCost EffectiveCost ListCost PricingQuantity", mandatory=True),
    *_of("number", "ConsumedQuantity ContractedUnitPrice ListUnitPrice"),
    *_of("number", "CommitmentDiscountQuantity", "1.1"),
    *_of("number", "PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice", "1.2"),
    *_of("time", "BillingPeriodEnd BillingPeriodStart ChargePeriodEnd ChargePeriodStart", mandatory=True),
    *_of(
        "text", "BillingAccountId BillingAccountName BillingCurrency ChargeCategory ChargeClass ChargeDescription "
        "InvoiceIssuerName PricingUnit ServiceCategory ServiceName", mandatory=True,
    ),
    *_of("text", "ProviderName PublisherName", until="1.3", mandatory=True),
    *_of("text", "HostProviderName ServiceProviderName", "1.3", mandatory=True),
    *_of(
        "text", "AvailabilityZone ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName "
        "CommitmentDiscountStatus CommitmentDiscountType ConsumedUnit PricingCategory RegionId RegionName ResourceId "
        "ResourceName ResourceType SkuId SkuPriceId SubAccountId SubAccountName",
    ),
    *_of("text", "CapacityReservationId CapacityReservationStatus CommitmentDiscountUnit ServiceSubcategory SkuMeter", "1.1"),
    *_of("text", "BillingAccountType InvoiceId PricingCurrency SubAccountType", "1.2"),
    *_of("text", "AllocatedMethodId AllocatedResourceId AllocatedResourceName", "1.3"),
    *_of("text", "InvoiceDetailId", "1.4"),
    *_of("json", "Tags"),
    *_of("json", "SkuPriceDetails", "1.1"),
    *_of("json", "AllocatedMethodDetails AllocatedTags ContractApplied", "1.3"),
    *_of("json", "CommitmentProgramEligibilityDetails", "1.4"),
)  # fmt: skip
KINDS: Mapping[str, Kind] = {column.name: column.kind for column in COLUMNS}
COSTS = ("BilledCost", "EffectiveCost")
# A bill has a cost, a time, and at least so many of these; the other datasets of FOCUS have no charge periods.
KNOWN_BY = tuple(column.name for column in COLUMNS if column.mandatory and column.since == "1.0")
KNOWN = 4
TIME = "ChargePeriodStart"


def plain(name: str) -> str:
    """A column's name as it is compared: ``billed_cost`` and ``Billed Cost`` mean ``BilledCost``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


# What columns were called before 1.0, and still are by some exporters.
PREVIEW = {
    "AmortizedCost": "EffectiveCost", "ChargeType": "ChargeCategory", "InvoiceIssuer": "InvoiceIssuerName",
    "Provider": "ProviderName", "Publisher": "PublisherName", "Region": "RegionId", "UsageQuantity": "ConsumedQuantity",
    "UsageUnit": "ConsumedUnit",
}  # fmt: skip
_BY_PLAIN = {plain(old): name for old, name in PREVIEW.items()} | {plain(name): name for name in KINDS}


def meant(names: Iterable[str]) -> dict[str, str]:
    """Column of the specification → what the file calls it: its name, else one spelled otherwise, else one of before 1.0."""
    names = list(names)
    loose = [(_BY_PLAIN[plain(name)], name) for name in reversed(names) if plain(name) in _BY_PLAIN and not is_custom(name)]
    loose.sort(key=lambda pair: plain(pair[0]) == plain(pair[1]))
    return dict(loose) | {name: name for name in names if name in KINDS}


def is_custom(name: str) -> bool:
    """Whether a column is the exporter's own by the rule of the specification."""
    return name.lower().startswith("x_")


def is_kept(name: str) -> bool:
    """Whether a column that is none of the specification is kept: the exporter's own, also under another prefix."""
    return re.match(r"[A-Za-z]{1,8}_\w", name) is not None


def is_focus(names: Iterable[str]) -> bool:
    """Whether a table with these columns is a Cost and Usage dataset."""
    found = meant(names)
    return any(cost in found for cost in COSTS) and TIME in found and sum(name in found for name in KNOWN_BY) >= KNOWN


def version_of(names: Iterable[str]) -> str:
    """The oldest version that has all of a file's columns; one without the two names that 1.4 dropped is of 1.4."""
    found = meant(names)
    since = max((column.since for column in COLUMNS if column.name in found), default=VERSIONS[0])
    dropped = any(column.name in found for column in COLUMNS if column.until != NEWEST)
    return NEWEST if since == "1.3" and not dropped else since


EARLIER = {"ServiceProviderName": "ProviderName", "InvoiceId": "x_InvoiceId"}
"""What a column was called before it was one, or what exporters called it."""


def columns_of(version: str) -> list[Column]:
    """The columns that a version has."""
    return [column for column in COLUMNS if column.since <= version <= column.until]
