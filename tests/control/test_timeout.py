"""Limits shorter than what they limit."""

from __future__ import annotations

import numpy as np
import pytest

from actions import SECOND, attempt, trace
from taut.control import timeout
from taut.control.relations import prepare


def found(made):
    return timeout.relate(prepare(made), np.random.default_rng(0))


def lasting(seconds, outcome: str = "failed", job: str = "j{}", apart_s: int = 10**6, **more) -> list:
    """One attempt for each duration, which was started again."""
    rows = []
    for k, s in enumerate(seconds):
        begin = k * apart_s * SECOND
        one = {"job": job.format(k), "attempt": 1, "start_ns": begin, "end_ns": begin + int(s * SECOND), "outcome": outcome,
               "accelerators": 1, "unit": "accelerator", **more}  # fmt: skip
        again = {
            "attempt": 2,
            "start_ns": one["end_ns"],
            "end_ns": one["end_ns"] + SECOND,
            "outcome": "completed",
            "reason": "",
        }
        rows += [one, {**one, **again}]
    return rows


def smooth(seed: int, n: int = 400):
    return np.round(np.random.default_rng(seed).lognormal(8, 1.5, n)) + 1


def test_a_limit_that_nobody_named_is_found() -> None:
    late = 14400 + np.random.default_rng(1).integers(0, 50, 15)
    (one,) = found(trace([], attempts=lasting([*smooth(0), *late])))
    assert (one.count, one.statistic) == (15, 14400.0)
    assert one.p is not None
    assert one.p < 1e-6
    assert "after 4 h (240 min)" in one.because


def test_a_limit_that_is_not_round_is_found_too() -> None:
    (one,) = found(trace([], attempts=lasting([*smooth(0), *[7777.0] * 12])))
    assert one.statistic == 7777.0
    assert one.p is not None
    assert one.p < 1e-6


def test_a_heap_of_a_moment_is_not_taken_for_the_limit_because_it_is_round() -> None:
    draws = np.random.default_rng(2)
    limit, held_up = 0.125 + draws.exponential(0.001, 900), 0.18 + draws.uniform(0, 0.002, 30)
    (spike,) = timeout.constants(np.concatenate([draws.exponential(0.02, 300), limit, held_up]))
    assert spike.at == pytest.approx(0.125, rel=0.01)


def test_smooth_durations_rarely_have_a_limit() -> None:
    chances = [one.p for seed in range(60) for one in found(trace([], attempts=lasting(smooth(seed))))]
    assert sum(p <= 0.05 for p in chances) <= 6


def test_jobs_of_equal_length_that_complete_have_none() -> None:
    assert found(trace([], attempts=lasting([*smooth(0), *[600.0] * 50], "completed"))) == []


HOUR = [3600.0 + k for k in range(20)]


@pytest.mark.parametrize("outcome", ["timed out", "preempted", "cancelled", "node failed", "out of memory"])
def test_an_outcome_that_names_its_cause_is_no_hidden_limit(outcome: str) -> None:
    rows = [*lasting(smooth(0)), *lasting(HOUR, outcome, "k{}")]
    assert not [one for one in found(trace([], attempts=rows)) if one.p is not None and one.p <= 0.05]


def test_nor_is_a_reason_that_does() -> None:
    rows = [*lasting(smooth(0)), *lasting(HOUR, job="k{}", reason="exit code 124")]
    assert not [one for one in found(trace([], attempts=rows)) if one.p is not None and one.p <= 0.05]


def test_attempts_that_nobody_started_again_burn_nothing_twice() -> None:
    rows = [row for row in lasting([*smooth(0), *HOUR]) if row["attempt"] == 1]
    assert found(trace([], attempts=rows)) == []


def test_instant_failures_are_no_limit() -> None:
    rows = lasting([*smooth(0), *np.random.default_rng(0).uniform(0.03, 0.031, 80)])
    assert not [one for one in found(trace([], attempts=rows)) if one.p is not None and one.p <= 0.05]


