"""The quick rate: one replica, sampled, must say at every scale what the grid says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from taut.project.noise import GRID, longest_mean
from taut.project.training.forecast import at, forecast
from taut.project.training.policies import POLICIES
from taut.project.training.sampled_replica import mean_step_ns, rate, sketch
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.step_plan import plan
from taut.project.training.step_time import step_ns
from taut.project.training.workload import WORKLOAD
from taut.read.scenario_file import load


@pytest.fixture
def small() -> Scenario:
    """Two stages of two ranks each, four micro-batches."""
    table, text = load("gpt-175b")
    table["model"] = {**table["model"], "layers": 8, "hidden": 2048, "heads": 16}
    table["job"] = {"global_batch": 32, "dp": 8, "tp": 2, "pp": 2}
    return parse(table, "small", text)[0]


CASES: dict[str, dict[str, Any]] = {
    "quiet": {},
    "uneven steps": {"step_spread": 0.1},
    "exponential": {"distribution": "exponential", "spread": 0.5},
    "older devices": {"slow_share": 0.02, "slow_factor": 1.4},
    "drift": {"drift_share": 0.05, "drift_steps": 3.0},
    "hiccups": {"hiccups_per_1000_steps": 20.0, "hiccup_ms": 50.0, "hiccup_spread": 0.5},
    "hiccups of hosts": {"hiccups_per_1000_steps": 20.0, "hiccup_ms": 50.0, "hiccups_together": "host"},
    "hiccups of all": {"hiccups_per_1000_steps": 100.0, "hiccup_ms": 50.0, "hiccups_together": "job"},
    "regular pauses": {"periodic_every_s": 3.0, "periodic_ms": 30.0},
}


@pytest.mark.parametrize("ranks", [4, 32, 256])
@pytest.mark.parametrize("case", CASES)
def test_the_grid_says_the_same_at_every_scale(small: Scenario, case: str, ranks: int) -> None:
    s = at(replace(small, noise=replace(small.noise, **CASES[case])), ranks)
    played = [float(forecast(s, count=12, seed=100 + seed).step_ns.mean()) for seed in range(24)]
    quick = [mean_step_ns(s, plan(s), seed) for seed in range(8)]
    error = np.hypot(np.std(played) / np.sqrt(len(played)), np.std(quick) / np.sqrt(len(quick)))
    assert abs(np.mean(quick) - np.mean(played)) < 4 * error + 1e-4 * np.mean(played)


def test_local_steps_meet_after_several(small: Scenario) -> None:
    noise = replace(small.noise, step_spread=0.1)
    s = replace(small, noise=noise, job=replace(small.job, steps_between_syncs=4))
    played = [float(forecast(s, count=16, seed=seed).step_ns.mean()) for seed in range(24)]
    assert np.mean([mean_step_ns(s, plan(s), seed) for seed in range(8)]) == pytest.approx(np.mean(played), rel=0.01)


def test_what_failures_leave_is_that_of_the_forecast(small: Scenario) -> None:
    s = at(small, 4096)
    assert sketch(s).kept == pytest.approx(forecast(s, count=4).kept, abs=0.003)


def test_an_ideal_job_takes_its_still_step_and_keeps_everything(small: Scenario) -> None:
    s = WORKLOAD.ideal(small)
    assert rate(s, 0) == pytest.approx(s.job.global_batch * s.model.sequence / (step_ns(s) * 1e-9))
    assert sketch(s).kept == 1.0
    assert rate(small, 0) < rate(s, 0)


def test_terms_sum_to_the_expected_step(small: Scenario) -> None:
    made = sketch(small)
    assert sum(made.terms.values()) == pytest.approx(float(made.step_ns.mean()))
    assert made.entry()["ranks"] == 32


def test_the_longest_of_uniform_and_exponential_draws() -> None:
    chance = 1 / (1 + np.exp(-GRID))
    exponential = np.log1p(np.exp(GRID))
    for n in (1, 2, 10, 1000):
        assert longest_mean(chance, n) == pytest.approx(n / (n + 1), rel=1e-3)
        assert longest_mean(exponential, n) == pytest.approx(sum(1 / k for k in range(1, n + 1)), rel=1e-3)


GATES: dict[str, dict[str, Any]] = {
    "stale": {"gate": "stale", "slack": 2},
    "stale, dealt by speed": {"gate": "stale", "slack": 2, "deal_by_speed": True},
    "fastest": {"gate": "fastest", "backup_replicas": 2},
    "ring": {"gate": "ring", "slack": 1},
    "groups": {"gate": "hierarchical", "group_replicas": 4, "slack": 2},
    "clones": {"clones": 2},
    "copies": {"copy_after": 0.9},
    "nobody": {"gate": "none"},
}


@pytest.mark.parametrize("case", GATES)
def test_other_gates_give_what_the_grid_gives(small: Scenario, case: str) -> None:
    noise = replace(small.noise, step_spread=0.1, ranks_spread=0.03)
    s = at(replace(small, noise=noise, failure=type(small.failure)()), 128)
    s = replace(s, policy=replace(s.policy, **GATES[case]))
    played = np.mean([forecast(s, count=60, seed=seed).step_ns[30:].mean() for seed in range(4)])
    quick = np.mean([sketch(s, seed).step_ns.mean() for seed in range(6)])
    assert quick == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize(
    ("name", "value"), [("backup-workers", 1), ("backup-workers", 8), ("clones", 2), ("clones", 4), ("asynchronous", None)]
)
def test_gates_without_a_memory_are_met_as_on_the_grid(small: Scenario, name: str, value: float | None) -> None:
    noise = replace(small.noise, step_spread=0.1, slow_share=0.05, slow_factor=1.3)
    s = POLICIES[name].apply(replace(at(small, 64), noise=noise), value)
    played = [float(forecast(s, count=12, seed=100 + seed).step_ns.mean()) for seed in range(24)]
    quick = np.mean([mean_step_ns(s, plan(s), seed) for seed in range(8)])
    assert quick == pytest.approx(np.mean(played), rel=0.01)


def test_rare_hiccups_are_not_lost_in_a_sample(small: Scenario) -> None:
    """One in ten thousand steps of a rank: no sampled replica may have seen one, 4096 of them see many."""
    job = replace(small.job, tp=1, pp=1, dp=4096, global_batch=4096)
    rare = Noise("none", step_spread=0.0, ranks_spread=0.0, hiccups_per_1000_steps=0.1, hiccup_ms=100.0)
    s = replace(small, job=job, noise=rare)
    quiet = mean_step_ns(replace(s, noise=replace(rare, hiccups_per_1000_steps=0.0, hiccup_ms=0.0)), plan(s), 0)
    assert mean_step_ns(s, plan(s), 0) - quiet == pytest.approx(100e6 * -np.expm1(-0.4096), rel=0.01)
    hosts = replace(s, noise=replace(rare, hiccups_together="host"))
    assert mean_step_ns(hosts, plan(s), 0) - quiet == pytest.approx(100e6 * -np.expm1(-0.4096 / 8), rel=0.02)


def test_without_a_gate_replicas_pay_their_own_hiccups(small: Scenario) -> None:
    rare = Noise("none", step_spread=0.0, ranks_spread=0.0, hiccups_per_1000_steps=5.0, hiccup_ms=100.0)
    s = replace(small, job=replace(small.job, tp=1, pp=1), noise=rare, policy=replace(small.policy, gate="none"))
    for together in ("rank", "job"):
        one = replace(s, noise=replace(rare, hiccups_together=together))
        assert mean_step_ns(one, plan(s), 0) - step_ns(s) == pytest.approx(0.5e6, rel=0.02)


def test_gates_with_a_memory_see_hiccups(small: Scenario) -> None:
    noise = Noise("none", step_spread=0.0, ranks_spread=0.0, hiccups_per_1000_steps=20.0, hiccup_ms=50.0)
    s = replace(small, job=replace(small.job, tp=1, pp=1), noise=noise)
    played = [forecast(POLICIES["semi-synchronous"].apply(s, 4), count=400, seed=k).step_ns.mean() for k in range(4)]
    quick = [sketch(POLICIES["semi-synchronous"].apply(s, 4), k).step_ns.mean() for k in range(16)]
    barrier = mean_step_ns(s, plan(s), 0)
    assert np.mean(quick) == pytest.approx(np.mean(played), rel=0.02)
    assert np.mean(quick) < barrier - 2e6
