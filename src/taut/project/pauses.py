"""Pauses: time that a step takes whatever its work is, because a rank stops now and then (hiccups) or regularly (periodic).

A pause hits one rank, or all ranks of a host, of a rack or of the job at once. Ranks of a group meet at every layer, so pauses
of several of them add; one that hits them all at once counts once. Ranks are numbered as fabrics number them: members of a
group first, then replicas, then stages.

Hiccups begin without memory (Poisson), their lengths are lognormal, the steps that they last geometric. One model serves
scenarios and runs: ``measured/fitted_noise.py`` fits these very keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, log1p, sqrt

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.project.training.scenario import Noise

# Ranks of a pause that hits the whole job.
ALL = 1 << 40


@dataclass(frozen=True)
class Law:
    """One kind of pause."""

    ranks: int
    """Ranks that one hits at once: a unit."""
    begins: float
    """How many begin in a step of a unit; regular ones come so often."""
    mean_ns: float
    spread: float = 0.0
    """Standard deviation of the length over its mean."""
    steps: float = 1.0
    """Steps that one lasts on average; each of them is longer."""
    regular: bool = False

    def lengths_ns(self, count: int, rng: np.random.Generator) -> Floats:
        """Lengths of so many."""
        wide = log1p(self.spread**2)
        return self.mean_ns * np.exp(sqrt(wide) * rng.standard_normal(count) - wide / 2)

    @property
    def surely(self) -> int:
        """Pauses that every unit has in every step."""
        return int(self.begins) if self.regular else 0

    @property
    def chance(self) -> float:
        """How many more a unit is in on average in a step; of regular ones the chance of one more."""
        return self.begins - self.surely if self.regular else self.begins * self.steps


def laws(noise: Noise, host: int, rack: int, step_ns: float) -> tuple[Law, ...]:
    """The kinds of pauses of a scenario's noise; ``host`` and ``rack`` are ranks, ``step_ns`` is the step without noise."""
    at_once = {"rank": 1, "host": host, "rack": rack, "job": ALL}
    rate, ns, out = noise.hiccups_per_1000_steps / 1000, noise.hiccup_ms * 1e6, []
    if rate > 0 and ns > 0:
        share = 0.0 if noise.hiccups_together == "rank" else noise.hiccups_together_share
        for ranks, part in ((1, 1 - share), (at_once[noise.hiccups_together], share)):
            if part > 0:
                out.append(Law(ranks, rate * part, ns, noise.hiccup_spread, noise.hiccup_steps))
    if noise.periodic_every_s > 0 and noise.periodic_ms > 0:
        often = step_ns / (noise.periodic_every_s * 1e9)
        out.append(Law(at_once[noise.periodic_together], often, noise.periodic_ms * 1e6, regular=True))
    return tuple(out)


@dataclass(frozen=True)
class Reach:
    """A kind of pause in a job: how many units there are, and what one of them hits."""

    law: Law
    units: int
    """Units that may pause: of all ranks, or (``replicas`` is 1) of one replica."""
    replicas: int
    """Replicas that a pause hits …"""
    stages: int
    """… and stages of each."""

    @property
    def own(self) -> bool:
        """Whether a pause hits one replica only."""
        return self.replicas == 1


def reach(law: Law, shape: tuple[int, int, int]) -> Reach:
    """How a kind of pause meets a job of replicas × stages × members."""
    dp, pp, members = shape
    if law.ranks <= members:
        return Reach(law, pp * ceil(members / law.ranks), 1, 1)
    groups = min(ceil(law.ranks / members), dp * pp)
    return Reach(law, ceil(dp * pp / groups), min(groups, dp), ceil(groups / dp))


