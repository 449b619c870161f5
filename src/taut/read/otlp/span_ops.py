"""Threads and calls → ops: own time cut at calls, messages between ranks, joins.

A call is a message there (SEND, RECV), work of the callee, and a message back. Several calls that end before anything
else begins are a fan-out: the caller waits for all of them (GATHER, the caller is the root). Tasks of one rank are
launched by their parent's lane and joined by messages of the rank to itself. A message is sent and received in a moment;
how long it was under way is seen when both ends are on one clock, which is for linking to find.
"""

from __future__ import annotations

import re

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.ids import rows_of_ids
from taut.core.tables import NULL, Kind, Op, Table, Verb
from taut.read.columns import Codes, Flags
from taut.read.op_rows import coded
from taut.read.otlp.span_calls import Calls, Participants, tasks
from taut.read.otlp.span_tree import Tree

# Tasks of one rank in one step that get a lane of their own; more share them.
MOST_LANES = 256
QUEUE = re.compile(r"\bqueue|queued\b|\benqueue", re.IGNORECASE)
# What happens to a thread, in the order of what happens at one time; CUT is the end of its time in a queue.
BEGIN, ENDS, CUT, STARTS, CLOSE = range(5)
Rows = dict[str, Ints]
BLANK = {
    "rank": 0, "lane": 0, "step": 0, "kind": int(Kind.COMMUNICATE), "name": 0, "start_ns": 0, "end_ns": 0,
    "verb": int(Verb.NONE), "group": NULL, "seq": NULL, "peer": NULL, "part": NULL, "launch": NULL,
}  # fmt: skip


def _rows(n: int, **columns: Ints | int) -> Rows:
    return {key: np.broadcast_to(np.asarray(columns.get(key, value), dtype=np.int64), (n,)) for key, value in BLANK.items()}


