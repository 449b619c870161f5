"""The grid's mean step and useful rate at any number of replicas, from one sample of a single replica.

Replicas meet nobody between two synchronisations, so their times are draws from one distribution (what they differ by for
good is drawn with each), and a step is the longest of as many as there are. One replica is simulated a few hundred times; the
expected longest of any number is then a look-up. What failures leave is expected, not drawn (``failures.expected_kept``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import expm1

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.core.jit import expect
from taut.core.normal_score import normal_score, upper_score
from taut.project.noise import GRID, POINTS, Slowness, longest_mean, mixture, odds, of_ops, table, with_jumps, without_pauses
from taut.project.pauses import Pauses, Reach, events, forced, rare, reach, usual
from taut.project.training import policy_effects as effects
from taut.project.training.failures import expected_kept, nodes_of
from taut.project.training.forecast import Forecast, step_terms
from taut.project.training.grid import Delays, Grid, Paused, Sync, step_lengths
from taut.project.training.pipeline import program
from taut.project.training.scenario import Noise, Scenario
from taut.project.training.step_plan import Plan, plan
from taut.project.training.step_time import pause_laws, pipeline_ns, split_work

# Of a sample: schedule, pp, virtual pp, micro-batches, members of a group, steps between syncs, devices dealt by speed, how
# late a hop is.
Shape = tuple[str, int, int, int, int, int, bool, float]
# Ops that a sample may take, and how many replicas are drawn whatever that says.
OPS, FEWEST, MOST = 300_000, 250, 1 << 14
# Ranks whose slowness is drawn for a sample: replicas of many ranks are drawn less often.
RANKS = 1 << 16
# Draws from which the sum of a chunk's layers is known; a step has many of them, so their ends matter little.
SUMS = 1 << 14
# Replicas whose devices differ for good, where another gate than a barrier wants to know when each of them ends …
DEVICES = 200
# … times of replicas that are put together then, and the fewest meetings.
GATED, MEETINGS = 1 << 14, 20
# Ends that are drawn at once.
BLOCK = 1 << 17
# Mean times of an op after which a copy of a paused one has surely ended.
COPIED = 2.0
# Quantiles that tell how much later a pause makes replicas.
DELAYS = 32
# Share of a sample that tells how its upper end goes on.
TAIL = 0.2
# Normal score of the table's end.
FARTHEST = 7.0


def rate(s: Scenario, seed: int, measured: Floats | None = None) -> float:
    """Tokens a second that count; ``measured`` are the residuals of a run, as in ``forecast``."""
    mean = expected_step_ns(s, plan(s), seed, measured)
    return Forecast.tokens_per_s_of(s, mean) * expected_kept(s.failure, nodes_of(s), mean * 1e-9).useful


def sketch(s: Scenario, seed: int = 0, measured: Floats | None = None) -> Forecast:
    """A forecast of mean values: every step takes the expected time."""
    p = plan(s)
    mean, alone = expected_step_ns(s, p, seed, measured), pipeline_ns(s, p)
    return Forecast(
        s.job.world,
        np.array([mean]),
        alone + p.sync_ns + p.optimiser_ns,
        step_terms(s, p, alone, mean),
        s,
        expected=expected_kept(s.failure, nodes_of(s), mean * 1e-9),
    )


def expected_step_ns(s: Scenario, p: Plan, seed: int, measured: Floats | None = None) -> float:
    """Expected step at whatever gate."""
    return (gated_step_ns if _needs_history(s) else mean_step_ns)(s, p, seed, measured)


def _needs_history(s: Scenario) -> bool:
    """Whether what replicas did before decides how long they wait, or they help each other."""
    return s.policy.gate in ("ring", "stale", "hierarchical") or s.policy.copy_after > 0


def mean_step_ns(s: Scenario, p: Plan, seed: int, measured: Floats | None = None) -> float:
    """Expected step: the slowest of the replicas, the synchronisation, the optimiser."""
    residuals = b"" if measured is None else np.asarray(measured, float).tobytes()
    pauses, sample = tuple(reach(law, _shape(s)) for law in pause_laws(s, p)), _sample(s, p, seed, residuals)
    if s.policy.gate != "barrier" or s.policy.clones > 1:
        # Whom such a gate waits for hardly depends on whether replicas pause at once: each pauses as often by itself.
        pauses = tuple(
            one if one.own else dataclasses.replace(one, units=-(-s.job.pp // one.stages), replicas=1) for one in pauses
        )
    shared = tuple(one for one in pauses if not one.own)
    found = replica_quantiles(sample, pauses)
    gate = _gate_ns(s, found) if not shared else _last_ns(s, found, replica_quantiles(sample, shared), sample, shared)
    return gate + p.sync_ns + p.optimiser_ns


def _shape(s: Scenario) -> tuple[int, int, int]:
    return s.job.dp, s.job.pp, s.job.tp * s.job.cp


def _last_ns(s: Scenario, quantiles: Floats, plain: Floats, sample: Sample, shared: tuple[Reach, ...]) -> float:
    """Expected longest of all replicas, some of which may pause together.

    P(all come before x) = F(x)^dp × a factor for every unit of those that pause together: a pause makes all its n replicas
    later by some D, so that they come before x with the chance E[(F₀(x − D) ÷ F₀(x))^n], F₀ without such pauses.
    """
    late = [later_by(sample, one) for one in shared]
    x = with_jumps(np.concatenate([quantiles, *(quantiles[::16, None] + delays for delays in late)], axis=None))
    log_chance = s.job.dp * _log_chance(quantiles, x)
    for one, delays in zip(shared, late, strict=True):
        before = _log_chance(plain, x[:, None] - delays) - _log_chance(plain, x)[:, None]
        missed = 1 - np.exp(one.replicas * np.minimum(before, 0.0)).mean(axis=1)
        paused = events(one.law, s.job.steps_between_syncs)
        # Regular ones come once or not at all, hiccups any number of times.
        each = np.log1p(-min(paused, 1.0) * np.minimum(missed, 1 - 1e-12)) if one.law.regular else -paused * missed
        log_chance += one.units * each
    chance = np.maximum.accumulate(np.exp(log_chance))
    between = np.diff(chance) @ (x[1:] + x[:-1]) / 2
    return float(x[0] * chance[0] + between + x[-1] * (1 - chance[-1]))


def _log_chance(quantiles: Floats, x: Floats) -> Floats:
    """Log of the chance to stay below x."""
    return -np.logaddexp(0.0, -np.interp(x, quantiles, GRID, left=-1e3))


def _gate_ns(s: Scenario, quantiles: Floats) -> float:
    """Expected time until a gate without a memory opens, of what one replica takes.

    The first of some clones counts; of these nobody waits, or all do for the last, or for the last that is not dropped.
    """
    clones, many = s.policy.clones, s.job.dp // s.policy.clones
    if clones > 1:
        late = -np.logaddexp(0, GRID) / clones  # log chance of each of them to be later
        quantiles = np.interp(np.log(-np.expm1(late)) - late, GRID, quantiles)
    if s.policy.gate == "none":
        return longest_mean(quantiles, 1)
    if s.policy.gate == "barrier":
        return longest_mean(quantiles, many)
    from scipy.special import betainc

    # P(the (many - dropped)-th of many draws comes before x) is a regularised incomplete beta function.
    edges = np.append(odds(GRID[:-1] + (GRID[1] - GRID[0]) / 2)[0], 1.0)
    dropped = s.policy.backup_replicas
    return float(quantiles @ np.diff(betainc(many - dropped, dropped + 1, edges), prepend=0.0))


def gated_step_ns(s: Scenario, p: Plan, seed: int, measured: Floats | None = None) -> float:
    """Mean step where replicas meet otherwise than at a barrier.

    A replica's stages end as those of a simulated one, another in every step, and later by what its devices are slower for
    good. The first half of the steps is not counted: gates that let replicas run apart need time to hold them.
    """
    j, every = s.job, s.job.steps_between_syncs
    ends, later = _sampled_ends(s, p, seed, measured)
    rng = np.random.default_rng((seed, 4))
    # More replicas than sampled devices: each sampled one stands for as many of them.
    who = rng.permutation(np.arange(j.dp) * len(later) // j.dp) if j.dp > len(later) else rng.permutation(len(later))[: j.dp]
    lasting = later[np.sort(who) if s.policy.deal_by_speed else who]
    count = 2 * min(max(GATED // j.dp, MEETINGS), 2 * MEETINGS) * every
    kinds = pause_laws(s, p)
    pauses = Pauses(kinds, _shape(s), seed) if kinds else None
    longest = np.inf if s.policy.copy_after == 0 else float(COPIED * split_work(p)[1].max())

    def chosen() -> Iterator[Floats]:
        at_once = max(BLOCK // lasting.size, 1)
        for first in range(0, count, at_once):
            some = ends.take(rng.integers(len(ends), size=(min(at_once, count - first), j.dp)), axis=0)
            some += lasting
            for k, one in enumerate(some, first):
                yield one if pauses is None else one + _held_up(pauses, k, longest)

    drawn = step_lengths(chosen(), Sync(effects.gate(s), every, p.sync_ns * every, p.optimiser_ns))
    return float(drawn[count // 2 :].mean())


def _held_up(pauses: Pauses, step: int, longest: float) -> Floats:
    """How much later each replica ends a step for pauses: by the longest of its stages', or what a copy of an op leaves."""
    return np.asarray(np.minimum(pauses(step)[0].max(axis=1, keepdims=True), longest))


