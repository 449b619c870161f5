"""Whether a job that runs has stopped, and who: a gate at which somebody waits, whose missing members do nothing.

A rank is missing at a gate if others made a later call there than it did. It has stopped if it made no event at all for
longer than PATIENCE_S, than PATIENCE_STEPS usual steps and than twice its longest pause so far, unless it waits itself at a
gate for somebody who is missing there. Who said goodbye is missing too where others wait for it: one rank may leave early. How
long nothing was seen counts from when a rank's newest event arrived: what is old when it comes, because nobody listened before,
says nothing of now.

A rank that is seen to save a checkpoint has LONG_S for it. A call that ended waits for nobody. Calls that last are told while
they do; below torch 2.14 also how many calls a group has made at a rank that stands still. Where neither tells who is missing,
because all have come and none goes on, it can only be said that the job stands still, and later, because an evaluation looks
the same; of a job that never made a step not even that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.ids import greatest, numbered
from taut.watch.seen import HOP, SAVE, Events, Meeting, Seen
from taut.watch.wire import COUNTED

PATIENCE_S, PATIENCE_STEPS = 30.0, 20
PAUSES = 2
"""Somebody who paused before may pause so many times as long."""
LONG_S, LONG_PAUSES = 300.0, 3
"""Without anybody who is seen to wait, or before the first steps: as long as this, and so many times as long as any pause."""
NOTICED_NS = 2_000_000_000
"""What a rank did up to so long after its calls were counted it may have done before: they are counted once a second."""
CALLS_OF_RANK, MORE_CALLS = 8, 256
"""Last calls that are kept of a job: so many for each rank, and so many more; those that began last."""
MOST_LOOKED = 1 << 19
"""Members of classes of gates at which it is looked who waits: those of the last calls."""
FIRST_STEPS = 2
"""Steps of a job before which ranks may take their time: they read, compile, download."""


class Stopped(Struct, frozen=True):
    """A job that stands still."""

    ranks: tuple[int, ...]
    """Who stopped; empty where that is not known."""
    waiting: tuple[int, ...]
    at: str
    """Where the others wait."""
    since_ns: int


class Came(Struct, frozen=True):
    """The last call of a rank at a class of gates."""

    number: int = -1
    begin_ns: int = 0
    ended: bool = False


class LastCalls:
    """The last call of every rank at every class of gates, and when anything was last seen of a rank."""

    def __init__(self) -> None:
        self.came: dict[tuple[int, int], Came] = {}
        self.event: dict[int, int] = {}
        self.done: dict[int, int] = {}
        """The newest event of a rank that tells that something was done, and not that something lasts."""
        self.heard: dict[int, int] = {}
        """When the newest event of a rank arrived."""
        self.pause: dict[int, int] = {}
        """The longest time between two events of a rank that were heard of one after the other."""
        self.longest_ns = 0
        """The longest time in which nothing was seen of any rank."""
        self.steps = 0
        """Steps that some rank has made."""

    def add(self, seen: Seen, now_ns: int) -> None:
        """Take in events that came by then."""
        for key in [key for key in self.came if key[1] in seen.restarted]:
            del self.came[key]
        if len(self.event) > 2 * len(seen.seats) + MORE_CALLS:  # of a job that goes on with other ranks
            for held in (self.event, self.done, self.heard, self.pause):
                for gone in held.keys() - seen.seats.keys():
                    del held[gone]
        before = max(self.event.values(), default=0)
        parts = [part for part in (seen.gates, seen.stages, seen.steps, seen.waits) if len(part)]
        if parts:
            rank = np.concatenate([part.rank for part in parts])
            times = np.concatenate([np.maximum(part.begin, part.end) for part in parts])
            self._heard(rank, times, now_ns)
            if before:
                self.longest_ns = max(self.longest_ns, int(times.min()) - before)
            self.steps = max(self.steps, 1 + int(seen.steps.number.max(initial=-1)))
        for part in (seen.gates, seen.stages, seen.steps):
            ranks, index = np.unique(part.rank, return_inverse=True)
            newest = greatest(index, len(ranks), np.maximum(part.begin, part.end))
            for rank, time in zip(ranks.tolist(), newest.tolist(), strict=True):
                self.done[rank] = max(self.done.get(rank, 0), time)
        self._calls(seen.waits)
        self._calls(seen.gates)

    def _heard(self, rank: Ints, time: Ints, now_ns: int) -> None:
        ranks, index = np.unique(rank, return_inverse=True)
        newest, oldest = np.zeros(len(ranks), np.int64), np.full(len(ranks), np.iinfo(np.int64).max)
        np.maximum.at(newest, index, time)
        np.minimum.at(oldest, index, time)
        for one, first, last in zip(ranks.tolist(), oldest.tolist(), newest.tolist(), strict=True):
            if one in self.event:
                self.pause[one] = max(self.pause.get(one, 0), first - self.event[one])
            if last > self.event.get(one, 0):
                self.event[one], self.heard[one] = last, now_ns

    def _calls(self, calls: Events) -> None:
        order = np.lexsort((calls.number, calls.rank, calls.klass))
        pair, _ = numbered(calls.klass[order], calls.rank[order])
        for row in order[np.flatnonzero(np.diff(pair, append=-1))].tolist():
            place, number = (int(calls.klass[row]), int(calls.rank[row])), int(calls.number[row])
            if number >= self.came.get(place, Came()).number:
                self.came[place] = Came(number, int(calls.begin[row]), bool(calls.end[row]))
            if len(self.came) > CALLS_OF_RANK * len(self.event) + MORE_CALLS:
                newest = sorted(self.came.items(), key=lambda one: -one[1].begin_ns)
                self.came = dict(newest[: len(newest) * 3 // 4])

    def at_classes(self, classes: Sequence[Meeting]) -> list[tuple[Meeting, int, dict[int, Came]]]:
        """(class, its number, the last call of each rank there): as many as may be looked at, those that were called last."""
        found, left, ranks = dict[int, dict[int, Came]](), MOST_LOOKED, len(self.event)
        for (klass, rank), call in sorted(self.came.items(), key=lambda one: -one[1].begin_ns):
            if klass not in found:
                left -= len(classes[klass].ranks) or ranks
            if left >= 0:
                found.setdefault(klass, {})[rank] = call
        return [(classes[klass], klass, found[klass]) for klass in sorted(found)]

    def silent(self, ranks: list[int], limit_ns: int, now_ns: int) -> set[int]:
        """Ranks of which nothing came for longer than that, and than they paused before."""
        return {
            rank
            for rank in ranks
            if now_ns - max(self.event[rank], self.heard[rank]) > max(limit_ns, PAUSES * self.pause.get(rank, 0))
        }


def stopped(last: LastCalls, seen: Seen, meets: dict[int, bool], step_s: float, now_ns: int) -> Stopped | None:
    """Who stopped, if somebody did."""
    began = last.steps >= FIRST_STEPS
    limit = int(max(PATIENCE_S if began else LONG_S, PATIENCE_STEPS * step_s) * 1e9)
    ranks = list(last.event)
    silent = last.silent(ranks, limit, now_ns)
    # A rank that hangs still tells the time: a job of which nothing at all is heard is over, or out of reach.
    if not silent or set(ranks) <= seen.lost | seen.ended or _somebody_saves(last, seen, now_ns):
        return None
    waits, missing, since, where = _waiting(last, seen, meets, now_ns - limit)
    waits -= seen.ended
    gone = {rank for rank in missing & silent if rank not in waits} or (missing & silent if missing <= waits else set())
    if gone and waits:
        return Stopped(tuple(sorted(gone)), tuple(sorted(waits - gone)), where, since)
    newest = max(max(last.event[rank], last.heard[rank]) for rank in ranks)
    long_ns = max(LONG_S * 1e9, LONG_PAUSES * last.longest_ns, 5 * limit)
    if began and not seen.ended and len(silent) == len(ranks) and now_ns - newest > long_ns:
        return Stopped((), (), "", newest)
    return None


def _somebody_saves(last: LastCalls, seen: Seen, now_ns: int) -> bool:
    """Whether the last that was seen of some rank is that it saves a checkpoint: that may take as long as LONG_S."""
    saves = {klass for klass, one in enumerate(seen.classes) if one.verb == SAVE}
    begun = ((rank, call.begin_ns) for (klass, rank), call in last.came.items() if klass in saves)
    return any(last.done.get(rank, 0) <= begin and now_ns - begin < LONG_S * 1e9 for rank, begin in begun)


def _waiting(last: LastCalls, seen: Seen, meets: dict[int, bool], before_ns: int) -> tuple[set[int], set[int], int, str]:
    """(who waits, who is missing where they do, since when, where): gates at which somebody came long ago."""
    waits, missing, since, where = set[int](), set[int](), 0, ""
    ranks = sorted(last.event)
    for one, klass, calls in last.at_classes(seen.classes):
        if not (one.verb in (HOP, COUNTED) or meets.get(klass, False)):
            continue
        came = {rank: calls.get(rank, Came()) for rank in one.ranks or ranks if rank in last.event}
        most = max((call.number for call in came.values()), default=-1)
        here = _here(one, came, most, last.event)
        away = {rank for rank, call in came.items() if call.number < most}
        if not here or not away or max(here.values()) > before_ns:
            continue
        waits |= set(here)
        missing |= away
        since, where = max(since, max(here.values())), _place(one)
    return waits, missing, since, where


def _here(one: Meeting, came: dict[int, Came], most: int, event: dict[int, int]) -> dict[int, int]:
    """Who is at a gate that has not opened, and since when.

    Of a hop its receiver: a sender waits for nobody. Where calls are only counted, who has done nothing since.
    """
    here = {rank: call.begin_ns for rank, call in came.items() if call.number == most >= 0 and not call.ended}
    if one.verb == HOP:
        return {rank: since for rank, since in here.items() if rank == one.sink}
    if one.verb == COUNTED:
        return {rank: since for rank, since in here.items() if event[rank] <= since + NOTICED_NS}
    return here


def _place(one: Meeting) -> str:
    return f"{'a call' if one.verb == COUNTED else one.verb} of group {one.group or 'all'}"
