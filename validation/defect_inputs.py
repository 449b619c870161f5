"""Inputs of the defects A1 to A20, simulated with their truth, and what ``taut analyze`` reports of them.

    python validation/defect_inputs.py [--only A5 …] [--seeds 4] [--src OTHER/src] [--straggler-analysis FOLDER]

Rows and sizes are those of section A of the list of defects; T1 to T4 are the op tables of ``theory.md``. A job is played op by
op: ranks work, meet in rings whose chunks pass from link to link, and send to each other. Random draws do not depend on the
fault, so the true saving is the difference to a replay without it, as a share of the wall since the onset. Nothing of taut is
imported. A19 counts right findings only; A17 needs a clone of ByteDance-Seed/StragglerAnalysis. Each line shows the first wrong
case, or else the first, of a row in one format. The exit status is 1 where a case is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

EPOCH_NS, MB_PER_MS, LATENCY_MS, GAP_MS = 1_700_000_000_000_000_000, 10.0, 0.01, 0.02
Op = namedtuple("Op", "rank step kind name start end group seq mb peer part batch", defaults=("", "", 0, "", "", 32))
# Where a fault is, since which step, and which ranks or links should be named.
Truth = namedtuple("Truth", "place since ranks links", defaults=(0, frozenset(), frozenset()))
# What a fault changes in one step: slower by a share; ms of ranks; of links by (sender, receiver), slower by a share or ms.
FIELDS = "slower load_ms idle_ms new_op_ms more_op_ms save_ms links jitter stall_ms batch micro ranks silent"
Effect = namedtuple("Effect", FIELDS, defaults=(0, 0, 0, 0, 0, 0, {}, {}, {}, 32, 6, None, None))
Fault, Draw = tuple[Truth, Callable[[int], Effect]], np.random.Generator


class Job:
    """Ranks that are played op by op; kinds of ops are work, host, meet, send and recv."""

    def __init__(self, seed: int, ranks: int, stages: int, noise: float) -> None:
        self.rng, self.noise, self.ranks, self.stages = np.random.default_rng(seed), noise, ranks, stages
        self.all, self.host = np.arange(ranks), [f"node{r // (1 if ranks > 9 else 4):02d}" for r in range(ranks)]
        self.now, self.pace, self.step, self.effect = np.zeros(ranks), np.ones(ranks), 0, Effect()
        self.ops, self.ends, self.groups, self.calls = list[Op](), list[float](), dict[str, list[int]](), Counter[str]()

    def play(self, layout: Callable[[Job, Any], None], steps: int, shared: float, effects: Callable[[int], Effect]) -> None:
        """All steps; each has a factor common to the ranks (sigma ``shared``, partly as in the step before) and own ones."""
        common = 0.0
        for self.step in range(steps):
            common = 0.5 * common + math.sqrt(0.75) * self.rng.normal(0, shared)
            self.pace = np.exp(common + self.rng.normal(0, self.noise / 2, self.ranks))
            self.effect = effects(self.step)
            self.now += self.effect.idle_ms
            self.work("fused_check", self.effect.new_op_ms)
            self.work("backward_0", self.effect.more_op_ms)
            layout(self, 1 + np.broadcast_to(self.effect.slower, self.ranks))
            self.work("checkpoint_save", self.effect.save_ms, kind="host")
            self.ops = [op for op in self.ops if op.step < self.step or op.rank != self.effect.silent]
            self.ends.append(float(self.now.max()))

    def work(self, name: str, ms: Any, ranks: Any = None, kind: str = "work", part: Any = "") -> None:
        """An op of those of ``ranks`` for which it takes any time."""
        ranks = self.all if ranks is None else ranks
        took = np.broadcast_to(ms, self.ranks)[ranks] * self.pace[ranks] * np.exp(self.rng.normal(0, self.noise, len(ranks)))
        for rank, duration in zip(ranks.tolist(), took.tolist(), strict=True):
            if duration > 0:
                start = self.now[rank] + GAP_MS
                end = self.now[rank] = start + duration
                self.ops.append(Op(rank, self.step, kind, name, start, end, part=part, batch=self.effect.batch))

    def link_ms(self, links: list[tuple[int, int]], mb: float) -> np.ndarray:
        """Time of one message on each link."""
        noise, excess = np.exp(self.rng.normal(0, 0.03, len(links))), self.rng.exponential(1, len(links))
        erratic = 1 + np.array([self.effect.jitter.get(link, 0.0) for link in links]) * excess
        return (LATENCY_MS + mb / MB_PER_MS) * noise * erratic * [1 + self.effect.links.get(link, 0.0) for link in links]

    def all_reduce(self, group: str, ranks: Any, mb: float) -> None:
        """A ring: in each round every member passes one chunk on, so ends form a staircase behind a slow link."""
        members = self.groups.setdefault(group, [int(r) for r in ranks])
        links, n = list(zip(np.roll(members, 1).tolist(), members, strict=True)), len(members)
        took, stall = self.link_ms(links, mb / n), np.array([self.effect.stall_ms.get(link, 0.0) for link in links])
        received, link_free = (start := self.now[members] + GAP_MS), np.maximum(start, np.roll(start, 1))
        for turn in range(2 * (n - 1)):
            received = link_free = np.maximum(np.roll(received, 1), link_free) + took + stall * (turn == n - 1)
        for rank, begin, end in zip(members, start.tolist(), received.tolist(), strict=True):
            self.ops.append(Op(rank, self.step, "meet", "all-reduce", begin, end, group, self.calls[group], mb))
        self.calls[group] += 1
        self.now[members] = received

    def send(self, name: str, sources: Any, sinks: Any, mb: float, part: int) -> None:
        """Messages from each source to its sink; both are busy until it has arrived."""
        links = list(zip(sources.tolist(), sinks.tolist(), strict=True))
        for (a, b), took in zip(links, self.link_ms(links, mb).tolist(), strict=True):
            end = max(self.now[a], self.now[b]) + GAP_MS + took
            for rank, verb, peer in ((a, "send", b), (b, "recv", a)):
                start = self.now[rank] + GAP_MS
                self.ops.append(Op(rank, self.step, verb, f"{name}-{verb}", start, end, mb=mb, peer=peer, part=part))
                self.now[rank] = end

    def data_parallel(self, factor: Any, times: float = 1.0) -> None:
        """About 43 ms: loader, forward, two halves of backward with a ring behind each, optimizer."""
        ranks, factor = self.all[: self.effect.ranks], times * factor
        self.work("data_load", 0.5 + self.effect.load_ms, ranks, kind="host")
        self.work("forward", 11 * factor, ranks)
        for half in range(2):
            self.work(f"backward_{half}", 11 * factor, ranks)
            self.all_reduce("world" if len(ranks) == self.ranks else f"world_{len(ranks)}", ranks, 20)
        self.work("optimizer", 2 * factor, ranks)

    def tensor_and_data_parallel(self, factor: Any) -> None:
        """Four layers with a ring of each tensor group behind them, then a ring of each data group; groups have four ranks."""
        for layer in range(4):
            self.work(f"layer_{layer}", 9 * factor)
            for i in range(self.ranks // 4):
                self.all_reduce(f"tp_{i}", range(4 * i, 4 * i + 4), 2)
        for i in range(4):
            self.all_reduce(f"dp_{i}", range(i, self.ranks, 4), 12)
        self.work("optimizer", 2 * factor)

    def pipeline(self, factor: Any) -> None:
        """All micro-batches forward, then all backward, then a ring of each stage; rank = replica × stages + stage."""
        of_stage = [self.all[self.all % self.stages == p] for p in range(self.stages)]
        for name, ms, order in (("forward", 3, range(self.stages)), ("backward", 6, range(self.stages)[::-1])):
            for part in range(self.effect.micro):
                for k, p in enumerate(order):
                    if k:
                        self.send(name, of_stage[order[k - 1]], of_stage[p], 2.5, part)
                    self.work(f"{name}-compute", ms * factor, of_stage[p], part=part)
        for p, ranks in enumerate(of_stage):
            self.all_reduce(f"stage_{p}", ranks, 10)
        self.work("optimizer", 2 * factor)

    def timed_step(self, factor: Any, ms: float = 740) -> None:
        """What a table of step times holds: own work, then all wait for the slowest. The median step of ten ranks is 777 ms."""
        ranks = self.all[: self.effect.ranks]
        self.work("step", ms * factor, ranks)
        self.now[:] = self.now[ranks].max()

    def write_table(self, folder: Path) -> None:
        """One table of the ops of all ranks."""
        rows = ["rank,step,class,start_ns,duration_ns,lane,group,seq,bytes,peer,microbatch,host,stage,dp_rank"]
        for op in self.ops:
            role = divmod(op.rank, self.stages)[::-1] if self.stages > 1 else ("", "")
            times = EPOCH_NS + round(op.start * 1e6), round((op.end - op.start) * 1e6)
            sizes = op.group, op.seq, round(op.mb * 1e6) or "", op.peer, op.part
            rows.append(",".join(map(str, (op.rank, op.step, op.name, *times, "main", *sizes, self.host[op.rank], *role))))
        (folder / "ops.csv").write_text("\n".join(rows) + "\n")

    def write_steps(self, folder: Path) -> None:
        """What each rank itself needed for each step."""
        rows = [f"{op.rank},{op.step},{op.end - op.start:.4f}" for op in self.ops]
        (folder / "steps.csv").write_text("\n".join(["worker,step,step_time_ms", *rows]) + "\n")

    def write_kineto(self, folder: Path) -> None:
        """One trace a rank: the host launches kernels ahead, and waits for them before host ops and at the end of a step."""
        groups = [{"pg_name": g, "backend_config": "cuda:nccl", "pg_size": len(m), "ranks": m} for g, m in self.groups.items()]
        spread = {"backend": "nccl", "world_size": self.ranks, "pg_count": len(groups), "pg_config": groups}
        for r in range(self.ranks):
            head = {"baseTimeNanoseconds": EPOCH_NS, "host_name": self.host[r], "distributedInfo": spread | {"rank": r}}
            head |= {"schemaVersion": 1, "traceEvents": self.kineto_events([op for op in self.ops if op.rank == r])}
            (folder / f"rank{r}.json").write_text(json.dumps(head))

    def kineto_events(self, ops: list[Op]) -> list[dict[str, Any]]:
        """Events of one rank."""
        events, host, end = list[dict[str, Any]](), 0.0, 0.0

        def add(category: str, name: str, start: float, end: float, tid: int = 1, **args: Any) -> None:
            times = {"ts": round(1e3 * start, 3), "dur": round(1e3 * (end - start), 3)}
            events.append({"ph": "X", "cat": category, "name": name, "pid": int(tid == 1), "tid": tid, "args": args} | times)

        for n, op in enumerate(ops):
            if n == 0 or op.step > ops[n - 1].step:
                host = end + 0.007 if n else 0.0
                add("user_annotation", f"ProfilerStep#{op.step}", host, max(o.end for o in ops if o.step == op.step) + 0.005)
            if op.kind == "host":
                add("cuda_runtime", "cudaDeviceSynchronize", host, max(host, end) + 0.003, correlation=3 * n)
                loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                add("user_annotation", loader if op.name == "data_load" else op.name, op.start, op.end)
                host = end = op.end
                continue
            host = op.start - GAP_MS / 2 if op.start - end > 1 else host  # after a gap the host had nothing queued
            on, size = {"device": 0, "stream": 7, "correlation": 3 * n + 1}, round(op.mb * 5e5)
            dims = {"Input Dims": [[op.batch, 1024], [1024, 1024]]} if op.kind == "work" else {}
            if op.kind == "meet":
                on |= {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": size, "Out msg nelems": size}
                on |= {"Process Group Name": op.group, "Group size": len(self.groups[op.group]), "Seq": op.seq}
            add("cpu_op", "aten::mm" if dims else "c10d::allreduce_", host, host + 0.002, **dims)
            add("cuda_runtime", "cudaLaunchKernel", host + 0.0005, host + 0.0015, correlation=3 * n + 1)
            add("kernel", f"gemm_{op.name}" if dims else "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", op.start, op.end, 7, **on)
            host, end = host + 0.003, op.end
            if n + 1 == len(ops) or ops[n + 1].step > op.step:
                add("cuda_runtime", "cudaDeviceSynchronize", host, end + 0.003, correlation=3 * n + 2)
        return events


def fault(draw: Draw, n: int, kind: str, where: str, low: float, high: float = 0, since: int = 0, shape: str = "") -> Fault:
    """A fault of a kind (a field of the effect) at a place that is drawn, of a size from ``low`` to ``high``."""
    i, last = int(draw.integers(max(1, n // 4))), 8 if shape == "once" else 23
    at = sorted(draw.choice(np.arange(3, last), 4, False).tolist())
    sender = 4 * i + (0 if n < 4 else int(draw.integers(3)))
    rings = {"world": range(n), "tp": range(4 * i, 4 * i + 4), "dp": range(i, n, 4)}
    picked = {"rank": draw.choice(n, 1), "five": draw.choice(n, 5, n < 5), "rank 0": [0], "rank 3": [3], "all": range(n)}
    ranks = sorted(int(r) for r in (rings | picked).get(where, [sender]))
    near = [((sender + a) % n, (sender + b) % n) for a, b in ((-1, 0), (0, 1), (0, -1), (1, 0))]
    ring = list(zip(ranks, ranks[1:] + ranks[:1], strict=True))
    links = {"link": near[1:2], "interface": near, **dict.fromkeys(rings, ring)}.get(where, [])
    sizes = np.zeros(n)
    sizes[ranks] = draw.permutation(np.linspace(low, high, 5)) if where == "five" else draw.uniform(low, max(low, high))
    name = {"tp": f"group tp_{i}", "dp": f"group dp_{i}", "world": "group world", "all": "all ranks", "five": f"ranks {ranks}"}
    name |= {"link": f"link {sender}:{sender + 1}", "interface": f"interface of rank {sender}"}
    steps = {"four": at, "once": at[:1], "eighth": range(7, 999, 8)}.get(shape, range(since, 999))

    def effect(s: int) -> Effect:
        weight = {"erratic": draw.gamma(4) / 4, "ramp": (s - since + 1) / 24}.get(shape, 1.0) * (s in steps)
        return Effect(**{kind: {link: weight * sizes.max() for link in links} if links else weight * sizes})

    wanted = set() if where in ("all", "link") else set(ranks), set() if where in rings else set(links)
    return Truth(name.get(where, f"rank {ranks[0]}"), steps[0], *wanted), effect


def link_and_rank(draw: Draw, n: int, slower: float, since: int) -> Fault:
    """A13: a slow link and a slow rank on one critical path, from the first step on or the rank four steps later."""
    i = 4 * int(draw.integers(n // 4))
    slow, link = np.where(np.arange(n) == i + 3, 0.3, 0.0), (i, i + 1)
    truth, rank_since = Truth(f"link {i}:{i + 1}, rank {i + 3}", since, {i + 3}, {link}), since and since + 4
    return truth, lambda s: Effect(slower=slow * (s >= rank_since), links={link: slower * (s >= since)})


def elastic(draw: Draw, n: int) -> Fault:
    """A4: 8 ranks become 16 in the middle, each with half of the work. Who joins begins when the others are there."""
    wait = np.where(np.arange(n) < 8, 0.0, 43.9)
    return Truth("no fault: 8, then 16", 25), lambda s: Effect(idle_ms=wait, ranks=8) if s < 25 else Effect(slower=-0.5)


def change(draw: Draw, n: int, place: str, since: int = 0, **effect: Any) -> Fault:
    """What is no fault: more work for all ranks, or a rank of which nothing is recorded."""
    return Truth(place, since), lambda s: Effect(**effect) if s >= since else Effect()


def analyze(given: Path, src: Path) -> tuple[dict[str, Any], float]:
    """The printed result (empty, but for the error, where there is none) and the user CPU, s."""
    before = os.times().children_user
    command = [sys.executable, "-m", "taut", "analyze", str(given), "--json", "--no-save", "-q"]
    environment = os.environ | {"PYTHONPATH": str(src), "TAUT_AUDIT": "off"}
    done = subprocess.run(command, cwd=tempfile.gettempdir(), env=environment, capture_output=True, text=True, check=False)
    result = json.loads(done.stdout) if done.stdout.startswith("{") else {"error": done.stderr.strip()[-150:] or "no output"}
    return result, os.times().children_user - before


class Answer:
    """A result beside the truth; below schema 3 there are no suspects and no changes."""

    def __init__(self, result: dict[str, Any], truth: Truth, ranks: int, ends: list[float], clean: list[float]) -> None:
        self.truth, self.ranks, self.ends, self.error = truth, ranks, ends, result.get("error")
        self.verdict, self.text = (result.get("verdict", {}).get(key, "") for key in ("class", "text"))
        self.changes, self.findings = result.get("changes"), result.get("findings", [])
        self.listed = self.findings + result.get("suspects", [])
        self.whole = [e for e in self.listed if len(e["ranks"]) >= ranks or self.place(e)[0] == "all_ranks"]
        self.modes, self.kinds = [e["mode"] for e in self.findings], [self.place(e)[0] for e in self.findings]
        self.blamed, self.culprits = self.named(*self.findings), set(truth.ranks) | {f"{a}:{b}" for a, b in truth.links}
        self.saved_ms = self.wall_ms(ends, truth.since) - self.wall_ms(clean, truth.since)
        self.saving = self.saved_ms / self.wall_ms(ends, truth.since)

    def wall_ms(self, ends: list[float], step: int) -> float:
        """Wall from the begin of a step to the end of the run."""
        return ends[-1] - (ends[step - 1] if 0 < step < len(ends) else 0.0)

    def place(self, entry: dict[str, Any]) -> tuple[str, str]:
        """Kind and name of the place of a finding."""
        place, names = entry.get("place") or entry.get("set") or {}, entry["links"] or entry["ranks"] or entry["stages"]
        usual = [kind for kind in ("link", "rank", "stage") if entry[kind + "s"]] or [entry["mode"]]
        return place.get("kind") or place.get("by") or usual[0], str(place.get("name") or ",".join(map(str, names)))

    def share(self, entry: dict[str, Any]) -> list[float]:
        """Saving since the onset and its interval, shares of the wall."""
        if since := (entry.get("recoverable") or {}).get("since_onset"):
            return [math.nan if since.get(key) is None else since[key] for key in ("value", "lo", "hi")]
        run, scale = entry.get("recoverable_share") or {}, self.ends[-1] / self.wall_ms(self.ends, entry["steps"][0])
        value = (entry["recoverable_wall_ns"] or 0) / 1e6 / self.ends[-1]
        return [part * scale for part in (value, run.get("lo", math.nan), run.get("hi", math.nan))]

    def named(self, *entries: dict[str, Any]) -> set[int | str]:
        """Ranks and links that findings single out."""
        some = [e["links"] if self.place(e)[0] == "link" else e["ranks"] or e["links"] for e in entries if e not in self.whole]
        return {name for names in some for name in names}

    def first_is(self, places: set[int | str] | None = None, slack: float = 1, within: float = math.inf) -> bool:
        """Whether the first finding names exactly these ranks and links, the onset and the saving."""
        if not self.findings or self.named(self.findings[0]) != (places or self.culprits):
            return False
        first = self.findings[0]
        return abs(first["steps"][0] - self.truth.since) <= slack and abs(self.share(first)[0] / self.saving - 1) <= within

    def line(self) -> str:
        """What is reported first."""
        if self.error or not self.listed:
            return self.error or f"nothing; {self.verdict}"
        first, (value, low, high) = self.listed[0], self.share(self.listed[0])
        where = "" if self.findings else "suspect: "
        where += f"{' '.join(self.place(first))} since {first['steps'][0]}, {value:.1%} ({low:.1%} to {high:.1%})"
        return f"{where}; {self.verdict}" + f", {len(self.listed)} listed" * (len(self.listed) > 1)

    def interval(self) -> bool | None:
        """Whether the interval of a right finding holds the truth."""
        _, low, high = self.share(self.findings[0]) if self.first_is(self.culprits, 99) else (0, None, None)
        return low <= self.saving <= high if low is not None else None

    def slower_together(self) -> bool:
        """All ranks together, since the right step, and nobody else."""
        steps = [e["steps"][0] for e in self.whole] + [int(n) for n in re.findall(r"\b\d+\b", f"{self.text} {self.changes}")]
        near = any(abs(step - self.truth.since) <= 1 + self.truth.since // 50 for step in steps)
        return near and bool(self.whole or self.verdict == "common") and not self.blamed

    def more_work(self) -> bool:
        """A change of work, or of all ranks with alternatives, but not a fault of some ranks."""
        degraded = any(e["mode"] == "silent degradation" and not e.get("alternatives") for e in self.findings)
        return bool(self.changes or self.whole or self.verdict == "common") and not self.blamed and not degraded

    def accident(self) -> bool:
        """One step with its cost, within 30 %."""
        hits = (e["recoverable_wall_ns"] or 0 for e in self.listed if e["steps"] == [self.truth.since] * 2)
        return self.verdict != "healthy" and any(abs(saved_ns / 1e6 / self.saved_ms - 1) <= 0.3 for saved_ns in hits)


RIGHT: dict[str, Callable[[Answer], bool | None]] = {
    "A1": lambda a: a.verdict not in ("healthy", "unknown") and not a.blamed and "input" in f"{a.modes} {a.text}",
    "A3": lambda a: a.verdict != "healthy" and not a.blamed,
    "A4": lambda a: not a.named(*a.listed) and (a.changes is None or bool(a.changes)),
    "A5": lambda a: not a.blamed and a.kinds[:1] in (["group"], ["tier"], ["level"], ["fabric contention"]),
    "A7": lambda a: a.first_is() or a.truth.place in [" ".join(a.place(e)) for e in a.findings[:1]],
    "A8": lambda a: a.named(*a.listed) == a.culprits,
    "A10": lambda a: a.first_is() and a.modes[0] == "checkpoint stall",
    "A11": lambda a: a.blamed <= a.culprits and a.first_is(a.named(*a.findings[:1]), within=0.3),
    "A12": lambda a: a.blamed == a.culprits or (a.blamed < a.culprits and f"{5 - len(a.blamed)} more" in a.text),
    "A13": lambda a: a.blamed == a.culprits,
    "A14": Answer.more_work,
    "A15": Answer.accident,
    "A17 SE": lambda a: [e["stages"] for e in a.findings[:1]] == [[a.truth.since]] and a.kinds[0] != "rank",
    "A17 AR": lambda a: a.named(*a.findings[:1]) == {0},
    "A17 ST": lambda a: not a.blamed or all(e["stages"] and len(e["ranks"]) != 1 for e in a.findings if a.named(e)),
    "A18": lambda a: a.verdict == "unknown",
    "A19": Answer.interval,
} | dict.fromkeys(("A2", "A16"), Answer.slower_together)
Case = namedtuple("Case", "row form layout fault options ranks stages steps shared noise", defaults=(8, 1, 30, 0.01, 0.015))
DDP, TPDP, PIPE, TIMES = Job.data_parallel, Job.tensor_and_data_parallel, Job.pipeline, Job.timed_step
FIVE_MS = (("slower", 5 / 35), ("new_op_ms", 5), ("more_op_ms", 5), ("idle_ms", 5))
CASES = [
    Case("A1", "kineto table", DDP, fault, ("load_ms", "all", 29.5, 0, 0, "erratic")),
    Case("A2", "kineto", DDP, fault, ("slower", "all", 1.2, 0, 8), steps=16),
    Case("A3", "kineto table", DDP, fault, ("idle_ms", "all", 116, 0, 0, "four"), steps=24),
    Case("A4", "table kineto", DDP, elastic, (), 16, steps=50),
    Case("A4", "steps", TIMES, elastic, (), 16, steps=50),
    Case("A5", "kineto table", DDP, fault, ("links", "world", 1, 3, 12), steps=32),
    Case("A6", "table", PIPE, fault, ("links", "link", 19), 16, 4, 20),
    *(Case("A7", "table kineto", TPDP, fault, ("links", *group), 16, steps=24) for group in (("tp", 8), ("dp", 6))),
    Case("A8", "steps", TIMES, fault, ("slower", "rank", 0.2, 0.4), 2, steps=60, noise=0.02),
    Case("A9", "steps", TIMES, fault, ("slower", "rank", 0.2), steps=60, shared=0.25),
    Case("A9", "table", DDP, fault, ("slower", "rank", 0.2), steps=40, shared=0.1),
    Case("A10", "kineto table", DDP, fault, ("save_ms", "rank 0", 26, 190, 0, "eighth"), steps=40),
    Case("A11", "table", DDP, fault, ("jitter", "interface", 2, 3.2), 16, steps=40),
    Case("A11", "table", PIPE, fault, ("jitter", "interface", 8, 13), 16, 4, 20),
    Case("A12", "table", DDP, fault, ("slower", "five", 0.1, 0.3), 16),
    Case("A13", "table", DDP, link_and_rank, (3, 10), steps=36),
    Case("A13", "table", PIPE, link_and_rank, (11, 0), 16, 4, 36),
    Case("A14", "kineto", DDP, partial(change, slower=0.5, batch=48), ("no fault: work × 1.5", 12), steps=32),
    Case("A14", "table", PIPE, partial(change, micro=9), ("no fault: work × 1.5", 12), 8, 4, 32),
    Case("A14", "table", DDP, fault, ("slower", "all", 0.5, 0, 8, "ramp"), steps=32),
    Case("A15", "kineto table", partial(DDP, times=2.62), fault, ("stall_ms", "link", 100.5, 0, 0, "once"), 4, steps=9),
    Case("A16", "steps", TIMES, fault, ("slower", "all", 929 / 777 - 1, 0, 215), 10, 1, 430, 0.02, 0.03),
    Case("A18", "table", DDP, partial(change, silent=5), ("no data of rank 5", 24), steps=40),
    Case("A18", "table kineto", DDP, change, ("one step",), steps=1),
    Case("A18", "steps", partial(TIMES, ms=1e-12), change, ("all times zero",)),
    Case("A19", "kineto table", DDP, fault, ("slower", "rank", 0.08, 0.5, 12), steps=36),
    Case("A19", "steps", TIMES, fault, ("slower", "rank", 0.08, 0.5), steps=60),
    Case("A19", "table", PIPE, fault, ("slower", "rank", 0.08, 0.5, 12), 16, 4),
    *(Case(f"T{n}", "table", DDP, fault, (kind, "rank 3", size, 0, 10)) for n, (kind, size) in enumerate(FIVE_MS, 1)),
]


def answer(case: Case, form: str, seed: int, src: Path) -> Answer:
    """One case, played without and with its fault, written and analysed."""
    ends = list[list[float]]()
    for faulty in (False, True):
        job = Job(seed, case.ranks, case.stages, case.noise)
        truth, effects = case.fault(np.random.default_rng([seed, 99]), case.ranks, *case.options)
        job.play(case.layout, case.steps, case.shared, effects if faulty else lambda s: Effect())
        ends.append(job.ends)
    with tempfile.TemporaryDirectory() as folder:
        getattr(job, f"write_{form}")(Path(folder))
        return Answer(analyze(Path(folder), src)[0], truth, case.ranks, ends[1], ends[0])


def report(row: str, form: str, answers: list[Answer]) -> bool:
    """One line: the first wrong answer, or the first, beside its truth, and how many are right. Whether any is wrong."""
    marks = [RIGHT.get(row, Answer.first_is)(a) if not a.error else False for a in answers]
    shown = answers[marks.index(False) if False in marks else 0]
    truth = f"{shown.truth.place} since {shown.truth.since}"
    truth += f", {shown.saving:.1%}" if shown.saving > 0 and "no fault" not in truth else ""
    print(f"{row:7}{form:7}{shown.line():75.150}| {truth:45}| {marks.count(True)} of {len(marks) - marks.count(None)} right")
    return False in marks


def production_jobs(folder: Path, src: Path) -> list[bool]:
    """A17: SE, whose last stage is the cause, AR, whose rank 0 was slowed, and ST, whose last stage has more work."""
    wrong = []
    for name, place, stage in (("SE", "stage 1, 0.69 of the loss", 1), ("AR", "rank 0", 0), ("ST", "no rank", 0)):
        result, _ = analyze(folder / "data" / f"trace-{name}.parquet", src)
        ends = [result.get("job", {"wall_ns": 1e6})["wall_ns"] / 1e6]
        wrong.append(report(f"A17 {name}", "real", [Answer(result, Truth(place, stage), 128, ends, ends)]))
    return wrong


def time_of_many(src: Path) -> bool:
    """A20: user CPU of 1,024 and of 4,096 ranks × 200 steps of step times."""
    seconds = []
    for ranks in (1024, 4096):
        with tempfile.TemporaryDirectory() as folder:
            took = np.random.default_rng(ranks).normal(200, 3, 200 * ranks)
            rows = [f"{n % ranks},{n // ranks},{ms:.3f}" for n, ms in enumerate(took.tolist())]
            (Path(folder) / "steps.csv").write_text("\n".join(["worker,step,step_time_ms", *rows]))
            seconds.append(analyze(Path(folder), src)[1])
    exponent = math.log(seconds[1] / seconds[0], 4)
    cost = f"{seconds[0]:.1f} s, then {seconds[1]:.1f} s of user CPU: exponent {exponent:.2f}"
    print(f"A20    steps  {cost:75}| {'exponent of at most 1.1':45}| {int(exponent <= 1.1)} of 1 right")
    return exponent > 1.1


def main() -> int:
    """Make, analyse and report the rows asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=4)
    for flag, usual in (("--src", Path(__file__).resolve().parents[1] / "src"), ("--straggler-analysis", None)):
        parser.add_argument(flag, type=Path, default=usual)
    given = parser.parse_args()
    wanted = set(given.only) or {case.row for case in CASES} | {"A17", "A20"}
    src, seeds, wrong = given.src.resolve(), range(given.seeds), list[bool]()
    for case in (case for case in CASES if case.row in wanted):
        wrong += [report(case.row, form, [answer(case, form, n, src) for n in seeds]) for form in case.form.split()]
    if "A17" in wanted and given.straggler_analysis:
        wrong += production_jobs(given.straggler_analysis, src)
    wrong += [time_of_many(src)] if "A20" in wanted else []
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
