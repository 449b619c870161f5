"""Flight-recorder dumps of a job that runs, as a trace: when its ranks came to their gates, and what they did in between.

A dump records when a rank made a call, of which group and with which number, not when the call ended. So:

- A gate opens when the last of its members has come, and lasts no longer: transfers take no time here, and what they
  really took counts as work of those who went on after them.
- Whether a rank waits in a call, or goes on beside it and waits later or never, is not recorded. For every place in the
  step, that is taken under which the work up to the next call varies least from step to step.
- Clocks cannot be fitted on ends that nobody saw. Where that work varies clearly less if clocks are off by as much as
  ranks usually differ where they come most closely together, they are set right by it.
- Steps are turns of the sequence of calls that recurs (``recurring_calls.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, occurrence
from taut.core.tables import NULL, Kind, Op, Table, Verb, concat
from taut.read.columns import medians
from taut.read.flight import recurring_calls as recurs
from taut.read.verb_words import ALL_WAIT, HOPS

# Work must vary by this much less before a rank is taken not to wait at once …
CLEARLY = 0.95
# … and over all by this much less before clocks are taken to be off.
SKEWED = 0.96
# Share of calls made before a gate opened from which on nobody waits for that gate there.
IMPOSSIBLE = 0.05
# A call may seem to be made this much before what it waited for: clocks of hosts agree no better.
TIMER_NS = 100_000
# Clocks that are off by less are left alone.
WORTH_NS = 500_000
# A rank is tried to have waited after each of so many parts of the time that usually lies between two calls.
PARTS = 16
# Kinds of groups that calls are tried to wait for, the commonest.
MOST_CHANNELS = 8
# Calls from which waits are inferred, steps from which clocks are (all ranks run one program), and rounds of their fit.
SAMPLE, SAMPLE_STEPS, ROUNDS = 100_000, 64, 50
# Times farther apart than this are no times of one job.
SPAN_NS = 1 << 52
OWN, ASIDE = 0, 1
# What a rank does and the calls it waits in; calls beside which it goes on.
LANES = ("own", "calls aside")


class Laid(Struct, frozen=True):
    """What dumps of a running job show: its ops, the names of all that is done, and how that was found."""

    ops: Table
    names: list[str]
    steps: int
    outside: int
    """Calls that belong to no whole step."""
    clocks: dict[int, int]
    """Rank → ns by which its clock was off, where that was set right."""


def lay_out(calls: Table, names: Sequence[str], steps: Ints | None = None) -> Laid | None:
    """The ops of a job of which all calls completed, rows in the order of ranks and time; None if nothing recurs in them.

    ``steps`` are those of the calls where they are known: numbers from 1 on, 0 for the first, which is only what came before.
    """
    if not len(calls) or int(calls.created_ns.max()) - int(calls.created_ns.min()) > SPAN_NS:
        return None
    if steps is not None:
        seen = Calls(calls, sized=True)
        seen.step = steps
        return _laid(Waits(seen), names) if (steps > 0).any() else None
    for sized in (True, False):  # sizes may differ from step to step
        seen = Calls(calls, sized)
        if seen.find_steps():
            return _laid(Waits(seen), names)
    return None


class Calls:
    """The calls of all ranks: of whom, at which gate, over which channel, and in which step."""

    def __init__(self, calls: Table, sized: bool) -> None:
        self.calls, roles = calls, _roles(calls)
        self.ranks, self.rank = np.unique(calls.rank, return_inverse=True)
        self.begin = np.searchsorted(self.rank, np.arange(len(self.ranks) + 1))
        self.hop = np.isin(calls.verb, HOPS)
        self.gate, self.gates = self._gates()
        self.size = calls.size if sized else np.full(len(calls), NULL)
        self.channel, _ = numbered(roles, np.where(self.hop, calls.verb, 0))
        # A token is what recurs from step to step: the same call, to a rank at the same distance.
        self.token, _ = numbered(roles, calls.name, self.size, np.where(self.hop, calls.peer - calls.rank, 0))
        self.step = np.full(len(calls), NULL)

    def _gates(self) -> tuple[Ints, int]:
        """Gate of every call, -1 where it is not known whom it waits for."""
        c = self.calls
        gate = np.full(len(c), NULL)
        meets = np.isin(c.verb, ALL_WAIT) & (c.seq >= 0)
        gate[meets], count = numbered(c.group[meets], c.seq[meets])
        hops = np.flatnonzero(self.hop & (c.peer >= 0))[::-1]
        sends = c.verb[hops] == Verb.SEND
        source, sink = np.where(sends, c.rank[hops], c.peer[hops]), np.where(sends, c.peer[hops], c.rank[hops])
        channel, _ = numbered(c.group[hops], source, sink)
        # Counted from the end: both completed all they began, and the start may be lost.
        number, pairs = numbered(channel, occurrence(channel, sends))
        gate[hops] = count + number
        return gate, count + pairs

    def find_steps(self) -> bool:
        """Number the steps of all ranks alike; False if nothing recurs, or a rank has nothing in common with the others."""
        # Steps are found in the calls of the rank that recorded most, and reach the others through shared gates.
        main = int(np.argmax(np.diff(self.begin)))
        rows = self._rows(main)
        found = recurs.turns(self.token[rows], self.calls.created_ns[rows])
        if found is None:
            return False
        step_of = np.full(self.gates + 1, NULL)  # step of every gate; the last entry stands for none
        self._mark(rows, found.turn, step_of)
        todo = [rank for rank in range(len(self.ranks)) if rank != main]
        while todo:
            left = []
            for rank in todo:
                rows = self._rows(rank)
                if (step_of[self.gate[rows]] < 0).all():
                    left.append(rank)
                else:
                    self._mark(rows, self._steps(rows, found.sequence, step_of), step_of)
            if len(left) == len(todo):
                return False
            todo = left
        return bool(np.isin(np.arange(len(self.ranks)), self.rank[self.step > 0]).all())

    def _rows(self, rank: int) -> slice:
        return slice(int(self.begin[rank]), int(self.begin[rank + 1]))

    def _mark(self, rows: slice, step: Ints, step_of: Ints) -> None:
        self.step[rows] = step
        new = step_of[self.gate[rows]] < 0
        step_of[self.gate[rows][new]] = step[new]
        step_of[-1] = NULL

    def _steps(self, rows: slice, sequence: Ints, step_of: Ints) -> Ints:
        """Steps of a rank that shares gates with ranks whose steps are known."""
        known, own = step_of[self.gate[rows]], recurs.turns_of(sequence, self.token[rows])
        both = (known >= 0) & (own >= 0)
        if both.any():
            step = own + int(np.median(known[both] - own[both]))
            step = np.where((own >= 0) & (step >= 0) & (step <= known.max()), step, NULL)
            recurs.between(step)
            return step
        # Another program, as the stages of a pipeline have: a step begins with the first gate that others count to it.
        step = np.maximum.accumulate(known)
        step[np.flatnonzero(known >= 0)[-1] + 1 :] = NULL
        return step


def _roles(calls: Table) -> Ints:
    """Kind of every call's group: those alike in how far their members are apart, each rank's in the order of their last call.

    All ranks end at the same place of their program, wherever what is recorded of them begins.
    """
    pair, _ = numbered(calls.group, calls.rank)
    found, last = np.unique(pair[::-1], return_index=True)
    row = len(pair) - 1 - last
    group, rank = calls.group[row], calls.rank[row]
    cuts = np.flatnonzero(np.diff(group)) + 1
    shapes: dict[tuple[int, ...], int] = {}
    shape = np.concatenate(
        [np.full(len(m), shapes.setdefault((len(m), *np.diff(m).tolist()), len(shapes))) for m in np.split(rank, cuts)]
    )
    order = np.lexsort((-row, shape, rank))
    role = np.empty(len(found), dtype=np.int64)
    role[order] = numbered(shape[order], occurrence(rank[order], shape[order]))[0]
    return role[pair]


class Waits:
    """Which calls a rank waits for before it makes the next one, after how much of its work, and how far clocks are off."""

    def __init__(self, seen: Calls) -> None:
        self.seen = seen
        self.before = np.arange(len(seen.token)) - 1
        self.before[seen.begin[:-1]] = NULL
        self.cls, self.classes = numbered(seen.token, occurrence(seen.rank, seen.step, seen.token))
        self.rows = np.flatnonzero((seen.step > 0) & (self.before >= 0))
        """Calls of whole steps, but of the first: what came before that is not known."""
        ranks = max(SAMPLE * len(seen.ranks) // len(seen.token), 2)
        self.sample = self.rows[seen.rank[self.rows] < ranks]
        self.last = np.stack([self._last(c) for c in np.argsort(-np.bincount(seen.channel), kind="stable")[:MOST_CHANNELS]])
        """Channel × call: the call before it that its rank made last over the channel, -1 if none with a known gate."""
        self.off = np.zeros(len(seen.ranks), dtype=np.int64)
        self.head, varies = self._settled()
        """Class × channel: work done before waiting for it, ns; infinite where it is not waited for."""
        self._set_clocks(varies)

    def _last(self, channel: int) -> Ints:
        seen = self.seen
        rows = np.where((seen.channel == channel) & (seen.gate >= 0), np.arange(len(seen.token)), NULL)
        last = np.concatenate([[NULL], np.maximum.accumulate(rows)[:-1]])
        return np.where(last >= seen.begin[seen.rank], last, NULL)

    def times(self) -> tuple[Ints, Ints]:
        """(when calls were made, when their gates opened for them), on one clock; a send waits for nobody."""
        seen = self.seen
        time: Ints = seen.calls.created_ns - self.off[seen.rank]
        # The last entry collects the calls without a gate; what it holds is never read.
        opens = np.full(seen.gates + 1, np.iinfo(np.int64).min)
        np.maximum.at(opens, seen.gate, time)
        return time, np.where((seen.gate < 0) | (seen.calls.verb == Verb.SEND), time, opens[seen.gate])

    def split(self, rows: Ints, head: Floats, time: Ints, opens: Ints) -> tuple[Ints, Ints]:
        """Of the work before each call: how long it went on before its wait, and when it went on after that, ns."""
        before, last, share = time[self.before[rows]], self.last[:, rows], head[self.cls[rows]].T
        possible = (last >= 0) & np.isfinite(share)
        # Of several calls that are waited for, the one that holds the rank up longest decides.
        wait = np.where(possible, opens[last] - before - np.where(possible, share, 0), -np.inf)
        longest = np.argmax(wait, axis=0), np.arange(len(rows))
        first = np.where(possible[longest], np.minimum(share[longest], time[rows] - before), 0)
        first = np.rint(first).astype(np.int64)
        since = np.where(wait[longest] > 0, opens[last[longest]], before + first)
        return first, np.minimum(since, time[rows])

    def _settled(self) -> tuple[Floats, float]:
        """(head, how much the work varies with it, over all): the first, second … channel, each to its best."""
        (time, opens), rows, cls = self.times(), self.sample, self.cls[self.sample]
        # Greedy: channel by channel, each place takes the head under which its work varies least, given the channels before.
        usual = medians(cls, time[rows] - time[self.before[rows]], self.classes)
        head = np.zeros((self.classes, len(self.last)))
        for channel, last in enumerate(self.last[:, rows]):
            # Who makes the next call before a gate opens does not wait for that gate.
            early = (last >= 0) & (opens[last] > time[rows] + TIMER_NS)
            share = np.bincount(cls, early, self.classes) / np.maximum(np.bincount(cls, minlength=self.classes), 1)
            head[share > IMPOSSIBLE, channel] = np.inf
        varies = self._varies(head, time, opens)
        for channel in range(len(self.last)):
            open_question = np.isfinite(head[:, channel])
            for part in (*range(1, PARTS), np.inf):
                tried = head.copy()
                tried[open_question, channel] = part if np.isinf(part) else part / PARTS * usual[open_question]
                now = self._varies(tried, time, opens)
                better = open_question & (now < np.where(head[:, channel] == 0, CLEARLY, 1.0) * varies)
                head[better, channel], varies = tried[better, channel], np.where(better, now, varies)
        return head, float(varies.sum())

    def _varies(self, head: Floats, time: Ints, opens: Ints) -> Floats:
        """By class: how far work lies from the median of its rank; as roots, lest a few long steps decide."""
        rows, cls = self.sample, self.cls[self.sample]
        first, since = self.split(rows, head, time, opens)
        work = first + time[rows] - since
        cell, cells = numbered(cls, self.seen.rank[rows])
        varies = np.bincount(cls, np.sqrt(np.abs(work - medians(cell, work, cells)[cell])), self.classes)
        return varies.astype(np.float64, copy=False)

    def _set_clocks(self, varies: float) -> None:
        """Believe that clocks are off if work varies less then."""
        off = self._lateness()
        if np.abs(off).max() < WORTH_NS:
            return
        before, self.off = self.off, np.where(np.abs(off) < WORTH_NS, 0, off)
        head, now = self._settled()
        if now < SKEWED * varies:
            self.head = head
        else:
            self.off = before

    def _lateness(self) -> Ints:
        """How late every rank usually is, ns, where the ranks of each kind of group come most closely together."""
        seen = self.seen
        rows = np.flatnonzero((seen.step > 0) & (seen.step <= SAMPLE_STEPS) & (seen.gate >= 0) & ~seen.hop)
        off = np.zeros(len(seen.ranks))
        if not len(rows):
            return off.astype(np.int64)
        time = (seen.calls.created_ns - seen.calls.created_ns.min()).astype(np.float64)
        late = self._late(rows, time[rows])
        cell, cells = numbered(self.cls[rows], seen.calls.group[rows], seen.rank[rows])
        # Ranks come most closely together where their lateness repeats best: there, a constant offset is the clock's.
        total = np.bincount(self.cls[rows], np.abs(late - medians(cell, late, cells)[cell]), self.classes)
        spread = total / np.maximum(np.bincount(self.cls[rows], minlength=self.classes), 1)
        present, at = np.unique(self.cls[rows], return_index=True)
        closest = present[np.lexsort((spread[present], seen.channel[rows[at]]))]
        kind = np.sort(seen.channel[rows[at]])
        rows = rows[np.isin(self.cls[rows], closest[np.concatenate([[True], kind[1:] != kind[:-1]])])]
        for _ in range(ROUNDS):  # groups that share a rank pull on each other
            more = medians(seen.rank[rows], self._late(rows, time[rows] - off[seen.rank[rows]]), len(off))
            off += more
            if np.abs(more).max() < TIMER_NS / 100:
                break
        return np.rint(off - np.median(off)).astype(np.int64)

    def _late(self, rows: Ints, time: Floats) -> Floats:
        """How much later than the middle member each came to its gate."""
        gate, gates = numbered(self.seen.gate[rows])
        late: Floats = time - medians(gate, time, gates)[gate]
        return late

    def waited(self) -> Mask:
        """Calls in which their rank waits at once: no work comes between them and the wait for them."""
        waits = np.zeros(len(self.before), dtype=np.bool_)
        for channel, last in enumerate(self.last[:, self.rows]):
            at_once = (last == self.before[self.rows]) & (self.head[self.cls[self.rows], channel] == 0)
            waits[last[at_once]] = True
        return waits


def _laid(waits: Waits, names: Sequence[str]) -> Laid:
    """The work before every call, in two pieces where its rank waits in between, and the call, as ops."""
    seen, rows, (time, opens) = waits.seen, waits.rows, waits.times()
    # Work before a call: a piece beside the call that is still waited for, the wait, and a piece up to the next call.
    first, since = waits.split(rows, waits.head, time, opens)
    calls, before = seen.calls, waits.before[rows]
    met = seen.gate[rows] >= 0
    same = {"rank": calls.rank[rows], "step": seen.step[rows], "size": seen.size[rows]}
    beside = {"name": len(names) + calls.name[before], "start_ns": time[before], "end_ns": time[before] + first}
    up_to = {"name": 2 * len(names) + calls.name[rows], "start_ns": since, "end_ns": time[rows]}
    made = {
        "kind": np.full(len(rows), Kind.COMMUNICATE),
        "lane": np.where(waits.waited()[rows], OWN, ASIDE),
        "name": calls.name[rows],
        "start_ns": time[rows],
        "end_ns": opens[rows],
        "verb": np.where(met, calls.verb[rows], 0),
        "group": np.where(met, calls.group[rows], NULL),
        "peer": np.where(met, calls.peer[rows], NULL),
        "seq": np.where(met & ~seen.hop[rows], calls.seq[rows], NULL),
    }
    own = {"lane": np.full(len(rows), OWN), "kind": np.full(len(rows), Kind.COMPUTE)}
    tables = [Table(Op, {**same, **own, **columns}) for columns in (beside, up_to)]
    return Laid(
        ops=concat(Op, [tables[0].take(first > 0), tables[1], Table(Op, {**same, **made})]),
        names=[*names, *(f"work beside {name}" for name in names), *(f"work or transfer before {name}" for name in names)],
        steps=len(np.unique(seen.step[rows])),
        outside=int((seen.step < 1).sum()),
        clocks={int(rank): int(ns) for rank, ns in zip(seen.ranks, waits.off, strict=True) if ns},
    )
