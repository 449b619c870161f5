"""Indices of a modelled training job, as docs/indices.md defines them: from simulated steps and job histories.

A rank of the grid is a tensor-parallel group: one stage of one replica. Nothing is measured here, so nothing hides in
noise: every excess counts for the delay, and only what one group does to the others is held against what groups do anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.interval import DRAWS, FALSE_ALARMS, LEVEL, NORMAL_WIDTH, Z, drawn, estimate, over, share
from taut.project.noise import Slowness
from taut.project.pauses import Pauses
from taut.project.training.failures import JobHistories
from taut.project.training.grid import Delays, Grid, SimulatedStep, Sync, follow_gates, steps
from taut.project.training.job_history import DISCARDED, HOLD, PRODUCTIVE, RECOVER, RESTORE, SAVE, SLOW
from taut.project.workload import Estimate
from taut.result import types

# Steps × groups whose making is kept, and the steps that are kept at least and at most: the first ones.
ROOM, FEWEST, MOST = 1 << 20, 8, 4096
# Other draws of the devices, and the steps that are simulated on each of them: fewer where they would take longer than a
# third of the job's own, more where replicas meet more seldom.
DEVICE_DRAWS, DEVICE_DRAW_STEPS = 8, 4
# A normal distribution's standard deviation in median absolute deviations.
MAD = 1.4826


@dataclass(frozen=True)
class StepRecord:
    """The first steps of a forecast and what they were made of."""

    grid: Grid
    sync: Sync
    seed: int
    kept: list[SimulatedStep]

    @cached_property
    def other_devices(self) -> list[tuple[StepRecord, Floats]]:
        """A few steps of the same job on other devices, with how long each takes: how much the draw of devices decides.

        None where there are so many devices that the slowest of them is as slow in every draw.
        """
        slowness, cells = self.grid.slow, self.grid.replicas * self.grid.program.stages
        if (
            not isinstance(slowness, Slowness)
            or not (slowness.noise.ranks_spread or slowness.noise.slow_share)
            or cells > ROOM // FEWEST
        ):
            return []
        few = min(max(len(self.kept) // (3 * DEVICE_DRAWS), 1), DEVICE_DRAW_STEPS)
        count, out = max(few, min(self.sync.every, len(self.kept))), []
        for draw in range(1, DEVICE_DRAWS + 1):
            pauses = replace(self.grid.pauses) if isinstance(self.grid.pauses, Pauses) else None
            record = replace(self, grid=replace(self.grid, slow=replace(slowness, draw=draw), pauses=pauses), kept=[])
            out.append((record, record.simulate(count)))
        return out

    def simulate(self, count: int, cores: int = 1) -> Floats:
        """How long so many steps take; the first are kept."""
        return steps(self.grid, count, self.seed, self.sync, cores=cores, seen=self.add)

    @property
    def full(self) -> bool:
        """Whether there is no room for one more."""
        cells = self.grid.replicas * self.grid.program.stages
        return len(self.kept) >= min(MOST, max(FEWEST, ROOM // cells))

    def add(self, made: SimulatedStep) -> None:
        """Keep a step, while there is room."""
        if not self.full:
            self.kept.append(made)

    @cached_property
    def work_ns(self) -> Floats:
        """Drawn work, steps × replicas × stages."""
        return np.stack([made.work for made in self.kept])

    @cached_property
    def noiseless_ns(self) -> Floats:
        """The same of a stage without noise."""
        p = self.grid.program
        return np.bincount(p.stage, self.grid.drawn_ns.ravel()[p.cell], p.stages).astype(np.float64)

    @cached_property
    def reference_ns(self) -> Floats:
        """Usual work of a group: the median of its peers' medians over steps, its own left out; replicas × stages.

        A stage without peers is compared with itself.
        """
        usual = np.median(self.work_ns, axis=0)
        return _leave_one_out(usual) if len(usual) > 1 else usual

    @cached_property
    def spread_ns(self) -> Floats:
        """How far groups of a stage stray from it, whichever they are and whenever; per stage, at least 1 ns."""
        return np.maximum(MAD * np.median(np.abs(self.work_ns - self.reference_ns), axis=(0, 1)), 1.0)

    @cached_property
    def usual_ns(self) -> float:
        """A step in which every group takes its reference."""
        level = self.reference_ns / np.maximum(self.noiseless_ns, 1e-9)
        quiet = Grid(
            self.grid.program,
            self.grid.fixed_ns,
            self.grid.drawn_ns,
            np.ones_like(self.grid.tables),
            self.grid.hop_ns,
            self.grid.replicas,
        )
        ends = quiet.simulate(np.zeros(self.grid.replicas), 0, 0, Delays(level)).ends
        return float(ends.max()) + self.sync.sync_ns / self.sync.every + self.sync.after_ns


def _leave_one_out(values: Floats) -> Floats:
    """Per column, the median of all the other rows."""
    n = len(values)
    # The median without row i needs one sort: its neighbours move by one where the own value lies before them.
    order = np.sort(values, axis=0)
    place = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")

    def other(k: int) -> Floats:
        """The k-th of the others: one further where the own value comes first."""
        found: Floats = np.where(place > k, order[k], order[k + 1])
        return found

    return (other((n - 2) // 2) + other((n - 1) // 2)) / 2


def effective_throughput_ratio(
    record: StepRecord, step_ns: Floats, noiseless_ns: float, histories: JobHistories | None, useful: float
) -> Estimate:
    """Step without noise ÷ mean step × share of the time that failures leave × share of the work that counts."""
    value = useful * noiseless_ns / float(step_ns.mean())
    few = step_ns[:MOST]
    again = useful * noiseless_ns / few[drawn(len(few))].mean(axis=1)
    if histories is not None:
        kept = histories.node_us[:, PRODUCTIVE] / (histories.nodes * histories.count("wall_us"))
        value, again = value * float(kept.mean()), again * kept[_resampled(histories)].mean(axis=1)
    found = _widened(_with_interval(value, again), record, lambda _, took: took)
    # A share of what could be done: steps that a gate does not wait for may be shorter than the one without noise.
    return Estimate(min(found.value, 1.0), *(None if end is None else min(end, 1.0) for end in (found.lo, found.hi)))


def energy_per_useful_step(
    record: StepRecord,
    step_ns: Floats,
    noiseless_ns: float,
    watts: tuple[float, float],
    histories: JobHistories | None,
    useful: float,
) -> Estimate:
    """Joules per kept step ÷ the same without noise and failures; ``watts`` under load and stalled."""
    load, stall = watts
    few, groups = step_ns[: len(record.kept)], record.grid.replicas * record.grid.program.stages
    joules = _joules(record, few, watts)
    ideal = stall * groups * noiseless_ns + (load - stall) * (
        record.grid.replicas * record.noiseless_ns.sum() + groups * record.sync.after_ns
    )
    value, again = float(joules.mean()) / ideal, joules[drawn(len(few))].mean(axis=1) / ideal
    if histories is not None:
        stalled = stall * groups * float(few.mean()) / float(joules.mean())
        value *= _energy_factor(histories, stalled, np.arange(len(histories.node_us)))
        again = again * _energy_factor(histories, stalled, _resampled(histories))
    return _widened(_with_interval(value / useful, again / useful), record, lambda t, took: _joules(t, took, watts))


def _joules(record: StepRecord, step_ns: Floats, watts: tuple[float, float]) -> Floats:
    """Of each step, in W · ns for one member of every group."""
    groups = record.grid.replicas * record.grid.program.stages
    busy = np.array([float(made.work.sum() + made.copied.sum()) for made in record.kept]) + groups * record.sync.after_ns
    return watts[1] * groups * step_ns + (watts[0] - watts[1]) * busy


def _energy_factor(histories: JobHistories, stalled: float, which: Ints) -> Floats:
    """Energy of all that histories did over that of what stays, where waiting takes ``stalled`` of a step's mean power."""
    us = histories.node_us[which].sum(axis=-2, dtype=np.float64)
    ran, stood = us[..., [PRODUCTIVE, SLOW, DISCARDED]].sum(axis=-1), us[..., [SAVE, RESTORE, RECOVER, HOLD]].sum(axis=-1)
    factor: Floats = (ran + stalled * stood) / np.maximum(us[..., PRODUCTIVE], 1.0)
    return factor


