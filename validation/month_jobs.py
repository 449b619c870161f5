"""A cluster's month as it happened: 500 jobs on 64 hosts of 8 accelerators in October 2026, by a seed.

Part of `bill_month.py`. Nothing of taut is imported. Times are whole seconds since 1970, UTC.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

HOUR, DAY = 3600, 86_400
ACCELERATORS = 8
JOBS = 500


def at(text: str) -> int:
    """Seconds since 1970 of a time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


BEGIN, END = at("2026-10-01"), at("2026-11-01")
JOINS = at("2026-10-13T09:17:23")
MAINTENANCE = at("2026-10-20T06:00:00"), at("2026-10-20T12:00:00")
FULL_DAYS = at("2026-10-14T20:00:00"), at("2026-10-17T03:00:00")
"""While one job holds all of the host of which a day will be missing in a bad bill."""
MISSING_HOST = "gpu-029"


@dataclass(frozen=True)
class Host:
    name: str
    pool: str
    """committed, on demand, parts (on demand, its accelerators charged apart) or spot."""
    up: tuple[tuple[int, int], ...]
    """When it can be used."""


@dataclass(frozen=True)
class Attempt:
    job: str
    name: str
    team: str
    submit: int
    start: int
    end: int
    state: str
    hosts: tuple[str, ...]
    per_host: int
    last: bool

    @property
    def fate(self) -> str:
        """What its log can tell: no checkpoints are known, so an attempt that was not the last may be lost altogether."""
        if not self.last:
            return "discarded at most"
        return "kept" if self.state == "COMPLETED" else "unfinished"


@dataclass
class Cluster:
    hosts: dict[str, Host]
    attempts: list[Attempt] = field(default_factory=list)
    never: list[str] = field(default_factory=list)
    """Rows of sacct of jobs that held no accelerator: cancelled in the queue, or on processors alone."""
    busy: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)

    def free(self, host: str, start: int, end: int, count: int) -> bool:
        if not any(a <= start and end <= b for a, b in self.hosts[host].up):
            return False
        inside = [one for one in self.busy[host] if one[0] < end and start < one[1]]
        moments = [start, *(a for a, _, _ in inside if a > start)]
        return all(sum(n for a, b, n in inside if a <= t < b) + count <= ACCELERATORS for t in moments)

    def place(self, names: list[str], nodes: int, count: int, earliest: int, length: int) -> tuple[int, tuple[str, ...]]:
        """The first moment at which so many hosts are free, and which."""
        ends = {b + 3 for name in names for _, b, _ in self.busy[name]} | {a for name in names for a, _ in self.hosts[name].up}
        for start in [earliest, *sorted(moment for moment in ends if moment > earliest)]:
            fitting = [name for name in names if self.free(name, start, start + length, count)]
            if len(fitting) >= nodes:
                return start, tuple(fitting[:nodes])
        raise RuntimeError(f"no room for {nodes} × {count}")

    def run(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        for host in attempt.hosts:
            self.busy[host].append((attempt.start, attempt.end, attempt.per_host))


def hosts() -> dict[str, Host]:
    """24 under a commitment, 24 on demand (8 of them charged in parts), 16 spot."""
    out = {}
    for n in range(1, 65):
        pool = "committed" if n <= 24 else "on demand" if n <= 40 else "parts" if n <= 48 else "spot"
        begin = JOINS if n == 48 else BEGIN - 10 * DAY
        up = ((begin, END + 10 * DAY),)
        if 33 <= n <= 47:
            up = ((begin, MAINTENANCE[0]), (MAINTENANCE[1], END + 10 * DAY))
        elif n == 48:
            up = ((JOINS, MAINTENANCE[0]), (MAINTENANCE[1], END + 10 * DAY))
        out[f"gpu-{n:03}"] = Host(f"gpu-{n:03}", pool, up)
    return out


SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 8), (2, 8), (2, 8), (4, 8), (4, 8), (8, 8), (16, 8))
TEAMS = ("vision", "language", "speech", "robotics", "platform")
ENDS = ("COMPLETED",) * 16 + ("FAILED", "CANCELLED by 1007", "TIMEOUT", "OUT_OF_MEMORY")


def planned(cluster: Cluster) -> int:
    """Jobs that the month must have: over both borders, a host that is full for days, every host full once."""
    names = list(cluster.hosts)
    fixed = [
        ("language-border-in", names[:4], BEGIN - 2 * DAY - 1234, BEGIN + DAY + 4321),
        ("vision-border-out", names[8:12], END - DAY - 777, END + 3 * DAY + 55),
        ("speech-full", [MISSING_HOST], *FULL_DAYS),
        ("robotics-new-host", ["gpu-048"], JOINS + 600, JOINS + 600 + 30 * HOUR),
    ]
    fixed += [(f"platform-burn-{k}", names[k * 4 : k * 4 + 4], BEGIN + 5 * DAY, BEGIN + 5 * DAY + HOUR) for k in range(11)]
    fixed += [("platform-burn-last", names[44:47], BEGIN + 5 * DAY, BEGIN + 5 * DAY + HOUR)]
    fixed += [(f"platform-burn-spot-{k}", names[48 + k * 8 : 56 + k * 8], BEGIN + 5 * DAY, BEGIN + 5 * DAY + HOUR + 7)
              for k in range(2)]  # fmt: skip
    for number, (name, where, start, end) in enumerate(fixed, 1001):
        team = name.partition("-")[0]
        cluster.run(Attempt(str(number), name, team, start - 900, start, end, "COMPLETED", tuple(where), 8, True))
    return 1001 + len(fixed)


