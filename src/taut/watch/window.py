"""What a collector knows of one job: its ranks, their clocks, and the newest of their gates, stages and steps.

This is what detectors read. ``gates``, ``stages``, ``steps`` and ``waits`` (calls that had not ended) are tables of rows in the
order in which they were received (``event_rows.ROW``, times by each host's own clock); ``aligned`` gives their times by one
clock, ``joined`` says which rows are of one gate. All of it may be read by another thread than the one that receives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from threading import RLock
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from taut.core.array_types import Codes, Ints, Mask
from taut.core.ids import greatest, least, numbered
from taut.watch.event_rows import RECEIVED, ROW, EventRows, Room, Rows
from taut.watch.host_clocks import HostClocks
from taut.watch.observed import ROOTED
from taut.watch.wire import GATE, STAGE, STEP, WAIT, WireError, ranks_of

LOST_S = 15.0
"""A rank of which nothing was heard for so long is lost."""
KEEP_S = 1800.0
"""Rows to which nothing was added for so long are given back."""
MOST_PENDING = 1 << 20
"""Bytes of events that wait to be decoded together."""
MOST_CLASSES = 1 << 16
"""Classes of places in a job."""
SPAN_NS, MOST_NS = 1 << 52, 1 << 58
"""An event that lasts longer is none, and no monotonic clock shows more."""
NEVER = 1 << 61
ALL_WAIT = ("allreduce", "allgather", "alltoall", "reducescatter", "barrier")
"""How verbs begin, without underscores, in which everybody waits for everybody."""
HOP = "hop"
"""Verb of the class in which a send and its receive meet."""
REPLACED = 16
"""Earlier processes of a rank that are remembered."""
CLOCK_ROWS = 200_000
"""Rows of gates from which differences of clocks are told."""


Word: TypeAlias = Annotated[str, Meta(max_length=256)]


class Hello(msgspec.Struct, frozen=True):
    """Who a rank is, as it says."""

    rank: Annotated[int, Meta(ge=0, lt=1 << 30)]
    world: Annotated[int, Meta(ge=-1, lt=1 << 30)]
    host: Word
    gpu: Annotated[int, Meta(ge=-1, lt=1 << 16)]
    job: Word
    pid: int
    process: Word
    """Drawn when the process began to be watched: two processes may have one number."""
    sees: Word = ""
    """``hooks`` or ``calls``: what it can notice."""
    boot: Word = ""
    """Processes with the same boot share a clock."""
    torch: Word = ""
    taut: Word = ""
    profiles: bool = False
    """Whether it may be asked for a profile."""


class Place(msgspec.Struct, frozen=True):
    """What a code of a rank stands for."""

    verb: Word
    group: Word = ""
    peer: Annotated[int, Meta(ge=-1, lt=1 << 30)] = -1
    ranks: tuple[int, ...] = ()
    """As runs: ``wire.runs``."""


class Names(msgspec.Struct, frozen=True):
    """Codes of a rank from ``first`` on."""

    first: int
    places: list[Place]


class Clock(msgspec.Struct, frozen=True):
    """What time it is at a rank, and what it lost."""

    monotonic_ns: int
    time_ns: int
    dropped: int = 0
    """Events that its ring had no room for, or that could not be sent."""
    faults: int = 0
    """Faults of the watching in the job."""
    sent: int = 0
    """Events that the process has sent before."""


class PlaceClass(msgspec.Struct, frozen=True):
    """Places of different ranks that are one: those of a group's ranks that call the same, or the two ends of a hop."""

    verb: str
    group: str
    runs: tuple[int, ...]
    """The group's ranks as runs; empty where they are not known."""
    source: int = -1
    sink: int = -1
    """Of a hop, sender and receiver."""

    @property
    def ranks(self) -> list[int]:
        """Ranks that meet there; empty where that is not known."""
        return [self.source, self.sink] if self.verb == HOP else ranks_of(self.runs)


