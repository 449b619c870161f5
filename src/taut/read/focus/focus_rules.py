"""Rules of the specification that a bill breaks: those that concern single rows and columns.

Rules go by the ids of the requirements model that FOCUS publishes for 1.2 (older versions have none); where it has no id for
one, the id ends in what is asked. ``validator`` is what focus-validator 1.0.0 calls the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pyarrow.compute as pc
from msgspec import Struct

from taut.core.array_types import Floats, Mask
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_columns import NEWEST, is_custom

# fmt: off
CHARGE_CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
FREQUENCIES = ("One-Time", "Recurring", "Usage-Based")
PRICING_CATEGORIES = ("Standard", "Dynamic", "Committed", "Other")
SERVICE_CATEGORIES = (
    "AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools", "Multicloud",
    "Identity", "Integration", "Internet of Things", "Management and Governance", "Media", "Migration", "Mobile",
    "Networking", "Security", "Storage", "Web", "Other",
)
# fmt: on
ISO_4217 = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CLF
CLP CNY COP COU CRC CUC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HRK HTG HUF
IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU
MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST
XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG ZWL
"""
CURRENCIES = frozenset(ISO_4217.split())

CENTS = 2
"""Decimals that a cost is written with at least."""
COMPUTED = 6
"""Decimals from which on a price or a quantity is taken to be rounded, not set."""


class Rule(Struct, frozen=True):
    """One rule on rows: its id, the column that it is about, what it asks, and the rows that break it."""

    rule: str
    column: str
    what: str
    broken: Callable[[Charged], Mask]
    needs: tuple[str, ...] = ()
    """Other columns without which it is not asked."""
    since: str = "1.0"
    until: str = NEWEST
    validator: str = ""


def _not_null(column: str, rule: str, since: str = "1.0", until: str = NEWEST) -> Rule:
    return Rule(
        rule, column, f"{column} is null", lambda v: v.null(column), since=since, until=until, validator=f"{column}_NotNull"
    )


def _allowed(column: str, rule: str, values: Sequence[str], since: str = "1.0") -> Rule:
    what = f"{column} is not one of {', '.join(values)}" if len(values) < 8 else f"{column} is none of its allowed values"
    return Rule(rule, column, what, lambda v: v.beyond(column, values), since=since, validator=f"{column}_Enum")


def _null_for_tax(column: str, rule: str) -> Rule:
    what = f"{column} is not null although ChargeCategory is Tax"
    return Rule(rule, column, what, lambda v: v.there(column) & v.is_("ChargeCategory", "Tax"), ("ChargeCategory",))


def _needed(column: str, rule: str, validator: str = "") -> Rule:
    what = f"{column} is null although ChargeCategory is Usage or Purchase and ChargeClass is not Correction"
    return Rule(rule, column, what, lambda v: v.null(column) & v.priced, ("ChargeCategory",), validator=validator)


def _together(column: str, other: str, null: str, there: str, since: str = "1.0") -> tuple[Rule, ...]:
    """A column is null exactly where another is; a rule that the specification does not have is left empty."""
    without = Rule(
        null, column, f"{column} is not null although {other} is", lambda v: v.there(column) & v.null(other), (other,), since
    )
    with_it = Rule(
        there, column, f"{column} is null although {other} is not", lambda v: v.null(column) & v.there(other), (other,), since
    )
    return tuple(rule for rule in (without, with_it) if rule.rule)


def _formatted(column: str) -> Rule:
    return Rule(
        f"{column}-C-002-M",
        column,
        f"{column} is not written as YYYY-MM-DDTHH:mm:ssZ (UTC)",
        lambda v: v.odd.get(column, np.zeros(v.table.num_rows, dtype=np.bool_)),
        validator=f"{column}_IsDateTime",
    )


def _product(cost: str, price: str) -> Rule:
    """Cost = price × quantity, within what rounding of the three to the decimals of their columns explains."""

    def off(v: Charged) -> Mask:
        quantity, unit, whole = v.number("PricingQuantity"), v.number(price), v.number(cost)
        half = v.half_unit(cost, CENTS), v.half_unit(price, COMPUTED), v.half_unit("PricingQuantity", COMPUTED)
        with np.errstate(invalid="ignore", over="ignore"):
            bound = half[0] + half[1] * np.abs(quantity) + half[2] * np.abs(unit) + 1e-9 * np.abs(whole)
            return (np.abs(whole - unit * quantity) > bound) & ~v.correction()

    what = f"{cost} is not {price} × PricingQuantity, beyond rounding"
    return Rule(f"{cost}-C-009-C", cost, what, off, (price, "PricingQuantity"))


