"""What fails, what it takes with it, and what a job keeps of its time: domains, and job histories drawn over them.

A failure of a device or a node takes out the node, one of a rack, switch or pod everything below it; software takes out
nothing. A synchronous job stops with any of its nodes: it is detected, nodes are taken from the spares or waited for, the
job is started, reads its checkpoint and goes on from there. Repaired nodes become spares. Spares do not fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, exp, expm1, isinf
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.errors import UsageError
from taut.core.jit import expect
from taut.project.noise import GRID, longest_mean, table
from taut.project.training.checkpoints import DAY_S, NODE_DAYS, best_s, too_few
from taut.project.training.job_history import COUNTS, FATES, FINISHED, PRODUCTIVE, SLOW, WALL, job_histories
from taut.project.training.scenario import Failure, Noise, Scenario
from taut.project.training.uncertain_keys import draws

US = 1e6
# Work over which failures are counted.
WORK_S = 30 * 86400.0
# Beyond this many mean times between failures a period is never finished: nothing is kept.
HOPELESS = 600.0
# A history is given up when it has lasted so many times its work (sooner where integers of µs end).
PATIENCE = 100


@dataclass(frozen=True)
class Domain:
    """Things of one kind that fail, and what goes with one of them."""

    name: str
    units: int
    nodes: int
    """Nodes below one unit; the last may hold fewer. 0: none breaks."""
    per_s: float
    """Failures of all units."""
    repair_s: float


@lru_cache(maxsize=4096)
def domains(f: Failure, nodes: int) -> tuple[Domain, ...]:
    """The domains of a job on so many nodes, placed side by side; a unit that is used in part fails as often as a full one."""
    switch, pod = f.nodes_per_rack * f.racks_per_switch, f.nodes_per_rack * f.racks_per_pod
    node_s, outage_s = f.repair_hours * 3600, f.outage_hours * 3600
    rows = (
        ("device", 1, f.device_per_1000_node_days, node_s),
        ("node", 1, f.node_per_1000_node_days, node_s),
        ("software", 0, f.software_per_1000_node_days, 0.0),
        ("rack", f.nodes_per_rack, f.rack_per_1000_rack_days, outage_s),
        ("switch", switch, f.switch_per_1000_switch_days, outage_s),
        ("pod", pod, f.pod_per_1000_pod_days, outage_s),
    )
    out = []
    for name, size, rate, repair_s in rows:
        units = ceil(nodes / max(size, 1))
        out.append(Domain(name, units, size, rate * units / NODE_DAYS / DAY_S, repair_s))
    return tuple(out)


def nodes_of(s: Scenario) -> int:
    """Nodes of a scenario's job."""
    return ceil(s.job.world / s.fabric.node)


def interruptions_per_day(s: Scenario) -> float:
    """Failures a day that stop the job while it runs; 0 where nothing is said to fail."""
    return sum(domain.per_s for domain in domains(s.failure, nodes_of(s))) * DAY_S


def spare_nodes(f: Failure, nodes: int) -> int:
    """Nodes held ready for a job on so many: as given, else the share of them, rounded, where nodes break."""
    if f.spares is not None:
        return f.spares
    return int(f.spares_share * nodes + 0.5) if any(d.per_s > 0 and d.nodes for d in domains(f, nodes)) else 0


def spare_ranks(s: Scenario) -> int:
    """Devices that a scenario holds ready."""
    return spare_nodes(s.failure, nodes_of(s)) * s.fabric.node


