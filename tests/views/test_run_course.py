"""A run as it went: shares of each step that sum to one, and money that accumulates to the price of all of it."""

from __future__ import annotations

import pytest

from build import MS, analyze, job
from taut.core.tables import Table
from taut.ledger.charge import Cell
from taut.result.brief_types import Course
from taut.views.run_course import BUCKETS, by_steps

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}
HOUR_NS = 3_600_000_000_000


def course(steps: int, rate: tuple[float, str] | None = None) -> Course:
    done = analyze(job(SLOW, steps=steps))
    found = by_steps(done.ledger.cells, len(done.graph.ranks), rate)
    assert found is not None
    return found


def test_shares_of_every_step_sum_to_one() -> None:
    found = course(5)
    assert found.step == [0, 1, 2, 3, 4]
    assert [sum(values) for values in zip(*found.shares.values(), strict=True)] == pytest.approx([1] * 5)
    assert found.shares["waiting"] == pytest.approx([4 / 20] * 5)
    assert found.end_s == pytest.approx([10 * MS * (k + 1) / 1e9 for k in range(5)])
    assert found.money is None


def test_money_accumulates_to_the_price_of_all_rank_time() -> None:
    found = course(3, (3.6, "EUR"))
    assert found.money is not None
    assert found.currency == "EUR"
    assert sum(values[-1] for values in found.money.values()) == pytest.approx(2 * 30 * MS * 3.6 / HOUR_NS)
    assert all(values == sorted(values) for values in found.money.values())


def test_very_many_steps_are_in_buckets() -> None:
    steps = 3 * BUCKETS + 1
    cells = Table(Cell, {"rank": [0] * steps, "step": range(steps), "fate": [0] * steps, "rank_ns": [10] * steps})
    found = by_steps(cells, 1)
    assert found is not None
    assert len(found.step) <= BUCKETS
    assert found.step[1] - found.step[0] == 4
    assert found.end_s[-1] == pytest.approx(10 * steps / 1e9)


def test_no_cells_no_course() -> None:
    assert by_steps(Table(Cell, {}, 0), 4) is None
