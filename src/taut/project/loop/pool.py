"""The pool: replicas that serve one request at a time from one queue, and the accelerators they stand on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from math import inf
from typing import Any

from taut.project.loop.world import World


@dataclass(slots=True, eq=False)
class Try:
    """One attempt at a request, as the pool sees it."""

    waits: tuple[Any, ...]
    """The events that its callers wait for, outermost first; one is settled before the end where that caller gave up."""
    stop_s: float = inf
    """From when on nobody wants it, as far as the pool was told: what it expects to end later is not begun."""
    first: bool = True
    """Whether it is the first attempt at its request …"""
    known: bool = True
    """… and whether it says which request it is for: what does not is taken for a first attempt."""


class Pool:
    """Replicas and their queue. A replica that is taken away ends what it serves; a new one starts first."""

    def __init__(self, world: World) -> None:
        spec = world.scenario.pool
        self.world, self.env, self.spec = world, world.env, spec
        self.wanted = self.ready = spec.replicas
        self.busy = 0
        self.stalled = False
        self.waiting: deque[Try] = deque()
        self._starting = 0
        self._service = world.draws("service", spec.spread)
        self._since = 0.0
        self.inside_s = self.busy_s = self.paid_s = self.starting_s = self.ready_s = 0.0
        self.kept_s = self.wasted_s = 0.0
        self.cost_s, self.attributed_s = Counter[str](), Counter[str]()
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

    def submit(self, attempt: Try) -> None:
        """Take an attempt, or refuse it where the queue is full."""
        self.account()
        if self.spec.queue and len(self.waiting) >= self.spec.queue:
            attempt.waits[-1].succeed(False)
            return
        self.waiting.append(attempt)
        self._next()

    def _next(self) -> None:
        while self.busy < self.ready and self.waiting and not self.stalled:
            attempt = self.waiting.popleft()
            if attempt.stop_s < self.env.now + self.spec.service_s:
                continue
            self.busy += 1
            took = self.spec.service_s * next(self._service)
            self.env.timeout(took, (attempt, took)).callbacks.append(self._end)

    def _end(self, event: Any) -> None:
        attempt, took = event.value
        self.account()
        self.busy -= 1
        kept = not any(event.triggered for event in attempt.waits)
        if not attempt.waits[-1].triggered:
            attempt.waits[-1].succeed(True)
        if kept:
            self.kept_s += took
        else:
            self.wasted_s += took
        self.cost_s["first attempts" if attempt.first else "retries"] += took
        self.attributed_s["first attempts" if attempt.first or not attempt.known else "retries"] += took
        self._next()

    def resize(self, replicas: int) -> int:
        """Want so many; what came of it. Those taken away stop serving at once, new ones start first."""
        self.account()
        replicas = max(self.spec.least, min(replicas, self.world.scenario.most))
        more = replicas - self.wanted
        if more > 0:
            more = self.room(more)
            self.wanted += more
            self._starting += more
            if more:
                self.env.process(self._start(more))
        elif more < 0:
            self.wanted += more
            # Those still starting go last: a start under way is not called back, its replica is taken when it is up.
            self.ready = max(min(self.ready, self.wanted), 0)
        return self.wanted

    def _start(self, replicas: int) -> Generator[Any, Any, None]:
        yield self.env.timeout(self.spec.start_s)
        self.account()
        self._starting -= replicas
        self.ready = min(self.ready + replicas, self.wanted)
        self._next()

    def stall(self, at_s: float, for_s: float) -> Generator[Any, Any, None]:
        """Begin nothing for a while."""
        yield self.env.timeout(at_s)
        self.stalled = True
        yield self.env.timeout(for_s)
        self.stalled = False
        self._next()