class Between(NamedTuple):
    """A mean over job histories, and what 90 % of them lie between."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class JobHistories:
    """What became of a job, drawn many times."""

    nodes: int
    spares: int
    devices: int
    """Ranks of a node."""
    node_us: Ints
    """Histories × FATES: node-time, µs; integers that sum to (nodes + spares) × wall."""
    counts: Ints
    """Histories × COUNTS."""
    every_s: float
    """From one checkpoint to the next at full speed, the blocking part of it included."""

    def count(self, name: str) -> Ints:
        """One of COUNTS, a value for each history: wall_us; failures; nodes taken as replacements; failures that had to wait
        for a repair; most nodes broken at once, that is the spares that never to wait would have taken; finished or given
        up."""
        return self.counts[:, COUNTS.index(name)]

    @property
    def total_rank_us(self) -> Ints:
        """Ranks × wall of each history: what the fates sum to."""
        return (self.nodes + self.spares) * self.devices * self.counts[:, WALL]

    @cached_property
    def rank_s(self) -> dict[str, float]:
        """Mean rank-time of each fate."""
        mean = self.node_us.mean(axis=0) * self.devices / US
        return {fate: float(mean[i]) for i, fate in enumerate(FATES)}

    @cached_property
    def kept(self) -> Between:
        """Effective training time ratio: work that stays, at the speed it ran at, over the job's wall time."""
        return between(self.each_kept)

    @property
    def each_kept(self) -> Floats:
        """The same of each history."""
        worked: Floats = self.node_us[:, [PRODUCTIVE, SLOW]].sum(axis=1) / (self.nodes * self.counts[:, WALL])
        return worked

    @property
    def useful(self) -> float:
        """What is kept, as if all of it had run at full speed, over the job's wall time."""
        return float((self.node_us[:, PRODUCTIVE] / (self.nodes * self.counts[:, WALL])).mean())

    @property
    def unfinished(self) -> int:
        """Histories that were given up: failures came faster than the job got on."""
        return int((self.counts[:, FINISHED] == 0).sum())

    def _over(self, node_us: Ints, nodes: int) -> Between:
        return between(node_us / (nodes * self.counts[:, WALL]))


def between(values: Floats) -> Between:
    """Mean and the middle 90 %."""
    return Between(float(values.mean()), *(float(q) for q in np.quantile(values, (0.05, 0.95))))


def work_between_s(f: Failure, per_s: float, work_s: float, step_s: float) -> float:
    """Work between two checkpoints: as given or the best, a step at least, and no save before the last one is written.

    Of a save that hides, only what blocks is weighed against failures: what it is written later costs the same at any
    interval.
    """
    block_s = f.checkpoint_s * (1 - f.checkpoint_overlap)
    period_s = f.checkpoint_every_s or (best_s(block_s, 1 / per_s) if per_s else work_s + block_s)
    least = max(step_s, f.checkpoint_s - block_s, 1 / US)
    return work_s if isinf(period_s) else min(max(period_s - block_s, least), work_s)


def restore_s(f: Failure, nodes: int) -> float:
    """Reading a checkpoint when all nodes do so at once."""
    return f.restore_s * max(1.0, nodes / f.restore_nodes if f.restore_nodes else 1.0)


class Kept(NamedTuple):
    """What a job keeps of its time, expected: at the speed it ran at, and as if at full speed."""

    share: float
    useful: float


def expected_kept(f: Failure, nodes: int, step_s: float = 1.0, work_s: float = WORK_S) -> Kept:
    """The mean of ``simulate_jobs`` in closed form, for long jobs.

    Periods and restarts are those of ``checkpoints.expected_s``; work that a hidden save had not secured is done again as a
    checkpoint is read again. Broken nodes are the calls of a loss system with a line for each spare and one for the node that
    is waited for.
    """
    them = [d for d in domains(f, nodes) if d.per_s > 0]
    if not them:
        return Kept(1.0, 1.0)
    per_s = sum(d.per_s for d in them)
    mtbf, down = 1 / per_s, f.detect_s + f.reschedule_s
    part, block = work_between_s(f, per_s, work_s, step_s), f.checkpoint_s * (1 - f.checkpoint_overlap)
    # Mean over exponential times between failures of what fades in after a restart, and of what fades out.
    warm, hot = f.warmup_steps * step_s, f.heat_steps * step_s
    slower = 1 + f.warmup_share * warm / (warm + mtbf) + f.heat_share * mtbf / (hot + mtbf)
    slower += max(longest_mean(_differ(f.placement_spread), nodes) - 1, 0.0) if f.placement_spread else 0.0
    again, period = (restore_s(f, nodes) + f.checkpoint_s - block) / mtbf, (part * slower + block) / mtbf
    if again + period > HOPELESS:
        return Kept(0.0, 0.0)
    each = (mtbf + down) * exp(again) * expm1(period)
    breaks = [(min(d.nodes, nodes), d.per_s * d.repair_s * mtbf / (mtbf + down)) for d in them if d.nodes]
    stands = too_few(spare_nodes(f, nodes), breaks) if breaks else 0.0
    return Kept(part * slower / each * (1 - stands), part / each * (1 - stands))


