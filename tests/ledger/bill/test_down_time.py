"""Downtime after a failure is charged to the event, and not to spare capacity; everything still adds up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from results import filled
from taut.core.tables import Table
from taut.ledger.bill.down_time import DOWN, SPARE, Window, down_money, windows, with_downtime
from taut.ledger.bill.rows import UNIT, Booked, Held
from taut.result.types import AttemptRow, BillResult

HOUR_NS = 3_600_000_000_000
HELD = Table(Held, {"job": ["train"], "host": ["node0"], "fate": ["kept"]}, 1)
BILL: dict[str, Any] = {
    "categories": [
        {"name": "useful work", "money": "10.00", "share": 0.25, "rank_ns": HOUR_NS, "lost": "0.00"},
        {"name": SPARE, "money": "30.00", "share": 0.75, "rank_ns": 3 * HOUR_NS, "lost": "30.00"},
    ],
    "lines": [
        {"category": SPARE, "kind": "hidden", "item": "idle accelerators", "money": "20.00", "rank_ns": 2 * HOUR_NS},
        {"category": SPARE, "kind": "hidden", "item": "unused commitment", "money": "10.00"},
    ],
}  # fmt: skip


def booked(host: str = "node0") -> Table:
    """A charge of four hours and forty units of money: held in the first hour, nobody's in the others."""
    return Table(Booked, {
        "held": [0, -1], "charge": [7, 7], "item": ["accelerator time", "idle accelerators"], "host": [host, host],
        "start_ns": [0, 0], "end_ns": [HOUR_NS, 4 * HOUR_NS], "effective": [10 * UNIT, 30 * UNIT],
    }, 2)  # fmt: skip


def attempt(number: int, outcome: str | None, start: int, end: int) -> AttemptRow:
    row = {"job": "train", "attempt": number, "outcome": outcome, "start_ns": start, "end_ns": end}
    found: AttemptRow = filled(AttemptRow, row)
    return found


def test_a_job_is_down_from_a_failure_to_its_next_attempt() -> None:
    rows = [attempt(1, "failed", 0, 10), attempt(2, "completed", 25, 40), attempt(3, None, 50, 60)]
    assert windows(rows) == [Window("train", 10, 25)]


def test_idle_money_of_the_time_between() -> None:
    down = [Window("train", HOUR_NS, 3 * HOUR_NS)]
    assert down_money(HELD, booked(), down) == Decimal(20)
    assert down_money(HELD, booked("another"), down) == 0


def test_a_category_of_its_own_and_the_same_sums() -> None:
    before = filled(BillResult, BILL)
    after = with_downtime(before, Decimal("15.00"))
    assert [(one.name, one.money, one.rank_ns) for one in after.categories] == [
        ("useful work", "10.00", HOUR_NS), (DOWN, "15.00", 3 * HOUR_NS // 2), (SPARE, "15.00", 3 * HOUR_NS // 2),
    ]  # fmt: skip
    assert sum(one.share or 0 for one in after.categories) == pytest.approx(1)
    assert [(line.category, line.kind, line.money) for line in after.lines] == [
        (DOWN, "direct", "15.00"), (SPARE, "hidden", "5.00"), (SPARE, "hidden", "10.00"),
    ]  # fmt: skip
    assert with_downtime(before, Decimal(0)) is before