def _sampled_ends(s: Scenario, p: Plan, seed: int, measured: Floats | None) -> tuple[Floats, Floats]:
    """(sampled ends of the stages of a replica; how much later they are on devices that differ for good)."""
    j = s.job
    fixed, drawn = split_work(p)
    residuals = b"" if measured is None else np.asarray(measured, float).tobytes()
    layers, members = max(s.model.layers // len(p.forward_ns), 1), j.tp * j.cp
    tables = np.stack([_table(of_ops(s.noise), members, max(n, layers), residuals) for n in p.gates])
    late = effects.copy_threshold(s, tables, Slowness(s.noise, (FEWEST, j.pp, members), seed, s.policy.deal_by_speed), seed)
    shape = (j.schedule, j.pp, j.virtual_pp, j.micro_batches, members, 1, s.policy.deal_by_speed, p.late_ns)
    return _cached_ends(shape, fixed.tobytes(), drawn.tobytes(), tables.tobytes(), late, s.noise, seed)


@lru_cache(maxsize=64)
def _cached_ends(
    shape: Shape, fixed: bytes, drawn: bytes, tables: bytes, late: float, noise: Noise, seed: int
) -> tuple[Floats, Floats]:
    schedule, pp, virtual_pp, micro_batches, members, _, by_speed, hop = shape
    todo = program(schedule, pp, virtual_pp, micro_batches)
    many = min(max(OPS // len(todo), FEWEST), MOST)
    expect(many * len(todo))
    sure, mean, quantiles = (np.frombuffer(part).reshape(2, -1) for part in (fixed, drawn, tables))
    fleeting = replace(noise, ranks_spread=0.0, slow_share=0.0, drift_share=0.0)
    passing = Slowness(fleeting, (many, pp, members), seed)
    ends = Grid(todo, sure, mean, quantiles, hop, many, passing, late).step(np.zeros(many), 0, seed)
    usual = np.array([[longest_mean(one, 1)] for one in quantiles]) * np.ones(POINTS)
    lasting = Slowness(replace(noise, step_spread=0.0), (DEVICES, pp, members), seed, by_speed)
    differ = Grid(todo, sure, mean, usual, hop, DEVICES, lasting).step(np.zeros(DEVICES), 0, seed)
    return ends, differ - Grid(todo, sure, mean, usual, hop, 1).step(np.zeros(1), 0, seed)


def _sample(s: Scenario, p: Plan, seed: int, measured: bytes) -> Sample:
    j, (fixed, drawn) = s.job, split_work(p)
    layers = max(s.model.layers // len(p.forward_ns), 1)
    parts = tuple(max(n, layers) for n in p.gates)
    cut = (j.schedule, j.pp, j.virtual_pp, j.micro_batches)
    shape = (*cut, j.tp * j.cp, j.steps_between_syncs, s.policy.deal_by_speed, p.late_ns)
    return Sample(shape, fixed.tobytes(), drawn.tobytes(), parts, without_pauses(s.noise), seed, measured)


@dataclass(frozen=True)
class Sample:
    """One replica that is simulated some hundred times, and all that its times depend on."""

    shape: Shape
    fixed: bytes
    drawn: bytes
    parts: tuple[int, ...]
    noise: Noise
    seed: int
    measured: bytes

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How often it is simulated; its stages; members of a group."""
        _, pp, virtual_pp, micro_batches, members, every, _, _ = self.shape
        most = min(OPS // (2 * pp * virtual_pp * micro_batches * every), RANKS // (pp * members))
        return min(max(most, FEWEST), MOST), pp, members

    @property
    def _work(self) -> tuple[Floats, Floats]:
        return np.frombuffer(self.fixed).reshape(2, -1), np.frombuffer(self.drawn).reshape(2, -1)

    @property
    def quiet(self) -> bool:
        """Whether every replica is as long as every other."""
        n = self.noise
        return n.distribution == "none" and not (n.step_spread or n.ranks_spread or n.slow_share or n.drift_share)

    def means(self, paused: Paused | None = None) -> Floats:
        """Mean steps between two synchronisations, with such pauses (steps × replicas × stages)."""
        schedule, pp, virtual_pp, micro_batches, members, every, by_speed, hop = self.shape
        if self.quiet and paused is None:
            one = Grid(program(schedule, pp, virtual_pp, micro_batches), *self._work, np.ones((2, POINTS)), hop, 1)
            return np.full(self.sizes[0], one.step(np.zeros(1), 0, 0).max())
        todo, many = program(schedule, pp, virtual_pp, micro_batches), self.sizes[0]
        expect(many * every * len(todo))
        tables = np.stack([_table(of_ops(self.noise), members, n, self.measured) for n in self.parts])
        grid, slow = Grid(todo, *self._work, tables, hop, many), Slowness(self.noise, self.sizes, self.seed, by_speed)
        zero, out = np.zeros(many), np.zeros(many)
        for step in range(every):
            pauses = None if paused is None else (paused[0][step], paused[1][step])
            out += grid.simulate(zero, step, self.seed, Delays(slow(step), pauses)).ends.max(axis=1)
        return out / every


@lru_cache(maxsize=512)
def _plain_means(sample: Sample) -> Floats:
    return sample.means()


@lru_cache(maxsize=512)
def replica_quantiles(sample: Sample, pauses: tuple[Reach, ...]) -> Floats:
    """Quantiles at GRID of a replica's mean step, with the pauses that hit nobody else.

    Replicas that have a rare pause are sampled by themselves and mixed in by its rate: a sample of all would miss it.
    """
    every, rng = sample.shape[5], np.random.default_rng((sample.seed, 7))
    always, seldom = usual(pauses, sample.sizes, every, rng), rare(pauses, every)
    body = _extrapolated(np.sort(sample.means(always) if always[0].any() else _plain_means(sample)))
    if not seldom:
        return body
    more, where = forced(seldom, sample.sizes, every, rng)
    hit = sample.means((always[0] + more, np.where(more > 0, where, always[1])))
    return mixture(body, _extrapolated(np.sort(hit)), -expm1(-sum(count for _, count in seldom)))


@lru_cache(maxsize=512)
def later_by(sample: Sample, one: Reach) -> Floats:
    """How much later replicas end for one pause of a kind: evenly spaced quantiles."""
    paused = forced([(one, 1.0)], sample.sizes, sample.shape[5], np.random.default_rng((sample.seed, 8)), once=True)
    return np.quantile(sample.means(paused) - _plain_means(sample), (np.arange(DELAYS) + 0.5) / DELAYS)


@lru_cache(maxsize=128)
def _table(noise: Noise, members: int, parts: int, measured: bytes) -> Floats:
    return table(noise, members, parts, measured=np.frombuffer(measured), drawn=SUMS)


def _extrapolated(values: Floats) -> Floats:
    """Quantiles at GRID of sorted draws, their upper end a parabola in normal scores.

    A line is a normal end, a parabola an exponential one; one that would turn down is taken as a line.
    """
    n = len(values)
    chance = (np.arange(n) + 0.5) / n
    out = np.interp(GRID, np.log(chance) - np.log1p(-chance), values)
    few = int(n * TAIL)
    x, y = normal_score(chance[-few:], 1 - chance[-few:]), values[-few:]
    # Least squares in normal scores: a straight line would be a normal tail.
    c, b, a = np.polyfit(x, y, 2)
    if b + 2 * c * FARTHEST < 0:
        c, (b, a) = 0.0, np.polyfit(x, y, 1)
    beyond = np.log(chance[-few]) - np.log1p(-chance[-few]) < GRID
    z = upper_score(-np.log1p(np.exp(GRID[beyond])))
    out[beyond] = np.maximum(a + b * z + c * z * z, values[-few])
    return out