def runtime_variance_index(step_ns: Floats) -> Estimate:
    """(q95 − q05) ÷ (3.29 · q50) of step time; without noise it is 0."""

    def index(times: Floats) -> Floats:
        low, middle, high = np.quantile(times, (0.05, 0.5, 0.95), axis=-1)
        found: Floats = over(high - low, NORMAL_WIDTH * middle)
        return found

    few = step_ns[:MOST]
    return _with_interval(float(index(step_ns)), index(few[drawn(len(few))]))


def sync_delay_amplification(record: StepRecord, step_ns: Floats) -> Estimate | None:
    """Delay of the whole job in a step ÷ mean over groups of what each was over its reference; None where nobody was."""
    delay, own = _delays(record, step_ns)
    if own.max() < 1.0:
        return None
    found = estimate(lambda s: over(delay[s].sum(axis=-1), own[s].sum(axis=-1)), len(own))

    def ratios(other: StepRecord, took: Floats) -> Floats:
        late, mine = _delays(other, took)
        return late / max(float(mine.mean()), 1.0)

    return None if found is None else _widened(_estimate(found), record, ratios)


def _delays(record: StepRecord, step_ns: Floats) -> tuple[Floats, Floats]:
    """Of each step: by how much the job was late, and its groups on average."""
    own = np.maximum(record.work_ns - record.reference_ns, 0.0).mean(axis=(1, 2))
    return step_ns[: len(own)] - record.usual_ns, own


