"""Power of the failure modes that need transfers, as Markdown: ``python bench/modes.py [--jobs 40]``.

One modelled job has everything that the tests look at: a loader, micro-batches, two stages, pairs of ranks and all ranks
that reduce, another group whose transfers are now and then under way meanwhile, a checkpoint. Power: how often a fault of a
given strength is found, and where. How often the healthy job gets an alarm is in ``bench/size.py``; what needs step times
only is in ``bench/diagnosis.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from taut.core.jit import expect
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.diagnose import contention, imbalance
from taut.diagnose import tail_inflation as tail
from taut.diagnose.detectors import Evidence, diagnose
from taut.diagnose.late_ranks import recurring
from taut.diagnose.straggler import local_links
from taut.graph import Graph, link
from taut.replay.blame import blame
from taut.replay.ring_links import rings, slow_links
from taut.replay.timeline import batch, replay

MS = 1e6
RANKS, STEPS, MICRO, SAVE_EVERY = 8, 48, 4, 4
NOISE, TRANSFER_NOISE, ENDS_NS = 0.03, 0.08, 15e3
"""Relative spread of a compute and of a transfer; how far apart the members of a transfer end, ns."""
WORK_DEMAND, TRANSFER_DEMAND = 0.1, 0.3
"""By how much shared demand lengthens work and transfers."""
WORLD, PAIRS, HALVES = np.zeros(RANKS, int), np.arange(RANKS) // 2, np.arange(RANKS) // 4
Draw = Callable[[np.random.Generator, Sequence[int]], tuple[Any, Any]]
"""For jobs × steps × slots × ranks: noise of unit spread, and shared demand between about 0 and 1 (jobs × steps × slots)."""


def red(rng: np.random.Generator, shape: Sequence[int], rho: float, axis: int = 1) -> Any:
    """AR(1) noise along an axis."""
    out = np.moveaxis(rng.standard_normal(shape), axis, 0)
    for k in range(1, len(out)):
        out[k] = rho * out[k - 1] + np.sqrt(1 - rho**2) * out[k]
    return np.moveaxis(out, 0, axis)


def wave(rng: np.random.Generator, jobs: int, n: int) -> Any:
    """A square wave of demand with a period of 8 to 16, jobs × n."""
    period, phase = rng.integers(8, 17, (jobs, 1)), rng.integers(16, size=(jobs, 1))
    return ((np.arange(n) + phase) % period < period // 2) * 1.0


def telegraph(rng: np.random.Generator, jobs: int, n: int) -> Any:
    """Demand that comes and goes after six on the average: no rhythm that a step could fall in with."""
    return (np.cumsum(rng.random((jobs, n)) < 1 / 6, axis=1) + rng.integers(2, size=(jobs, 1))) % 2 * 1.0


def _noisy(own: Callable[[np.random.Generator, Sequence[int]], Any]) -> Draw:
    return lambda rng, shape: (own(rng, shape), np.zeros((*shape[:2], 1)))


def _demand(series: Callable[[np.random.Generator, int, int], Any], inside: bool = False) -> Draw:
    """Demand by steps, or by the ops of a step, in their order."""

    def draw(rng: np.random.Generator, shape: Sequence[int]) -> tuple[Any, Any]:
        jobs, steps, slots, _ = shape
        some = series(rng, jobs, steps * slots if inside else steps)
        return rng.standard_normal(shape), some.reshape(jobs, steps, -1)

    return draw


NULLS: dict[str, Draw] = {
    "white noise": _noisy(lambda rng, shape: rng.standard_normal(shape)),
    "red noise from step to step, ρ = 0.5": _noisy(lambda rng, shape: red(rng, shape, 0.5)),
    "red noise from step to step, ρ = 0.8": _noisy(lambda rng, shape: red(rng, shape, 0.8)),
    "red noise from op to op, ρ = 0.8": _noisy(
        lambda rng, shape: red(rng, (shape[0], shape[1] * shape[2], shape[3]), 0.8).reshape(shape)
    ),
    "heavy tails (t, 3 degrees)": _noisy(lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3)),
    "shared square wave of demand": _demand(wave),
    "shared red demand, ρ = 0.8": _demand(lambda rng, jobs, n: 0.5 + 0.5 * red(rng, (jobs, n), 0.8)),
    "shared demand that changes inside a step": _demand(telegraph, inside=True),
}


@dataclass(frozen=True)
class Slot:
    """One op of a step on every rank; those that meet have a group for every rank."""

    name: str
    ms: float
    spread: float = NOISE
    after: tuple[int, ...] = ()
    lane: int = 0
    kind: Kind = Kind.COMPUTE
    verb: Verb = Verb.NONE
    group: Any = None
    part: int = -1
    every: int = 1


def _slots() -> list[Slot]:
    meets: dict[str, Any] = {"spread": TRANSFER_NOISE, "kind": Kind.COMMUNICATE}
    out = [Slot("data_load", 4, kind=Kind.COORDINATE)]
    # In a lane of its own: a transfer of another group, under way in about half of the steps when the pairs reduce.
    out.append(Slot("prepare", 36, 0.1, after=(0,), lane=1, kind=Kind.COORDINATE))
    out.append(Slot("gather", 8, lane=1, verb=Verb.ALL_GATHER, group=HALVES, **meets))
    for part in range(MICRO):
        out += [Slot("forward", 4, part=part), Slot("backward", 8, part=part)]
    out += [Slot("reduce", 10, verb=Verb.ALL_REDUCE, group=group, **meets) for group in (PAIRS, WORLD)]
    out.append(Slot("checkpoint", 10, kind=Kind.COORDINATE, every=SAVE_EVERY))
    return out


SLOTS = _slots()
LOAD, GATHER, PAIR, WIDE, SAVE = 0, 2, len(SLOTS) - 3, len(SLOTS) - 2, len(SLOTS) - 1
COMPUTE = np.flatnonzero([slot.part >= 0 for slot in SLOTS])
MEETS = np.array([slot.group is not None for slot in SLOTS])


@dataclass
class Jobs:
    """Some jobs, before they are played: what each op takes, jobs × steps × slots × ranks, ns."""

    ns: Any
    ends: Any
    """How much later than its transfer each member ends, likewise."""
    joint: Any
    """Jobs × steps: whether all ranks meet in an op that is recorded …"""
    unseen: bool = False
    """… or in one that is not."""
    staged: bool = True
    """Whether the trace tells which ranks are of one stage."""
    contended: float = 1.0
    """Times as long as alone that a reduce of a pair takes if the gather is under way at one of its ranks when it opens."""


def healthy(rng: np.random.Generator, jobs: int, draw: Draw, steps: int = STEPS) -> Jobs:
    """Jobs without a fault; a transfer of all ranks is as long as the longest of as many pairs would be."""
    shape = jobs, steps, len(SLOTS), RANKS
    z, demand = draw(rng, shape)
    base, spread = (np.array([getattr(slot, key) for slot in SLOTS])[:, None] for key in ("ms", "spread"))
    z[:, :, WIDE] = z[:, :, WIDE, ::2].max(axis=-1, keepdims=True)
    for i in (PAIR, GATHER):  # a transfer is one thing, however many ranks take part
        z[:, :, i] = z[:, :, i, np.searchsorted(SLOTS[i].group, SLOTS[i].group)]
    busy = 1 + np.where(MEETS, TRANSFER_DEMAND, WORK_DEMAND) * demand
    ns = base * MS * np.maximum(1 + spread * z, 0.2) * busy[..., None]
    return Jobs(ns, np.abs(rng.standard_normal(shape)) * ENDS_NS, np.ones((jobs, steps), dtype=bool))


def played(jobs: Jobs) -> tuple[Any, Any]:
    """(start, end) of every op, jobs × steps × slots × ranks, ns; both 0 where there is no such op."""
    start, end = np.zeros_like(jobs.ns), np.zeros_like(jobs.ns)
    free = np.zeros((2, len(jobs.ns), RANKS))
    for k in range(jobs.ns.shape[1]):
        for i, slot in enumerate(SLOTS):
            if (k + 1) % slot.every:
                continue
            ready = np.maximum.reduce([free[slot.lane], *(end[:, k, j] for j in slot.after)])
            opens, took = ready, jobs.ns[:, k, i]
            if slot.group is not None:
                opens, took = _latest(ready, slot.group), took + jobs.ends[:, k, i]
            if i == GATHER:
                gather = opens, opens + took
            elif i == PAIR:
                together = (gather[0] <= opens) & (opens < gather[1])
                took = took * np.where(_latest(together, slot.group) > 0, jobs.contended, 1.0)
            there = jobs.joint[:, k, None] if i == WIDE else True
            done = np.where(there | jobs.unseen, opens + took, free[slot.lane])
            start[:, k, i], end[:, k, i] = np.where(there, ready, 0), np.where(there, done, 0)
            free[slot.lane] = done
    return np.rint(start).astype(np.int64), np.rint(end).astype(np.int64)


def _latest(ready: Any, group: Any) -> Any:
    """Of every rank's group the latest."""
    first = np.searchsorted(group, np.arange(group.max() + 1))
    return np.maximum.reduceat(ready, first, axis=1)[:, group]


