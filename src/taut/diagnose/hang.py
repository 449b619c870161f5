"""Hang: a job has stopped. Who did not come to a gate, who waits there, and which of those who are late have no excuse.

Read from the flight recorders of the ranks. A call is *open* at a rank if it did not complete there, or cannot have,
because a member never made it. A rank with an open call *waits for* the members that did not make that call, and for
members whose own oldest open call came before it. Somebody is waited for with an excuse if he waits himself. Without
excuse are those who wait for nobody (they stopped outside communication, or in an operation that all the others
completed: host or device), and those who made fewer calls than all the others that wait in the same call, which stopped
none of these. They are named; the rest are victims.

Null hypothesis: every member made every call that any member made. There is no noise in it, so there is no rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.rank_words import rank_label
from taut.core.tables import Trace, Verb
from taut.diagnose.finding import Evidence, Finding

MODE = "hang"
MODES = (MODE,)
RELIABLE = "nccl"
"""Calls of this library are marked as completed only if they did; others also when they failed."""
NAMED = 6
"""Ranks that a sentence lists; of more it says how many there are."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """At most one finding: all who stopped, together."""
    trace = evidence.graph.trace
    if not len(trace.calls):
        return None
    calls = Calls(trace)
    stopped = calls.stopped
    if not stopped:
        return None  # exact: there is no chance to correct for
    waiting, last = sorted(calls.waits_for), int(evidence.graph.steps[-1])
    names = Counter(call.name for rank in waiting for call in calls.open[rank] if call.missing & stopped)
    return [
        Finding(
            mode=MODE,
            ranks=tuple(sorted(stopped)),
            classes=tuple(name for name, _ in names.most_common(3)),
            steps=(last, last),
            lost_rank_ns=calls.lost_ns(waiting),
            confidence=1.0,
            because=calls.describe(stopped, waiting),
            certain="the job stopped: nothing more is done until they are mended",
        )
    ]


class Open(Struct, frozen=True):
    """One open call of one rank."""

    gate: tuple[int, int, int]
    """Group, sequence number, and the peer of a send or receive (-1 for a collective)."""
    name: str
    order: int
    """Row among all calls: those of a rank are in the order in which it made them."""
    created_ns: int
    missing: frozenset[int]
    """Members that did not make it."""


class Calls:
    """What the flight recorders of a job hold together."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.table = trace, trace.calls
        self.dumped = set(trace.dumped)
        self.alive = self.dumped | set(trace.members.rank.tolist())
        """Ranks that left something: a dump, or a trace. One that left a trace only is no suspect."""
        self.hop = np.isin(self.table.verb, (Verb.SEND, Verb.RECV))
        mixed = np.unique(self.table.group[self.hop])
        counted = (self.table.created_ns < 0) & np.isin(self.table.group, mixed)  # counts hops and collectives together
        self.collective = ~self.hop & ~counted & (self.table.seq >= 0)

    def members(self, group: int) -> list[int]:
        """Ranks of a process group: as configured, else those that made a call of it."""
        known = self.trace.group_ranks.get(self.trace.groups[group])
        return list(known) if known else np.unique(self.table.rank[self.table.group == group]).tolist()

    @cached_property
    def made(self) -> dict[int, dict[int, int]]:
        """Last collective that every rank made in every group."""
        out: dict[int, dict[int, int]] = defaultdict(dict)
        t = self.table
        for group, rank, seq in zip(*(c[self.collective].tolist() for c in (t.group, t.rank, t.seq)), strict=True):
            out[group][rank] = max(seq, out[group].get(rank, -1))
        return out

    @cached_property
    def open(self) -> dict[int, list[Open]]:
        """Open calls of every rank, oldest first."""
        t, out = self.table, defaultdict(list)
        members = {g: [r for r in self.members(g) if r in self.dumped] for g in np.unique(t.group).tolist()}
        slowest = {g: min((self.made[g].get(r, -1) for r in members[g]), default=-1) for g in self.made}
        met = self._met()
        for row in np.flatnonzero(t.created_ns >= 0).tolist():
            rank, group, seq, peer = (int(column[row]) for column in (t.rank, t.group, t.seq, t.peer))
            missing: set[int] = set()
            if row in met:
                missing = set() if met[row] else {peer} & self.dumped
            elif self.collective[row] and seq > slowest[group]:
                missing = {r for r in members[group] if self.made[group].get(r, -1) < seq}
            name = self.trace.names[t.name[row]]
            if missing or not t.done[row] or (row in self._unsure and not name.startswith(RELIABLE)):
                out[rank].append(Open((group, seq, peer), name, row, int(t.created_ns[row]), frozenset(missing)))
        return out

    @cached_property
    def _unsure(self) -> set[int]:
        """The last collective of every rank in every group that has a member who left nothing: perhaps it failed."""
        t = self.table
        rows = np.flatnonzero(self.collective & (t.created_ns >= 0))
        last = {(rank, group): row for rank, group, row in zip(t.rank[rows], t.group[rows], rows, strict=True)}
        return {int(row) for (_, group), row in last.items() if not self.alive.issuperset(self.members(int(group)))}

    def _met(self) -> dict[int, bool]:
        """Of every open send and receive, whether the other end made its part.

        Two that send to nobody else in a group count alike; else the n-th open one of either meets the n-th of the other.
        """
        t = self.table
        ends: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
        for row in np.flatnonzero(self.hop & (t.done == 0) & (t.peer >= 0)).tolist():
            ends[int(t.group[row]), int(t.rank[row]), int(t.peer[row]), t.verb[row] == Verb.SEND].append(row)
        out = {}
        for (group, rank, peer, sends), mine in ends.items():
            if self._count_alike(group, rank, peer):
                out.update({row: int(t.seq[row]) <= self._last_hop(group, peer) for row in mine})
            else:
                theirs = ends.get((group, peer, rank, not sends), [])
                out.update({row: n < len(theirs) for n, row in enumerate(mine)})
        return out

    @cached_property
    def hops(self) -> dict[tuple[int, int], dict[int, int]]:
        """Of every group and rank: the last send or receive with every peer."""
        out: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        t = self.table
        for group, rank, peer, seq in zip(*(c[self.hop].tolist() for c in (t.group, t.rank, t.peer, t.seq)), strict=True):
            out[group, rank][peer] = max(seq, out[group, rank].get(peer, -1))
        return out

    @cached_property
    def counted(self) -> dict[tuple[int, int], int]:
        """Last call of a rank in a group of which its dump holds nothing but the status: it completed all it made."""
        t = self.table
        rows = np.flatnonzero(t.created_ns < 0)
        return {(int(t.group[row]), int(t.rank[row])): int(t.seq[row]) for row in rows}

    def _last_hop(self, group: int, rank: int) -> int:
        return max([*self.hops[group, rank].values(), self.counted.get((group, rank), -1)])

    def _count_alike(self, group: int, rank: int, peer: int) -> bool:
        """Whether two ranks number their sends and receives alike: neither has another peer in the group."""
        theirs = set(self.hops[group, peer])
        return set(self.hops[group, rank]) == {peer} and (theirs == {rank} or (not theirs and (group, peer) in self.counted))

    @cached_property
    def waits_for(self) -> dict[int, set[int]]:
        """Whom every rank that waits waits for."""
        out: dict[int, set[int]] = {}
        for rank, calls in self.open.items():
            late = set().union(*(call.missing for call in calls)) or self._held(rank, calls[0])
            late |= self._silent(calls[0]) if not late else set()
            if late - {rank}:
                out[rank] = late - {rank}
        return out

    def _held(self, rank: int, call: Open) -> set[int]:
        """Members that made a call too, but have an older one open."""
        group, seq, peer = call.gate
        held = set()
        for other in [peer] if peer >= 0 else self.members(group):
            oldest = self.open[other][0] if other in self.open else None
            same = oldest is not None and (oldest.gate == call.gate or oldest.gate == (group, seq, rank))
            if oldest is not None and not same and other != rank and not self._passed(other, call, rank):
                held.add(other)
        return held

    def _passed(self, other: int, call: Open, rank: int) -> bool:
        """Whether another member completed a call."""
        group, seq, peer = call.gate
        if peer >= 0:
            theirs = [o.gate[1] for o in self.open.get(other, ()) if o.gate[0] == group and o.gate[2] == rank]
            if not self._count_alike(group, rank, peer):
                return not theirs
            return seq not in theirs and self._last_hop(group, peer) >= seq
        return self.made[group].get(other, -1) >= seq and not any(o.gate == call.gate for o in self.open.get(other, ()))

    def _silent(self, call: Open) -> set[int]:
        """Members without a dump, where nobody else keeps a call open: whoever completed it shows that they came."""
        group, _, peer = call.gate
        members = {peer} if peer >= 0 else set(self.members(group))
        return members - self.alive

    @cached_property
    def stopped(self) -> set[int]:
        """Ranks that are waited for without excuse."""
        late = set().union(*self.waits_for.values()) if self.waits_for else set()
        # First who waits for nobody, then who stopped earlier than all others in the same call, then who called something else.
        found = {rank for rank in late if rank not in self.waits_for}
        found |= {rank for rank in late - found if self._fell_behind(rank)}
        found |= self._odd
        return found or self._in_a_circle(late)

    def _fell_behind(self, rank: int) -> bool:
        """Whether all the others that have been waiting in the same call as long made more calls since.

        Then what it waits for is no excuse for having stopped: that call held none of them up.
        """
        oldest = self.open[rank][0].gate
        since = {r: len(calls) for r, calls in self.open.items() if calls[0].gate == oldest}
        others = [count for r, count in since.items() if r != rank]
        return len(others) > 1 and min(others) > since[rank]

    @cached_property
    def _odd(self) -> set[int]:
        """Ranks that made another call than most members did at the same place in their group."""
        made: dict[tuple[int, int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        t = self.table
        for rank, calls in self.open.items():
            for call in (c for c in calls if c.gate[2] < 0):
                verb = int(t.verb[call.order])
                made[call.gate][rank] = (verb, int(t.size[call.order]) if verb == Verb.ALL_REDUCE else -1)
        odd: set[int] = set()
        for kinds in made.values():
            (usual, count), *rest = Counter(kinds.values()).most_common()
            # Without a majority nobody knows which call was the wrong one.
            if rest and 2 * count > len(kinds):
                odd |= {rank for rank, kind in kinds.items() if kind != usual}
        return odd

    def _in_a_circle(self, late: set[int]) -> set[int]:
        """Ranks that wait for each other, where everybody who is waited for waits."""

        def reach(rank: int) -> set[int]:
            seen, todo = set(), [rank]
            while todo:
                for other in self.waits_for.get(todo.pop(), ()):
                    if other not in seen:
                        seen.add(other)
                        todo.append(other)
            return seen

        circles = [seen for rank in late if rank in (seen := reach(rank))]
        return min(circles, key=len, default=set())

    def lost_ns(self, waiting: Iterable[int]) -> int:
        """Rank time from the first open call of every rank that waits to the last call known: at least that was lost."""
        last = int(self.table.created_ns.max())
        return sum(max(last - self.open[rank][0].created_ns, 0) for rank in waiting)

    def describe(self, stopped: set[int], waiting: list[int]) -> str:
        """Who stopped, at which gate, and what shows it."""
        parts = []
        for rank in sorted(stopped)[:NAMED]:
            gates = Counter(
                (call.name, call.gate) for other in waiting for call in self.open[other] if rank in call.missing
            ).most_common(1)
            where = ""
            if gates:
                (name, (group, seq, _)), count = gates[0]
                where = f" did not call {name} {seq} of group {self.trace.groups[group]}, where {_ranks(count)} for it"
            parts.append(f"{rank_label(rank, self.trace.members)}{where}: {self._why(rank)}")
        more = f"; and {len(stopped) - NAMED} more" if len(stopped) > NAMED else ""
        return "; ".join(parts) + more + f"; {_ranks(len(waiting))} for them, or for a rank that does"

    def _why(self, rank: int) -> str:
        if rank not in self.dumped:
            return "it left no dump"
        if rank in self._odd:
            return "at the same place it made another call than the other members"
        if rank not in self.open:
            return "none of its calls is open, so it stopped outside communication (host, input, exception)"
        call = self.open[rank][0]
        if rank in self.waits_for:
            return "it waits, too, but all others that wait in the same call have made more calls since then"
        return f"its oldest open call, {call.name} {call.gate[1]}, was completed by the others, so its device stopped"


def _ranks(count: int) -> str:
    return f"{count} rank waits" if count == 1 else f"{count} ranks wait"


__all__ = ["MODES", "Calls", "detect"]
