"""Small months: who held what, and bills for it, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
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
    """A charge for a host of eight accelerators at 16 an hour, for an hour unless an end is given; version 1.2."""
    begin = at(start)
    stop = at(end) if end else begin + HOUR
    hours = f"{(stop - begin) / HOUR:.9f}".rstrip("0").rstrip(".")
    money = dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingCurrencyEffectiveCost"), cost)
    price = {"ListUnitPrice": "16.00", "ContractedUnitPrice": "16.00"}
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
