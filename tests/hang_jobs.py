"""Simulated jobs of tensor, pipeline, data and expert parallel ranks, of which some stop, and the dumps they leave.

A rank's host makes calls in order and runs ahead of its device until so many are open, or until it waits for one itself; its
device takes them in order (sends aside, which hold up nobody). A collective begins when the devices of all members have
come to it. Whoever stops is waited for, and what was enqueued meanwhile stays open.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import Any

from taut.core.tables import Trace
from taut.read.contents import Dump
from taut.read.flight import reader as flight

MS = 1e6
ROOTED = ("broadcast",)


@dataclass
class Call:
    group: str
    verb: str
    peer: int = -1
    size: int = 64
    seq: int = 0
    sync: bool = False
    """Whether the host waits for it."""
    host_ns: float = 0.0
    device_ns: float = 0.0


@dataclass
class Stop:
    """A rank that stops before it makes, or its device before it begins, its n-th call."""

    rank: int
    at: int
    how: str = "host"
    """host; blind: host, and it no longer learns that its last calls completed; device; inside: in the transfer."""


@dataclass
class Job:
    tp: int
    pp: int
    dp: int
    ep: int
    seed: int
    steps: int = 4
    ahead: int = 8
    mixed: bool = False
    """Sends and receives in the group of all ranks, as some frameworks do."""
    sync: str = "none"
    """Who waits for the last collective of a step: none, first (rank 0), all; every: all wait for every call."""
    stops: list[Stop] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranks = self.tp * self.pp * self.dp
        self.random = Random(self.seed)
        self.depth = [max(1, self.ahead + self.random.randint(-2, 2)) if self.ahead > 1 else 1 for _ in range(self.ranks)]
        self.slow = [1 + 0.1 * self.random.random() for _ in range(self.ranks)]
        self.groups = [self._groups(rank) for rank in range(self.ranks)]
        self.calls = [self._program(rank) for rank in range(self.ranks)]
        self._run()

    def where(self, t: int, p: int, d: int) -> int:
        return t + self.tp * p + self.tp * self.pp * d

    def place(self, rank: int) -> tuple[int, int, int]:
        return rank % self.tp, rank // self.tp % self.pp, rank // (self.tp * self.pp)

    def _groups(self, rank: int) -> dict[str, list[int]]:
        t, p, d = self.place(rank)
        expert = d // self.ep * self.ep
        number = {
            "0": list(range(self.ranks)),
            f"1{p:02}{d:02}": [self.where(i, p, d) for i in range(self.tp)],
            f"2{t:02}{d:02}": [self.where(t, i, d) for i in range(self.pp)],
            f"3{t:02}{p:02}": [self.where(t, p, i) for i in range(self.dp)],
            f"4{t:02}{p:02}{expert:02}": [self.where(t, p, i) for i in range(expert, expert + self.ep)],
        }
        return {name: ranks for name, ranks in number.items() if len(ranks) > 1 or name == "0"}

    def _program(self, rank: int) -> list[Call]:
        t, p, d = self.place(rank)
        mine = self.groups[rank]

        def of(kind: str) -> str | None:
            return next((name for name in mine if name != "0" and name[0] == kind), None)

        tensor, pipe, data, expert = (of(kind) for kind in "1234")
        hops = "0" if self.mixed else pipe

        def layer() -> list[Call]:
            out = []
            if tensor:
                out += [Call(tensor, "broadcast"), Call(tensor, "all_gather")]
            if expert:
                out += [Call(expert, "all_to_all", size=32), Call(expert, "all_to_all", size=32)]
            return out + ([Call(tensor, "reduce_scatter")] if tensor else [])

        def hop(verb: str, stage: int) -> list[Call]:
            there = 0 <= stage < self.pp and pipe is not None and hops is not None
            return [Call(hops or "", verb, self.where(t, stage, d))] if there else []

        step: list[Call] = []
        for _ in range(2):
            step += [*hop("recv", p - 1), *layer(), *hop("send", p + 1)]
        for _ in range(2):
            step += [*hop("recv", p + 1), *layer(), *hop("send", p - 1)]
        if data:
            step += [Call(data, "reduce_scatter", size=128), Call(data, "all_gather", size=128)]
        step.append(Call("0", "all_reduce", size=1))
        counts: dict[tuple[str, bool], int] = defaultdict(int)
        out = []
        for _ in range(self.steps):
            for model in step:
                call = Call(model.group, model.verb, model.peer, model.size)
                counts[call.group, call.peer >= 0] += 1
                call.seq = counts[call.group, call.peer >= 0]
                last = call.group == "0" and call.peer < 0
                call.sync = self.sync == "every" or (last and (self.sync == "all" or (self.sync == "first" and rank == 0)))
                call.host_ns = MS * (0.1 + 0.1 * self.random.random()) * self.slow[rank]
                call.device_ns = MS * (0.3 + 0.6 * self.random.random()) * self.slow[rank]
                out.append(call)
        return out

    def _run(self) -> None:
        """Times at which every call is made, reached by the device, and completed; infinite for those that never are."""
        n = [len(calls) for calls in self.calls]
        self.made = [[inf] * k for k in n]
        self.reached = [[inf] * k for k in n]
        self.done = [[inf] * k for k in n]
        index = [{(c.group, c.verb in ("send", "recv"), c.seq, c.peer): i for i, c in enumerate(calls)} for calls in self.calls]
        self.match = [[self._others(rank, i, index) for i in range(n[rank])] for rank in range(self.ranks)]
        host, device = [0] * self.ranks, [0] * self.ranks
        free = [0.0] * self.ranks
        pending: list[set[int]] = [set() for _ in range(self.ranks)]
        stops = {(stop.rank, stop.at): stop.how for stop in self.stops}
        moved = True
        while moved:
            moved = False
            for rank in range(self.ranks):
                moved |= self._host(rank, host, stops) | self._device(rank, host, device, free, pending, stops)
            for rank in range(self.ranks):
                moved |= self._complete(rank, pending, stops)

    def _host(self, rank: int, host: list[int], stops: dict[tuple[int, int], str]) -> bool:
        i, calls = host[rank], self.calls[rank]
        if i == len(calls) or stops.get((rank, i)) in ("host", "blind"):
            return False
        before = [0.0 if i == 0 else self.made[rank][i - 1]]
        before += [self.done[rank][i - 1]] if i and calls[i - 1].sync else []
        # The queue is full as long as the call so many places before has not completed.
        before += [self.done[rank][i - self.depth[rank]]] if i >= self.depth[rank] else []
        if max(before) == inf:
            return False
        self.made[rank][i] = max(before) + calls[i].host_ns
        host[rank] += 1
        return True

    def _device(
        self, rank: int, host: list[int], device: list[int], free: list[float], pending: list[set[int]], stops: Any
    ) -> bool:
        i = device[rank]
        if i >= host[rank] or stops.get((rank, i)) == "device":
            return False
        held = [k for k in pending[rank] if self.calls[rank][k].verb != "send"]
        if held:
            return False
        call = self.calls[rank][i]
        busy = max((self.done[rank][k] for k in range(i) if self.calls[rank][k].verb != "send"), default=0.0) if i else 0.0
        free[rank] = max(free[rank], busy)
        self.reached[rank][i] = max(self.made[rank][i], free[rank]) + call.device_ns
        free[rank] = self.reached[rank][i]
        pending[rank].add(i)
        device[rank] += 1
        return True

    def _complete(self, rank: int, pending: list[set[int]], stops: dict[tuple[int, int], str]) -> bool:
        moved = False
        for i in sorted(pending[rank]):
            call, others = self.calls[rank][i], self.match[rank][i]
            stuck = any(stops.get((r, k)) == "inside" for r, k in [(rank, i), *others])
            if call.verb in ROOTED:
                root = min(self.groups[rank][call.group])
                others = [] if rank == root else [(r, k) for r, k in others if r == root]
            come = max([self.reached[rank][i], *(self.reached[r][k] for r, k in others)])
            if come < inf and not stuck:
                self.done[rank][i] = come + 0.2 * MS + 0.02 * MS * rank / self.ranks
                pending[rank].discard(i)
                moved = True
        return moved

    def _others(self, rank: int, i: int, index: list[dict[tuple[str, bool, int, int], int]]) -> list[tuple[int, int]]:
        call = self.calls[rank][i]
        if call.peer < 0:
            key = (call.group, False, call.seq, -1)
            return [(r, index[r][key]) for r in self.groups[rank][call.group] if r != rank]
        # The n-th hop of a direction meets the n-th of the other end.
        n = sum(c.peer == call.peer and c.verb == call.verb for c in self.calls[rank][:i])
        other = "recv" if call.verb == "send" else "send"
        there = [k for k, c in enumerate(self.calls[call.peer]) if c.peer == rank and c.verb == other]
        return [(call.peer, there[n])] if n < len(there) else []

    @property
    def end_ns(self) -> float:
        """When the last thing happens."""
        return max(t for rows in (self.made, self.done) for row in rows for t in row if t < inf)

    def dump(
        self, rank: int, at: float = inf, *, ring: int = 10**6, active: bool = False, started: bool = False
    ) -> dict[str, Any]:
        """What a rank's flight recorder holds at a time."""
        blind = {stop.rank for stop in self.stops if stop.how == "blind"}
        made = [i for i, t in enumerate(self.made[rank]) if t <= at and t < inf]
        done = {i for i in made if self.done[rank][i] <= at and self.done[rank][i] < inf}
        if rank in blind:
            done -= set(sorted(done)[-3:])
        entries = []
        for i in made[-ring:]:
            call = self.calls[rank][i]
            if active and i in done:
                continue
            begun = started and self.reached[rank][i] <= at and self.reached[rank][i] < inf
            entries.append(
                {
                    "record_id": i,
                    "pg_id": sorted(self.groups[rank], key=int).index(call.group),
                    "process_group": [call.group, "pg"],
                    "collective_seq_id": call.seq if call.peer < 0 else 0,
                    "p2p_seq_id": call.seq if call.peer >= 0 else 0,
                    "profiling_name": f"nccl:{call.verb}{self._ends(rank, call)}",
                    "time_created_ns": 1_700_000_000_000_000_000 + int(self.made[rank][i]) + 20_000 * (rank % 3),
                    "input_sizes": [[call.size]],
                    "state": "completed" if i in done else "started" if begun else "scheduled",
                    "retired": i in done,
                    "is_p2p": call.peer >= 0,
                }
            )
        status = {}
        for k, name in enumerate(sorted(self.groups[rank], key=int)):
            mine = [i for i in made if self.calls[rank][i].group == name]
            ended = sorted((i for i in mine if i in done), key=lambda i: self.done[rank][i])
            last = [self.calls[rank][some[-1]].seq if some else -1 for some in (mine, ended)]
            status[str(k)] = {"last_enqueued_collective": last[0], "last_completed_collective": last[1]}
        config = {name: {"name": name, "desc": "pg", "ranks": str(ranks)} for name, ranks in self.groups[rank].items()}
        return {
            "version": "2.9", "nccl_version": "2", "rank": rank, "pg_config": config, "pg_status": status, "entries": entries,
        }  # fmt: skip

    def _ends(self, rank: int, call: Call) -> str:
        if call.peer < 0:
            return ""
        inside = self.groups[rank][call.group]
        return f" {inside.index(rank)}{'->' if call.verb == 'send' else '<-'}{inside.index(call.peer)}"


