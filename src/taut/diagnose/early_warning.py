"""Early warning: a series that recovers ever more slowly from its own disturbances, before anything is slower.

A system that nears a turning point loses its restoring force: the residual of its series varies more, and resembles its own
past more (critical slowing down). Here the series are the job's step work (the median over ranks) and every rank's (less
what the others did more in the same step), up to whatever change is already known of them. The line through a value and
those shortly before it is taken out, so that no value leaks into earlier ones, and neither trends nor bends are memory.

Null hypothesis: the residual is AR(1) with constant memory and its own innovations, whatever their tails: surrogates drawn
from the fit go the same way. Two statistics against time: the slope of the memory (interaction of the last residual with
time, in standard errors; it decides at 1 %, corrected for all series, against innovations that may grow) and the slope of
log |residual| (must rise, too: 5 %, against innovations that do not). So neither constant redness warns, nor a variance
that rises alone. Rolling windows with Kendall's tau, as the literature has it, are reported beside; as a test they find
less (docs/diagnosis.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats
from taut.core.ids import weighed

if TYPE_CHECKING:
    from taut.diagnose.finding import Evidence

FALSE_ALARMS = 0.01
"""Chance that a run of constant memory is warned of, all its series together."""
RISES = 0.05
"""The same for the variance of the series that is named."""
LEAST_STEPS = 60
"""Steps below which a memory that changes cannot be told from chance."""
PAST, BURN = 40, 10
"""Steps that a line is fitted to, and those before which there are too few."""
DRAWS = 399
"""Surrogates of a series; normal tails beyond them."""
CLIP, FEW = 4.0, 5
"""Spreads from the last few values beyond which a single one says no more: a hiccup is no slowing down."""
REMOVED = 2.0
"""Level and slope are taken out before the memory is estimated, which makes a series look less red."""
SCREEN = 2.0
"""Standard errors of the memory's slope from which a series is worth its surrogates."""
REDDEST = 0.98
"""Memory of a surrogate at most: beyond it a series wanders off."""
WINDOW = 0.5
"""Share of the steps in a rolling window."""
POINTS = 40
"""Windows that Kendall's tau is taken over."""


class EarlyWarning(Struct, frozen=True):
    """One series that slows down in windows 0 … last."""

    rank: int
    """Index of the rank; -1 for the job."""
    last: int
    chance: float
    memory: tuple[float, float]
    """Lag-1 autocorrelation in the first and the second half."""
    variance: float
    """Variance of the second half over that of the first."""
    tau: tuple[float, float]
    """Kendall's tau of autocorrelation and variance in rolling windows against time."""

    @property
    def text(self) -> str:
        """What was seen, as a part of a sentence."""
        before, after = self.memory
        return (
            f"from one step to the next {after:.2f} of a deviation remains ({before:.2f} in the first half), and it varies "
            f"{self.variance:.1f} times as much"
        )


def early_warnings(e: Evidence) -> list[EarlyWarning] | None:
    """Series that slow down, the clearest first; None where no series is long enough."""
    series = list(_series(e))
    found = [one for rank, y in series if (one := slowing(y, rank, len(series))) is not None]
    return sorted(found, key=lambda one: one.chance) if series else None


def _series(e: Evidence) -> Iterator[tuple[int, Floats]]:
    """The job's work in every step, and each rank's, up to what is known to have changed."""
    g, windows, ranks = e.graph, len(e.graph.steps), len(e.graph.ranks)
    if windows < LEAST_STEPS:
        return
    own = e.slowdowns.own
    busy = weighed(g.rank_step[own], g.work_ns[own], ranks * windows)
    busy = busy.reshape(ranks, windows)
    job = np.median(busy, axis=0)
    until = min([windows, *(place.first for place in e.slowdowns.on_all_ranks)])
    if until >= LEAST_STEPS:
        yield -1, job[:until]
    for rank in range(ranks) if ranks > 2 else ():
        until = min([windows, *(place.first for place in e.slowdowns.ranks if place.rank == rank)])
        if until >= LEAST_STEPS:
            yield rank, (busy[rank] - job)[:until]


def slowing(y: Floats, rank: int = -1, tests: int = 1) -> EarlyWarning | None:
    """Whether one series loses its restoring force."""
    y = np.asarray(y, dtype=np.float64)
    rest = residuals(y[None])
    memory, spread = _slopes(rest)
    if not memory[0] > SCREEN or not spread[0] > 0:
        return None
    growing, constant = (_slopes(residuals(surrogates(rest[0], len(y), grows))) for grows in (True, False))
    chances = _beyond(float(memory[0]), growing[0]), _beyond(float(spread[0]), constant[1])
    if tests * chances[0] >= FALSE_ALARMS or chances[1] >= RISES:
        return None
    first, second = np.array_split(rest[0], 2)
    ratio = float((second**2).mean() / max((first**2).mean(), 1e-12))
    return EarlyWarning(rank, len(y) - 1, tests * chances[0], (_lag_one(first), _lag_one(second)), ratio, taus(rest[0]))