class Layout:
    """Ops under construction: blocks of rows, so that a message knows the row of its sender."""

    def __init__(self, tree: Tree, people: Participants, found: Calls) -> None:
        self.tree, self.people, self.found = tree, people, found
        self.names, self.groups = Codes(), Codes()
        self.words = _words(tree, people)
        self.threads = np.flatnonzero(~people.call)
        self.lane = self._lanes()
        self.number = self._numbers()
        words = Codes()
        code = words.of(tree.name)
        self.queues = Flags(words, lambda name: QUEUE.search(name) is not None)(code)

    def table(self) -> Table:
        """All ops."""
        begun = np.flatnonzero(~self.found.inline)
        far = begun[self.found.far[begun]]
        events = self._events()
        main, sent_at, gathered = self._main(events)
        before = len(begun) + len(far)
        blocks = [self._entries(begun, before + sent_at[begun]), self._far_work(far), main]
        blocks += self._answers(gathered, before + len(main["rank"]))
        return Table(Op, {key: np.concatenate([block[key] for block in blocks]) for key in BLANK})

    def _lanes(self) -> Ints:
        """A lane for every task of a rank and step."""
        tree = self.tree
        task = tasks(self.found, len(tree))
        tops = self.threads[task[self.threads] == self.threads]
        order = tops[np.lexsort((tree.start[tops], tree.rank[tops], tree.step[tops]))]
        cell = tree.step[order] * (int(tree.rank.max(initial=0)) + 1) + tree.rank[order]
        lane = np.zeros(len(tree), dtype=np.int64)
        lane[order] = (np.arange(len(order)) - np.searchsorted(cell, cell)) % MOST_LANES
        return lane[task]

    def _numbers(self) -> Ints:
        """Number of each call among those between its two ranks in its step: both ends agree on it."""
        found, source, step = self.found, self.tree.rank[self.found.thread], self.tree.step[self.found.thread]
        order = np.lexsort((found.start, found.to, source, step))
        ranks = len(self.people.services)
        channel = ((step * ranks + source) * ranks + found.to)[order]
        out = np.zeros(len(order), dtype=np.int64)
        out[order] = np.arange(len(order)) - np.searchsorted(channel, channel)
        return out

    def _place(self, calls: Ints) -> tuple[Ints, Ints]:
        """(lane, step) of whoever does a call; far ends have a lane for each."""
        found = self.found
        lane = np.where(found.far[calls], self.number[calls] % MOST_LANES, self.lane[found.span[calls]])
        return lane, self.tree.step[found.thread[calls]]

    def _service(self, rank: int) -> str:
        return self.people.services[rank].name

    def _entries(self, calls: Ints, launch: Ints) -> Rows:
        """How tasks begin: a message arrives, or the parent's lane launches them."""
        found, (lane, step) = self.found, self._place(calls)
        remote, to = found.remote[calls], found.to[calls]
        at = np.where(found.far[calls], found.start[calls], self.tree.start[found.span[calls]])
        return _rows(
            len(calls),
            rank=to,
            lane=lane,
            step=step,
            start_ns=at,
            end_ns=at,
            launch=launch,
            **self._message(calls, remote, Verb.RECV, self.tree.rank[found.thread[calls]]),
        )

    def _message(self, calls: Ints, remote: Mask, verb: Verb, peer: Ints) -> Rows:
        """What the two ends of the way there have in common; nothing is sent to the rank itself."""
        to, name = self.found.to[calls], np.empty(len(calls), dtype=np.int64)
        name[remote] = coded(self.names, to[remote], lambda rank: f"call {self._service(rank)}")
        name[~remote] = coded(self.names, to[~remote], lambda rank: f"{self._service(rank)} task")
        return {
            "kind": np.where(remote, Kind.COMMUNICATE, Kind.COORDINATE),
            "name": name,
            "verb": np.where(remote, verb, Verb.NONE),
            "peer": np.where(remote, peer, NULL),
            "part": np.where(remote, 2 * self.number[calls], NULL),
        }

    def _far_work(self, calls: Ints) -> Rows:
        found, (lane, step) = self.found, self._place(calls)
        return _rows(
            len(calls),
            rank=found.to[calls],
            lane=lane,
            step=step,
            kind=Kind.COMPUTE,
            name=coded(self.names, found.span[calls], self.words.__getitem__),
            start_ns=found.start[calls],
            end_ns=found.end[calls],
        )

    def _events(self) -> Rows:
        """What happens to all threads, one event after the other."""
        tree, found, threads = self.tree, self.found, self.threads
        joined = np.flatnonzero(found.joined)
        queued = np.array(
            [r for r, known in tree.known.facts.items() if known.queued_ns and not self.people.call[r]], dtype=np.int64
        )
        until = tree.start[queued] + np.array([tree.known.facts[r].queued_ns for r in queued.tolist()], dtype=np.int64)
        parts = (
            (threads, tree.start[threads], BEGIN, None),
            (found.thread, found.start, STARTS, np.arange(len(found.span))),
            (found.thread[joined], found.end[joined], ENDS, joined),
            (threads, tree.end[threads], CLOSE, None),
            (queued, np.minimum(until, tree.end[queued]), CUT, None),
        )
        thread = np.concatenate([who for who, _, _, _ in parts])
        time = np.concatenate([at for _, at, _, _ in parts])
        what = np.concatenate([np.full(len(who), word) for who, _, word, _ in parts])
        call = np.concatenate([np.full(len(who), NULL) if item is None else item for who, _, _, item in parts])
        # Ends go before starts, so that what follows may depend on them; but what takes no time starts before it ends.
        instant = (what == ENDS) & (call >= 0) & (found.start[call] == found.end[call]) if len(found.span) else what < 0
        order = np.lexsort((what == ENDS, call, np.where(instant, STARTS, what), time, thread))
        return {"thread": thread[order], "time": time[order], "what": what[order], "call": call[order]}

    def _main(self, events: Rows) -> tuple[Rows, Ints, tuple[Ints, Ints, Ints]]:
        """What the lanes of threads hold: own work, sends, waits.

        Also the row in which every call was sent, and which calls were gathered (call, group, seq).
        """
        found = self.found
        thread, time, what, call = events["thread"], events["time"], events["what"], events["call"]
        inline = (call >= 0) & found.inline[call] if len(found.span) else np.zeros(len(call), dtype=np.bool_)
        # Above 0 while a child runs in the lane of its parent: that time is the child's.
        inside = np.cumsum(np.where(inline, np.where(what == STARTS, 1, -1), 0))
        waits = (what == ENDS) & ~inline
        before = np.concatenate([time[:1], time[:-1]])
        own = np.zeros(len(time), dtype=np.bool_)
        own[1:] = (what[1:] != BEGIN) & ~waits[1:] & (inside[:-1] == 0) & (time[1:] > time[:-1])
        sends = np.flatnonzero((what == STARTS) & ~inline)
        runs, gather = self._runs(call, waits)
        alone = np.flatnonzero(waits & ~gather)
        last = np.flatnonzero(gather & np.append((runs[1:] != runs[:-1]) | ~gather[1:], True))
        group = coded(self.groups, thread[last], lambda row: f"{self.words[row]} fan-out")
        first = np.searchsorted(runs, runs[last])
        blocks = [
            (np.flatnonzero(own), self._own(thread, before, time, what, np.flatnonzero(own))),
            (sends, self._sends(thread, time, sends, call[sends])),
            (alone, self._receives(thread, before, time, alone, call[alone])),
            (last, self._gathers(thread, before[first], time, last, group)),
        ]
        # Own work ends where the event is, so it goes before what the event does.
        order = np.argsort(np.concatenate([2 * at + (i > 0) for i, (at, _) in enumerate(blocks)]), kind="stable")
        columns = {key: np.concatenate([block[key] for _, block in blocks])[order] for key in BLANK}
        row_of = rows_of_ids(order, len(order))
        sent_at = np.full(len(found.span), NULL, dtype=np.int64)
        sent_at[call[sends]] = row_of[len(blocks[0][0]) :][: len(sends)]
        members = np.flatnonzero(gather)
        join = np.searchsorted(runs[last], runs[members])
        return columns, sent_at, (call[members], group[join], join)

    def _runs(self, call: Ints, waits: Mask) -> tuple[Ints, Mask]:
        """(number of each run of waits, whether it is a fan-out): several calls to other ranks with nothing in between."""
        breaks = ~waits
        breaks[1:] |= ~waits[:-1]
        runs = np.cumsum(breaks.astype(np.int64))
        local = waits & ~self.found.remote[call] if len(self.found.span) else waits
        size = np.bincount(runs[waits], minlength=int(runs[-1]) + 1 if len(runs) else 0)
        mixed = np.bincount(runs[local], minlength=len(size)) > 0
        return runs, waits & (size >= 2)[runs] & ~mixed[runs]

    def _at(self, who: Ints) -> Rows:
        return {"rank": self.tree.rank[who], "lane": self.lane[who], "step": self.tree.step[who]}

    def _own(self, thread: Ints, before: Ints, time: Ints, what: Ints, rows: Ints) -> Rows:
        """A thread's own work; its time in a queue is coordination."""
        who = thread[rows]
        queue = what[rows] == CUT
        name = np.empty(len(rows), dtype=np.int64)
        name[~queue] = coded(self.names, who[~queue], self.words.__getitem__)
        name[queue] = coded(self.names, self.tree.rank[who[queue]], lambda rank: f"{self._service(rank)} queue")
        kind = np.where(queue | self.queues[who], Kind.COORDINATE, Kind.COMPUTE)
        return _rows(len(rows), **self._at(who), name=name, kind=kind, start_ns=before[rows], end_ns=time[rows])

    def _sends(self, thread: Ints, time: Ints, rows: Ints, calls: Ints) -> Rows:
        to, at = self.found.to[calls], time[rows]
        message = self._message(calls, self.found.remote[calls], Verb.SEND, to)
        return _rows(len(rows), **self._at(thread[rows]), start_ns=at, end_ns=at, **message)

    def _answer(self, calls: Ints) -> Rows:
        name = coded(self.names, self.found.to[calls], lambda rank: f"answer of {self._service(rank)}")
        return {"name": name, "part": 2 * self.number[calls] + 1}

    def _receives(self, thread: Ints, before: Ints, time: Ints, rows: Ints, calls: Ints) -> Rows:
        """A thread waits for one answer."""
        return _rows(
            len(rows),
            **self._at(thread[rows]),
            start_ns=before[rows],
            end_ns=time[rows],
            verb=Verb.RECV,
            peer=self.found.to[calls],
            **self._answer(calls),
        )

    def _gathers(self, thread: Ints, begin: Ints, time: Ints, rows: Ints, group: Ints) -> Rows:
        """A thread waits for all answers of a fan-out."""
        who = thread[rows]
        return _rows(
            len(rows),
            **self._at(who),
            start_ns=begin,
            end_ns=time[rows],
            verb=Verb.GATHER,
            peer=self.tree.rank[who],
            name=coded(self.names, who, lambda row: f"{self.words[row]} fan-out"),
            group=group,
            seq=np.arange(len(rows)),
        )

    def _answers(self, gathered: tuple[Ints, Ints, Ints], before: int) -> list[Rows]:
        """How tasks end: an answer to whoever waits for it; for a fan-out, its arrival too, by which clocks are compared."""
        found, tree = self.found, self.tree
        members, group, seq = gathered
        hosts = np.array([service.host for service in self.people.services], dtype=object)
        caller = tree.rank[found.thread]
        distant = hosts[caller] != hosts[found.to] if len(found.span) else found.remote
        single = found.joined & ~found.inline
        single[members] = False
        arriving = members[distant[members]]
        calls = np.concatenate([np.flatnonzero(single), arriving])
        sends = _rows(
            len(calls),
            **self._done(calls),
            verb=Verb.SEND,
            peer=caller[calls],
            **self._answer(calls),
        )
        parts = _rows(
            len(members),
            **self._done(members),
            verb=Verb.GATHER,
            peer=caller[members],
            group=group,
            seq=seq,
            name=coded(self.names, found.thread[members], lambda row: f"{self.words[row]} fan-out"),
        )
        arrivals = _rows(
            len(arriving),
            rank=caller[arriving],
            lane=MOST_LANES,
            step=tree.step[found.thread[arriving]],
            verb=Verb.RECV,
            peer=found.to[arriving],
            start_ns=found.end[arriving],
            end_ns=found.end[arriving],
            launch=before + int(single.sum()) + np.arange(len(arriving)),
            **self._answer(arriving),
        )
        return [sends, parts, arrivals]

    def _done(self, calls: Ints) -> Rows:
        found, (lane, step) = self.found, self._place(calls)
        at = np.where(found.far[calls], found.end[calls], self.tree.end[found.span[calls]])
        return {"rank": found.to[calls], "lane": lane, "step": step, "start_ns": at, "end_ns": at}


def _words(tree: Tree, people: Participants) -> list[str]:
    """Class names: the service and what it does, so that the same words mean the same work."""
    known: dict[tuple[int, str], str] = {}
    out = []
    for rank, name in zip(np.where(people.far_rank >= 0, people.far_rank, tree.rank).tolist(), tree.name, strict=True):
        word = known.get((rank, name))
        if word is None:
            who = people.services[rank].name
            word = known[rank, name] = name if who in name.split() else f"{who} {name or 'span'}"
        out.append(word)
    return out
