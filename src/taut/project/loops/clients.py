"""Callers that try again: layers of time-outs, retries and back-off, each sensible alone, multiplied together."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from taut.core.tables import NULL
from taut.project.loops.pool import Pool, Try
from taut.project.loops.world import World

SAVED = 10.0
"""Most retries that a budget may have saved up (maxTokens in the example of gRPC's proposal A6)."""


@dataclass(slots=True, eq=False)
class Work:
    """One request of a user, however often it is tried."""

    name: str
    born_s: float
    deadline_s: float | None
    tries: int = 0
    """Attempts that reached the pool."""


@dataclass(slots=True)
class Book:
    """What became of the requests."""

    born_s: list[float] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)
    """Answered, however late."""
    in_time: list[bool] = field(default_factory=list)
    tries: list[int] = field(default_factory=list)
    refused: int = 0
    """Not admitted."""


def settle(event: Any, value: bool) -> None:
    """Answer a caller who still waits."""
    if not event.triggered:
        event.succeed(value)


class Clients:
    """All layers of callers. The innermost asks the pool, each other one the layer below it."""

    def __init__(self, world: World, pool: Pool) -> None:
        self.world, self.env, self.pool = world, world.env, pool
        self.layers = world.scenario.client
        self.saved = [SAVED] * len(self.layers)
        self.book = Book()
        self.patience_s = world.scenario.demand.deadline_s
        self.arrived = self.tries = 0

    def enter(self) -> None:
        """A request arrives."""
        self.arrived += 1
        now = self.env.now
        by = None if self.patience_s is None else now + self.patience_s
        work = Work(f"w{self.arrived}", now, by)
        answer = self.env.event()
        if self.layers:
            stop = by if by is not None and self.layers[0].passes_deadline else inf
            self.env.process(self._call(0, work, stop, (answer,), NULL, True))
            row = NULL
        else:
            row = self._log("caller", self.pool.spec.name, work, 0, NULL)
            self._submit(work, (answer,), inf, True)
        answer.callbacks.append(lambda event: self._done(work, event.value, row))

    def _done(self, work: Work, good: bool, row: int) -> None:
        book, took = self.book, self.env.now - work.born_s
        if row != NULL:
            self.world.log.settle(row, "kept" if good else "failed", took)
        book.born_s.append(work.born_s)
        book.ended_s.append(self.env.now)
        book.took_s.append(took)
        book.good.append(good)
        book.in_time.append(good and (self.patience_s is None or took <= self.patience_s))
        book.tries.append(work.tries)

    def _submit(self, work: Work, waits: tuple[Any, ...], stop_s: float, known: bool) -> None:
        self.tries += 1
        work.tries += 1
        self.pool.submit(Try(waits, stop_s, work.tries == 1, known))

    def _log(self, by: str, target: str, work: Work, number: int, parent: int, why: str = "") -> int:
        """Enter one attempt."""
        return self.world.log.act(
            "retry", by, target, "attempt", number - 1 if number else "", number, 0, why,
            work.name, parent, number, work.deadline_s, "failed", 0.0, self.pool.spec.accelerators,
        )  # fmt: skip

    def _call(
        self, level: int, work: Work, stop_s: float, waits: tuple[Any, ...], parent: int, known: bool
    ) -> Generator[Any, Any, None]:
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
            row = parent = self._log(layer.name, target, work, n, parent, why)
            got = env.event()
            told = min(stop_s, env.now + layer.timeout_s) if layer.passes_deadline else inf
            if last:
                self._submit(work, (*waits, got), told, known)
            else:
                env.process(self._call(level + 1, work, told, (*waits, got), row, known))
            env.timeout(layer.timeout_s, got).callbacks.append(lambda event: settle(event.value, False))
            began, good = env.now, (yield got)
            outcome = "failed" if not good else "lost" if any(event.triggered for event in waits) else "kept"
            # What a call takes is told where it is made to the pool; around it, it would count twice.
            self.world.log.settle(row, outcome, env.now - began if last else 0.0)
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
