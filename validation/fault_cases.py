"""Cases of faults and of healthy noise, simulated here, given to `taut analyze`, and held against the simulation's truth.

    python validation/fault_cases.py --seed 1 [--only NAME …] [--keep FOLDER]

Nothing of taut is imported. A job is a list of ops per rank and lane; `play` is a max-plus simulation in which collectives are
played chunk by chunk (rings, trees, pairwise all-to-all) over links of given rates. A case is played twice on the same random
numbers, with the fault and without: the difference is what mending it saves. Traces are written as op tables (CSV), as Kineto
JSON of a device, as step times, or as flight-recorder dumps.

What counts as right, by what a case wants:

find       the first finding names the place (`also`: other places that would do), no finding names anybody else, what it
           recovers is within 10 % of the truth (or 1 % of the wall clock), and its price is that share of the bill
maybe      the same, or no finding and a class other than healthy: the data may not tell
unknown    no finding and class unknown: the data cannot tell
nobody     no rank and no link is accused; findings without a place are allowed
quiet      no finding at all
refused    the baseline does not fit and is refused in words, no traceback
hang       the first finding is a hang of exactly these ranks
no hang    no finding is a hang

Everywhere: never healthy where mending saves 3 % or more (`lenient` cases, whose loss is nobody's, excepted).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MS = 1e6
RATE = 2.0
"""EUR per rank and hour."""
T0 = 1_700_000_000_000_000_000


# --- faults ------------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """What is true of the machines: how long work, transfers and pauses take beside their healthy time."""

    work: Callable[[int, int], float] = lambda rank, step: 1.0
    """Factor of a rank's compute in a step."""
    pause: Callable[[int, int], float] = lambda rank, step: 0.0
    """Idle ms before a rank's step."""
    link: Callable[[int, int, int], float] = lambda source, sink, step: 1.0
    """Factor of a link in a step."""
    stall: Callable[[int, int, int], float] = lambda source, sink, step: 0.0
    """ms by which one chunk on a link is held up, once in a step."""


def slow(ranks: Iterable[int], by: float, since: int = 0) -> World:
    some = set(ranks)
    return World(work=lambda r, s: 1 + by if r in some and s >= since else 1.0)


def slow_link(links: Iterable[tuple[int, int]], times: float, since: int = 0) -> World:
    some = set(links)
    return World(link=lambda a, b, s: times if (a, b) in some and s >= since else 1.0)


def both(*worlds: World) -> World:
    return World(
        work=lambda r, s: float(np.prod([w.work(r, s) for w in worlds])),
        pause=lambda r, s: sum(w.pause(r, s) for w in worlds),
        link=lambda a, b, s: float(np.prod([w.link(a, b, s) for w in worlds])),
        stall=lambda a, b, s: sum(w.stall(a, b, s) for w in worlds),
    )


# --- jobs --------------------------------------------------------------------------------------------------------------


@dataclass
class Do:
    rank: int
    step: int
    name: str
    ms: float = 0.0
    lane: str = "main"
    kind: str = "work"
    """work, meet (a collective), send, recv"""
    group: str = ""
    size: int = -1
    peer: int = -1
    part: int = -1
    algorithm: str = "ring"
    after: int = -1
    """Op that must have ended (another lane)."""
    idle: float = 0.0
    seq: int = -1
    start: float = -1.0
    end: float = -1.0


