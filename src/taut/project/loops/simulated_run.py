"""One run of a scenario of control loops: the log it leaves, and what really happened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import Trace
from taut.project.loops.clients import Clients
from taut.project.loops.demand import arrive, rate
from taut.project.loops.monitor import Monitor
from taut.project.loops.pool import Pool
from taut.project.loops.scalers import Admission, scale
from taut.project.loops.scenario import Scenario
from taut.project.loops.schedulers import SharedMachines, place
from taut.project.loops.simulation import Simulation
from taut.project.loops.trainer import Trainer


@dataclass(frozen=True)
class SimulatedRun:
    """A run: its log as a trace, and the accounts that only a simulator has."""

    scenario: Scenario
    trace: Trace
    took_s: Floats
    """Latency of every answered request."""
    born_s: Floats
    """When every settled request arrived, in the order they were settled …"""
    in_time: Mask
    """… and whether it was answered by its deadline."""
    tries: Ints
    arrived: int
    settled: int
    terms_s: dict[str, float]
    """Where the accelerator-seconds that were held went; they sum to all of them."""
    ideal_s: float
    """Accelerator-seconds of useful work that the same demand offers and the same accelerators could do."""
    conflicts: int
    """Placements that schedulers decided on and could not commit."""

    @property
    def good(self) -> int:
        """Requests answered, however late: what a success rate shows."""
        return len(self.took_s)

    @property
    def useful_s(self) -> float:
        """Accelerator-seconds whose result somebody kept."""
        return self.terms_s["served"] + self.terms_s["trained"]

    @property
    def paid_s(self) -> float:
        """Accelerator-seconds held."""
        return sum(self.terms_s.values())


def simulate(s: Scenario, seed: int = 0) -> SimulatedRun:
    """Simulate a scenario from its beginning to its horizon."""
    sim = Simulation(s, seed)
    env = sim.env
    pool = Pool(sim)
    clients = Clients(sim, pool)
    monitor = Monitor(sim, pool, clients)
    admission = Admission(sim, clients)
    trainer = Trainer(sim, pool) if s.trainer else None
    machines = SharedMachines(sim)
    # Processes of one moment run in the order in which they are entered here.
    env.process(monitor.watch())
    env.process(arrive(sim, admission.enter))
    for stall in s.stall:
        env.process(pool.stall(stall.at_s, stall.for_s))
    for autoscaler in s.autoscaler:
        env.process(scale(sim, autoscaler, pool, monitor))
    for scheduler in s.scheduler:
        env.process(place(sim, scheduler, machines))
    if s.gate:
        env.process(admission.watch(monitor))
    env.process(monitor.write())
    env.process(monitor.plan())
    env.run(until=s.loops.horizon_s)
    pool.account()
    if trainer:
        trainer.end()
    ended = clients.ended
    return SimulatedRun(
        scenario=s,
        trace=sim.log.trace(s.name),
        took_s=np.array([request.took_s for request in ended if request.good], dtype=float),
        born_s=np.array([request.born_s for request in ended], dtype=float),
        in_time=np.array([clients.in_time(request) for request in ended], dtype=bool),
        tries=np.array([request.tries for request in ended], dtype=np.int64),
        arrived=clients.arrived,
        settled=len(ended) + clients.refused,
        terms_s=_terms(pool, trainer),
        ideal_s=_ideal(s),
        conflicts=machines.conflicts,
    )


def _terms(pool: Pool, trainer: Trainer | None) -> dict[str, float]:
    """Where accelerator-seconds went. What is being served or trained at the end counts as what it became by then: nothing."""
    idle = max(pool.paid_s - pool.starting_s - pool.kept_s - pool.wasted_s, 0.0)
    served = {"served": pool.kept_s, "served in vain": pool.wasted_s, "starting": pool.starting_s, "idle": idle}
    trained = dict.fromkeys(("trained", "trained in vain", "restarting", "checkpoints"), 0.0)
    if trainer:
        spent = trainer.kept_s, trainer.lost_s, trainer.restarting_s, trainer.saving_s
        trained = {name: s * trainer.spec.accelerators for name, s in zip(trained, spent, strict=True)}
    return {name: s * pool.spec.accelerators for name, s in served.items()} | trained


def _ideal(s: Scenario) -> float:
    """Useful accelerator-seconds with the demand known beforehand, no start, no loss: the pool first, the job beside it."""
    every = s.loops.sample_s
    asked = np.array([rate(s.demand, t) for t in np.arange(every / 2, s.loops.horizon_s, every)])
    needed = np.minimum(asked * s.pool.service_s, s.most) * s.pool.accelerators
    if s.trainer is None:
        return float(needed.sum() * every)
    beside = s.trainer.accelerators * (s.accelerators - np.ceil(needed) >= s.trainer.accelerators)
    return float((needed + beside).sum() * every)