class KeptDraws(NamedTuple):
    """What is kept with each joint draw of the uncertain keys, over what is kept with their middle values; 1 of no draws."""

    share: Floats
    useful: Floats


def kept_ratios(f: Failure, nodes: int, step_s: float = 1.0, seed: int = 0) -> KeptDraws:
    """Draws of what is kept at a scale, by the closed form; ones where nothing is uncertain."""
    known = replace(f, ranges=())
    middle = expected_kept(known, nodes, step_s)
    values = draws(f.ranges, seed) if middle.useful > 0 and middle.share < 1 else []
    them = np.array([expected_kept(replace(known, **one), nodes, step_s) for one in values] or [middle])
    return KeptDraws(*(them / np.array(middle)).T) if middle.useful > 0 else KeptDraws(np.ones(1), np.ones(1))


def simulate_jobs(
    f: Failure, nodes: int, devices: int, work_s: float, *, step_s: float = 1.0, count: int = 200, seed: int = 0
) -> JobHistories:
    """Draw histories of a job that has so much work to do, measured at full speed (nothing cold, hot, slow or lost)."""
    if work_s < 1 / US or step_s <= 0 or count < 1:
        raise UsageError(f"work {work_s} s, step {step_s} s, {count} histories: give more than nothing of each")
    spares = spare_nodes(f, nodes)
    # Node-microseconds are 64-bit integers: their sum over nodes must stay below 2^61.
    limit_s = min(PATIENCE * (work_s + f.checkpoint_s), (1 << 61) / US / (nodes + spares))
    if limit_s < 4 * work_s:
        raise UsageError(f"{nodes + spares:,} nodes × {work_s:.3g} s of work are more than taut counts in µs; give less work")
    them = [d for d in domains(f, nodes) if d.per_s > 0]
    rate = np.array([d.per_s for d in them])
    per_s = float(rate.sum())
    expect(work_s * per_s * count)
    part_s, block_s = work_between_s(f, per_s, work_s, step_s), f.checkpoint_s * (1 - f.checkpoint_overlap)
    times_s = (work_s, part_s, block_s, f.checkpoint_s, f.detect_s, f.reschedule_s, restore_s(f, nodes), limit_s)
    units, sizes = (np.array(column, np.int64) for column in ([d.units for d in them], [d.nodes for d in them]))
    repair = np.array([d.repair_s * US for d in them])
    bend = np.array([f.warmup_share, f.warmup_steps * step_s * US, f.heat_share, f.heat_steps * step_s * US])
    node_us, counts = np.zeros((count, len(FATES)), np.int64), np.zeros((count, len(COUNTS)), np.int64)
    when, many = np.zeros((2, nodes + spares), np.int64)
    job_histories(
        0,
        count,
        seed,
        nodes,
        spares,
        *(round(t * US) for t in times_s),
        per_s / US,
        np.cumsum(rate) / max(per_s, 1e-300),
        units,
        sizes,
        repair,
        bend,
        f.redrawn_share,
        _differ(f.placement_spread),
        np.zeros(3, np.int64),
        when,
        many,
        node_us,
        counts,
    )
    return JobHistories(nodes, spares, devices, node_us, counts, part_s + block_s)


def _differ(spread: float) -> Floats:
    """Quantiles of how long a node takes, over the mean."""
    return table(Noise("lognormal", spread)) if spread else np.ones(len(GRID))
