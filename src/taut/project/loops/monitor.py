"""What controllers and planners can see: the pool's sums over time and its latencies, and the metrics made of them."""

from __future__ import annotations

from bisect import bisect_left
from math import ceil
from typing import TYPE_CHECKING

from taut.project.loops.clients import Clients
from taut.project.loops.pool import Pool
from taut.project.loops.simulation import Simulation

if TYPE_CHECKING:
    from taut.project.loops.simulation import Process

TICK_S = 1.0
"""Grain of what is remembered of the pool."""
TAIL = 0.95
"""Quantile of latency that is compared with the deadline."""


class Monitor:
    """What is known of the pool's recent past, a second fine."""

    def __init__(self, sim: Simulation, pool: Pool, clients: Clients) -> None:
        self.sim, self.env, self.pool, self.clients = sim, sim.env, pool, clients
        self.sums: list[tuple[float, float, float]] = []
        self.written: dict[tuple[str, str], float] = {}

    def watch(self) -> Process:
        """Keep the pool's sums over time, once a tick."""
        while True:
            self.pool.account()
            self.sums.append((self.pool.inside_s, self.pool.busy_s, self.pool.ready_s))
            yield self.env.timeout(TICK_S)

    def mean(self, look_back_s: float) -> tuple[float, float, float]:
        """Requests inside, busy and serving replicas: means over the last while."""
        # Means over a while are differences of sums over time.
        ticks = max(1, ceil(look_back_s / TICK_S))
        first, last = self.sums[max(len(self.sums) - 1 - ticks, 0)], self.sums[-1]
        over = max(min(ticks, len(self.sums) - 1), 1) * TICK_S
        inside, busy, ready = ((b - a) / over for a, b in zip(first, last, strict=True))
        return inside, busy, ready

    def latency(self, look_back_s: float) -> float | None:
        """Tail of the latency of what ended in the last while, as a share of the deadline; None where nothing did."""
        ended, deadline = self.clients.ended, self.sim.scenario.demand.deadline_s
        first = bisect_left(ended, self.env.now - look_back_s, key=lambda request: request.ended_s)
        took = sorted(request.took_s for request in ended[first:])
        return took[ceil(TAIL * len(took)) - 1] / deadline if took and deadline else None

    def write(self) -> Process:
        """Metrics of the pool: demand and capacity (requests a second), replicas, latency against the deadline."""
        every, log, name = self.sim.scenario.loops.sample_s, self.sim.log, self.pool.spec.name
        deadline = self.sim.scenario.demand.deadline_s
        asked = tried = 0
        while True:
            yield self.env.timeout(every)
            log.sample(name, "demand", (self.clients.arrived - asked) / every)
            log.sample(name, "attempts", (self.clients.tries - tried) / every)
            log.sample(name, "capacity", self.pool.ready / self.pool.spec.service_s)
            log.sample(name, "replicas", self.pool.wanted)
            late = self.latency(every)
            if late is not None and deadline is not None:
                log.sample(name, "latency_s", late * deadline, deadline)
            asked, tried = self.clients.arrived, self.clients.tries
            self._costs()

    def _costs(self) -> None:
        """What first attempts and retries took since the last time, and what of it would be charged to each."""
        for account in ("first attempts", "retries"):
            for name, sums in (("cost_s", self.pool.cost_s), ("attributed_s", self.pool.attributed_s)):
                before = self.written.get((account, name), 0.0)
                self.written[account, name] = sums[account]
                self.sim.log.sample(account, name, sums[account] - before)

    def plan(self) -> Process:
        """Say what the next window will ask for, from what the last one seemed to; then what it did ask for."""
        p, log, name = self.sim.scenario.plan, self.sim.log, f"{self.pool.spec.name} by window"
        asked = reached = 0
        planned: float | None = None
        while True:
            yield self.env.timeout(p.window_s)
            works, tries = self.clients.arrived, self.clients.tries
            if planned is not None:
                log.sample(name, "planned", planned)
                log.sample(name, "demand", (works - asked) / p.window_s)
            planned = ((tries - reached) if p.counts == "attempts" else (works - asked)) / p.window_s
            asked, reached = works, tries
            if p.utilisation:
                self._buy(planned / p.utilisation)

    def _buy(self, per_s: float) -> None:
        """Make the pool as large as a plan asks for."""
        spec, before = self.pool.spec, self.pool.wanted
        after = self.pool.resize(ceil(per_s * spec.service_s - 1e-9))  # a rounding error is no replica
        if after != before:
            self.pool.log_resize("orchestrator", self.sim.scenario.plan.name, before, after, "plan")