class Member:
    """A rank, and what became of what it sent."""

    def __init__(self, slot: int, hello: Hello, clock: int, now_ns: int) -> None:
        self.slot, self.hello, self.clock = slot, hello, clock
        self.attempt = 0
        """How often it was started anew."""
        self.began_ns = self.heard_ns = now_ns
        self.ended, self.lost = False, False
        """Whether it said goodbye; whether it was silent for too long."""
        self.received = 0
        """Events that arrived."""
        self.dropped, self.faults = 0, 0
        """What its present process tells."""
        self.missing = 0
        """Events that its present process sent, and that never arrived: lost with a connection."""
        self.before: Counter[str] = Counter()
        """What its earlier processes dropped and missed, and their faults."""
        self.unnamed, self.strange, self.over = 0, 0, 0
        """Events of places without a name; with times that cannot be; above the rank's limit of bytes a second."""
        self.tokens, self.tokens_ns = 0.0, now_ns
        """Bytes that it may send at once; when that was counted."""
        self._sent_before: int | None = None
        self._arrived = 0
        self._replaced: list[str] = []

    @property
    def rank(self) -> int:
        """Its number."""
        return self.hello.rank

    def was(self, process: str) -> bool:
        """Whether that process was replaced by a later one."""
        return process in self._replaced

    def restarted(self, hello: Hello, clock: int, now_ns: int) -> None:
        """It is another process from now on."""
        self._replaced = [*self._replaced[-REPLACED:], self.hello.process]
        self.hello, self.clock, self.began_ns = hello, clock, now_ns
        self.attempt += 1
        self.before += Counter(dropped=self.dropped, faults=self.faults, missing=self.missing)
        self.dropped, self.faults, self.missing, self._sent_before, self._arrived = 0, 0, 0, None, 0

    def arrived(self, events: int) -> None:
        """Events came."""
        self.received += events
        self._arrived += events

    def count_missing(self, clock: Clock) -> None:
        """What it says of itself: what it has sent and did not arrive is missing."""
        self.dropped, self.faults = clock.dropped, clock.faults
        if self._sent_before is None:
            self._sent_before = clock.sent - self._arrived
        self.missing = max(clock.sent - self._sent_before - self._arrived, 0)


class Joined(msgspec.Struct, frozen=True):
    """Rows of gates, each with the gate it is of."""

    gate: Ints
    """Number of the gate of each row."""
    gates: int
    klass: Ints
    """Class of each gate."""
    number: Ints
    members: Ints
    """Rows of each gate."""


