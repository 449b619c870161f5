"""Power of the test for links that were slow all along, as Markdown: ``python bench/rings.py [--jobs 40]``.

Rings are played segment by segment: each link carries one segment after the other at its own rate, a rank passes a segment
on once it has it, and no sender is further ahead of its receiver than the receiver has posted buffers. Nothing here knows
how the analysis reads the ends of a ring. Ranks end by habits of their own and by chance, hosts are busy, sizes differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from modes import percent

from taut.core.jit import expect
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.run import analyze_trace

US, MS = 1e3, 1e6
SIZES = (1.0, 1.0, 0.4, 0.1)
"""Collectives of a step, as shares of the largest."""


@dataclass(frozen=True)
class Network:
    """How a library moves the chunks of a ring, and how fast."""

    segments: int = 2
    """A chunk is sent in so many pieces …"""
    posted: int = 2
    """… of which a receiver has posted this many ahead."""
    phases: bool = True
    """Whether an all-reduce scatters all before it gathers."""
    chunk_ns: float = 1.0 * MS
    """A chunk of the largest collective over a healthy link."""
    latency_ns: float = 20 * US


NETWORKS = {
    "posted receives (as gloo)": Network(),
    "a queue of eight (as NCCL)": Network(segments=4, posted=8, phases=False),
    "deep socket buffers": Network(posted=1 << 20, phases=False),
}


@dataclass
class Ends:
    """When members of a collective end, beyond the last segment: what is theirs for good, and what is chance, ns."""

    habit: Any
    chance_ns: float
    late: float = 0.0
    """Chance that a host is busy when it should end, and is late by some of ``busy_ns``."""
    busy_ns: float = 0.0


def ring_ends(
    arrival: Any, rate: Any, network: Network, share: float, verb: Verb, rng: np.random.Generator, noise: float
) -> Any:
    """When every member (… × ranks, in the order of the ring) has sent and received all of its segments, ns.

    ``rate``: how many times slower than a healthy link the one into each member is.
    """
    ranks = arrival.shape[-1]
    rounds = (ranks - 1) * (2 if verb == Verb.ALL_REDUCE else 1)
    per, ahead, count = network.segments, network.posted, rounds * network.segments
    into = network.chunk_ns * share / per * rate
    drained = count // 2 if network.phases and verb == Verb.ALL_REDUCE else 0
    received, sent = [], []
    for i in range(count):
        posts = np.maximum.reduce([arrival, *(done[i - ahead] for done in (received, sent) if i >= ahead)])
        if drained and i >= drained:
            posts = np.maximum.reduce([posts, received[drained - 1], sent[drained - 1]])
        has = arrival if i < per else received[i - per]
        ready = np.roll(np.maximum(posts, has), 1, axis=-1)  # of the sender
        begins = np.maximum(ready, posts) if i == 0 else np.maximum.reduce([ready, posts, received[-1]])
        lasts = into * np.exp(noise * rng.standard_normal(arrival.shape))
        received.append(begins + lasts + (network.latency_ns if i % per == 0 else 0.0))
        sent.append(np.roll(np.maximum(ready, posts), -1, axis=-1))
    return np.maximum(received[-1], sent[-1])


@dataclass
class Jobs:
    """Data-parallel jobs of one shape, played together."""

    ranks: int
    network: Network
    ends: Ends
    slower: Any
    """Jobs × ranks: how many times slower than a healthy link the one into each rank is."""
    steps: int = 20
    work_ns: float = 60 * MS
    verb: Verb = Verb.ALL_REDUCE
    shares: Sequence[float] = SIZES
    noise: float = 0.05
    names: Mapping[str, int] = field(default_factory=lambda: {"backward": 0, "reduce": 1})


def played(jobs: Jobs, rng: np.random.Generator) -> tuple[Any, Any]:
    """(start, end), jobs × steps × ops × ranks, ns: work and a collective by turns."""
    count = len(jobs.slower)
    shape = count, jobs.ranks
    start, end = np.zeros((2, count, jobs.steps, 2 * len(jobs.shares), jobs.ranks))
    free, wire = np.full(shape, 1e9), np.full(shape, 1e9)
    for k in range(jobs.steps):
        for i, share in enumerate(jobs.shares):
            took = jobs.work_ns / len(jobs.shares) * (1 + 0.03 * rng.standard_normal(shape))
            start[:, k, 2 * i], free = free, free + took
            end[:, k, 2 * i] = free
            begins = np.maximum(free, wire)
            done = ring_ends(begins, jobs.slower, jobs.network, share, jobs.verb, rng, jobs.noise)
            done = done + jobs.ends.habit + jobs.ends.chance_ns * np.abs(rng.standard_normal(shape))
            wire = done + np.where(rng.random(shape) < jobs.ends.late, rng.random(shape) * jobs.ends.busy_ns, 0.0)
            start[:, k, 2 * i + 1], end[:, k, 2 * i + 1] = begins, wire
        free = np.maximum(free, wire)
    return np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)


def recorded(jobs: Jobs, start: Any, end: Any, hosts: int) -> Trace:
    """The trace of one job; ``hosts``: ranks of one host, which share a clock."""
    rank, step, at = np.nonzero((end > 0).transpose(2, 0, 1))
    meets = at % 2 == 1
    size = np.rint(np.array(jobs.shares) * (1 << 24)).astype(np.int64)
    columns: dict[str, Any] = {
        "rank": rank, "step": step, "start_ns": start[step, at, rank], "end_ns": end[step, at, rank],
        "name": meets.astype(np.int64), "lane": meets.astype(np.int64), "group": np.where(meets, 0, -1),
        "kind": np.where(meets, Kind.COMMUNICATE, Kind.COMPUTE), "verb": np.where(meets, jobs.verb, Verb.NONE),
        "seq": np.where(meets, step * len(jobs.shares) + at // 2, -1), "size": np.where(meets, size[at // 2], -1),
    }  # fmt: skip
    known = {"rank": np.arange(jobs.ranks), "host": [f"host-{r // hosts}" for r in range(jobs.ranks)]}
    return Trace(
        ops=Table(Op, columns), names=list(jobs.names), lanes=["compute", "communication"], groups=["all"],
        members=Table(Member, known), world_size=jobs.ranks, backend="nccl",
    )  # fmt: skip


def traces(jobs: Jobs, rng: np.random.Generator, hosts: int = 1) -> Iterator[Trace]:
    """Each job's trace."""
    for start, end in zip(*played(jobs, rng), strict=True):
        yield recorded(jobs, start, end, hosts)


