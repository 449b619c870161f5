"""The shape of modelled jobs: the ops of one step, what each of them follows, and whom it meets.

A job is a list of slots that ``model.py`` plays over arrays of ranks. Sizes and speeds are drawn, so that no two jobs of
a kind are alike; durations stand for accelerators, transfers for one network interface on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.tables import NULL, Kind, Verb

US, MS = 1e3, 1e6
LANES = ("compute", "communication", "other group", "receive forward", "send forward", "receive backward", "send backward")
MAIN, COMM, OTHER = range(3)
TENSOR = 8
"""Ranks of a tensor-parallel group."""
MICRO = 8
"""Micro-batches of a pipeline step."""
SAVE_EVERY = 4
"""Steps between checkpoints."""


@dataclass(frozen=True)
class Slot:
    """One op of a step, on every rank that has it."""

    name: str
    base_ns: float | Floats
    """Work or transfer of a healthy rank: one number, or one for every rank."""
    after: tuple[int, ...] = ()
    """Slots of the same rank and step that must have ended, besides the one before it in its lane."""
    lane: int = MAIN
    kind: Kind = Kind.COMPUTE
    verb: Verb = Verb.NONE
    ring: str = ""
    """Key of ``Job.into`` that holds the other ends: a family of process groups, or the direction of a hop."""
    size: int = NULL
    part: int = NULL
    every: int = 1


@dataclass
class Job:
    """The slots of a step, in which order they may be played, and who meets whom."""

    rng: np.random.Generator
    ranks: int
    latency_ns: float
    bandwidth: float
    """Bytes a nanosecond."""
    ahead: int = 2
    """Chunks that the sender of a ring may be ahead of its receiver: its buffers."""
    slots: list[Slot] = field(default_factory=list)
    plays: list[tuple[int, slice]] = field(default_factory=list)
    """(slot, ranks that do it), everything after what it needs. A receive, two slots before its send, plays both."""
    groups: dict[str, Ints] = field(default_factory=dict)
    """Family of process groups → groups × members, in the order of the ring."""
    into: dict[str, Ints] = field(default_factory=dict)
    """Family or direction → for every rank the sender of the link into it, -1 for none."""
    stage: Ints | None = None

    def ms(self, low: float, high: float) -> float:
        """A duration drawn for this job, ns."""
        return float(self.rng.uniform(low, high)) * MS

    def put(self, slot: Slot) -> int:
        """Append a slot that all ranks play next."""
        self.slots.append(slot)
        self.plays.append((len(self.slots) - 1, slice(0, self.ranks)))
        return len(self.slots) - 1

    def work(self, name: str, base_ns: float, *after: int) -> int:
        """Compute of all ranks."""
        return self.put(Slot(name, base_ns, after))

    def meet(self, verb: Verb, family: str, base_ns: float, *after: int, lane: int = COMM) -> int:
        """A ring collective in every group of a family."""
        members = self.groups[family].shape[1]
        size = max(round(base_ns * self.bandwidth * members / rounds(verb, members)), 8)
        return self.put(Slot(verb.word, base_ns, after, lane, Kind.COMMUNICATE, verb, family, size))

    def family(self, name: str, groups: Ints) -> None:
        """Declare process groups: each sends along its row, the last to the first."""
        self.groups[name] = groups
        self.into[name] = np.full(self.ranks, NULL)
        self.into[name][groups] = np.roll(groups, 1, axis=1)

    def clip(self, *after: int) -> int:
        """The gradient norm over all ranks: a few bytes, which cost latency only."""
        self.family("world", np.arange(self.ranks)[None])
        return self.meet(Verb.ALL_REDUCE, "world", 0.0, *after)

    def one_of(self, sizes: Sequence[int]) -> int:
        """A size that divides the ranks into at least two."""
        return int(self.rng.choice([n for n in sizes if self.ranks % n == 0 and self.ranks >= 2 * n]))


def rounds(verb: Verb, members: int) -> int:
    """How often a ring sends a chunk on, each of one member's share of the bytes."""
    return (2 if verb == Verb.ALL_REDUCE else 1) * (members - 1)


def _ddp(job: Job) -> tuple[int, ...]:
    """Gradient buckets of unequal size, the first of them small, reduced while the backward pass goes on."""
    job.family("dp", np.arange(job.ranks)[None])
    forward, share = job.ms(6, 14), job.rng.uniform(0.3, 0.9)
    for b in range(4):
        job.work(f"forward {b}", forward)
    for b, bucket in enumerate((0.1, *job.rng.uniform(0.7, 1.3, 3))):
        done = job.work(f"backward {3 - b}", 2 * forward)
        reduced = job.meet(Verb.ALL_REDUCE, "dp", 2 * share * bucket * forward, done)
    return (reduced,)


