"""What a rank notices of itself: calls to its gates, and the stages of its steps; nothing of it may disturb the job.

Every place at which the job is watched is a function of torch that is called anyway (``observed_steps``, ``observed_calls``,
``observed_groups``). A fault of ours is counted, and ends the watching, never the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taut.watch.core_waits import QUEUED, CoreWaits
from taut.watch.event_ring import Ring
from taut.watch.observed_devices import DeviceTimes
from taut.watch.wire import GATE, STAGE, STEP, WAIT

FAULTS = 8
"""So many faults of ours end the watching."""
SEND, RECEIVE, ROOTED = 1, 2, 4
"""Flags of a gate: a hop that sends, or receives; a collective with a root."""
LASTING_NS = 2_000_000_000
"""A call that lasts so long is told before it ends: others may be missing there."""


class Spot:
    """A place, and the calls there."""

    __slots__ = ("code", "count", "number", "since_ns")

    def __init__(self, code: int) -> None:
        self.code, self.count = code, 0
        """How many calls were counted."""
        self.number, self.since_ns = 0, 0
        """The call that has not ended, and since when; 0: there is none."""


class Observer:
    """Watches one rank and puts what it sees into a ring."""

    def __init__(self, ring: Ring, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.ring, self.clock = ring, clock
        self.places: list[dict[str, str | int | list[int]]] = []
        """What the codes of places stand for: verb, group, its ranks, peer."""
        self.faults, self.step, self.on = 0, 0, True
        self.after_step: Callable[[int], None] | None = None
        """Called with the number of the step that begins: a profile that was asked for."""
        self.by_hand = False
        """Whether the job says itself when a step ends."""
        self.worked_ns = 0
        """When the last backward pass was over."""
        self.spots: list[Spot] = []
        self.hopped: set[str] = set()
        """Groups in which ranks send to each other."""
        self.tell_counts: Callable[[int], None] | None = None
        """Tells, once a rank stands still, how many calls its groups have made; where no hook tells of calls."""
        self._told: set[tuple[int, int]] = set()
        self._spot: dict[tuple[str, str, int], Spot] = {}
        self._undo: list[Callable[[], None]] = []
        self._step_began_ns = clock()
        self._core, self._queued = CoreWaits(), -1
        self.device = DeviceTimes(self)

    # -- places and events ----------------------------------------------------------------------------------------------

    def spot(self, verb: str, group: str = "", peer: int = -1, ranks: list[int] | None = None) -> Spot:
        """A place, made when it is first seen."""
        key = verb, group, peer
        spot = self._spot.get(key)
        if spot is None:
            spot = self._spot[key] = Spot(len(self.places))
            self.places.append({"verb": verb, "group": group, "peer": peer, "ranks": ranks or []})
            self.spots.append(spot)
            if peer >= 0:
                self.hopped.add(group)
        return spot

    def place(self, verb: str, group: str = "", peer: int = -1, ranks: list[int] | None = None) -> int:
        """The code of a place."""
        return self.spot(verb, group, peer, ranks).code

    def came(self, spot: Spot, flags: int, begin_ns: int, end_ns: int) -> None:
        """A call at a place; calls are counted in the order in which they are told."""
        number = spot.count
        spot.count = number + 1
        self.ring.add((GATE, flags, spot.code, number, begin_ns, end_ns, 0))

    def stage(self, place: int, begin_ns: int, end_ns: int) -> None:
        """A stage of the present step is over."""
        self.ring.add((STAGE, 0, place, self.step, begin_ns, end_ns, 0))

    def end_step(self) -> None:
        """A step is over."""
        now = self.clock()
        waited = self._core.since_last(now)
        if waited:
            self._queued = self.place(QUEUED) if self._queued < 0 else self._queued
            self.stage(self._queued, now - waited, now)
        if self.step >= self.device.wakes:
            self.device.turn(self.step)
        self.ring.add((STEP, 0, 0, self.step, self._step_began_ns, now, 0))
        self.step, self._step_began_ns = self.step + 1, now
        if self.after_step is not None:
            self.after_step(self.step)

    def beat(self) -> None:
        """Once a second, by the sender: tell what lasts, as nothing else is told of a rank that waits."""
        now, lasting = self.clock(), set[tuple[int, int]]()
        for spot in self.spots[:]:
            call, since = (spot.code, spot.number), spot.since_ns
            if since and now - since > LASTING_NS:
                lasting.add(call)
                if call not in self._told:
                    self.ring.add((WAIT, 0, *call, since, 0, 0))
        self._told = lasting
        if self.tell_counts is not None:
            self.tell_counts(now)

    def fault(self) -> None:
        """Something of ours failed; after too many times nothing is watched any more."""
        self.faults += 1
        if self.faults >= FAULTS:
            self.on = False

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """A block whose faults are ours, not the job's; where time counts, ``fault`` is called instead."""
        try:
            yield
        except Exception:
            self.fault()

    # -- torch --------------------------------------------------------------------------------------------------------

    def attach(self) -> str:
        """Watch the process from now on; returns what can be seen: ``hooks`` or ``calls``."""
        import torch.distributed as dist

        from taut.watch.observed_calls import watch_calls
        from taut.watch.observed_groups import watch_groups
        from taut.watch.observed_steps import watch_steps

        watch_steps(self)
        if hasattr(dist.ProcessGroup, "register_pre_hook"):
            watch_groups(self)
            return "hooks"
        watch_calls(self)
        return "calls"

    def detach(self) -> None:
        """Leave everything as it was."""
        self.on = False
        self._core.close()
        while self._undo:
            with self.quietly():
                self._undo.pop()()

    def at_detach(self, undo: Callable[[], None]) -> None:
        """Have something undone then; what was done last goes first."""
        self._undo.append(undo)

    def replace(self, owner: object, name: str, by: Callable[..., object]) -> None:
        """Put a function of ours in the place of another one."""
        old = getattr(owner, name)
        setattr(owner, name, by)
        self._undo.append(lambda: setattr(owner, name, old))