class Window:
    """One job."""

    def __init__(self, job: str, room: Room) -> None:
        self.job, self.room = job, room
        self.gates, self.stages, self.steps, self.waits = Rows(room), Rows(room), Rows(room), Rows(room)
        self.ranks: dict[int, Member] = {}
        self.classes: list[PlaceClass] = []
        self.clocks = HostClocks()
        self.heard_ns = 0
        """When something was last heard of it, ns by the collector's monotonic clock."""
        self.world = -1
        """Ranks that the job has, as the process says that was started last; -1 where it does not."""
        self._code: dict[PlaceClass, int] = {}
        self._held_bytes = 0
        self._slots: list[Member] = []
        self._place: Codes = np.full((0, 16), -1, np.int32)
        self._pending: list[bytes] = []
        self._pending_of: list[tuple[int, int]] = []
        self._pending_bytes = 0
        self._lock = RLock()

    # -- what comes in --------------------------------------------------------------------------------------------------

    def join(self, hello: Hello, now_ns: int) -> tuple[Member, str]:
        """The rank that says hello, and what it is: ``new``, ``again``, ``restarted``; one that was replaced is refused."""
        with self._lock:
            clock = self.clocks.number(hello.boot or f"{hello.host} {hello.process}")
            member = self.ranks.get(hello.rank)
            if member is None:
                member = Member(len(self._slots), hello, clock, now_ns)
                self._add_slot(member)
                self.ranks[hello.rank] = member
                self.world = hello.world
                return member, "new"
            if member.was(hello.process):
                raise WireError("a process that another one of the same rank has replaced")
            member.heard_ns, member.ended = now_ns, False
            if member.hello.process == hello.process:
                return member, "again"
            self.fold(now_ns)
            self._place[member.slot] = -1
            member.restarted(hello, clock, now_ns)
            self.world = hello.world
            return member, "restarted"

    def name(self, member: Member, names: Names) -> None:
        """A rank tells what its codes stand for."""
        last = names.first + len(names.places)
        if names.first < 0 or last > 1 << 16:
            raise WireError("codes of places that no event has")
        with self._lock:
            self._widen(last)
            for code, place in enumerate(names.places, names.first):
                if code < self._place.shape[1]:
                    self._place[member.slot, code] = self._class(member.rank, place)

    def add(self, member: Member, body: bytes, now_ns: int) -> None:
        """Events of a rank, decoded a little later, with those of others."""
        events, rest = divmod(len(body), RECEIVED.itemsize)
        if rest:
            raise WireError("events that are cut off")
        with self._lock:
            member.arrived(events)
            self._pending.append(body)
            self._pending_of.append((member.slot, events))
            self._pending_bytes += len(body)
            if self._pending_bytes >= MOST_PENDING:
                self.fold(now_ns)

    def tell_time(self, member: Member, clock: Clock, received_ns: int, greeted_ns: int | None) -> None:
        """A rank tells its time; ``greeted_ns`` if this is the first message after a greeting."""
        if not 0 < clock.monotonic_ns < MOST_NS:
            raise WireError("a time that no clock shows")
        with self._lock:
            member.count_missing(clock)
            self.clocks.clocks[member.clock].heard(clock.monotonic_ns, received_ns, greeted_ns)

    def fold(self, now_ns: int) -> None:
        """Decode what waits, all of it at once."""
        with self._lock:
            if not self._pending:
                return
            events = np.frombuffer(b"".join(self._pending), RECEIVED)
            of = np.array(self._pending_of, np.int64)
            self._pending, self._pending_of, self._pending_bytes = [], [], 0
            slot = np.repeat(of[:, 0], of[:, 1])
            rows, kind = self._rows(events, slot), events["kind"]
            sane = _sane(events)
            named = (rows["klass"] >= 0) | (kind == STEP)
            for code, table in ((GATE, self.gates), (STAGE, self.stages), (STEP, self.steps), (WAIT, self.waits)):
                table.append(rows[(kind == code) & sane & named], now_ns)
            self._count(slot[~sane], "strange")
            self._count(slot[sane & ~named], "unnamed")

    def _rows(self, events: EventRows, slot: Ints) -> EventRows:
        """The same events as they are kept."""
        seats = np.array([(one.rank, one.clock, one.attempt & 255) for one in self._slots], np.int64)[slot]
        place, width = events["place"].astype(np.int64), self._place.shape[1]
        rows = np.empty(len(events), ROW)
        rows["rank"], rows["clock"], rows["attempt"] = seats.T
        known = np.where(place < width, self._place[slot, np.minimum(place, width - 1)], -1)
        rows["klass"] = np.where(events["kind"] == STEP, -1, known)
        for name in ("number", "flags", "begin_ns", "end_ns"):
            rows[name] = events[name]
        return rows

    def _count(self, slot: Ints, what: str) -> None:
        for one, count in Counter(slot.tolist()).items():
            member = self._slots[one]
            setattr(member, what, getattr(member, what) + count)

    def _add_slot(self, member: Member) -> None:
        self._slots.append(member)
        if len(self._slots) > len(self._place) and not self._grow(max(2 * len(self._place), 16), self._place.shape[1]):
            self._slots.pop()
            raise WireError("more ranks than there is memory for")

    def _widen(self, codes: int) -> None:
        """Have room for so many codes of every rank, as far as there is any."""
        rows, width = self._place.shape
        while width < codes:
            width *= 2
        if width > self._place.shape[1]:
            self._grow(rows, width)

    def _grow(self, rows: int, width: int) -> bool:
        """Have a larger table of places; whether there is room for it."""
        old = self._place
        more = (rows * width - old.size) * old.itemsize
        if not self.room.hold(more):
            return False
        self._held_bytes += more
        self._place = np.full((rows, width), -1, np.int32)
        self._place[: old.shape[0], : old.shape[1]] = old
        return True

    def _class(self, rank: int, place: Place) -> int:
        """Code of the class of a place; -1 where there are too many."""
        if place.peer >= 0 and place.verb in ("send", "recv"):
            ends = (rank, place.peer) if place.verb == "send" else (place.peer, rank)
            found = PlaceClass(HOP, place.group, (), *ends)
        else:
            found = PlaceClass(place.verb, place.group, place.ranks)
        if found not in self._code:
            size = 256 + len(found.verb) + len(found.group) + 40 * len(found.runs)
            ranks_of(found.runs)  # refused where they are none
            if len(self.classes) >= MOST_CLASSES or not self.room.hold(size):
                return -1
            self._held_bytes += size
            self._code[found] = len(self.classes)
            self.classes.append(found)
        return self._code[found]

    # -- what detectors read ----------------------------------------------------------------------------------------------

    def aligned(self, rows: EventRows, now_ns: int | None = None) -> tuple[Ints, Ints]:
        """(begin, end) of rows by the collector's monotonic clock, ns; an end that is not recorded stays 0."""
        with self._lock:
            offsets = self.clocks.offsets(time.monotonic_ns() if now_ns is None else now_ns)
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        offset = offsets[rows["clock"]]
        return rows["begin_ns"] + offset, np.where(rows["end_ns"] == 0, 0, rows["end_ns"] + offset)

    def joined(self, rows: EventRows) -> Joined:
        """Which rows of gates are of one gate: same class, same number, ranks that were started equally often."""
        gate, gates = numbered(rows["klass"], rows["number"].astype(np.int64), rows["attempt"])
        klass, number = np.zeros(gates, np.int64), np.zeros(gates, np.int64)
        klass[gate], number[gate] = rows["klass"], rows["number"]
        return Joined(gate, gates, klass, number, np.bincount(gate, minlength=gates))

    def hosts(self, ranks: Iterable[int]) -> list[str]:
        """Hosts of ranks, in their order; empty where one is not known."""
        return [self.ranks[rank].hello.host if rank in self.ranks else "" for rank in ranks]

    def quiet(self, now_ns: int, after_s: float = LOST_S) -> list[Member]:
        """Ranks of which nothing was heard for so long, and that did not say goodbye."""
        with self._lock:
            return [one for one in self.ranks.values() if not one.ended and now_ns - one.heard_ns > after_s * 1e9]

    def miss(self, now_ns: int, after_s: float = LOST_S) -> list[Member]:
        """Ranks that are lost since it was last asked. Of a job that goes on with fewer ranks the others are forgotten."""
        with self._lock:
            lost = [one for one in self.quiet(now_ns, after_s) if not one.lost]
            for member in lost:
                member.lost = True
            if 0 <= self.world <= max(self.ranks, default=-1):
                self.ranks = {rank: one for rank, one in self.ranks.items() if rank < self.world or not one.lost}
            return lost

    def living(self) -> list[Member]:
        """Ranks that are neither lost nor at their end."""
        with self._lock:
            return [one for one in self.ranks.values() if not one.ended and not one.lost]

    def totals(self) -> dict[str, int]:
        """What was received, and everything that was not."""
        with self._lock:
            names = ("received", "dropped", "missing", "unnamed", "strange", "over", "faults")
            return {name: sum(getattr(one, name) + one.before[name] for one in self.ranks.values()) for name in names}

    # -- upkeep -----------------------------------------------------------------------------------------------------------

    def forget(self, now_ns: int) -> None:
        """Give back what is too old."""
        for table in (self.gates, self.stages, self.steps, self.waits):
            table.forget(now_ns - int(KEEP_S * 1e9))

    def close(self) -> None:
        """Give back everything."""
        for table in (self.gates, self.stages, self.steps, self.waits):
            self.room.free(table)
        self.room.hold(-self._held_bytes)

    def fit_clocks(self) -> None:
        """Have the newest gates bound how far clocks are apart: nobody leaves a gate before everybody came."""
        if len(self.clocks.clocks) < 2:
            return
        waits = [_all_wait(one.verb) for one in list(self.classes)]
        rows = self.gates.last(CLOCK_ROWS)
        rows = rows[np.array(waits, bool)[rows["klass"]] & (rows["flags"] & ROOTED == 0)] if len(rows) else rows
        if len(rows):
            reference = int(np.bincount([one.clock for one in self.ranks.values()]).argmax())
            self.clocks.gates_tell(reference, _apart(self.joined(rows), rows, reference))


