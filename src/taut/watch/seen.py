"""What was seen of a job, as columns: calls at gates, stages and steps of all ranks, on one clock.

The collector's window gives it, and so do modelled jobs. Codes of classes of gates mean the same at all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct, field

from taut.core.array_types import Ints, Mask
from taut.watch.event_rows import of_present

if TYPE_CHECKING:
    from taut.watch.event_rows import EventRows
    from taut.watch.window import Hello, Member, Window

HOP = "hop"
"""Verb of the class in which a send and its receive meet."""
FORWARD, LOAD, BACKWARD, OPTIMIZER, SAVE = "forward", "load", "backward", "optimizer", "save"


class Meeting(Struct, frozen=True):
    """A class of gates: those of one group that call the same, or the two ends of a hop."""

    verb: str
    group: str = ""
    ranks: Sequence[int] = ()
    """Who meets there; empty where that is not known. Of a collector ``Ranks``: counted, and expanded where they are walked."""
    source: int = -1
    sink: int = -1
    """Of a hop, sender and receiver."""


class Seat(Struct, frozen=True):
    """Where a rank is."""

    host: str = ""
    gpu: int = -1
    boot: str = ""
    sees: str = "calls"
    """``hooks`` or ``calls``."""
    backend: str = ""
    """``gloo``, ``nccl`` …; empty if unknown."""


class Events(Struct, frozen=True):
    """Rows of one kind, ns by one clock; an end that was not recorded is 0."""

    rank: Ints
    klass: Ints
    """Index into the classes; of steps -1."""
    number: Ints
    """Of a gate the number of the call, else of the step."""
    flags: Ints
    begin: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.rank)

    def take(self, index: Ints | Mask) -> Events:
        """Some rows."""
        return Events(*(getattr(self, name)[index] for name in self.__struct_fields__))


def no_events() -> Events:
    """None at all."""
    return Events(*(np.zeros(0, np.int64) for _ in range(6)))


class Seen(Struct, frozen=True):
    """What was seen of a job since some time."""

    gates: Events
    stages: Events
    steps: Events
    classes: Sequence[Meeting]
    seats: dict[int, Seat]
    ended: frozenset[int] = frozenset()
    """Ranks that said goodbye."""
    waits: Events = field(default_factory=no_events)
    """Calls that had not ended when they were told; those that end are among the gates later on."""
    restarted: frozenset[int] = frozenset()
    """Ranks that are another process since it was last asked."""
    lost: frozenset[int] = frozenset()
    """Ranks of which nothing is heard any more, without a goodbye."""
    world: int = -1
    """Ranks that the job says it has; -1 where it does not."""

    @property
    def is_over(self) -> bool:
        """Whether nobody of the job is heard any more."""
        return bool(self.seats) and self.seats.keys() <= self.ended | self.lost


def joined(parts: Sequence[Events]) -> Events:
    """Rows of several tables, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Events(*(np.concatenate([getattr(one, name) for one in parts]) for name in Events.__struct_fields__))


MOST_MEMBERS = 1 << 19
"""Members of all groups that an analysis walks over: of 8,192 ranks in 64 groups each."""
MOST_ROWS = 1 << 20
"""Rows of events that looks at all jobs keep, of 48 bytes each."""
NEW_ROWS = 1 << 18
"""Rows of a kind that one look takes; of 8,192 ranks 32 each. What comes after them is for the next look."""


class KeptRows:
    """Rows that looks at jobs keep between them: where that is too many, who keeps more than an even part gives some back."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.most = most
        self._kept: WeakKeyDictionary[object, int] = WeakKeyDictionary()

    def allowed(self, who: object, count: int) -> int:
        """How many somebody may keep who keeps so many now."""
        self._kept[who] = count
        return max(self.most - sum(self._kept.values()) + count, self.most // len(self._kept))


def with_members(gates: Events, classes: Sequence[Meeting]) -> list[int]:
    """Classes of these gates whose members may be walked, those with the most gates first; of the others they are not known.

    Members of a group call it again and again, so a job that is what it says has far fewer than gates.
    """
    found, left = list[int](), MOST_MEMBERS
    counts = np.bincount(gates.klass, minlength=1) if len(gates) else np.zeros(0, np.int64)
    for klass in np.argsort(-counts, kind="stable")[: int((counts > 0).sum())].tolist():
        left -= len(classes[klass].ranks)
        if left < 0:
            break
        found.append(klass)
    return found


class Feed:
    """What a collector's window received since it was last asked."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._next = {"gates": 0, "stages": 0, "steps": 0, "waits": 0}
        self._attempt: dict[int, int] = {}
        self._hellos: dict[int, Hello] = {}
        self._seats: dict[int, Seat] = {}
        self._classes: list[Meeting] = []
        self.lost = 0
        """Rows that were gone before they were asked for."""

    def new(self, now_ns: int | None = None) -> Seen:
        """What is new, of processes that were not replaced."""
        window, parts = self.window, {}
        members = dict(window.ranks)  # ranks may come while these are read
        attempt = {rank: one.attempt & 255 for rank, one in members.items()}
        for name, begin in self._next.items():
            table = getattr(window, name)
            with window.room.lock:
                first, rows = max(begin, table.first), table.since(begin, NEW_ROWS)
            self.lost += first - begin
            self._next[name] = first + len(rows)
            parts[name] = self._events(rows, attempt, now_ns)
        seats, classes = self._who(members), self._where()
        ended, lost = (frozenset(rank for rank, one in members.items() if getattr(one, what)) for what in ("ended", "lost"))
        restarted = frozenset(rank for rank, turn in attempt.items() if self._attempt.get(rank, turn) != turn)
        self._attempt = attempt
        return Seen(
            parts["gates"],
            parts["stages"],
            parts["steps"],
            classes,
            seats,
            ended,
            parts["waits"],
            restarted,
            lost,
            window.world,
        )

    def _who(self, members: dict[int, Member]) -> dict[int, Seat]:
        """Seats of all ranks: the same dictionary as long as nobody comes or goes, for it is kept with what was seen."""
        hellos = {rank: one.hello for rank, one in members.items()}
        if hellos != self._hellos:
            self._hellos = hellos
            self._seats = {
                rank: Seat(one.host, one.gpu, one.boot, one.sees, getattr(one, "backend", "")) for rank, one in hellos.items()
            }
        return self._seats

    def _where(self) -> list[Meeting]:
        """Classes of gates: the same list as long as there is no new one."""
        known = list(self.window.classes)
        if len(known) != len(self._classes):
            new = known[len(self._classes) :]
            self._classes = [*self._classes, *(Meeting(one.verb, one.group, one.ranks, one.source, one.sink) for one in new)]
        return self._classes

    def _events(self, rows: EventRows, attempt: dict[int, int], now_ns: int | None) -> Events:
        if not len(rows):
            return no_events()
        rows = rows[of_present(rows, attempt)]
        begin, end = self.window.aligned(rows, now_ns)
        rank, klass, number, flags = (rows[name].astype(np.int64) for name in ("rank", "klass", "number", "flags"))
        return Events(rank, klass, number, flags, begin, end)
