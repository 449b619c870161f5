"""Work for nothing: counted exactly where the log says so, and tested where jobs were started again."""

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


HOUR = 3600 * SECOND


def job(name: str, *tries: tuple[float, str], begin: float = 0.0, gap: float = 0.01) -> list[dict[str, object]]:
    """Attempts one after the other: (hours, outcome) of each."""
    out = []
    for number, (hours, outcome) in enumerate(tries, 1):
        times = {"start_ns": round(begin * HOUR), "end_ns": round((begin + hours) * HOUR)}
        out.append({"job": name, "attempt": number, "outcome": outcome, "accelerators": 8, "unit": "accelerator", **times})
        begin += hours + gap
    return out


def jobs(count: int, *tries: tuple[float, str], name: str = "ok") -> list[dict[str, object]]:
    """Many of them, a job an hour."""
    return [row for k in range(count) for row in job(f"{name}{k}", *tries, begin=float(k))]


FINE = jobs(100, (1.0, "completed")) + jobs(5, (1.0, "failed"), name="bad")


def test_what_is_started_again_and_fails_again_more_often_than_first_attempts() -> None:
    futile = jobs(6, (1.0, "failed"), (2.0, "failed"), (1.4, "failed"), (3.0, "failed"), name="f")
    (one,) = found(trace([], attempts=FINE + futile))
    assert (one.count, one.rank_ns) == (6, 8 * round(4.4 * HOUR) * 6)
    assert one.statistic == pytest.approx(6 * 4.4 / (105 + 6 * 7.4))
    assert one.p is not None
    assert one.p < 1e-9
    assert "6 of 111 jobs were restarted" in one.because
    assert "18 of 18 that were started again failed again, where 11 of 111 first attempts did" in one.because


@pytest.mark.parametrize("outcome", ["preempted", "node failed", "cancelled", "timed out"])
def test_restarts_whose_cause_is_told_are_explained(outcome: str) -> None:
    assert found(trace([], attempts=FINE + jobs(20, (1.0, outcome), (2.0, outcome), (1.0, "failed"), name="f"))) == []


def test_retries_that_succeed_are_not_redundant() -> None:
    assert found(trace([], attempts=FINE + jobs(20, (1.0, "failed"), (1.0, "failed"), (2.0, "completed"), name="f"))) == []


def test_a_job_that_fails_at_the_same_point_each_time_needs_no_others() -> None:
    (one,) = found(trace([], attempts=job("a", *[(1.0 + 0.01 * k, "failed") for k in range(6)])))
    assert one.p == pytest.approx(2 * (0.1 / 2.1) ** 3)
    (one,) = found(trace([], attempts=job("a", *[(2.0 ** (k % 3), "failed") for k in range(6)])))
    assert one.p == 1.0


def test_a_place_that_was_given_away_explains_an_untold_end() -> None:
    kept = job("a", *[(1.0, "")] * 7)
    assert found(trace([], attempts=kept))[0].p < 0.01
    others = [row for k in range(6) for row in job(f"b{k}", (0.5, "completed"), begin=1.005 + 1.01 * k)]
    assert found(trace([], attempts=[*kept, *others])) == []


def test_what_goes_on_from_where_it_was_saved_is_not_done_again() -> None:
    tries = job("a", *[(1.0, "failed")] * 6)
    resumed = [{**row, "first_step": 100 * k, "last_step": 100 * k + 120} for k, row in enumerate(tries)]
    assert found(trace([], attempts=tries))
    assert found(trace([], attempts=resumed)) == []


def test_independent_failures_are_not_listed_more_often_than_the_level() -> None:
    rng = np.random.default_rng(5)
    listed = 0
    for _ in range(150):
        rows, rate, cap = [], rng.uniform(0.1, 0.5), int(rng.integers(2, 5))
        for k in range(120):
            failed = min(int(rng.geometric(1 - rate)) - 1, cap)
            ends = ["failed"] * failed + ["completed"] * (failed < cap)
            rows += job(f"j{k}", *[(float(rng.exponential(2.0)) + 0.01, end) for end in ends], begin=float(k))
        listed += sum(one.p is not None and one.p <= 0.05 for one in found(trace([], attempts=rows)))
    assert listed <= 0.075 * 150


def test_unknown_accelerators_are_not_priced() -> None:
    (one,) = found(trace([], attempts=[{**row, "accelerators": -1} for row in job("a", *[(1.0, "failed")] * 4)]))
    assert one.rank_ns is None
