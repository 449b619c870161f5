"""The pool: replicas that serve one request at a time from one queue, and the accelerators they stand on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from taut.project.loops.simulation import Decision, Simulation

if TYPE_CHECKING:
    import simpy

    from taut.project.loops.simulation import Process


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a request, as the pool sees it."""

    waits: tuple[simpy.Event, ...]
    """The events that its callers wait for, outermost first; one is settled before the end where that caller gave up."""
    stop_s: float = inf
    """From when on nobody wants it, as far as the pool was told: what it expects to end later is not begun."""
    first: bool = True
    """Whether it is the first attempt at its request …"""
    known: bool = True
    """… and whether it says which request it is for: what does not is taken for a first attempt."""
    began_s: float = -1.0
    """Since when it is served; negative before and after."""

    @property
    def over(self) -> bool:
        """Whether one of its callers waits no more."""
        return any(event.triggered for event in self.waits)


class Pool:
    """Replicas and their queue. A replica that is taken away ends what it serves; a new one starts first."""

    def __init__(self, sim: Simulation) -> None:
        spec = sim.scenario.pool
        self.sim, self.env, self.spec = sim, sim.env, spec
        self.wanted = self.ready = spec.replicas
        self.busy = 0
        self.stalled = False
        self.waiting: deque[Attempt] = deque()
        self._starting = 0
        self._batches: list[list[int]] = []
        """Replicas that start together; fewer where some are called back."""
        self._service = sim.draws("service", spec.spread)
        self._luck = sim.random("errors")
        self._since = 0.0
        self.inside_s = self.busy_s = self.paid_s = self.starting_s = self.ready_s = 0.0
        self.kept_s = self.wasted_s = 0.0
        self.cost_s: dict[str, float] = {"first attempts": 0.0, "retries": 0.0}
        self.attributed_s = dict(self.cost_s)
        """Time served for first attempts and for retries: as it was, and as the identities on them tell."""
        self.room: Callable[[int], int] = lambda replicas: replicas
        """How many replicas more the accelerators allow, of so many."""

    @property
    def paid(self) -> int:
        """Replicas that hold accelerators."""
        return max(self.ready, self.busy) + self._starting

    def account(self) -> None:
        """Bring the sums over time up to now."""
        took = self.env.now - self._since
        self._since = self.env.now
        self.inside_s += took * (self.busy + len(self.waiting))
        self.busy_s += took * self.busy
        self.paid_s += took * self.paid
        self.ready_s += took * self.ready
        self.starting_s += took * self._starting

    def submit(self, attempt: Attempt) -> None:
        """Take an attempt, or refuse it where the queue is full; what nobody waits for is left to its time-out."""
        self.account()
        if self.spec.cancels and attempt.over:
            return
        if self.spec.queue and len(self.waiting) >= self.spec.queue:
            attempt.waits[-1].succeed(False)
            return
        self.waiting.append(attempt)
        if self.spec.cancels:
            for event in attempt.waits:
                event.callbacks.append(lambda _: self._hung_up(attempt))
        self._next()

    def _next(self) -> None:
        while self.busy < self.ready and self.waiting and not self.stalled:
            attempt = self.waiting.popleft()
            gone = self.spec.cancels and attempt.over
            # The pool expects a mean service time: what would end after its deadline is dropped.
            if gone or attempt.stop_s < self.env.now + self.spec.service_s:
                continue
            self.busy += 1
            attempt.began_s = self.env.now
            self.env.timeout(self.spec.service_s * next(self._service), attempt).callbacks.append(self._end_attempt)

    def _end_attempt(self, event: simpy.Event) -> None:
        attempt = event.value
        if attempt is None or attempt.began_s < 0:  # its caller hung up
            return
        well = not self.spec.error_share or self._luck.random() >= self.spec.error_share
        self._end(attempt, well and not attempt.over)
        if not attempt.waits[-1].triggered:
            attempt.waits[-1].succeed(well)
        self._next()

    def _hung_up(self, attempt: Attempt) -> None:
        """Stop serving what nobody waits for any more."""
        if attempt.began_s >= 0:
            self._end(attempt, False)
            self._next()

    def _end(self, attempt: Attempt, kept: bool) -> None:
        self.account()
        took = self.env.now - attempt.began_s
        attempt.began_s = -1.0
        self.busy -= 1
        self.kept_s += took * kept
        self.wasted_s += took * (not kept)
        self.cost_s["first attempts" if attempt.first else "retries"] += took
        self.attributed_s["first attempts" if attempt.first or not attempt.known else "retries"] += took

    def resize(self, replicas: int) -> int:
        """Want so many; what came of it. Those taken away stop serving at once, new ones start first."""
        self.account()
        replicas = max(self.spec.least, min(replicas, self.sim.scenario.most))
        more = replicas - self.wanted
        if more > 0:
            more = self.room(more)
            self.wanted += more
            self._starting += more
            if more:
                self.env.process(self._start([more]))
        elif more < 0:  # nothing served is broken off: ``busy`` may stay above ``ready`` until it ends
            self.wanted += more
            for batch in reversed(self._batches):  # the latest starts are called back first
                back = min(batch[0], -more)
                batch[0] -= back
                more += back
                self._starting -= back
            self.ready += more
        return self.wanted

    def _start(self, batch: list[int]) -> Process:
        self._batches.append(batch)
        yield self.env.timeout(self.spec.start_s)
        self.account()
        self._batches.remove(batch)
        self._starting -= batch[0]
        self.ready += batch[0]  # fewer than were started, where some were called back meanwhile
        self._next()

    def log_resize(self, layer: str, who: str, before: int, after: int, why: str) -> None:
        """Log who made the pool larger or smaller: new replicas are busy with starting."""
        more = max(after - before, 0)
        decision = Decision(layer, who, self.spec.name, "replicas", before, after, 1 if more else -1, why)
        decision.busy_s, decision.accelerators = self.spec.start_s if more else 0.0, more * self.spec.accelerators
        self.sim.log.act(decision)

    def stall(self, at_s: float, for_s: float) -> Process:
        """Begin nothing for a while."""
        yield self.env.timeout(at_s)
        self.stalled = True
        yield self.env.timeout(for_s)
        self.stalled = False
        self._next()
