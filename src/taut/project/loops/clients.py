"""Callers that try again: layers of time-outs, retries and back-off, each sensible alone, multiplied together."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from taut.core.tables import NULL
from taut.project.loops.pool import Attempt, Pool
from taut.project.loops.simulation import Decision, Simulation

if TYPE_CHECKING:
    import simpy

    from taut.project.loops.simulation import Process

SAVED = 10.0
"""Most retries that a budget may have saved up (maxTokens in the example of gRPC's proposal A6)."""


@dataclass(slots=True, eq=False)
class Request:
    """One request of a user, however often it is tried."""

    name: str
    born_s: float
    deadline_s: float | None
    tries: int = 0
    """Attempts that reached the pool."""
    ended_s: float = inf
    took_s: float = inf
    """Time from its arrival to its answer, or until it was given up."""
    good: bool = False
    """Answered, however late."""


def settle(event: simpy.Event, value: bool) -> None:
    """Answer a caller who still waits."""
    if not event.triggered:
        event.succeed(value)


class Clients:
    """All layers of callers. The innermost asks the pool, each other one the layer below it."""

    def __init__(self, sim: Simulation, pool: Pool) -> None:
        self.sim, self.env, self.pool = sim, sim.env, pool
        self.layers = sim.scenario.client
        self.saved = [SAVED] * len(self.layers)
        self.ended: list[Request] = []
        self.patience_s = sim.scenario.demand.deadline_s
        self.arrived = self.tries = self.refused = 0

    def enter(self) -> None:
        """A request arrives."""
        self.arrived += 1
        by = None if self.patience_s is None else self.env.now + self.patience_s
        request, answer, row = Request(f"w{self.arrived}", self.env.now, by), self.env.event(), NULL
        if self.layers:
            stop = by if by is not None and self.layers[0].passes_deadline else inf
            self.env.process(self._call(0, request, stop, (answer,), NULL, True))
        else:
            row = self._log("caller", self.pool.spec.name, request, 0, NULL)
            self._submit(request, (answer,), inf, True)
        answer.callbacks.append(lambda event: self._end(request, event.value, row))

    def _end(self, request: Request, good: bool, row: int) -> None:
        now = self.env.now
        request.ended_s, request.took_s, request.good = now, now - request.born_s, good
        if row != NULL:
            self.sim.log.settle(row, "kept" if good else "failed", request.took_s)
        self.ended.append(request)

    def in_time(self, request: Request) -> bool:
        """Whether a request was answered by its deadline."""
        return request.good and (self.patience_s is None or request.took_s <= self.patience_s)

    def _submit(self, request: Request, waits: tuple[simpy.Event, ...], stop_s: float, known: bool) -> None:
        self.tries += 1
        request.tries += 1
        self.pool.submit(Attempt(waits, stop_s, request.tries == 1, known))

    def _log(self, by: str, target: str, request: Request, number: int, parent: int, why: str = "") -> int:
        """Enter one attempt."""
        decision = Decision("retry", by, target, "attempt", number - 1 if number else "", number, 0, why, request.name)
        decision.parent, decision.attempt, decision.deadline_s = parent, number, request.deadline_s
        decision.outcome, decision.accelerators = "failed", self.pool.spec.accelerators
        return self.sim.log.act(decision)

    def _call(
        self, level: int, request: Request, stop_s: float, waits: tuple[simpy.Event, ...], parent: int, known: bool
    ) -> Process:
        """One layer's call: attempts, one after the other, until one is answered in time."""
        env, layer, last = self.env, self.layers[level], level + 1 == len(self.layers)
        target = self.pool.spec.name if last else self.layers[level + 1].name
        wait, why = layer.back_off_s, ""
        for n in range(layer.retries + 1):
            if not self._may(level, n):
                break
            if n and wait:
                yield env.timeout(wait)
                wait *= layer.back_off_times
            if env.now >= stop_s:
                break
            known = known and (n == 0 or layer.tags)
            row = parent = self._log(layer.name, target, request, n, parent, why)
            got = env.event()
            stop = min(stop_s, env.now + layer.timeout_s) if layer.passes_deadline else inf
            if last:
                self._submit(request, (*waits, got), stop, known)
            else:
                env.process(self._call(level + 1, request, stop, (*waits, got), row, known))
            # Whichever comes first settles the call: the answer, or the timeout.
            env.timeout(layer.timeout_s, got).callbacks.append(lambda event: settle(event.value, False))
            began, good = env.now, (yield got)
            outcome = "failed" if not good else "lost" if any(event.triggered for event in waits) else "kept"
            # What a call takes is recorded where it is made to the pool; around it, it would count twice.
            self.sim.log.settle(row, outcome, env.now - began if last else 0.0)
            if good:
                settle(waits[-1], True)
                return
            why = "timeout" if env.now - began >= layer.timeout_s else "error"
        settle(waits[-1], False)

    def _may(self, level: int, number: int) -> bool:
        """Whether the budget allows this attempt: a first one saves a part of a retry, a retry spends one."""
        share = self.layers[level].budget_share
        if share is None:
            return True
        if number == 0:
            self.saved[level] = min(self.saved[level] + share, SAVED)
            return True
        if self.saved[level] < 1:
            return False
        self.saved[level] -= 1
        return True
