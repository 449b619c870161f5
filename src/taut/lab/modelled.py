"""Modelled jobs: generated traces of up to a thousand ranks, with faults whose cost is known exactly.

The real jobs of the lab are small; these say how the analysis does at scale. The slots of a step (see ``shapes.py``) are
played forward over arrays of ranks: work adds, a collective is a maximum over its groups, a hop a shift between stages.
A job is played twice with the same random numbers, with the faults and without, so the counterfactual is exact. The
player shares nothing with ``graph`` and ``replay``: it is an independent oracle for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.errors import UsageError
from taut.core.tables import NULL, Kind, Mark, Member, Op, Table, Trace, Verb
from taut.lab.shapes import JOBS, LANES, MAIN, MS, US, Job, Slot, build, rounds
from taut.lab.truth import Injected, Truth

FAULTS = ("none", "slow", "stall", "link", "link-one-way", "moving", "loader", "checkpoint", "two", "skew", "drift", "set")
STRENGTH = {
    "slow": ("share", 0.15, 0.5), "set": ("share", 0.15, 0.5), "drift": ("share_a_step", 0.02, 0.06),
    "stall": ("steps", 0.3, 1.0), "loader": ("steps", 0.1, 0.4), "checkpoint": ("steps", 0.4, 1.4),
    "link": ("slower", 1.0, 7.0), "link-one-way": ("slower", 1.0, 7.0),
}  # fmt: skip
"""Unit and range of each: share of the rank's compute, share of a healthy step, bandwidth divided by one more than this."""
LEAST_SAVING, MOST_SAVING = 0.04, 0.28
"""What faults cost, as a share of the wall: a slowdown between 4 and 40 %. Strengths are changed until they do."""
ORIGIN_NS = 1e9
HICCUPS = 0.001
"""In a job with heavy tails, this share of ops takes three times as long."""
RING_NOISE = 0.03
"""Spread of a transfer from one time to the next, common to its members."""
ENDS_NS = 15 * US
"""Scale of how far apart the members of one transfer end."""


@dataclass(frozen=True)
class Dice:
    """All that chance decides about a run, before any fault."""

    cost: Floats
    """Healthy work, or healthy transfer as the first member of a group has it, steps × slots × ranks, ns."""
    apart: Floats
    """How much later than its transfer each member ends, steps × slots × ranks, ns."""
    luck: Floats
    """Three numbers for each step, between 0 and 1: when, how much and where a fault strikes."""


def _rolled(job: Job, steps: int) -> Dice:
    """Lognormal noise of 2 to 6 % for each op, ranks that differ by 0.5 to 1 %, and in some jobs heavy tails."""
    rng, shape = job.rng, (steps, len(job.slots), job.ranks)
    transfer = np.array([slot.verb != Verb.NONE for slot in job.slots])[:, None]
    spread = np.where(transfer, RING_NOISE, rng.uniform(0.02, 0.06, (len(job.slots), 1)))
    heavy = rng.random() < 0.3
    noise = rng.standard_t(4, shape).clip(-8, 8) / np.sqrt(2) if heavy else rng.standard_normal(shape)
    habit = np.where(transfer, 1.0, 1 + rng.uniform(0.005, 0.01) * rng.standard_normal(job.ranks))
    hiccup = np.where(heavy & ~transfer & (rng.random(shape) < HICCUPS), 3.0, 1.0)
    base = np.array([np.broadcast_to(slot.base_ns, job.ranks) for slot in job.slots])
    apart = np.abs(rng.standard_normal(shape)) * ENDS_NS
    return Dice(base * habit * hiccup * np.exp(spread * noise), apart, rng.random((3, steps)))


@dataclass(frozen=True)
class Burden:
    """What faults add: ns of work (steps × slots × ranks), and how many times slower the link into each rank is."""

    work: Floats
    slower: dict[str, Floats]


