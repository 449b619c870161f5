"""One score for every place and shape: minus the logarithm of the chance that noise looks like it, among all that was tried."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, structs
from scipy.stats import betabinom
from scipy.stats import t as student

from taut.core.array_types import Floats, Ints
from taut.diagnose.effects import shapes
from taut.diagnose.effects.noise import CLIP, NORMAL_MAD, Core, core, stalls, whitened
from taut.diagnose.effects.series import Place, Series
from taut.diagnose.effects.shapes import Scan, Shape

HABIT, HABIT_FREEDOM = 0.02, 3.0
"""Prior of how far healthy ranks of a role differ, and its weight: devices of a kind differ by 1–2 % (theory.md, *Always*)."""
ALIKE = 1.5
"""Difference of scores within which the simpler shape is named: odds of 4.5, no more than an anecdote (Jeffreys)."""
MAX_SCORE = 690.0
"""Beyond, chances are smaller than floating point holds."""
BLOCK = 1024
"""Series that are scored at a time: their products with all shapes stay in a few tens of MB."""
FEW_RANKS = 64
"""Ranks of a role up to which the spread of its levels is taken without the rank itself: one of 64 moves it by 2 %."""
LASTING = 0.4
"""Of its level that an effect that is always there has in both halves of the run at least."""


class Candidate(Struct, frozen=True):
    """A place and a shape, and how sure it is that they are more than noise."""

    place: Place
    shape: Shape
    score: float


def candidates(series: Series, own_ns: Floats, sets: list[Place]) -> list[Candidate]:
    """The best shape of every kind of evidence for every place that may be at fault."""
    ranks, steps = own_ns.shape
    if ranks < 2 or steps < 2:
        return []
    excess = series.excess(own_ns)
    single = [Place("rank", str(row), (row,)) for row in range(ranks)]
    noise = core(excess)
    found = [*_always(series, excess, noise, single)]
    if steps >= 4:
        found += _intermittent(series, excess, noise, single)
        found += _levels(excess, single)
        for size in sorted({len(one.rows) for one in sets}):
            kin = [one for one in sets if len(one.rows) == size]
            found += _levels(np.vstack([series.excess_of(own_ns, one.rows) for one in kin]), kin)
    return found


def _always(series: Series, excess: Floats, noise: Core, places: list[Place]) -> Iterator[Candidate]:
    """Ranks whose level is above that of their peers, in both halves of the run."""
    steps = excess.shape[1]
    half, rows = max(1, steps // 2), np.flatnonzero(series.has_peers)
    if not len(rows):
        return
    error = 1.25 * noise.scale * np.sqrt((1 + noise.redness) / (1 - noise.redness) / steps)  # of a median
    level = np.median(excess, axis=1)
    lower = np.minimum(np.median(excess[:, :half], axis=1), np.median(excess[:, half:], axis=1))
    kin, spread = _spread_of_kin(level, series.role)
    freedom = HABIT_FREEDOM + kin - 1
    variance = (HABIT_FREEDOM * HABIT**2 + (kin - 1) * spread**2) / freedom
    distance = level / np.sqrt(variance * (1 + 1.5 / np.maximum(kin, 1)) + error**2)
    score = _capped(-student.logsf(distance, freedom)) - np.log(len(rows))
    for row in rows[(level[rows] > 0) & (lower[rows] > LASTING * level[rows])]:
        yield Candidate(places[row], shapes.always(steps), float(score[row]))


def _spread_of_kin(level: Floats, role: Ints) -> tuple[Ints, Floats]:
    """Per rank: how many others have its role, and how far their levels spread."""
    kin, spread = np.zeros(len(level), np.int64), np.zeros(len(level))
    for one in np.unique(role):
        rows = np.flatnonzero(role == one)
        kin[rows] = len(rows) - 1
        if len(rows) > 3:
            of = level[rows]  # of many ranks, one more or less does not move the spread
            others = np.array([np.delete(of, k) for k in range(len(of))]) if len(of) <= FEW_RANKS else of[None]
            away = np.abs(others - np.median(others, axis=1)[:, None])
            spread[rows] = NORMAL_MAD * np.median(away, axis=1)
    return kin, spread


def _intermittent(series: Series, excess: Floats, noise: Core, places: list[Place]) -> Iterator[Candidate]:
    """Ranks that stall more often than their peers; rates of peers differ as those of healthy ranks may."""
    stalled = stalls(excess, noise.scale)
    count, steps = stalled.sum(axis=1), excess.shape[1]
    rows = np.flatnonzero(count > 1)
    if not len(rows):
        return
    total, kin = np.bincount(series.role, count)[series.role] - count, np.bincount(series.role)[series.role] - 1
    chance = betabinom.logsf(count[rows] - 1, steps, total[rows] + 0.5, np.maximum(steps * kin[rows] - total[rows], 0) + 1)
    score = _capped(-chance) - np.log(len(excess))
    for k, row in enumerate(rows):
        yield Candidate(places[row], shapes.intermittent(stalled[row]), float(score[k]))


def _levels(excess: Floats, places: list[Place]) -> Iterator[Candidate]:
    """The best level shift, span, ramp or period of each place, by the simplest shape that explains as much."""
    scan = shapes.scan(excess.shape[1])
    if not scan.shapes:
        return
    score, best = level_scores(excess, scan)
    for row in np.flatnonzero(score > 0):
        yield Candidate(places[row], scan.shapes[best[row]], float(score[row]))


def level_scores(excess: Floats, scan: Scan) -> tuple[Floats, Ints]:
    """Of each series the score of its best shape, and that shape: generalised least squares of clipped innovations."""
    noise = core(excess)
    for turn in range(2):
        parts = [_block_scores(excess[k : k + BLOCK], scan, _part(noise, k), len(excess)) for k in range(0, len(excess), BLOCK)]
        score, best = (np.concatenate([part[i] for part in parts]) for i in range(2))
        if not turn:
            noise = _without(excess, scan.weights[best], noise)
    return score, best


def best_of_each_kind(excess: Floats) -> list[Shape]:
    """Of one series the best shape of every kind that is scanned."""
    scan = shapes.scan(len(excess))
    if not scan.shapes:
        return []
    z = _block_z(excess[None], scan, core(excess[None]), 1)[0]
    ends = np.append(scan.begins[1:], len(scan.shapes))
    return [scan.shapes[begin + int(z[begin:end].argmax())] for begin, end in zip(scan.begins, ends, strict=True)]


def _part(noise: Core, first: int) -> Core:
    return Core(noise.scale[first : first + BLOCK], noise.redness)


def _without(excess: Floats, weights: Floats, before: Core) -> Core:
    """Noise of the series without their best shapes."""
    centred = weights - weights.mean(axis=1, keepdims=True)
    size = (excess * centred).sum(axis=1) / (centred**2).sum(axis=1)
    after = core(excess - size[:, None] * centred)
    return after if len(excess) < 4 else structs.replace(after, redness=(before.redness + after.redness) / 2)


def _block_scores(excess: Floats, scan: Scan, noise: Core, tried: int) -> tuple[Floats, Ints]:
    z = _block_z(excess, scan, noise, tried)
    by_kind = _capped(-student.logsf(np.maximum.reduceat(z, scan.begins, axis=1), max(excess.shape[1] - 2, 3)))
    simplest = (by_kind > by_kind.max(axis=1, keepdims=True) - ALIKE).argmax(axis=1)
    ends = np.append(scan.begins[1:], len(scan.shapes))
    best = np.array([scan.begins[k] + int(z[row, scan.begins[k] : ends[k]].argmax()) for row, k in enumerate(simplest)])
    return by_kind[np.arange(len(z)), simplest] - np.log(len(scan.shapes) * tried), best


def _block_z(excess: Floats, scan: Scan, noise: Core, tried: int) -> Floats:
    """Standardised size of every shape (column) in every series (row)."""
    steps = excess.shape[1]
    clip = CLIP if tried > 2 else 4 * CLIP  # two series are each other's reference: what is clipped of one is of both
    ready = (excess - np.median(excess, axis=1)[:, None]) / noise.scale[:, None]
    left = np.clip(whitened(ready, noise.redness), -clip, clip)
    right = whitened(scan.weights - scan.weights.mean(axis=1, keepdims=True), noise.redness)
    left, right = left - left.mean(axis=1, keepdims=True), right - right.mean(axis=1, keepdims=True)
    norm = (right**2).sum(axis=1)
    product = left @ right.T
    rest = ((left**2).sum(axis=1)[:, None] - product**2 / norm) / max(steps - 2, 1)
    found: Floats = product / np.sqrt(norm) / np.sqrt(np.maximum(rest, max(float(np.median(rest.min(axis=1))), 0.2)))
    return found


def _capped(score: Floats) -> Floats:
    return np.minimum(score, MAX_SCORE)
