"""The grid engine gives the closed forms of the theory, within the error of as many draws."""

from __future__ import annotations

from math import exp, lgamma, log, pi, sqrt
from typing import Any

import numpy as np
import pytest

from grids import harmonic, many_steps, one_op
from taut.project.noise import table
from taut.project.training.gates import Gate, barrier, fastest, ring, stale
from taut.project.training.grid import Grid, Sync, steps
from taut.project.training.pipeline import program
from taut.project.training.scenario import Noise


def mean(noise: Noise, ranks: int, count: int = 3000, gate: Gate = barrier, every: int = 1) -> tuple[float, float]:
    """Mean time of a step, and four standard errors of it."""
    took = steps(one_op(noise, ranks), count, 7, sync=Sync(gate=gate, every=every))
    return float(took.mean()), 4 * float(took.reshape(-1, every).sum(axis=1).std()) / every / sqrt(count / every)


@pytest.mark.parametrize("ranks", [1, 8, 64])
def test_a_barrier_of_exponential_work_is_the_harmonic_number(ranks: int) -> None:
    value, error = mean(Noise(distribution="exponential", spread=1.0), ranks)
    assert value == pytest.approx(harmonic(ranks), abs=error)


@pytest.mark.parametrize("ranks", [8, 64])
def test_a_barrier_of_gumbel_work_is_gumbel_again(ranks: int) -> None:
    value, error = mean(Noise(distribution="gumbel", spread=0.5), ranks)
    assert value == pytest.approx(1 + 0.5 * sqrt(6) / pi * log(ranks), abs=error)


def test_a_barrier_of_pareto_work_has_a_heavy_maximum() -> None:
    n, a = 64, 4.0
    took = many_steps(one_op(Noise(distribution="pareto", tail=a), n), 20_000, Sync())
    expected = exp(lgamma(n + 1) + lgamma(1 - 1 / a) - lgamma(n + 1 - 1 / a)) * (a - 1) / a
    assert took.mean() == pytest.approx(expected, abs=4 * took.std() / sqrt(20_000))


@pytest.mark.parametrize(("ranks", "largest"), [(8, 1.4236), (64, 2.3437), (1024, 3.2482), (16384, 3.9714)])
def test_a_barrier_of_gaussian_work(ranks: int, largest: float) -> None:
    value, error = mean(Noise(distribution="gaussian", spread=0.05), ranks, 200)
    assert value == pytest.approx(1 + 0.05 * largest, abs=error)


def test_members_drawn_together_are_as_late_as_members_drawn_apart() -> None:
    noise = Noise(distribution="gaussian", spread=0.05)
    took = steps(one_op(noise, 128, members=8), 400, 3)
    assert took.mean() == pytest.approx(1 + 0.05 * 3.2482, abs=4 * took.std() / 20)


def test_local_steps_average_jitter_away() -> None:
    value, error = mean(Noise(distribution="gaussian", spread=0.05), 64, every=4)
    assert value == pytest.approx(1 + 0.05 * 2.3437 / sqrt(4), abs=error)


def test_waiting_for_the_fastest_costs_less() -> None:
    value, error = mean(Noise(distribution="exponential", spread=1.0), 16, gate=fastest(12))
    assert value == pytest.approx(harmonic(16) - harmonic(4), abs=error)


def settled(ranks: int, gate: Gate) -> tuple[float, float]:
    """Mean time of a step of exponential work once the start is forgotten, and four standard errors of it."""
    took = many_steps(one_op(Noise(distribution="exponential", spread=1.0), ranks), 20_000, Sync(gate=gate))
    parts = took[4000:].reshape(32, -1).mean(axis=1)  # neighbouring steps depend on each other, such long parts hardly do
    return float(parts.mean()), 4 * float(parts.std()) / sqrt(32)


@pytest.mark.parametrize(("ranks", "slack"), [(1, 1), (2, 1), (8, 1), (64, 1), (2, 3), (8, 2), (64, 4)])
def test_a_ring_with_slack_is_bounded_however_large_it_is(ranks: int, slack: int) -> None:
    value, error = settled(ranks, ring(slack))
    assert value == pytest.approx(1 + (ranks - 1) / (slack * ranks), abs=error)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_of_two_ranks_bounded_staleness_is_a_ring(bound: int) -> None:
    value, error = settled(2, stale(bound))
    assert value == pytest.approx(1 + 1 / (2 * (bound + 1)), abs=error)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_bounded_staleness_lies_between_a_ring_and_local_steps(bound: int) -> None:
    """The same draws: a neighbour is one of all, and a barrier every few steps lets nobody further ahead."""
    ends = [
        steps(one_op(Noise(distribution="exponential", spread=1.0), 32), 400, 5, sync=Sync(gate=gate, every=every)).cumsum()[
            bound :: bound + 1
        ]
        for gate, every in ((ring(bound + 1), 1), (stale(bound), 1), (barrier, bound + 1))
    ]
    assert (ends[0] <= ends[1] + 1e-9).all()
    assert (ends[1] <= ends[2] + 1e-9).all()


def test_no_slack_buys_back_a_rank_that_is_slow_for_good() -> None:
    grid = one_op(Noise(distribution="none"), 8)
    slow = np.where(np.arange(8) == 3, 2.0, 1.0)[:, None]
    for gate in (barrier, ring(4), stale(4)):
        took = steps(
            Grid(grid.program, grid.fixed_ns, grid.drawn_ns, grid.tables, 0.0, 8, lambda _: slow), 200, sync=Sync(gate=gate)
        )
        assert took[-50:].mean() == pytest.approx(2.0)


@pytest.mark.parametrize(("micro", "stages", "replicas"), [(2, 2, 20_000), (32, 8, 5000), (128, 8, 2000), (512, 16, 300)])
def test_a_pipeline_of_exponential_stages_is_last_passage_percolation(micro: int, stages: int, replicas: int) -> None:
    noise = table(Noise(distribution="exponential", spread=1.0))
    drawn = np.stack([np.ones(stages), np.zeros(stages)])
    grid = Grid(program("gpipe", stages, 1, micro), np.zeros((2, stages)), drawn, np.stack([noise] * 2), 0.0, replicas)
    took = grid.step(np.zeros(replicas), 0, 11).max(axis=1)
    root = sqrt(micro) + sqrt(stages)
    expected = 3.5 if micro == stages == 2 else root**2 - 1.7711 * root ** (4 / 3) * (micro * stages) ** (-1 / 6)
    assert took.mean() == pytest.approx(expected, rel=0.01, abs=4 * took.std() / sqrt(replicas))


def test_the_same_seed_gives_the_same_steps_on_any_number_of_cores() -> None:
    noise = Noise(distribution="lognormal", spread=0.1)
    p = program("1f1b", 4, 1, 8)
    shape: Any = np.ones((2, 4))
    grid = Grid(p, shape, shape, np.stack([table(noise, 8, 3)] * 2), 0.1, 10)
    alone = steps(grid, 20, 5)
    assert (steps(grid, 20, 5, cores=2) == alone).all()
    assert (steps(grid, 20, 6) != alone).any()
