"""The grid: the ranks of a job as an array, simulated step after step without a single edge in memory.

An op adds work, drawn for each; a collective along an axis is a maximum along it; a pipeline hop is a look at another
stage. Tensor-parallel members are drawn together (see ``noise.py``), so the array is stages × replicas, and a step is one
sweep over the program of a replica for each of them. It is the max-plus system of the graph (``full_graph.py``), and gives
its numbers; it stays beside the replay because no edge is in memory.

Every draw is a hash of seed, step, replica and op: the same numbers in any order, on any number of cores, on any device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.jit import expect, kernel
from taut.project.noise import at_even_chances, at_log_odds
from taut.project.training.gates import Gate, barrier
from taut.project.training.pipeline import Program

TOGETHER = 32
"""Replicas whose ops are simulated side by side."""


@kernel()
def mix(x: int) -> int:
    """A hash of 32 bits into 32 bits."""
    # The constants and shifts are those of lowbias32 (C. Wellons, "Prospecting for hash functions", 2018).
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


@kernel()
def step_key(seed: int, step: int) -> int:
    """Where the draws of a step begin."""
    return mix(mix(seed & 0xFFFFFFFF) ^ ((step * 0x9E3779B9) & 0xFFFFFFFF))


@kernel()
def replica_key(key: int, replica: int) -> int:
    """Where the draws of a replica in that step begin."""
    return mix(key ^ ((replica * 0x85EBCA6B + 0x1234567) & 0xFFFFFFFF))


@kernel()
def op_key(key: int, op: int) -> int:
    """The draw of an op of that replica, 32 bits."""
    return mix(key ^ ((op * 0xC2B2AE35) & 0xFFFFFFFF))


@kernel()
def look_up(bits: int, row: int, tables: Floats, even: Floats) -> float:
    """The quantile in a row of the tables that a draw of 32 bits stands for; ``even`` has them at chances that lie evenly.

    Between those no logarithm is needed; the first and the last part, which hold the tails, are looked up in log odds.
    """
    cells, x = even.shape[1] - 1, (bits + 0.5) / 4294967296.0
    at = x * cells
    k = int(at)
    if 0 < k < cells - 1:
        return float(even[row, k] + (at - k) * (even[row, k + 1] - even[row, k]))
    return at_log_odds(tables[row], np.log(x / (1 - x)))


@kernel()
def draw_ratios(keys: Ints, op: int, many: int, row: int, tables: Floats, even: Floats, at: Floats, out: Floats) -> int:
    """``look_up`` of an op's draws of so many replicas, into ``out``; ``at`` is room. Returns how many."""
    cells, mark = even.shape[1] - 1, (op * 0xC2B2AE35) & 0xFFFFFFFF
    for b in range(many):
        # ``op_key`` written out, and apart from what reads tables: so the compiler does several at a time.
        x = int(keys[b]) ^ mark
        x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
        x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
        at[b] = ((x ^ (x >> 16)) + 0.5) / 4294967296.0 * cells
    for b in range(many):
        k = int(at[b])
        if 0 < k < cells - 1:
            out[b] = even[row, k] + (at[b] - k) * (even[row, k + 1] - even[row, k])
        else:
            out[b] = look_up(op_key(int(keys[b]), op), row, tables, even)
    return many