def residuals(y: Floats) -> Floats:
    """Every value less the line through it and the PAST before it, in spreads of the series, as if no line had been fitted."""
    n, y = y.shape[-1], _without_hiccups(y)
    at = np.arange(n) - 0.5 * (n - 1)
    count, time, square, level, moment = (_recent(x) for x in (np.ones(n), at, at * at, y, at * y))
    # Least squares through the values in the window, from running sums.
    slope = (count * moment - time * level) / np.maximum(count * square - time**2, 1e-9)
    rest = y - (level - slope * time) / count - slope * at
    # The line goes through its own last value: the residual there is too small by that point's leverage.
    rest = (rest / np.sqrt(np.maximum(1 - (4 * count - 2) / (count * (count + 1)), 1e-3)))[..., BURN:]
    return np.asarray(rest / np.maximum(1.4826 * np.median(np.abs(rest), axis=-1, keepdims=True), 1e-12))


def _recent(x: Floats) -> Floats:
    """Sum over each value and those before it, PAST in all."""
    total = np.cumsum(x, axis=-1)
    return np.concatenate([total[..., :PAST], total[..., PAST:] - total[..., :-PAST]], axis=-1)


def _without_hiccups(y: Floats) -> Floats:
    """Values no farther from the median of the few before them than CLIP spreads from step to step."""
    spread = 1.4826 * np.median(np.abs(np.diff(y, axis=-1)), axis=-1, keepdims=True) / np.sqrt(2)
    before = np.median(np.lib.stride_tricks.sliding_window_view(y[..., :-1], FEW, axis=-1), axis=-1)
    return np.concatenate([y[..., :FEW], np.clip(y[..., FEW:], before - CLIP * spread, before + CLIP * spread)], axis=-1)


def _slopes(rest: Floats) -> tuple[Floats, Floats]:
    """Per series: slope of the memory over time, in standard errors; slope of log |residual|."""
    before, now = rest[:, :-1], rest[:, 1:]
    later = before * np.linspace(-0.5, 0.5, before.shape[1])
    power = np.maximum((before**2).sum(axis=1, keepdims=True), 1e-12)
    alone = later - before * (before * later).sum(axis=1, keepdims=True) / power  # what constant memory does not explain
    memory = (alone * now).sum(axis=1) / np.maximum((alone**2).sum(axis=1), 1e-12)
    left = now - memory[:, None] * later
    error = left - before * (before * left).sum(axis=1, keepdims=True) / power
    # White's standard error: a spread that changes with time is no memory that does.
    score = memory * (alone**2).sum(axis=1) / np.sqrt(np.maximum((alone**2 * error**2).sum(axis=1), 1e-12))
    return score, np.log(np.abs(rest) + 0.1) @ np.linspace(-0.5, 0.5, rest.shape[1])


def surrogates(rest: Floats, n: int, grows: bool = False) -> Floats:
    """AR(1) series of one memory, that of the residual without its bias, made of its own innovations.

    Their spread is the same in all steps, or grows as it does in the residual.
    """
    rng = np.random.default_rng(n)
    rho = _lag_one(rest)
    # Kendall's bias of a lag-1 autocorrelation, for each parameter that was taken out before.
    rho = float(np.clip(rho + (1 + 4 * rho) * REMOVED / len(rest), 0.0, REDDEST))
    innovations = rest[1:] - rho * rest[:-1]
    at = np.linspace(-0.5, 0.5, len(innovations))
    growth = float(at @ np.log(np.abs(innovations) + 0.1) / (at @ at)) if grows else 0.0
    innovations = innovations / np.exp(growth * at)
    warm = 2 * BURN
    drawn = rng.choice(innovations - innovations.mean(), (DRAWS, n + warm))
    drawn[:, warm:] *= np.exp(growth * np.linspace(-0.5, 0.5, n))
    drawn[:, :warm] *= np.exp(-0.5 * growth)
    # The recurrence of AR(1), all surrogates at once; the warm-up forgets the start at zero.
    for k in range(1, n + warm):
        drawn[:, k] += rho * drawn[:, k - 1]
    return drawn[:, warm:]


def _beyond(seen: float, null: Floats) -> float:
    """Chance of such a value among the surrogates: a normal tail fitted to them, as wide as it may well be."""
    return NormalDist().cdf(-(seen - float(null.mean())) / max(float(null.std()) * (1 + 1 / np.sqrt(2 * len(null))), 1e-12))


def _lag_one(rest: Floats) -> float:
    return float((rest[1:] * rest[:-1]).sum() / max(float((rest**2).sum()), 1e-12))


def taus(rest: Floats) -> tuple[float, float]:
    """Kendall's tau of autocorrelation and of variance in rolling windows against time."""
    width = int(WINDOW * len(rest))
    ends = np.unique(np.linspace(width, len(rest), POINTS).astype(np.int64))
    rolled = np.array([(_lag_one(rest[end - width : end]), (rest[end - width : end] ** 2).mean()) for end in ends])
    first, last = np.triu_indices(len(ends), 1)
    memory, variance = np.sign(rolled[last] - rolled[first]).mean(axis=0).tolist()
    return memory, variance
