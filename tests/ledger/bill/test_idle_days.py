"""Idle parts of charges over several days lie in the days in which nobody held what is charged."""

from __future__ import annotations

from pathlib import Path

from bill_months import held, hour, read
from taut.ledger.bill.booking import book
from taut.ledger.bill.entries import entries_of
from taut.ledger.bill.idle_days import idle_by_day
from taut.ledger.bill.lines import Coded, drill

FOUR_DAYS = {"ConsumedQuantity": "96", "PricingQuantity": "96"}


def by_day(folder: Path, *uses: tuple[str, str, str, str, int], **cells: str) -> dict[str | None, str | None]:
    table = held(*uses)
    booking = book(table, read(folder, [hour("node1", "05T00:00", "09T00:00", cost="96.00", **FOUR_DAYS | cells)]))
    entries = entries_of(table, booking.booked, booking.uncharged, "bill", "prices")
    assert idle_by_day(booking.booked).effective.sum() == booking.booked.effective.sum()
    return {one.name: one.money for one in drill(Coded(entries), "day", booking.unit)}


def test_a_flat_charge_is_flat_whatever_was_held(tmp_path: Path) -> None:
    flat = {f"2026-10-0{day}": "24.00" for day in range(5, 9)}
    assert by_day(tmp_path, ("a", "node1", "05T00:00", "06T00:00", 8), ("b", "node1", "07T10:00", "07T20:00", 4)) == flat


def test_a_host_that_was_on_for_a_part_of_the_time_is_idle_evenly(tmp_path: Path) -> None:
    part = by_day(tmp_path, ("a", "node1", "05T00:00", "06T00:00", 8), ConsumedQuantity="48", PricingQuantity="48")
    assert part == {"2026-10-05": "60.00", "2026-10-06": "12.00", "2026-10-07": "12.00", "2026-10-08": "12.00"}
