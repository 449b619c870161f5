"""A bounded ring of events: written by the job, emptied by the sender; when it is full, events are dropped and counted."""

from __future__ import annotations

import struct
from collections import deque
from threading import Lock

from taut.watch.wire import EVENT


class Ring:
    """Events of one rank that were not sent yet.

    Threads of the job write (its own, and that of the backward pass), the sender reads. No lock is taken but to count what is
    dropped: a deque appends and gives in one piece.
    """

    def __init__(self, events: int = 8192) -> None:
        self._size = events
        self._events: deque[tuple[int, int, int, int, int, int, int]] = deque()
        self._lock = Lock()
        self.dropped = 0

    def add(self, kind: int, flags: int, place: int, number: int, begin_ns: int, end_ns: int, size: int) -> None:
        """Keep an event, or count that it was dropped."""
        if len(self._events) < self._size:
            self._events.append((kind, flags, place, number, begin_ns, end_ns, size))
        else:
            self.lose(1)

    def take(self, most: int) -> bytes:
        """The oldest events, at most so many, which are then no longer here; packed here, not in the job's own thread."""
        events, packed = self._events, list[bytes]()
        for _ in range(min(len(events), most)):
            try:
                packed.append(EVENT.pack(*events.popleft()))
            except struct.error:  # a number that no event has
                self.lose(1)
        return b"".join(packed)

    def lose(self, count: int) -> None:
        """Count events for which there was no room, or that were taken and did not arrive."""
        with self._lock:
            self.dropped += count

    def __len__(self) -> int:
        return len(self._events)