@kernel()
def simulate_step(
    before: Ints,
    needs: Ints,
    stage: Ints,
    cell: Ints,
    fixed: Floats,
    drawn: Floats,
    which: Ints,
    tables: Floats,
    even: Floats,
    hop: Floats,
    slow: Floats,
    turn: Ints,
    added: Floats,
    hit: Ints,
    begin: Floats,
    late: float,
    first: int,
    last: int,
    step: int,
    seed: int,
    ends: Floats,
    work: Floats,
    copied: Floats,
) -> int:
    """One step of replicas first … last: when each of their stages ends, what it drew, what copies of it took
    (``ends``, ``work``, ``copied``; replicas × stages). Returns how many ops were copied.

    Op i takes fixed + drawn × its look-up in a table × what its stage is slower by; if it needs another op it waits for
    that one's end and ``hop``. Pauses of a stage are ``added`` to the op whose turn is ``hit``; where there are none, both
    are empty. One that takes more than ``late`` times its mean is begun again by the same stage of the
    next replica, and whoever is first counts.

    Replicas go op by op, TOGETHER of them side by side: what is the same for all is looked up once, and their hashes are
    computed several at a time.
    """
    n, stages = len(before), ends.shape[1]
    key = step_key(seed, step)
    copies, pauses = 0, len(added) > 0
    keys, last_op = np.empty(TOGETHER, np.int64), np.zeros(stages, np.int64)
    # Ops or stages × replicas that go side by side.
    end, drew, pace = np.empty((n, TOGETHER)), np.empty((stages, TOGETHER)), np.empty((stages, TOGETHER))
    begins, took, at = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER)
    for r in range(first, last, TOGETHER):
        many = min(TOGETHER, last - r)
        for b in range(many):
            keys[b] = replica_key(key, r + b)
            for st in range(stages):
                drew[st, b], pace[st, b] = 0.0, slow[r + b, st]
        for i in range(n):
            c, st, p, u = cell[i], stage[i], before[i], needs[i]
            mean, sure = drawn[c], fixed[c]
            # Max-plus recurrence: an op begins when the op before it on its stage and the op it needs have ended.
            if p >= 0:
                for b in range(many):
                    begins[b] = end[p, b]
            else:
                for b in range(many):
                    begins[b] = begin[r + b]
            if u >= 0:
                for b in range(many):
                    begins[b] = max(begins[b], end[u, b] + hop[i])
            if mean > 0:
                draw_ratios(keys, i, many, which[c], tables, even, at, took)
                for b in range(many):
                    took[b] *= pace[st, b]
                if pauses:
                    for b in range(many):
                        if turn[i] == hit[r + b, st]:
                            took[b] += added[r + b, st] / mean
                if late < np.inf:
                    for b in range(many):
                        # Speculative execution: the copy starts when the op is late, and the earlier end counts.
                        if took[b] > late:
                            again = look_up(op_key(int(keys[b]), n + i), which[c], tables, even)
                            again = min(again * slow[(r + b + 1) % len(slow), st], took[b] - late)
                            took[b] = late + again
                            copied[r + b, st] += mean * again
                            copies += 1
                for b in range(many):
                    took[b] *= mean
            else:
                for b in range(many):
                    took[b] = added[r + b, st] if pauses and turn[i] == hit[r + b, st] else 0.0
            for b in range(many):
                drew[st, b] += took[b]
                end[i, b] = begins[b] + (sure + took[b])
            last_op[st] = i
        for b in range(many):
            for st in range(stages):
                work[r + b, st] += drew[st, b]
                ends[r + b, st] = end[last_op[st], b]
    return copies


Paused = tuple[Floats, Floats]
"""What pauses add to a step, and where in it they lie (0 to 1); replicas × stages."""


NOBODY = np.zeros((0, 0))


class Delays(NamedTuple):
    """What makes a step of groups longer beside their draws; arrays of replicas × stages."""

    slow: Floats
    """How many times as long as usual a group takes."""
    pauses: Paused | None = None


@dataclass(frozen=True)
class SimulatedStep:
    """One step of all replicas, from 0; arrays of replicas × stages, ns."""

    ends: Floats
    work: Floats
    """What was drawn: work without transfers, up to where a copy was quicker."""
    copied: Floats
    """What copies of late ops took, on other devices."""
    delays: Delays