def _played(job: Job, dice: Dice, burden: Burden) -> tuple[Ints, Ints]:
    """(start, end) of every op, steps × slots × ranks, ns; 0 where a rank has no such op."""
    start, end = np.zeros_like(dice.cost), np.zeros_like(dice.cost)
    free = np.full((len(LANES), job.ranks), ORIGIN_NS)
    for k in range(len(start)):
        cost = dice.cost[k] + burden.work[k]
        for i, who in job.plays:
            slot = job.slots[i]
            if (k + 1) % slot.every:
                continue
            ready = np.maximum.reduce([free[slot.lane, who], *(end[k, j, who] for j in slot.after)])
            if slot.verb == Verb.NONE:
                done = ready + cost[i, who]
            elif slot.verb == Verb.RECV:
                sender, lane = job.into[slot.ring][who], slot.lane + 1
                ready = np.maximum(ready, free[MAIN, who])
                given = np.maximum(free[lane, sender], end[k, i + 1, sender])
                done = np.maximum(ready, given) + cost[i, who] * burden.slower[slot.ring][k, who] + job.latency_ns
                start[k, i + 2, sender], end[k, i + 2, sender], free[lane, sender] = given, done, done
            else:
                done = _met(job, slot, ready, cost[i], burden.slower[slot.ring][k]) + dice.apart[k, i]
            start[k, i, who], end[k, i, who], free[slot.lane, who] = ready, done, done
    return np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)


def _met(job: Job, slot: Slot, ready: Floats, cost: Floats, slower: Floats) -> Floats:
    """When each member of a ring has all chunks: every round is as slow as the slowest link.

    Behind a slow link members end one after the other: its receiver last, and whoever is further downstream, or further
    upstream by as many full buffers, a stair earlier. A chunk goes in two pieces, so a stair is short by half a chunk.
    """
    groups = job.groups[slot.ring]
    sends, members = rounds(slot.verb, groups.shape[1]), np.arange(groups.shape[1])
    chunk = cost[groups[:, :1]] / sends
    took = np.broadcast_to(sends * chunk, groups.shape).copy()
    for row, receiver in zip(*np.nonzero(slower[groups] > 1), strict=True):
        downstream = (members - receiver) % len(members)
        stairs = np.minimum(downstream, job.ahead * (len(members) - downstream) * (downstream > 0))
        slow = slower[groups[row, receiver]]
        took[row] = np.maximum(took[row], (sends * slow - stairs * (slow - 0.5)) * chunk[row])
    out = np.empty(job.ranks)
    out[groups] = ready[groups].max(axis=1, keepdims=True) + job.latency_ns + took
    return out


def _walls(start: Ints, end: Ints) -> Ints:
    """Length of every step but the first, from the last end of the step before, ns; the first is the profiler's own."""
    done = np.maximum.accumulate(end.max(axis=(1, 2)))
    done[0] = start[1][end[1] > 0].min()
    return np.diff(done)