def _sharded(job: Job, blocks: int, tensor: float = 0.0, replicate: float = 0.0) -> tuple[int, ...]:
    """Parameters gathered one block ahead, gradients scattered behind; other groups meet in a lane of their own."""
    forward = job.ms(8, 16)
    gather, scatter = job.rng.uniform(0.2, 0.7, 2) * forward

    def block(name: str, work: float, *needs: int) -> int:
        done = job.work(name, work * forward, *needs)
        return job.meet(Verb.ALL_REDUCE, "tp", tensor * work * forward, done, lane=OTHER) if tensor else done

    done = [0]
    for b in range(blocks):
        got = job.meet(Verb.ALL_GATHER, "shard", gather, done[max(b - 1, 0)])
        done.append(block(f"forward {b}", 1.0, got, done[-1]))
    last, needs, reduced = done[-1], got, 0
    for b in reversed(range(blocks)):
        if b:
            got = job.meet(Verb.ALL_GATHER, "shard", gather, last)
        last = block(f"backward {b}", 2.0, needs, last)
        needs = got
        scattered = job.meet(Verb.REDUCE_SCATTER, "shard", scatter, last)
        if replicate:
            reduced = job.meet(Verb.ALL_REDUCE, "replicate", replicate * forward, scattered, lane=OTHER)
    return (job.clip(scattered, reduced),)


def _fsdp(job: Job) -> tuple[int, ...]:
    job.family("shard", np.arange(job.ranks)[None])
    return _sharded(job, 3)


def _tp_fsdp(job: Job) -> tuple[int, ...]:
    grid = np.arange(job.ranks).reshape(-1, TENSOR)
    job.family("tp", grid)
    job.family("shard", grid.T)
    return _sharded(job, 2, tensor=job.rng.uniform(0.1, 0.25))


def _hsdp(job: Job) -> tuple[int, ...]:
    grid = np.arange(job.ranks).reshape(-1, job.one_of((8, 16)))
    job.family("shard", grid)
    job.family("replicate", grid.T)
    return _sharded(job, 2, replicate=job.rng.uniform(0.2, 0.5))


def _pipeline(job: Job) -> tuple[int, ...]:
    """1F1B: a receive is posted when its stage is free for it, a send holds up only the next one of its lane."""
    stages = job.one_of((4, 8))
    grid = np.arange(job.ranks).reshape(stages, -1)
    job.stage = np.repeat(np.arange(stages), grid.shape[1])
    job.family("dp", grid)
    forward = job.ms(3, 6) * (1 + job.rng.uniform(0, 0.1, stages))[job.stage]
    hop, reduce = job.rng.uniform(0.05, 0.15) * forward.mean(), job.rng.uniform(1, 3) * forward.mean()
    rows = np.pad(grid, ((1, 1), (0, 0)), constant_values=NULL)
    job.into |= {"forward": rows[:-2].ravel(), "backward": rows[2:].ravel()}
    first = len(job.slots)
    for lane, way, back, work in ((3, "forward", "backward", forward), (5, "backward", "forward", 2 * forward)):
        size = round(hop * job.bandwidth)
        for part in range(MICRO):
            at = len(job.slots)
            job.slots += [
                Slot(f"receive {way}", hop, (), lane, Kind.COMMUNICATE, Verb.RECV, way, size, part),
                Slot(way, work, (at,), part=part),
                Slot(f"send {way}", hop, (at + 1,), lane + 1, Kind.COMMUNICATE, Verb.SEND, back, size, part),
            ]
    for stage, way, part in _one_f_one_b(stages, MICRO):
        at = first + 3 * (part + MICRO * (way == "backward"))
        who = slice(stage * grid.shape[1], (stage + 1) * grid.shape[1])
        met = bool(job.into[way][who.start] >= 0)
        job.plays += [(at, who)] * met + [(at + 1, who)]
    sent = first + 3 * MICRO - 1, first + 6 * MICRO - 1
    return (job.clip(job.meet(Verb.ALL_REDUCE, "dp", reduce, sent[1] - 1)), *sent)


def _one_f_one_b(stages: int, parts: int) -> Iterator[tuple[int, str, int]]:
    """(stage, direction, micro-batch) in an order in which everything follows what it needs."""
    todo: list[list[tuple[int, str, int]]] = []
    for s in range(stages):
        warm = min(stages - 1 - s, parts)
        ahead, back = ([(s, way, i) for i in range(parts)] for way in ("forward", "backward"))
        steady = [op for pair in zip(ahead[warm:], back, strict=False) for op in pair]
        todo.append(ahead[:warm] + steady + back[parts - warm :])
    done: set[tuple[int, str, int]] = set()
    while any(todo):
        for queue in todo:
            while queue:
                s, way, i = queue[0]
                before = s - 1 if way == "forward" else s + 1
                if 0 <= before < stages and (before, way, i) not in done:
                    break
                done.add(queue[0])
                yield queue.pop(0)


BUILDERS: dict[str, Callable[[Job], tuple[int, ...]]] = {
    "ddp": _ddp, "fsdp": _fsdp, "tp-fsdp": _tp_fsdp, "pipeline": _pipeline, "hsdp": _hsdp,
}  # fmt: skip
"""What each job does between its input and its optimizer; gives the slots that the optimizer awaits."""
JOBS = tuple(BUILDERS)


def build(name: str, ranks: int, rng: np.random.Generator) -> Job:
    """A job of its own size and speed: input, the job itself, optimizer, and now and then a checkpoint."""
    job = Job(rng, ranks, latency_ns=rng.uniform(20, 60) * US, bandwidth=rng.uniform(12, 50))
    job.put(Slot("data_load", job.ms(2, 5), kind=Kind.COORDINATE))
    job.work("optimizer", job.ms(3, 8), *BUILDERS[name](job))
    job.put(Slot("checkpoint", job.ms(20, 60), kind=Kind.COORDINATE, every=SAVE_EVERY))
    return job
