"""Hang: a job has stopped. Who stopped, who only waits for them, and what the dumps cannot tell.

Read from the flight recorders of the ranks (``open_calls.py`` says who waits for whom). In a job that stands still everybody
waits, or has stopped. Stopped are: a rank without an open call that others wait for (outside communication: host, input,
exception); a rank whose oldest open call all the others completed, whatever it enqueued later (its device, or whatever
watches it); a rank whose device did not begin the call that all the other members have begun; a rank that made another call
than most members at the same place; ranks that wait for each other; and a rank without a dump that cannot wait for anybody
else, because whoever it meets waits for it (only if all others left a dump, and some a trace: else it may be the dump that is
missing). The rest are victims.

A job that runs looks the same at the moment at which all wait for the last to come. So a hang needs a sign that the job
stands still: two sets of dumps in which nobody moved; traces or metrics that go on while nobody makes a call; a rank that stays
away from a gate, while the others wait there, for more than TWICE as long as any two ranks ever came apart; or a rank that is
silent, while others go on, for more than TWICE its longest pause. From one set all wait, and fewer than half stop. A rank is
no suspect if it moved between two dumps, or if somebody completed a call that it had not made when it was dumped: then the
dumps are of different times. Without a sign there is no finding, and a note says whom it would be.

Null hypothesis: every member made every call that any member made. There is no noise in it, so there is no rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.rank_words import rank_label, rank_labels
from taut.core.tables import Trace, Verb
from taut.diagnose.finding import Evidence, Finding
from taut.diagnose.open_calls import ALL_MEET, Calls, Open

MODE = "hang"
MODES = (MODE,)
NAMED = 6
"""Ranks that a sentence lists; of more it says how many there are."""
TWICE = 2
"""A rank that is late by more than this many times what ranks ever came apart has stopped."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """At most one finding: all who stopped, together."""
    trace = evidence.graph.trace
    if not len(trace.calls) or not trace.dumped:
        return None
    hang = Hang(trace)
    if not hang.sign:
        return None  # exact: there is no chance to correct for
    calls, last = hang.calls, int(evidence.graph.steps[-1])
    waiting = sorted(calls.open.keys() - hang.stopped)
    names = Counter(call.name for rank in waiting for call in calls.open[rank] if call.missing & hang.stopped)
    return [
        Finding(
            mode=MODE,
            ranks=tuple(sorted(hang.stopped)),
            classes=tuple(name for name, _ in names.most_common(3)),
            steps=(last, last),
            lost_rank_ns=hang.lost_ns(waiting),
            confidence=1.0,
            because=hang.describe(waiting),
            certain="the job stopped: nothing more is done until they are mended",
        )
    ]


def notes(trace: Trace) -> list[str]:
    """What the dumps cannot tell of a hang."""
    if all(trace.moved.get(rank, False) for rank in trace.dumped):  # every rank went on from one dump to the next
        return []
    return Hang(trace).untold if len(trace.calls) else []


class Late(Struct, frozen=True):
    """A rank that others wait for at a gate, and for how long at least."""

    rank: int
    call: Open
    waited_ns: int
    usual_ns: int


class Hang:
    """Who stopped, and what shows it."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.calls = trace, Calls(trace)

    @cached_property
    def stopped(self) -> set[int]:
        """Ranks that stopped, in a job of which the dumps show that it stands still."""
        return self.suspects if self.sign else set()

    @cached_property
    def suspects(self) -> set[int]:
        """Ranks that stopped, if the job stands still."""
        calls = self.calls
        found = {rank for rank in calls.wanted if rank not in calls.open}
        found |= self._passed
        found |= self._odd | self._unbegun
        if self._left_all:
            found |= {rank for rank in self.absent if self._has_no_excuse(rank)}
        found -= self.older
        return found or self._in_a_circle - self.older

    @cached_property
    def absent(self) -> set[int]:
        """Ranks without a dump or a trace that others wait for."""
        late = set().union(*self.calls.waits_for.values()) if self.calls.waits_for else set()
        return {rank for rank in late - self.calls.dumped - self.calls.traced if rank >= 0}

    @cached_property
    def older(self) -> set[int]:
        """Ranks that went on after their dump: they moved between two, or others completed what they had not made yet."""
        calls, t = self.calls, self.calls.table
        moved = {rank for rank, moved in self.trace.moved.items() if moved}
        rows = np.flatnonzero(calls.collective & calls.nccl & (t.done == 1) & np.isin(t.verb, ALL_MEET))
        last: dict[int, int] = defaultdict(lambda: -1)
        for group, seq in zip(t.group[rows].tolist(), t.seq[rows].tolist(), strict=True):
            last[group] = max(last[group], seq)
        for group, seq in list(last.items()):
            moved |= {r for r in calls.members(group) if r in calls.dumped and calls.made.get((group, r), -1) < seq}
        for rank in (calls.traced & calls.dumped) - calls.open.keys():
            come = [c.created_ns for r, c in calls.head.items() if rank in c.missing]
            moved |= {rank} if come and calls.last_ns[rank] > max(come) else set()
        return moved

    def _has_no_excuse(self, rank: int) -> bool:
        """Whether a rank without a dump cannot wait for anybody: whoever it meets waits for it.

        It cannot wait in a group of which a member waits for it and has no call open: all members make their calls in the
        same order, so that member would wait there, too.
        """
        calls = self.calls
        waiting = {r for r, late in calls.waits_for.items() if rank in late}
        for group in range(len(self.trace.groups)):
            members = set(calls.members(group))
            if rank not in members:
                continue
            busy = {r: any(c.group == group for c in calls.open[r]) for r in waiting & members}
            if busy and not all(busy.values()):
                continue
            if any(calls.ends.get(r) != frozenset({rank}) for r in members - {rank}):
                return False
        return bool(waiting)

    @cached_property
    def _odd(self) -> set[int]:
        """Ranks that made another call than most members did at the same place in their group."""
        made: dict[tuple[int, int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        t = self.calls.table
        for rank, calls in self.calls.open.items():
            for call in (c for c in calls if not self.calls.hop[c.row]):
                verb = int(t.verb[call.row])
                made[call.gate][rank] = (verb, int(t.size[call.row]) if verb == Verb.ALL_REDUCE else -1)
        odd: set[int] = set()
        for gate, kinds in made.items():
            (usual, count), *rest = Counter(kinds.values()).most_common()
            # Without a majority of all members nobody knows which call was the wrong one.
            if rest and 2 * count > len(self.calls.members(gate[0])):
                odd |= {rank for rank, kind in kinds.items() if kind != usual}
        return odd

    @cached_property
    def _unbegun(self) -> set[int]:
        """Ranks whose device did not begin the call in which all the others are."""
        calls, t = self.calls, self.calls.table
        there: dict[tuple[int, int, int], dict[int, bool]] = defaultdict(dict)
        for rank, call in calls.head.items():
            if not calls.hop[call.row] and not calls.waits_for[rank]:
                there[call.gate][rank] = bool(t.started[call.row])
        late = {}
        for gate, begun in there.items():
            out = [rank for rank, there in begun.items() if not there]
            if len(begun) == len(calls.members(gate[0])) and 0 < len(out) < len(begun) - len(out):
                late[gate] = out
        return {rank for out in late.values() for rank in out}

    @cached_property
    def _in_a_circle(self) -> set[int]:
        """Ranks that wait for each other, where nobody else is waited for."""
        calls = self.calls
        ends = {end for end in calls.ends.values() if all(r in calls.head and self._misses(r, end) for r in end)}
        return set().union(*sorted(ends, key=lambda end: (len(end), sorted(end)))[:1])

    def _misses(self, rank: int, others: frozenset[int]) -> bool:
        """Whether some of these surely did not make the call in which a rank waits."""
        call = self.calls.head[rank]
        return call.sure and bool(call.missing & others)

    @cached_property
    def _passed(self) -> set[int]:
        """Ranks whose oldest open call all the others completed."""
        return {rank for rank, call in self.calls.head.items() if call.passed and not call.sends}

    @cached_property
    def sign(self) -> str:
        """What shows that the job stands still; empty if nothing does."""
        calls = self.calls
        if calls.dumped and calls.open and all(self.trace.moved.get(rank) is False for rank in calls.dumped):
            return "nobody moved between two sets of dumps"
        if not self.suspects:
            return ""
        if self._odd & self.suspects:
            return "calls that do not match never complete"
        if self.suspects & self.absent:
            return "all others left a dump, and some a trace"
        if not self._closed or self.older or 2 * len(self.suspects) >= len(calls.dumped):
            return ""
        late = max(self.late, key=lambda one: one.waited_ns - TWICE * one.usual_ns, default=None)
        if late is not None and late.waited_ns > TWICE * late.usual_ns:
            ms = late.waited_ns / 1e6
            usual = f"ranks came at most {late.usual_ns / 1e6:.3g} ms apart elsewhere"
            who = rank_label(late.rank, self.trace.members)
            return f"{who} stays away from {self._gate(late.call)} for at least {ms:.3g} ms; {usual}"
        return self._silent or self._watched

    @cached_property
    def late(self) -> list[Late]:
        """Suspects that did not make the call in which others wait, with how long those waited at least."""
        calls, found = self.calls, dict[tuple[int, tuple[int, int, int]], list[int]]()
        for rank, call in calls.head.items():
            for other in call.missing & self.suspects:
                found.setdefault((other, call.gate), []).append(rank)
        out = []
        for (rank, _), waiting in found.items():
            call = max((calls.head[r] for r in waiting), key=lambda c: c.created_ns)
            usual = calls.apart_ns(call, self.suspects)
            if usual is not None:
                until = max(calls.last_ns[r] for r in waiting)
                out.append(Late(rank, call, until - call.created_ns, usual))
        return out

    @cached_property
    def _silent(self) -> str:
        """That a rank did nothing for longer than ever before, by what the others still did."""
        calls = self.calls
        if any(rank in calls.head for rank in self.suspects):
            return ""  # what others completed is open there: the dumps may be of different times
        end = max(calls.last_ns.values(), default=0)
        silent = {r: end - calls.last_ns[r] - TWICE * pause for r, pause in calls.pause_ns.items()}
        rank = max(silent, key=lambda r: silent[r], default=-1)
        if rank < 0 or silent[rank] <= 0:
            return ""
        ms, before = (end - calls.last_ns[rank]) / 1e6, calls.pause_ns[rank] / 1e6
        return f"{rank_label(rank, self.trace.members)} made no call for {ms:.3g} ms, never more than {before:.3g} ms before"

    @cached_property
    def _watched(self) -> str:
        """That metrics beside the dumps go on for longer than anybody ever paused, and no step is logged meanwhile."""
        metrics, progress, pauses = self.trace.metrics, self.trace.progress, self.calls.pause_ns.values()
        end = max(self.calls.last_ns.values(), default=0)
        silent = int(metrics.time_ns.max(initial=0)) - end
        if not pauses or silent <= TWICE * max(pauses) or progress.end_ns.max(initial=0) > end + max(pauses):
            return ""
        return (
            f"metrics go on for {silent / 1e6:.3g} ms after the last call; nobody paused for more than {max(pauses) / 1e6:.3g}"
        )

    @cached_property
    def _left_all(self) -> bool:
        """Whether all but those that others wait for, who are fewer, left a dump, and some a trace."""
        world = {rank for ranks in self.trace.group_ranks.values() for rank in ranks}
        return 2 * len(self.absent) < len(world) and world - self.absent <= self.calls.dumped and bool(self.calls.traced)

    @cached_property
    def _closed(self) -> bool:
        """Whether everybody who left a dump stopped, or waits for somebody who did, or left none."""
        gone = self.suspects | self.absent
        return all(r in gone or ((e := self.calls.ends.get(r)) and e <= gone) for r in self.calls.dumped)

    @cached_property
    def untold(self) -> list[str]:
        """What cannot be told, one line each."""
        out = []
        if self.suspects and not self.stopped and self.calls.dumped - self.suspects:
            out.append(
                f"one set of dumps does not tell whether the job stood still: if it did, {self._listed(self.suspects)} stopped "
                "and the others wait; if it ran, they are only the last to come; a second set of dumps, or traces, would tell"
            )
        behind = self.older & (self.calls.wanted | self._passed)
        if behind:
            out.append(
                f"the dumps are of different times: {self._listed(behind)} went on afterwards, so they did not stop there"
            )
        return [*out, *self._unnamed]

    @cached_property
    def _unnamed(self) -> list[str]:
        """Of whom the dumps do not tell whether they stopped."""
        calls, out = self.calls, []
        if gone := self.absent - self.suspects:
            out.append(f"others wait for {self._listed(gone)}, of which there is no dump: it died, or it waits, too")
        stuck = [c for r, c in calls.head.items() if not calls.waits_for[r] and r not in self.suspects]
        if stuck:
            gate, count = Counter(c.gate for c in stuck).most_common(1)[0]
            call = next(c for c in stuck if c.gate == gate)
            who = "all members are" if count == len(calls.members(gate[0])) else _ranks(count, "is", "are")
            out.append(f"{who} in {self._gate(call)}: it goes on, or a device or a link is stuck in it")
        if self.sign and (behind := self._fell_behind):
            out.append(
                f"{self._listed(behind)} made fewer calls than all others that wait in the same one: stopped, too, or does not "
                "run ahead as they do"
            )
        circle = {r for r, end in calls.ends.items() if r in end and calls.waits_for[r]} - self.suspects
        if circle and not self.suspects:
            out.append(f"{self._listed(circle)} wait for each other, or one of them missed that a send or receive completed")
        return out

    @cached_property
    def _fell_behind(self) -> set[int]:
        """Ranks that wait in a collective like others, all of which made more calls since."""
        calls, there = self.calls, defaultdict[tuple[int, int, int], dict[int, int]](dict)
        for rank, call in calls.head.items():
            if not calls.hop[call.row] and rank not in self.suspects:
                there[call.gate][rank] = len(calls.open[rank])
        ordered = [sorted(since, key=lambda r: since[r]) for since in there.values() if len(since) > 2]
        return {first for first, second, *_ in ordered if len(calls.open[first]) < len(calls.open[second])}

    def _listed(self, ranks: Iterable[int]) -> str:
        return rank_labels(tuple(sorted(ranks)), self.trace.members)

    def lost_ns(self, waiting: Iterable[int]) -> int:
        """Rank time from the first open call of every rank that waits to the last call known: at least that was lost."""
        last = int(self.calls.table.created_ns.max())
        return sum(max(last - self.calls.open[rank][0].created_ns, 0) for rank in waiting)

    def _gate(self, call: Open) -> str:
        return f"{call.name} {call.gate[1]} of group {self.trace.groups[call.group]}"

    def describe(self, waiting: list[int]) -> str:
        """Who stopped, at which gate, and what shows it."""
        calls, parts = self.calls, []
        for rank in sorted(self.stopped)[:NAMED]:
            gates = Counter(
                self._gate(call) for other in waiting for call in calls.open[other] if rank in call.missing
            ).most_common(1)
            where = "" if not gates else f" did not call {gates[0][0]}, where {_ranks(gates[0][1])} for it"
            parts.append(f"{rank_label(rank, self.trace.members)}{where}: {self._why(rank)}")
        more = [f"and {len(self.stopped) - NAMED} more"] if len(self.stopped) > NAMED else []
        wait = f"{_ranks(len(waiting))} for them, or for a rank that does" if parts else f"{_ranks(len(waiting))}"
        return "; ".join([*parts, *more, wait, self.sign, *([] if parts else self._unnamed)])

    def _why(self, rank: int) -> str:
        calls = self.calls
        if rank not in calls.dumped:
            return "it left no dump"
        if rank in self._odd:
            return "at the same place it made another call than the other members"
        if rank not in calls.open:
            return "none of its calls is open, so it stopped outside communication (host, input, exception)"
        call = calls.head[rank]
        if call.passed:
            return f"its oldest open call, {call.name} {call.gate[1]}, was completed by the others, so its device stopped"
        if rank in self._unbegun:
            return f"its device did not begin {call.name} {call.gate[1]}, which all the others began"
        return f"it waits in {self._gate(call)} for a rank that waits for it"


def _ranks(count: int, one: str = "waits", several: str = "wait") -> str:
    return f"{count} rank {one}" if count == 1 else f"{count} ranks {several}"


__all__ = ["MODES", "Hang", "detect", "notes"]
