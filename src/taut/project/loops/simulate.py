"""One run of a scenario of control loops: the log it leaves, and what really happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.core.tables import Trace
from taut.project.loops.clients import Book, Clients
from taut.project.loops.demand import arrive, rate
from taut.project.loops.observed import Seen
from taut.project.loops.pool import Pool
from taut.project.loops.scalers import Door, scale
from taut.project.loops.scenario import Scenario
from taut.project.loops.schedulers import Cell, place
from taut.project.loops.trainer import Trainer
from taut.project.loops.world import World


@dataclass(frozen=True)
class Played:
    """A run: its log as a trace, and the accounts that only a simulator has."""

    scenario: Scenario
    trace: Trace
    took_s: Any
    """Latency of every answered request."""
    born_s: Any
    """When every settled request arrived, in the order they were settled …"""
    in_time: Any
    """… and whether it was answered by its deadline."""
    tries: Any
    arrived: int
    settled: int
    good: int
    """Answered, however late: what a success rate shows."""
    terms_s: dict[str, float]
    """Where the accelerator-seconds that were held went; they sum to all of them."""
    ideal_s: float
    """Accelerator-seconds of useful work that the same demand offers and the same accelerators could do."""
    conflicts: int
    commits: int

    @property
    def useful_s(self) -> float:
        """Accelerator-seconds whose result somebody kept."""
        return self.terms_s["served"] + self.terms_s["trained"]

    @property
    def paid_s(self) -> float:
        """Accelerator-seconds held."""
        return sum(self.terms_s.values())

    def goodput(self, first_s: float, last_s: float) -> float:
        """Requests a second that arrived in a window and were answered in time."""
        inside = (self.born_s >= first_s) & (self.born_s < last_s)
        return float((self.in_time & inside).sum() / (last_s - first_s))


def play(s: Scenario, seed: int = 0) -> Played:
    """Simulate a scenario from its beginning to its horizon."""
    world = World(s, seed)
    env = world.env
    pool = Pool(world)
    clients = Clients(world, pool)
    seen = Seen(world, pool, clients)
    door = Door(world, clients)
    trainer = Trainer(world, pool) if s.trainer else None
    cell = Cell(world)
    env.process(seen.watch())
    env.process(arrive(world, door.enter))
    for stall in s.stall:
        env.process(pool.stall(stall.at_s, stall.for_s))
    for one in s.autoscaler:
        env.process(scale(world, one, pool, seen))
    for scheduler in s.scheduler:
        env.process(place(world, scheduler, cell))
    if s.gate:
        env.process(door.watch(seen))
    env.process(seen.write())
    env.process(seen.plan())
    env.run(until=s.loops.horizon_s)
    pool.account()
    if trainer:
        trainer.end()
    return _played(world, pool, clients, trainer, cell)


def _played(world: World, pool: Pool, clients: Clients, trainer: Trainer | None, cell: Cell) -> Played:
    s, book = world.scenario, clients.book
    took = np.array(book.took_s)
    good = np.array(book.good, dtype=bool)
    return Played(
        s, world.log.trace(s.name), took[good], np.array(book.born_s), np.array(book.in_time, dtype=bool),
        np.array(book.tries, dtype=np.int64), clients.arrived, len(took) + book.refused, int(good.sum()),
        _terms(s, pool, trainer), _ideal(s), cell.conflicts, cell.commits,
    )  # fmt: skip


def _terms(s: Scenario, pool: Pool, trainer: Trainer | None) -> dict[str, float]:
    """Where accelerator-seconds went. What is being served or trained at the end counts as what it became by then: nothing."""
    each = pool.spec.accelerators
    idle = pool.paid_s - pool.starting_s - pool.kept_s - pool.wasted_s
    terms = {
        "served": pool.kept_s * each, "served in vain": pool.wasted_s * each, "starting": pool.starting_s * each,
        "idle": max(idle, 0.0) * each,
    }  # fmt: skip
    beside = trainer.spec.accelerators if trainer else 0
    t = trainer
    return {
        **terms, "trained": t.kept_s * beside if t else 0.0, "trained in vain": t.lost_s * beside if t else 0.0,
        "restarting": t.restarting_s * beside if t else 0.0, "checkpoints": t.saving_s * beside if t else 0.0,
    }  # fmt: skip


def _ideal(s: Scenario) -> float:
    """Useful accelerator-seconds with the demand known beforehand, no start, no loss: the pool first, the job beside it."""
    every = s.loops.sample_s
    asked = np.array([rate(s.demand, t) for t in np.arange(every / 2, s.loops.horizon_s, every)])
    needed = np.minimum(asked * s.pool.service_s, s.most) * s.pool.accelerators
    if s.trainer is None:
        return float(needed.sum() * every)
    beside = s.trainer.accelerators * (s.accelerators - np.ceil(needed) >= s.trainer.accelerators)
    return float((needed + beside).sum() * every)


__all__ = ["Book", "Played", "play"]
