"""Training jobs simulated from the hardware up, with known faults, to judge a diagnosis blindly.

    python validation/event_simulator.py --cases N --seed S [--jobs 2] [--json OUT]

Per rank a host thread (launches, loader with workers and a prefetch queue, pauses, checkpoints, allocator) feeds GPU streams;
collectives and messages meet, then flow through shared links. Noise is log-normal per op and message, red per rank and step,
heavy-tailed in pauses of the host. The truth is the same draws with the mechanism switched off: a saving is a share of the wall
from onset to end. Of step times the wall is the sum of the slowest workers, which is all that such a file holds.

Written before anything was scored. What the data cannot tell, 5 % of the cases; a first suspect counts as right there:
- pair_always: of two or three ranks one is slower from the first step on. There is no earlier time and no majority of peers.
- half_always: half of the ranks of one role are slower from the first step on, and the device is not recorded.
- three_steps: one rank is slower, but only three steps were recorded: nothing recurs often enough to tell it from chance.
Faults of all ranks, of roles held by fewer than four ranks, and of one of fewer than four links or groups begin after healthy
steps, so they can be told. Pauses of up to 0.8 % of the run come in healthy jobs too; savings below 1 % are in no band.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import math
import tempfile
import time
import zlib
from collections import Counter, namedtuple
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import taut

TABLE, EPOCH, UNSTABLE = 4096, 1_790_857_026 * 10**9, "structural instability"
PAUSES = ("host", "load", "fs", "ckpt", "gc", "alloc", "sync", "extra")
CHANNELS = ("clock", "mem", "expert", "seq", "copy", "page", "eval", *PAUSES)
Spec = namedtuple("Spec", "mech who shapes layouts formats")
Fault = namedtuple("Fault", "mech place targets shape level")
Op = namedtuple("Op", "kind name size deps lane group peer part tag", defaults=(0.0, (), "compute", "", -1, -1, "gemm"))
Record = namedtuple("Record", "step lane kind name op start end issue issued size seq", defaults=(-1, -1))

# Kind: mechanism (-: healthy or awkward), who has it, shapes, layouts, formats by letter (Kineto, table, step times).
LAYOUTS = {"G": "ddp fsdp hsdp pipe moe", "A": "ddp fsdp hsdp pipe moe gloo", "D": "ddp fsdp hsdp moe", "S": "ddp fsdp gloo"}
FAULTS = """
    device_slower_rank clock rank always,since,span,ramp A kts; gpu_capped_host clock host always,since,ramp G kts;
    gpu_capped_model clock model always,since G k; thermal_cycles_rank clock rank cycles G kts; slow_memory_rank mem rank
    always,since D kt; extra_kernels_rank extra rank since G kts; extra_kernels_all extra all since G kts; pageable_copy_rank
    page rank always,since D kts; pcie_degraded_host copy host always,since D kts; loader_starved_rank load rank always,since
    D kts; loader_starved_all load all since A kts; shared_fs_stalls fs all intermittent A kts; checkpoint_rank0 ckpt first
    periodic A kts; checkpoint_all ckpt all periodic A kts; gc_pauses_rank gc rank intermittent,periodic A kts; gc_pauses_all
    gc all periodic A kts; core_preempted_rank host rank since,intermittent A kts; noisy_neighbour_host host host since,span A
    kts; host_slower_all host all since A kts; fragmentation_rank alloc rank ramp G kt; long_inputs_rank seq rank always,since
    D kts; expert_hot_rank expert rank always,since moe kt; nic_quarter nic nic always,since pipe kt; link_slow link link
    always,since,span pipe kt; lossy_link loss link since,intermittent pipe kt; noisy_traffic_link traffic link span,since
    pipe kt; group_slow group group always,since hsdp,moe kt; all_reduce_slow_all group world since S kt; switch_slow_rack
    switch rack always,since hsdp kt; accident_rank gc rank single A kts; accident_all gc all single A kts; sync_logging_rank
    sync rank since G kt; slow_stage clock stage since,ramp pipe kt; two_ranks clock+gc rank+rank since+intermittent D kts;
    rank_and_link clock+link rank+link since+since pipe kt; pair_always clock rank always S kts; half_always clock half always
    S kts; three_steps clock rank always D kt"""
HEALTHY = {
    "A": "clean clean_large red_noise five_steps warm_up_compile evaluation_logging harmless_clocks frequent_stalls_all",
    "G": "brief_checkpoints host_bound_jitter mixed_models", "pipe": "unequal_stages embedding_stage",
    "D": "variable_lengths batch_change", "S": "two_ranks_only three_ranks", "ddp,gloo": "elastic_resize",
}  # fmt: skip
KINDS = {line.split()[0]: Spec(*line.split()[1:]) for line in FAULTS.split(";")}
KINDS |= {kind: Spec("-", "-", "always", on, "kkts" if on != "D" else "kt") for on in HEALTHY for kind in HEALTHY[on].split()}
UNTELLABLE = ("pair_always", "half_always", "three_steps")
CALM = [kind for kind, spec in KINDS.items() if spec.mech == "-"]
SHORTEST = {"always": 5, "since": 14, "span": 20, "ramp": 20, "periodic": 20, "intermittent": 24, "cycles": 24, "single": 10}
# What a layer does, forward and backward: F, B, A, E, N kernels; G, S, R, T collectives.
PATTERNS = {"ddp": "FN BR", "gloo": "F BR", "fsdp": "GFN GBS", "hsdp": "GFN GBSR", "moe": "ANTET ATET"}
KERNELS = {"F": ("layer", 0.8), "B": ("layer", 1.0), "A": ("attention", 0.5), "E": ("expert", 0.3), "N": ("norm", 0.2)}
VERBS = {"G": ("all_gather", 0.3), "S": ("reduce_scatter", 0.3), "R": ("all_reduce", 1.0), "T": ("all_to_all", 0.2)}
CALLS = {"all_reduce": "allreduce_", "all_gather": "_allgather_base_", "all_to_all": "alltoall_base_", "send": "send"}


class Job:
    """Everything drawn of a job before it runs: layout, hardware, programs, noise and awkward features."""

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.spec, self.rng = kind, KINDS[kind], np.random.default_rng([zlib.crc32(kind.encode()), seed])
        self.layout = str(self.rng.choice(LAYOUTS.get(self.spec.layouts, self.spec.layouts.replace(",", " ")).split()))
        letters = self.spec.formats if self.layout in ("ddp", "fsdp", "gloo") else self.spec.formats.replace("s", "")
        self.format = str(self.rng.choice(list(letters)))
        for draw in (self._place, self._work, self._noise):
            draw(self.rng)

    def _place(self, rng: np.random.Generator) -> None:
        fixed = {"pair_always": (2, 3), "two_ranks_only": (2,), "three_ranks": (3,), "clean_large": (64, 96, 128)}
        fixed |= {"half_always": (4, 8, 16, 32), "switch_slow_rack": (16, 24, 32), "group_slow": (8, 16, 24, 32)}
        wide = (64, 128) if self.format == "s" or (self.format == "t" and self.kind in CALM) else ()
        usual, many = (4, 6, 8, 8, 12, 16, 16, 24, 32, *wide), self.spec.who in ("host", "model", "rack", "nic")
        self.ranks = n = int(rng.choice(fixed.get(self.kind, usual[2:] if many else usual)))
        fit = [k for k in (1, 2, 2, 4, 4, 8) if n / 16 <= k <= n / (3 if many else 1)] or [8]
        self.per_host = 2 if self.spec.who == "rack" else int(rng.choice(fit))
        self.host = [r // self.per_host for r in range(n)]
        self.hosts, own = self.host[-1] + 1, rng.random() < 0.5
        self.rack = [h // 2 if self.hosts > 2 else 0 for h in self.host]
        self.nic = [r if own else h for r, h in enumerate(self.host)]
        self.offset, self.drift = rng.uniform(-1, 1, (2, self.hosts)) * ([10 ** rng.uniform(-4, 0.6)], [8e-6])
        mixed = max(1, (self.hosts - 1) // 3) if self.kind in ("gpu_capped_model", "mixed_models") else 0
        other = rng.permutation(self.hosts)[:mixed]
        self.model = ["NVIDIA H100 PCIe" if h in other else "NVIDIA H100 80GB HBM3" for h in range(self.hosts)]
        card, least = 10 ** rng.uniform(10.0, 10.7), 2 if self.kind == "slow_stage" else 1
        rack = card * 2 * (self.per_host if own else 1)
        self.caps = {"nv": 250e9, "tx": card, "rx": card, "tor": rack, "up": rack * rng.uniform(0.7, 1)}
        stages = [p for p in (2, 3, 4, 4, 6, 8) if n % p == 0 and n // p >= least] if self.layout == "pipe" else [1]
        self.stages, inner = int(rng.choice(stages)), rng.random() < 0.5
        self.replicas, self.micro = n // self.stages, int(rng.integers(3, 7))
        self.stage = [r % self.stages if inner else r // self.replicas for r in range(n)]
        self.dp = [r // self.stages if inner else r % self.replicas for r in range(n)]
        self.shard = 4 if self.spec.who == "rack" else max([k for k in (2, 4, 8) if n % k == 0 and n >= 4 * k], default=2)
        self.left = max(2, n - int(rng.integers(1, max(2, n // 3)))) if self.kind == "elastic_resize" else n
        self.groups = {"world": list(range(n))} | ({"world_1": list(range(self.left))} if self.left < n else {})
        self.groups |= {f"dp_{p}": [r for r in range(n) if self.stage[r] == p] for p in range(self.stages) if self.stages > 1}
        if self.layout in ("hsdp", "moe"):
            self.groups |= {f"inner_{i}": list(range(i * self.shard, (i + 1) * self.shard)) for i in range(n // self.shard)}
            self.groups |= {f"outer_{j}": list(range(j, n, self.shard)) for j in range(self.shard)}
        pairs = {g: zip(m, m[1:] + m[:1], strict=True) for g, m in self.groups.items()}
        self.rings = {g: tuple(dict.fromkeys(link for a, b in p for link in self.path(a, b))) for g, p in pairs.items()}
        used = Counter((g.split("_")[0], link) for g, ring in self.rings.items() for link in ring)
        self.rates = {g: min(self.caps[k[0]] / used[g.split("_")[0], k] for k in ring) for g, ring in self.rings.items()}

    def path(self, a: int, b: int) -> tuple[Any, ...]:
        """The links that a message from one rank to another passes."""
        up = (("up", self.rack[a], 0), ("up", self.rack[b], 1), ("tor", self.rack[b])) if self.rack[a] != self.rack[b] else ()
        far = (("tx", self.nic[a]), ("tor", self.rack[a]), *up, ("rx", self.nic[b]))
        return far if self.host[a] != self.host[b] else (("nv", self.host[a]),)

    def _work(self, rng: np.random.Generator) -> None:
        self.compute = 10 ** rng.uniform(-1.6, -0.3)
        self.ratio = rng.uniform(0.2, 0.5) if self.spec.mech in ("group", "switch", "nic") else rng.uniform(0.08, 0.45)
        self.layers = int(rng.integers(2, 4 if self.format == "s" or self.ranks > 32 else 6))
        bound = self.spec.mech == "host" or self.kind == "host_bound_jitter" or rng.random() < 0.1
        self.host_share = rng.uniform(0.9, 1.1) if bound else rng.uniform(0.02, 0.3)
        self.launch_s, self.workers = rng.uniform(8e-6, 3e-5), int(rng.integers(1, 5))
        self.load_s, self.copy_s = self.workers * self.compute * rng.uniform(0.3, 0.7), self.compute * rng.uniform(0.02, 0.06)
        self.sync_each = bool(self.format == "s" or self.layout == "gloo" or rng.random() < 0.7)
        spread = 0.35 if self.kind == "unequal_stages" else rng.choice([0, 0.1]) if self.stages > 1 else 0
        self.weights = 1 + rng.uniform(-spread, spread, self.stages)
        self.weights[rng.choice([0, -1])] *= rng.uniform(1.3, 2.0) if self.kind == "embedding_stage" else 1
        per_step = self.ranks * (self.layers * 4 if self.stages == 1 else self.micro * 6)
        shortest = max(SHORTEST[s] for s in self.spec.shapes.replace("+", ",").split(","))
        awkward = self.kind in ("elastic_resize", "batch_change", "evaluation_logging", "brief_checkpoints")
        few = "always" in self.spec.shapes and self.spec.who == "rank" and self.stages == 1 and rng.random() < 0.4
        shortest = 16 if awkward else 5 if few else shortest
        fit = 10 ** rng.uniform(3.2, 3.7 if self.format == "k" else 4.1) / per_step
        self.steps = {"three_steps": 3, "five_steps": 5}.get(self.kind, int(np.clip(fit, shortest, 300)))
        self.first_step = int(rng.choice([0, 0, 1, 100, 551]))

    def _noise(self, rng: np.random.Generator) -> None:
        n, steps, self.ops = self.ranks, self.steps, [[program(self, r)] * self.steps for r in range(self.ranks)]
        self.width = max(len(row[0]) for row in self.ops) + 1
        self.op_noise = np.exp(rng.normal(0, 10 ** rng.uniform(-2.7, -1.5), (n, steps, self.width))).tolist()
        rho, red = rng.uniform(0.7 if self.kind == "red_noise" else 0, 0.95), rng.normal(0, 1, (n, steps))
        for s in range(1, steps):
            red[:, s] = rho * red[:, s - 1] + math.sqrt(1 - rho**2) * red[:, s]
        every, each = 0.01 * rng.random() * rng.normal(0, 1, steps), rng.normal(0, 0.001, (n, 1))
        self.pace = np.exp((0.006 if rho > 0.7 else 0.015) * rng.uniform(0.1, 1) * red + every + each).tolist()
        sigmas = (rng.uniform(0.05, 0.3), rng.uniform(0.01, 0.06))
        self.host_noise, self.net_noise = (np.exp(rng.normal(0, sigma, TABLE)).tolist() for sigma in sigmas)
        self.uniform, self.pause_at = rng.random(TABLE).tolist(), rng.random((n, steps)).tolist()
        self.load_noise = np.exp(rng.normal(0, rng.uniform(0.03, 0.25), (n, steps))).tolist()
        self.base = {name: np.zeros((n, steps)) for name in CHANNELS}
        tail = np.minimum((rng.pareto(1.5, (n, steps)) + 1) * 0.01, 0.008 * min(steps, 40)) * self.compute
        self.base["gc"] += (rng.random((n, steps)) < 0.3 / n * rng.random()) * tail
        base, kind, c, cut = self.base, self.kind, self.compute, int(steps * rng.uniform(0.3, 0.7))
        warm = int(rng.integers(1, 4)) if kind == "warm_up_compile" or (steps > 8 and rng.random() < 0.25) else 0
        base["gc"][:, :warm] += c * rng.uniform(0.5, 4, warm) * np.exp(rng.normal(0, 0.1, (n, warm)))
        some = {name: float(kind == name) for name in CALM}
        base["eval"][:, 4 :: int(rng.integers(4, 8))] += some["evaluation_logging"] * c * rng.uniform(0.3, 1.5)
        base["gc"][0, :: int(rng.integers(2, 5))] += some["evaluation_logging"] * 0.004 * c
        base["seq"] += some["variable_lengths"] * (np.exp(rng.normal(0, rng.uniform(0.05, 0.25), (n, steps))) - 1)
        base["seq"][:, cut:] += some["batch_change"] * rng.uniform(0.25, 1.0)
        base["clock"] += (kind in ("harmless_clocks", "mixed_models")) * rng.uniform(0, 0.004, self.hosts)[self.host][:, None]
        stalls = (rng.random((n, steps)) < rng.uniform(0.5, 3) / n) * rng.exponential(0.1 * c, (n, steps))
        base["gc"] += some["frequent_stalls_all"] * stalls
        base["ckpt"][:, 4 :: int(rng.integers(5, 9))] += some["brief_checkpoints"] * 0.03 * c
        base["seq"][:, cut:] += n / self.left - 1
        for r in range(n if self.left < n else 0):
            self.ops[r][cut:] = [program(self, r, "world_1") if r < self.left else None] * (steps - cut)


def program(job: Job, r: int, world: str = "world") -> list[Op]:
    """What a rank does in every step."""
    copied, ends, past = [Op("h2d", "input", job.copy_s, lane="copy")] if job.layout != "gloo" else [], list[int](), list[int]()
    ops, waits = [Op("load", "load"), *copied], [1] * len(copied)
    if job.layout == "pipe":
        _pipeline(job, r, ops, ends)
    inner, outer = (f"inner_{r // job.shard}", f"outer_{r % job.shard}") if job.layout in ("hsdp", "moe") else (world, world)
    for way, pattern in zip(("forward", "backward"), PATTERNS.get(job.layout, "").split(), strict=False):
        for letter in pattern * job.layers:
            if letter in KERNELS:
                (name, part), tag = KERNELS[letter], {"E": "expert", "N": "mem"}.get(letter, "gemm")
                size = job.compute / job.layers * part * (1 / 3 if way == "forward" else 2 / 3)
                past.append(len(ops))
                ops.append(Op("k", f"{name}_{way}", size, tuple(waits), tag=tag))
                waits.clear()
                continue
            (name, part), group = VERBS[letter], outer if letter == "R" else inner
            size = job.ratio * job.compute / job.layers * part * job.rates[group] * (0.5 if job.layout == "hsdp" else 1)
            (waits if letter in "GT" else ends).append(len(ops))
            ops.append(Op("c", name, size, tuple(past[-2:-1] if letter == "G" else past[-1:]), name, group))
    wide, ends = job.ratio / 4 * job.compute * job.rates[world], [len(ops)] if job.layout == "moe" else ends
    ops += [Op("c", "all_reduce", wide, (past[-1], *waits), "reduce", world)] if job.layout == "moe" else []
    return [*ops, Op("k", "optimizer", job.compute * 0.05, tuple(ends), tag="opt"), Op("sync", "sync")]


def _pipeline(job: Job, r: int, ops: list[Op], ends: list[int]) -> None:
    """One forward, one backward: micro-batches through the stages, then gradients over the replicas."""
    p, start = job.stage[r], (1,)
    at = {job.stage[k]: k for k in range(job.ranks) if job.dp[k] == job.dp[r]}
    each, ahead = job.compute / job.micro, min(job.stages - p - 1, job.micro)
    size = each * job.ratio / 2 * job.caps["tx" if job.hosts > 1 else "nv"]
    order = [(m - ahead, "forward", m) for m in range(job.micro)] + [(m + 0.5, "backward", m) for m in range(job.micro)]
    for _, way, m in sorted(order):
        share, before, after = (1 / 3, p - 1, p + 1) if way == "forward" else (2 / 3, p + 1, p - 1)
        if before in at:
            start = (*start, len(ops))
            ops.append(Op("p", "recv", size, (), f"recv_{way}", "", at[before], m))
        ops.append(Op("k", way, each * share * job.weights[p], start, part=m))
        start = ()
        if after in at:
            ops.append(Op("p", "send", size, (len(ops) - 1,), f"send_{way}", "", at[after], m))
    ends += [len(ops)] * (job.replicas > 1)
    wide = job.ratio * job.compute / 2 * job.rates[f"dp_{p}"]
    ops += [Op("c", "all_reduce", wide, (len(ops) - 1,), "reduce", f"dp_{p}")] * len(ends)


class Run:
    """One execution of a job on a heap: processes yield delays, or events: lists of whether it happened and who waits."""

    def __init__(self, job: Job, faults: list[tuple[Fault, float]]) -> None:
        self.job, self.now, self.heap, self.count = job, 0.0, [], 0
        acts, self.slow = {name: values.copy() for name, values in job.base.items()}, {}
        for mech, target, more in [(fault.mech, target, x * fault.level) for fault, x in faults for target in fault.targets]:
            bursts = np.array(job.uniform[: job.steps]) * 2 if mech == "traffic" else 1.0
            self.slow[target] = (more * bursts).tolist()
            acts.get(mech, {target: 0.0})[target] += more
        self.act = [{name: values[r].tolist() for name, values in acts.items()} for r in range(job.ranks)]
        self.users, self.slots, self.tails, self.seqs = {}, {}, {}, Counter()
        self.records: list[list[Record]] = [[] for _ in range(job.ranks)]
        self.marks, self.own = np.full((job.ranks, job.steps, 2), np.nan), np.zeros((job.ranks, job.steps))
        self.wake([self._host(r) for r in range(job.ranks)])
        while self.heap:
            self.now, _, process = heapq.heappop(self.heap)
            for wanted in process:
                if isinstance(wanted, float) or not wanted[0]:
                    self.wake([process], wanted) if isinstance(wanted, float) else wanted.append(process)
                    break
        self.here = np.array([[job.ops[r][s] is not None for s in range(job.steps)] for r in range(job.ranks)])

    def wake(self, processes: list[Any], delay: float = 0.0) -> None:
        for process in processes:
            self.count += 1
            heapq.heappush(self.heap, (self.now + delay, self.count, process))

    def _host(self, r: int) -> Any:
        job, act, before, loader = self.job, self.act[r], [], ([0.0] * self.job.workers, [])
        for s in [s for s in range(job.steps) if job.ops[r][s] is not None]:
            self.marks[r, s, 0], events = self.now, []
            yield from self._blocks(r, s, "checkpoint", act["ckpt"][s]) if act["ckpt"][s] else ()
            pause = int(job.pause_at[r][s] * (len(job.ops[r][s]) - 1)) if act["gc"][s] else -1
            for i, op in enumerate(job.ops[r][s][:-1]):
                yield from (act["gc"][s],) if i == pause else ()
                events.append((yield from self._issue(r, s, i, op, [events[d] for d in op.deps], loader)))
                log = act["sync"][s] / 6 if op.kind == "k" else 0.0
                yield from self._blocks(r, s, "log", events[-1], log) if log else ()
            for name in [name for name in ("extra", "eval") for _ in range(4) if act[name][s]]:
                more = Op("k", f"{name}_kernel", act[name][s] / 4, tag="more")
                events.append((yield from self._issue(r, s, job.width - 1, more, [], loader)))
            yield from self._blocks(r, s, "cudaMalloc", *events, act["alloc"][s]) if act["alloc"][s] else ()
            yield from self._blocks(r, s, "cudaDeviceSynchronize", *(events if job.sync_each else before))
            yield job.launch_s
            before, self.marks[r, s, 1] = events, self.now
        yield from before
        self.marks[r, s, 1] = self.now

    def _blocks(self, r: int, s: int, name: str, *wanted: Any) -> Any:
        start = self.now
        yield from wanted
        self.records[r].append(Record(s, "host", "host", name, None, start, self.now, start, self.now))

    def _issue(self, r: int, s: int, i: int, op: Op, deps: list[Any], loader: Any) -> Any:
        job, act, start, size, inline = self.job, self.act[r], self.now, op.size, self.job.layout == "gloo"
        cost = job.launch_s + (job.host_share * size if op.kind == "k" and not inline else 0.0)
        cost *= job.host_noise[(r * 7919 + s * 104729 + i * 31) % TABLE] * (1 + act["host"][s])
        if op.kind == "load":
            worker, (free, taken) = s % job.workers, loader
            begun = max(free[worker], taken[s - 2 * job.workers] if s >= 2 * job.workers else 0.0)
            free[worker] = begun + job.load_s * job.load_noise[r][s] * (1 + act["load"][s]) + act["fs"][s]
            yield from self._blocks(r, s, "load", max(cost, free[worker] - start))
            taken.append(self.now)
            return [True]
        if op.kind == "k":
            size *= job.op_noise[r][s][i] * job.pace[r][s] * (1 + act["clock"][s] + (act["host"][s] if inline else 0.0))
            size *= (1 + act["seq"][s] * (op.tag != "opt")) * (1 + act[op.tag][s] if op.tag in ("mem", "expert") else 1.0)
        elif op.kind == "h2d":
            size *= job.op_noise[r][s][i] * (1 + act["seq"][s]) * (1 + act["copy"][s] + act["page"][s])
        yield cost
        self.seqs[r, op.group] += op.kind == "c"
        event, before = [False], self.tails.get((r, op.lane), [True])
        self.tails[r, op.lane] = event
        self.wake([self._launched(r, s, op, size, [before, *deps], event, start, self.now, self.seqs[r, op.group])])
        yield from [event] if (op.kind == "h2d" and act["page"][s]) or (op.kind == "k" and inline) else ()
        return event

    def _launched(self, r: int, s: int, op: Op, size: float, waits: list[Any], event: list[Any], *launch: Any) -> Any:
        yield from waits
        start, copied = self.now, op.size * 24e9 * (1 + self.act[r]["seq"][s])
        moved = {"h2d": int(copied), "k": -1}.get(op.kind, int(op.size))
        yield self._meet(r, op, s, launch[2]) if op.kind in "cp" else size
        self.own[r, s] = self.now if op.kind == "k" and op.tag != "opt" else self.own[r, s]
        self.records[r].append(Record(s, op.lane, op.kind, op.name, op, start, self.now, *launch[:2], moved, launch[2]))
        event[0] = True
        self.wake(event[1:])

    def _meet(self, r: int, op: Op, s: int, seq: int) -> list[Any]:
        job, at = self.job, zlib.crc32(op.group.encode()) + seq * 7919
        if op.kind == "c":
            members, links, keys = len(job.groups[op.group]), job.rings[op.group], [("group", op.group), (op.group, seq)]
        else:
            a, b = (r, op.peer) if op.name == "send" else (op.peer, r)
            at = a * 6151 + b * 389 + s * 7919 + op.part * 17
            members, links, keys = 2, job.path(a, b), [("pair", a, b), (a, b, op.lane[4:], s, op.part)]
        slow, loss = (self.slow[key][s] if key in self.slow else 0.0 for key in (keys[0], ("loss", *keys[0][1:])))
        again = loss / max(0.1, job.uniform[at % TABLE]) if job.uniform[(at + 1) % TABLE] < 0.5 else 0.0
        arrived, event = self.slots.get(keys[1], (0, [False]))
        self.slots[keys[1]] = arrived + 1, event
        if arrived + 1 == members:
            caps = [(link, job.caps[link[0]] / (1 + (self.slow[link][s] if link in self.slow else 0.0))) for link in links]
            flow = [op.size * job.net_noise[at % TABLE] * (1 + slow), caps, 1.0, event, 0.0, 0]
            self.wake([self._flow(flow, 0)], 4e-6 * members * (1 + slow) + again)
        return event

    def _flow(self, flow: list[Any], version: int) -> Any:
        touched = {}
        for link, _ in flow[1] if version == flow[5] else ():
            users = self.users.setdefault(link, {})
            users.pop(id(flow)) if version else users.update({id(flow): flow})
            touched.update(users)
        flow[3][0] = flow[3][0] or version == flow[5] > 0
        self.wake(flow[3][1:] if version == flow[5] > 0 else [])
        for other in touched.values():
            other[0] -= other[2] * (self.now - other[4]) if other[5] else 0.0
            other[2], other[4] = min(cap / len(self.users[link]) for link, cap in other[1]), self.now
            other[5] += 1
            self.wake([self._flow(other, other[5])], max(other[0], 0.0) / other[2])
        yield from ()

    def walls(self) -> np.ndarray:
        """Wall time from the begin of each step to the end of the job, s."""
        own = np.where(self.here, self.own - self.marks[:, :, 0], 0.0).max(axis=0)
        wall = np.nanmax(self.marks) - np.nanmin(self.marks[:, :, 0], axis=0)
        return np.cumsum(own[::-1])[::-1] if self.job.format == "s" else wall


def whom(job: Job, who: str, mech: str, taken: list[int]) -> tuple[dict[str, Any], list[Any], int]:
    """The place of a fault, what its mechanism acts on, and how many like it there are."""
    rng, n = job.rng, job.ranks
    if who in ("nic", "link"):
        hops = sorted({(r, op.peer) for r in range(n) for op in job.ops[r][0] if op.name == "send"})
        able = [hop for hop in hops if not {*hop} & {*taken} and (who == "link" or job.host[hop[0]] != job.host[hop[1]])]
        a, b = (able or hops)[rng.integers(len(able or hops))]
        near = [[r for r in range(n) if job.nic[r] == job.nic[end]] for end in (a, b)]
        if who == "link":
            place = {"kind": "link", "links": [f"{a}:{b}"], "ranks": [], "near": near}
            return place, [("loss" if mech == "loss" else "pair", a, b)], len(hops)
        links = [f"{c}:{d}" for c, d in hops if (c in near[0]) != (d in near[0]) and job.host[c] != job.host[d]]
        place = {"kind": "interface", "links": links, "ranks": near[0], "near": near[:1]}
        return place, [("tx", job.nic[a]), ("rx", job.nic[a])], len({*job.nic})
    if who in ("all", "world"):
        return {"kind": "all_ranks", "ranks": [*range(n)]}, [("group", "world")] if who == "world" else [*range(n)], 1
    of = {"host": job.host, "stage": job.stage, "rack": [r // 4 for r in range(n)], "group": [r // job.shard for r in range(n)]}
    of |= {"rank": [*range(n)], "first": [r > 0 for r in range(n)], "half": (rng.permutation(n) < n // 2).tolist()}
    of |= {"model": [not job.model[h].endswith("PCIe") for h in job.host]}
    value = of[who][rng.choice([r for r in range(n) if r not in taken])] if who not in ("first", "model", "half") else False
    ranks = [r for r in range(n) if of[who][r] == value]
    targets = {"group": [("group", f"inner_{value}")], "switch": [("tor", value)]}.get(mech, ranks)
    alike = {"rank": job.replicas, "model": job.hosts, "stage": 1}.get(who, len({*of[who]}))
    return {"kind": who, "ranks": ranks}, targets, alike if who == "rank" or job.stages == 1 else 1


def when(job: Job, shape: str) -> np.ndarray:
    """How strongly a fault acts in each step, 0 to 1; a device that cycles heats up, throttles, cools and recovers."""
    rng, n, at = job.rng, job.steps, np.arange(job.steps)
    first, every = max(min(4, n - 1), int(n * rng.uniform(0.2, 0.55))), int(rng.integers(3, max(4, n // 5) + 1))
    hit = (rng.random(n) < rng.uniform(0.15, 0.4)) | np.isin(at, rng.choice(n, min(n, 3), replace=False))
    shapes = {"always": at >= 0, "since": at >= first, "span": (at >= first) & (at <= first + n // 4), "single": at == first}
    ramp = np.clip((at - first // 2) / (n - 1 - first // 2), 0, 1)
    shapes |= {"periodic": at % every == every - 1, "intermittent": hit, "cycles": np.zeros(n), "ramp": ramp}
    hot, heat, speed = False, 0.5, rng.uniform(0.15, 0.5)
    for s in range(first, n if shape == "cycles" else first):
        heat += speed * ((0.0 if hot else 1.0) - heat)
        hot = heat > (0.3 if hot else 0.75)
        shapes["cycles"][s] = hot * min(1.0, 0.5 + heat)
    return shapes[shape] * 1.0


def solve(job: Job) -> tuple[Run, list[dict[str, Any]]]:
    """The run as it is, and the truth: what each fault costs against the same draws without it."""
    rng, taken, chosen, alone, truth = job.rng, list[int](), list[Any](), [Run(job, [])], list[dict[str, Any]]()
    for mech, who, shapes in zip(*(part.split("+") for part in job.spec[:3]), strict=True) if job.kind not in CALM else ():
        place, targets, alike = whom(job, who, mech, taken)
        told = [s for s in shapes.split(",") if SHORTEST[s] <= job.steps and (alike > 3 or s != "always")]
        shape = str(rng.choice(told)) if told else "always" if job.kind in UNTELLABLE else "since"
        wall = alone[0].walls()
        fault = Fault(mech, place, targets, {"cycles": "intermittent"}.get(shape, shape), when(job, shape))
        taken += place["ranks"] or [int(end) for end in place["links"][0].split(":")]
        onset, band = int(np.flatnonzero(fault.level)[0]), rng.random()
        aim = rng.uniform(*((0.01, 0.03) if band < 0.12 else (0.03, 0.05))) if band < 0.4 else 0.05 * 12 ** rng.random()
        aim = min(aim, 0.25) if "+" in job.spec.mech else aim
        x = aim / (1 - aim) * wall[onset] / fault.level.sum() / (1.0 if mech in PAUSES else job.compute)
        low, high, best = 0.0, math.inf, (math.inf, None, None)
        for _ in range(6):
            run = Run(job, [(fault, x)])
            got = max(1e-6, 1 - wall[onset] / run.walls()[onset])
            best = min(best, (abs(math.log(got / aim)), x, run), key=lambda one: one[0])
            if best[0] < math.log(1.5):
                break
            low, high = (x, high) if got < aim else (low, x)
            x = math.sqrt(low * high) if low and high < math.inf else x * min(5, max(0.15, aim / max(got, 0.2 * aim)))
        chosen, alone = [*chosen, (fault, best[1])], [*alone, best[2]]
    run = alone[-1] if len(chosen) < 2 else Run(job, chosen)
    for (fault, _), without in zip(chosen, alone if len(chosen) < 2 else alone[:0:-1], strict=False):
        onset = int(np.flatnonzero(fault.level)[0])
        saving = float(1 - without.walls()[onset] / run.walls()[onset])
        truth.append({"mech": fault.mech, "place": fault.place, "shape": fault.shape, "onset": onset, "saving": saving})
    return run, truth


def write(job: Job, run: Run, folder: Path) -> None:
    """The files of a run, in the format of the job; local times count in ns from the same moment."""

    def local(r: int, t: float) -> int:
        return round((20 + t + job.offset[job.host[r]] + t * job.drift[job.host[r]]) * 1e9)

    for r in range(job.ranks if job.format == "k" else 0):
        (folder / f"rank{r}.json.gz").write_bytes(gzip.compress(kineto(job, run, r, local).encode(), 1, mtime=0))
    cells = [(r, s) for r in range(job.ranks) for s in np.flatnonzero(run.here[r])]
    rows = [f"{r},{job.first_step + s},{run.own[r, s] - run.marks[r, s, 0]:.7f}" for r, s in cells]
    head = "rank,step,class,start_ns,duration_ns,stream,bytes,group,seq,peer,mb,host,stage,dp_rank"
    rows = [head] if job.format == "t" else ["worker,step,step_time_s", *rows]
    for k, e in [(j, one) for j in range(job.ranks) for one in run.records[j] if job.format == "t" and "Sync" not in one.name]:
        a, b, part = local(k, e.start), local(k, e.end), e.op.part if e.op and e.op.part >= 0 else ""
        talk = f"{e.op.group},{e.seq}," if e.kind == "c" else f",,{e.op.peer}" if e.kind == "p" else ",,"
        role = f"node{job.host[k]},{job.stage[k]},{job.dp[k]}" if job.stages > 1 else f"node{job.host[k]},,"
        name, size = f"{e.lane[5:]}_{e.name}" if e.kind == "p" else e.name, e.size if e.size >= 0 else ""
        rows.append(f"{k},{job.first_step + e.step},{name},{a},{b - a},{e.lane},{size},{talk},{part},{role}")
    if job.format != "k":
        (folder / "job.csv").write_text("\n".join(rows) + "\n")


def kineto(job: Job, run: Run, r: int, local: Any) -> str:
    """The profiler's trace of one rank."""
    events, gloo, gpu, lanes = [], job.layout == "gloo", r % job.per_host, sorted({e.lane for e in run.records[r]})

    def put(cat: str, name: str, tid: int, a: float, b: float, args: str = "") -> None:
        a, b, pid = local(r, a) / 1e3, local(r, b) / 1e3, gpu if cat in ("kernel", "gpu_memcpy") else 4000 + r
        head = f'{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":{tid}'
        events.append(f'{head},"ts":{a:.3f},"dur":{b - a:.3f},"args":{{{args}}}}}')

    for s in np.flatnonzero(run.here[r]):
        put("user_annotation", f"ProfilerStep#{job.first_step + s}", 100, *run.marks[r, s])
    for n, e in enumerate([e for e in run.records[r] if not (gloo and "cuda" in e.name)], 1):
        tie, stream, end, sort = f'"correlation":{n}', lanes.index(e.lane) * 6 + 7, e.issued - 1e-6, '"Input type":["float"]'
        what = f'"Input Dims":[[{int(2048 * (1 + run.act[r]["seq"][e.step]))},1024]],{sort}'
        on = f'"device":{gpu},"stream":{stream},{tie}'
        if e.kind == "host":
            name = {"load": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"}.get(e.name, e.name)
            put("cuda_runtime" if "cuda" in name else "user_annotation", name, 100, e.start, e.end, tie)
        elif e.kind in "cp" and gloo:
            what = f'"Input Dims":[[{e.size // 4}]],{sort}'
            put("cpu_op", f"c10d::{CALLS.get(e.name, e.name + '_')}", 100, e.issue, e.issued, what)
            put("user_annotation", f"gloo:{e.name}", 101, e.start, e.end, what)
        elif e.kind in "cp":
            group, half, call = e.op.group or "world", e.size // 2, CALLS.get(e.name, e.name + "_")
            kernel = "SendRecv" if e.kind == "p" else e.name.title().replace("_", "")
            what = f'"Collective name":"{call.strip("_")}","In msg nelems":{half},"Out msg nelems":{half},"dtype":"BFloat16"'
            what += f',"Group size":{len(job.groups[group])},"Process Group Name":"{group}"'
            what += f',"Seq":{e.seq}' if e.kind == "c" else f',"{"Dst" if e.name == "send" else "Src"} Rank":{e.op.peer}'
            put("cpu_op", f"c10d::{call}", 100, e.issue, e.issued)
            put("cpu_op", "record_param_comms", 100, e.issue + 1e-6, end, what)
            put("cuda_runtime", "cudaLaunchKernelExC", 100, max(e.issue + 2e-6, end - 5e-6), end - 5e-7, tie)
            put("kernel", f"ncclDevKernel_{kernel}_RING_LL", stream, e.start, e.end, f"{what},{on}")
        elif e.kind == "h2d":
            kept, word = (end, "Pinned") if not run.act[r]["page"][e.step] else (e.end + 1e-6, "Pageable")
            put("cpu_op", "aten::copy_", 100, e.issue, kept + 1e-6, what)
            put("cuda_runtime", "cudaMemcpyAsync", 100, end - 4e-6, kept, tie)
            put("gpu_memcpy", f"Memcpy HtoD ({word} -> Device)", stream, e.start, e.end, f'{on},"bytes":{e.size}')
        else:
            put("cpu_op", f"aten::{e.name}", 100, e.start if gloo else e.issue, e.end if gloo else e.issued, what)
            if not gloo:
                put("cuda_runtime", "cudaLaunchKernel", 100, end - 5e-6, end, tie)
                put("kernel", f"{e.name}_bf16_kernel", stream, e.start, e.end, on)
    library, every = "gloo" if gloo else "nccl", {g: m for g, m in job.groups.items() if not gloo or len(m) == job.left}
    groups = [{"pg_name": g, "backend_config": f"cuda:{library}", "pg_size": len(m), "ranks": m} for g, m in every.items()]
    spread = {"backend": library, "rank": r, "world_size": job.ranks, "pg_count": len(groups), "pg_config": groups}
    cards = [] if gloo else [{"id": i, "name": job.model[job.host[r]]} for i in range(job.per_host)]
    header = {"schemaVersion": 1, "baseTimeNanoseconds": EPOCH, "host_name": f"node{job.host[r]}", "deviceProperties": cards}
    return json.dumps(header | {"distributedInfo": spread})[:-1] + ',"traceEvents":[' + ",\n".join(events) + "]}"


def right(found: dict[str, Any], true: dict[str, Any], verdict: str) -> bool:
    """Whether a finding names exactly the place of a fault."""
    kind, ranks, links = (found.get("place") or {}).get("kind"), {*(found.get("ranks") or [])}, {*(found.get("links") or [])}
    if true["kind"] == "all_ranks":
        return kind == "all_ranks" or verdict == "common" or (kind is None and not links and ranks == {*true["ranks"]})
    if true["kind"] in ("link", "interface") and kind == "interface":
        return bool(links & {*true["links"]}) or any(ranks and ranks <= {*near} for near in true["near"])
    if true["kind"] in ("link", "interface"):
        return bool(links) and links <= {*true["links"]}
    return ranks == {*true["ranks"]} and (kind not in ("link", "interface", "all_ranks") if kind else not links)


def judge(case: tuple[str, int]) -> dict[str, Any]:
    """Make one case, analyse it, and hold the answer against the truth."""
    began, job = time.perf_counter(), Job(*case)
    with tempfile.TemporaryDirectory() as folder:
        run, truth = solve(job)
        write(job, run, Path(folder))
        row = {"kind": job.kind, "seed": case[1], "layout": job.layout, "format": job.format, "ranks": job.ranks}
        row |= {"steps": job.steps, "made_s": time.perf_counter() - began, "faults": truth}
        row["saving"] = max((t["saving"] for t in truth), default=0.0)
        try:
            said = msgspec.to_builtins(taut.analyze([folder]).result)
        except Exception as error:
            return row | {"error": repr(error)[:300], "verdict": "error", "first": "nothing", "found": False, "accused": False}
    verdict, findings = said["verdict"]["class"], said["findings"]
    row["accused"] = any(f["ranks"] or f["links"] or f.get("place") for f in findings if f["mode"] != UNSTABLE)
    listed = findings or ((said.get("suspects") or [])[:1] if job.kind in UNTELLABLE else [])
    real = [t for t in truth if t["saving"] >= min(0.01, row["saving"])]
    hits = [(f, t) for f in listed for t in real if right(f, t["place"], verdict)]
    common = verdict == "common" and any(t["place"]["kind"] == "all_ranks" for t in real)
    first = "right" if common or (hits and hits[0][0] is listed[0]) else "wrong" if listed else "nothing"
    row |= {"verdict": verdict, "found": bool(hits) or common, "first": first}
    if not hits or not findings or hits[0][1]["saving"] < 0.05:
        return row
    found, true, at = hits[0][0], hits[0][1]["saving"], min(max(0, hits[0][0]["steps"][0] - job.first_step), job.steps - 1)
    share = (found.get("recoverable") or {}).get("since_onset") or found.get("recoverable_share") or {}
    ends, value = (share.get("lo"), share.get("hi")), share.get("value")
    value = value if found.get("recoverable") else (found["recoverable_wall_ns"] or 0) / 1e9 / run.walls()[at]
    return row | {"ratio": float(value / true), "held": None if None in ends else bool(ends[0] <= true <= ends[1])}


def show(name: str, tests: list[bool]) -> None:
    """A share with its Wilson interval of 95 %."""
    n, hits, z = max(len(tests), 1), sum(tests), 1.96
    middle, half = hits / n + z * z / 2 / n, z * math.sqrt(hits * (n - hits) / n**3 + z * z / 4 / n**2)
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    print(f"{name:46}{hits:5} / {len(tests):<5}" + (f"{hits / n:6.1%} [{low:.1%}, {high:.1%}]" if tests else ""))


def report(rows: list[dict[str, Any]]) -> None:
    """All shares, and a table by kind."""
    faulty, calm = [r for r in rows if r["faults"]], [r for r in rows if not r["faults"]]
    for name, low, high in (("≥ 5 %", 0.05, 1.0), ("3–5 %", 0.03, 0.05), ("1–3 %", 0.01, 0.03)):
        band = [r for r in faulty if low <= r["saving"] < high]
        show(f"{name}: found at all", [r["found"] for r in band])
        for first in ("right place first", "wrong place first", "nothing"):
            show(f"{name}: {first}", [r["first"] == first.split()[0] for r in band])
    show("healthy or awkward: accused", [r["accused"] for r in calm])
    show("loss of 10 % or more: verdict healthy", [r["verdict"] == "healthy" for r in faulty if r["saving"] >= 0.1])
    show("predicted ÷ true saving within ±20 %", [0.8 <= r["ratio"] <= 1.2 for r in rows if "ratio" in r])
    show("interval holds the truth", [r["held"] for r in rows if r.get("held") is not None])
    show("healthy, 21 steps or more: verdict healthy", [r["verdict"] == "healthy" for r in calm if r["steps"] >= 21])
    print(f"not read: {sum('error' in r for r in rows)}; made in {np.mean([r['made_s'] for r in rows]):.2f} s a case")
    print(f"{'kind':26}{'cases':>8}{'right':>8}{'found':>8}{'wrong':>8}{'nothing':>8}{'accused':>8}")
    for kind in sorted({r["kind"] for r in rows}, key=[*KINDS].index):
        of = [r for r in rows if r["kind"] == kind]
        first = Counter("" if kind in CALM else r["first"] for r in of)
        cells = (first["right"], sum(r["found"] for r in of), first["wrong"], first["nothing"], sum(r["accused"] for r in of))
        print(f"{kind:26}" + "".join(f"{n:8}" for n in (len(of), *cells[: 4 + (kind in CALM)])))


def main() -> None:
    """Judge cases of all kinds in turn, shuffled: 45 % healthy or awkward, 5 % that cannot be told."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag, of, default in (("--cases", int, 200), ("--seed", int, 0), ("--jobs", int, 2), ("--json", Path, None)):
        parser.add_argument(flag, type=of, default=default)
    given = parser.parse_args()
    pools = (CALM, UNTELLABLE, [k for k in KINDS if k not in (*UNTELLABLE, *CALM)])
    pools = [np.random.default_rng(given.seed).permutation(kinds) for kinds in pools]
    turns = [0 if (i + 1) * 9 // 20 > i * 9 // 20 else 1 if i % 20 == 9 else 2 for i in range(given.cases)]
    used = [turns[:i].count(turn) % len(pools[turn]) for i, turn in enumerate(turns)]
    cases = [(str(pools[turns[i]][used[i]]), given.seed * 100_003 + i) for i in range(given.cases)]
    with ProcessPoolExecutor(given.jobs) as workers:
        rows = list(workers.map(judge, cases))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    report(rows)


if __name__ == "__main__":
    main()