WHOLE_NS = 20 * MS
"""Transfer of the largest collective of a healthy job, however many ranks it has."""


def shaped(ranks: int, network: str, count: int, ends: Ends, **more: Any) -> Jobs:
    """Healthy jobs whose transfers take about as long at all scales."""
    moves = replace(NETWORKS[network], chunk_ns=WHOLE_NS / (2 * (ranks - 1)), latency_ns=0.1 * WHOLE_NS / (2 * (ranks - 1)))
    return Jobs(ranks, moves, ends, np.ones((count, ranks)), **more)


def habits(rng: np.random.Generator, count: int, ranks: int) -> dict[str, Ends]:
    """Ways in which members of a healthy ring end apart."""
    by = np.arange(ranks)
    own = rng.random((count, ranks))
    return {
        "chance only": Ends(0.0, 50 * US),
        "habits up to 0.3 ms": Ends(300 * US * own, 50 * US),
        "habits up to 5 ms": Ends(5 * MS * own, 50 * US),
        "heavy-tailed habits": Ends(100 * US * np.exp(1.5 * rng.standard_normal((count, ranks))), 50 * US),
        "every other rank 2 ms late": Ends(2 * MS * (by % 2), 100 * US),
        "half of the ranks 2 ms late": Ends(2 * MS * (2 * by >= ranks), 100 * US),
        "one rank 2 ms late": Ends(2 * MS * (by == ranks // 2), 100 * US),
        "busy hosts, 5 % of ends up to 50 ms late": Ends(0.0, 100 * US, 0.05, 50 * MS),
    }


def powers(count: int, seed: int) -> None:
    """Slow from the first step on: the first finding names the link, or the interface's links, and nothing else."""
    times = (1.5, 2.0, 4.0)
    print(
        f"| slow all along, {count} jobs: named first, %; error of the saving, median | "
        + " | ".join(f"{what} ×{x:g}" for what in ("link", "interface") for x in times)
        + " |"
    )
    print("|---|" + "---:|" * 6)
    for ranks in (4, 8, 16, 64):
        for n, network in enumerate(NETWORKS):
            cells = []
            for both in (0, 1):
                for x in times:
                    rng = np.random.default_rng((seed, ranks, n, both, int(10 * x)))
                    ends = Ends(300 * US * rng.random((count, ranks)), 50 * US)
                    jobs = shaped(ranks, network, count, ends, steps=11)
                    at = rng.integers(ranks, size=count)
                    for k in range(1 + both):
                        jobs.slower[np.arange(count), (at + k) % ranks] = x
                    state = rng.bit_generator.state
                    built = list(traces(jobs, rng))
                    rng.bit_generator.state = state
                    end = played(replace(jobs, slower=np.ones_like(jobs.slower)), rng)[1]
                    cells.append(_found(built, at, both, ranks, (end[:, -1].max(axis=(1, 2)) - end[:, 0].max(axis=(1, 2)))))
            print(f"| {ranks} ranks, {network} | " + " | ".join(cells) + " |", flush=True)


def _found(built: list[Trace], at: Any, both: int, ranks: int, healthy_ns: Any) -> str:
    hits, errors = 0, []
    for trace, receiver, healthy in zip(built, at, healthy_ns, strict=True):
        truth = {f"{(receiver + k - 1) % ranks}:{(receiver + k) % ranks}" for k in range(1 + both)}
        done = analyze_trace(trace)
        if done.findings and set(done.findings[0].links) == truth:
            hits += 1
            saving = done.observed.wall_ns - healthy
            errors.append(abs(done.findings[0].recoverable_wall_ns / saving - 1))
    return f"**{percent(hits, len(built))}**; " + (f"{100 * np.median(errors):.0f} %" if errors else "–")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40, help="jobs behind every power")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    expect(float("inf"))
    powers(given.jobs, given.seed)
