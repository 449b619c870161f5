"""Restarts that reset a run and restarts that make it less steady, on both sides of the boundary."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taut.project.noise import GRID, longest
from taut.project.training.checkpoints import mtbf_s
from taut.project.training.failures import live
from taut.project.training.restart import brought, covariance, effect, mean_boundary, placement, variance_boundary
from taut.project.training.scenario import Failure, Noise

COOLS = Failure(warmup_share=0.3, warmup_steps=100, heat_share=0.05, heat_steps=2000)
"""A short, bad warm-up against a long, mild cooling: 30 steps are lost at a restart, 100 won if there is time to."""
WARMS = Failure(warmup_share=0.05, warmup_steps=2000, heat_share=0.1, heat_steps=500)
"""The other way round: 100 steps are lost at a restart, 50 won; but a cold step is quicker than a hot one from the first."""
DRIFTS = Failure(warmup_share=0.2, warmup_steps=50, heat_steps=5000, heat_spread=0.03)
"""Heat that makes steps drift apart, and a warm-up."""


@pytest.mark.parametrize(("f", "turns", "rare", "often"), [(COOLS, 0.14, "reset", "amplify"), (WARMS, 2.0, "amplify", "reset")])
def test_the_mean_step_turns_at_the_boundary(f: Failure, turns: float, rare: str, often: str) -> None:
    assert mean_boundary(f) == pytest.approx(turns)
    for by, verdict in ((0.5, rare), (0.99, rare), (1.01, often), (2.0, often)):
        assert effect(f, 64, by * turns / f.warmup_steps, 1e5).mean == verdict


@pytest.mark.parametrize(
    ("f", "verdict"),
    [
        (Failure(warmup_share=0.3, warmup_steps=100), "amplify"),
        (Failure(heat_share=0.1, heat_steps=100), "reset"),
        (Failure(), "neither"),
    ],
)
def test_with_one_of_both_there_is_no_boundary(f: Failure, verdict: str) -> None:
    assert mean_boundary(f) is None
    assert {effect(f, 64, rate, 1e5).mean for rate in (1e-6, 1e-3, 0.1)} == {verdict}


def test_the_variance_turns_where_warm_ups_outweigh_the_drift_they_cut_off() -> None:
    turns, always_cold = variance_boundary(DRIFTS, 256, 1e5)
    assert 0.01 < turns < 0.1
    assert effect(DRIFTS, 256, 0.9 * turns / 50, 1e5).variance == "reset"
    assert effect(DRIFTS, 256, 1.1 * turns / 50, 1e5).variance == "amplify"
    assert effect(DRIFTS, 256, 1.1 * always_cold / 50, 1e5).variance == "reset", "a job that never gets warm is steady too"
    assert always_cold > 1


@pytest.mark.parametrize(("spread", "share", "verdict"), [(0.0, 1.0, "reset"), (0.05, 0.0, "reset"), (0.005, 1.0, "reset"),
                                                          (0.05, 0.05, "amplify"), (0.05, 1.0, "amplify")])  # fmt: skip
def test_a_placement_drawn_anew_brings_variance_in_if_nodes_differ(spread: float, share: float, verdict: str) -> None:
    f = replace(DRIFTS, placement_spread=spread, redrawn_share=share)
    assert effect(f, 256, 1e-4, 1e5).variance == verdict


def test_a_lucky_placement_is_lost_by_a_restart_and_an_unlucky_one_with_it() -> None:
    f = Failure(placement_spread=0.03, redrawn_share=0.5)
    assert effect(f, 64, 1e-3, 1e4, placed=0.05).mean == "amplify"
    assert effect(f, 64, 1e-3, 1e4, placed=0.95).mean == "reset"
    assert effect(f, 64, 1e-3, 1e4).mean == "neither", "of a placement nothing is known of, nothing can be won"
    assert effect(replace(f, redrawn_share=0.0), 64, 1e-3, 1e4, placed=0.05).mean == "neither"


@given(
    st.floats(0.001, 2), st.integers(5, 1000), st.floats(0, 0.5), st.integers(5, 1000), st.floats(0, 0.5), st.floats(1e-3, 1)
)
def test_what_fades_and_what_comes_are_averages_over_the_age(
    warm: float, over: int, hot: float, slowly: int, spread: float, rate: float
) -> None:
    f = Failure(warmup_share=warm, warmup_steps=over, heat_share=hot, heat_steps=slowly, heat_spread=spread)
    age = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000) / rate
    step = 1 + warm * np.exp(-age / over) + hot * -np.expm1(-age / slowly)
    drift = spread**2 * -np.expm1(-2 * age / slowly)
    found = effect(f, 1, rate, 1e4, jitter=0.01)
    assert found.mean_after == pytest.approx(step.mean(), rel=1e-3)
    assert found.variance_after == pytest.approx(step.var() + drift.mean() + 0.01**2, rel=1e-2, abs=1e-6)
    assert (found.mean_before, found.variance_before) == pytest.approx((1 + hot, spread**2 + 0.01**2))


def drawn(nodes: int, spread: float, share: float, restarts: float, seed: int) -> tuple[float, float]:
    """Mean and variance over one run of the slowest node, drawn node by node."""
    rng = np.random.default_rng(seed)
    sigma = sqrt(np.log1p(spread**2))

    def fresh(n: int) -> Any:
        return np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2)

    node, slowest = fresh(nodes), []
    ends = np.sort(rng.random(rng.poisson(restarts)))
    for _ in range(len(ends) + 1):
        slowest.append(node.max() - 1)
        again = rng.random(nodes) < share
        node[again] = fresh(int(again.sum()))
    weight = np.diff(np.concatenate([[0.0], ends, [1.0]]))
    mean = float(weight @ slowest)
    return mean, float(weight @ (np.array(slowest) - mean) ** 2)


@pytest.mark.parametrize(("share", "restarts"), [(0.3, 5.0), (0.05, 20.0), (1.0, 1.0)])
def test_the_slowest_node_over_a_run(share: float, restarts: float) -> None:
    runs = np.array([drawn(64, 0.03, share, restarts, seed) for seed in range(800)])
    mean, moved, varied = placement(Failure(placement_spread=0.03, redrawn_share=share), 64, restarts)
    error = 4 * runs.std(axis=0) / sqrt(len(runs))
    assert moved == 0
    assert (mean, varied) == (pytest.approx(runs[:, 0].mean(), abs=error[0]), pytest.approx(runs[:, 1].mean(), abs=error[1]))


def test_placements_that_share_all_nodes_vary_together_and_those_that_share_none_do_not() -> None:
    value, below = longest(Noise("gumbel", 0.1), 100), -np.log1p(np.exp(-GRID))
    assert covariance(value, below, 1.0) == pytest.approx(0.01, rel=1e-3), "the slowest of Gumbel nodes varies as one of them"
    assert covariance(value, below, 0.0) == pytest.approx(0.0, abs=1e-12)
    some = [covariance(value, below, kept) for kept in np.linspace(0, 1, 11)]
    assert some == sorted(some)


def test_failures_bring_failures() -> None:
    f = Failure(node_per_1000_node_days=40, spares=500, checkpoint_s=30, checkpoint_every_s=600, detect_s=0, reschedule_s=0,
                restore_s=120, warmup_share=1.0, warmup_steps=60)  # fmt: skip
    per_s = 1 / mtbf_s(40, 1000)
    more = brought(f, per_s, 600, 120, 1.0)
    assert more == pytest.approx(per_s * (120 + 300 + 60))
    seen = live(f, 1000, 8, 57e4, count=200).count("failures").mean()
    assert seen == pytest.approx(57e4 * 600 / 570 * per_s / (1 - more), rel=0.05)
    assert seen > 1.2 * 57e4 * per_s


def test_a_user_can_read_it() -> None:
    said = effect(replace(COOLS, heat_spread=0.01), 64, 0.0005, 50_000).sentence
    assert said == (
        "25 restarts reset the mean step (1 % shorter) and amplify its spread (from 1 % to 4 %, most of it by warming up), "
        "against a run left alone."
    )
