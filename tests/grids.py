"""Grids of ranks that do one op a step and meet, and the times of their steps."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from taut.core.array_types import Floats
from taut.project.noise import table
from taut.project.training.grid import Grid, Sync, step_lengths
from taut.project.training.pipeline import program
from taut.project.training.scenario import Noise

SEED = 7


def one_op(noise: Noise, ranks: int, members: int = 1, late: float = inf) -> Grid:
    """Ranks that do one op a step and meet."""
    drawn = np.array([[1.0], [0.0]])
    tables = np.stack([table(noise, members)] * 2)
    return Grid(program("gpipe", 1, 1, 1), np.zeros((2, 1)), drawn, tables, 0.0, ranks, late=late)


def many_steps(grid: Grid, count: int, sync: Sync) -> Floats:
    """How long so many steps take. Their draws are those of as many more ranks in one step, all made at once."""
    ranks = grid.replicas
    ends = replace(grid, replicas=count * ranks).step(np.zeros(count * ranks), 0, SEED)
    return step_lengths(ends.reshape(count, ranks, -1), sync)


def harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))
