"""Which effects a job has: forward choice of the best place and shape, all sizes refitted, then each is asked for again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, structs
from scipy.special import gammaln

from taut.core.array_types import Floats
from taut.diagnose.effects import shapes
from taut.diagnose.effects.noise import MIN_SCALE, core, stalls
from taut.diagnose.effects.scores import HABIT, HABIT_FREEDOM, Candidate, best_of_each_kind, candidates
from taut.diagnose.effects.series import Place, Series
from taut.diagnose.effects.shapes import Shape

MAX_EFFECTS = 24
"""Of a job: with more, no single place is at fault, and what is left is variation."""
ODDS = 3.0
"""Logarithm of odds (20) within which another place or shape is kept as an alternative."""
MEMBER_SHARE, TYPICAL_SHARE = 0.3, 0.5
"""Of the effect of a set that each, and the median, of its ranks has: else it is one of them and not the set."""

NUMBERS = {"always": 1, "since": 3, "ramp": 3, "periodic": 4, "span": 4, "single": 3}
"""Numbers that are fitted with each shape: level, habit, onset, end, period."""

Limits = Callable[[Series, Floats], tuple[float, float]]
"""Scores that jobs without a fault exceed in 1 %, and in 5 %."""


class Effect(Struct, frozen=True):
    """A place that is slower than its reference, when, and by how much."""

    place: Place
    shape: Shape
    score: float
    is_certain: bool
    """Whether fewer than 1 % of jobs without a fault have such a score anywhere."""
    size: float
    """Of the logarithm of own time, at full weight."""
    cut_ns: Floats
    """Own time by rank and step that it costs."""
    alternatives: tuple[Candidate, ...] = ()
    """Other places and shapes that explained nearly as much when it was chosen."""

    @property
    def is_by_step(self) -> bool:
        """Whether its steps differ from each other, and are taken as they are."""
        return self.shape.kind in ("periodic", "intermittent", "single")


def search(series: Series, sets: list[Place], limits: Limits) -> list[Effect]:
    """Effects that are surer than noise allows, each sized with all others taken out."""
    own, chosen, remaining = series.own_ns, list[Effect](), series.own_ns
    tried: set[object] = set()
    certain, likely = limits(series, own)
    while len(chosen) < MAX_EFFECTS:
        found = [one for one in candidates(series, remaining, sets) if (one.place.name, one.shape.key) not in tried]
        found = [one for one in found if len(one.place.rows) == 1 or _is_whole_set(series, remaining, one)]
        best = max(found, key=lambda one: one.score, default=None)
        if best is None or best.score < likely:
            break
        tried.add((best.place.name, best.shape.key))
        best = _named(series, remaining, best)
        others = sorted((one for one in found if one.score > best.score - ODDS and one.place != best.place), key=_by_score)
        effect = Effect(best.place, best.shape, best.score, best.score > certain, 0.0, np.zeros_like(own), tuple(others[:3]))
        chosen, remaining = refitted(series, [*chosen, effect])
    return _confirmed(series, chosen, sets, limits)


def _by_score(one: Candidate) -> float:
    return -one.score


def _is_whole_set(series: Series, own_ns: Floats, one: Candidate) -> bool:
    """Whether every rank of a set changed against its own past, by its share at least."""
    inside = one.shape.weight > 0.5
    if inside.all() or not inside.any():
        return False
    logs = series.logs(own_ns[list(one.place.rows)])
    excess = series.excess_of(own_ns, one.place.rows)
    size = float(np.median(excess[inside]) - np.median(excess[~inside]))
    rise = np.nanmedian(logs[:, inside], axis=1) - np.nanmedian(logs[:, ~inside], axis=1)
    return size > 0 and bool(rise.min() > MEMBER_SHARE * size) and bool(np.median(rise) > TYPICAL_SHARE * size)


def _named(series: Series, own_ns: Floats, one: Candidate) -> Candidate:
    """The candidate with the shape that describes its series best: least absolute deviation, less for fewer numbers (BIC)."""
    excess = series.excess_of(own_ns, one.place.rows)
    tried = [near for shape in [one.shape, *best_of_each_kind(excess)] for near in shapes.neighbours(shape, len(excess))]
    return structs.replace(one, shape=min(tried, key=lambda shape: _description(excess, shape)))


def _description(excess: Floats, shape: Shape) -> float:
    """Length of the description of a series by a shape: Laplace's likelihood, log(n) / 2 for each fitted number, and the
    prior of the habit that it leaves."""
    size, habit = level(excess, shape)
    away, inside = excess - habit, shape.weight > 0
    steps, count = len(excess), int(inside.sum())
    unlikely = (HABIT_FREEDOM + 1) / 2 * float(np.log1p((habit / HABIT) ** 2 / HABIT_FREEDOM))  # Student's
    if shape.kind == "intermittent":  # its steps are taken as they are: a number each, and which they are
        away, numbers = np.where(inside, 0.0, away), 1 + count
        unlikely += float(gammaln(steps + 1) - gammaln(count + 1) - gammaln(steps - count + 1))
    else:
        away, numbers = away - max(size, 0.0) * shape.weight, NUMBERS[shape.kind]
    spread = float(np.log(max(float(np.abs(away).mean()), MIN_SCALE)))
    return steps * spread + numbers * float(np.log(steps)) / 2 + unlikely


def refitted(series: Series, effects: Sequence[Effect]) -> tuple[list[Effect], Floats]:
    """All effects sized again, each with the others taken out; and the own times that are left."""
    own, fitted = series.own_ns, list(effects)
    total = total_cut(fitted, own)
    for k in [*range(len(fitted)), *range(len(fitted))]:
        without = total - fitted[k].cut_ns
        fitted[k] = sized(series, fitted[k], own - without)
        total = without + fitted[k].cut_ns
    fitted = [one for one in fitted if one.cut_ns.any()]
    return fitted, np.maximum(own - total_cut(fitted, own), 0)


def total_cut(effects: Sequence[Effect], own_ns: Floats) -> Floats:
    """Own time by rank and step that effects cost together."""
    return sum((one.cut_ns for one in effects), np.zeros_like(own_ns))


def sized(series: Series, effect: Effect, own_ns: Floats) -> Effect:
    """The effect with its size and its cost, given own times without all others."""
    rows, weight = list(effect.place.rows), effect.shape.weight
    excess = series.excess_of(own_ns, effect.place.rows)
    size, habit = level(excess, effect.shape)
    times, cut = np.maximum(own_ns[rows], 0) + series.floor_ns, np.zeros_like(own_ns)
    if effect.is_by_step:
        cut[rows] = np.where(weight > 0, times * -np.expm1(-np.maximum(excess - habit, 0)), 0)
    else:
        cut[rows] = times * -np.expm1(-max(size, 0.0) * weight)
    return structs.replace(effect, size=size, cut_ns=np.minimum(np.nan_to_num(cut), np.nan_to_num(np.maximum(own_ns, 0))))


def level(excess: Floats, shape: Shape) -> tuple[float, float]:
    """Size of an effect at full weight, and the habit without it."""
    inside = shape.weight > 0
    habit = 0.0 if inside.all() or not inside.any() else float(np.median(excess[~inside]))
    return float(np.median((excess[inside] - habit) / shape.weight[inside])) if inside.any() else 0.0, habit


def _confirmed(series: Series, effects: list[Effect], sets: list[Place], limits: Limits) -> list[Effect]:
    """Effects that the others do not explain: each is scored again without them; certain is also what is certain then."""
    for effect in sorted(effects, key=lambda one: one.score):
        others = [one for one in effects if one is not effect]
        if not others:
            break
        fitted, remaining = refitted(series, others)
        certain, likely = limits(series, remaining)
        rows = set(effect.place.rows)
        again = max((one.score for one in candidates(series, remaining, sets) if rows & set(one.place.rows)), default=0.0)
        if again < likely:
            effects = fitted
        else:
            kept = structs.replace(effect, is_certain=effect.is_certain or again > certain)
            effects = [kept if one is effect else one for one in effects]
    return effects


def noise_of(series: Series, own_ns: Floats) -> tuple[float, float]:
    """(redness, rate of stalls) of own times: what decides how large scores get without a fault."""
    excess = series.excess(own_ns)
    noise = core(excess)
    return noise.redness, float(np.median(stalls(excess, noise.scale).mean(axis=1)))
