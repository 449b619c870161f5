"""What is said of attempts that did not go well: why, how often, since when, how far they came, what to do."""

from __future__ import annotations

from typing import Any

import pytest

from taut.result.attempt_advice import advice
from taut.result.types import AttemptRow

END_NS = 1_622_152_356 * 10**9


def row(**given: Any) -> AttemptRow:
    values: dict[str, Any] = dict.fromkeys(AttemptRow.__struct_fields__)
    return AttemptRow(**(values | {"job": "j", "attempt": 1} | given))


def test_nothing_is_said_of_what_went_well() -> None:
    assert advice([row(outcome="completed"), row(outcome="running"), row()]) == ""


def test_a_limit() -> None:
    said = advice([row(outcome="timed out", reason="CANCELLED DUE TO TIME LIMIT", end_ns=END_NS, last_step=60)])
    assert said == (
        "It ended at 2021-05-27 21:52:36 UTC: CANCELLED DUE TO TIME LIMIT. It had come to step 60, and its log shows no"
        " checkpoint. Ask for a longer limit, or save a checkpoint before it."
    )


def test_reasons_that_differ_by_numbers_are_one() -> None:
    rows = [row(outcome="failed", reason=f"RuntimeError: NCCL error on rank {n}", end_ns=END_NS) for n in range(3)]
    said = advice([*rows, row(outcome="completed")])
    assert said.startswith("3 of 4 attempts ended so, since 2021-05-27 21:52:36 UTC: RuntimeError: NCCL error on rank 0.")
    assert "first to fail" in said


def test_attempts_that_all_end_at_one_step() -> None:
    rows = [row(outcome="failed", reason="ValueError: x", last_step=500, saved_step=400) for _ in range(3)]
    said = advice(rows)
    assert "the last checkpoint is of step 400" in said
    assert "All end after step 500: look at the data" in said


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("CUDA error: an illegal memory access was encountered", "Xid"),
        ("Watchdog caught collective operation timeout", "did not come to the collective"),
        ("ValueError: x", "ValueError: x."),
    ],
)
def test_what_to_do_by_the_reason(reason: str, word: str) -> None:
    assert word in advice([row(outcome="failed", reason=reason)])