def recorded(start: Any, end: Any, staged: bool) -> Trace:
    """The trace of one job."""
    names, groups = list(dict.fromkeys(slot.name for slot in SLOTS)), []
    group = np.full((len(SLOTS), RANKS), -1)
    for i in np.flatnonzero(MEETS):
        group[i] = len(groups) + SLOTS[i].group
        groups += [f"{len(np.unique(SLOTS[i].group))} groups, {g}" for g in np.unique(SLOTS[i].group)]
    rank, step, at = np.nonzero((end > 0).transpose(2, 0, 1))
    columns: dict[str, Any] = {
        "rank": rank, "step": step, "start_ns": start[step, at, rank], "end_ns": end[step, at, rank],
        "group": group[at, rank], "seq": np.where(MEETS[at], step, -1), "size": np.where(MEETS, 1 << 20, -1)[at],
        "name": np.array([names.index(slot.name) for slot in SLOTS])[at],
    }  # fmt: skip
    columns |= {key: np.array([getattr(slot, key) for slot in SLOTS])[at] for key in ("lane", "kind", "verb", "part")}
    ranks = np.arange(RANKS)
    known = {"rank": ranks, "host": ["node"] * RANKS} | ({"stage": ranks // 4, "dp_rank": ranks % 4} if staged else {})
    return Trace(
        ops=Table(Op, columns), names=names, lanes=["main", "beside"], groups=groups, members=Table(Member, known),
        world_size=RANKS, backend="nccl",
    )  # fmt: skip


def graphs(jobs: Jobs) -> Iterator[Graph]:
    """Each job, linked."""
    for start, end in zip(*played(jobs), strict=True):
        yield link(recorded(start, end, jobs.staged))


def evidence(jobs: Jobs) -> Iterator[Evidence]:
    """What detectors get of each job."""
    for graph in graphs(jobs):
        observed = replay(graph)
        gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
        yield Evidence(graph, observed, blame(graph, observed, gap_free), batch(graph))


def without_limit(module: Any, name: str, value: float, test: Callable[[], Any]) -> bool:
    """The bare test of a detector: how large an effect must be to matter is no part of it."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        return bool(test())
    finally:
        setattr(module, name, kept)


def stalled(e: Evidence) -> bool:
    return any("stall" in f.mode for f in e.late_ranks)


TESTS: dict[str, tuple[float, Callable[[Evidence], bool]]] = {
    "contention": (0.01, lambda e: without_limit(contention, "SLOWER", 0.0, lambda: contention.detect(e))),
    "tail": (0.01, lambda e: bool(tail.detect(e))),
    "micro-batches": (0.01, lambda e: bool(imbalance.micro_batches(e))),
    "stages": (0.01, lambda e: without_limit(imbalance, "LONGER", 1.0, lambda: imbalance.stages(e))),
    "link since a step": (0.03, lambda e: bool(local_links(e))),
    "link all along": (0.01, lambda e: bool(slow_links(e.graph, rings(e.graph)))),
    "among peers": (0.01, lambda e: bool(recurring(e, []))),
    "stall": (0.04, stalled),
    "any finding listed": (0.05, lambda e: bool(diagnose(e))),
}
"""Nominal size of each. A link is searched for levels (1 %) and spikes (2 %), a rank (stall) for levels in its whole work
and by class (1 % each) and for spikes (2 %). Limits on what matters are taken off, or the jobs stand at them: stages are
tested against being equal, and half of what varies between micro-batches is their work."""


def local_steps(jobs: Jobs, rng: np.random.Generator) -> None:
    """All ranks meet after three to six steps only, irregularly."""
    for row in jobs.joint:
        at = np.cumsum(rng.integers(3, 7, len(row)))
        row[:] = np.isin(np.arange(len(row)), at)


def unrecorded(jobs: Jobs, rng: np.random.Generator) -> None:
    """All ranks meet, but for a while no record of it is kept."""
    steps = jobs.joint.shape[1]
    jobs.joint[:, steps // 3 : 2 * steps // 3], jobs.unseen = False, True


APART: dict[str, Callable[[Jobs, np.random.Generator], None]] = {
    "synchronisation, irregular local steps": local_steps,
    "synchronisation, meetings not recorded": unrecorded,
}


def percent(hits: int, of: int) -> str:
    """A share with its interval (Wilson, 95 %)."""
    p, z2 = hits / of, 1.96**2 / of
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return f"{100 * p:.1f} ({100 * max(middle - half, 0):.1f}–{100 * (middle + half):.1f})"


def between_micro_batches(jobs: Jobs) -> float:
    """Spread between the micro-batches of a step, what each place has in all steps taken out."""
    log = np.log(jobs.ns[:, :, COMPUTE[::2]])
    log -= log.mean(axis=2, keepdims=True)
    return float((log - log.mean(axis=1, keepdims=True)).std()) / sqrt(1 - 1 / MICRO)


ONSET = STEPS // 3
STEP_MS = sum(slot.ms for slot in SLOTS if slot.lane == 0 and slot.every == 1)
Found = Callable[[Any], bool]


@dataclass(frozen=True)
class Fault:
    """What is done to healthy jobs at a strength, and what the finding must say."""

    name: str
    strengths: tuple[float, ...]
    inject: Callable[[Jobs, np.random.Generator, float], None]
    found: Found


def contend(jobs: Jobs, rng: np.random.Generator, times: float) -> None:
    jobs.contended = times


def inflated(jobs: Jobs, rng: np.random.Generator, times: float) -> None:
    hit = rng.random(jobs.ns.shape[:2]) < 0.25
    jobs.ns[:, :, WIDE] *= np.where(hit, times, 1.0)[..., None]


def unequal(jobs: Jobs, rng: np.random.Generator, spread: float) -> None:
    jobs_, steps, _, ranks = jobs.ns.shape
    jobs.ns[:, :, COMPUTE] *= np.repeat(np.exp(spread * rng.standard_normal((jobs_, steps, MICRO, ranks))), 2, axis=2)


def long_stage(jobs: Jobs, rng: np.random.Generator, times: float) -> None:
    jobs.ns[:, :, COMPUTE, 4:] *= times / (2 - times)


def out_of_step(jobs: Jobs, rng: np.random.Generator, steps: float) -> None:
    jobs.joint[:, ONSET : ONSET + int(steps)] = False
    jobs.ns[:, ONSET : ONSET + int(steps), COMPUTE, 4:] *= 1.02


def slow_link(since: int) -> Callable[[Jobs, np.random.Generator, float], None]:
    """Link 2:3 of the ring, and of its pair: every round of the ring waits for it, and its members end one after the other."""
    downstream = (np.arange(RANKS) - 3) % RANKS
    stairs = np.minimum(downstream, RANKS - downstream)

    def inject(jobs: Jobs, rng: np.random.Generator, times: float) -> None:
        chunk = jobs.ns[:, since:, WIDE] / (2 * (RANKS - 1))
        # A chunk goes in two pieces, one of which is passed on while the other comes; nobody ends before all rounds are over.
        slower = 2 * (RANKS - 1) * (times - 1) * chunk - stairs * (times - 0.5) * chunk
        jobs.ends[:, since:, WIDE] += np.maximum(slower, 0)
        jobs.ns[:, since:, PAIR, 2:4] *= times

    return inject


def slow_rank(jobs: Jobs, rng: np.random.Generator, share: float) -> None:
    jobs.ns[:, :, COMPUTE, 2] += share * STEP_MS * MS / len(COMPUTE)
    jobs.staged = False  # all ranks are peers


def loader(jobs: Jobs, rng: np.random.Generator, share: float) -> None:
    jobs.ns[:, ONSET:, LOAD, 2] += share * STEP_MS * MS


def checkpoint(jobs: Jobs, rng: np.random.Generator, share: float) -> None:
    jobs.ns[:, ONSET:, SAVE, 2] += share * SAVE_EVERY * STEP_MS * MS


def mode(name: str, **place: Any) -> Found:
    return lambda f: f.mode == name and all(getattr(f, key) == value for key, value in place.items())


SHARES = (0.02, 0.04, 0.06, 0.08, 0.12, 0.16)
FAULTS = (
    Fault("fabric contention: times as long in company", (1.2, 1.4, 1.6, 2, 3, 4), contend, mode("fabric contention")),
    Fault(
        "tail latency: a quarter of the wide gates times as long", (1.25, 1.5, 2, 3, 4, 6), inflated,
        mode("tail latency inflation"),
    ),
    Fault(
        "work imbalance: spread of micro-batches", (0.02, 0.05, 0.1, 0.15, 0.2, 0.3), unequal,
        mode("work imbalance", stages=()),
    ),
    Fault(
        "work imbalance: a stage, times the mean", (1.05, 1.1, 1.15, 1.2, 1.3, 1.4), long_stage,
        mode("work imbalance", stages=(1,)),
    ),
    Fault(
        "synchronisation loss: steps apart, half of the ranks slower by 2 %", (3, 4, 6, 8, 12, 24), out_of_step,
        lambda f: f.mode == "partial synchronisation loss" and f.ranks in ((0, 1, 2, 3), (4, 5, 6, 7)),
    ),
    Fault("link since a step: times as slow", (1.2, 1.5, 2, 3, 4, 6), slow_link(ONSET), lambda f: "2:3" in f.links),
    Fault("link all along: times as slow", (1.2, 1.5, 2, 3, 4, 6), slow_link(0), lambda f: "2:3" in f.links),
    Fault(
        "among peers: a rank slower all along by share of a step", SHARES, slow_rank, mode("straggler cascade", ranks=(2,))
    ),
    Fault("input stall since a step: share of a step", SHARES, loader, mode("input stall", ranks=(2,))),
    Fault("checkpoint stall since a step: share of four steps", SHARES, checkpoint, mode("checkpoint stall", ranks=(2,))),
)  # fmt: skip


def powers(count: int, seed: int) -> None:
    """Table of what is found among the findings of a job; under each strength the share in per cent."""
    base = "red noise from step to step, ρ = 0.5"
    print(f"| fault ({base}; {count} jobs): found, % | " + " | ".join("" for _ in range(6)) + " |")
    print("|---|" + "---:|" * 6)
    for k, fault in enumerate(FAULTS):
        cells = []
        for strength in fault.strengths:
            rng = np.random.default_rng((seed, 100 + k))
            jobs = healthy(rng, count, NULLS[base])
            fault.inject(jobs, rng, strength)
            hits = sum(any(map(fault.found, diagnose(e))) for e in evidence(jobs))
            cells.append(f"{strength:g}: **{100 * hits / count:.0f}**")
        print(f"| {fault.name} | " + " | ".join(cells) + " |")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40, help="jobs behind every power")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    expect(float("inf"))  # thousands of small jobs: kernels are compiled from the first on
    powers(given.jobs, given.seed)
