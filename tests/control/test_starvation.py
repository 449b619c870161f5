"""Works that are pushed back again and again."""

from __future__ import annotations

import numpy as np
import pytest

from actions import act, trace
from taut.control import starvation
from taut.control.relations import prepare


def found(made):
    return starvation.relate(prepare(made), np.random.default_rng(0))


def preempted(counts) -> list:
    return [act(k, "engine", -1, f"r{k}", "preemption", work=f"r{k}") for k, n in enumerate(counts) for _ in range(n)]


def healthy(seed: int, works: int = 3000):
    return np.random.default_rng(seed).geometric(0.7, works)


def test_thousands_of_preemptions_a_few_each_are_no_storm() -> None:
    chances = [one.p for seed in range(40) for one in found(trace(preempted(healthy(seed))))]
    assert sum(p <= 0.05 for p in chances) <= 4


def test_one_work_that_is_pushed_back_twenty_times_is_starved() -> None:
    (one,) = found(trace(preempted([*healthy(1, 300), 20])))
    assert (one.target, one.count, one.controllers) == ("r300", 20, ("engine",))
    assert one.p is not None
    assert one.p < 1e-3


def test_preempted_attempts_of_jobs_count_where_no_action_tells() -> None:
    jobs = [{"job": f"j{k}", "attempt": 1, "outcome": "completed"} for k in range(19)]
    jobs += [{"job": "victim", "attempt": n, "outcome": "preempted", "start_ns": 10 * n, "end_ns": 10 * n + 5,
              "accelerators": 2, "unit": "accelerator"} for n in range(1, 9)]  # fmt: skip
    (one,) = found(trace([], attempts=jobs))
    assert (one.target, one.count, one.rank_ns) == ("victim", 8, 80)
    assert one.p == pytest.approx(0.0006, abs=0.001)


def test_two_preemptions_are_no_habit() -> None:
    assert found(trace(preempted([2, 1, 0, 0]))) == []


def test_long_works_that_are_preempted_in_proportion_are_no_starvation() -> None:
    rng = np.random.default_rng(0)
    chances = [one.p for _ in range(30) for one in found(trace(preempted(rng.poisson(rng.lognormal(0, 0.7, 2000)))))]
    assert sum(p <= 0.05 for p in chances) <= 4


@pytest.mark.parametrize(("last", "starved"), [("completed", 0), ("timed out", 0), ("failed", 0), ("preempted", 1)])
def test_a_job_that_got_through_in_the_end_was_only_delayed(last: str, starved: int) -> None:
    jobs = [{"job": f"j{k}", "attempt": 1, "outcome": "completed"} for k in range(19)]
    jobs += [
        {"job": "victim", "attempt": n, "outcome": "preempted", "start_ns": 10 * n, "end_ns": 10 * n + 5} for n in range(1, 9)
    ]
    jobs.append({"job": "victim", "attempt": 9, "outcome": last, "start_ns": 90, "end_ns": 95})
    assert len(found(trace([], attempts=jobs))) == starved