def joined(dumps: list[dict[str, Any]]) -> Trace:
    """The trace of a job of which only these dumps are left."""
    loaded: list[Dump] = [flight.load(json.dumps(dump).encode(), f"dump_{i}") for i, dump in enumerate(dumps)]
    return flight.apply(flight.alone(loaded, [], name="job", source=""), loaded)


SHAPES = ((1, 1, 4), (2, 1, 2), (2, 2, 1), (2, 2, 2), (1, 2, 4), (2, 2, 4), (1, 4, 2), (2, 3, 2), (1, 1, 8), (4, 1, 2))
HOWS = ("host", "host", "blind", "device", "inside")


@dataclass
class Case:
    """A drawn job, and what is left of it."""

    job: Job
    dumps: list[dict[str, Any]]
    lost: set[int]
    twice: bool
    """Whether there are two sets of dumps."""

    @property
    def stopped(self) -> set[int]:
        return {stop.rank for stop in self.job.stops}


def drawn(seed: int, *, stops: bool) -> Case:
    """A job of any kind: one or two ranks stop, and it is dumped at rest; or it runs, and its dumps are of different times."""
    draw = Random(seed)
    tp, pp, dp = draw.choice(SHAPES)
    ep = draw.choice([n for n in (1, 2, 4) if dp % n == 0])
    ahead, mixed = draw.choice([1, 2, 4, 8, 12]), draw.random() < 0.3
    job = Job(tp, pp, dp, ep, seed, ahead=ahead, mixed=mixed, sync=draw.choice(["none", "first", "all", "every"]))
    ranks = range(job.ranks)
    if stops:
        who = draw.sample(ranks, draw.choice([1, 1, 2]))
        places = {rank: draw.randint(len(job.calls[rank]) // 4, len(job.calls[rank]) - 2) for rank in who}
        job = replace(job, stops=[Stop(rank, at, draw.choice(HOWS)) for rank, at in places.items()])
    view = {"ring": draw.choice([10**6, 10**6, 20]), "active": draw.random() < 0.3, "started": draw.random() < 0.4}
    lost = set(draw.sample(ranks, draw.choice([0, 0, 0, 1, 2]))) if draw.random() < 0.5 else set()
    at = [inf for _ in ranks]
    if not stops:
        when, apart = draw.uniform(0.2, 0.9) * job.end_ns, draw.choice([0, 0.05, 0.5, 2, 20]) * MS
        at = [when + draw.uniform(0, apart) for _ in ranks]
    twice = draw.random() < 0.3
    later = [at[rank] + (0 if stops else draw.uniform(1, 30) * MS) for rank in ranks]
    times = [at, later] if twice else [at]
    dumps = [job.dump(rank, some[rank], **view) for some in times for rank in ranks if rank not in lost]
    return Case(job, dumps, lost, twice)
