"""A bounded ring of events: written by the job, emptied by the sender; when it is full, events are dropped and counted."""

from __future__ import annotations

from threading import Lock

from taut.watch.wire import EVENT


class Ring:
    """Events of one rank that were not sent yet.

    Threads of the job write (its own, and that of the backward pass), the sender reads: a lock is held for a microsecond.
    """

    def __init__(self, events: int = 8192) -> None:
        self._size = events
        self._data = bytearray(events * EVENT.size)
        self._wrote, self._read = 0, 0
        self._lock = Lock()
        self.dropped = 0

    def add(self, kind: int, flags: int, place: int, number: int, begin_ns: int, end_ns: int, size: int) -> None:
        """Keep an event, or count that it was dropped."""
        with self._lock:
            at = self._wrote
            if at - self._read >= self._size:
                self.dropped += 1
                return
            EVENT.pack_into(self._data, at % self._size * EVENT.size, kind, flags, place, number, begin_ns, end_ns, size)
            self._wrote = at + 1

    def take(self, most: int) -> bytes:
        """The oldest events, at most so many, which are then no longer here."""
        with self._lock:
            count = min(self._wrote - self._read, most)
            first = self._read % self._size
            until = min(first + count, self._size)
            data = self._data[first * EVENT.size : until * EVENT.size]
            data += self._data[: (count - (until - first)) * EVENT.size]
            self._read += count
        return bytes(data)

    def lose(self, count: int) -> None:
        """Count events that were taken and did not arrive."""
        with self._lock:
            self.dropped += count

    def __len__(self) -> int:
        return self._wrote - self._read
