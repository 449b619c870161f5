"""Loops that set the size of the pool, or close admission: each reads a signal, late, and acts on it, later."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from taut.project.loops.clients import Clients
from taut.project.loops.monitor import Monitor
from taut.project.loops.pool import Pool
from taut.project.loops.scenario import Autoscaler
from taut.project.loops.simulation import Decision, Simulation

if TYPE_CHECKING:
    from taut.project.loops.simulation import Process


def scale(sim: Simulation, a: Autoscaler, pool: Pool, monitor: Monitor) -> Process:
    """Every period: replicas × signal ÷ target, as the common horizontal autoscalers compute it."""
    changed = -1e18
    yield sim.env.timeout(a.phase_s)
    while True:
        yield sim.env.timeout(a.period_s)
        signal = _signal(a, pool, monitor)
        if signal is None or abs(signal / a.target - 1) <= a.hysteresis:
            continue
        before = pool.wanted
        want = ceil(before * signal / a.target - 1e-9)  # the formula of Kubernetes' horizontal pod autoscaler
        if a.step:
            want = max(before - a.step, min(want, before + a.step))
        want = max(pool.spec.least, min(want, sim.scenario.most))
        up = want > before
        since = sim.env.now - changed
        if want == before or a.only == ("down" if up else "up") or since < (a.up_cooldown_s if up else a.down_cooldown_s):
            continue
        after = pool.resize(want)
        if after != before:
            changed = sim.env.now
            pool.log_resize("autoscaler", a.name, before, after, f"{a.signal} {signal:.2f} for {a.target:g}")


def _signal(a: Autoscaler, pool: Pool, monitor: Monitor) -> float | None:
    """What the autoscaler holds against its target; None where there is nothing to see."""
    if a.signal == "latency":
        return monitor.latency(a.look_back_s)
    inside, busy, _ = monitor.mean(a.look_back_s)
    return (inside if a.signal == "concurrency" else busy) / max(pool.wanted, 1)


class Admission:
    """Admission: a share of the requests is refused while latency is too near the deadline."""

    def __init__(self, sim: Simulation, clients: Clients) -> None:
        self.sim, self.clients = sim, clients
        self.closed = False
        self._random = sim.random("admission")

    def enter(self) -> None:
        """Let a request in, or not."""
        gate = self.sim.scenario.gate
        if self.closed and gate is not None and self._random.random() < gate.refuses:
            self.clients.arrived += 1
            self.clients.refused += 1
            return
        self.clients.enter()

    def watch(self, monitor: Monitor) -> Process:
        """Close and open."""
        gate = self.sim.scenario.gate
        assert gate is not None
        while True:
            yield self.sim.env.timeout(gate.period_s)
            late = monitor.latency(gate.look_back_s)
            if late is None or (late < gate.open_at if self.closed else late > gate.close_at) is False:
                continue
            self.closed = not self.closed
            before, after = (0.0, gate.refuses) if self.closed else (gate.refuses, 0.0)
            why, way = f"latency {late:.2f} of the deadline", 1 if self.closed else -1
            target = self.sim.scenario.pool.name
            self.sim.log.act(Decision("policy", gate.name, target, "refused share", before, after, way, why))
