"""Whether a job that runs has stopped, and who: a gate at which somebody waits, whose missing members do nothing.

A rank is missing at a gate if others made a later call there than it did. It has stopped if it made no event at all for
longer than PATIENCE_S and than PATIENCE_STEPS usual steps, unless it waits itself at a gate for somebody who is missing there.
Calls whose arrival is told only when they end (torch below 2.14) show nobody who waits: then it can only be said that the job
stands still, and later, because an evaluation looks the same.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.ids import numbered
from taut.watch.seen import HOP, Seen

PATIENCE_S, PATIENCE_STEPS = 30.0, 20
LONG_S, LONG_PAUSES = 300.0, 3
"""Without anybody who is seen to wait: as long as this, and so many times as long as any pause before."""


class Stopped(Struct, frozen=True):
    """A job that stands still."""

    ranks: tuple[int, ...]
    """Who stopped; empty where that is not known."""
    waiting: tuple[int, ...]
    at: str
    """Where the others wait."""
    since_ns: int


class LastCalls:
    """The last call of every rank at every class of gates, and when anything was last seen of a rank."""

    def __init__(self) -> None:
        self.number: dict[tuple[int, int], tuple[int, int]] = {}
        self.event: dict[int, int] = {}
        self.longest_ns = 0
        """The longest time in which nothing was seen of any rank."""

    def add(self, seen: Seen) -> None:
        """Take events in."""
        before = max(self.event.values(), default=0)
        parts = [part for part in (seen.gates, seen.stages, seen.steps) if len(part)]
        if not parts:
            return
        rank = np.concatenate([part.rank for part in parts])
        time = np.concatenate([np.maximum(part.begin, part.end) for part in parts])
        ranks, index = np.unique(rank, return_inverse=True)
        newest = np.zeros(len(ranks), np.int64)
        np.maximum.at(newest, index, time)
        for one, at in zip(ranks.tolist(), newest.tolist(), strict=True):
            self.event[one] = max(self.event.get(one, 0), at)
        if before:
            self.longest_ns = max(self.longest_ns, int(time.min()) - before)
        gates = seen.gates
        order = np.lexsort((gates.number, gates.rank, gates.klass))
        pair, _ = numbered(gates.klass[order], gates.rank[order])
        for row in order[np.flatnonzero(np.diff(pair, append=-1))].tolist():
            self._came(int(gates.klass[row]), int(gates.rank[row]), int(gates.number[row]), int(gates.begin[row]))

    def _came(self, klass: int, rank: int, number: int, begin: int) -> None:
        if number >= self.number.get((klass, rank), (-1, 0))[0]:
            self.number[klass, rank] = number, begin


def stopped(last: LastCalls, seen: Seen, meets: dict[int, bool], step_s: float, now_ns: int) -> Stopped | None:
    """Who stopped, if somebody did."""
    limit = int(max(PATIENCE_S, PATIENCE_STEPS * step_s) * 1e9)
    ranks = [rank for rank in last.event if rank not in seen.ended]
    silent = {rank for rank in ranks if now_ns - last.event[rank] > limit}
    if not silent or seen.ended:
        return None
    waits, missing, since, where = _waiting(last, seen, meets, now_ns - limit)
    gone = {rank for rank in missing & silent if rank not in waits} or (missing & silent if missing <= waits else set())
    if gone:
        return Stopped(tuple(sorted(gone)), tuple(sorted(waits - gone)), where, since)
    newest = max(last.event[rank] for rank in ranks)
    if len(silent) == len(ranks) and now_ns - newest > max(LONG_S * 1e9, LONG_PAUSES * last.longest_ns, 5 * limit):
        return Stopped((), (), "", newest)
    return None


def _waiting(last: LastCalls, seen: Seen, meets: dict[int, bool], before_ns: int) -> tuple[set[int], set[int], int, str]:
    """(who waits, who is missing where they do, since when, where): gates at which somebody came long ago."""
    waits, missing, since, where = set[int](), set[int](), 0, ""
    ranks = sorted(last.event)
    for klass, one in enumerate(seen.classes):
        if not (one.verb == HOP or meets.get(klass, False)):
            continue
        members = one.ranks or tuple(ranks)
        came = {rank: last.number.get((klass, rank), (-1, 0)) for rank in members if rank in last.event}
        most = max((number for number, _ in came.values()), default=-1)
        here = {rank: begin for rank, (number, begin) in came.items() if number == most}
        away = {rank for rank, (number, _) in came.items() if number < most}
        if most < 0 or not away or max(here.values()) > before_ns:
            continue
        if one.verb == HOP:  # a sender waits for nobody
            here = {rank: begin for rank, begin in here.items() if rank == one.sink}
        if here:
            waits |= set(here)
            missing |= away
            since, where = max(since, max(here.values())), f"{one.verb} of group {one.group or 'all'}"
    return waits, missing, since, where
