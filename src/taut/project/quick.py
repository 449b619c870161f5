"""The grid's mean step and useful rate at any number of replicas, from one sample of a single replica.

Replicas meet nobody between two synchronisations, so their times are draws from one distribution (what they differ by for
good is drawn with each), and a step is the longest of as many as there are. One replica is played a few hundred times; the
expected longest of any number is then a look-up. What failures leave is drawn as in the forecast.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, log
from typing import Any

import numpy as np

from taut.jit import expect, kernel
from taut.project.failure import Lives, domains, live, nodes_of
from taut.project.forecast import LIVES, WORK_S, Forecast, forecast, term_ns
from taut.project.grid import op_key, replica_key, step_key
from taut.project.noise import GRID, POINTS, REACH, Sway, longest_mean, odds, table
from taut.project.pipeline import program
from taut.project.plan import Plan, plan
from taut.project.scenario import Noise, Scenario
from taut.project.step import still, straying

OPS, FEWEST, MOST = 1_500_000, 250, 1 << 15
"""Ops that a sample may take, and how many replicas are drawn whatever that says."""
CELLS = 1 << 12
"""Parts of equal chance between which a draw is looked up; the first and the last are looked up in log odds."""
SUMS = 1 << 14
"""Draws from which the sum of a chunk's layers is known; a step has many of them, so their ends matter little."""
TAIL = 0.2
"""Share of a sample that tells how its upper end goes on."""
FARTHEST = 7.0
"""Normal score of the table's end."""
FAILURES, FEWEST_LIVES = 2000, 3
"""Failures that are enough to know their mean cost."""


@kernel()
def spans(
    before: Any, needs: Any, stage: Any, cell: Any, fixed: Any, drawn: Any, which: Any, tables: Any, even: Any, slow: Any,
    step: int, seed: int, points: int, reach: float, out: Any,
) -> int:  # fmt: skip
    """Add to ``out`` how long each replica takes for a step: ``grid.play``, its look-ups without logarithms but at the ends."""
    n, cells = len(before), even.shape[1] - 1
    end = np.empty(n)
    key = step_key(seed, step)
    scale = (points - 1) / (2 * reach)
    for r in range(len(out)):
        mine = replica_key(key, r)
        longest = 0.0
        for i in range(n):
            t = 0.0
            if before[i] >= 0:
                t = end[before[i]]
            u = needs[i]
            if u >= 0:
                t = max(t, end[u])
            c = cell[i]
            t += fixed[c]
            if drawn[c] > 0:
                x = (op_key(mine, i) + 0.5) / 4294967296.0
                at = x * cells
                k = int(at)
                if 0 < k < cells - 1:
                    part = at - k
                    stray = even[which[c], k] + part * (even[which[c], k + 1] - even[which[c], k])
                else:
                    at = (np.log(x / (1 - x)) + reach) * scale
                    k = min(int(at), points - 2)
                    part = at - k
                    stray = tables[which[c], k] + part * (tables[which[c], k + 1] - tables[which[c], k])
                t += drawn[c] * slow[r, stage[i]] * stray
            end[i] = t
            longest = max(longest, t)
        out[r] += longest
    return n


def rate(s: Scenario, seed: int, measured: Any = None) -> float:
    """Tokens a second that count; ``measured`` are the strays of a run, as in ``forecast``."""
    return sketch(s, seed, measured).tokens_per_s


def sketch(s: Scenario, seed: int = 0, measured: Any = None) -> Forecast:
    """A forecast of mean values: every step takes the expected time; where replicas meet at no barrier, the grid is played."""
    p = plan(s)
    if _other_gates(s):
        return forecast(s, count=_few(s), seed=seed, measured=measured)
    mean = mean_step_ns(s, p, seed, measured)
    alone = float(still(s, p).step(np.zeros(1), 0, 0).max())
    return Forecast(
        s.job.world, np.array([mean]), alone + p.sync_ns + p.optimiser_ns, term_ns(s, p, alone, mean), s, _lives(s, mean, seed)
    )


def _other_gates(s: Scenario) -> bool:
    """Whether replicas do anything else than work alike and meet at a barrier every so many steps."""
    p = s.policy
    return p.gate != "barrier" or p.clones > 1 or p.copy_after > 0


