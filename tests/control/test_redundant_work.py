"""Work for nothing, counted exactly."""

from __future__ import annotations

import numpy as np
import pytest

from actions import SECOND, attempt, trace
from taut.control import redundant_work as redundant
from taut.control.relations import prepare


def found(made):
    return redundant.relate(prepare(made), np.random.default_rng(0))


def test_lost_hedges_duplicates_and_replaced_attempts_count_once() -> None:
    rows = [
        attempt(0, 0, "a", 2, "failed", tokens_in=10), attempt(3, 1, "a", 4, "kept", parent=0, tokens_in=10),
        attempt(10, 0, "b", 5, "kept"), attempt(11, 1, "b", 3, "lost", knob="hedge", parent=2, tokens_out=7),
        attempt(20, 0, "c", 1, "duplicate"),
    ]  # fmt: skip
    (one,) = found(trace(rows))
    assert (one.count, one.rank_ns, one.tokens, one.p) == (3, 6 * SECOND, 17, None)
    assert one.statistic == pytest.approx(17 / 27)


def test_little_waste_is_not_listed() -> None:
    rows = [attempt(k, 0, f"w{k}", 1) for k in range(99)] + [attempt(100, 0, "d", 1, "duplicate")]
    assert found(trace(rows)) == []


def test_calls_that_the_log_leaves_out_count_as_used() -> None:
    rows = [attempt(0, 0, "d", 1, "duplicate")]
    assert found(trace(rows))
    assert found(trace(rows, counts={"calls": 1000, "call ns": 1000 * SECOND})) == []


def test_attempts_of_jobs_that_were_not_the_last() -> None:
    jobs = [
        {"job": "a", "attempt": 1, "start_ns": 0, "end_ns": 10, "accelerators": 8, "unit": "accelerator"},
        {"job": "a", "attempt": 2, "start_ns": 20, "end_ns": 50, "accelerators": 8, "unit": "accelerator"},
        {"job": "b", "attempt": 1, "start_ns": 0, "end_ns": 60, "accelerators": 1, "unit": "accelerator"},
    ]
    (one,) = found(trace([], attempts=jobs))
    assert (one.count, one.rank_ns) == (1, 80)
    assert one.statistic == pytest.approx(80 / 380)
    assert "1 of 2 jobs were restarted" in one.because


def test_unknown_accelerators_are_not_priced() -> None:
    jobs = [{"job": "a", "attempt": n, "start_ns": 20 * n, "end_ns": 20 * n + 10} for n in (1, 2)]
    (one,) = found(trace([], attempts=jobs))
    assert one.rank_ns is None