@dataclass(frozen=True)
class Grid:
    """One replica's program with its work, and how many replicas there are."""

    program: Program
    fixed_ns: Floats
    """Per direction and chunk: work that does not stray."""
    drawn_ns: Floats
    """Per direction and chunk: mean of the work that does."""
    tables: Floats
    """Quantiles of the drawn work over its mean, a row per direction."""
    hop_ns: float
    replicas: int
    slow: Callable[[int], Floats] | None = None
    """Of a step: replicas × stages, how many times as long as usual a tensor-parallel group takes."""
    late: float = inf
    """Times its mean that an op may take before another group begins it too."""
    pauses: Callable[[int], Paused] | None = None
    """Of a step: what pauses add; None where nobody pauses."""

    @cached_property
    def even(self) -> Floats:
        """The tables at chances that lie evenly."""
        return np.stack([at_even_chances(row) for row in self.tables])

    def slowness(self, steps: Iterable[int]) -> Floats:
        """Steps × replicas × stages; ones where nothing is slow. Steps are asked for in order."""
        if self.slow is None:
            return np.ones((1, self.replicas, self.program.stages))
        return np.stack([self.slow(int(step)) for step in steps])

    def step(self, begin: Floats, step: int, seed: int, pool: ThreadPoolExecutor | None = None, parts: int = 1) -> Floats:
        """When every stage of every replica ends its ops in one step: replicas × stages."""
        return self.simulate(begin, step, seed, self.delays(step), pool, parts).ends

    def delays(self, step: int) -> Delays:
        """What makes a step of groups longer beside their draws; steps are asked for in order."""
        return Delays(self.slowness([step])[0], None if self.pauses is None else self.pauses(step))

    def simulate(
        self,
        begin: Floats,
        step: int,
        seed: int,
        delays: Delays,
        pool: ThreadPoolExecutor | None = None,
        parts: int = 1,
        some: tuple[int, int] | None = None,
    ) -> SimulatedStep:
        """One step with what it was made of; of all replicas, or of some."""
        p = self.program
        ends, work, copied = np.zeros((3, self.replicas, p.stages))
        added, where = delays.pauses or (NOBODY, NOBODY)
        args = (
            p.before,
            p.needs,
            p.stage,
            p.cell,
            self.fixed_ns.ravel(),
            self.drawn_ns.ravel(),
            np.repeat(np.arange(2), p.chunks),
            self.tables,
            self.even,
            np.where(p.takes, self.hop_ns, 0.0),
            delays.slow,
            p.turn,
            added,
            (where * p.ops_of_stage).astype(np.int64) if len(where) else NOBODY.astype(np.int64),
            begin,
            self.late,
        )
        first, last = some or (0, self.replicas)
        # More parts than cores: replicas differ in how many copies they make, and a late part would hold up the pool.
        parts = min(parts, last - first) if pool else 1
        cuts = [first + (last - first) * k // parts for k in range(parts + 1)]

        def part(k: int) -> int:
            return int(simulate_step(*args, cuts[k], cuts[k + 1], step, seed, ends, work, copied))

        list((pool.map if pool else map)(part, range(parts)))
        return SimulatedStep(ends, work, copied, delays)


@dataclass(frozen=True)
class Sync:
    """How replicas synchronise: at a gate every so many steps; then the optimiser ends the step."""

    gate: Gate = barrier
    every: int = 1
    """Steps from one meeting to the next."""
    sync_ns: float = 0.0
    """Time of a meeting; not of a step."""
    after_ns: float = 0.0
    """Time of the optimiser."""


EACH_STEP = Sync()
# Ops of a step for which threads are worth their while: some milliseconds.
THREADED_OPS = 1_000_000


def steps(
    grid: Grid,
    count: int,
    seed: int = 0,
    sync: Sync = EACH_STEP,
    *,
    cores: int = 1,
    seen: Callable[[SimulatedStep], None] | None = None,
) -> Floats:
    """How long every step takes; ``seen`` is called with what each step was made of.

    A step is as long as the slowest replica's time from the end of the step before; between meetings replicas drift apart.
    """
    ops = grid.replicas * len(grid.program)
    expect(count * ops)
    zero, threads = np.zeros(grid.replicas), cores > 1 and ops > THREADED_OPS

    def ends() -> Iterator[Floats]:
        for k in range(count):
            made = grid.simulate(zero, k, seed, grid.delays(k), pool if threads else None, 4 * cores)
            if seen is not None:
                seen(made)
            yield made.ends

    with ThreadPoolExecutor(cores) as pool:
        return step_lengths(ends(), sync)


def step_lengths(ends: Iterable[Floats], sync: Sync) -> Floats:
    """How long each step takes, of when the stages of every replica end if they begin it at 0.

    Steps are simulated from 0 and put behind one another here, so that times stay short, and exact.
    """
    out, done = [], 0.0
    for _, begin in follow_gates(ends, sync):
        now = float(sync.gate.counts(begin))
        out.append(now - done)
        done = now
    return np.array(out)


def follow_gates(ends: Iterable[Floats], sync: Sync) -> Iterator[tuple[list[Floats] | None, Floats]]:
    """Of every step: the arrivals that its gate looked at (None: no meeting), and when each replica begins the next."""
    met: deque[Floats] = deque(maxlen=sync.gate.past)
    begin = np.zeros(1)
    for k, now in enumerate(ends, 1):
        now = now + begin
        meets = k % sync.every == 0
        if meets:
            met.append(now)
            now = sync.gate.opens(met) + sync.sync_ns
        begin = (now if now.shape[1] == 1 else now.max(axis=1, keepdims=True)) + sync.after_ns
        yield list(met) if meets else None, begin
