"""Which calls of a job's flight recorders are open, and whom the rank that made one waits for there.

A call is *open* at a rank if it did not complete there. Where a library marks calls that failed as it marks those that
completed (all but NCCL), a call that a member never made is open as well. The *head* of a rank is its oldest open call,
sends left aside where it has others: nobody needs to wait for a send. A rank waits at its head for members that did not make
that call, for members that have another head, and for members of whom there is no dump. Members that are all there wait for
nobody: the transfer goes on, or it is stuck and no dump tells where. A call that somebody else completed has been made by all
its members, unless a root or a sender may be done without the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask
from taut.core.ids import numbered
from taut.core.tables import Trace, Verb

RELIABLE = "nccl"
"""Calls of this library are marked as completed only if they did; others also when they failed."""
ALL_MEET = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.ALL_TO_ALL, Verb.BARRIER)
"""Collectives that nobody completes before all members have made them."""
KNOWN_GATES = 20
"""Gates of a group, or calls of a rank, from which on it is known how far its members, or these calls, come apart."""
KNOWN_ELSEWHERE = 8
"""The same for gates of all groups."""
NOBODY = -1
"""Other end of a hop, or whoever is waited for in a call without a number: the dump does not tell."""


class _Gates(Struct, frozen=True):
    """Group of some gates, and how far their members came apart."""

    group: Ints
    apart_ns: Ints


class _Met(Struct, frozen=True):
    """Whether the other end of a hop made its part, completed it, and whether that is sure."""

    made: bool
    done: bool
    sure: bool = True


class Open(Struct, frozen=True):
    """One open call of one rank."""

    gate: tuple[int, int, int]
    """Group, sequence number, and the peer of a send or receive (-1 for a collective)."""
    name: str
    row: int
    """Row among all calls: those of a rank are in the order in which it made them."""
    created_ns: int
    sends: bool
    missing: frozenset[int]
    """Members with a dump that did not make it."""
    passed: bool
    """Whether all other members with a dump, at least one, completed it."""
    sure: bool = True
    """False for hops of which it is not known which one of the other end they meet."""

    @property
    def group(self) -> int:
        """Its process group."""
        return self.gate[0]


class Calls:
    """What the flight recorders of a job hold together."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.table = trace, trace.calls
        t = self.table
        self.dumped = set(trace.dumped)
        self.traced = set(trace.ended_ns)
        self.hop = np.isin(t.verb, (Verb.SEND, Verb.RECV))
        mixed = np.unique(t.group[self.hop])
        counted = (t.created_ns < 0) & np.isin(t.group, mixed)  # counts hops and collectives together
        self.collective = ~self.hop & ~counted & (t.seq >= 0)
        self.recorded = t.created_ns >= 0
        self.nccl = np.array([name.startswith(RELIABLE) for name in trace.names] + [False])[t.name]
        self._members: dict[int, tuple[int, ...]] = {}

    def members(self, group: int) -> tuple[int, ...]:
        """Ranks of a process group: as configured, else those that made a call of it."""
        if group not in self._members:
            known = self.trace.group_ranks.get(self.trace.groups[group])
            some = known or np.unique(self.table.rank[self.table.group == group]).tolist()
            self._members[group] = tuple(some)
        return self._members[group]

    @cached_property
    def made(self) -> dict[tuple[int, int], int]:
        """Last collective that every rank made in every group."""
        return self._last(self.collective)

    @cached_property
    def done_to(self) -> dict[tuple[int, int], int]:
        """Last collective that every rank completed in every group: they complete in order, and open ones stay recorded."""
        out = self._last(self.collective & self.done)
        first = self._last(self.collective & self.recorded, last=False)
        return {key: max(out.get(key, -1), first.get(key, 0) - 1) for key in out | first}

    def _last(self, rows: Mask, *, last: bool = True) -> dict[tuple[int, int], int]:
        """Greatest number, or the least, of some calls of every group and rank."""
        t = self.table
        cell, cells = numbered(t.group[rows], t.rank[rows])
        found = np.full(cells, -1 if last else np.iinfo(np.int64).max)
        (np.maximum if last else np.minimum).at(found, cell, t.seq[rows])
        at = np.unique(cell, return_index=True)[1]
        keys = zip(t.group[rows][at].tolist(), t.rank[rows][at].tolist(), strict=True)
        return {key: int(value) for key, value in zip(keys, found.tolist(), strict=True)}

    @cached_property
    def there(self) -> dict[int, list[int]]:
        """Members of every group that left a dump."""
        return {g: [r for r in self.members(g) if r in self.dumped] for g in np.unique(self.table.group).tolist()}

    @cached_property
    def done(self) -> Mask:
        """Calls that completed. Only NCCL says whether a call that a member did not make failed or completed."""
        t = self.table
        slowest = np.full(len(self.trace.groups), -1)
        for g, ranks in self.there.items():
            slowest[g] = min((self.made.get((g, r), -1) for r in ranks), default=-1)
        ahead = self.collective & ~self.nccl & self.recorded & (t.seq > slowest[t.group])
        out: Mask = (t.done == 1) & ~ahead & ~self._unsure
        return out

    @cached_property
    def open(self) -> dict[int, list[Open]]:
        """Open calls of every rank, oldest first."""
        t, out = self.table, defaultdict(list)
        for row in np.flatnonzero(self.recorded & ~self.done).tolist():
            rank, group, seq, peer = (int(column[row]) for column in (t.rank, t.group, t.seq, t.peer))
            missing: set[int] = set()
            passed, sure = False, True
            if self.hop[row]:
                met = self._met.get(row, _Met(False, False))
                missing = {peer} & self.dumped if not met.made else set()
                passed, sure = met.done, met.sure
            elif self.collective[row]:
                others = [r for r in self.there[group] if r != rank]
                missing = {r for r in others if self.made.get((group, r), -1) < seq}
                passed = bool(others) and all(self.done_to.get((group, r), -1) >= seq for r in others)
            gate = (group, seq, peer if self.hop[row] else -1)
            name, sends = self.trace.names[t.name[row]], bool(t.verb[row] == Verb.SEND)
            out[rank].append(Open(gate, name, row, int(t.created_ns[row]), sends, frozenset(missing), passed, sure))
        return out

    @cached_property
    def _unsure(self) -> Mask:
        """The last collective of every rank in every group that has a member who left nothing: perhaps it failed."""
        t = self.table
        rows = np.flatnonzero(self.collective & self.recorded & ~self.nccl)
        last = {(rank, group): row for rank, group, row in zip(t.rank[rows], t.group[rows], rows, strict=True)}
        left = self.dumped | self.traced | set(self.trace.members.rank.tolist())
        out = np.zeros(len(t), dtype=np.bool_)
        for (_, group), row in last.items():
            out[row] = not left.issuperset(self.members(int(group)))
        return out

    @cached_property
    def _met(self) -> dict[int, _Met]:
        """What the other end of every open send and receive did."""
        t = self.table
        ends: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
        for row in np.flatnonzero(self.hop & (t.peer >= 0)).tolist():
            ends[int(t.group[row]), int(t.rank[row]), int(t.peer[row]), t.verb[row] == Verb.SEND].append(row)
        out = {}
        for (group, rank, peer, sends), mine in ends.items():
            theirs = ends.get((group, peer, rank, not sends), [])
            if peer in self.dumped:
                out.update(self._matched(mine, theirs, group, rank, peer))
        return out

    def _matched(self, mine: list[int], theirs: list[int], group: int, rank: int, peer: int) -> dict[int, _Met]:
        """What became of the open ones among the hops of one direction between two ranks, in their order."""
        t = self.table
        left = [row for row in mine if not self.done[row]]
        numbered = all(t.seq[row] >= 0 for row in (*mine, *theirs))
        if numbered and self.count_alike(group, rank, peer):  # then one number is one hop
            at = {int(t.seq[row]): row for row in theirs}
            made = self._last_hop(group, peer)
            return {
                row: _Met(int(t.seq[row]) <= made, int(t.seq[row]) <= made and not _open(self.done, at.get(int(t.seq[row]))))
                for row in left
            }
        if numbered and self._whole(group, rank) and self._whole(group, peer):
            nth = {row: n for n, row in enumerate(mine)}
            return {
                row: _Met(nth[row] < len(theirs), nth[row] < len(theirs) and bool(self.done[theirs[nth[row]]])) for row in left
            }
        there = sum(not self.done[row] for row in theirs)
        return {row: _Met(n < there, False, sure=False) for n, row in enumerate(left)}

    def _whole(self, group: int, rank: int) -> bool:
        """Whether the dump of a rank holds all its hops in a group: the first has the number 0 or 1."""
        return 0 <= self._first_hop.get((group, rank), -1) <= 1

    @cached_property
    def _first_hop(self) -> dict[tuple[int, int], int]:
        t, out = self.table, dict[tuple[int, int], int]()
        for group, rank, seq in zip(*(c[self.hop].tolist() for c in (t.group, t.rank, t.seq)), strict=True):
            out[group, rank] = min(seq, out.get((group, rank), seq))
        return out

    @cached_property
    def _hops(self) -> dict[tuple[int, int], dict[int, int]]:
        """Of every group and rank: the last send or receive with every peer."""
        out: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        t = self.table
        for group, rank, peer, seq in zip(*(c[self.hop].tolist() for c in (t.group, t.rank, t.peer, t.seq)), strict=True):
            out[group, rank][peer] = max(seq, out[group, rank].get(peer, -1))
        return out

    @cached_property
    def _counted(self) -> dict[tuple[int, int], int]:
        """Last call of a rank in a group of which its dump holds nothing but the status: it completed all it made."""
        t = self.table
        rows = np.flatnonzero(~self.recorded)
        return {(int(t.group[row]), int(t.rank[row])): int(t.seq[row]) for row in rows}

    def _last_hop(self, group: int, rank: int) -> int:
        return max([*self._hops[group, rank].values(), self._counted.get((group, rank), -1)])

    def count_alike(self, group: int, rank: int, peer: int) -> bool:
        """Whether two ranks number their sends and receives alike: neither has another peer in the group."""
        if len(self.members(group)) == 2:
            return True
        alone = set(self._hops[group, rank]) == {peer} and set(self._hops[group, peer]) == {rank}
        return alone and self._whole(group, rank) and self._whole(group, peer)

    @cached_property
    def head(self) -> dict[int, Open]:
        """Oldest open call of every rank that has one, sends aside where it has others."""
        return {rank: next((c for c in calls if not c.sends), calls[0]) for rank, calls in self.open.items()}

    @cached_property
    def wanted(self) -> set[int]:
        """Ranks with a dump that did not make a call that somebody has open."""
        return {rank for calls in self.open.values() for call in calls for rank in call.missing}

    @cached_property
    def waits_for(self) -> dict[int, set[int]]:
        """Whom every rank waits for at its head; nobody, where all are there."""
        return {rank: self._waits(rank, call) - {rank} for rank, call in self.head.items()}

    def _waits(self, rank: int, call: Open) -> set[int]:
        if call.passed:
            return set()
        group, seq, peer = call.gate
        if self.hop[call.row]:
            if peer not in self.dumped:
                return {peer}
            theirs = self.head.get(peer)
            same = theirs is not None and self.hop[theirs.row] and theirs.group == group and theirs.gate[2] == rank
            return set() if same and not call.missing else {peer}
        if seq < 0:
            return {NOBODY}
        members = set(self.members(group))
        out = set(call.missing)
        if not self._came(call, members):
            out |= members - self.dumped
        for other in members & self.dumped - call.missing:
            theirs = self.head.get(other)
            if self.done_to.get((group, other), -1) < seq and (theirs is None or theirs.gate != call.gate):
                out.add(other)
        return out

    def _came(self, call: Open, members: Iterable[int]) -> bool:
        """Whether somebody completed a collective that nobody completes before all have come."""
        done = any(self.done_to.get((call.group, r), -1) >= call.gate[1] for r in members)
        return done and bool(self.nccl[call.row]) and int(self.table.verb[call.row]) in ALL_MEET

    @cached_property
    def ends(self) -> dict[int, frozenset[int]]:
        """Where the ways of waiting that begin at every rank end: ranks that wait for nobody, or left no dump, or a circle."""
        out: dict[int, frozenset[int]] = {}
        for rank in self.head:
            seen = self._reach(rank)
            final = {r for r in seen if not self.waits_for.get(r)}
            # Without any, all go round: whoever is reached by all that are reached.
            out[rank] = frozenset(final or {r for r in seen if r in self._reach(r)})
        return out

    def _reach(self, rank: int) -> set[int]:
        seen: set[int] = set()
        todo = [rank]
        while todo:
            for other in self.waits_for.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen | ({rank} if not self.waits_for.get(rank) else set())

    @cached_property
    def pause_ns(self) -> dict[int, int]:
        """Longest time between two calls of every rank of which enough is recorded, open calls and others."""
        t = self.table
        rows = np.flatnonzero(self.recorded)
        rank, at = t.rank[rows], t.created_ns[rows]
        known = np.isin(rank, np.unique(rank[self.done[rows]]))
        same = (rank[1:] == rank[:-1]) & known[1:]
        out, count = dict[int, int](), Counter(rank[1:][same].tolist())
        for r, pause in zip(rank[1:][same].tolist(), np.diff(at)[same].tolist(), strict=True):
            if count[r] >= KNOWN_GATES:
                out[r] = max(pause, out.get(r, 0))
        return out

    @cached_property
    def last_ns(self) -> dict[int, int]:
        """When every rank last did something that is known: made a call, or ended an op of its trace."""
        t, out = self.table, dict[int, int]()
        for rank, at in zip(t.rank[self.recorded].tolist(), t.created_ns[self.recorded].tolist(), strict=True):
            out[rank] = max(at, out.get(rank, at))
        for rank, at in self.trace.ended_ns.items():
            out[rank] = max(at, out.get(rank, at))
        return out

    def apart_ns(self, call: Open, besides: set[int]) -> int | None:
        """How far members of a gate ever came apart: in the group of a call, else in all, some ranks aside; None if unknown."""
        gates = self._hop_gates if self.hop[call.row] else self._collective_gates
        whole = gates.group == call.group
        if whole.sum() >= KNOWN_GATES:
            return int(gates.apart_ns[whole].max())
        if self.hop[call.row]:
            return None
        rows = np.flatnonzero(self.recorded & self.collective & ~np.isin(self.table.rank, list(besides)))
        gates = self._gates(rows)
        return int(gates.apart_ns.max()) if len(gates.group) >= KNOWN_ELSEWHERE else None

    @cached_property
    def _collective_gates(self) -> _Gates:
        return self._gates(np.flatnonzero(self.recorded & self.collective), whole=True)

    @cached_property
    def _hop_gates(self) -> _Gates:
        """Hops whose ends number them alike."""
        t = self.table
        rows = np.flatnonzero(self.recorded & self.hop & (t.seq >= 0) & (t.peer >= 0))
        ends = [tuple(map(int, end)) for end in zip(t.group[rows], t.rank[rows], t.peer[rows], strict=True)]
        alike = {end: self.count_alike(*end) for end in set(ends)}
        return self._gates(rows[np.array([alike[end] for end in ends], dtype=np.bool_)], whole=True)

    def _gates(self, rows: Ints, *, whole: bool = False) -> _Gates:
        """Gates that at least two ranks made; only those that all members with a dump made, if asked."""
        t = self.table
        gate, gates = numbered(t.group[rows], t.seq[rows])
        first, last = np.full(gates, np.iinfo(np.int64).max), np.full(gates, np.iinfo(np.int64).min)
        np.minimum.at(first, gate, t.created_ns[rows])
        np.maximum.at(last, gate, t.created_ns[rows])
        group = np.zeros(gates, dtype=np.int64)
        group[gate] = t.group[rows]
        size = np.array([len(self.there.get(g, ())) for g in range(len(self.trace.groups))], dtype=np.int64)
        count = np.bincount(gate, minlength=gates)
        kept = (count > 1) & (count >= (size[group] if whole else 0))
        return _Gates(group[kept], (last - first)[kept])


def _open(done: Mask, row: int | None) -> bool:
    return row is not None and not done[row]


__all__ = ["ALL_MEET", "NOBODY", "Calls", "Open"]
