"""The grid on array libraries: the same numbers as the compiled kernel, wherever they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from taut.project.noise import table
from taut.project.training import arrays, grid
from taut.project.training.grid import Grid, barrier, fastest, ring, stale
from taut.project.training.pipeline import program
from taut.project.training.scenario import Noise

SHAPES = [("gpipe", 4, 1, 8), ("1f1b", 4, 1, 8), ("1f1b", 1, 1, 3), ("interleaved", 4, 2, 8), ("interleaved", 2, 3, 4)]


def job(schedule: str, stages: int, chunks: int, micro: int, replicas: int = 6) -> Grid:
    """Chunks that differ, stages of some replicas slower than others, and hops."""
    rng = np.random.default_rng(2)
    noise = Noise(distribution="lognormal", spread=0.2)
    shape = (2, stages * chunks)
    drawn = rng.uniform(10, 20, shape) * (rng.random(shape) < 0.8)
    fixed, slow = rng.uniform(1, 2, shape), rng.uniform(1, 1.3, (replicas, stages))
    return Grid(
        program(schedule, stages, chunks, micro), fixed, drawn, np.stack([table(noise, 4), table(noise, 4, 3)]), 0.5, replicas,
        lambda step: slow * (1 + 0.01 * step),
    )  # fmt: skip


def library(name: str) -> arrays.Library:
    return arrays.NUMPY if name == "numpy" else arrays.Library(pytest.importorskip(name), "cpu")


@pytest.mark.parametrize("name", ["numpy", "torch"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_stage_ends_when_the_kernel_says(shape: tuple[str, int, int, int], name: str) -> None:
    here, lib = job(*shape), library(name)
    ends = lib.back(arrays.play(here, [3, 7], 11, lib))
    expected = [here.step(np.zeros(here.replicas), step, 11) for step in (3, 7)]
    np.testing.assert_allclose(ends, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["numpy", "torch"])
@pytest.mark.parametrize("every", [1, 3])
def test_steps_are_those_of_the_kernel(every: int, name: str) -> None:
    here = job("1f1b", 3, 1, 4)
    for gate in (barrier, fastest(4), ring(2), stale(1)):
        expected = grid.steps(here, 10, 5, gate=gate, every=every, sync_ns=2.0, after_ns=1.0)
        took = arrays.steps(here, 10, 5, gate=gate, every=every, sync_ns=2.0, after_ns=1.0, lib=library(name))
        np.testing.assert_allclose(took, expected, rtol=1e-12)


def test_blocks_of_steps_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    here = job("1f1b", 2, 1, 4)
    whole = arrays.steps(here, 10, 5, every=4)
    monkeypatch.setattr(arrays, "BLOCK", 3 * here.replicas)
    np.testing.assert_allclose(arrays.steps(here, 10, 5, every=4), whole, rtol=1e-14)


def test_torch_and_numpy_agree_to_the_last_bit_but_one() -> None:
    here = job("interleaved", 4, 2, 8)
    np.testing.assert_allclose(
        library("torch").back(arrays.play(here, range(5), 1, library("torch"))), arrays.play(here, range(5), 1), rtol=1e-15
    )


def test_a_seed_beyond_32_bits_and_a_step_far_away() -> None:
    here = job("1f1b", 2, 1, 2)
    for seed, step in ((-1, 0), (1 << 40, 3), (7, 1 << 31)):
        np.testing.assert_allclose(
            arrays.play(here, [step], seed)[0], here.step(np.zeros(here.replicas), step, seed), rtol=1e-12
        )