def replay_probability(histories: JobHistories | None) -> Estimate | None:
    """Discarded ÷ executed work over the histories; None where nothing fails in the scenario."""
    if histories is None:
        return None

    def part(which: Ints) -> Floats:
        us = histories.node_us[which].sum(axis=-2, dtype=np.float64)
        found: Floats = us[..., DISCARDED] / np.maximum(us[..., [PRODUCTIVE, SLOW, DISCARDED]].sum(axis=-1), 1.0)
        return found

    return _with_interval(float(part(np.arange(len(histories.node_us)))), part(_resampled(histories)))


def straggler_cascade_rate(record: StepRecord) -> Estimate | None:
    """Share of steps in which one group's excess moves the next step of at least half of the others; None if there are none."""
    replicas, stages = record.grid.replicas, record.grid.program.stages
    if replicas * stages < 2:
        return None
    excess = record.work_ns - record.reference_ns
    # Bonferroni: the false alarms allowed in all are divided among all steps and groups.
    level = NormalDist().inv_cdf(1 - FALSE_ALARMS / excess.size)
    beyond = np.where(excess > level * record.spread_ns, excess, 0.0).reshape(len(excess), -1)
    top = beyond.argmax(axis=1)
    flags = np.zeros(len(excess), dtype=bool)
    ways = follow_gates((made.ends for made in record.kept), record.sync)
    for k, (met, _) in enumerate(ways):
        if beyond[k, top[k]] > 0:
            replica, stage = divmod(int(top[k]), stages)
            shift = _shift(record, k, met, replica, stage)
            moved = stages * int((shift > record.spread_ns[stage]).sum()) - int(shift[replica] > record.spread_ns[stage])
            flags[k] = 2 * moved >= replicas * stages - 1
    found = share(flags)
    return None if found is None else _estimate(found)


def _shift(record: StepRecord, k: int, met: Sequence[Floats] | None, replica: int, stage: int) -> Floats:
    """How much earlier each replica would go on after step k with one group at its reference in it."""
    made = record.kept[k]
    slow, own = made.delays.slow.copy(), made.work[replica, stage]
    pauses = made.delays.pauses
    if pauses is not None:
        added = pauses[0].copy()
        own, added[replica, stage] = own - added[replica, stage], 0.0
        pauses = added, pauses[1]
    slow[replica, stage] *= record.reference_ns[replica, stage] / max(own, 1e-9)
    zero = np.zeros(record.grid.replicas)
    again = record.grid.simulate(zero, k, record.seed, Delays(slow, pauses), some=(replica, replica + 1)).ends[replica]
    if met is None:
        shift = zero
        shift[replica] = made.ends[replica].max() - again.max()
        return shift
    arrived = met[-1].copy()
    arrived[replica] -= made.ends[replica] - again
    earlier: Floats = record.sync.gate.opens(met).max(axis=1) - record.sync.gate.opens([*met[:-1], arrived]).max(axis=1)
    return earlier


def _resampled(histories: JobHistories) -> Ints:
    """Resamples of histories, draws × histories: they have nothing to do with each other."""
    n = len(histories.node_us)
    return np.random.default_rng(0).integers(0, n, size=(DRAWS, n))


def _with_interval(value: float, again: Floats) -> Estimate:
    """A value with the interval that resamples of it tell."""
    low, high = np.quantile(again, LEVEL)
    return Estimate(float(value), float(min(low, value)), float(max(high, value)))


def _widened(found: Estimate, record: StepRecord, per_step: Callable[[StepRecord, Floats], Floats]) -> Estimate:
    """The interval with what other devices would have made of a number that goes with the value, or its inverse.

    The few steps on each of them stray too, which is in it: careful rather than close.
    """
    if not record.other_devices or found.lo is None or found.hi is None:
        return found
    seen = np.array([per_step(other, took).mean() for other, took in record.other_devices])
    # Two independent errors add in squares: resampled steps, and other draws of devices.
    more = Z * abs(found.value) * float(seen.std(ddof=1)) / max(abs(float(seen.mean())), 1e-9)
    low, high = (float(np.hypot(found.value - end, more)) for end in (found.lo, found.hi))
    return Estimate(found.value, found.value - low, found.value + high)


def _estimate(found: types.Estimate) -> Estimate:
    return Estimate(found.value, found.lo, found.hi)
