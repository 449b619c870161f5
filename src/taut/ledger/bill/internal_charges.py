"""A bill at given prices as charges of the provider ``internal``: one a day of each host and item, at the price given.

Booked rows are cut at midnight, UTC, by time; what has no time is one charge over the period of the bill.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec import Struct

from taut.core.array_types import Ints, Texts
from taut.core.decimal_units import ONE, Wholes, decimals_of
from taut.core.exact_parts import ManyShares
from taut.core.ids import sums
from taut.core.tables import NULL, Table
from taut.ledger.bill.allocated_parts import alike, coded, joined
from taut.ledger.bill.rows import UNIT

DAY_NS = 86_400_000_000_000
HOUR_NS = DAY_NS // 24
INTERNAL = "internal"
TIMED = "accelerator time"
FIXED = {
    **dict.fromkeys(("BillingAccountId", "BillingAccountName", "InvoiceIssuerName", "ServiceProviderName", "file"), INTERNAL),
    "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "PricingCategory": "Standard",
    "ChargeDescription": "at the given price",
}  # fmt: skip
PRICED = ("PricingCurrencyListUnitPrice", "PricingCurrencyContractedUnitPrice")
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")


class Period(Struct, frozen=True):
    """What a bill is of, ns since 1970."""

    start_ns: int
    end_ns: int


def internal_charges(booked: Table, currency: str, period: Period | None, unit: int = UNIT) -> tuple[Table, pa.Table]:
    """Booked rows cut by day, each with its charge, and the charges.

    Raises ValueError where rows have no time and the bill has no period.
    """
    if period is None and len(booked) and int(booked.start_ns.min()) < 0:
        raise ValueError("its logs tell lengths and no times")
    cut = _by_day(booked)
    day = np.where(cut.start_ns < 0, NULL, cut.start_ns // DAY_NS)
    example, charge = alike(joined(joined(day + 1, coded(cut.host)[0]), coded(cut.item)[0]))
    cost, rank_ns = (sums(charge, amount, len(example)) for amount in (cut.effective, cut.rank_ns))
    columns = _columns(cut.host[example], cut.item[example], currency)
    columns |= _times(day[example], period) | _amounts(cost, rank_ns, unit)

    return cut.replace(charge=charge, billed=cut.effective), pa.table(columns)


def _by_day(booked: Table) -> Table:
    """Rows cut at midnight, amounts by time."""
    first = booked.start_ns // DAY_NS
    days = np.where(booked.start_ns < 0, 1, np.maximum((booked.end_ns - 1) // DAY_NS - first, 0) + 1)
    if not len(booked) or int(days.max()) == 1:
        return booked
    row = np.repeat(np.arange(len(booked)), days)
    begin = np.cumsum(days) - days
    midnight = (first[row] + np.arange(len(row)) - begin[row]) * DAY_NS
    start, end = np.maximum(booked.start_ns[row], midnight), np.minimum(booked.end_ns[row], midnight + DAY_NS)
    known = booked.start_ns[row] >= 0
    start, end = np.where(known, start, booked.start_ns[row]), np.where(known, end, booked.end_ns[row])
    shares = ManyShares(np.where(known, np.maximum(end - start, 0), 1), begin)
    amounts = {name: shares.of_units(booked.columns[name]) for name in ("rank_ns", "effective", "billed")}
    return booked.take(row).replace(start_ns=start, end_ns=end, **amounts)


def _columns(host: Texts, item: Texts, currency: str) -> dict[str, pa.Array]:
    rows, timed = len(host), np.asarray(item == TIMED, dtype=np.bool_)
    named = pa.array(host, pa.string(), mask=np.asarray(host == "", dtype=np.bool_))
    kind = pa.array(np.full(rows, "Host"), pa.string(), mask=np.asarray(host == "", dtype=np.bool_))
    said = {**FIXED, "BillingCurrency": currency, "PricingCurrency": currency}
    fixed = {name: pa.array(np.full(rows, text), pa.string()) for name, text in said.items()}
    kinds = {"ServiceCategory": ("Compute", "Other"), "ServiceSubcategory": ("Other (Compute)", "Other (Other)")}
    return {
        **fixed, **dict.fromkeys(("ServiceName", "SkuId", "SkuPriceId", "SkuMeter"), pa.array(item, pa.string())),
        **{name: pa.array(np.where(timed, *words), pa.string()) for name, words in kinds.items()},
        "ResourceId": named, "ResourceName": named, "ResourceType": kind, "row": pa.array(np.arange(1, rows + 1)),
    }  # fmt: skip


def _times(day: Ints, period: Period | None) -> dict[str, pa.Array]:
    """Each charge is of its day and billed with its month; one without a day is of the whole period."""
    start, end = day * DAY_NS, (day + 1) * DAY_NS
    if period is not None:
        start, end = np.where(day < 0, period.start_ns, start), np.where(day < 0, period.end_ns, end)
    opened = start.astype("M8[ns]").astype("M8[M]")
    closed = (end - 1).astype("M8[ns]").astype("M8[M]") + 1
    found = (start.astype("M8[ns]"), end.astype("M8[ns]"), opened, closed)
    names = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
    return {name: _moments(time.astype("M8[us]").astype(np.int64)) for name, time in zip(names, found, strict=True)}


def _moments(us: Ints) -> pa.Array:
    return pa.array(us).cast(pa.timestamp("us", "UTC"))


def _amounts(cost: Ints, rank_ns: Ints, unit: int) -> dict[str, pa.Array]:
    """Costs, hours, and the price that makes the ones of the others; what takes no time is one unit at its price."""
    there = np.zeros(len(cost), dtype=np.bool_)
    units = cost.astype(object) * (ONE // unit)
    hours = np.where(rank_ns > 0, _rounded(rank_ns.astype(object) * ONE, HOUR_NS), ONE)
    price = _rounded(units * ONE, np.maximum(hours, 1))
    given = dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice", *PRICED), decimals_of(price, there))
    quantity, counted = decimals_of(hours, there), pa.array(np.where(rank_ns > 0, "Accelerator-Hours", "Units"), pa.string())
    whole = dict.fromkeys((*COSTS, "PricingCurrencyEffectiveCost"), decimals_of(units, there))
    return {
        **whole, **given, "PricingQuantity": quantity, "ConsumedQuantity": quantity, "PricingUnit": counted,
        "ConsumedUnit": counted,
    }  # fmt: skip


def _rounded(numerator: Wholes, denominator: Wholes | int) -> Wholes:
    found: Wholes = (2 * numerator + denominator) // (2 * denominator)
    return found
