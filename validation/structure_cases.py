"""Losses that nobody in particular causes, simulated here, given to `taut analyze` and `taut whatif`, held against the truth.

    python validation/structure_cases.py --seed 1 [--only NAME …] [--keep FOLDER]

Nothing of taut is imported. A job is played step by step, all ranks at once: ops of random length, hiccups of given laws,
gates at which a group goes on when its last member has come. The same random numbers are played again without the hiccups,
without the culprits, with a policy (local steps, semi-synchronous), and with two and four times the ranks.

What is held against it, each a check of its own; a case is right if all of its checks are:

class      the class of the verdict is one of those that fit
find       every culprit is named (by ranks, host or where); nobody else is
instability  the finding is there (or is not)
loss       its interval meets the true loss: between what is saved without the hiccups and the rank time spent waiting for the
           late (culprits mended), each with 5 %
growth     the same at two and four times the ranks, from runs of that size
ledger     closes; no fault wait without a located finding; with one, no more than what its mending takes from the waits
fail-on    `--fail-on 0.03` exits 3 where a finding recovers 3 %, else 0
policy     what is saved, as a ratio of walls, within 2 % of the policy actually played
refused    one line, an exit code that is not 0, no traceback
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

T0 = 1_700_000_000_000_000_000
MS = 1_000_000
Array = np.ndarray[Any, Any]
Law = Callable[[np.random.Generator, int, int, int], Array]
"""(random numbers, steps, ranks, ranks a host) → ms by which each rank is late in each step."""


# --- laws of hiccups ---------------------------------------------------------------------------------------------------


def sizes(rng: np.random.Generator, law: str, ms: float, count: int) -> Array:
    """Lengths of mean `ms` (of a Pareto law: of least `ms`)."""
    if law == "pareto":
        return np.asarray(np.minimum(ms * (1 + rng.pareto(1.6, count)), 40 * ms))
    return rng.exponential(ms, count) if law == "exponential" else np.full(count, ms)


def hiccups(rate: float, ms: float, law: str = "constant", lasting: float = 1.0) -> Law:
    """Each rank by itself; `lasting` is the mean number of consecutive steps."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        late = np.zeros((steps, ranks))
        for s, r in zip(*np.nonzero(rng.random((steps, ranks)) < rate), strict=True):
            for k in range(int(rng.geometric(1 / lasting))):
                if s + k < steps:
                    late[s + k, r] += sizes(rng, law, ms, 1)[0]
        return late

    return draw


def host_hiccups(rate: float, ms: float) -> Law:
    """All ranks of a host at once."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        hosts = -(-ranks // per)
        late = np.where(rng.random((steps, hosts)) < rate, rng.exponential(ms, (steps, hosts)), 0.0)
        return np.asarray(np.repeat(late, per, axis=1)[:, :ranks])

    return draw


def bursts(rate: float, ms: float, share: float, times: float) -> Law:
    """In stretches of ten steps that make up `share` of the run, everybody hiccups `times` as often."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        hot = np.repeat(rng.random(-(-steps // 10)) < share, 10)[:steps]
        return np.where(rng.random((steps, ranks)) < rate * np.where(hot, times, 1.0)[:, None], ms, 0.0)

    return draw


def every(n: int, ms: float, phase: str) -> Law:
    """Collections of garbage, every n steps: all `together`, each by itself (`apart`), or by `host`."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        at = rng.integers(0, n, ranks)
        at = at[(np.arange(ranks) // per) * per] if phase == "host" else at if phase == "apart" else np.zeros(ranks, int)
        return np.where((np.arange(steps)[:, None] + at) % n == 0, ms * rng.normal(1, 0.02, (steps, ranks)), 0.0)

    return draw


def at_ranks(some: Sequence[int], law: Law) -> Law:
    """The law, at these ranks only."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        late = law(rng, steps, ranks, per)
        late[:, [r for r in range(ranks) if r not in set(some)]] = 0
        return late

    return draw


def in_turn(some: Sequence[int], law: Law) -> Law:
    """The law, at one rank after the other, each for an equal part of the run."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        late = law(rng, steps, ranks, per)
        whose = np.array(some)[np.arange(steps) * len(some) // steps]
        return np.where(np.arange(ranks) == whose[:, None], late, 0.0)

    return draw


def once(rank: int, step: int, ms: float) -> Law:
    """One long stall."""

    def draw(rng: np.random.Generator, steps: int, ranks: int, per: int) -> Array:
        late = np.zeros((steps, ranks))
        late[step, rank] = ms
        return late

    return draw


# --- jobs --------------------------------------------------------------------------------------------------------------


@dataclass
class Job:
    shape: str = "ddp"
    ranks: int = 64
    steps: int = 300
    seed: int = 1
    per_host: int = 8
    noise: float = 0.015
    noise_law: str = "normal"
    """normal, lognormal, or ar1 (from step to step, 0.9)."""
    hiccup: Law | None = None
    """What nobody in particular does."""
    fault: Law | None = None
    """What a culprit does, ms."""
    slow: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Rank → (share slower, since which step)."""
    where: str = "forward"
    """Where hiccups lie: an op (forward, backward), or a gap."""
    unequal: float = 0.0
    drift: float = 0.0
    wire_ms: float = 2.0
    wire_jitter: float = 0.0
    """Mean of an exponential extra time of a transfer, the same for all members, ms."""
    tp: int = 4
    stages: int = 4

    def draw(self, key: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(key.encode())])

    def factor(self, key: str) -> Array:
        """Of every op's length: [step, rank]."""
        z = self.draw(key).standard_normal((self.steps, self.ranks))
        if self.noise_law == "ar1":
            for s in range(1, self.steps):
                z[s] = 0.9 * z[s - 1] + np.sqrt(1 - 0.81) * z[s]
        return np.asarray(np.exp(self.noise * z) if self.noise_law == "lognormal" else np.maximum(1 + self.noise * z, 0.2))


