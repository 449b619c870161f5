"""Jobs that still run hold their accelerators up to the last moment that is known of."""

from __future__ import annotations

from typing import Any

from actions import table
from taut.core.tables import Attempt, Table
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.running_attempts import ended

DAY = 20_000 * DAY_NS
HOUR = DAY_NS // 24


def attempts(*rows: dict[str, Any]) -> Table:
    return table(Attempt, [{"job": "a", "start_ns": DAY, "end_ns": -1, "dated": 1, "submit_ns": -1, **row} for row in rows])


def test_a_running_job_ends_where_the_bill_does() -> None:
    found = ended(attempts({"outcome": "running"}), "sacct.txt", DAY + 5 * HOUR)
    assert found.attempts.end_ns.tolist() == [DAY + 5 * HOUR]
    (note,) = found.notes
    assert note == (
        "sacct.txt: 1 job still ran: taken to hold accelerators until 2024-10-04 05:00:00 UTC, the last moment of the bill"
    )


def test_without_a_bill_it_ends_with_the_log() -> None:
    found = ended(attempts({"outcome": "running"}, {"job": "b", "end_ns": DAY + HOUR, "outcome": "completed"}), "x", None)
    assert found.attempts.end_ns.tolist() == [DAY + HOUR, DAY + HOUR]
    assert "the last moment that the logs name" in found.notes[0]


def test_one_that_began_behind_the_bill_held_nothing_in_it() -> None:
    assert ended(attempts({"outcome": ""}), "x", DAY - HOUR).attempts.end_ns.tolist() == [DAY]


def test_an_end_that_is_lost_is_said_to_be_left_out() -> None:
    found = ended(attempts({"outcome": "failed"}, {"outcome": "pending", "start_ns": -1}), "x", DAY + HOUR)
    assert found.attempts.end_ns.tolist() == [-1, -1]
    assert found.notes == ["x: 1 job ended at a time that the logs do not tell: left out"]
