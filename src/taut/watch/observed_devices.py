"""What a rank's device takes for some of its steps, by CUDA events: what its stream did outside of waiting for others.

Hosts run ahead of their devices, so times of hosts do not show a slow device. In sampled steps an event is recorded where the
stream comes to a wait for others (a synchronous call, or the end of a backward pass's own work) and one where it goes on; what
lies between waits is the device's own. Events are asked at later steps whether they are over, never waited for. A step in which
the stream may have waited elsewhere is left out: a call that somebody waits for later, on another stream, or that nobody saw.

A stream that has nothing to do because its host is late looks busy to events. So what of a step passed while the device was not
behind its host is told with it, as a share.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from taut.watch.wire import STAGE

if TYPE_CHECKING:
    from taut.watch.observed import Observer

P = ParamSpec("P")
R = TypeVar("R")
DEVICE = "device"
"""Verb of the stage that holds it: as long as the device worked in a step."""
EVERY, RARELY, SELDOM = 2, 8, 64
"""One step in so many is sampled: the shorter steps are, the fewer; where none can be told, one in SELDOM."""
MOST_EVENTS = 16
"""Of a sampled step: what comes after is left out."""
EVENT_NS, COST_SHARE = 40_000, 2e-4
"""What an event may cost, with all that is done for it, and the part of a step that all may: together they tell how many steps
are sampled."""
ASKED_AFTER, LAG = 2, 8
"""So many steps later a device is first asked whether it is through with a step: before, it seldom is. The time of a step is
told before LAG later ones are over, or not at all."""
MOST_PENDING = 4
CHECKED_EVERY = 16
"""In one sample of so many it is looked whether groups count calls that nobody saw."""
SAME_NS, SAME_SHARE = 50_000, 0.02
"""A stretch that takes a device no longer than its host, by this time and share, may be its host's."""
MOST_SHARE = 255
"""The flags of the stage: the part of it that may be the host's, of so many."""
GIVES_UP = 4
"""So many samples in a row that cannot be told: the next ones come SELDOM."""


