"""The grid: the ranks of a job as an array, played step after step without a single edge in memory.

An op adds work, drawn for each; a collective along an axis is a maximum along it; a pipeline hop is a look at another
stage. Tensor-parallel members are drawn together (see ``noise.py``), so the array is stages × replicas, and a step is one
sweep over the program of a replica for each of them. It is the max-plus system of the graph, and gives its numbers.

Every draw is a hash of seed, step, replica and op: the same numbers in any order, on any number of cores, on any device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from taut.core.jit import expect, kernel
from taut.project.noise import POINTS, REACH
from taut.project.training.pipeline import Program


@kernel()
def mix(x: int) -> int:
    """A hash of 32 bits into 32 bits."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


@kernel()
def step_key(seed: Any, step: Any) -> Any:
    """Where the draws of a step begin."""
    return mix(mix(seed & 0xFFFFFFFF) ^ ((step * 0x9E3779B9) & 0xFFFFFFFF))


@kernel()
def replica_key(key: Any, replica: Any) -> Any:
    """Where the draws of a replica in that step begin."""
    return mix(key ^ ((replica * 0x85EBCA6B + 0x1234567) & 0xFFFFFFFF))


@kernel()
def op_key(key: Any, op: Any) -> Any:
    """The draw of an op of that replica, 32 bits."""
    return mix(key ^ ((op * 0xC2B2AE35) & 0xFFFFFFFF))


@kernel()
def look_up(bits: int, row: Any, scale: float, points: int, reach: float) -> float:
    """The quantile in a table that a draw of 32 bits stands for."""
    x = (bits + 0.5) / 4294967296.0
    at = (np.log(x / (1 - x)) + reach) * scale
    k = min(int(at), points - 2)
    part = at - k
    return float((1 - part) * row[k] + part * row[k + 1])


@kernel()
def play(
    before: Any, needs: Any, stage: Any, cell: Any, fixed: Any, drawn: Any, which: Any, tables: Any, hop: Any, slow: Any,
    begin: Any, late: float, first: int, last: int, step: int, seed: int, points: int, reach: float, ends: Any, work: Any,
    copied: Any,
) -> int:  # fmt: skip
    """One step of replicas first … last: when each of their stages ends, what it drew, what copies of it took
    (``ends``, ``work``, ``copied``; replicas × stages). Returns how many ops were copied.

    Op i takes fixed + drawn × its look-up in a table × what its stage is slower by; if it needs another op it waits for
    that one's end and ``hop``. One that takes more than ``late`` times its mean is begun again by the same stage of the
    next replica, and whoever is first counts.
    """
    n = len(before)
    end = np.empty(n)
    key = step_key(seed, step)
    scale = (points - 1) / (2 * reach)
    copies = 0
    for r in range(first, last):
        mine = replica_key(key, r)
        for i in range(n):
            t = begin[r]
            if before[i] >= 0:
                t = end[before[i]]
            u = needs[i]
            if u >= 0:
                t = max(t, end[u] + hop[i])
            c = cell[i]
            took = fixed[c]
            if drawn[c] > 0:
                strays = slow[r, stage[i]] * look_up(op_key(mine, i), tables[which[c]], scale, points, reach)
                if strays > late:
                    again = look_up(op_key(mine, n + i), tables[which[c]], scale, points, reach)
                    again = min(again * slow[(r + 1) % len(slow), stage[i]], strays - late)
                    strays = late + again
                    copied[r, stage[i]] += drawn[c] * again
                    copies += 1
                work[r, stage[i]] += drawn[c] * strays
                took += drawn[c] * strays
            end[i] = t + took
            ends[r, stage[i]] = end[i]
    return copies


@dataclass(frozen=True)
class Played:
    """One step of all replicas, from 0; arrays of replicas × stages, ns."""

    ends: Any
    work: Any
    """What was drawn: work without transfers, up to where a copy was quicker."""
    copied: Any
    """What copies of late ops took, on other devices."""
    slow: Any
    """How many times as long as usual a group took."""