def short_ones(cluster: Cluster, number: int) -> int:
    """Jobs of 20 to 50 s on spot hosts that nobody else uses around then: charged for a minute."""
    for k in range(6):
        start = BEGIN + (3 + 4 * k) * DAY + 10 * HOUR + 1000 + 17 * k
        name = f"gpu-{59 + k:03}"
        cluster.busy[name].append((start - 2 * HOUR, start + 2 * HOUR, 8))
        cluster.attempts.append(Attempt(
            str(number + k), f"speech-smoke-{k}", "speech", start - 5, start, start + 20 + 6 * k, "FAILED", (name,), 8, True
        ))  # fmt: skip
    return number + 6


def tries(cluster: Cluster, rng: random.Random, number: int) -> None:
    """One job, tried once or several times."""
    spot = rng.random() < 0.25
    pool = [name for name, host in cluster.hosts.items() if (host.pool == "spot") == spot]
    rng.shuffle(pool)
    nodes, count = rng.choice(SIZES[:-1] if spot else SIZES)
    team = rng.choice(TEAMS)
    submit = rng.randrange(BEGIN, END - 3 * DAY)
    length = max(300, min(int(rng.lognormvariate(10.4, 1.0)), 50 * HOUR))
    again = rng.choices((0, 1, 2), (0.76, 0.18, 0.06))[0]
    earliest = submit + rng.choice((2, 40, 900, 7200))
    for k in range(again + 1):
        last = k == again
        lasts = length if last else max(120, int(length * rng.uniform(0.05, 0.8)))
        start, where = cluster.place(pool, nodes, count, earliest, lasts)
        if start + lasts >= END - HOUR:
            if k:  # the attempt before was the last
                before = cluster.attempts.pop()
                cluster.attempts.append(Attempt(**{**vars(before), "state": "FAILED", "last": True}))
            else:
                cluster.never.append(cancelled(number, team, submit))
            return
        state = rng.choice(ENDS) if last else "PREEMPTED" if rng.random() < 0.6 else "NODE_FAIL"
        name = f"{team}-{number}"
        cluster.run(Attempt(str(number), name, team, submit, start, start + lasts, state, where, count, last))
        earliest = start + lasts + rng.choice((35, 125, 1800))


def cancelled(number: int, team: str, submit: int) -> str:
    end = iso(submit + 5000)
    return f"{number}|{team}-{number}|{team}|CANCELLED by 1001|{iso(submit)}|None|{end}|00:00:00|0:0||None assigned"


def on_processors(number: int, team: str, start: int) -> str:
    spans = f"{iso(start - 30)}|{iso(start)}|{iso(start + 7200)}"
    return f"{number}|{team}-{number}|{team}|COMPLETED|{spans}|02:00:00|0:0|billing=8,cpu=8,mem=32G,node=1|cpu-{number % 4}"


def happened(seed: int) -> Cluster:
    """The month."""
    rng = random.Random(seed)
    cluster = Cluster(hosts())
    cluster.busy = {name: [] for name in cluster.hosts}
    number = short_ones(cluster, planned(cluster))
    for k in range(8):
        cluster.never.append(on_processors(number + k, "platform", BEGIN + 2 * DAY + k * 5 * HOUR))
    for one in range(number + 8, 1001 + JOBS):
        tries(cluster, rng, one)
    return cluster


def elapsed(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    clock = f"{rest // HOUR:02}:{rest % HOUR // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def node_list(names: Iterable[str]) -> str:
    """As Slurm writes them: ``gpu-[001-004,017]``."""
    numbers = sorted(int(name[-3:]) for name in names)
    if len(numbers) == 1:
        return f"gpu-{numbers[0]:03}"
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][-1] == n - 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return "gpu-[" + ",".join(f"{p[0]:03}-{p[-1]:03}" if len(p) > 1 else f"{p[0]:03}" for p in parts) + "]"


def sacct(cluster: Cluster, to: Path) -> None:
    """``sacct --duplicates -P``."""
    lines = ["JobID|JobName|Account|State|Submit|Start|End|Elapsed|ExitCode|AllocTRES|NodeList"]
    for one in sorted(cluster.attempts, key=lambda a: (int(a.job), a.start)):
        count = one.per_host * len(one.hosts)
        tres = f"billing={count},cpu={count * 12},gres/gpu={count},mem={count * 200}G,node={len(one.hosts)}"
        code = "0:0" if one.state == "COMPLETED" else "1:0"
        lines.append("|".join((
            one.job, one.name, one.team, one.state, iso(one.submit), iso(one.start), iso(one.end),
            elapsed(one.end - one.start), code, tres, node_list(one.hosts),
        )))  # fmt: skip
    to.write_text("\n".join([*lines, *cluster.never]) + "\n", encoding="utf-8")
