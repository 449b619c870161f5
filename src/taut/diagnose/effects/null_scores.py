"""Scores that jobs without a fault exceed in 1 % and in 5 %: a table of simulated null runs through the same code."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import numpy as np

from taut.core.array_types import Floats
from taut.diagnose.effects.search import noise_of
from taut.diagnose.effects.series import Series

RANKS = (2, 3, 4, 8, 16, 64)
STEPS = (2, 3, 4, 6, 10, 20, 40, 100, 300)
REDNESS = (0.0, 0.2, 0.45, 0.7, 0.85)
STALLS = (0.0, 0.005, 0.04)
"""Sizes, and lower ends of cells of estimated redness and rate of stalls, of ``bench/null_scores.py``."""


def limits(series: Series, own_ns: Floats) -> tuple[float, float]:
    """(score of a finding, score of a suspect) for a job of this size and noise."""
    ranks, steps = own_ns.shape
    members = float(np.median(np.bincount(series.role)[series.role]))
    redness, stalls = noise_of(series, own_ns)
    cell = int(np.digitize(redness, REDNESS[1:])), int(np.digitize(stalls, STALLS[1:]))
    by_ranks, by_steps = _weights(members, RANKS), _weights(steps, STEPS)
    found = (float(by_ranks @ _table(name)[:, :, cell[0], cell[1]] @ by_steps) for name in ("finding", "suspect"))
    more = float(np.log(max(ranks / max(members, RANKS[-1]), 1)))  # beyond the table each rank is one try more
    finding, suspect = found
    return finding + more, suspect + more


@cache
def _table(name: str) -> Floats:
    data = files("taut.diagnose.effects").joinpath("null_scores.json").read_bytes()
    table: Floats = np.array(json.loads(data)[name])
    return table


def _weights(value: float, grid: tuple[int, ...]) -> Floats:
    """Weights of the grid's points that interpolate between its neighbours in the logarithm."""
    at = float(np.interp(np.log(max(value, 1)), np.log(grid), np.arange(len(grid))))
    found: Floats = np.maximum(0.0, 1.0 - np.abs(np.arange(len(grid)) - at))
    return found
