"""Indices of a modelled training job, as docs/indices.md defines them: steps that were played tell, and lives of the job.

A rank of the grid is a tensor-parallel group: one stage of one replica. Nothing is measured here, so nothing hides in
noise: every excess counts for the delay, and only what one group does to the others is held against what groups do anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from taut.core.interval import DRAWS, LEVEL, Z, drawn, estimate, over, share
from taut.diagnose.job_indices import NORMAL_WIDTH
from taut.project.noise import Sway
from taut.project.training.failures import Lives
from taut.project.training.grid import Gate, Grid, Played, along, steps
from taut.project.training.job_history import DISCARDED, HOLD, PRODUCTIVE, RECOVER, RESTORE, SAVE, SLOW
from taut.project.workload import Estimate
from taut.replay.blame import FALSE_ALARMS

ROOM, FEWEST, MOST = 1 << 20, 8, 4096
"""Steps × groups whose making is kept, and the steps that are kept at least and at most: the first ones."""
HANDS, HAND_STEPS = 8, 4
"""Other draws of the devices, and the steps that are played on each of them: fewer where they would take longer than a
third of the job's own, more where replicas meet more seldom."""
MAD = 1.4826
"""A normal distribution's standard deviation in median absolute deviations."""


@dataclass(frozen=True)
class Trail:
    """The first steps of a forecast and what they were made of."""

    grid: Grid
    gate: Gate
    every: int
    """Steps from one meeting to the next."""
    sync_ns: float
    """Of a meeting; not of a step."""
    after_ns: float
    seed: int
    played: list[Played]

    @cached_property
    def hands(self) -> list[tuple[Trail, Any]]:
        """A few steps of the same job on other devices, with how long each takes: how much the draw of devices decides.

        None where there are so many devices that the slowest of them is as slow in every draw.
        """
        sway, cells = self.grid.slow, self.grid.replicas * self.grid.program.stages
        if not isinstance(sway, Sway) or not (sway.noise.ranks_spread or sway.noise.slow_share) or cells > ROOM // FEWEST:
            return []
        few = min(max(len(self.played) // (3 * HANDS), 1), HAND_STEPS)
        count, out = max(few, min(self.every, len(self.played))), []
        for hand in range(1, HANDS + 1):
            trail = replace(self, grid=replace(self.grid, slow=replace(sway, hand=hand)), played=[])
            out.append((trail, trail.steps(count)))
        return out

    def steps(self, count: int, cores: int = 1) -> Any:
        """Play so many steps, and keep the first."""
        return steps(
            self.grid, count, self.seed, gate=self.gate, every=self.every, sync_ns=self.sync_ns, after_ns=self.after_ns,
            cores=cores, seen=self.add,
        )  # fmt: skip

    @property
    def full(self) -> bool:
        """Whether there is no room for one more."""
        cells = self.grid.replicas * self.grid.program.stages
        return len(self.played) >= min(MOST, max(FEWEST, ROOM // cells))

    def add(self, made: Played) -> None:
        """Keep a step, while there is room."""
        if not self.full:
            self.played.append(made)

    @cached_property
    def work_ns(self) -> Any:
        """Drawn work, steps × replicas × stages."""
        return np.stack([made.work for made in self.played])

    @cached_property
    def still_ns(self) -> Any:
        """The same of a stage without noise."""
        p = self.grid.program
        return np.bincount(p.stage, self.grid.drawn_ns.ravel()[p.cell], p.stages)

    @cached_property
    def reference_ns(self) -> Any:
        """Usual work of a group: the median of its peers' medians over steps, its own left out; replicas × stages.

        A stage without peers is compared with itself.
        """
        usual = np.median(self.work_ns, axis=0)
        return _leave_one_out(usual) if len(usual) > 1 else usual

    @cached_property
    def spread_ns(self) -> Any:
        """How far groups of a stage stray from it, whichever they are and whenever; per stage, at least 1 ns."""
        return np.maximum(MAD * np.median(np.abs(self.work_ns - self.reference_ns), axis=(0, 1)), 1.0)

    @cached_property
    def usual_ns(self) -> float:
        """A step in which every group takes its reference."""
        level = self.reference_ns / np.maximum(self.still_ns, 1e-9)
        quiet = Grid(
            self.grid.program, self.grid.fixed_ns, self.grid.drawn_ns, np.ones_like(self.grid.tables), self.grid.hop_ns,
            self.grid.replicas,
        )  # fmt: skip
        ends = quiet.play(np.zeros(self.grid.replicas), 0, 0, level).ends
        return float(ends.max()) + self.sync_ns / self.every + self.after_ns


def _leave_one_out(values: Any) -> Any:
    """Per column, the median of all the other rows."""
    n = len(values)
    order = np.sort(values, axis=0)
    place = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")

    def other(k: int) -> Any:
        """The k-th of the others: one further where the own value comes first."""
        return np.where(place > k, order[k], order[k + 1])

    return (other((n - 2) // 2) + other((n - 1) // 2)) / 2


def effective_throughput_ratio(trail: Trail, step_ns: Any, still_ns: float, lives: Lives | None, useful: float) -> Estimate:
    """Step without noise ÷ mean step × share of the time that failures leave × share of the work that counts."""
    value = useful * still_ns / float(step_ns.mean())
    few = step_ns[:MOST]
    again = useful * still_ns / few[drawn(len(few))].mean(axis=1)
    if lives is not None:
        kept = lives.node_us[:, [PRODUCTIVE, SLOW]].sum(axis=1) / (lives.nodes * lives.count("wall_us"))
        value, again = value * float(kept.mean()), again * kept[_lives_drawn(lives)].mean(axis=1)
    return _widened(_within(value, again), trail, lambda _, took: took)


def energy_per_useful_step(
    trail: Trail, step_ns: Any, still_ns: float, watts: tuple[float, float], lives: Lives | None, useful: float
) -> Estimate:
    """Joules per kept step ÷ the same without noise and failures; ``watts`` under load and stalled."""
    load, stall = watts
    few, groups = step_ns[: len(trail.played)], trail.grid.replicas * trail.grid.program.stages
    joules = _joules(trail, few, watts)
    ideal = stall * groups * still_ns + (load - stall) * (trail.grid.replicas * trail.still_ns.sum() + groups * trail.after_ns)
    value, again = float(joules.mean()) / ideal, joules[drawn(len(few))].mean(axis=1) / ideal
    if lives is not None:
        stalled = stall * groups * float(few.mean()) / float(joules.mean())
        value *= _powered(lives, stalled, np.arange(len(lives.node_us)))
        again = again * _powered(lives, stalled, _lives_drawn(lives))
    return _widened(_within(value / useful, again / useful), trail, lambda t, took: _joules(t, took, watts))


def _joules(trail: Trail, step_ns: Any, watts: tuple[float, float]) -> Any:
    """Of each step, in W · ns for one member of every group."""
    groups = trail.grid.replicas * trail.grid.program.stages
    busy = np.array([float(made.work.sum() + made.copied.sum()) for made in trail.played]) + groups * trail.after_ns
    return watts[1] * groups * step_ns + (watts[0] - watts[1]) * busy


def _powered(lives: Lives, stalled: float, which: Any) -> Any:
    """Energy of all that lives did over that of what stays, where waiting takes ``stalled`` of a step's mean power."""
    us = lives.node_us[which].sum(axis=-2, dtype=np.float64)
    ran, stood = us[..., [PRODUCTIVE, SLOW, DISCARDED]].sum(axis=-1), us[..., [SAVE, RESTORE, RECOVER, HOLD]].sum(axis=-1)
    return (ran + stalled * stood) / np.maximum(us[..., PRODUCTIVE], 1.0)


def runtime_variance_index(step_ns: Any) -> Estimate:
    """(q95 − q05) ÷ (3.29 · q50) of step time; without noise it is 0."""

    def index(times: Any) -> Any:
        low, middle, high = np.quantile(times, (0.05, 0.5, 0.95), axis=-1)
        return over(high - low, NORMAL_WIDTH * middle)

    few = step_ns[:MOST]
    return _within(float(index(step_ns)), index(few[drawn(len(few))]))


def sync_delay_amplification(trail: Trail, step_ns: Any) -> Estimate | None:
    """Delay of the whole job in a step ÷ mean over groups of what each was over its reference; None where nobody was."""
    delay, own = _delays(trail, step_ns)
    if own.max() < 1.0:
        return None
    found = estimate(lambda s: over(delay[s].sum(axis=-1), own[s].sum(axis=-1)), len(own))

    def ratios(other: Trail, took: Any) -> Any:
        late, mine = _delays(other, took)
        return late / max(float(mine.mean()), 1.0)

    return None if found is None else _widened(_told(found), trail, ratios)


def _delays(trail: Trail, step_ns: Any) -> tuple[Any, Any]:
    """Of each step: by how much the job was late, and its groups on average."""
    own = np.maximum(trail.work_ns - trail.reference_ns, 0.0).mean(axis=(1, 2))
    return step_ns[: len(own)] - trail.usual_ns, own


def replay_probability(lives: Lives | None) -> Estimate | None:
    """Discarded ÷ executed work over the lives; None where nothing is said to fail."""
    if lives is None:
        return None

    def part(which: Any) -> Any:
        us = lives.node_us[which].sum(axis=-2, dtype=np.float64)
        return us[..., DISCARDED] / np.maximum(us[..., [PRODUCTIVE, SLOW, DISCARDED]].sum(axis=-1), 1.0)

    return _within(float(part(np.arange(len(lives.node_us)))), part(_lives_drawn(lives)))


def straggler_cascade_rate(trail: Trail) -> Estimate | None:
    """Share of steps in which one group's excess moves the next step of at least half of the others; None if there are none."""
    replicas, stages = trail.grid.replicas, trail.grid.program.stages
    if replicas * stages < 2:
        return None
    excess = trail.work_ns - trail.reference_ns
    level = NormalDist().inv_cdf(1 - FALSE_ALARMS / excess.size)
    beyond = np.where(excess > level * trail.spread_ns, excess, 0.0).reshape(len(excess), -1)
    top = beyond.argmax(axis=1)
    flags = np.zeros(len(excess), dtype=bool)
    ways = along((made.ends for made in trail.played), trail.gate, trail.every, trail.sync_ns, trail.after_ns)
    for k, (met, _) in enumerate(ways):
        if beyond[k, top[k]] > 0:
            replica, stage = divmod(int(top[k]), stages)
            shift = _shift(trail, k, met, replica, stage)
            moved = stages * int((shift > trail.spread_ns[stage]).sum()) - int(shift[replica] > trail.spread_ns[stage])
            flags[k] = 2 * moved >= replicas * stages - 1
    found = share(flags)
    return None if found is None else _told(found)


def _shift(trail: Trail, k: int, met: Any, replica: int, stage: int) -> Any:
    """How much earlier each replica would go on after step k with one group at its reference in it."""
    made = trail.played[k]
    slow = made.slow.copy()
    slow[replica, stage] *= trail.reference_ns[replica, stage] / max(made.work[replica, stage], 1e-9)
    zero = np.zeros(trail.grid.replicas)
    again = trail.grid.play(zero, k, trail.seed, slow, some=(replica, replica + 1)).ends[replica]
    if met is None:
        shift = zero
        shift[replica] = made.ends[replica].max() - again.max()
        return shift
    arrived = met[-1].copy()
    arrived[replica] -= made.ends[replica] - again
    return trail.gate.opens(met).max(axis=1) - trail.gate.opens([*met[:-1], arrived]).max(axis=1)


def _lives_drawn(lives: Lives) -> Any:
    """Resamples of lives, draws × lives: they have nothing to do with each other."""
    n = len(lives.node_us)
    return np.random.default_rng(0).integers(0, n, size=(DRAWS, n))


def _within(value: float, again: Any) -> Estimate:
    """A value with the interval that resamples of it tell."""
    low, high = np.quantile(again, LEVEL)
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def _widened(found: Estimate, trail: Trail, per_step: Callable[[Trail, Any], Any]) -> Estimate:
    """The interval with what other devices would have made of a number that goes with the value, or its inverse.

    The few steps on each of them stray too, which is in it: careful rather than close.
    """
    if not trail.hands or found.lo is None or found.hi is None:
        return found
    seen = np.array([per_step(other, took).mean() for other, took in trail.hands])
    more = Z * abs(found.value) * float(seen.std(ddof=1)) / max(abs(float(seen.mean())), 1e-9)
    low, high = (float(np.hypot(found.value - end, more)) for end in (found.lo, found.hi))
    return Estimate(found.value, found.value - low, found.value + high)


def _told(found: Any) -> Estimate:
    return Estimate(found["value"], found["lo"], found["hi"])