def _sane(events: EventRows) -> Mask:
    """Which events are possible at all."""
    begin, end = events["begin_ns"], events["end_ns"]
    within = (begin > 0) & (begin < MOST_NS) & (end >= 0) & (end < MOST_NS)
    found: Mask = within & ((end == 0) | ((end >= begin) & (end - begin < SPAN_NS))) & (events["kind"] <= WAIT)
    return found


def _all_wait(verb: str) -> bool:
    """Whether nobody leaves such a gate before everybody came to it."""
    return verb.lower().replace("_", "").startswith(ALL_WAIT)


def _apart(joined: Joined, rows: EventRows, reference: int) -> dict[int, tuple[int, int]]:
    """Clock → (least, most) of its offset less that of the reference, of the clocks that gates bound on both sides.

    At every gate o_c + arrival_c ≤ o_r + end_r, and the other way round.
    """
    cell, cells = numbered(joined.gate, rows["clock"])
    gate, clock = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    gate[cell], clock[cell] = joined.gate, rows["clock"]
    ended = rows["end_ns"] > 0
    came = greatest(cell, cells, rows["begin_ns"])
    left = np.full(cells, NEVER)
    np.minimum.at(left, cell[ended], rows["end_ns"][ended])
    own = clock == reference
    there_came, there_left = np.full(joined.gates, -NEVER), np.full(joined.gates, NEVER)
    there_came[gate[own]], there_left[gate[own]] = came[own], left[own]
    most = least(clock, int(clock.max()) + 1, there_left[gate] - came)
    fewest = least(clock, int(clock.max()) + 1, left - there_came[gate])
    both = np.flatnonzero((most < NEVER // 2) & (fewest < NEVER // 2))
    return {int(one): (-int(fewest[one]), int(most[one])) for one in both if one != reference}