@dataclass
class Policy:
    local: int = 1
    offset: int = 0
    stale: int = 0
    backup: int = 0
    """Of all ranks at one gate, the slowest that are abandoned when the others meet."""


class Play:
    """One run: clocks of both lanes of every rank, the ops if they are kept, and what was waited for at gates."""

    def __init__(self, job: Job, policy: Policy | None = None, keep: bool = False) -> None:
        self.job, self.policy, self.keep = job, policy or Policy(), keep
        n = job.ranks
        self.main, self.comm = np.zeros(n), np.zeros(n)
        self.rows: list[dict[str, Any]] = []
        self.came: dict[tuple[int, str, int], Array] = {}
        self.turn: dict[str, int] = {}
        self.waited = 0.0
        self.done: list[float] = []
        """When the last rank was done with each step."""
        own = 1 + job.unequal * job.draw("own").standard_normal(n)
        grow = 1 + job.drift * np.arange(job.steps) / max(job.steps - 1, 1)
        self.pace = grow[:, None] * own
        for rank, (share, since) in job.slow.items():
            self.pace[since:, rank] *= 1 + share
        self.late = np.zeros((job.steps, n))
        for key, law in (("hiccup", job.hiccup), ("fault", job.fault)):
            if law is not None:
                self.late += law(job.draw(key), job.steps, n, job.per_host)
        wire = np.full((job.steps, 16), job.wire_ms) * job.draw("wire").normal(1, 0.02, (job.steps, 16))
        self.wire = wire + (job.draw("net").exponential(job.wire_jitter, (job.steps, 16)) if job.wire_jitter else 0.0)
        self.noises: dict[str, Array] = {}
        self.shape = SHAPES[job.shape]
        for step in range(job.steps):
            self.meeting = 0
            self.shape(self, step)
            self.done.append(float(max(self.main.max(), self.comm.max())))
        self.wall = float(max(self.main.max(), self.comm.max()))

    def note(self, who: Array, step: int, name: str, start: Array, end: Array, **more: Any) -> None:
        """Keep an op of these ranks; `more`: lane, group, seq, size, peer, part."""
        if self.keep:
            self.rows.append({"who": who, "step": step, "name": name, "start": start.copy(), "took": end - start, **more})

    def length(self, step: int, name: str, ms: float, who: Array) -> Array:
        if name not in self.noises:
            self.noises[name] = self.job.factor(name)
        return np.asarray(ms * self.noises[name][step, who] * self.pace[step, who])

    def work(self, step: int, name: str, ms: float, *, first: bool = False) -> None:
        who = np.arange(self.job.ranks)
        gap = np.full(len(who), 0.05)
        took = self.length(step, name, ms, who)
        if first and self.job.where == "gap":
            gap = gap + self.late[step]
        elif (first and self.job.where == "forward") or (name.startswith("backward") and self.job.where == "backward"):
            took = took + self.late[step]
        start = self.main + gap
        self.main = start + took
        self.note(who, step, name, start, self.main)

    def meet(self, step: int, name: str, of: Array, prefix: str, mb: float, *, data: bool, lane: str = "main") -> None:
        """Members of a group go on when the last has come and the transfer is done; `data` gates obey the policy."""
        slot, self.meeting = self.meeting, self.meeting + 1
        policy = self.policy
        if data and (step + 1 + policy.offset) % policy.local:
            return
        who = np.arange(self.job.ranks)
        start = (np.maximum(self.main, self.comm) if lane == "comm" else self.main) + 0.02
        last = np.full(int(of.max()) + 1, -np.inf)
        np.maximum.at(last, of, start)
        took = self.wire[step, slot % 16] * mb / 40
        if data and policy.backup:
            last[:] = np.sort(start)[-1 - policy.backup]
        if data and policy.stale:
            self.came[step, prefix, slot] = last
            before = self.came.pop((step - policy.stale, prefix, slot), None)
            end = np.maximum(start, before[of] if before is not None else start) + took
        else:
            end = last[of] + took
            self.waited += float(np.maximum(last[of] - start, 0).sum()) if lane == "main" else 0.0
        if self.keep:
            for g in range(len(last)):
                some = who[of == g]
                label = f"{prefix}{g}" if len(last) > 1 else prefix
                seq = self.turn.get(label, 0)
                self.turn[label] = seq + 1
                more = {"lane": lane, "group": label, "seq": seq, "size": int(mb * 1e6)}
                self.note(some, step, name, start[some], end[some], **more)
        if lane == "comm":
            self.comm = end
        else:
            self.main = end

    def join(self) -> None:
        self.waited += float(np.maximum(self.comm - self.main, 0).sum())
        self.main = np.maximum(self.main, self.comm)


