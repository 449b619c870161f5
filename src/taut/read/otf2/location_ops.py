"""Enter, leave and message records of one location → ops that follow one another.

Regions nest, ops do not: an op is the time in which one region is the innermost. Messages belong to the MPI call around
them; a call that sends and receives, or completes several requests, becomes one op for each, over the same time. A receive
posted early is where its completion is: there its consumer stalls. A nonblocking collective has no such place, because
others arrive where they call it and not where they wait for it: its wait is kept, but meets nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, field

from taut.core.tables import NULL, Verb
from taut.read.otf2.bindings import BEGIN, COLLECTIVE, DEFERRED, ENTER, LEAVE, RECV, SEND

DEPTH = 100_000
# OTF2's numbers of collectives; scans depend on lower ranks only, the others make or free handles.
VERBS = dict(
    enumerate(
        [Verb.BARRIER, Verb.BROADCAST, Verb.GATHER, Verb.GATHER, Verb.SCATTER, Verb.SCATTER, Verb.ALL_GATHER, Verb.ALL_GATHER]
        + [Verb.ALL_TO_ALL] * 3
        + [Verb.ALL_REDUCE, Verb.REDUCE, Verb.REDUCE_SCATTER, Verb.NONE, Verb.NONE, Verb.REDUCE_SCATTER]
    )
)


class Message(NamedTuple):
    """One send, receive or collective: peer and root are ranks of the communicator."""

    verb: Verb
    comm: int
    peer: int
    tag: int
    size: int


class Segment(NamedTuple):
    """Time in which a region (-1: none) was the innermost, and what was exchanged in it."""

    region: int
    start: int
    end: int
    messages: tuple[Message, ...]


class _Frame(Struct):
    region: int
    start: int
    messages: list[Message] = field(default_factory=list)


class Location:
    """The open regions of one location."""

    def __init__(self, talks: frozenset[int], counts: Counter[str]) -> None:
        self._talks, self._counts = talks, counts
        self._stack: list[_Frame] = []
        self._open: Counter[int] = Counter()
        self._last = self._begin = 0
        self.segments: list[Segment] = []
        self.whole: list[tuple[int, int, int]] = []
        """(region, enter, leave) of every region that was left."""

    def read(self, events: Iterable[tuple[int, int, int, int, int, int]]) -> None:
        """(kind, time, what, comm, peer, size) in order."""
        for kind, time, what, comm, peer, size in events:
            time = max(time, self._last)
            if kind == ENTER:
                self._enter(what, time)
            elif kind == LEAVE:
                self._leave(what, time)
            elif kind == BEGIN:
                self._begin = time
            else:
                self._message(kind, time, what, comm, peer, size)
        self._counts["regions left open"] += len(self._stack)
        while self._stack:
            self._close(self._last)

    def _enter(self, region: int, time: int) -> None:
        if len(self._stack) >= DEPTH:
            self._counts["dropped: nested too deeply"] += 1
            return
        self._cut(time)
        self._stack.append(_Frame(region, time))
        self._open[region] += 1

    def _leave(self, region: int, time: int) -> None:
        if not self._open[region]:
            self._counts["dropped: left a region that was not entered"] += 1
            return
        # Regions that were not left before the one around them are closed with it.
        while self._stack[-1].region != region:
            self._counts["regions left open"] += 1
            self._close(time)
        self._close(time)

    def _close(self, time: int) -> None:
        frame = self._stack[-1]
        self._cut(time, tuple(frame.messages))
        self._stack.pop()
        self._open[frame.region] -= 1
        self.whole.append((frame.region, frame.start, time))

    def _cut(self, time: int, messages: tuple[Message, ...] = ()) -> None:
        """End the time of the innermost region here."""
        if self._stack and (time > self._last or messages):
            self.segments.append(Segment(self._stack[-1].region, self._last, time, messages))
        self._last = time

    def _message(self, kind: int, time: int, what: int, comm: int, peer: int, size: int) -> None:
        if kind == DEFERRED:
            self._counts["nonblocking collectives that meet nobody"] += 1
            return
        verb = {SEND: Verb.SEND, RECV: Verb.RECV}.get(kind) or VERBS.get(what, Verb.NONE)
        message = Message(verb, comm, peer, what if kind != COLLECTIVE else NULL, size)
        if self._stack and self._stack[-1].region in self._talks:
            self._stack[-1].messages.append(message)
            return
        # No call around it was recorded: it stands for itself.
        start = max(min(self._begin, time), self._last) if kind == COLLECTIVE else time
        self._cut(start)
        self.segments.append(Segment(NULL, start, time, (message,)))
        self._last = time
