"""Separations and sweeps in words."""

from __future__ import annotations

from typing import Any

from results import filled
from taut.render.advice_screen import advice_page, changes, details, headline
from taut.result.types import Advice, Swept

ROW: dict[str, Any] = {
    "kind": "conflict", "target": "pool", "runs": 3, "shows": 2, "tried": 4, "separation": "one-owner", "value": None,
    "says": "", "costs": "what the others saw", "brings": [],
    "sets": [{"key": "autoscaler.saver.target", "before": 0.9, "after": None}],
    "effect": {
        "planning_accuracy": {"before": 0.5, "after": 0.4, "change": {"value": -0.1, "lo": -0.3, "hi": 0.1}},
        "control_overhead_fraction": {"before": 0.4, "after": 0.3, "change": {"value": -0.1, "lo": -0.12, "hi": -0.08}},
        "decision_conflict_rate": {"before": 0.4, "after": None, "change": None},
    },
}  # fmt: skip


def advice(row: dict[str, Any]) -> Advice:
    return filled(Advice, row)


def test_what_surely_changes_comes_first_and_the_rest_says_that_it_is_unsure() -> None:
    assert headline(advice(ROW)) == "conflict on pool, in 2 of 3 runs: one-owner removes it (4 tried)"
    assert changes(advice(ROW)) == [
        "control overhead fraction 0.4 → 0.3 (by -0.12 to -0.08)",
        "planning accuracy 0.5 → 0.4 (by -0.3 to +0.1, unsure)",
        "1 more in --json",
    ]
    assert next(iter(details(advice(ROW)))) == "sets autoscaler.saver.target 0.9 → –"


def test_what_could_not_be_checked_or_removed_is_reported() -> None:
    nothing = {**ROW, "separation": None, "sets": [], "effect": {}, "costs": None}
    assert headline(advice(nothing)) == "conflict on pool, in 2 of 3 runs: nothing removes it; 4 separations were tried"
    assert headline(advice({**nothing, "shows": 0})) == "conflict on pool: no advice; none of 3 simulated runs shows it"
    assert list(details(advice(nothing))) == []


def test_a_page_has_a_row_for_each() -> None:
    swept = [
        {"ranks": 8, "worse": [], "indices": {"effective_capacity": 0.5}},
        {"ranks": 16, "worse": ["effective_capacity"], "indices": {"effective_capacity": 0.3}},
    ]
    page = "\n".join(advice_page([advice(ROW)], [filled(Swept, one) for one in swept]))
    assert "| conflict on pool | 2 of 3 | **one-owner** | `autoscaler.saver.target` 0.9 → – |" in page
    assert "| 16 | 0.30 | effective capacity |" in page
