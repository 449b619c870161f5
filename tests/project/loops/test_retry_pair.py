"""The retry pair: what the fixed points say before it is run, and what the run then does.

A server of 50 a second is asked 30 times a second with half a second of patience, and stalls once for 4 s.
"""

from __future__ import annotations

import numpy as np
import pytest

from taut.control.metastability import fixed_points
from taut.control.relations import control
from taut.project.loops.scenario import Client, Demand, Loops, Pool, Scenario, Stall
from taut.project.loops.simulated_run import SimulatedRun, simulate

PER_S, SERVES, PATIENCE_S = 30.0, 50.0, 0.5


def pair(retries: int, stall: bool = True, budget: float | None = None) -> Scenario:
    return Scenario(
        "pair", Loops(horizon_s=60), Demand(per_s=PER_S), Pool(service_s=1 / SERVES),
        (Client("caller", PATIENCE_S, retries, budget_share=budget),), stall=(Stall(10, 4),) if stall else (),
    )  # fmt: skip


def goodput(run: SimulatedRun, first_s: float, last_s: float) -> float:
    """Requests a second that arrived in a window and were answered in time."""
    inside = (run.born_s >= first_s) & (run.born_s < last_s)
    return float((run.in_time & inside).sum() / (last_s - first_s))


def attempts_per_s(run: SimulatedRun, first_s: float, last_s: float) -> float:
    metrics = run.trace.metrics
    when = metrics.time_ns / 1e9
    return float(metrics.value[(metrics.metric == "attempts") & (when > first_s) & (when <= last_s)].mean())


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_run_ends_in_the_load_that_the_fixed_points_predict(retries: int) -> None:
    stable = [point for point in fixed_points(PER_S, SERVES, PATIENCE_S, retries) if point.stable]
    assert len(stable) == (1 if retries == 0 else 2)
    before, after = stable[0], stable[-1]
    runs = [simulate(pair(retries), seed) for seed in range(3)]
    assert np.mean([attempts_per_s(run, 0, 10) for run in runs]) == pytest.approx(before.rate, rel=0.1)
    assert np.mean([attempts_per_s(run, 30, 55) for run in runs]) == pytest.approx(after.rate, rel=0.1)
    for run in runs:
        assert goodput(run, 30, 55) == pytest.approx(PER_S * (1 - after.late ** (retries + 1)), rel=0.1, abs=0.5)


def test_without_the_stall_three_retries_do_no_harm() -> None:
    run = simulate(pair(3, stall=False), 1)
    assert goodput(run, 0, 55) == pytest.approx(PER_S, rel=0.05)


@pytest.mark.parametrize(("budget", "comes_back"), [(0.2, True), (1.0, False)])
def test_a_budget_removes_the_upper_load_if_it_leaves_room_to_serve(budget: float, comes_back: bool) -> None:
    """When every attempt is late, load is λ(1 + budget): the upper load exists only where that is more than is served."""
    assert (PER_S * (1 + budget) < SERVES) == comes_back
    run = simulate(pair(3, budget=budget), 1)
    assert (goodput(run, 35, 55) > 0.9 * PER_S) == comes_back


def test_the_log_alone_tells_which_of_the_two_is_metastable() -> None:
    kinds = [{one["kind"] for one in control(simulate(pair(n), 1).trace)["relations"]} for n in (0, 3)]
    assert "metastability" not in kinds[0]
    assert "metastability" in kinds[1]
