"""The grid's mean step and useful rate at any number of replicas, from one sample of a single replica.

Replicas meet nobody between two synchronisations, so their times are draws from one distribution (what they differ by for
good is drawn with each), and a step is the longest of as many as there are. One replica is simulated a few hundred times; the
expected longest of any number is then a look-up. What failures leave is expected, not drawn (``failures.expected_kept``).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.core.jit import expect
from taut.core.normal_score import normal_score, upper_score
from taut.project.noise import GRID, POINTS, Slowness, longest_mean, odds, table
from taut.project.training import policy_effects as effects
from taut.project.training.failures import expected_kept, nodes_of
from taut.project.training.forecast import Forecast, step_terms
from taut.project.training.grid import Grid, Sync, step_lengths
from taut.project.training.pipeline import program
from taut.project.training.scenario import Noise, Scenario
from taut.project.training.step_plan import Plan, plan
from taut.project.training.step_time import pipeline_ns, split_work

# Of a sample: schedule, pp, virtual pp, micro-batches, members of a group, steps between syncs, devices dealt by speed.
Shape = tuple[str, int, int, int, int, int, bool]
# Ops that a sample may take, and how many replicas are drawn whatever that says.
OPS, FEWEST, MOST = 600_000, 250, 1 << 15
# Ranks whose slowness is drawn for a sample: replicas of many ranks are drawn less often.
RANKS = 1 << 16
# Draws from which the sum of a chunk's layers is known; a step has many of them, so their ends matter little.
SUMS = 1 << 14
# Replicas whose devices differ for good, where another gate than a barrier wants to know when each of them ends …
DEVICES = 200
# … times of replicas that are put together then, and the fewest meetings.
GATED, MEETINGS = 1 << 15, 20
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
    return _gate_ns(s, _replica_quantiles(s, p, seed, residuals)) + p.sync_ns + p.optimiser_ns


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
    count = 2 * min(max(GATED // j.dp, MEETINGS), 4 * MEETINGS) * every
    chosen = (ends[rng.integers(len(ends), size=j.dp)] + lasting for _ in range(count))
    drawn = step_lengths(chosen, Sync(effects.gate(s), every, p.sync_ns * every, p.optimiser_ns))
    return float(drawn[count // 2 :].mean())


def _sampled_ends(s: Scenario, p: Plan, seed: int, measured: Floats | None) -> tuple[Floats, Floats]:
    """(sampled ends of the stages of a replica; how much later they are on devices that differ for good)."""
    j = s.job
    fixed, drawn = split_work(p)
    residuals = b"" if measured is None else np.asarray(measured, float).tobytes()
    layers, members = max(s.model.layers // len(p.forward_ns), 1), j.tp * j.cp
    tables = np.stack([_table(_op_noise(s.noise), members, max(n, layers), residuals) for n in p.gates])
    late = effects.copy_threshold(s, tables, Slowness(s.noise, (FEWEST, j.pp, members), seed, s.policy.deal_by_speed), seed)
    shape = (j.schedule, j.pp, j.virtual_pp, j.micro_batches, members, 1, s.policy.deal_by_speed)
    return _cached_ends(shape, fixed.tobytes(), drawn.tobytes(), tables.tobytes(), late, s.noise, seed)


@lru_cache(maxsize=64)
def _cached_ends(
    shape: Shape, fixed: bytes, drawn: bytes, tables: bytes, late: float, noise: Noise, seed: int
) -> tuple[Floats, Floats]:
    schedule, pp, virtual_pp, micro_batches, members, _, by_speed = shape
    todo = program(schedule, pp, virtual_pp, micro_batches)
    many = min(max(OPS // len(todo), FEWEST), MOST)
    expect(many * len(todo))
    sure, mean, quantiles = (np.frombuffer(part).reshape(2, -1) for part in (fixed, drawn, tables))
    fleeting = replace(noise, ranks_spread=0.0, slow_share=0.0, drift_share=0.0)
    passing = Slowness(fleeting, (many, pp, members), seed)
    ends = Grid(todo, sure, mean, quantiles, 0.0, many, passing, late).step(np.zeros(many), 0, seed)
    usual = np.array([[longest_mean(one, 1)] for one in quantiles]) * np.ones(POINTS)
    lasting = Slowness(replace(noise, step_spread=0.0), (DEVICES, pp, members), seed, by_speed)
    differ = Grid(todo, sure, mean, usual, 0.0, DEVICES, lasting).step(np.zeros(DEVICES), 0, seed)
    return ends, differ - Grid(todo, sure, mean, usual, 0.0, 1).step(np.zeros(1), 0, seed)


def _replica_quantiles(s: Scenario, p: Plan, seed: int, measured: bytes) -> Floats:
    """Quantiles at GRID of a replica's mean step between two synchronisations."""
    j = s.job
    fixed, drawn = split_work(p)
    layers = max(s.model.layers // len(p.forward_ns), 1)
    parts = tuple(max(n, layers) for n in p.gates)
    shape = (j.schedule, j.pp, j.virtual_pp, j.micro_batches, j.tp * j.cp, j.steps_between_syncs, s.policy.deal_by_speed)
    return _cached_quantiles(shape, fixed.tobytes(), drawn.tobytes(), parts, s.noise, seed, measured)


@lru_cache(maxsize=512)
def _cached_quantiles(
    shape: Shape, fixed: bytes, drawn: bytes, parts: tuple[int, ...], noise: Noise, seed: int, measured: bytes
) -> Floats:
    schedule, pp, virtual_pp, micro_batches, members, every, by_speed = shape
    todo = program(schedule, pp, virtual_pp, micro_batches)
    many = min(max(min(OPS // (len(todo) * every), RANKS // (pp * members)), FEWEST), MOST)
    expect(many * every * len(todo))
    tables = np.stack([_table(_op_noise(noise), members, n, measured) for n in parts])
    sure, mean = (np.frombuffer(part).reshape(2, -1) for part in (fixed, drawn))
    grid = Grid(todo, sure, mean, tables, 0.0, many, Slowness(noise, (many, pp, members), seed, by_speed))
    zero, out = np.zeros(many), np.zeros(many)
    for step in range(every):
        out += grid.step(zero, step, seed).max(axis=1)
    return _extrapolated(np.sort(out / every))


def _op_noise(noise: Noise) -> Noise:
    """What of the noise belongs to single ops: the rest changes no table."""
    return Noise(noise.distribution, noise.spread, noise.tail, times=noise.times)


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