@dataclass
class Job:
    """A job under construction; the random numbers drawn do not depend on the world."""

    ranks: int
    steps: int
    seed: int
    world: World = field(default_factory=World)
    hosts: dict[int, str] = field(default_factory=dict)
    noise: float = 0.02
    unequal: np.ndarray | None = None
    """Factor of every rank's work, for good."""
    draw_work: Callable[[np.random.Generator], float] | None = None
    between_hosts: float = 1.0
    """Factor of links between hosts."""
    order: list[int] | None = None
    """Ring order of the group of all ranks."""
    loops: int = 1
    """Pieces in which a ring sends its buffer, one after the other."""
    pieces: int = 2
    """Slices of a chunk: one is passed on while the next comes (NCCL: two; MPI's rings: one)."""
    room: int = 2
    """Chunks that a receiver has room for beside what it holds: so many its sender is ahead at the end (NCCL: two)."""
    gb_s: float = 10.0
    stage: dict[int, int] = field(default_factory=dict)
    dp_rank: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.ops: list[Do] = []
        self.groups: dict[str, list[int]] = {"world": list(range(self.ranks))}
        self.habit = self.rng.uniform(0, 0.2, self.ranks)
        self.shared = 1 + 0.01 * self.rng.standard_normal(self.steps)
        self.noise_of: dict[tuple[str, int], np.ndarray] = {}
        self.counts: dict[tuple[str, int], int] = defaultdict(int)
        self.last: dict[tuple[int, str], int] = {}
        if not self.hosts:
            self.hosts = dict.fromkeys(range(self.ranks), "node0")

    def work(
        self, rank: int, step: int, name: str, ms: float, *, first: bool = False, lane: str = "main", part: int = -1
    ) -> int:
        noisy = self.draw_work(self.rng) if self.draw_work else float(np.exp(self.noise * self.rng.standard_normal()))
        own = 1.0 if self.unequal is None else float(self.unequal[rank])
        took = ms * noisy * own * self.shared[step] * self.world.work(rank, step)
        idle = 0.05 + (self.world.pause(rank, step) if first else 0.0)
        return self._add(Do(rank, step, name, took, lane, idle=idle, part=part))

    def meet(
        self,
        ranks: list[int],
        step: int,
        name: str,
        mb: float,
        *,
        group: str = "world",
        algorithm: str = "ring",
        lane: str = "main",
        after: dict[int, int] | None = None,
    ) -> None:
        self.groups.setdefault(group, ranks)
        for rank in ranks:
            seq = self.counts[group, rank]
            self.counts[group, rank] += 1
            one = Do(rank, step, name, 0.0, lane, "meet", group, int(mb * 1e6), algorithm=algorithm, seq=seq, idle=0.02)
            one.after = (after or {}).get(rank, -1)
            self._add(one)
        self.noise_of[group, seq] = self.rng.standard_normal((2, max(64, len(ranks))))

    def hop(self, rank: int, step: int, name: str, verb: str, peer: int, mb: float, part: int) -> None:
        self._add(Do(rank, step, name, 0.0, "main", verb, "", int(mb * 1e6), peer, part, idle=0.02))

    def _add(self, one: Do) -> int:
        self.ops.append(one)
        return len(self.ops) - 1

    # Links: what a message of some bytes takes, ms.
    def crossing(self, a: int, b: int, step: int, size: float) -> float:
        far = self.between_hosts if self.hosts[a] != self.hosts[b] else 1.0
        return (0.01 + size / (self.gb_s * 1e6)) * far * self.world.link(a, b, step)

    def play(self) -> Job:
        """Start and end of every op."""
        queues: dict[tuple[int, str], list[int]] = defaultdict(list)
        for i, op in enumerate(self.ops):
            queues[op.rank, op.lane].append(i)
        meets: dict[Any, list[int]] = defaultdict(list)
        turn: dict[Any, int] = defaultdict(int)
        key_of: dict[int, Any] = {}
        for i, op in enumerate(self.ops):
            if op.kind == "meet":
                key_of[i] = (op.group, op.seq)
            elif op.kind in ("send", "recv"):
                ends = (op.rank, op.peer) if op.kind == "send" else (op.peer, op.rank)
                key_of[i] = ("hop", *ends, op.name.replace("recv", "send"), turn[ends, op.kind, op.rank, op.name])
                turn[ends, op.kind, op.rank, op.name] += 1
            else:
                continue
            meets[key_of[i]].append(i)
        head = dict.fromkeys(queues, 0)
        free: dict[Any, float] = defaultdict(float)
        moved = True
        while moved:
            moved = False
            for lane, queue in queues.items():
                while head[lane] < len(queue):
                    i = queue[head[lane]]
                    op = self.ops[i]
                    if op.start < 0:
                        if op.after >= 0 and self.ops[op.after].end < 0:
                            break
                        ready = free[lane] if op.after < 0 else max(free[lane], self.ops[op.after].end)
                        op.start = ready + op.idle
                        moved = True
                    if op.kind == "work":
                        op.end = op.start + op.ms
                    elif op.end < 0:
                        some = [self.ops[j] for j in meets[key_of[i]]]
                        if any(one.start < 0 for one in some):
                            break
                        self._transfer(some, key_of[i])
                    free[lane] = op.end
                    head[lane] += 1
                    moved = True
        stuck = [self.ops[q[head[lane]]] for lane, q in queues.items() if head[lane] < len(q)]
        if stuck:
            raise ValueError(f"these wait for ever: {stuck[:2]}")
        return self

    def _transfer(self, some: list[Do], key: Any) -> None:
        first = some[0]
        if first.kind != "meet":
            source, sink = (first.rank, first.peer) if first.kind == "send" else (first.peer, first.rank)
            took = self.crossing(source, sink, first.step, first.size) + self.world.stall(source, sink, first.step)
            end = max(one.start for one in some) + took
            for one in some:
                one.end = end + 0.01
            return
        members = self.groups[first.group]
        place = {r: i for i, r in enumerate(members)}
        some = sorted(some, key=lambda one: place[one.rank])
        arrive = np.array([one.start for one in some])
        noise = self.noise_of[key]
        ends = getattr(self, f"_{first.algorithm}")(members, arrive, first, noise)
        jitter = 0.05 * np.abs(noise[1][: len(members)])
        for one, end, extra in zip(some, ends, jitter, strict=True):
            one.end = float(end + extra + self.habit[one.rank])

    def _ring(self, members: list[int], arrive: np.ndarray, op: Do, noise: np.ndarray) -> np.ndarray:
        """Each rank passes on what it got, piece by piece; a sender may be `room` chunks ahead of its receiver."""
        around = [members.index(r) for r in self.order] if op.group == "world" and self.order else list(range(len(members)))
        n = len(around)
        rounds = (2 if "reduce" in op.name and "scatter" not in op.name else 1) * (n - 1) * self.loops
        piece = op.size / n / self.loops / self.pieces
        ranks = [members[i] for i in around]
        into = np.array([self.crossing(ranks[k - 1], ranks[k], op.step, piece) for k in range(n)])  # link into position k
        stall = np.array([self.world.stall(ranks[k - 1], ranks[k], op.step) for k in range(n)])
        into = into * (1 + 0.02 * noise[0][:n])
        begin = arrive[around]
        got = [begin] * self.pieces  # when each piece of the round before was there
        link, before = np.maximum(begin, np.roll(begin, 1)), [begin]
        for k in range(rounds):
            new = []
            for p in range(self.pieces):
                # The piece is there and the link is free; both ends have come.
                link = np.maximum(np.roll(got[p], 1), link) + into + (stall if k == rounds // 2 and p == 0 else 0.0)
                new.append(link)
            before, got = [*before[1 - self.room :], got[-1]] if self.room > 1 else [got[-1]], new
        done = np.maximum(got[-1], np.roll(before[0], -1))  # the receiver has room for the last chunk
        out = np.empty(n)
        out[around] = done
        return out

    def _tree(self, members: list[int], arrive: np.ndarray, op: Do, noise: np.ndarray) -> np.ndarray:
        """Reduce up a binary tree, then broadcast down, in eight pieces."""
        n, pieces = len(members), 8
        piece = op.size / pieces
        up = np.zeros((n, pieces))
        down = np.zeros((n, pieces))
        wire: dict[tuple[int, int], float] = {}

        def send(a: int, b: int, at: float) -> float:
            begin = max(at, wire.get((a, b), 0.0), arrive[b])
            wire[a, b] = begin + self.crossing(members[a], members[b], op.step, piece) * (1 + 0.02 * noise[0][b])
            return wire[a, b]

        for p in range(pieces):
            for i in reversed(range(n)):
                up[i, p] = max([arrive[i], *(send(c, i, up[c, p]) for c in (2 * i + 1, 2 * i + 2) if c < n)])
        for p in range(pieces):
            down[0, p] = up[0, p]
            for i in range(1, n):
                down[i, p] = send((i - 1) // 2, i, down[(i - 1) // 2, p])
        return down[:, -1]

    def _pairs(self, members: list[int], arrive: np.ndarray, op: Do, noise: np.ndarray) -> np.ndarray:
        """All-to-all: in round k everybody sends to the k-th after him; sending and receiving are serial."""
        n = len(members)
        out, into = arrive.copy(), arrive.copy()
        for k in range(1, n):
            begin = [max(out[i], into[(i + k) % n]) for i in range(n)]
            for i in range(n):
                j = (i + k) % n
                end = begin[i] + self.crossing(members[i], members[j], op.step, op.size / n) * (1 + 0.02 * noise[0][i])
                out[i], into[j] = end, max(into[j], end)
        return np.maximum(out, into)

    def _star(self, members: list[int], arrive: np.ndarray, op: Do, noise: np.ndarray) -> np.ndarray:
        """A switch: all end together."""
        took = max(self.crossing(a, b, op.step, op.size) for a, b in zip(members, members[1:] + members[:1], strict=True))
        return np.full(len(members), arrive.max() + took * (1 + 0.02 * noise[0][0]))

    @property
    def wall(self) -> float:
        return max(op.end for op in self.ops)


def ddp(j: Job, *, fwd: float = 40, bwd: float = 25, mb: float = 60, algorithm: str = "ring") -> Job:
    """Forward, two halves of backward with an all-reduce behind each, optimiser; one lane."""
    every = range(j.ranks)
    for s in range(j.steps):
        for r in every:
            j.work(r, s, "forward", fwd, first=True)
        for half in range(2):
            for r in every:
                j.work(r, s, f"backward{half}", bwd)
            j.meet(list(every), s, "all-reduce", mb if half == 0 else mb / 6, algorithm=algorithm)
        for r in every:
            j.work(r, s, "optimizer", 5)
    return j.play()


def overlapped(j: Job, *, mb: float = 60) -> Job:
    """As ddp, all-reduces in a lane of their own beside backward; the optimiser waits for both."""
    every = range(j.ranks)
    for s in range(j.steps):
        for r in every:
            j.work(r, s, "forward", 40, first=True)
        ends: dict[int, int] = {}
        for half in range(3):
            ends = {r: j.work(r, s, f"backward{half}", 20) for r in every}
            j.meet(list(every), s, "all-reduce", mb / 3, lane="comm", after=ends)
        comm = {r: max(i for i, op in enumerate(j.ops) if op.rank == r and op.lane == "comm") for r in every}
        for r in every:
            k = j.work(r, s, "optimizer", 5)
            j.ops[k].after = comm[r]
    return j.play()


def fsdp(j: Job, *, mb: float = 40) -> Job:
    every = range(j.ranks)
    for s in range(j.steps):
        for phase, ms in (("forward", 15), ("backward", 30)):
            for layer in range(2):
                j.meet(list(every), s, "all-gather", mb)
                for r in every:
                    j.work(r, s, f"{phase}{layer}", ms, first=phase == "forward" and layer == 0)
                if phase == "backward":
                    j.meet(list(every), s, "reduce-scatter", mb)
        for r in every:
            j.work(r, s, "optimizer", 4)
    return j.play()


def tensor_data(j: Job, tp: int) -> Job:
    """Four layers with an all-reduce of the tensor-parallel group (a switch), then a ring of the data-parallel group."""
    dp = j.ranks // tp
    for s in range(j.steps):
        for layer in range(4):
            for r in range(j.ranks):
                j.work(r, s, f"layer{layer}", 18, first=layer == 0)
            for d in range(dp):
                j.meet(list(range(d * tp, d * tp + tp)), s, "all-reduce", 4, group=f"tp{d}", algorithm="star")
        for t in range(tp):
            j.meet(list(range(t, j.ranks, tp)), s, "all-reduce", 40, group=f"dp{t}")
        for r in range(j.ranks):
            j.work(r, s, "optimizer", 4)
    return j.play()


def pipeline(j: Job, pp: int, micro: int = 6, scale: Callable[[int], float] = lambda stage: 1.0) -> Job:
    """All forwards, then all backwards, rank = dp · pp + stage; then the ring of a stage's ranks."""
    dp = j.ranks // pp
    j.stage = {r: r % pp for r in range(j.ranks)}
    j.dp_rank = {r: r // pp for r in range(j.ranks)}
    for s in range(j.steps):
        for r in range(j.ranks):
            p = r % pp
            for m in range(micro):
                if p > 0:
                    j.hop(r, s, "forward-recv", "recv", r - 1, 4, m)
                j.work(r, s, "forward-compute", 6 * scale(p), first=m == 0, part=m)
                if p < pp - 1:
                    j.hop(r, s, "forward-send", "send", r + 1, 4, m)
            for m in range(micro):
                if p < pp - 1:
                    j.hop(r, s, "backward-recv", "recv", r + 1, 4, m)
                j.work(r, s, "backward-compute", 12 * scale(p), part=m)
                if p > 0:
                    j.hop(r, s, "backward-send", "send", r - 1, 4, m)
        if dp > 1:
            for p in range(pp):
                j.meet(list(range(p, j.ranks, pp)), s, "grads-all-reduce", 20, group=f"stage{p}")
        for r in range(j.ranks):
            j.work(r, s, "optimizer", 3)
    return j.play()


def experts(j: Job, *, spread: float = 0.0, mb: float = 60) -> Job:
    """Dispatch and combine as all-to-all around an expert whose load is drawn anew, then a data-parallel ring."""
    every = list(range(j.ranks))
    for s in range(j.steps):
        for r in every:
            j.work(r, s, "attention", 30, first=True)
        j.meet(every, s, "all-to-all", mb, algorithm="pairs")
        for r in every:
            j.work(r, s, "expert", 30 * (1 + spread * float(j.rng.uniform(-1, 1))))
        j.meet(every, s, "all-to-all", mb, algorithm="pairs")
        for r in every:
            j.work(r, s, "backward", 30)
        j.meet(every, s, "all-reduce", 30)
    return j.play()


def hierarchical(j: Job, per: int) -> Job:
    """Reduce-scatter in the host, all-reduce over hosts, all-gather in the host."""
    hosts = j.ranks // per
    for s in range(j.steps):
        for r in range(j.ranks):
            j.work(r, s, "forward", 30, first=True)
            j.work(r, s, "backward", 50)
        for h in range(hosts):
            j.meet(list(range(h * per, h * per + per)), s, "reduce-scatter", 60, group=f"host{h}")
        for k in range(per):
            j.meet(list(range(k, j.ranks, per)), s, "all-reduce", 30, group=f"cross{k}")
        for h in range(hosts):
            j.meet(list(range(h * per, h * per + per)), s, "all-gather", 60, group=f"host{h}")
    return j.play()


# --- writers -----------------------------------------------------------------------------------------------------------


def op_table(
    j: Job,
    folder: Path,
    *,
    drop: tuple[str, ...] = (),
    only: set[int] | None = None,
    label: Any = None,
    skew: dict[str, float] | None = None,
) -> None:
    """One CSV of all ranks; columns in `drop` are left out; `label` renames ranks; `skew` moves hosts' clocks (ms)."""
    columns = ["rank", "step", "class", "start_ns", "duration_ns", "lane", "group", "seq", "bytes", "peer", "host"]
    columns += ["stage", "dp_rank"] if j.stage else []
    columns += ["microbatch"] if any(op.part >= 0 for op in j.ops) else []
    columns = [c for c in columns if c not in drop]
    name = label or (lambda r: r)
    with (folder / "ops.csv").open("w", newline="") as file:
        write = csv.DictWriter(file, columns, extrasaction="ignore")
        write.writeheader()
        for op in j.ops:
            if only is not None and op.rank not in only:
                continue
            off = (skew or {}).get(j.hosts[op.rank], 0.0)
            write.writerow(
                {
                    "rank": name(op.rank),
                    "step": op.step,
                    "class": op.name,
                    "start_ns": T0 + round((op.start + off) * MS),
                    "duration_ns": round((op.end - op.start) * MS),
                    "lane": op.lane,
                    "group": op.group,
                    "seq": op.seq if op.seq >= 0 else "",
                    "bytes": op.size if op.size >= 0 else "",
                    "peer": name(op.peer) if op.peer >= 0 else "",
                    "host": j.hosts[op.rank],
                    "stage": j.stage.get(op.rank, ""),
                    "dp_rank": j.dp_rank.get(op.rank, ""),
                    "microbatch": op.part if op.part >= 0 else "",
                }
            )


KERNEL = {
    "all-reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "all-gather": "ncclDevKernel_AllGather_RING_LL",
    "reduce-scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "all-to-all": "ncclDevKernel_SendRecv",
}
WORD = {"all-reduce": "allreduce", "all-gather": "_allgather_base", "reduce-scatter": "_reduce_scatter_base"}


def kineto(j: Job, folder: Path, *, only: set[int] | None = None) -> None:
    """One file a rank: the host launches a step's kernels at once and waits for the device at its end."""
    groups = [
        {"pg_name": name, "pg_desc": name, "backend_config": "cuda:nccl", "pg_size": len(some), "ranks": some}
        for name, some in j.groups.items()
    ]
    for r in range(j.ranks):
        if only is not None and r not in only:
            continue
        mine = [op for op in j.ops if op.rank == r]
        events: list[dict[str, Any]] = []

        def add(cat: str, name: str, ts: float, dur: float, pid: int, tid: int, args: Any, to: Any = events) -> None:
            to.append(
                {
                    "ph": "X",
                    "cat": cat,
                    "name": name,
                    "pid": pid,
                    "tid": tid,
                    "ts": round(ts * 1000, 3),
                    "dur": round(dur * 1000, 3),
                    "args": args,
                }
            )

        correlation = 0
        for s in range(j.steps):
            ops = [op for op in mine if op.step == s]
            begin, end = min(op.start for op in ops) - 0.04, max(op.end for op in ops)
            add("user_annotation", f"ProfilerStep#{s}", begin, end - begin + 0.005, 1, 1, {})
            for k, op in enumerate(sorted(ops, key=lambda op: op.start)):
                correlation += 1
                at = begin + 0.002 * (k + 1)
                add("cuda_runtime", "cudaLaunchKernel", at, 0.001, 1, 1, {"correlation": correlation})
                stream = 7 if op.lane == "main" else 20
                args: dict[str, Any] = {"correlation": correlation, "device": 0, "stream": stream}
                name = f"gemm_{op.name}"
                if op.kind == "meet":
                    name = KERNEL[op.name]
                    args |= {
                        "Collective name": WORD[op.name],
                        "Process Group Name": op.group,
                        "dtype": "BFloat16",
                        "In msg nelems": op.size // 2,
                        "Out msg nelems": op.size // 2,
                        "Seq": op.seq,
                        "Group size": len(j.groups[op.group]),
                        "Process Group Ranks": str(j.groups[op.group]),
                    }
                add("kernel", name, op.start, op.end - op.start, 0, stream, args)
            correlation += 1
            wait = begin + 0.002 * (len(ops) + 2)
            add("cuda_runtime", "cudaDeviceSynchronize", wait, end + 0.003 - wait, 1, 1, {"correlation": correlation})
        info = {"backend": "nccl", "rank": r, "world_size": j.ranks, "pg_count": len(groups), "pg_config": groups}
        document = {
            "schemaVersion": 1,
            "host_name": j.hosts[r],
            "distributedInfo": info,
            "baseTimeNanoseconds": T0,
            "traceEvents": events,
        }
        (folder / f"rank{r}.json").write_text(json.dumps(document))


def step_times(j: Job, folder: Path) -> None:
    """What each worker computed in each step, ms."""
    with (folder / "steps.csv").open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["worker", "step", "step_time_ms"])
        for s in range(j.steps):
            for r in range(j.ranks):
                mine = [op for op in j.ops if op.rank == r and op.step == s and op.kind == "work"]
                write.writerow([r, s, round(sum(op.ms + op.idle for op in mine), 4)])


def dumps(
    j: Job,
    folder: Path,
    *,
    at: float = 1e18,
    lost: Iterable[int] = (),
    stopped: dict[int, float] | None = None,
    ahead: int = 0,
    tail: str = "",
) -> None:
    """Flight recorders at a time: a host makes a call when the op before it ended; `stopped` ranks make none after a time.

    With `stopped`, whoever waits for a stopped rank stays in its call, and hosts go on enqueuing `ahead` more calls.
    """
    stuck: dict[tuple[str, int], bool] = {}
    frozen = dict(stopped or {})
    calls = sorted((op for op in j.ops if op.kind == "meet"), key=lambda op: (op.start, op.seq))
    blocked: set[int] = set()
    made: dict[int, list[tuple[Do, bool]]] = defaultdict(list)
    by_key: dict[tuple[str, int], list[Do]] = defaultdict(list)
    for op in calls:
        by_key[op.group, op.seq].append(op)
    for key, some in sorted(by_key.items(), key=lambda item: max(op.start for op in item[1])):
        missing = any((op.rank in frozen and op.start >= frozen[op.rank]) or op.rank in blocked for op in some)
        for op in some:
            gone = op.rank in frozen and op.start >= frozen[op.rank]
            late = sum(not done for _, done in made[op.rank])
            if gone or op.start > at or (op.rank in blocked and late > ahead):
                continue
            made[op.rank].append((op, bool(not missing and op.end <= at and op.rank not in blocked)))
        if missing:
            blocked |= {op.rank for op in some}
            stuck[key] = True
    for r in range(j.ranks):
        if r in set(lost):
            continue
        names = [g for g, some in j.groups.items() if r in some]
        entries = [
            {
                "record_id": i,
                "pg_id": names.index(op.group),
                "process_group": [op.group, "pg"],
                "collective_seq_id": op.seq + 1,
                "p2p_seq_id": 0,
                "profiling_name": "nccl:" + op.name.replace("-", "_"),
                "is_p2p": False,
                "time_created_ns": T0 + round(op.start * MS),
                "input_sizes": [[op.size // 2]],
                "state": "completed" if done else "scheduled",
                "retired": done,
            }
            for i, (op, done) in enumerate(made[r])
        ]
        status = {}
        for k, g in enumerate(names):
            mine = [(op, done) for op, done in made[r] if op.group == g]
            over = [op.seq + 1 for op, done in mine if done]
            status[str(k)] = {
                "last_enqueued_collective": mine[-1][0].seq + 1 if mine else -1,
                "last_completed_collective": over[-1] if over else -1,
            }
        config = {g: {"name": g, "desc": "pg", "ranks": str(j.groups[g])} for g in names}
        document = {
            "version": "2.9",
            "nccl_version": "2.21",
            "rank": r,
            "pg_config": config,
            "pg_status": status,
            "entries": entries,
        }
        (folder / f"dump{tail}_{r}").write_text(json.dumps(document))


# --- cases -------------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    want: str
    make: Callable[[World], Job]
    """A job of a world; with the healthy one the same random numbers."""
    world: World = field(default_factory=World)
    write: Callable[[Job, Path], None] = op_table
    ranks: frozenset[int] = frozenset()
    links: frozenset[str] = frozenset()
    host: str = ""
    """Its name must be said."""
    mode: str = ""
    also: Callable[[dict[str, Any]], bool] | None = None
    """Other right places of a finding."""
    baseline: Callable[[], Job] | None = None
    baseline_write: Callable[[Job, Path], None] = op_table
    lenient: bool = False
    free: bool = False
    """What it recovers is not held against the truth (the remedy is ambiguous, or the format has no times)."""
    note: str = ""


def hosts_of(ranks: int, per: int) -> dict[int, str]:
    return {r: f"node{r // per}" for r in range(ranks)}


def links(*some: str) -> frozenset[str]:
    return frozenset(some)


def nic(rank: int) -> Callable[[dict[str, Any]], bool]:
    """A finding of the interface of a rank: links that all end there, or the rank itself."""

    def touches(f: dict[str, Any]) -> bool:
        return bool(f["links"]) and all(str(rank) in one.split(":") for one in f["links"])

    return touches


def cases(seed: int) -> dict[str, Case]:
    """All of them; `seed` moves every random number."""
    c: dict[str, Case] = {}
    base = seed * 1000

    def job(n: int, steps: int = 16, **more: Any) -> Callable[[World], Job]:
        number = base + len(c)
        return lambda world: Job(n, steps, number, world, **more)

    def of(shape: Callable[..., Job], maker: Callable[[World], Job], **more: Any) -> Callable[[World], Job]:
        return lambda world: shape(maker(world), **more)

    # Links and rings.
    eight = hosts_of(8, 1)
    c["ring8-link"] = Case("find", of(ddp, job(8, hosts=eight)), slow_link([(3, 4)], 4), links=links("3:4"))
    c["ring8-link-fsdp"] = Case("find", of(fsdp, job(8, hosts=eight)), slow_link([(6, 7)], 3), links=links("6:7"))
    c["ring8-link-kineto"] = Case("find", of(ddp, job(8, hosts=eight)), slow_link([(5, 6)], 4), kineto, links=links("5:6"))
    c["ring8-link-loops4"] = Case(
        "maybe",
        of(ddp, job(8, hosts=eight, loops=4), mb=240),
        slow_link([(3, 4)], 4),
        links=links("3:4"),
        note="the buffer goes round four times, as NCCL's does",
    )
    c["ring8-link-whole-chunks"] = Case(
        "find",
        of(ddp, job(8, hosts=eight, pieces=1)),
        slow_link([(3, 4)], 4),
        links=links("3:4"),
        note="a chunk is passed on as a whole",
    )
    c["ring8-link-room-1"] = Case(
        "find",
        of(ddp, job(8, hosts=eight, room=1)),
        slow_link([(3, 4)], 4),
        links=links("3:4"),
        note="a sender ends when its receiver begins the last chunk",
    )
    c["ring16-two-links"] = Case(
        "maybe", of(ddp, job(16, hosts=hosts_of(16, 1))), slow_link([(2, 3), (9, 10)], 4), links=links("2:3", "9:10")
    )
    c["ring8-nic"] = Case("find", of(ddp, job(8, hosts=eight)), slow_link([(4, 5), (5, 6)], 4), links=links("4:5", "5:6"))
    c["ring8-reversed"] = Case(
        "maybe", of(ddp, job(8, hosts=eight, order=list(range(7, -1, -1)))), slow_link([(4, 3)], 4), links=links("4:3")
    )
    order = [int(r) for r in np.random.default_rng(base).permutation(8)]
    c["ring8-permuted"] = Case(
        "maybe",
        of(ddp, job(8, hosts=eight, order=order)),
        slow_link([(order[2], order[3])], 4),
        links=links(f"{order[2]}:{order[3]}"),
        note=f"the ring goes {order}",
    )
    c["ring64-between-hosts"] = Case(
        "find",
        of(ddp, job(64, 10, hosts=hosts_of(64, 8), between_hosts=2.0), mb=160),
        slow_link([(23, 24)], 4),
        links=links("23:24"),
    )
    c["ring16-healthy-uneven-fabric"] = Case(
        "quiet",
        of(ddp, job(16, hosts=hosts_of(16, 4), between_hosts=4.0)),
        note="links between hosts are four times as slow by design",
    )
    c["ring8-healthy-two-hosts"] = Case(
        "quiet", of(ddp, job(8, hosts=hosts_of(8, 4), between_hosts=6.0)), note="two of eight links are slower by design"
    )
    c["tree8-edge"] = Case(
        "maybe",
        of(ddp, job(8, hosts=eight), algorithm="tree", mb=30),
        slow_link([(1, 3), (3, 1)], 5),
        links=links("1:3", "3:1"),
        also=lambda f: set(f["links"]) <= {"1:3", "3:1"},
    )
    c["tree16-healthy"] = Case("quiet", of(ddp, job(16, hosts=hosts_of(16, 1)), algorithm="tree", mb=30))
    c["tree8-slow-rank"] = Case(
        "find", of(ddp, job(8, hosts=eight), algorithm="tree", mb=30), slow([6], 0.4), ranks=frozenset({6})
    )
    c["hierarchical-link"] = Case(
        "maybe",
        of(hierarchical, job(16, hosts=hosts_of(16, 4), between_hosts=2.0), per=4),
        slow_link([(6, 10)], 5),
        links=links("6:10"),
    )
    c["hierarchical-healthy"] = Case("quiet", of(hierarchical, job(16, hosts=hosts_of(16, 4), between_hosts=2.0), per=4))
    rng = np.random.default_rng(base + 7)
    skew = {f"node{r}": float(rng.uniform(5, 20) * rng.choice([-1, 1])) for r in range(8)}
    c["skew-link"] = Case(
        "find", of(ddp, job(8, hosts=eight)), slow_link([(2, 3)], 4), lambda j, f: op_table(j, f, skew=skew), links=links("2:3")
    )
    c["skew-healthy"] = Case("quiet", of(ddp, job(8, hosts=eight)), write=lambda j, f: op_table(j, f, skew=skew))
    c["no-bytes-link"] = Case(
        "maybe",
        of(ddp, job(8, hosts=eight)),
        slow_link([(3, 4)], 4),
        lambda j, f: op_table(j, f, drop=("bytes",)),
        links=links("3:4"),
    )
    c["ring4-link-since-8"] = Case(
        "find", of(ddp, job(4, hosts=hosts_of(4, 1))), slow_link([(1, 2)], 4, since=8), links=links("1:2")
    )
    hit = {5, 13, 22, 31, 36}
    c["rare-hiccups-link"] = Case(
        "find",
        of(ddp, job(8, 40, hosts=eight)),
        World(stall=lambda a, b, s: 90.0 if (a, b) == (2, 3) and s in hit else 0.0),
        links=links("2:3"),
        note="90 ms in 5 of 40 steps, in both all-reduces",
    )
    c["ring8-link-3-steps"] = Case("maybe", of(ddp, job(8, 3, hosts=eight)), slow_link([(3, 4)], 4), links=links("3:4"))

    # Two at once.
    c["rank-and-link"] = Case(
        "find",
        of(ddp, job(8, hosts=eight)),
        both(slow([6], 0.4), slow_link([(2, 3)], 4)),
        ranks=frozenset({6}),
        links=links("2:3"),
    )
    c["two-hosts-of-8"] = Case(
        "find",
        of(ddp, job(64, 10, hosts=hosts_of(64, 8)), algorithm="star", mb=20),
        slow([*range(8, 16), *range(40, 48)], 0.4),
        ranks=frozenset([*range(8, 16), *range(40, 48)]),
    )
    c["host-and-link"] = Case(
        "find",
        of(ddp, job(16, hosts=hosts_of(16, 4)), mb=120),
        both(slow(range(8, 12), 0.4), slow_link([(2, 3)], 4)),
        ranks=frozenset(range(8, 12)),
        links=links("2:3"),
    )
    c["two-ranks-unequal-faults"] = Case(
        "find",
        of(ddp, job(16, hosts=hosts_of(16, 4))),
        World(work=lambda r, s: {3: 1.6, 9: 1.3}.get(r, 1.0)),
        ranks=frozenset({3, 9}),
    )

    # Together.
    c["2-of-8"] = Case("find", of(ddp, job(8, hosts=hosts_of(8, 4))), slow([2, 7], 0.4), ranks=frozenset({2, 7}))
    c["4-of-16-host"] = Case(
        "find",
        of(tensor_data, job(16, hosts=hosts_of(16, 4)), tp=4),
        slow(range(8, 12), 0.4),
        ranks=frozenset(range(8, 12)),
        host="node2",
    )
    c["8-of-64-host"] = Case(
        "find",
        of(ddp, job(64, 10, hosts=hosts_of(64, 8)), algorithm="star", mb=20),
        slow(range(16, 24), 0.4),
        ranks=frozenset(range(16, 24)),
        host="node2",
    )
    c["8-of-64-step-times"] = Case(
        "find",
        of(ddp, job(64, 20), algorithm="star", mb=0.01),
        slow(range(16, 24), 0.4),
        step_times,
        ranks=frozenset(range(16, 24)),
    )
    c["half-4-of-8"] = Case("unknown", of(ddp, job(8, hosts=hosts_of(8, 4))), slow(range(4), 0.4))
    c["3-of-4"] = Case("unknown", of(ddp, job(4, hosts=hosts_of(4, 4))), slow([0, 1, 3], 0.4))
    c["5-of-8-since-8"] = Case(
        "maybe", of(ddp, job(8, hosts=hosts_of(8, 4))), slow([0, 1, 2, 3, 4], 0.4, since=8), ranks=frozenset(range(5))
    )
    wander = np.random.default_rng(base + 11).integers(4, 8, 24)
    c["wanders-on-host"] = Case(
        "maybe",
        of(ddp, job(16, 24, hosts=hosts_of(16, 4))),
        World(work=lambda r, s: 1.5 if r == wander[s] else 1.0),
        ranks=frozenset(range(4, 8)),
        also=lambda f: bool(f["ranks"]) and set(f["ranks"]) <= {4, 5, 6, 7} and not f["links"],
        free=True,
    )
    c["pipeline-host-all-stages"] = Case(
        "find",
        of(pipeline, job(16, hosts=hosts_of(16, 4)), pp=4),
        slow(range(4, 8), 0.4),
        ranks=frozenset(range(4, 8)),
        host="node1",
    )
    c["pipeline-rank"] = Case("find", of(pipeline, job(16, hosts=hosts_of(16, 4)), pp=4), slow([6], 0.5), ranks=frozenset({6}))
    c["pipeline-link"] = Case(
        "maybe",
        of(pipeline, job(16, hosts=hosts_of(16, 4)), pp=4),
        slow_link([(5, 6)], 20),
        links=links("5:6"),
        also=lambda f: set(f["links"]) <= {"5:6", "6:5"} and bool(f["links"]),
    )
    c["pipeline-healthy-long-stage"] = Case(
        "nobody", of(pipeline, job(16, hosts=hosts_of(16, 4)), pp=4, scale=lambda p: 1.25 if p == 3 else 1.0), lenient=True
    )
    c["gaps-one-of-8"] = Case("find", of(ddp, job(8)), World(pause=lambda r, s: 25.0 if r == 3 else 0.0), ranks=frozenset({3}))
    c["gaps-two-of-8-kineto"] = Case(
        "find", of(ddp, job(8)), World(pause=lambda r, s: 30.0 if r in (1, 6) else 0.0), kineto, ranks=frozenset({1, 6})
    )
    lie = dict.fromkeys(range(16), "good") | dict.fromkeys(range(4), "suspect")
    c["hosts-lie"] = Case(
        "find",
        of(ddp, job(16, hosts=lie)),
        slow([3, 7, 9, 12], 0.4),
        ranks=frozenset({3, 7, 9, 12}),
        note="the host column calls ranks 0-3 'suspect'; of the slow ones only 3 is there",
    )
    c["host-interleaved"] = Case(
        "find",
        of(ddp, job(32, 12, hosts={r: f"node{r % 4}" for r in range(32)}), algorithm="star", mb=20),
        slow(range(1, 32, 4), 0.4),
        ranks=frozenset(range(1, 32, 4)),
        host="node1",
    )
    names = [int(r) for r in np.random.default_rng(base + 5).permutation(8)]
    c["labels-permuted-link"] = Case(
        "maybe",
        of(ddp, job(8, hosts=eight)),
        slow_link([(3, 4)], 4),
        lambda j, f: op_table(j, f, label=lambda r: names[r]),
        links=links(f"{names[3]}:{names[4]}"),
    )
    c["labels-permuted-rank"] = Case(
        "find",
        of(ddp, job(8, hosts=eight)),
        slow([3], 0.4),
        lambda j, f: op_table(j, f, label=lambda r: names[r]),
        ranks=frozenset({names[3]}),
    )

    # Other shapes.
    c["moe-nic"] = Case(
        "maybe",
        of(experts, job(8, hosts=eight)),
        World(link=lambda a, b, s: 4.0 if 5 in (a, b) else 1.0),
        links=links(),
        also=nic(5),
        free=True,
    )
    c["moe-rank"] = Case("find", of(experts, job(8, hosts=eight)), slow([5], 0.4), ranks=frozenset({5}))
    c["moe-healthy-uneven-experts"] = Case("nobody", of(experts, job(8, hosts=eight), spread=0.3), lenient=True)
    c["overlap-rank"] = Case("find", of(overlapped, job(8, hosts=eight)), slow([2], 0.4), kineto, ranks=frozenset({2}))
    c["overlap-hidden-link"] = Case(
        "quiet",
        of(overlapped, job(8, hosts=eight), mb=40),
        slow_link([(3, 4)], 2),
        kineto,
        note="the slow link hides under backward and costs next to nothing",
    )
    c["overlap-exposed-link"] = Case(
        "maybe", of(overlapped, job(8, hosts=eight), mb=90), slow_link([(3, 4)], 6), kineto, links=links("3:4")
    )
    c["tp-dp-rank"] = Case("find", of(tensor_data, job(16, hosts=hosts_of(16, 4)), tp=4), slow([9], 0.3), ranks=frozenset({9}))

    # Few steps.
    c["2-steps-rank"] = Case("maybe", of(ddp, job(16, 2, hosts=hosts_of(16, 4))), slow([5], 0.8), ranks=frozenset({5}))
    c["3-steps-rank"] = Case("maybe", of(ddp, job(16, 3, hosts=hosts_of(16, 4))), slow([5], 0.6), ranks=frozenset({5}))
    c["5-steps-rank"] = Case("find", of(ddp, job(16, 5, hosts=hosts_of(16, 4))), slow([5], 0.4), ranks=frozenset({5}))
    c["2-steps-healthy"] = Case("quiet", of(ddp, job(16, 2, hosts=hosts_of(16, 4), noise=0.04)))
    c["3-steps-one-hiccup"] = Case(
        "maybe",
        of(ddp, job(8, 3)),
        World(pause=lambda r, s: 60.0 if (r, s) == (2, 1) else 0.0),
        ranks=frozenset({2}),
        note="one pause of one rank in one of three steps",
    )

    # Healthy, but noisy.
    c["heavy-tails"] = Case("quiet", of(ddp, job(8, 30, draw_work=lambda g: 1 + 0.05 * abs(float(g.standard_t(3))))))
    uneven = 1 + np.random.default_rng(base + 3).uniform(-0.1, 0.1, 16)
    c["unequal-ranks"] = Case("quiet", of(ddp, job(16, 20, hosts=hosts_of(16, 4), unequal=uneven)), lenient=True)
    c["thermal-drift-on-all"] = Case("nobody", of(ddp, job(8, 40)), World(work=lambda r, s: 1 + 0.005 * s), lenient=True)
    g = np.random.default_rng(base + 13)
    stops = {(int(g.integers(8)), s): float(g.uniform(100, 200)) for s in range(40) if g.random() < 0.15}
    c["stops-on-all"] = Case(
        "nobody",
        of(ddp, job(8, 40)),
        World(pause=lambda r, s: stops.get((r, s), 0.0)),
        lenient=True,
        note=f"{len(stops)} stops at any rank and step",
    )
    c["gc-on-each"] = Case(
        "nobody",
        of(ddp, job(8, 40)),
        World(pause=lambda r, s: 30.0 if s % 10 == r else 0.0),
        note="every rank collects garbage for 30 ms every tenth step, each at another: mendable, nobody's",
    )
    c["shared-demand"] = Case("nobody", of(ddp, job(8, 40)), World(work=lambda r, s: 1.2 if s // 5 % 2 else 1.0), lenient=True)

    # Data missing.
    c["half-traced-fault-outside"] = Case(
        "unknown", of(ddp, job(16, hosts=hosts_of(16, 4))), slow([12], 0.5), lambda j, f: kineto(j, f, only=set(range(8)))
    )
    c["half-traced-fault-inside"] = Case(
        "maybe",
        of(ddp, job(16, hosts=hosts_of(16, 4))),
        slow([4], 0.5),
        lambda j, f: kineto(j, f, only=set(range(8))),
        ranks=frozenset({4}),
    )
    c["half-traced-link-outside"] = Case(
        "unknown",
        of(ddp, job(16, hosts=hosts_of(16, 1))),
        slow_link([(11, 12)], 5),
        lambda j, f: kineto(j, f, only=set(range(8))),
    )
    c["half-in-table-fault-outside"] = Case(
        "unknown",
        of(ddp, job(16, hosts=hosts_of(16, 4))),
        slow([12], 0.5),
        lambda j, f: op_table(j, f, only=set(range(8))),
        note="a table does not say how many ranks there are: all that is seen is long transfers",
    )
    c["no-group-names"] = Case(
        "maybe",
        of(tensor_data, job(16, hosts=hosts_of(16, 4)), tp=4),
        slow([9], 0.4),
        lambda j, f: op_table(j, f, drop=("group", "seq")),
        ranks=frozenset({9}),
    )
    c["dumps-only-rank"] = Case("find", of(ddp, job(8, 20)), slow([3], 0.4), dumps, ranks=frozenset({3}), free=True)
    c["dumps-only-healthy"] = Case("quiet", of(ddp, job(8, 20)), write=dumps)
    c["dumps-only-link"] = Case(
        "maybe",
        of(ddp, job(8, 20, hosts=eight)),
        slow_link([(3, 4)], 4),
        dumps,
        links=links("3:4"),
        free=True,
        also=lambda f: set(f["ranks"]) <= {3, 4} and bool(f["ranks"]),
        note="dumps hold no ends: a rank at an end of the link is what they can tell",
    )
    c["running-dumped-once"] = Case(
        "no hang", of(ddp, job(8, 20)), slow([3], 0.4), lambda j, f: dumps(j, f, at=j.wall * 0.83), lenient=True
    )
    c["running-dumped-twice"] = Case(
        "no hang",
        of(ddp, job(8, 20)),
        write=lambda j, f: (dumps(j, f, at=j.wall * 0.5), dumps(j, f, at=j.wall * 0.5 + 40, tail="_later"))[0],
        lenient=True,
    )

    def hang(lost: tuple[int, ...], twice: bool = True) -> Callable[[Job, Path], None]:
        def write(j: Job, f: Path) -> None:
            for tail in ("", "_later") if twice else ("",):
                (f / f"set{tail}").mkdir()
                dumps(j, f / f"set{tail}", lost=lost, stopped={5: j.wall * 0.6}, ahead=4)

        return write

    c["hang-two-sets"] = Case("hang", of(tensor_data, job(8, 12), tp=4), write=hang(()), ranks=frozenset({5}))
    c["hang-other-dump-missing"] = Case("hang", of(tensor_data, job(8, 12), tp=4), write=hang((2,)), ranks=frozenset({5}))
    c["hang-its-dump-missing"] = Case(
        "hang", of(tensor_data, job(8, 12), tp=4), write=hang((5,)), ranks=frozenset({5}), note="naming nobody is right, too"
    )

    # Baselines.
    def run(n: int, steps: int, number: int, world: World | None = None, **more: Any) -> Callable[[], Job]:
        return lambda: ddp(Job(n, steps, base + 500 + number, world or World(), **more))

    four = hosts_of(8, 4)
    c["baseline-all-slow"] = Case(
        "nobody",
        of(ddp, job(8, hosts=four)),
        slow(range(8), 0.3),
        baseline=run(8, 16, 1, hosts=four),
        mode="silent degradation",
    )
    c["baseline-half-slow"] = Case(
        "find", of(ddp, job(8, hosts=four)), slow(range(4), 0.4), baseline=run(8, 16, 2, hosts=four), ranks=frozenset(range(4))
    )
    c["baseline-3-of-4"] = Case(
        "find", of(ddp, job(4)), slow([0, 1, 3], 0.4), baseline=run(4, 16, 3), ranks=frozenset({0, 1, 3})
    )
    c["baseline-other-ranks"] = Case("refused", of(ddp, job(8, hosts=four)), slow([2], 0.4), baseline=run(4, 16, 4))
    c["baseline-other-job"] = Case("refused", of(ddp, job(8)), slow([2], 0.4), baseline=lambda: fsdp(Job(8, 16, base + 505)))
    c["baseline-other-size"] = Case(
        "refused", of(ddp, job(8)), slow([2], 0.4), baseline=lambda: ddp(Job(8, 16, base + 506), mb=120)
    )
    c["baseline-fewer-steps"] = Case(
        "find", of(ddp, job(8, 30, hosts=four)), slow([2], 0.4), baseline=run(8, 5, 7, hosts=four), ranks=frozenset({2})
    )
    c["baseline-had-the-fault"] = Case("quiet", of(ddp, job(8, hosts=four)), baseline=run(8, 16, 8, slow([2], 0.4), hosts=four))
    c["baseline-had-another-fault"] = Case(
        "find",
        of(ddp, job(8, hosts=four)),
        slow([5], 0.4),
        baseline=run(8, 16, 9, slow([2], 0.4), hosts=four),
        ranks=frozenset({5}),
    )
    c["baseline-had-same-fault"] = Case(
        "maybe",
        of(ddp, job(8, hosts=four)),
        slow([2], 0.4),
        baseline=run(8, 16, 10, slow([2], 0.4), hosts=four),
        ranks=frozenset({2}),
        note="the baseline was not healthy: rank 2 was as slow there; peers still tell",
    )
    c["baseline-healthy-pair"] = Case("quiet", of(ddp, job(8, hosts=four)), baseline=run(8, 16, 11, hosts=four))
    c["baseline-link"] = Case(
        "find", of(ddp, job(8, hosts=eight)), slow_link([(3, 4)], 3), baseline=run(8, 16, 12, hosts=eight), links=links("3:4")
    )
    c["baseline-whole-fabric"] = Case(
        "nobody",
        of(ddp, job(8, hosts=eight)),
        World(link=lambda a, b, s: 3.0),
        baseline=run(8, 16, 13, hosts=eight),
        note="every link three times as slow",
    )
    return c


# --- judging -----------------------------------------------------------------------------------------------------------


@dataclass
class Judged:
    right: bool
    truth: str
    answer: str
    why: str


def analyze(taut: list[str], what: Path, *options: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*taut, "analyze", str(what), "-q", *options], capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout, done.stderr


def place(f: dict[str, Any]) -> str:
    if f["links"]:
        return "link " + "+".join(f["links"])
    some = ",".join(map(str, f["ranks"][:9])) + ("…" if len(f["ranks"]) > 9 else "")
    return (f"ranks {some}" if f["ranks"] else "stage " + str(f["stages"]) if f["stages"] else "no place") + (
        f" [{f['where']}]" if f["where"] else ""
    )


def judge(case: Case, name: str, folder: Path, taut: list[str]) -> Judged:
    """Play, write, analyse, compare."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "traces").mkdir(parents=True)
    faulty, healthy = case.make(case.world), case.make(World())
    loss = 1 - healthy.wall / faulty.wall
    case.write(faulty, folder / "traces")
    options = ["--json", "--gpu-hour", f"{RATE}EUR", "-o", str(folder / "run")]
    if case.baseline is not None:
        (folder / "before").mkdir()
        case.baseline_write(case.baseline(), folder / "before")
        analyze(taut, folder / "before", "-o", str(folder / "baseline"))
        options += ["--baseline", str(folder / "baseline")]
    code, out, err = analyze(taut, folder / "traces", *options)
    (folder / "stdout.json").write_text(out)
    (folder / "stderr.txt").write_text(err)
    some = ",".join(map(str, sorted(case.ranks)[:9])) + ("…" if len(case.ranks) > 9 else "")
    who = " + ".join(filter(None, [", ".join(sorted(case.links)), f"ranks {some}" if case.ranks else ""]))
    truth = f"{case.want}: {who or '–'}, {100 * loss:.1f} %"
    (folder / "truth.txt").write_text(f"{name}\n{truth}\n{case.note}\n")
    if "Traceback" in err or (code not in (0, 3) and case.want != "refused"):
        return Judged(False, truth, f"exit {code}: {' '.join(err.split())[-160:]}", "crashed or refused")
    if case.want == "refused":
        said = (err + out).strip()
        try:
            answer = json.loads(out)
        except ValueError:
            answer = None
        if answer is None:
            fine = code != 0 and "baseline" in said.lower() and "Error:" not in said
            return Judged(fine, truth, f"exit {code}: {said[:200]}", "" if fine else "not refused in words")
        return Judged(False, truth, f"exit {code}, baseline {answer.get('baseline')}", "not refused")
    result = json.loads(out)
    return _compare(case, result, loss, truth)


def _compare(case: Case, result: dict[str, Any], loss: float, truth: str) -> Judged:
    kind, findings, wall = result["verdict"]["class"], result["findings"], max(result["job"]["wall_ns"], 1)
    gain = [f["recoverable_wall_ns"] / wall for f in findings]
    whole = (result["recoverable_wall_ns"] or 0) / wall
    shown = [f"{f['mode']} {place(f)} {100 * g:.1f} % ({f['reference']})" for f, g in zip(findings, gain, strict=True)]
    answer = kind + (": " + "; ".join(shown[:3]) + (f" … {len(shown)}" if len(shown) > 3 else "") if shown else "")
    wrong: list[str] = []
    if kind == "healthy" and loss >= 0.03 and not case.lenient:
        wrong.append(f"HEALTHY though mending saves {100 * loss:.1f} %")
    wrong += _prices(result, findings, wall)

    def innocent(f: dict[str, Any]) -> bool:
        if case.also is not None and case.also(f):
            return False
        if f["links"]:
            return not set(f["links"]) <= case.links
        return bool(f["ranks"]) and not set(f["ranks"]) <= case.ranks

    accused = [place(f) for f in findings if innocent(f)]
    if case.want == "hang":
        wrong += _hang(case, findings, kind)
    elif case.want == "no hang":
        wrong += ["called a hang"] if any(f["mode"] == "hang" for f in findings) else []
    elif case.want == "quiet":
        wrong += ["a finding where nothing is wrong"] if findings else []
    elif case.want == "nobody":
        wrong += ["accuses " + place(f) for f in findings if f["ranks"] or f["links"]]
        if case.mode and not (findings and findings[0]["mode"] == case.mode):
            wrong.append(f"not a {case.mode}")
        if case.mode and findings and abs(gain[0] - loss) > max(0.1 * loss, 0.01):
            wrong.append(f"recovers {100 * gain[0]:.1f} %, truth {100 * loss:.1f} %")
    elif case.want == "unknown":
        wrong += ["accuses " + place(f) for f in findings]
        wrong += [f"class {kind}, not unknown"] if kind != "unknown" and not findings else []
    elif findings or case.want == "find":
        wrong += [f"accuses {one}, which is innocent" for one in accused]
        wrong += _found(case, findings, gain, whole, loss)
    return Judged(not wrong, truth, answer, "; ".join(wrong))


def _hang(case: Case, findings: list[dict[str, Any]], kind: str) -> list[str]:
    if not findings:
        return [] if "nobody" in case.note and kind == "unknown" else [f"no hang found, class {kind}"]
    if findings[0]["mode"] != "hang":
        return [f"called a {findings[0]['mode']}"]
    named = set(findings[0]["ranks"])
    return [] if named == case.ranks or ("nobody" in case.note and not named) else [f"names {sorted(named)}"]


def _found(case: Case, findings: list[dict[str, Any]], gain: list[float], whole: float, loss: float) -> list[str]:
    wrong: list[str] = []
    if not findings:
        return ["nothing found"]
    named_links = {one for f in findings for one in f["links"]}
    named_ranks = {r for f in findings if not f["links"] for r in f["ranks"]}
    first = findings[0]
    fits = set(first["links"]) <= case.links if first["links"] else bool(first["ranks"]) and set(first["ranks"]) <= case.ranks
    fits = fits or (case.also is not None and case.also(first))
    if not fits:
        wrong.append(f"first is {first['mode']} at {place(first)}")
    if case.also is None or not fits:
        if case.links - named_links:
            wrong.append(f"misses link {', '.join(sorted(case.links - named_links))}")
        if case.ranks - named_ranks:
            wrong.append(f"misses ranks {sorted(case.ranks - named_ranks)}")
    if case.host and not any(case.host in (f["where"] or "") for f in findings):
        wrong.append(f"does not name {case.host}")
    said = whole if len(findings) > 1 else gain[0]
    if not case.free and abs(said - loss) > max(0.1 * loss, 0.01):
        wrong.append(f"recovers {100 * said:.1f} %, truth {100 * loss:.1f} %")
    return wrong


def _prices(result: dict[str, Any], findings: list[dict[str, Any]], wall: float) -> list[str]:
    wrong = []
    per_hour = RATE * result["job"]["ranks"]
    for f in findings:
        money = f.get("money")
        if f["mode"] == "hang" or money is None:
            continue
        share = f["recoverable_wall_ns"] / wall
        if float(money["per_hour"]) > per_hour * 1.001:
            wrong.append(f"price {money['per_hour']} an hour of a job of {per_hour:.2f}")
        elif abs(float(money["per_hour"]) - share * per_hour) > 0.02 * per_hour:
            wrong.append(f"price {money['per_hour']} an hour, share × bill is {share * per_hour:.2f}")
    if (result["recoverable_wall_ns"] or 0) > wall * 1.001:
        wrong.append("recovers more than the wall clock")
    return wrong


def main(about: str, cases: Callable[[int], dict[str, Any]], judge: Callable[..., Judged]) -> int:
    """Judge the cases of a seed as they are asked for on the command line; 1 where one is wrong."""
    parser = argparse.ArgumentParser(description=about.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=None, help="names of cases, or regular expressions")
    parser.add_argument("--keep", type=Path, help="folder for traces, results and truths; they are deleted if none is given")
    parser.add_argument("--taut", default=f"{sys.executable} -m taut", help="command to run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as fresh:
        return 0 if judged_table(given, given.keep or Path(fresh), cases(given.seed), judge) else 1


def judged_table(given: argparse.Namespace, folder: Path, cases: dict[str, Any], judge: Callable[..., Judged]) -> bool:
    """Judge the cases that are asked for, print the table, and say whether all are right."""
    print("| case | truth: wanted, place, what mending saves | answer | right | why not |\n|---|---|---|---|---|")
    right = total = 0
    for name, case in cases.items():
        if given.only and not any(re.fullmatch(one, name) for one in given.only):
            continue
        try:
            judged = judge(case, name, folder / name, given.taut.split())
        except subprocess.TimeoutExpired:
            judged = Judged(False, case.want, "no answer in 300 s", "too slow")
        total += 1
        right += judged.right
        print(
            f"| {name} | {judged.truth} | {judged.answer} | {'right' if judged.right else '**wrong**'} | {judged.why} |",
            flush=True,
        )
    print(f"{right} of {total} right")
    return right == total


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", cases, judge))
