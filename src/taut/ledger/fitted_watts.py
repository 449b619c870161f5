"""Watts of load, stall and idle, from what a job's own accelerators drew: least squares of joules on the time in each state.

Steps are put together to blocks of many samples first: of a step that is as short as the distance of two samples, the samples
tell more of its neighbours, and states would be taken for more alike than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Mask

STATES = ("load", "stall", "idle")
SAMPLES = 10
"""Samples that a block holds at least."""
BLOCKS = 12
"""Blocks that a fit needs at least."""
ERROR = 0.1
"""Standard error that is allowed, of the largest watts."""
SURE = 2.0
"""Standard errors that the watts of a state must be away from 0: no accelerator draws nothing."""
LEAST_SHARE = 1e-3
"""Share of the time below which a state has no watts of its own."""


class Fit(Struct, frozen=True):
    """Watts by state with their standard errors; states that share one factor have both from it."""

    watts: dict[str, float]
    error_w: dict[str, float]
    blocks: int


class Drawn(Struct, frozen=True):
    """What was drawn: one row for each rank, one column for each window."""

    seconds: Floats
    """Ranks × windows × states."""
    joules: Floats
    known: Mask
    """Where joules were measured on the accelerator itself."""
    apart_s: float
    """Usual distance of samples."""


def fit_watts(drawn: Drawn, ratios: dict[str, float]) -> Fit | None:
    """The watts of the states, else of load and of both others by their ratios; None where states do not vary enough."""
    time, joules, rank = _blocks(drawn)
    share = time.sum(axis=0) / max(float(time.sum()), 1e-300)
    there = [i for i in range(len(STATES)) if share[i] >= LEAST_SHARE]
    waits = [i for i in there if i > 0]
    for groups in ([[i] for i in there], [[0], waits]):
        if all(groups) and (found := _fit(time, joules, rank, groups, ratios)):
            return found
    return None


def _blocks(drawn: Drawn) -> tuple[Floats, Floats, Floats]:
    """Time by state, joules and rank of every block that was measured."""
    ranks, windows, states = drawn.seconds.shape
    time = np.where(drawn.known[:, :, None], drawn.seconds, 0.0)
    joules = np.where(drawn.known, drawn.joules, 0.0)
    window_s = float(time.sum()) / max(int(drawn.known.sum()), 1)
    size = max(int(np.ceil(SAMPLES * drawn.apart_s / max(window_s, 1e-12))), 1)
    count = windows // size
    time = time[:, : count * size].reshape(ranks, count, size, states).sum(axis=2).reshape(-1, states)
    joules = joules[:, : count * size].reshape(ranks, count, size).sum(axis=2).ravel()
    rank = np.repeat(np.arange(ranks), count)
    some = time.sum(axis=1) > 0
    return time[some], joules[some], rank[some].astype(np.float64)


def _fit(time: Floats, joules: Floats, rank: Floats, groups: Sequence[Sequence[int]], ratios: dict[str, float]) -> Fit | None:
    """Watts of groups of states; None where one is not told apart."""
    each = np.array([ratios[state] for state in STATES])
    inside = [each / max(float(each[list(group)].max()), 1e-300) for group in groups]
    columns = np.stack([time[:, list(group)] @ one[list(group)] for group, one in zip(groups, inside, strict=True)], axis=1)
    if len(joules) < max(BLOCKS, len(groups) + 1) or np.linalg.matrix_rank(columns) < len(groups):
        return None
    factor = _non_negative(columns, joules)
    error = _errors(columns, joules - columns @ factor, rank)
    if (error > ERROR * factor.max()).any() or (factor <= SURE * error).any() or (factor <= 0).any():
        return None
    watts, error_w = dict[str, float](), dict[str, float]()
    for group, one, value, off in zip(groups, inside, factor.tolist(), error.tolist(), strict=True):
        watts |= {STATES[i]: value * float(one[i]) for i in group}
        error_w |= {STATES[i]: off * float(one[i]) for i in group}
    return Fit(watts, error_w, len(joules))


def _non_negative(columns: Floats, joules: Floats) -> Floats:
    """Least squares without negative factors: the best of all choices of columns, of which there are seven at most."""
    best, found = np.inf, np.zeros(columns.shape[1])
    places = range(columns.shape[1])
    for chosen in (list(some) for size in places for some in combinations(places, size + 1)):
        factor = np.zeros(columns.shape[1])
        factor[chosen] = np.linalg.lstsq(columns[:, chosen], joules, rcond=None)[0]
        off = float(((joules - columns @ factor) ** 2).sum())
        if (factor >= 0).all() and off < best:
            best, found = off, factor
    return found


def _errors(columns: Floats, off: Floats, rank: Floats) -> Floats:
    """Standard errors: of blocks that scatter alone, or with those of their rank together, whichever is larger."""
    inverse = np.linalg.inv(columns.T @ columns)
    alone = np.diag(inverse) * float(off @ off) / max(len(off) - columns.shape[1], 1)
    sums = np.stack([(columns * off[:, None])[rank == one].sum(axis=0) for one in np.unique(rank)])
    together = np.diag(inverse @ (sums.T @ sums) @ inverse)
    out: Floats = np.sqrt(np.maximum(alone, together))
    return out
