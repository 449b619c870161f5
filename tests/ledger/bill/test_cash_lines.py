"""Promises, delays and hours of people: given with the prices, one entry each."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from actions import table
from taut.core.prices import Prices, Sla, Triage
from taut.core.tables import Attempt, Table
from taut.ledger.bill.cash_lines import cash_entries
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.rows import UNIT, Held

HOUR = 3_600_000_000_000
DAY = 20_000 * DAY_NS
ATTEMPTS = table(Attempt, [
    {"job": "late", "submit_ns": DAY, "start_ns": DAY + 6 * HOUR, "end_ns": DAY + 16 * HOUR},
    {"job": "soon", "submit_ns": DAY, "start_ns": DAY, "end_ns": DAY + 2 * HOUR},
])  # fmt: skip
HELD = table(Held, [
    {"job": "late", "team": "vision", "rank_ns": 8 * HOUR, "fate": "kept"},
    {"job": "late", "team": "vision", "rank_ns": 2 * HOUR, "fate": "discarded"},
])  # fmt: skip


def found(prices: Prices, period: tuple[int, int] | None = None) -> list[tuple[Any, ...]]:
    entries: Table = cash_entries(prices, ATTEMPTS, HELD, period, UNIT)
    keys = ("item", "cause", "job", "team")
    rows = zip(*(entries.columns[key].tolist() for key in keys), entries.money.tolist(), strict=True)
    return [(*row[:-1], Decimal(row[-1]) / UNIT) for row in rows]


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        (Prices(triage=Triage(hours=2.5, per_hour=Decimal(80))), [("triage hours", "", "", "", Decimal(200))]),
        (
            Prices(delay_per_day=Decimal(1000)),
            [("delay", "queued before its first start", "late", "vision", Decimal(250))],
        ),
        (
            Prices(sla=(Sla(promise_hours=12, penalty=Decimal(50), penalty_per_hour=Decimal(10)),)),
            [("SLA penalty", "ended later than promised", "late", "vision", Decimal(90))],
        ),
        (
            Prices(sla=(Sla(jobs="l*", promise_availability=0.9, penalty_per_hour=Decimal(10)),)),
            [("SLA penalty", "lost more to failures than promised", "late", "vision", Decimal(10))],
        ),
        (Prices(), []),
    ],
)  # fmt: skip
def test_what_is_promised_and_given(prices: Prices, expected: list[tuple[Any, ...]]) -> None:
    assert found(prices) == expected


def test_jobs_count_in_the_period_in_which_they_start_or_end() -> None:
    promised = Prices(sla=(Sla(promise_hours=1, penalty=Decimal(5)),), delay_per_day=Decimal(1000))
    assert found(promised, (DAY + 10 * HOUR, DAY + 48 * HOUR)) == [
        ("SLA penalty", "ended later than promised", "late", "vision", Decimal(5))
    ]
