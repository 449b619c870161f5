"""Events of a job as rows in bounded memory: the newest are kept, all jobs share one room."""

from __future__ import annotations

from collections import deque
from threading import RLock
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Mask

ROW = np.dtype(
    [
        ("rank", "<i4"),
        ("klass", "<i4"),
        ("number", "<u4"),
        ("clock", "<u2"),
        ("flags", "u1"),
        ("attempt", "u1"),
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
    ]
)
"""Whose event; the class of its place (-1: a step); number of the call, or of the step; by which clock its times are; flags of
a gate (``observed.SEND`` …); how often the rank had been started anew; arrival or begin, and end (0: not recorded), ns."""
RECEIVED = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("place", "<u2"),
        ("number", "<u4"),
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes", "<u4"),
    ]
)
"""An event as it is sent: ``wire.EVENT``."""
CHUNK = 8192
CHUNK_BYTES = CHUNK * ROW.itemsize
EventRows: TypeAlias = NDArray[np.void]


class Room:
    """Memory for the rows of all jobs: where it is full, the fullest table gives its oldest rows."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = max(most_bytes, CHUNK_BYTES)
        self.used_bytes, self.held_bytes = 0, 0
        """All that is used; and what of it is not rows."""
        self.tables: list[Rows] = []
        self.lock = RLock()
        """Held while rows are added or copied: who looks at them may be another thread."""

    def chunk(self) -> EventRows:
        """An empty chunk."""
        if self.used_bytes + CHUNK_BYTES <= self.most_bytes or not any(one.chunks for one in self.tables):
            self.used_bytes += CHUNK_BYTES
            return np.empty(CHUNK, ROW)
        return max(self.tables, key=lambda one: len(one.chunks)).oldest()

    def hold(self, count: int) -> bool:
        """Use bytes for something else than rows, up to a quarter of all: whether there were any. Fewer than 0 are returned."""
        with self.lock:
            if self.held_bytes + count > self.most_bytes // 4:
                return False
            self.held_bytes += count
            self.used_bytes += count
            while self.used_bytes > self.most_bytes and any(one.chunks for one in self.tables):
                max(self.tables, key=lambda one: len(one.chunks)).oldest()
                self.used_bytes -= CHUNK_BYTES
            return True

    def free(self, table: Rows) -> None:
        """Forget a table."""
        with self.lock:
            self.used_bytes -= len(table.chunks) * CHUNK_BYTES
            table.chunks.clear()
            self.tables.remove(table)


class Rows:
    """A table that grows at its end and forgets at its beginning; rows are numbered from the first that ever was."""

    def __init__(self, room: Room) -> None:
        self.room, self.first, self.end = room, 0, 0
        """``first`` is the number of the oldest row that is left, ``end`` that of the next one to come."""
        self.chunks: deque[EventRows] = deque()
        self._begins, self._last_ns = deque[int](), deque[int]()
        room.tables.append(self)

    def append(self, rows: EventRows, now_ns: int) -> None:
        """Add rows."""
        with self.room.lock:
            done = 0
            while done < len(rows):
                filled = self.end - self._begins[-1] if self.chunks else CHUNK
                if filled == CHUNK:
                    self._begin_chunk(now_ns)
                    filled = 0
                count = min(CHUNK - filled, len(rows) - done)
                self.chunks[-1][filled : filled + count] = rows[done : done + count]
                self._last_ns[-1] = now_ns
                self.end += count
                done += count

    def _begin_chunk(self, now_ns: int) -> None:
        chunk = self.room.chunk()  # perhaps the oldest of these
        self.chunks.append(chunk)
        self._begins.append(self.end)
        self._last_ns.append(now_ns)
        self.first = self._begins[0]

    def oldest(self) -> EventRows:
        """Forget the oldest chunk, and return it to be used again."""
        chunk = self.chunks.popleft()
        self._begins.popleft()
        self._last_ns.popleft()
        self.first = self._begins[0] if self._begins else self.end
        return chunk

    def forget(self, before_ns: int) -> None:
        """Give back chunks to which nothing was added since."""
        with self.room.lock:
            while self.chunks and self._last_ns[0] < before_ns:
                self.oldest()
                self.room.used_bytes -= CHUNK_BYTES

    def since(self, number: int, most: int | None = None) -> EventRows:
        """A copy of the rows from a number on, as far as they are left, of as many as ``most`` says.

        ``first`` says whether some are missing.
        """
        with self.room.lock:
            end = self.end if most is None else min(max(number, self.first) + most, self.end)
            parts = [
                chunk[max(number - begin, 0) : end - begin]
                for chunk, begin in zip(self.chunks, self._begins, strict=True)
                if begin + CHUNK > number and begin < end
            ]
            return np.concatenate(parts) if parts else np.empty(0, ROW)

    def last(self, count: int) -> EventRows:
        """A copy of the newest rows."""
        return self.since(max(self.end - count, self.first))

    def __len__(self) -> int:
        return self.end - self.first


def of_present(rows: EventRows, attempt: dict[int, int]) -> Mask:
    """Which rows are of the present process of a rank; ``attempt`` as in the rows."""
    known = np.array(sorted(attempt) or [-1], np.int64)
    newest = np.array([attempt.get(rank, -1) for rank in known.tolist()])
    at = np.minimum(np.searchsorted(known, rows["rank"]), len(known) - 1)
    found: Mask = (known[at] == rows["rank"]) & (newest[at] == rows["attempt"])
    return found