def _few(s: Scenario) -> int:
    """Steps of the grid that take about as long as a sample, a few at least."""
    ops = 2 * s.job.pp * s.job.virtual_pp * s.job.micro_batches
    return int(min(max(2 * OPS // (ops * s.job.dp), 8), 50)) * s.job.steps_between_syncs


def mean_step_ns(s: Scenario, p: Plan, seed: int, measured: Any = None) -> float:
    """Expected step: the slowest of the replicas, the synchronisation, the optimiser."""
    strays = b"" if measured is None else np.asarray(measured, float).tobytes()
    return longest_mean(_replica(s, p, seed, strays), s.job.dp) + p.sync_ns + p.optimiser_ns


def _replica(s: Scenario, p: Plan, seed: int, measured: bytes) -> Any:
    """Quantiles at GRID of a replica's mean step between two synchronisations."""
    j = s.job
    fixed, drawn = straying(p)
    layers = max(s.model.layers // len(p.forward_ns), 1)
    parts = tuple(max(n, layers) for n in p.gates)
    shape = (j.schedule, j.pp, j.virtual_pp, j.micro_batches, j.tp * j.cp, j.steps_between_syncs, s.policy.deal_by_speed)
    return _drawn(shape, fixed.tobytes(), drawn.tobytes(), parts, s.noise, seed, measured)


@lru_cache(maxsize=512)
def _drawn(
    shape: tuple[Any, ...], fixed: bytes, drawn: bytes, parts: tuple[int, ...], noise: Noise, seed: int, measured: bytes
) -> Any:  # fmt: skip
    schedule, pp, virtual_pp, micro_batches, members, every, dealt = shape
    todo = program(schedule, pp, virtual_pp, micro_batches)
    many = min(max(OPS // (len(todo) * every), FEWEST), MOST)
    expect(many * every * len(todo))
    tables = np.stack([_table(_alone(noise), members, n, measured) for n in parts])
    even = np.stack([np.interp(np.arange(CELLS + 1) / CELLS, odds(GRID)[0], one) for one in tables])
    sway, out = Sway(noise, (many, pp, members), seed, dealt), np.zeros(many)
    for step in range(every):
        spans(
            todo.before, todo.needs, todo.stage, todo.cell, np.frombuffer(fixed), np.frombuffer(drawn),
            np.repeat(np.arange(2), todo.chunks), tables, even, sway(step), step, seed, POINTS, REACH, out,
        )  # fmt: skip
    return _continued(np.sort(out / every))


def _alone(noise: Noise) -> Noise:
    """What of the noise belongs to single ops: the rest changes no table."""
    return Noise(noise.distribution, noise.spread, noise.tail, times=noise.times)


@lru_cache(maxsize=128)
def _table(noise: Noise, members: int, parts: int, measured: bytes) -> Any:
    return table(noise, members, parts, measured=np.frombuffer(measured), drawn=SUMS)


def _continued(values: Any) -> Any:
    """Quantiles at GRID of sorted draws, their upper end a parabola in normal scores.

    A line is a normal end, a parabola an exponential one; one that would turn down is taken as a line.
    """
    from scipy.special import ndtri, ndtri_exp

    n = len(values)
    chance = (np.arange(n) + 0.5) / n
    out = np.interp(GRID, np.log(chance) - np.log1p(-chance), values)
    few = int(n * TAIL)
    x, y = ndtri(chance[-few:]), values[-few:]
    c, b, a = np.polyfit(x, y, 2)
    if b + 2 * c * FARTHEST < 0:
        c, (b, a) = 0.0, np.polyfit(x, y, 1)
    beyond = np.log(chance[-few]) - np.log1p(-chance[-few]) < GRID
    z = -ndtri_exp(-np.log1p(np.exp(GRID[beyond])))
    out[beyond] = np.maximum(a + b * z + c * z * z, values[-few])
    return out


def _lives(s: Scenario, step_ns: float, seed: int) -> Lives | None:
    """The job's lives, if anything fails; steps that are about as long share their draws: they matter little, or not at all."""
    nodes = nodes_of(s)
    per_s = sum(domain.per_s for domain in domains(s.failure, nodes))
    if per_s == 0:
        return None
    many = int(min(max(FAILURES / (per_s * WORK_S), FEWEST_LIVES), LIVES))
    digits = 2 if s.failure.warmup_share or s.failure.heat_share else 0  # only what comes by and by is counted in steps
    return _lived(s.failure, nodes, s.fabric.node, exp(round(log(step_ns * 1e-9), digits)), many, seed)


@lru_cache(maxsize=2048)
def _lived(failure: Any, nodes: int, devices: int, step_s: float, many: int, seed: int) -> Lives:
    return live(failure, nodes, devices, WORK_S, step_s=step_s, count=many, seed=seed)