@dataclass
class Pauses:
    """Pauses of a job, step after step: steps are asked for in order, because hiccups may last."""

    laws: tuple[Law, ...]
    shape: tuple[int, int, int]
    """Replicas, stages, members of a group."""
    seed: int
    going: list[tuple[Ints, Floats]] = field(init=False)
    """Per law: units in a hiccup, and what it adds."""
    phase: list[Floats] = field(init=False)
    """Per law: when in their period units pause."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng((self.seed, 5))
        self.going, self.phase = [], []
        for law in self.laws:
            units = self._units(law)
            # What began before the first step and lasts into it: without memory, it lasts on as if it had just begun.
            self.going.append(_begun(law, units, 0.0 if law.regular else law.begins * (law.steps - 1), rng))
            self.phase.append(rng.random(units) if law.regular else np.zeros(0))

    def _units(self, law: Law) -> int:
        return ceil(np.prod(self.shape) / law.ranks)

    def __call__(self, step: int) -> tuple[Floats, Floats]:
        """(what pauses add, where in the step they lie: 0 to 1), replicas × stages."""
        rng = np.random.default_rng((self.seed, 6, step))
        dp, pp, members = self.shape
        added, where = np.zeros(pp * dp), rng.random(pp * dp)
        for k, law in enumerate(self.laws):
            if law.regular:
                self._regular(law, self.phase[k], step, added, where)
                continue
            new = _begun(law, self._units(law), law.begins, rng)
            unit, ns = (np.concatenate(both) for both in zip(self.going[k], new, strict=True))
            at, first = rng.random(len(unit)), unit * law.ranks // members
            last = -(-np.minimum((unit + 1) * law.ranks, dp * pp * members) // members)
            for j in range(int((last - first).max(initial=0))):
                here = first + j < last
                np.add.at(added, first[here] + j, ns[here])
                where[first[here] + j] = at[here]
            lasts = rng.random(len(unit)) < 1 - 1 / law.steps
            self.going[k] = unit[lasts], ns[lasts]
        return np.ascontiguousarray(added.reshape(pp, dp).T), np.ascontiguousarray(where.reshape(pp, dp).T)

    def _regular(self, law: Law, phase: Floats, step: int, added: Floats, where: Floats) -> None:
        dp, pp, members = self.shape
        before = np.floor(step * law.begins + phase)
        count = np.floor((step + 1) * law.begins + phase) - before
        when = np.clip((before + 1 - phase - step * law.begins) / law.begins, 0.0, 1 - 1e-9)
        rank = np.arange(dp * pp * members)
        unit = np.minimum(rank // law.ranks, len(phase) - 1)
        # Of ranks of a group that pause at once the first stands for all.
        first = (rank % law.ranks == 0) | (rank % members == 0)
        here = np.where(first, count[unit], 0.0).reshape(-1, members)
        added += law.mean_ns * here.sum(axis=1)
        paused = here.any(axis=1)
        where[paused] = when[unit].reshape(-1, members)[paused, here[paused].argmax(axis=1)]


def _begun(law: Law, units: int, each: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """(units, lengths) of hiccups, so many in each unit on average."""
    count = int(rng.poisson(each * units))
    return rng.integers(0, units, count), law.lengths_ns(count, rng)


def usual(
    reaches: tuple[Reach, ...], shape: tuple[int, int, int], steps: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """(what is added, where), steps × replicas × stages, of what every replica has: regular pauses that are no rare events."""
    replicas, pp, _ = shape
    added, where = np.zeros((steps, replicas, pp)), rng.random((steps, replicas, pp))
    for one in reaches:
        law, each = one.law, -(-one.units // pp) if one.own else 1
        added += law.mean_ns * each * law.surely
        if frequent(one):
            added += law.mean_ns * rng.binomial(each, law.chance, added.shape)
    return added, where


def frequent(one: Reach) -> bool:
    """Whether a regular pause hits a replica in most steps: then it is no rare event."""
    return one.own and one.law.regular and one.units * one.law.chance >= 1


def rare(reaches: tuple[Reach, ...], steps: int) -> list[tuple[Reach, float]]:
    """The others that hit one replica, with how many of their events a replica has in so many steps on average."""
    some = [one for one in reaches if one.own and not frequent(one) and one.law.chance > 0]
    return [(one, one.units * events(one.law, steps)) for one in some]


def events(law: Law, steps: int) -> float:
    """Pauses that a unit has in so many steps, those that began before and last into them included."""
    return law.chance * steps if law.regular else law.begins * (steps - 1 + law.steps)


def forced(
    some: list[tuple[Reach, float]], shape: tuple[int, int, int], steps: int, rng: np.random.Generator, *, once: bool = False
) -> tuple[Floats, Floats]:
    """(what is added, where), steps × replicas × stages: replicas that have one rare event at least, or just one.

    Rare events are drawn where they happen, so that a sample of few replicas misses none; how often they do is put in later.
    """
    replicas, pp, _ = shape
    added, where = np.zeros((steps, replicas, pp)), rng.random((steps, replicas, pp))
    means = np.array([mean for _, mean in some])
    total = float(means.sum())
    # Zero-truncated Poisson: the first event comes where an exponential time ends inside the window, the others after it.
    first = -np.log1p(rng.random(replicas) * np.expm1(-total))
    many = np.ones(replicas, np.int64) if once else 1 + rng.poisson(np.maximum(total - first, 0.0))
    who = np.repeat(np.arange(replicas), many)
    which = rng.choice(len(some), len(who), p=means / total)
    for k, (one, _) in enumerate(some):
        mine = who[which == k]
        stage = rng.integers(0, max(pp - one.stages + 1, 1), len(mine))
        begin, end = _within(one.law, len(mine), steps, rng)
        ns, at = one.law.lengths_ns(len(mine), rng), rng.random(len(mine))
        for step in range(steps):
            here = (begin <= step) & (step < end)
            for side in range(one.stages):
                np.add.at(added[step], (mine[here], stage[here] + side), ns[here])
                where[step, mine[here], stage[here] + side] = at[here]
    return added, where


def _within(law: Law, count: int, steps: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(first step, step after the last) of events that touch a window of so many steps: longer ones touch it more often."""
    if law.regular or law.steps <= 1 or steps == 1:
        begin = rng.integers(0, steps, count)
        return begin, begin + 1
    length = rng.geometric(1 / law.steps, 4 * count + 1)
    weight = length + steps - 1.0
    length = length[rng.choice(len(length), count, p=weight / weight.sum())]
    begin = rng.integers(1 - length, steps)
    return begin, begin + length
