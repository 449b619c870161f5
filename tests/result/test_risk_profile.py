"""Signs of losses that no component reports: what shows each of them, what excludes it, and what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build import MS, analyze, barriers
from taut.core.tables import Attempt, Metric, Table, Trace
from taut.ledger import Prices
from taut.result.risk_profile import AGAIN, ENERGY, FALLS, LONGER, drift, rerun_causes
from taut.result.types import Risk, RiskAnswer
from taut.stored import open_run


def work(steps: int = 40, ranks: int = 8, *, seed: int = 0, rise: float = 0.0, slow: float = 1.0) -> Any:
    took = 10 * MS * (1 + 0.01 * np.random.default_rng(seed).standard_normal((steps, ranks)))
    took[:, 3] *= slow
    return took * (1 + rise * np.linspace(0, 1, steps))[:, None]


def risk(trace: Trace, **options: Any) -> Risk:
    found = analyze(trace, **options).result.risk
    assert found is not None
    return found


def answer(found: Risk, question: str) -> RiskAnswer:
    return next(one for one in found.answers if one.question == question)


def tried(*ends: tuple[str, str], job: str = "j") -> Table:
    """Attempts of one job with how each ended and why, a minute each."""
    at = np.arange(len(ends)) * 60_000_000_000
    return Table(
        Attempt,
        {
            "job": np.array([job] * len(ends), dtype=object),
            "attempt": np.arange(len(ends)) + 1,
            "start_ns": at + 1_700_000_000_000_000_000,
            "end_ns": at + 1_700_000_050_000_000_000,
            "outcome": np.array([outcome for outcome, _ in ends], dtype=object),
            "reason": np.array([reason for _, reason in ends], dtype=object),
        },
    )


def test_a_finding_without_an_error_is_soft_degradation() -> None:
    found = risk(barriers(work(slow=1.4), MS))
    assert found.kind == "soft degradation"
    assert answer(found, LONGER).answer == "yes"
    assert "without an error" in answer(found, LONGER).says


def test_waiting_that_nobody_causes_is_soft_degradation() -> None:
    """The same hiccup on all ranks, now and then."""
    rng = np.random.default_rng(3)
    found = risk(barriers(work(200, 32, seed=3) + 15 * MS * (rng.random((200, 32)) < 0.004), MS // 10))
    assert found.kind == "soft degradation"
    assert "nobody in particular" in answer(found, LONGER).says


def test_a_steady_job_is_not_longer_and_shows_neither() -> None:
    found = risk(barriers(work(), MS))
    assert found.kind is None
    assert answer(found, LONGER).answer == "no"


def test_few_steps_decide_nothing() -> None:
    one = answer(risk(barriers(work(5), MS)), LONGER)
    assert (one.answer, one.needs) == (None, "a baseline")


def test_against_a_baseline_all_ranks_slower_shows(tmp_path: Path) -> None:
    past = analyze(barriers(work(seed=1), MS))
    past.save(tmp_path / "past")
    run = open_run(tmp_path / "past")
    slower = risk(barriers(1.3 * work(seed=2), MS), past=run)
    assert answer(slower, LONGER).answer == "yes"
    assert "against the baseline (×1.2" in answer(slower, LONGER).says
    same = risk(barriers(work(seed=3), MS), past=run)
    assert answer(same, LONGER).answer == "no"
    assert answer(same, FALLS).answer == "no"


def test_the_baseline_s_own_indices_stand_beside_and_take_this_run_s_watts(tmp_path: Path) -> None:
    analyze(barriers(work(seed=1), MS)).save(tmp_path / "past")
    done = analyze(barriers(work(seed=2, slow=1.4), MS), past=open_run(tmp_path / "past"), prices=Prices(load_w=500.0))
    base = done.result.baseline
    assert base is not None
    assert base.indices is not None
    assert base.indices.energy_per_useful_step is not None
    assert 1 <= base.indices.energy_per_useful_step.value < 1.05
    assert base.effective_share is not None
    assert base.effective_share > (done.result.verdict.effective_share or 0)
    assert done.result.risk is not None
    assert answer(done.result.risk, FALLS).answer == "yes"


def test_energy_needs_power_and_is_judged_by_its_interval() -> None:
    assert answer(risk(barriers(work(), MS)), ENERGY).needs == "power"
    watts = Prices(load_w=500.0)
    assert answer(risk(barriers(work(slow=1.4), MS), prices=watts), ENERGY).answer == "yes"
    assert answer(risk(barriers(work(), MS), prices=watts), ENERGY).answer == "no"


@pytest.mark.parametrize(
    ("ends", "causes", "says"),
    [
        ([("failed", ""), ("completed", "")], {"not named": 1}, "yes"),
        ([("failed", "CUDA error 700"), ("completed", "")], {"seen once": 1}, "yes"),
        ([("failed", "KeyError at step 17"), ("failed", "KeyError at step 18")], {"repeated": 1}, "no"),
        ([("failed", ""), ("failed", ""), ("failed", "")], {"repeated": 2}, "no"),
        ([("preempted", ""), ("completed", "")], {"decided": 1}, "no"),
        ([("completed", "")], {}, "no"),
    ],
)
def test_a_cause_that_comes_back_can_be_reproduced(ends: list[tuple[str, str]], causes: dict[str, int], says: str) -> None:
    """Numbers in a reason differ from attempt to attempt; the reason is the same."""
    attempts = tried(*ends)
    assert {word: count for word, count in rerun_causes(attempts).items() if count} == causes
    found = risk(replace(barriers(work(), MS), attempts=attempts))
    assert answer(found, AGAIN).answer == says


def test_attempts_that_failed_are_hard_and_both_where_the_job_is_slow_too() -> None:
    attempts = tried(("failed", "NCCL timeout"), ("completed", ""))
    assert risk(replace(barriers(work(), MS), attempts=attempts)).kind == "hard failure"
    both = risk(replace(barriers(work(slow=1.4), MS), attempts=attempts))
    assert both.kind == "both"
    assert "1 of 2 attempts ended badly (1 failed)" in both.says


def sampled(metric: str, values: Any, steps: int = 40) -> Table:
    """A sample of one sensor of rank 0 in the middle of every step of 11 ms."""
    return Table(
        Metric,
        {
            "time_ns": (np.arange(steps) * 11 + 5) * MS,
            "component": np.array(["rank 0"] * steps, dtype=object),
            "rank": np.zeros(steps, dtype=np.int32),
            "metric": np.array([metric] * steps, dtype=object),
            "value": np.asarray(values, dtype=np.float64),
            "limit": np.full(steps, np.nan),
            "limit_source": np.array([""] * steps, dtype=object),
        },
    )


def test_measured_utilisation_that_falls_and_power_that_rises_show() -> None:
    job = barriers(np.full((40, 4), 10 * MS), MS)
    noise = 0.005 * np.random.default_rng(1).standard_normal(40)
    falling = risk(replace(job, metrics=sampled("utilisation_share", np.linspace(0.95, 0.75, 40) + noise)))
    assert answer(falling, FALLS).answer == "yes"
    assert answer(falling, FALLS).says.startswith("measured utilisation changes by -")
    flat = risk(replace(job, metrics=sampled("utilisation_share", 0.95 + noise)))
    assert answer(flat, FALLS).answer == "no"
    rising = risk(replace(job, metrics=sampled("power_w", 400 * (np.linspace(1, 1.2, 40) + noise))))
    assert answer(rising, ENERGY).answer == "yes"
    steady = risk(replace(job, metrics=sampled("power_w", 400 * (1 + noise))))
    assert answer(steady, ENERGY).answer == "no"


def test_without_a_job_log_re_runs_are_not_known() -> None:
    one = answer(risk(barriers(work(), MS)), AGAIN)
    assert (one.answer, one.needs) == (None, "a job log")


def test_steps_that_become_longer_drift_and_quiet_ones_do_not() -> None:
    rng = np.random.default_rng(7)
    quiet = 1 + 0.01 * rng.standard_normal(200)
    found = drift(quiet * np.linspace(1, 1.2, 200), 1.0)
    assert found is not None
    assert found.rises
    assert found.change == pytest.approx(0.2, abs=0.02)
    alarms = sum(bool((one := drift(1 + 0.1 * rng.standard_normal(40), 1.0)) and one.rises) for _ in range(200))
    assert alarms <= 6
