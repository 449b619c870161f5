"""Loops that set the size of the pool, or close its door: each reads a signal, late, and acts on it, later."""

from __future__ import annotations

from collections.abc import Generator
from math import ceil
from typing import Any

from taut.project.loops.clients import Clients
from taut.project.loops.observed import Seen
from taut.project.loops.pool import Pool
from taut.project.loops.scenario import Autoscaler
from taut.project.loops.world import World


def scale(world: World, a: Autoscaler, pool: Pool, seen: Seen) -> Generator[Any, Any, None]:
    """Every period: replicas × signal ÷ target, as the common horizontal autoscalers compute it."""
    changed = -1e18
    yield world.env.timeout(a.phase_s)
    while True:
        yield world.env.timeout(a.period_s)
        signal = _signal(a, pool, seen)
        if signal is None or abs(signal / a.target - 1) <= a.hysteresis:
            continue
        before = pool.wanted
        want = ceil(before * signal / a.target - 1e-9)
        if a.step:
            want = max(before - a.step, min(want, before + a.step))
        want = max(pool.spec.least, min(want, world.scenario.most))
        up = want > before
        since = world.env.now - changed
        if want == before or a.only == ("down" if up else "up") or since < (a.up_cooldown_s if up else a.down_cooldown_s):
            continue
        after = pool.resize(want)
        if after != before:
            changed = world.env.now
            said = f"{a.signal} {signal:.2f} for {a.target:g}"
            pool.tell("autoscaler", a.name, before, after, said)


def _signal(a: Autoscaler, pool: Pool, seen: Seen) -> float | None:
    """What the autoscaler holds against its target; None where there is nothing to see."""
    if a.signal == "latency":
        return seen.latency(a.look_back_s)
    inside, busy, _ = seen.mean(a.look_back_s)
    return (inside if a.signal == "concurrency" else busy) / max(pool.wanted, 1)


class Door:
    """Admission: a share of the requests is refused while latency is too near the deadline."""

    def __init__(self, world: World, clients: Clients) -> None:
        self.world, self.clients = world, clients
        self.closed = False
        self._random = world.random("admission")

    def enter(self) -> None:
        """Let a request in, or not."""
        gate = self.world.scenario.gate
        if self.closed and gate is not None and self._random.random() < gate.refuses:
            self.clients.arrived += 1
            self.clients.book.refused += 1
            return
        self.clients.enter()

    def watch(self, seen: Seen) -> Generator[Any, Any, None]:
        """Close and open."""
        gate = self.world.scenario.gate
        assert gate is not None
        while True:
            yield self.world.env.timeout(gate.period_s)
            late = seen.latency(gate.look_back_s)
            if late is None or (late < gate.open_at if self.closed else late > gate.close_at) is False:
                continue
            self.closed = not self.closed
            before, after = (0.0, gate.refuses) if self.closed else (gate.refuses, 0.0)
            said, way = f"latency {late:.2f} of the deadline", 1 if self.closed else -1
            self.world.log.act("policy", gate.name, self.world.scenario.pool.name, "refused share", before, after, way, said)
