"""Watts of load, stall and idle, from what a job's own accelerators drew: least squares of joules on the time in each state.

Steps are put together to blocks of many samples first: of a step that is as short as the distance of two samples, the samples
tell more of its neighbours, and states would be taken for more alike than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

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
RARE, RARE_SURE = 0.1, 1.0
"""States of less than this share of the time may be less sure: little is divided by their watts, and the interval says it."""
WORSE = 4.0
"""Squares that states with one factor may leave over, in those of one block, before they are taken for apart: about 95 %."""
Z = 1.96
"""Standard errors to each side of an interval of 95 %."""
LEAST_SHARE = 1e-3
"""Share of the time below which a state has no watts of its own."""


class Fit(Struct, frozen=True):
    """Watts by state with their standard errors; states that share one factor have both from it."""

    watts: dict[str, float]
    error_w: dict[str, float]
    blocks: int
    bounds_w: dict[str, tuple[float, float]] = {}
    """Of states that share a factor: the least and the most that leave the others between nothing and full load."""

    def interval(self, state: str) -> tuple[float, float]:
        """95 %: by the standard error around the watts, or around both bounds."""
        low, high = self.bounds_w.get(state, (self.watts[state], self.watts[state]))
        return max(low - Z * self.error_w[state], 0.0), high + Z * self.error_w[state]


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
    """The watts of the states, else of load and of both others by their ratios; None where states do not vary enough, or where
    they do and the ratios are not theirs.
    """
    time, joules, rank = _blocks(drawn)
    share = time.sum(axis=0) / max(float(time.sum()), 1e-300)
    there = [i for i in range(len(STATES)) if share[i] >= LEAST_SHARE]
    alone, together = [[i] for i in there], [[0], [i for i in there if i > 0]]
    found = _fit(time, joules, rank, alone, ratios) if alone else None
    if found is not None or not all(together) or len(there) < len(STATES) or _apart(time, joules, ratios):
        return found
    found = _fit(time, joules, rank, together, ratios)
    return None if found is None else replace(found, bounds_w=_bounds(found.watts, time.sum(axis=0)))


def _bounds(watts: dict[str, float], time: Floats) -> dict[str, tuple[float, float]]:
    """What stall and idle may draw, if only the sum of both is known, and neither more than load does."""
    whole = sum(watts[state] * float(time[STATES.index(state)]) for state in STATES[1:])
    out, most = {}, watts["load"]
    for state, other in (("stall", "idle"), ("idle", "stall")):
        mine, rest = float(time[STATES.index(state)]), float(time[STATES.index(other)])
        out[state] = max((whole - rest * most) / mine, 0.0), max(min(whole / mine, most), watts[state])
    return out


def wider(fit: Fit, others: Sequence[Fit | None]) -> Fit:
    """A fit with errors that also hold how far others, which are as good, are from it."""
    off = {
        state: max((abs(one.watts[state] - value) for one in others if one is not None), default=0.0)
        for state, value in fit.watts.items()
    }
    return replace(fit, error_w={state: float(np.hypot(error, off[state])) for state, error in fit.error_w.items()})


def _apart(time: Floats, joules: Floats, ratios: dict[str, float]) -> bool:
    """Whether stall and idle plainly do not have the ratio that one factor for both would give them."""
    free = len(joules) - len(STATES)
    both = np.stack([time[:, 0], time[:, 1:] @ np.array([ratios[state] for state in STATES[1:]])], axis=1)
    left, more = (float(((joules - some @ _non_negative(some, joules)) ** 2).sum()) for some in (time, both))
    return free > 0 and more - left > WORSE * left / free


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
    rare = np.array([time[:, list(group)].sum() for group in groups]) < RARE * time.sum()
    unsure = np.where(rare, factor <= RARE_SURE * error, (error > ERROR * factor.max()) | (factor <= SURE * error))
    if unsure.any() or (factor <= 0).any():
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