class Event(Protocol):
    """An event of a stream."""

    def record(self, stream: object) -> None:
        """Note when a stream comes here."""

    def query(self) -> bool:
        """Whether the stream has come here."""

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from here to another one."""


class Cuda:
    """What is asked of torch; it is never what starts a device."""

    def __init__(self) -> None:
        self._started = False

    def started(self) -> bool:
        """Whether a device is in use."""
        if not self._started:
            import torch

            self._started = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            if self._started:
                # Not functions of torch.cuda: those look first whether to start a device, which takes longer than all the rest.
                self._captures, self._device = torch._C._cuda_isCurrentStreamCapturing, torch._C._cuda_getDevice
                self._stream_of = torch._C._cuda_getCurrentRawStream
        return self._started

    def stream(self) -> tuple[int, int] | None:
        """The current device and stream of this thread; None while a graph is captured. A device must be in use."""
        if self._captures():
            return None
        device = self._device()
        return device, self._stream_of(device)

    def handle(self) -> object:
        """The current stream, to record events on."""
        import torch

        return torch.cuda.current_stream()

    def event(self) -> Event:
        """A new event, made when it is first recorded."""
        import torch

        return cast(Event, torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]

    def counted(self) -> int:
        """Calls that all groups have made; -1 where one of them does not count."""
        import torch.distributed.distributed_c10d as c10d

        counts = [calls_of(group) for group in list(c10d._world.pg_map)]
        return -1 if min(counts, default=-1) < 0 else sum(counts)


class Sample:
    """Stretches of a step: events and times of the host at their ends; whether the device was seen to be behind its host."""

    __slots__ = ("behind", "events", "host_ns", "step")

    def __init__(self, step: int) -> None:
        self.step = step
        self.events, self.host_ns, self.behind = list[Event](), list[int](), list[bool]()

    def took(self) -> tuple[float, int]:
        """(what the device took, ns; which part of it may be its host's, of MOST_SHARE); its events are over."""
        total, hosts = 0.0, 0.0
        for i, behind in enumerate(self.behind):
            device_ns = 1e6 * self.events[2 * i].elapsed_time(self.events[2 * i + 1])
            host_ns = self.host_ns[2 * i + 1] - self.host_ns[2 * i]
            total += device_ns
            if not behind and device_ns - host_ns <= max(SAME_NS, SAME_SHARE * host_ns):
                hosts += device_ns
        return total, round(MOST_SHARE * hosts / max(total, 1.0))


class DeviceTimes:
    """Samples steps of one rank; ``samples`` says whether the present step is one of them, and the rest is called only then."""

    def __init__(self, observer: Observer, cuda: Cuda | None = None) -> None:
        self._observer, self._cuda = observer, cuda or Cuda()
        self.samples, self.wakes, self.late = False, 0, 0
        """``wakes``: at the end of which step there is something to do again; ``late``: samples that were dropped because the
        device was not through with them in time."""
        self._place, self._every, self._turn = -1, EVERY, 0
        self._pool, self._now = list[Event](), Sample(0)
        self._pending: deque[Sample] = deque()
        self._stream: tuple[int, int] | None = None
        self._handle: object = None
        self._depth, self._waited, self._in_pass = 0, False, False
        self._checks, self._counted, self._missed = False, 0, 0

    def turn(self, step: int) -> None:
        """A step is over: end its sample, tell those that are ready, and begin that of the next."""
        try:
            if self.samples:
                self._end()
            if self._pending and step - self._pending[0].step >= ASKED_AFTER:
                self._tell(step)
            every = self._every
            if (step + 1) % every == 0 and len(self._pending) < MOST_PENDING:
                if self._cuda.started():
                    self._begin(step + 1)
                else:
                    every = RARELY
            self.wakes = step + 1 if self.samples else step + every - (step + 1) % every
            if self._pending:
                self.wakes = min(self.wakes, max(self._pending[0].step + ASKED_AFTER, step + 1))
        except Exception:
            self._fail()

    def arrive(self) -> None:
        """The stream waits for others from here on."""
        try:
            self._depth += 1
            if self._depth == 1:
                self._waited = True
                if self._is_elsewhere() or self._has_uncounted():
                    self.lack()
                elif len(self._now.events) % 2:
                    self._mark()
        except Exception:
            self._fail()

    def leave(self) -> None:
        """The stream goes on with its own work."""
        try:
            self._depth -= 1
            if self._depth == 0 and self.samples:
                if self._is_elsewhere():
                    self.lack()
                else:
                    self._go_on()
                    self.recount()
        except Exception:
            self._fail()

    def begin_pass(self) -> None:
        """A backward pass begins: calls that it makes and nobody sees are reductions, whose wait comes at its end."""
        try:
            if self._has_uncounted():
                self.lack()
            self._in_pass = True
        except Exception:
            self._fail()

    def end_pass(self, asked: bool) -> None:
        """It is over; ``asked``: it told when its own work was done, with ``arrive``."""
        self._in_pass = False
        if asked:
            self.leave()
        else:
            self.lack()

    def called(self) -> None:
        """A call was made that something waits for later: where, is not seen, unless it is the end of the present pass."""
        try:
            if not (self._depth or self._in_pass) or self._is_elsewhere():
                self.lack()
        except Exception:
            self._fail()

    def lack(self) -> None:
        """The stream may wait where nobody sees it: leave the step out, and look no further."""
        if self.samples:
            self.samples = False
            self._pool += self._now.events
            self._miss()

    def recount(self) -> None:
        """A call was seen, and where it will be waited for will be."""
        if self._checks:
            self._counted = self._cuda.counted()

    # -- samples --------------------------------------------------------------------------------------------------------

    def _begin(self, step: int) -> None:
        stream = self._cuda.stream()
        if stream is None:
            return
        if stream != self._stream:
            self._stream, self._handle = stream, self._cuda.handle()
        self._now = Sample(step)
        self._depth, self._waited, self._in_pass = 0, False, False
        self._turn += 1
        self._checks = self._turn % CHECKED_EVERY == 1 or self._missed > 0
        self.recount()
        self.samples = True
        self._mark()

    def _end(self) -> None:
        events = self._now.events
        if self._depth != 0 or not self._waited or self._has_uncounted() or self._is_elsewhere():
            self.lack()
            return
        self.samples = False
        if len(events) % 2:
            self._now.behind.append(self._now.behind[-1])
            self._mark()
        self._pending.append(self._now)
        self._missed = 0
        step_ns = self._observer.clock() - self._now.host_ns[0]
        self._every = EVERY
        while self._every < RARELY and len(events) * EVENT_NS > self._every * COST_SHARE * step_ns:
            self._every *= 2  # those of one rank are among those of another, however they differ

    def _tell(self, step: int) -> None:
        """Tell samples whose events are over; drop the one that is not when it is too late for it."""
        while self._pending:
            first = self._pending[0]
            if not first.events[-1].query():
                if step - first.step < LAG - 1:
                    return
                self.late += 1
                self._miss()
            else:
                took_ns, hosts = first.took()
                self._place = self._observer.place(DEVICE) if self._place < 0 else self._place
                now = self._observer.clock()
                self._observer.ring.add((STAGE, hosts, self._place, first.step, now - max(int(took_ns), 0), now, 0))
            self._pending.popleft()
            self._pool += first.events

    def _miss(self) -> None:
        self._missed += 1
        if self._missed >= GIVES_UP:
            self._every = SELDOM

    def _go_on(self) -> None:
        """A stretch of the stream's own work begins, if there may be one more; see how the last one ended."""
        now = self._now
        if len(now.behind) < len(now.events) // 2:
            # A host whose device has not even come to the call did not wait there, and is ahead.
            now.behind.append(not now.events[-1].query())
        if len(now.events) < MOST_EVENTS:
            self._mark()

    def _mark(self) -> None:
        event = self._pool.pop() if self._pool else self._cuda.event()
        self._now.host_ns.append(self._observer.clock())
        event.record(self._handle)
        self._now.events.append(event)

    def _is_elsewhere(self) -> bool:
        return self._cuda.stream() != self._stream

    def _has_uncounted(self) -> bool:
        """Whether groups count calls since the stream went on, in a sample in which that is looked at."""
        if not self._checks or self._in_pass:
            return False
        return self._counted < 0 or self._cuda.counted() != self._counted

    def _fail(self) -> None:
        """Something of ours failed: no device is measured any more, the rest goes on."""
        self.samples, self.wakes = False, sys.maxsize
        self._pending.clear()
        self._observer.fault()


def sampling_arrivals(device: DeviceTimes, call: Callable[P, R]) -> Callable[P, R]:
    """The same function, in which the stream waits for others; compilers get it as it was."""
    import torch

    is_compiling = torch.compiler.is_compiling

    def waits(*args: P.args, **kwargs: P.kwargs) -> R:
        sampled = not is_compiling() and device.samples
        if sampled:
            device.arrive()
        out = call(*args, **kwargs)
        if sampled:
            device.leave()
        return out

    return waits


def calls_of(group: object) -> int:
    """How many calls a group has made, as it counts itself; -1 where its backend does not count."""
    try:
        return int(cast("Callable[[], int]", getattr(group, "_get_sequence_number_for_group"))())  # noqa: B009
    except Exception:
        return -1
