"""What a collector knows of one job: its ranks, their clocks, and the newest of their gates, stages and steps.

This is what detectors read. ``gates``, ``stages``, ``steps`` and ``waits`` (calls that had not ended) are tables of rows in the
order in which they were received (``event_rows.ROW``, times by each host's own clock); ``aligned`` gives their times by one
clock, ``joined`` says which rows are of one gate. All of it may be read by another thread than the one that receives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from sys import getsizeof
from threading import RLock
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta

from taut.core.array_types import Codes, Ints, Mask
from taut.core.ids import greatest, least, numbered
from taut.watch.event_rows import RECEIVED, ROW, EventRows, Room, Rows, of_present
from taut.watch.host_clocks import CLOCK_BYTES, SPARE_CLOCKS, HostClocks
from taut.watch.observed import ROOTED
from taut.watch.wire import GATE, STAGE, STEP, WAIT, Ranks, WireError, check_runs

LOST_S = 15.0
"""A rank of which nothing was heard for so long is lost."""
KEEP_S = 1800.0
"""Rows to which nothing was added for so long are given back."""
MOST_PENDING = 1 << 20
"""Bytes of events that wait to be decoded together."""
MOST_CLASSES, MOST_CODES = 1 << 16, 1 << 12
"""Classes of places in a job; codes of places of a rank."""
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
MOST_WORLD = 1 << 17
"""Ranks of a job that does not say how many it has, unless the collector takes fewer."""
CLASS_BYTES, MEMBER_BYTES = 640, 800
"""That a class of places, and a rank, take beside their words (sys.getsizeof of all that is kept of one)."""
REPLACED_BYTES = 8
"""Of an earlier process of a rank that are remembered."""


Word: TypeAlias = Annotated[str, Meta(max_length=256)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]


class Hello(msgspec.Struct, frozen=True):
    """Who a rank is, as it says."""

    rank: Annotated[int, Meta(ge=0, lt=1 << 30)]
    world: Annotated[int, Meta(ge=-1, lt=1 << 30)]
    host: Word
    gpu: Annotated[int, Meta(ge=-1, lt=1 << 16)]
    job: Word
    pid: Annotated[int, Meta(ge=0, lt=1 << 32)]
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
    dropped: Count = 0
    """Events that its ring had no room for, or that could not be sent."""
    faults: Count = 0
    """Faults of the watching in the job."""
    sent: Count = 0
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
    def ranks(self) -> Ranks:
        """Ranks that meet there; empty where that is not known."""
        return Ranks((self.source, self.source, 1, self.sink, self.sink, 1) if self.verb == HOP else self.runs)


class Member:
    """A rank, and what became of what it sent."""

    __slots__ = (
        "_arrived", "_replaced", "_sent_before", "attempt", "before", "began_ns", "clock", "dropped", "ended", "faults",
        "heard_ns", "held_bytes", "hello", "lost", "missing", "over", "received", "slot", "strange", "tokens", "tokens_ns",
        "unnamed",
    )  # fmt: skip

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
        self._replaced: list[bytes] = []
        self.held_bytes = 0
        """Of the room that all jobs share."""

    @property
    def rank(self) -> int:
        """Its number."""
        return self.hello.rank

    def was(self, process: str) -> bool:
        """Whether that process was replaced by a later one."""
        return _short(process) in self._replaced

    def restarted(self, hello: Hello, clock: int, now_ns: int) -> None:
        """It is another process from now on."""
        self._replaced = [*self._replaced[-REPLACED:], _short(self.hello.process)]
        self.hello, self.clock, self.began_ns = hello, clock, now_ns
        self.attempt += 1
        self.before += Counter(dropped=self.dropped, faults=self.faults, missing=self.missing)
        self.dropped, self.faults, self.missing, self._sent_before, self._arrived = 0, 0, 0, None, 0

    def arrived(self, events: int) -> None:
        """Events came."""
        self.received += events
        self._arrived += events

    def drop_over(self, events: int) -> None:
        """Events came that are above its bytes a second."""
        self.over += events
        self.arrived(events)

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

    def __init__(self, job: str, room: Room, most_world: int = MOST_WORLD) -> None:
        self.job, self.room, self.most_world = job, room, most_world
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
        self._free: list[int] = []
        """Slots of ranks that are forgotten."""
        self._place: Codes = np.full((0, 16), -1, np.int32)
        self._pending: list[bytes] = []
        self._pending_of: list[tuple[int, int]] = []
        self._pending_bytes = 0
        self._lock = RLock()

    # -- what comes in --------------------------------------------------------------------------------------------------

    def join(self, hello: Hello, now_ns: int) -> tuple[Member, str]:
        """The rank that says hello, and what it is: ``new``, ``again``, ``restarted``; one that was replaced is refused."""
        with self._lock:
            self._check_rank(hello)
            member = self.ranks.get(hello.rank)
            if member is None:
                member = Member(self._free[-1] if self._free else len(self._slots), hello, self._clock(hello), now_ns)
                self._hold(member, hello)
                self._seat(member)
                self.ranks[hello.rank] = member
                self.world = hello.world
                return member, "new"
            if member.was(hello.process):
                raise WireError("a process that another one of the same rank has replaced")
            if member.hello.process != hello.process:
                clock = self._clock(hello)
                self._hold(member, hello)
                self.fold(now_ns)
                self._place[member.slot] = -1
                member.restarted(hello, clock, now_ns)
                self.world = hello.world
            what = "again" if member.hello is not hello else "restarted"
            member.heard_ns, member.ended = now_ns, False
            return member, what

    def _check_rank(self, hello: Hello) -> None:
        """Refuse what no rank of a job is."""
        if hello.world > self.most_world:
            raise WireError(f"a job of {hello.world:,} ranks, more than the {self.most_world:,} that one may have")
        if hello.rank >= self.most_world:
            raise WireError(f"rank {hello.rank:,}, where a job may have {self.most_world:,}")

    def _most_ranks(self, hello: Hello) -> int:
        """How many ranks its job may have."""
        return self.most_world if hello.world < 0 else hello.world

    def _clock(self, hello: Hello) -> int:
        """Number of the clock of a rank; of those that no rank uses any more the oldest gives way."""
        clocks, name = self.clocks, hello.boot or f"{hello.host} {hello.process}"
        if not clocks.is_known(name) and len(clocks.clocks) >= len(self.ranks) + SPARE_CLOCKS:
            return clocks.instead(name, {one.clock for one in self.ranks.values()})
        if not clocks.is_known(name) and not self._take_room(CLOCK_BYTES + getsizeof(name)):
            raise WireError("more clocks than there is memory for")
        return clocks.number(name)

    def _hold(self, member: Member, hello: Hello) -> None:
        """Have room for what a rank says of itself."""
        size = MEMBER_BYTES + sum(getsizeof(one) for one in msgspec.structs.astuple(hello) if isinstance(one, str))
        if not self._take_room(size - member.held_bytes):
            raise WireError("more ranks than there is memory for")
        member.held_bytes = size

    def _take_room(self, count: int) -> bool:
        """Hold so many bytes more of what all jobs share, if there are any."""
        if not self.room.hold(count):
            return False
        self._held_bytes += count
        return True

    def name(self, member: Member, names: Names) -> None:
        """A rank tells what its codes stand for."""
        last = names.first + len(names.places)
        if names.first < 0 or last > 1 << 16:
            raise WireError("codes of places that no event has")
        with self._lock:
            self._widen(min(last, MOST_CODES))
            most = self._most_ranks(member.hello)
            for code, place in enumerate(names.places, names.first):
                if code < self._place.shape[1]:
                    self._place[member.slot, code] = self._class(member.rank, place, most)

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

    def _seat(self, member: Member) -> None:
        """Give a rank its row of the table of places, that of a forgotten one if there is any."""
        if self._free:
            self._slots[self._free.pop()] = member
            self._place[member.slot] = -1
            return
        if member.slot == len(self._place) and not self._grow(max(2 * len(self._place), 16), self._place.shape[1]):
            self._take_room(-member.held_bytes)
            raise WireError("more ranks than there is memory for")
        self._slots.append(member)

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
        if not self._take_room((rows * width - old.size) * old.itemsize):
            return False
        self._place = np.full((rows, width), -1, np.int32)
        self._place[: old.shape[0], : old.shape[1]] = old
        return True

    def _class(self, rank: int, place: Place, ranks: int) -> int:
        """Code of the class of a place in a job of so many ranks; -1 where there are too many."""
        if place.peer >= ranks:
            raise WireError(f"a peer that a job of {ranks:,} ranks does not have")
        if place.peer >= 0 and place.verb in ("send", "recv"):
            ends = (rank, place.peer) if place.verb == "send" else (place.peer, rank)
            found = PlaceClass(HOP, place.group, (), *ends)
        else:
            found = PlaceClass(place.verb, place.group, place.ranks)
        if found not in self._code:
            size = CLASS_BYTES + getsizeof(found.verb) + getsizeof(found.group) + 80 * len(found.runs)
            check_runs(found.runs, ranks)
            if len(self.classes) >= MOST_CLASSES or not self._take_room(size):
                return -1
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
        # Kernels are kept for whole columns of this type: for others the compiler would be loaded, and stay.
        gate, gates = numbered(*(rows[name].astype(np.int64) for name in ("klass", "number", "attempt")))
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
                self.fold(now_ns)
                gone = [one for one in self.ranks.values() if one.rank >= self.world and one.lost]
                self.ranks = {rank: one for rank, one in self.ranks.items() if rank < self.world or not one.lost}
                self._free += [one.slot for one in gone]
                self._take_room(-sum(one.held_bytes for one in gone))
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
        rows = rows[of_present(rows, {rank: one.attempt & 255 for rank, one in self.ranks.items()})]
        if len(rows):
            reference = int(np.bincount([one.clock for one in self.ranks.values()]).argmax())
            self.clocks.gates_tell(reference, _apart(self.joined(rows), rows, reference))


def _short(process: str) -> bytes:
    """What is remembered of a process that was replaced."""
    return sha256(process.encode()).digest()[:REPLACED_BYTES]


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
    by = rows["clock"].astype(np.int64)
    cell, cells = numbered(joined.gate, by)
    gate, clock = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    gate[cell], clock[cell] = joined.gate, by
    ended = rows["end_ns"] > 0
    came = greatest(cell, cells, np.ascontiguousarray(rows["begin_ns"]))
    left = np.full(cells, NEVER)
    np.minimum.at(left, cell[ended], rows["end_ns"][ended])
    own = clock == reference
    there_came, there_left = np.full(joined.gates, -NEVER), np.full(joined.gates, NEVER)
    there_came[gate[own]], there_left[gate[own]] = came[own], left[own]
    most = least(clock, int(clock.max()) + 1, there_left[gate] - came)
    fewest = least(clock, int(clock.max()) + 1, left - there_came[gate])
    both = np.flatnonzero((most < NEVER // 2) & (fewest < NEVER // 2))
    return {int(one): (-int(fewest[one]), int(most[one])) for one in both if one != reference}