def ddp(p: Play, s: int) -> None:
    p.work(s, "forward", 40, first=True)
    p.work(s, "backward", 55)
    p.meet(s, "all-reduce", np.zeros(p.job.ranks, int), "world", 40, data=True)
    p.work(s, "optimizer", 3)


def several(p: Play, s: int) -> None:
    p.work(s, "forward", 40, first=True)
    for k in range(4):
        p.work(s, f"backward{k}", 14)
        p.meet(s, "all-reduce", np.zeros(p.job.ranks, int), "world", 20, data=True)
    p.work(s, "optimizer", 3)


def overlapped(p: Play, s: int) -> None:
    p.work(s, "forward", 40, first=True)
    for k in range(4):
        p.work(s, f"backward{k}", 14)
        p.meet(s, "all-reduce", np.zeros(p.job.ranks, int), "world", 60, data=True, lane="comm")
    p.join()
    p.work(s, "optimizer", 3)


def tensor_data(p: Play, s: int) -> None:
    who, tp = np.arange(p.job.ranks), p.job.tp
    p.work(s, "forward", 40, first=True)
    p.meet(s, "all-reduce", who // tp, "tp", 10, data=False)
    p.work(s, "backward", 55)
    p.meet(s, "all-reduce", who // tp, "tp", 10, data=False)
    p.meet(s, "grads-all-reduce", who % tp, "dp", 40, data=True)
    p.work(s, "optimizer", 3)


def fsdp(p: Play, s: int) -> None:
    world = np.zeros(p.job.ranks, int)
    for k in range(2):
        p.meet(s, "all-gather", world, "world", 10, data=False)
        p.work(s, f"forward{k}", 20, first=k == 0)
    for k in range(2):
        p.meet(s, "all-gather", world, "world", 10, data=False)
        p.work(s, f"backward{k}", 27)
        p.meet(s, "reduce-scatter", world, "world", 10, data=False)
    p.work(s, "optimizer", 3)


def pipeline(p: Play, s: int) -> None:
    """All forwards, then all backwards; rank = replica · stages + stage; then the all-reduce of a stage's ranks."""
    job, micro = p.job, 4
    pp = job.stages
    base = np.arange(0, job.ranks, pp)

    def compute(name: str, ms: float, stage: int, part: int) -> None:
        who = base + stage
        extra = p.late[s, who] if name == "forward-compute" and part == 0 else 0.0
        gap = 0.05 + (extra if job.where == "gap" else 0.0)
        took = p.length(s, f"{name}{part}", ms, who) + (extra if job.where != "gap" else 0.0)
        start = p.main[who] + gap
        p.main[who] = start + took
        p.note(who, s, name, start, p.main[who], part=part)

    def hop(name: str, a: int, b: int, part: int) -> None:
        one, two = base + a, base + b
        left, right = p.main[one] + 0.02, p.main[two] + 0.02
        end = np.maximum(left, right) + 0.3
        p.waited += float((end - 0.3 - left).sum() + (end - 0.3 - right).sum())
        p.main[one] = p.main[two] = end
        p.note(one, s, f"{name}-send", left, end, size=4_000_000, peer=two, part=part)
        p.note(two, s, f"{name}-recv", right, end, size=4_000_000, peer=one, part=part)

    for m in range(micro):
        for k in range(pp):
            if k:
                hop("forward", k - 1, k, m)
            compute("forward-compute", 6, k, m)
    for m in range(micro):
        for k in reversed(range(pp)):
            if k < pp - 1:
                hop("backward", k + 1, k, m)
            compute("backward-compute", 10, k, m)
    if job.ranks > pp:
        p.meet(s, "grads-all-reduce", np.arange(job.ranks) % pp, "dp", 40, data=True)
    p.work(s, "optimizer", 3)


SHAPES: dict[str, Callable[[Play, int], None]] = {
    "ddp": ddp,
    "several": several,
    "overlapped": overlapped,
    "tensor": tensor_data,
    "fsdp": fsdp,
    "pipeline": pipeline,
}


def write(play: Play, path: Path, *, ranks: set[int] | None = None, each: int = 1, clock: float = 0.0) -> None:
    """The op table, of all or some ranks, of every n-th step, with clocks of hosts off by up to so many ms."""
    job = play.job
    rows = [row for row in play.rows if row["step"] % each == 0]
    counts = [len(row["who"]) for row in rows]
    who = np.concatenate([row["who"] for row in rows])
    off = job.draw("clock").uniform(-clock, clock, 1 + job.ranks // job.per_host)[who // job.per_host]
    start = T0 + np.round((np.concatenate([row["start"] for row in rows]) + off) * MS).astype(np.int64)

    def words(key: str, other: str | None) -> Any:
        return pa.array(np.repeat(np.array([row.get(key, other) for row in rows], dtype=object), counts), pa.string())

    def whole(key: str) -> Any:
        some = np.concatenate([np.broadcast_to(row.get(key, -1), len(row["who"])) for row in rows]).astype(np.int64)
        return pa.array(some, pa.int64(), mask=some < 0)

    table: dict[str, Any] = {
        "rank": who,
        "step": whole("step"),
        "class": words("name", ""),
        "start_ns": start,
        "duration_ns": np.round(np.concatenate([row["took"] for row in rows]) * MS).astype(np.int64),
        "lane": words("lane", "main"),
        "group": words("group", None),
        "seq": whole("seq"),
        "bytes": whole("size"),
        "host": pa.array([f"node{h}" for h in who // job.per_host]),
    }
    if job.shape == "pipeline":
        table |= {"stage": who % job.stages, "dp_rank": who // job.stages, "peer": whole("peer"), "microbatch": whole("part")}
    made = pa.table(table)
    if ranks is not None:
        made = made.filter(pa.array(np.isin(who, sorted(ranks))))
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(made, path)
    else:
        pyarrow.parquet.write_table(made, path)


# --- truth -------------------------------------------------------------------------------------------------------------


@dataclass
class Truth:
    wall: float
    lost: float
    """Of the wall, without the hiccups."""
    waiting: float
    """Of the rank time, at gates, culprits mended."""
    culprit: float
    """Of the wall, with the culprits mended."""


def healthy(job: Job) -> Job:
    return replace(job, hiccup=None, fault=None, slow={})


def truth(job: Job) -> Truth:
    real, no_fault, clean = Play(job), Play(replace(job, fault=None, slow={})), Play(healthy(job))
    return Truth(
        real.wall,
        1 - clean.wall / no_fault.wall,
        no_fault.waited / (job.ranks * no_fault.wall),
        1 - no_fault.wall / real.wall,
    )


def policy_walls(job: Job, name: str, value: int) -> float:
    """Of a run with the policy over one without; of local steps from meeting to meeting, wherever blocks begin."""
    usual = Play(job).done
    if name == "backup-workers":  # by the sample
        return Play(job, Policy(backup=value)).done[-1] / usual[-1] * job.ranks / (job.ranks - value)
    if name == "semi-synchronous":
        return Play(job, Policy(stale=value)).done[-1] / usual[-1]
    ratios = []
    for offset in range(value):
        changed = Play(job, Policy(value, offset)).done
        meetings = [s for s in range(job.steps) if (s + 1 + offset) % value == 0]
        first, last = meetings[0], meetings[-1]
        ratios.append((changed[last] - changed[first]) / (usual[last] - usual[first]))
    return float(np.mean(ratios))


# --- cases -------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    job: Job
    classes: str
    """Classes that fit, by their first letters: s(tructural) c(omponent) h(ealthy) u(nknown)."""
    instability: bool | None
    """Whether the finding must be there; None: either."""
    culprits: frozenset[int] = frozenset()
    growth: bool = False
    policies: tuple[str, ...] = ()
    refuse: tuple[str, ...] = ()
    ranks: int = 0
    """Keep every n-th rank only."""
    each: int = 1
    clock: float = 0.0
    csv: bool = False
    optional: bool = False
    """Naming nobody is right too."""
    fail: int | None = None
    advice: bool = False
    fix: str = ""
    """With the first policy: what is mended before, as `taut whatif --fix` takes it."""


def cases(seed: int) -> dict[str, Case]:
    def job(shape: str = "ddp", ranks: int = 64, steps: int = 300, **more: Any) -> Job:
        return Job(shape, ranks, steps, seed, **more)

    usual = hiccups(0.003, 150)
    both = ("local-steps=4", "semi-synchronous=2")
    no = frozenset[int]()
    one = frozenset[int]
    return {
        "hiccups, 64 ranks": Case(job(hiccup=usual), "s", True, growth=True, policies=both, fail=3),
        "hiccups as gaps, 128 ranks": Case(
            job(ranks=128, hiccup=usual, where="gap"), "s", True, growth=True, policies=both, fail=3
        ),
        "hiccups in backward, 512 ranks": Case(
            job(ranks=512, steps=120, hiccup=usual, where="backward"), "s", True, growth=True, policies=both, fail=3
        ),
        "exponential sizes, 256 ranks": Case(
            job(ranks=256, steps=150, hiccup=hiccups(0.002, 100, "exponential")), "s", True, growth=True, policies=both, fail=3
        ),
        "Pareto sizes": Case(job(hiccup=hiccups(0.006, 50, "pareto")), "s", True, growth=True, policies=both, fail=3),
        "hiccups that last three steps": Case(
            job(hiccup=hiccups(0.0015, 120, lasting=3)), "s", True, growth=True, policies=both
        ),
        "hiccups in bursts": Case(job(hiccup=bursts(0.001, 150, 0.2, 12)), "s", True, policies=both, fail=3),
        "collections of garbage together": Case(job(hiccup=every(20, 80, "together")), "h", False, fail=0),
        "collections of garbage apart": Case(job(hiccup=every(150, 120, "apart")), "s", True, policies=both, fail=3),
        "collections of garbage by host": Case(job(hiccup=every(50, 120, "host")), "s", True, policies=both, fail=3),
        "whole hosts hiccup, all alike": Case(
            job(ranks=128, hiccup=host_hiccups(0.02, 120)), "s", True, growth=True, policies=both, fail=3
        ),
        "two hosts": Case(job(ranks=16, steps=400, hiccup=hiccups(0.01, 150)), "s", True, growth=True, policies=both, fail=3),
        "one rank a host": Case(
            job(ranks=32, per_host=1, hiccup=hiccups(0.006, 150)), "s", True, growth=True, policies=both, fail=3
        ),
        "4 ranks": Case(job(ranks=4, steps=400, per_host=4, hiccup=hiccups(0.05, 150)), "su", None, policies=both),
        "1,000 ranks, 50 steps": Case(job(ranks=1000, steps=50, hiccup=hiccups(0.0006, 150)), "s", True, growth=True, fail=3),
        "1,000 healthy ranks, 50 steps": Case(job(ranks=1000, steps=50, noise=0.03), "h", False, fail=0),
        "clocks off by 8 ms": Case(job(hiccup=usual), "s", True, clock=8.0, growth=True, policies=both, fail=3),
        "tensor and data parallel": Case(
            job("tensor", hiccup=usual), "s", True, growth=True, policies=both, refuse=("packed", "ring"), fail=3
        ),
        "tensor and data parallel, healthy": Case(job("tensor"), "h", False, fail=0),
        "pipeline and replicas": Case(job("pipeline", steps=250, hiccup=usual), "s", None, policies=both, fail=3),
        "pipeline and replicas, healthy": Case(job("pipeline", ranks=32, steps=150), "hs", False),
        "four all-reduces a step": Case(job("several", steps=200, hiccup=usual), "s", True, growth=True, policies=both, fail=3),
        "buckets beside backward": Case(
            job("overlapped", steps=200, hiccup=usual), "s", True, growth=True, policies=both, fail=3
        ),
        "buckets beside backward, gaps": Case(
            job("overlapped", steps=200, hiccup=usual, where="gap"), "s", True, growth=True, policies=both, fail=3
        ),
        "buckets beside backward, healthy": Case(job("overlapped", steps=200), "h", False, fail=0),
        "FSDP": Case(
            job("fsdp", steps=200, hiccup=usual),
            "s",
            True,
            growth=True,
            refuse=("local-steps=4", "semi-synchronous=2"),
            fail=None,
        ),
        "FSDP, healthy": Case(job("fsdp", ranks=32, steps=200), "h", False, refuse=("local-steps=4",), fail=0),
        "a slow rank and hiccups": Case(
            job(hiccup=usual, slow={5: (0.3, 0)}), "cs", True, one({5}), growth=True, policies=both, fail=3
        ),
        "a rank that becomes slow, and hiccups": Case(
            job(hiccup=usual, slow={5: (0.3, 150)}), "cs", True, one({5}), policies=both, fail=3
        ),
        "two slow ranks and hiccups": Case(
            job(hiccup=usual, slow={5: (0.3, 0), 40: (0.3, 150)}), "cs", True, one({5, 40}), fail=3
        ),
        "two slow ranks": Case(job(slow={5: (0.2, 0), 40: (0.25, 150)}), "c", False, one({5, 40}), fail=3),
        "a slow rank, tensor parallel, and hiccups": Case(
            job("tensor", hiccup=usual, slow={9: (0.25, 0)}), "cs", True, one({9}), policies=both, fail=3
        ),
        "a slow rank, overlapped, and hiccups": Case(
            job("overlapped", steps=200, hiccup=usual, slow={9: (0.3, 100)}), "cs", True, one({9}), policies=both, fail=3
        ),
        "one rank of 8 hiccups 30 times as often": Case(
            job(ranks=8, steps=400, hiccup=hiccups(0.003, 150), fault=at_ranks([3], hiccups(0.087, 150))),
            "c",
            False,
            one({3}),
            fail=3,
        ),
        "one rank of 64 hiccups 30 times as often": Case(
            job(hiccup=usual, fault=at_ranks([3], hiccups(0.087, 150))), "cs", None, one({3}), fail=3
        ),
        "a host that hiccups": Case(
            job(fault=at_ranks(range(16, 24), host_hiccups(0.12, 120))), "c", False, one(range(16, 24)), fail=3
        ),
        "a host that hiccups, and all hiccup": Case(
            job(hiccup=hiccups(0.002, 150), fault=at_ranks(range(16, 24), host_hiccups(0.12, 120))),
            "cs",
            None,
            one(range(16, 24)),
            fail=3,
        ),
        "one long stall": Case(job(steps=200, fault=once(17, 90, 3000)), "cu", False, one({17}), optional=True),
        "12 steps": Case(job(steps=12, hiccup=usual), "u", False, no),
        "40 steps of 16 ranks": Case(job(ranks=16, steps=40, hiccup=hiccups(0.006, 200)), "uh", False, no),
        "half of the ranks": Case(job(hiccup=usual), "su", None, no, ranks=2),
        "every tenth step": Case(
            job(steps=3000, ranks=32, hiccup=hiccups(0.006, 150)),
            "s",
            True,
            each=10,
            growth=True,
            refuse=("local-steps=4", "semi-synchronous=2"),
            fail=None,
        ),
        "normal, 5 %": Case(job(noise=0.05), "h", False, csv=True, fail=0),
        "lognormal, 6 %": Case(job(ranks=32, noise=0.06, noise_law="lognormal"), "h", False, csv=True, fail=0),
        "lognormal, 6 %, 256 ranks": Case(job(ranks=256, steps=100, noise=0.06, noise_law="lognormal"), "h", False, fail=0),
        "follows itself (AR 1), 4 %": Case(job(noise=0.04, noise_law="ar1"), "h", False, fail=0),
        "ranks unequal for good": Case(job(ranks=32, unequal=0.03), "hs", False),
        "ranks unequal for good, and hiccups": Case(job(ranks=64, unequal=0.02, hiccup=usual), "s", True, fail=3),
        "all drift": Case(job(drift=0.25), "hus", False),
        "transfers that vary": Case(job(ranks=32, wire_ms=6, wire_jitter=10), "hsu", False),
        "transfers that vary, and hiccups": Case(job(wire_ms=6, wire_jitter=6, hiccup=usual), "s", True, policies=both, fail=3),
        # Written after the method was read.
        "two hosts of 32 ranks": Case(job(per_host=32, hiccup=usual), "s", True, fail=3),
        "three ranks of 64 hiccup, the others do not": Case(
            job(fault=at_ranks([3, 20, 41], hiccups(0.08, 150))), "c", False, one({3, 20, 41}), fail=3
        ),
        "two hosts of eight hiccup, the others do not": Case(
            job(fault=at_ranks([*range(8, 16), *range(40, 48)], host_hiccups(0.08, 120))),
            "c",
            False,
            one([*range(8, 16), *range(40, 48)]),
            fail=3,
        ),
        "first one rank hiccups, then another": Case(
            job(fault=in_turn([3, 40], hiccups(0.2, 150))), "c", False, one({3, 40}), fail=3
        ),
        "transfers that vary more than hiccups cost": Case(
            job(wire_ms=6, wire_jitter=25, hiccup=usual), "s", True, policies=("semi-synchronous=2",), fail=3
        ),
        "gaps, few steps": Case(job(steps=20, hiccup=usual, where="gap"), "u", False),
        "two ranks": Case(job(ranks=2, steps=400, per_host=1, hiccup=hiccups(0.06, 300)), "su", None),
        "4 ranks, few episodes": Case(job(ranks=4, steps=100, per_host=1, hiccup=hiccups(0.035, 400)), "su", None),
        "three hosts, few episodes": Case(job(ranks=24, steps=80, hiccup=hiccups(0.008, 300)), "su", None),
        "backups": Case(job(hiccup=usual), "s", True, policies=("backup-workers=1", "backup-workers=4"), fail=3),
        "advice": Case(job(hiccup=hiccups(0.004, 120, "exponential")), "s", True, advice=True, fail=3),
        "mended, then local steps": Case(
            job(hiccup=usual, slow={5: (0.3, 0)}), "cs", True, one({5}), policies=("local-steps=4",), fix="rank=5", fail=3
        ),
        "every tenth step, 16 ranks": Case(
            job(steps=1000, ranks=16, per_host=4, hiccup=hiccups(0.01, 150)), "su", None, each=10
        ),
        "FSDP, advice": Case(job("fsdp", ranks=16, steps=100, per_host=4), "h", False, refuse=("--advice",)),
        "quiet": Case(
            job(noise=0.005),
            "h",
            False,
            refuse=("local-steps=0", "local-steps=-3", "local-steps=1000", "nonsense", "packed"),
            fail=0,
        ),
    }


# --- judging -----------------------------------------------------------------------------------------------------------


@dataclass
class Judged:
    checks: list[tuple[str, bool, str]] = field(default_factory=list)
    cpu: float = 0.0

    def add(self, check: str, right: bool, why: str) -> None:
        self.checks.append((check, bool(right), why))


def call(command: list[str], judged: Judged) -> tuple[int, str, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    judged.cpu = max(judged.cpu, took)
    return done.returncode, done.stdout, done.stderr


def judge(case: Case, folder: Path, taut: list[str]) -> tuple[Judged, str]:
    judged = Judged()
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / ("ops.csv" if case.csv else "ops.parquet")
    play = Play(case.job, keep=True)
    write(
        play,
        table,
        ranks=set(range(0, case.job.ranks, case.ranks)) if case.ranks else None,
        each=case.each,
        clock=case.clock,
    )
    known = truth(case.job)
    code, out, err = call(
        [*taut, "analyze", str(table), "-o", str(folder / "run"), "--json", "--fail-on", "0.03", "--gpu-hour", "2EUR"], judged
    )
    (folder / "result.json").write_text(out)
    told = f"true: hiccups {known.lost:.1%}, waiting {known.waiting:.1%}, culprits {known.culprit:.1%}; "
    if code not in (0, 3) or "Traceback" in err:
        judged.add("runs", False, f"exit {code}: {' '.join(err.split())[-200:]}")
        return judged, told
    result = json.loads(out)
    findings = result["findings"]
    wall = result["job"]["wall_ns"]
    said = "; ".join(f"{f['mode']} {place(f)} {f['recoverable_wall_ns'] / wall:.1%}" for f in findings)
    told += f"said: {result['verdict']['class']}" + (f": {said}" if said else "")
    verdicts(case, result, known, judged)
    if case.fail is not None:
        judged.add("fail-on", code == case.fail, f"exit {code}, should be {case.fail}")
    unstable = next((f for f in findings if f["mode"] == "structural instability"), None)
    if unstable is not None and case.instability:
        losses(case, unstable, known, judged)
    ledger(case, result, known, judged)
    for policy in case.policies:
        replayed(case, policy, folder, taut, judged)
    if case.advice:
        advised(case, folder, taut, judged)
    for policy in case.refuse:
        asked = [policy] if policy.startswith("--") else ["--policy", policy]
        code, out, err = call([*taut, "whatif", str(folder / "run"), *asked, "-q"], judged)
        lines = [line for line in err.splitlines() if line.strip()]
        usage = bool(lines) and lines[0].startswith("Usage")
        fine = code != 0 and "Traceback" not in err and (len(lines) == 1 or usage)
        judged.add("refused", fine, f"{policy}: exit {code}, {len(lines)} lines: {err.strip()[:160]}")
    return judged, told


def place(finding: dict[str, Any]) -> str:
    ranks = finding["ranks"]
    shown = ",".join(map(str, ranks[:6])) + ("…" if len(ranks) > 6 else "")
    return (
        " ".join(filter(None, [f"ranks {shown}" if ranks else "", finding["where"] or "", ",".join(finding["links"][:3])]))
        or "–"
    )


def verdicts(case: Case, result: dict[str, Any], known: Truth, judged: Judged) -> None:
    kind, findings = result["verdict"]["class"], result["findings"]
    judged.add("class", kind[0] in case.classes, f"{kind}, should be {case.classes}")
    found = any(f["mode"] == "structural instability" for f in findings)
    if case.instability is not None:
        judged.add("instability", found == case.instability, "found" if found else "not found")
    located = {r for f in findings for r in f["ranks"]}
    wrong = located - case.culprits
    links = [one for f in findings for one in f["links"]]
    judged.add("innocent", not wrong and not links, f"accuses ranks {sorted(wrong)[:8]} links {links[:3]}")
    if case.culprits and not (case.optional and not located):
        missed = case.culprits - located
        judged.add("culprit", not missed, f"misses ranks {sorted(missed)}")
        if not missed:
            wall = result["job"]["wall_ns"]
            some = [f["recoverable_wall_ns"] / wall for f in findings if f["ranks"]]
            # Two that hide each other are worth more together than one by one.
            together = (result["recoverable_wall_ns"] or 0) / wall
            gain = together if len(some) > 1 and not found else sum(some)
            off = abs(gain - known.culprit)
            judged.add("recovers", off <= max(0.15 * known.culprit, 0.01), f"{gain:.1%}, truth {known.culprit:.1%}")


def meets(estimate: dict[str, Any], a: float, b: float) -> bool:
    low, high = 0.95 * min(a, b), 1.05 * max(a, b)
    lo, hi = estimate.get("lo"), estimate.get("hi")
    lo, hi = (estimate["value"] if lo is None else lo), (estimate["value"] if hi is None else hi)
    return bool(lo <= high and hi >= low)


def losses(case: Case, finding: dict[str, Any], known: Truth, judged: Judged) -> None:
    share = finding["loss_share"]
    if share is None:
        judged.add("loss", False, "null")
    else:
        whole = 1 - known.culprit  # culprits' part of the wall is not in it
        fine = meets(share, known.lost * whole, known.waiting * whole) or meets(share, known.lost, known.waiting)
        judged.add("loss", fine, f"{shown(share)}, truth {known.lost:.1%} to {known.waiting:.1%}")
    if not case.growth:
        return
    if not finding["growth"]:
        judged.add("growth", False, "null")
        return
    for times in (2, 4):
        at = next((g for g in finding["growth"] if g["ranks"] == times * case.job.ranks), None)
        if at is None:
            judged.add("growth", False, f"none at {times} ×: {[g['ranks'] for g in finding['growth']]}")
            continue
        seeds = [case.job.seed + 1000 + k for k in range(4)]
        base = replace(case.job, fault=None, slow={}, ranks=times * case.job.ranks, steps=min(case.job.steps, 300))
        some = [truth(replace(base, seed=k)) for k in seeds]
        a, b = float(np.mean([t.lost for t in some])), float(np.mean([t.waiting for t in some]))
        judged.add("growth", meets(at["loss_share"], a, b), f"{times} ×: {shown(at['loss_share'])}, truth {a:.1%} to {b:.1%}")


def shown(estimate: dict[str, Any]) -> str:
    lo, hi = estimate.get("lo"), estimate.get("hi")
    return f"{estimate['value']:.1%}" + (f" ({lo:.1%}–{hi:.1%})" if lo is not None and hi is not None else "")


def ledger(case: Case, result: dict[str, Any], known: Truth, judged: Judged) -> None:
    book = result["ledger"]
    entries = {e["fate"]: e["rank_ns"] for e in book["entries"]}
    judged.add("closes", book["closes"] and sum(entries.values()) == book["total_rank_ns"], "does not close")
    fault = entries.get("fault wait", 0) / max(book["total_rank_ns"], 1)
    located = [f for f in result["findings"] if f["mode"] != "structural instability"]
    if not located:
        judged.add("fault wait", fault == 0, f"{fault:.1%} without a located finding")
    elif case.culprits:
        # A rank that mending shortens by x makes the others wait x less.
        most = 1.15 * known.culprit + 0.01
        judged.add("fault wait", fault <= most, f"{fault:.1%}, culprits cost {known.culprit:.1%}")


def replayed(case: Case, policy: str, folder: Path, taut: list[str], judged: Judged) -> None:
    name, value = policy.split("=")
    mended = replace(case.job, fault=None, slow={}) if case.fix else case.job
    real = policy_walls(mended, name, int(value))
    fix = ["--fix", case.fix] if case.fix else []
    code, out, err = call([*taut, "whatif", str(folder / "run"), *fix, "--policy", policy, "--json", "-q"], judged)
    if code != 0:
        judged.add("policy", False, f"{policy}: exit {code}: {' '.join(err.split())[:160]}; true saving {1 - real:.1%}")
        return
    answer = json.loads(out)
    saved = answer["policies"][0]["saved_share"]
    value_said = saved["value"] if isinstance(saved, dict) else saved
    if answer["policies"][0]["kind"] != "exact":
        fine = saved["lo"] - 0.005 <= 1 - real <= saved["hi"] + 0.005
        judged.add("range", fine, f"{policy}: saves {shown(saved)}, truth {1 - real:.1%}")
        return
    judged.add(
        "policy",
        abs((1 - value_said) / real - 1) <= 0.02,
        f"{policy}: saves {shown(saved) if isinstance(saved, dict) else saved}, truth {1 - real:.1%}",
    )


def advised(case: Case, folder: Path, taut: list[str], judged: Judged) -> None:
    """Every exact policy of the advice against its play; none staler than was allowed."""
    code, out, err = call([*taut, "whatif", str(folder / "run"), "--advice", "--staleness", "4", "--json", "-q"], judged)
    if code != 0:
        judged.add("advice", False, f"exit {code}: {' '.join(err.split())[:160]}")
        return
    exact = [one for one in json.loads(out)["policies"] if one["kind"] == "exact"]
    judged.add("advice", bool(exact) and all(one["staleness_steps"] <= 4 for one in exact), f"{[one['name'] for one in exact]}")
    for one in exact:
        name, value = one["name"].split("=")
        real = policy_walls(case.job, name, int(value))
        fine = abs((1 - one["saved_share"]["value"]) / real - 1) <= 0.02
        judged.add("policy", fine, f"{one['name']}: saves {shown(one['saved_share'])}, truth {1 - real:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=None, help="names of cases, or regular expressions")
    parser.add_argument("--keep", type=Path, help="folder for tables and results; they are deleted if none is given")
    parser.add_argument("--taut", default=f"{shlex.quote(sys.executable)} -m taut", help="command to run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as fresh:
        run(given, given.keep or Path(fresh))


def run(given: argparse.Namespace, folder: Path) -> None:
    """Judge the cases that are asked for, a line each."""
    right = total = good = checks = 0
    slow = []
    for name, case in cases(given.seed).items():
        if given.only and not any(re.fullmatch(one, name) for one in given.only):
            continue
        try:
            judged, told = judge(case, folder / re.sub(r"\W+", "-", name), shlex.split(given.taut))
        except subprocess.TimeoutExpired:
            judged, told = Judged([("runs", False, "no answer in 600 s")], 600.0), ""
        wrong = [f"{check}: {why}" for check, fine, why in judged.checks if not fine]
        total, right = total + 1, right + (not wrong)
        checks, good = checks + len(judged.checks), good + len(judged.checks) - len(wrong)
        if judged.cpu > 20:
            slow.append(f"{name} ({judged.cpu:.0f} s)")
        print(f"{'WRONG' if wrong else 'right'} | {name} | {told} | {'; '.join(wrong)} | {judged.cpu:.0f} s", flush=True)
    print(f"{right} of {total} cases right, {good} of {checks} checks; over 20 s: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