def _drawn(job: Job, fault: str, steps: int, rng: np.random.Generator) -> tuple[Injected, ...]:
    """Place, time and first guess of the strength of a run's faults."""
    onset, last = int(rng.integers(4, min(10, steps // 2) + 1)), steps - 1
    senders = [sender for ring, sender in job.into.items() if ring != "world"]
    links = sorted({(int(a), b) for sender in senders for b, a in enumerate(sender) if a >= 0})

    def injected(fault: str, rank: int, first: int = onset, last: int = last) -> Injected:
        unit, low, high = STRENGTH[fault]
        ends = {"link": [link for link in links if rank in link], "link-one-way": [links[int(rng.integers(len(links)))]]}
        return Injected(
            fault=fault,
            ranks=() if fault == "link-one-way" else (rank,),
            links=tuple(f"{a}:{b}" for a, b in ends.get(fault, ())),
            classes={"loader": ("data_load",), "checkpoint": ("checkpoint",)}.get(fault, ()),
            first_step=first,
            last_step=last,
            strength={unit: float(rng.uniform(low, high))},
        )

    rank = int(rng.integers(job.ranks))
    near = {rank, *(r for link in links if rank in link for r in link)}
    groups = next(iter(job.groups.values()))  # side by side in different groups, one fault would hide the other
    mates = groups[(groups == rank).any(axis=1)][0].tolist()
    far = int(rng.choice([r for r in mates if r not in near] or [r for r in range(job.ranks) if r != rank]))
    match fault:
        case "none" | "skew":
            return ()
        case "moving":
            middle = (onset + last) // 2
            return (injected("slow", rank, onset, middle), injected("slow", far, middle + 1, last))
        case "two":
            return (injected("slow", rank), injected("link", far))
        case "set":  # all ranks of a host, or anywhere; since some step, or from the start
            places = int(rng.choice([n for n in (2, 4, 8) if 4 * n <= job.ranks]))
            host = rank - rank % places + np.arange(places)
            some = host if rng.random() < 0.5 else rng.choice(job.ranks, places, replace=False)
            found = injected("set", rank, 0 if rng.random() < 0.5 else onset)
            return (replace(found, ranks=tuple(sorted(some.tolist()))),)
        case _:
            return (injected(fault, rank),)


def _burden(job: Job, dice: Dice, faults: Sequence[Injected], healthy: Ints) -> Burden:
    """What the faults do to a run whose steps would take that long without them."""
    burden = Burden(np.zeros_like(dice.cost), {ring: np.ones((len(dice.cost), job.ranks)) for ring in job.into})
    compute = np.flatnonzero([slot.kind == Kind.COMPUTE for slot in job.slots])
    for fault in faults:
        span = np.arange(fault.first_step, fault.last_step + 1)
        amount = next(iter(fault.strength.values()))
        when, more, where = dice.luck[:, span]
        ns = amount * np.median(healthy) * (0.7 + 0.6 * more)
        own = np.ix_(span, compute, np.array(fault.ranks, dtype=np.int64))
        match fault.fault:
            case "slow" | "set":
                burden.work[own] += amount * dice.cost[own]
            case "drift":
                burden.work[own] += amount * (span - span[0])[:, None, None] * dice.cost[own]
            case "stall":
                some = np.argsort(when)[: max(len(span) // 3, 1)]
                burden.work[span[some], compute[(where[some] * len(compute)).astype(int)], fault.ranks[0]] += ns[some]
            case "loader" | "checkpoint":
                burden.work[span, [slot.name for slot in job.slots].index(fault.classes[0]), fault.ranks[0]] += ns
            case _:
                for a, b in (map(int, link.split(":")) for link in fault.links):
                    for ring in (ring for ring, sender in job.into.items() if sender[b] == a):
                        burden.slower[ring][span, b] = 1 + amount
    return burden


def _worth(job: Job, dice: Dice, drawn: Sequence[Injected], healthy: Ints) -> tuple[Injected, ...]:
    """The faults, stronger or weaker until mending all of them would save something, whatever one of them saves alone."""
    faults = tuple(drawn)
    for _ in range(32):
        if not faults:
            break
        saving = 1 - healthy.sum() / _walls(*_played(job, dice, _burden(job, dice, faults, healthy))).sum()
        if LEAST_SAVING <= saving <= MOST_SAVING:
            break
        scale = 1.4 if saving < LEAST_SAVING else 0.75
        faults = tuple(replace(f, strength={k: scale * v for k, v in f.strength.items()}) for f in faults)
    return faults


def modelled(job: str, fault: str, ranks: int, seed: int, steps: int = 24) -> tuple[Trace, Truth]:
    """A job's trace and all that is true about it; ``steps`` counts the first one, which the analysis drops.

    The healthy run depends on job, ranks, seed and steps only: all faults of a seed happen to the same job.
    """
    if job not in JOBS or fault not in FAULTS:
        raise UsageError(f"{job} with {fault} cannot be modelled; jobs: {', '.join(JOBS)}; faults: {', '.join(FAULTS)}")
    if ranks < 16 or ranks % 8 or steps < 12:
        raise UsageError(f"{ranks} ranks, {steps} steps: a model has a multiple of 8 ranks, at least 16, and at least 12 steps")
    built, dice, healthy = _healthy(job, ranks, seed, steps)
    rng = np.random.default_rng((seed, JOBS.index(job), ranks, steps, FAULTS.index(fault)))
    injected = _worth(built, dice, _drawn(built, fault, steps, rng), healthy)
    skew = np.zeros(ranks, dtype=np.int64)
    if fault == "skew":
        wrong = rng.choice(np.arange(1, ranks), int(rng.integers(1, 5)), replace=False)
        skew[wrong] = np.rint(rng.choice((-1, 1), len(wrong)) * rng.uniform(1, 20, len(wrong)) * MS)
    start, end = _played(built, dice, _burden(built, dice, injected, healthy))
    truth = Truth(
        job=job,
        fault=fault,
        seed=seed,
        ranks=ranks,
        injected=injected,
        modelled=True,
        from_start=bool(injected) and max(i.first_step for i in injected) == 0,
        faulted_ns=tuple(_walls(start, end).tolist()),
        healthy_ns=(tuple(healthy.tolist()),),
        skew_ns={int(r): float(skew[r]) for r in np.flatnonzero(skew)},
    )
    return _recorded(built, start, end, skew, f"{job}-{fault}-{ranks}-{seed}"), truth


def with_faults(job: str, ranks: int, seed: int, faults: Sequence[Injected], steps: int = 24) -> tuple[Trace, float]:
    """The same job with just these faults, of just this strength, and the share of the wall that mending all of them saves."""
    built, dice, healthy = _healthy(job, ranks, seed, steps)
    start, end = _played(built, dice, _burden(built, dice, faults, healthy))
    saving = 1 - float(healthy.sum() / _walls(start, end).sum())
    return _recorded(built, start, end, np.zeros(ranks, dtype=np.int64), f"{job}-{ranks}-{seed}"), saving


def _healthy(job: str, ranks: int, seed: int, steps: int) -> tuple[Job, Dice, Ints]:
    """A job, all that chance decides about it, and how long its steps take without a fault."""
    built = build(job, ranks, np.random.default_rng((seed, JOBS.index(job), ranks, steps)))
    dice = _rolled(built, steps)
    return built, dice, _walls(*_played(built, dice, _burden(built, dice, (), np.zeros(1, dtype=np.int64))))


def _recorded(job: Job, start: Ints, end: Ints, skew: Ints, name: str) -> Trace:
    """What a profiler on every rank would have written, each in its own clock."""
    slots, there = job.slots, end > 0
    names = list(dict.fromkeys(slot.name for slot in slots))
    groups = {f"{family} {i}": row for family, rows in job.groups.items() for i, row in enumerate(rows)}
    first = np.cumsum([0, *map(len, job.groups.values())])
    group, peer = np.full((2, len(slots), job.ranks), NULL)
    turn, turns = np.zeros((2, len(slots)), dtype=np.int64)
    for i, slot in enumerate(slots):
        if slot.part >= 0 and slot.ring:
            peer[i] = job.into[slot.ring]
        elif slot.ring:
            rows = job.groups[slot.ring]
            group[i, rows] = first[list(job.groups).index(slot.ring)] + np.arange(len(rows))[:, None]
            turn[i], turns[i] = (sum(s.ring == slot.ring for s in some) for some in (slots[:i], slots))
    rank, step, at = np.nonzero(there.transpose(2, 0, 1))
    columns: dict[str, Any] = {
        "rank": rank, "step": step, "name": np.array([names.index(slot.name) for slot in slots])[at],
        "start_ns": start[step, at, rank] + skew[rank], "end_ns": end[step, at, rank] + skew[rank],
        "group": group[at, rank], "peer": peer[at, rank],
        "seq": np.where(group[at, rank] >= 0, step * turns[at] + turn[at], NULL),
    }  # fmt: skip
    columns |= {key: np.array([getattr(slot, key) for slot in slots])[at] for key in ("lane", "kind", "verb", "size", "part")}
    begins = np.where(there, start, np.iinfo(np.int64).max).min(axis=1) + skew
    marked, of = (axis.ravel() for axis in np.indices(begins.shape))
    marks = {"rank": of, "step": marked, "start_ns": begins.ravel(), "end_ns": (end.max(axis=1) + skew).ravel()}
    members: dict[str, Any] = {"rank": np.arange(job.ranks), "host": [f"host-{r}" for r in range(job.ranks)]}
    if job.stage is not None:
        members |= {"stage": job.stage, "dp_rank": np.arange(job.ranks) % job.groups["dp"].shape[1]}
    return Trace(
        ops=Table(Op, columns),
        names=names,
        lanes=LANES,
        groups=list(groups),
        members=Table(Member, members),
        marks=Table(Mark, marks),
        name=name,
        world_size=job.ranks,
        backend="nccl",
        group_ranks={key: row.tolist() for key, row in groups.items()},
    )
