"""A bounded ring of events: written by the job, emptied by the sender; when it is full, events are dropped and counted."""

from __future__ import annotations

import struct
from collections import deque
from itertools import starmap
from threading import Lock

from taut.watch.wire import EVENT

Event = tuple[int, int, int, int, int, int, int]
"""What ``wire.EVENT`` packs: kind, flags, place, number, begin, end, bytes."""


class Ring:
    """Events of one rank that were not sent yet.

    Threads of the job write (its own, and that of the backward pass), the sender reads. No lock is taken but to count what is
    dropped: a deque appends and gives in one piece.
    """

    def __init__(self, events: int = 8192) -> None:
        self._size = events
        self._events: deque[Event] = deque()
        self._lock = Lock()
        self.dropped = 0

    def add(self, event: Event) -> None:
        """Keep an event, or count that it was dropped."""
        if len(self._events) < self._size:
            self._events.append(event)
        else:
            self.lose(1)

    def take(self, most: int) -> bytes:
        """The oldest events, at most so many, which are then no longer here; packed here, not in the job's own thread."""
        taken = [self._events.popleft() for _ in range(min(len(self._events), most))]
        try:
            return b"".join(starmap(EVENT.pack, taken))
        except struct.error:
            return b"".join(map(self._packed, taken))

    def _packed(self, event: Event) -> bytes:
        try:
            return EVENT.pack(*event)
        except struct.error:  # a number that no event has
            self.lose(1)
            return b""

    def lose(self, count: int) -> None:
        """Count events for which there was no room, or that were taken and did not arrive."""
        with self._lock:
            self.dropped += count

    def __len__(self) -> int:
        return len(self._events)