def test_tasks_of_one_array_that_fail_at_the_same_point_count_once() -> None:
    rows = [*lasting(smooth(0)), *lasting(HOUR, job="77_{}")]
    assert not [one for one in found(trace([], attempts=rows)) if one.p is not None and one.p <= 0.05]


def test_what_one_event_ended_counts_once() -> None:
    began = lasting(smooth(0))
    rows = [*began, *lasting([3600.0] * 20, job="k{}", apart_s=0)]
    assert not [one for one in found(trace([], attempts=rows)) if one.p is not None and one.p <= 0.05]


def test_multiples_of_a_scheduling_cycle_are_no_limit_and_one_above_them_is() -> None:
    draws = np.random.default_rng(3)
    cycles = 120.05 * np.minimum(draws.geometric(0.06, 300), 100)
    assert timeout.period_of(cycles) == pytest.approx(120, rel=0.01)
    assert timeout.period_of(smooth(0)) == 0.0
    unsaid = found(trace([], attempts=lasting(cycles, "")))
    assert not [one for one in unsaid if one.p is not None and one.p <= 0.05]
    (one,) = found(trace([], attempts=lasting([*cycles, *draws.uniform(4500, 4503, 40)], "")))
    assert one.p is not None
    assert one.p < 1e-3


def burned(reason: str, left: int = 0) -> list:
    rows = [{"job": "train", "attempt": n, "start_ns": 10 * n * SECOND, "end_ns": (10 * n + 8) * SECOND, "outcome": "failed",
             "restarts_left": 3 + left - n, "reason": reason} for n in range(4)]  # fmt: skip
    return rows


def test_restarts_that_all_end_by_the_same_timeout_are_a_mismatch() -> None:
    (one,) = found(trace([], attempts=burned("Timed out waiting 5000ms for recv")))
    assert (one.target, one.count, one.p) == ("train", 4, None)
    assert "all 4 attempts of train were ended by a timeout of 5000 ms" in one.because


@pytest.mark.parametrize(
    "rows", [burned("out of memory"), burned("timed out", left=2)], ids=["another reason", "restarts left"]
)
def test_what_looks_alike_is_none(rows: list) -> None:
    assert found(trace([], attempts=rows)) == []


def test_retries_after_the_deadline_of_their_work() -> None:
    rows = [
        attempt(10 * k + 4 * n, n, f"w{k}", 3, "failed", deadline_ns=(10 * k + 5) * SECOND) for k in range(5) for n in range(3)
    ]
    (one,) = found(trace(rows))
    assert (one.count, one.statistic, one.rank_ns) == (5, 0.5, 15 * SECOND)


def retried(gets_through: bool) -> list:
    rng = np.random.default_rng(0)
    rows = [attempt(k, 0, f"x{k}", float(rng.lognormal(0, 1)), "failed") for k in range(100)]
    for k in range(40):
        rows.append(attempt(200 + k, 0, f"w{k}", 2.0, "failed"))
        rows.append(attempt(203 + k, 1, f"w{k}", 1.0 if gets_through else 2.0, "kept" if gets_through else "failed"))
    return rows


def test_a_timeout_that_retries_run_into_again_is_a_mismatch_and_one_they_get_through_is_none() -> None:
    (one,) = found(trace(retried(False)))
    assert (one.count, one.statistic) == (80, 2.0)
    assert "40 of 40 that were tried again ended there again" in one.because
    assert found(trace(retried(True))) == []


def test_gaps_heap_up_where_they_do() -> None:
    rng = np.random.default_rng(0)
    two = timeout.heaps(np.concatenate([rng.lognormal(np.log(10), 0.1, 200), rng.lognormal(np.log(190), 0.1, 300)]))
    assert [round(at, -1) for at, _ in two] == [10, 190]
    assert timeout.heaps(rng.lognormal(4, 1, 500)) == []