@dataclass(frozen=True)
class Grid:
    """One replica's program with its work, and how many replicas there are."""

    program: Program
    fixed_ns: Any
    """Per direction and chunk: work that does not stray."""
    drawn_ns: Any
    """Per direction and chunk: mean of the work that does."""
    tables: Any
    """Quantiles of the drawn work over its mean, a row per direction."""
    hop_ns: float
    replicas: int
    slow: Callable[[int], Any] | None = None
    """Of a step: replicas × stages, how many times as long as usual a tensor-parallel group takes."""
    late: float = inf
    """Times its mean that an op may take before another group begins it too."""

    def slowness(self, steps: Iterable[int]) -> Any:
        """Steps × replicas × stages; ones where nothing is slow. Steps are asked for in order."""
        if self.slow is None:
            return np.ones((1, self.replicas, self.program.stages))
        return np.stack([self.slow(int(step)) for step in steps])

    def step(self, begin: Any, step: int, seed: int, pool: ThreadPoolExecutor | None = None, parts: int = 1) -> Any:
        """When every stage of every replica ends its ops in one step: replicas × stages."""
        return self.play(begin, step, seed, self.slowness([step])[0], pool, parts).ends

    def play(
        self, begin: Any, step: int, seed: int, slow: Any, pool: ThreadPoolExecutor | None = None, parts: int = 1,
        some: tuple[int, int] | None = None,
    ) -> Played:  # fmt: skip
        """One step with what it was made of; of all replicas, or of some."""
        p = self.program
        ends, work, copied = np.zeros((3, self.replicas, p.stages))
        args = (
            p.before, p.needs, p.stage, p.cell, self.fixed_ns.ravel(), self.drawn_ns.ravel(), np.repeat(np.arange(2), p.chunks),
            self.tables, np.where(p.takes, self.hop_ns, 0.0), slow, begin, self.late,
        )  # fmt: skip
        first, last = some or (0, self.replicas)
        parts = min(parts, last - first) if pool else 1
        cuts = [first + (last - first) * k // parts for k in range(parts + 1)]

        def part(k: int) -> int:
            return int(play(*args, cuts[k], cuts[k + 1], step, seed, POINTS, REACH, ends, work, copied))

        list((pool.map if pool else map)(part, range(parts)))
        return Played(ends, work, copied, slow)


@dataclass(frozen=True)
class Gate:
    """A synchronisation: what it makes of the replicas' arrivals."""

    opens: Callable[[Sequence[Any]], Any]
    """Arrivals (replicas × stages) at the last ``past`` meetings, the latest last → when each may go on."""
    past: int = 1
    counts: Callable[[Any], Any] = np.max
    """When a step counts as done, of when the replicas have done it."""


def fastest(count: int) -> Gate:
    """Everybody waits for the ``count`` fastest; the others are cancelled."""
    return Gate(lambda met: np.broadcast_to(np.partition(met[-1], count - 1, axis=0)[count - 1], met[-1].shape))


def ring(slack: int) -> Gate:
    """Everybody waits for its neighbour only, and only for what that had done ``slack`` meetings ago (1: at this one)."""
    return Gate(lambda met: np.maximum(met[-1], np.roll(met[0], 1, axis=0)) if len(met) == slack else met[-1], slack)


def stale(bound: int) -> Gate:
    """Nobody is more than ``bound`` meetings ahead of the slowest: everybody waits for what all had done so long ago."""
    return Gate(lambda met: np.maximum(met[-1], met[0].max(axis=0)) if len(met) == bound + 1 else met[-1], bound + 1)


barrier = stale(0)
"""Everybody waits for the last."""
free = Gate(lambda met: met[-1], counts=np.mean)
"""Nobody waits: replicas run apart, and as much work as a step has is done when it is on average."""


def hierarchical(group: int, bound: int) -> Gate:
    """Groups of neighbours wait for their last, and for what all had done ``bound`` meetings ago."""

    def opens(met: Sequence[Any]) -> Any:
        now = np.repeat(met[-1].reshape(-1, group, met[-1].shape[1]).max(axis=1), group, axis=0)
        return np.maximum(now, met[0].max(axis=0)) if len(met) == bound + 1 else now

    return Gate(opens, bound + 1)


def first_of(clones: int, gate: Gate) -> Gate:
    """So many neighbours do the same: the first of them counts at the gate, and all go on when it may."""

    def firsts(arrived: Any) -> Any:
        return arrived.reshape(-1, clones, arrived.shape[1]).min(axis=1)

    return Gate(lambda met: np.repeat(gate.opens([firsts(a) for a in met]), clones, axis=0), gate.past, gate.counts)


def steps(
    grid: Grid, count: int, seed: int = 0, *, gate: Gate = barrier, every: int = 1, sync_ns: float = 0.0, after_ns: float = 0.0,
    cores: int = 1, seen: Callable[[Played], None] | None = None,
) -> Any:  # fmt: skip
    """How long every step takes: replicas meet at the gate every so many steps; then the optimiser, which ends the step.

    A step is as long as the slowest replica's time from the end of the step before; between meetings replicas drift apart.
    ``seen`` is shown what each step was made of.
    """
    expect(count * grid.replicas * len(grid.program))
    zero = np.zeros(grid.replicas)

    def each() -> Iterator[Any]:
        for k in range(count):
            made = grid.play(zero, k, seed, grid.slowness([k])[0], pool if cores > 1 else None, 4 * cores)
            if seen is not None:
                seen(made)
            yield made.ends

    with ThreadPoolExecutor(cores) as pool:
        return behind(each(), gate, every, sync_ns, after_ns)


def behind(played: Iterable[Any], gate: Gate, every: int, sync_ns: float, after_ns: float) -> Any:
    """Steps played from 0 put behind one another (times stay short, and exact): how long each takes."""
    out, done = [], 0.0
    for _, begin in along(played, gate, every, sync_ns, after_ns):
        now = float(gate.counts(begin))
        out.append(now - done)
        done = now
    return np.array(out)


def along(
    played: Iterable[Any], gate: Gate, every: int, sync_ns: float, after_ns: float
) -> Iterator[tuple[Sequence[Any] | None, Any]]:
    """Of every step: the arrivals that its gate looked at (None: no meeting), and when each replica begins the next."""
    met: deque[Any] = deque(maxlen=gate.past)
    begin: Any = 0.0
    for k, ends in enumerate(played, 1):
        ends = ends + begin
        meets = k % every == 0
        if meets:
            met.append(ends)
            ends = gate.opens(met) + sync_ns
        begin = ends.max(axis=1, keepdims=True) + after_ns
        yield list(met) if meets else None, begin