def _as_billed(cost: str, rule: str, price: str = "") -> Rule:
    """A credit costs what is billed; before 1.4 that is asked only of credits without a unit price, where cost has one."""

    def off(v: Charged) -> Mask:
        unlike = pc.not_equal(v.table[cost], v.table["BilledCost"]).fill_null(False).to_numpy(zero_copy_only=False)
        found: Mask = unlike & v.is_("ChargeCategory", "Credit")
        return found & v.null(price) if price and v.version < "1.4" else found

    return Rule(rule, cost, f"{cost} of a credit is not its BilledCost", off, ("BilledCost", "ChargeCategory"))


def _negative(column: str, rule: str) -> Rule:
    return Rule(rule, column, f"{column} is negative", lambda v: v.number(column) < 0)


def _several(v: Charged, column: str, other: str) -> Mask:
    """Rows whose text in a column goes with several texts of another."""
    texts, code = v.words(column)
    others, with_ = v.words(other)
    known = (code < len(texts) - 1) & (with_ < len(others) - 1)
    pairs = np.unique(code[known].astype(np.int64) * len(others) + with_[known])
    many = np.bincount(pairs // len(others), minlength=len(texts)) > 1
    return known & many[code]


def _in_period(v: Charged) -> Mask:
    start, end = v.time("ChargePeriodStart"), v.time("ChargePeriodEnd")
    first, last = v.time("BillingPeriodStart"), v.time("BillingPeriodEnd")
    known = (
        v.there("ChargePeriodStart") & v.there("ChargePeriodEnd") & v.there("BillingPeriodStart") & v.there("BillingPeriodEnd")
    )
    return known & ((start < first) | (end > last)) & ~v.correction() & v.is_("ChargeCategory", "Usage")


def _backwards(v: Charged, start: str, end: str) -> Mask:
    return v.there(start) & v.there(end) & (v.time(start) >= v.time(end))


def _unshared(v: Charged) -> Mask:
    """Allocated rows whose ratios do not add up to 1 over their origin charge.

    No column names the origin. Where the exporter names it in one of its own (``x_…origin…``) the sum is 1; else rows of one
    resource, period, price and method are one or several origins, and the sum is a whole number.
    """
    ratio = _ratios(v)
    own = [name for name in v.table.column_names if is_custom(name) and "origin" in name.lower()]
    keys = own[:1] or [
        "ResourceId",
        "SkuPriceId",
        "ChargeCategory",
        "ChargeClass",
        "CommitmentDiscountId",
        "CommitmentDiscountStatus",
        "InvoiceId",
        "SubAccountId",
        "AllocatedMethodId",
    ]
    rows = [v.words(key)[1] for key in keys]
    if not own:
        rows += [np.unique(v.time(key), return_inverse=True)[1] for key in ("ChargePeriodStart", "ChargePeriodEnd")]
    group = np.zeros(v.table.num_rows, dtype=np.int64)
    for code in rows:
        group = np.unique(group * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    known = ~np.isnan(ratio)
    total = np.bincount(group[known], ratio[known], minlength=int(group.max(initial=0)) + 1)
    whole = np.ones_like(total) if own else np.maximum(np.rint(total), 1)
    return known & (np.abs(total - whole) > 1e-9)[group]


def _ratios(v: Charged) -> Floats:
    """The allocated ratio of each row; NaN where there is none."""
    texts, code = v.words("AllocatedMethodDetails")
    return np.array([_ratio(text) for text in texts], dtype=np.float64)[code]


def _ratio(text: str | None) -> float:
    try:
        elements = msgspec.json.decode(text or "null")["Elements"]
        return float(sum(one["AllocatedRatio"] for one in elements)) if elements else float("nan")
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError, OverflowError):
        return float("nan")


def _is_iso(text: str | None) -> bool:
    return text is None or not text.strip() or text in CURRENCIES


_TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")

RULES: tuple[Rule, ...] = (
    *(_not_null(column, f"{column}-C-003-M") for column in ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")),
    *(_not_null(column, f"{column}-C-003-M") for column in _TIMES),
    *(_formatted(column) for column in _TIMES),
    _not_null("BillingAccountId", "BillingAccountId-C-001-M"),
    _not_null("BillingCurrency", "BillingCurrency-C-004-M"),
    _not_null("ChargeCategory", "ChargeCategory-C-002-M"),
    _not_null("ChargeFrequency", "ChargeFrequency-C-002-M"),
    _not_null("InvoiceIssuerName", "InvoiceIssuerName-C-003-M"),
    _not_null("ProviderName", "ProviderName-C-003-M", until="1.3"),
    _not_null("PublisherName", "PublisherName-C-003-M", until="1.3"),
    _not_null("ServiceCategory", "ServiceCategory-C-002-M"),
    _not_null("ServiceName", "ServiceName-C-003-M"),
    _not_null("ServiceSubcategory", "ServiceSubcategory-C-002-M", "1.1"),
    _not_null("PricingCurrency", "PricingCurrency-C-004-M", "1.2"),
    _not_null("PricingCurrencyEffectiveCost", "PricingCurrencyEffectiveCost-C-003-M", "1.2"),
    _not_null("HostProviderName", "HostProviderName-NotNull", "1.3"),
    _not_null("ServiceProviderName", "ServiceProviderName-NotNull", "1.3"),
    _allowed("ChargeCategory", "ChargeCategory-C-003-M", CHARGE_CATEGORIES),
    _allowed("ChargeClass", "ChargeClass-C-005-C", ("Correction",)),
    _allowed("ChargeFrequency", "ChargeFrequency-C-003-M", FREQUENCIES),
    _allowed("CommitmentDiscountCategory", "CommitmentDiscountCategory-C-005-M", ("Spend", "Usage")),
    _allowed("CommitmentDiscountStatus", "CommitmentDiscountStatus-C-005-M", ("Used", "Unused")),
    _allowed("CapacityReservationStatus", "CapacityReservationStatus-C-006-M", ("Used", "Unused"), "1.1"),
    _allowed("PricingCategory", "PricingCategory-C-007-M", PRICING_CATEGORIES),
    _allowed("ServiceCategory", "ServiceCategory-C-003-M", SERVICE_CATEGORIES),
    Rule(
        "BillingCurrency-C-003-M", "BillingCurrency", "BillingCurrency is no code of ISO 4217",
        lambda v: ~v.where("BillingCurrency", _is_iso), validator="BillingCurrency_IsCurrencyCode",
    ),
    Rule(
        "BillingCurrency-C-005-M", "BillingCurrency", "one InvoiceId has charges in several currencies",
        lambda v: _several(v, "InvoiceId", "BillingCurrency"), ("InvoiceId",), "1.2",
    ),
    Rule(
        "InvoiceId-OneIssuer", "InvoiceId", "one InvoiceId has several values of InvoiceIssuerName",
        lambda v: _several(v, "InvoiceId", "InvoiceIssuerName"), ("InvoiceIssuerName",), "1.2",
    ),
    *_together("ConsumedQuantity", "SkuPriceId", "ConsumedQuantity-SkuPriceId", "", "1.4"),
    *_together("CommitmentDiscountQuantity", "SkuPriceId", "CommitmentDiscountQuantity-SkuPriceId", "", "1.4"),
    *_together("PricingCategory", "SkuPriceId", "PricingCategory-SkuPriceId", "", "1.4"),
    *_together("InvoiceDetailId", "InvoiceId", "InvoiceDetailId-Null", "InvoiceDetailId-NotNull", "1.4"),
    _null_for_tax("ContractedUnitPrice", "ContractedUnitPrice-C-005-C"),
    _null_for_tax("ListUnitPrice", "ListUnitPrice-C-004-C"),
    _null_for_tax("PricingCategory", "PricingCategory-C-003-C"),
    _null_for_tax("PricingQuantity", "PricingQuantity-C-004-C"),
    _null_for_tax("SkuId", "SkuId-C-004-C"),
    _null_for_tax("SkuPriceId", "SkuPriceId-C-004-C"),
    _needed("ContractedUnitPrice", "ContractedUnitPrice-C-006-C"),
    _needed("ListUnitPrice", "ListUnitPrice-C-005-C"),
    _needed("PricingCategory", "PricingCategory-C-004-C"),
    _needed("PricingQuantity", "PricingQuantity-C-005-C"),
    _needed("SkuId", "SkuId-C-005-C"),
    _needed("SkuPriceId", "SkuPriceId-C-005-C", "SkuPriceId_Nullable"),
    *_together("PricingUnit", "PricingQuantity", "PricingUnit-C-005-C", "PricingUnit-C-006-C"),
    *_together("ConsumedUnit", "ConsumedQuantity", "ConsumedUnit-C-005-C", "ConsumedUnit-C-006-C"),
    Rule(
        "ConsumedQuantity-C-004-C", "ConsumedQuantity", "ConsumedQuantity is not null although the row is no usage",
        lambda v: v.there("ConsumedQuantity") & ~v.is_("ChargeCategory", "Usage"), ("ChargeCategory",),
    ),
    Rule(
        "ConsumedQuantity-C-004-C", "ConsumedQuantity", "ConsumedQuantity is not null although the commitment is unused",
        lambda v: v.there("ConsumedQuantity") & v.is_("CommitmentDiscountStatus", "Unused"),
        ("CommitmentDiscountStatus",), "1.1",
    ),
    Rule(
        "ConsumedQuantity-C-006-C", "ConsumedQuantity", "ConsumedQuantity of usage is null although it is no correction",
        lambda v: v.null("ConsumedQuantity") & v.is_("ChargeCategory", "Usage") & ~v.correction()
        & ~v.is_("CommitmentDiscountStatus", "Unused"), ("ChargeCategory",),
    ),
    *_together("CommitmentDiscountName", "CommitmentDiscountId", "CommitmentDiscountName-C-004-C", ""),
    *_together(
        "CommitmentDiscountCategory", "CommitmentDiscountId", "CommitmentDiscountCategory-C-003-C",
        "CommitmentDiscountCategory-C-004-C",
    ),
    *_together(
        "CommitmentDiscountType", "CommitmentDiscountId", "CommitmentDiscountType-C-004-C", "CommitmentDiscountType-C-005-C"
    ),
    *_together("CommitmentDiscountStatus", "CommitmentDiscountId", "CommitmentDiscountStatus-C-003-C", ""),
    Rule(
        "CommitmentDiscountStatus-C-004-C", "CommitmentDiscountStatus", "CommitmentDiscountStatus of covered usage is null",
        lambda v: v.null("CommitmentDiscountStatus") & v.there("CommitmentDiscountId") & v.is_("ChargeCategory", "Usage"),
        ("CommitmentDiscountId", "ChargeCategory"),
    ),
    Rule(
        "CommitmentDiscountQuantity-C-005-C", "CommitmentDiscountQuantity",
        "CommitmentDiscountQuantity of a charge under a commitment is null",
        lambda v: v.null("CommitmentDiscountQuantity") & v.there("CommitmentDiscountId") & v.priced,
        ("CommitmentDiscountId", "ChargeCategory"), "1.1",
    ),
    Rule(
        "CommitmentDiscountQuantity-C-007-C", "CommitmentDiscountQuantity",
        "CommitmentDiscountQuantity is not null although the charge is under no commitment",
        lambda v: v.there("CommitmentDiscountQuantity")
        & (v.null("CommitmentDiscountId") | ~v.is_("ChargeCategory", "Usage", "Purchase")),
        ("CommitmentDiscountId", "ChargeCategory"), "1.1",
    ),
    *_together(
        "CommitmentDiscountUnit", "CommitmentDiscountQuantity", "CommitmentDiscountUnit-C-005-C",
        "CommitmentDiscountUnit-C-006-C", "1.1",
    ),
    *_together("CapacityReservationStatus", "CapacityReservationId", "CapacityReservationStatus-C-003-C", "", "1.1"),
    Rule(
        "CapacityReservationStatus-C-004-C", "CapacityReservationStatus", "CapacityReservationStatus of reserved usage is null",
        lambda v: v.null("CapacityReservationStatus") & v.there("CapacityReservationId") & v.is_("ChargeCategory", "Usage"),
        ("CapacityReservationId", "ChargeCategory"), "1.1",
    ),
    *_together("SubAccountName", "SubAccountId", "SubAccountName-C-004-C", "SubAccountName-C-005-C"),
    *_together("SubAccountType", "SubAccountId", "SubAccountType-C-004-C", "SubAccountType-C-005-C", "1.2"),
    *_together("BillingAccountType", "BillingAccountId", "BillingAccountType-C-004-C", "BillingAccountType-C-005-C", "1.2"),
    *_together("ResourceType", "ResourceId", "ResourceType-C-004-C", "ResourceType-C-005-C"),
    *_together("ResourceName", "ResourceId", "ResourceName-C-004-C", ""),
    *_together("RegionName", "RegionId", "RegionName-C-004-C", "RegionName-C-005-C"),
    *_together("SkuMeter", "SkuId", "SkuMeter-C-004-C", "", "1.1"),
    *_together("SkuPriceDetails", "SkuPriceId", "SkuPriceDetails-C-004-C", "", "1.1"),
    Rule(
        "SkuPriceId-C-008-M", "SkuPriceId", "one SkuPriceId has several values of SkuId",
        lambda v: _several(v, "SkuPriceId", "SkuId"), ("SkuId",),
    ),
    Rule(
        "ServiceName-C-005-C", "ServiceName", "one ServiceName has several values of ServiceCategory",
        lambda v: _several(v, "ServiceName", "ServiceCategory"), ("ServiceCategory",), "1.2",
    ),
    _negative("ContractedUnitPrice", "ContractedUnitPrice-C-009-C"),
    _negative("ListUnitPrice", "ListUnitPrice-C-008-M"),
    _product("ContractedCost", "ContractedUnitPrice"),
    _product("ListCost", "ListUnitPrice"),
    _as_billed("ContractedCost", "ContractedCost-C-008-C", "ContractedUnitPrice"),
    _as_billed("EffectiveCost", "EffectiveCost-C-010-C"),
    _as_billed("ListCost", "ListCost-C-008-C", "ListUnitPrice"),
    Rule(
        "EffectiveCost-C-005-C", "EffectiveCost", "EffectiveCost of the purchase of a commitment is not 0",
        lambda v: v.is_("ChargeCategory", "Purchase") & v.there("CommitmentDiscountId") & (v.number("EffectiveCost") != 0)
        & v.there("EffectiveCost"), ("ChargeCategory", "CommitmentDiscountId"),
    ),
    Rule(
        "ChargeFrequency-C-004-C", "ChargeFrequency", "ChargeFrequency of a purchase is Usage-Based",
        lambda v: v.is_("ChargeFrequency", "Usage-Based") & v.is_("ChargeCategory", "Purchase"), ("ChargeCategory",),
    ),
    Rule(
        "ChargePeriodEnd-C-004-M", "ChargePeriodEnd", "ChargePeriodEnd is not after ChargePeriodStart",
        lambda v: _backwards(v, "ChargePeriodStart", "ChargePeriodEnd"), ("ChargePeriodStart",),
    ),
    Rule(
        "BillingPeriodEnd-C-004-M", "BillingPeriodEnd", "BillingPeriodEnd is not after BillingPeriodStart",
        lambda v: _backwards(v, "BillingPeriodStart", "BillingPeriodEnd"), ("BillingPeriodStart",),
    ),
    Rule(
        "ChargePeriod-in-BillingPeriod", "ChargePeriodStart",
        "the charge period of usage lies outside the billing period although it is no correction",
        _in_period, ("ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd"),
    ),
    Rule(
        "Tags-C-001-M", "Tags", "Tags is no JSON object of single values", lambda v: v.bad_json("Tags", flat=True),
        validator="Tags_IsJSONObject",
    ),
    Rule(
        "SkuPriceDetails-C-001-M", "SkuPriceDetails", "SkuPriceDetails is no JSON object of single values",
        lambda v: v.bad_json("SkuPriceDetails", flat=True), since="1.1",
    ),
    Rule(
        "AllocatedTags-KeyValueFormat", "AllocatedTags", "AllocatedTags is no JSON object of single values",
        lambda v: v.bad_json("AllocatedTags", flat=True), since="1.3",
    ),
    *_together(
        "AllocatedResourceName", "AllocatedResourceId", "AllocatedResourceName-Null", "AllocatedResourceName-NotNull", "1.3"
    ),
    *_together("AllocatedResourceId", "AllocatedMethodId", "AllocatedMethodId-NotNull", "", "1.3"),
    *_together("AllocatedTags", "AllocatedMethodId", "AllocatedTags-Null", "", "1.3"),
    *_together("AllocatedMethodDetails", "AllocatedMethodId", "AllocatedMethodDetails-Null", "", "1.3"),
    Rule(
        "AllocatedMethodDetails-Elements", "AllocatedMethodDetails",
        "AllocatedMethodDetails has no Elements, each with a number AllocatedRatio",
        lambda v: v.there("AllocatedMethodDetails") & np.isnan(_ratios(v)), since="1.3",
    ),
    Rule(
        "AllocatedMethodDetails-Sum", "AllocatedMethodDetails",
        "AllocatedRatio does not add up to 1 over the charges of one origin", _unshared, ("AllocatedMethodId",), "1.3",
    ),
)  # fmt: skip
