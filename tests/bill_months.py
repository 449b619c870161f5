"""Small months: who held what, and bills for it, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np

from focus_bills import Row, bill, usage
from taut.core.tables import Table
from taut.ledger.bill.booking import Booking
from taut.ledger.bill.rows import Held
from taut.read.focus.focus_reader import Charges, read_focus

HOUR = 3_600 * 10**9
Use = tuple[str, str, str, str, int]
"""Job, host, begin, end (``05T10:30`` of October 2026) and accelerators."""


def at(text: str) -> int:
    """A time of October 2026, ``05T10:30``, in ns; also a whole date."""
    text = text if text.startswith("20") else f"2026-10-{text}"
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


def held(*uses: Use, fate: str = "kept") -> Table:
    """Rows of Held."""
    start = np.array([at(one[2]) for one in uses], dtype=np.int64)
    end = np.array([at(one[3]) for one in uses], dtype=np.int64)
    count = np.array([one[4] for one in uses], dtype=np.int64)
    names = {"job": [one[0] for one in uses], "host": [one[1] for one in uses], "fate": [fate] * len(uses)}
    words = {name: np.array(texts, dtype=object) for name, texts in names.items()}
    return Table(Held, {
        **words, "accelerators": count, "start_ns": start, "end_ns": end, "rank_ns": count * (end - start),
    }, len(uses))  # fmt: skip


def hour(host: str, start: str, end: str = "", cost: str = "16.00", **cells: str) -> dict[str, str]:
    """A charge for a host of eight accelerators, for an hour unless an end is given; version 1.2."""
    begin = at(start)
    stop = at(end) if end else begin + HOUR
    hours = f"{(stop - begin) / HOUR:.9f}".rstrip("0").rstrip(".")
    money = dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingCurrencyEffectiveCost"), cost)
    quantity = Decimal(cells.get("PricingQuantity", hours))
    price = dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice"), f"{Decimal(cost) / quantity:f}")
    period = {"ChargePeriodStart": iso(begin), "ChargePeriodEnd": iso(stop)}
    amount = {"PricingQuantity": hours, "ConsumedQuantity": hours, "PricingUnit": "Hours", "ConsumedUnit": "Hours"}
    return usage("1.2", **{**money, **price, **period, **amount, "ResourceId": f"i-{host}", "ResourceName": host, **cells})


def iso(ns: int) -> str:
    """A time as bills write it."""
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(folder: Path, rows: Sequence[Row], name: str = "bill.csv") -> Charges:
    """Rows as a bill that was read."""
    return read_focus(bill(folder, rows, name))


def items(booking: Booking) -> dict[str, str]:
    """Effective money by item."""
    booked = booking.booked
    return {
        item: f"{booked.effective[booked.item == item].sum() / booking.unit:.2f}" for item in sorted(set(booked.item.tolist()))
    }


def jobs(booking: Booking, rows: Table) -> dict[str, str]:
    """Effective money by job; what belongs to none under the empty name."""
    names = np.append(rows.job, "")[booking.booked.held]
    return {job: f"{booking.booked.effective[names == job].sum() / booking.unit:.2f}" for job in sorted(set(names.tolist()))}


DAYS = ("05T00:00", "09T00:00")
PERIOD = {"BillingPeriodStart": "2026-10-05T00:00:00Z", "BillingPeriodEnd": "2026-10-09T00:00:00Z"}


def ordinary(seed: int = 1) -> tuple[list[dict[str, str]], Table]:
    """Four days of eight hosts, as bills are: four reserved around the clock, four on demand while jobs run, and more.

    With jobs of half a host, ends to the second, a least charge of a minute, zero rows, rows without resource, commitments used
    and unused, a late correction, credit, tax, storage by the day, cents.
    """
    rng = np.random.default_rng(seed)
    uses: list[tuple[str, str, int, int, int]] = []
    rows: list[dict[str, str]] = []
    for number in range(1, 9):
        host, time = f"node{number}", at(DAYS[0])
        while (time := time + int(rng.integers(0, 6 * 3600)) * 10**9) < at(DAYS[1]):
            end = min(time + int(rng.integers(20, 20 * 3600)) * 10**9, at(DAYS[1]))
            uses.append((f"job{len(uses)}", host, time, end, 8 if rng.random() < 0.7 else 4))
            rows += [] if number <= 4 else _on_demand(host, time, end)
            time = end
        rows += _reserved(host, number) if number <= 4 else []
    return [row | PERIOD for row in [*rows, *_around()]], _held(uses)


def _held(uses: Sequence[tuple[str, str, int, int, int]]) -> Table:
    names = [np.array([use[i] for use in uses], dtype=object) for i in (0, 1)]
    start, end, count = (np.array([use[i] for use in uses], dtype=np.int64) for i in (2, 3, 4))
    columns = {"job": names[0], "host": names[1], "start_ns": start, "end_ns": end, "accelerators": count}
    return Table(Held, {**columns, "rank_ns": count * (end - start)}, len(uses))


def _reserved(host: str, number: int) -> list[dict[str, str]]:
    cover = {
        "CommitmentDiscountId": "c1",
        "CommitmentDiscountStatus": "Used",
        "BilledCost": "0",
        "PricingCategory": "Committed",
    }
    times = range(at(DAYS[0]), at(DAYS[1]), HOUR)
    return [hour(host, iso(time)[:19], cost="10.40", **(cover if number <= 2 else {})) for time in times]


def _on_demand(host: str, start: int, end: int) -> list[dict[str, str]]:
    """Hours of the clock, the last cut at the second, at least a minute, money in cents."""
    found = []
    while start < end:
        stop = min((start // HOUR + 1) * HOUR, end)
        hours = Decimal(max(stop - start, 60 * 10**9)) / HOUR
        quantity, cost = f"{hours:.9f}", f"{round(hours * 16, 2):f}"
        cells = {
            "PricingQuantity": quantity,
            "ConsumedQuantity": quantity,
            "ListUnitPrice": "16.00",
            "ContractedUnitPrice": "16.00",
        }
        found.append(hour(host, iso(start)[:19], iso(stop)[:19], cost=cost, **cells))
        start = stop
    return found


def _around() -> list[dict[str, str]]:
    none = {"ResourceId": "", "ResourceName": "", "ResourceType": "", "SkuPriceDetails": "", "ChargeDescription": "other"}
    disk = {"ServiceCategory": "Storage", "ResourceName": "", "ConsumedUnit": "GB-Months", "PricingUnit": "GB-Months"}
    unused = {**none, "CommitmentDiscountId": "c1", "CommitmentDiscountStatus": "Unused", "BilledCost": "0"}
    late = {"ChargeClass": "Correction", "ChargeDescription": "correction of September"}
    days = range(at(DAYS[0]), at(DAYS[1]), 24 * HOUR)
    moved = {
        **none,
        "ServiceCategory": "Networking",
        "ConsumedUnit": "GB",
        "PricingUnit": "GB",
        "SkuId": "s9",
        "SkuPriceId": "s9.p",
    }
    return [
        *(hour("", iso(day)[:19], iso(day + 24 * HOUR)[:19], cost="3.20", **{**disk, "ResourceId": f"vol-{i}"})
          for day in days for i in range(3)),
        *(hour("", iso(day)[:19], iso(day + 24 * HOUR)[:19], cost="0.07", **moved) for day in days for _ in range(4)),
        *(hour("", iso(day)[:19], iso(day + 24 * HOUR)[:19], cost="0.01", **{**moved, "SkuId": f"x{i}"})
          for day in days for i in range(2)),
        hour("", "05T00:00", "06T00:00", cost="0", **none), hour("", "06T03:00", cost="10.40", **unused),
        hour("", "07T03:00", cost="10.40", **unused), hour("node1", "2026-09-20", cost="-5.50", **late),
        hour("", "05T00:00", "09T00:00", cost="-20.00", **{**none, "ChargeCategory": "Credit"}),
        hour("", "05T00:00", "09T00:00", cost="99.90", **{**none, "ChargeCategory": "Tax"}),
        hour("", "05T00:00", "09T00:00", cost="0", **{**none, "ChargeCategory": "Purchase", "BilledCost": "1000.00",
             "CommitmentDiscountId": "c1"}),
    ]  # fmt: skip
