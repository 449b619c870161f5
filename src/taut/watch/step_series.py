"""Events of a job → one row of series for every step that all ranks have done.

Series: of every rank how late it came to its gates behind the middle member, what it was busy with outside of calls that wait,
its loader, and what its device takes in sampled steps (LAG steps later, when all have told it; else unknown); of every host
the mean lateness of its ranks; of every class of gates the time from opening to end, all
calls of a step together;
and the step itself. All in seconds. What is common to all ranks is taken out of theirs.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered
from taut.read.verb_words import ALL_WAIT, verb_of
from taut.watch.core_waits import QUEUED
from taut.watch.observed_devices import DEVICE as DEVICE_VERB
from taut.watch.observed_devices import LAG
from taut.watch.seen import BACKWARD, HOP, LOAD, Events, KeptRows, Meeting, Seen, joined, no_events

LATE, BUSY, LOADER, HOST, TRANSFER, STEP, DEVICE = range(7)
"""Kinds of series."""
TOGETHER, TIMER_NS = 0.9, 1_000_000
"""A place is a gate if in so many of its turns nobody left more than a timer before the last had come."""
FIRST_LOOK = 8
"""Steps that are looked at together when a job is new: they tell what is a gate."""
MOST_CLASSES = 256
"""Classes of gates of which transfers are followed: the first ones."""
SPAN = 1 << 42
"""Nanoseconds that events waiting to be counted may lie apart: an hour."""
PATIENCE = 64
"""Steps that others may be ahead of a rank before it is no longer waited for."""
MOST_CELLS = 1 << 20
"""Steps × series that are put together at once, 8 MiB an array; what is left is for the next look."""
MOST_MISSED = 4096
"""Steps that are made up for where none was seen for long: what lies before them is left out."""
S = 1e-9


class StepRows(Struct, frozen=True):
    """Series of some steps."""

    first: int
    """Number of the first step."""
    rows: Floats
    """Steps × series, s."""
    waits: Floats
    """Steps × series, s: what their ranks waited for a core, less the middle one; of gates and steps the longest."""
    rank_waits: Floats
    """The same, steps × ranks, nothing taken off."""
    step_s: float


class StepSeries:
    """Puts events together to steps."""

    def __init__(self, ranks: list[int], hosts: list[str], rows: KeptRows | None = None) -> None:
        self._rows_of_all = rows or KeptRows()
        self.ranks = np.array(ranks, np.int64)
        names = sorted(set(hosts))
        number = {name: k for k, name in enumerate(names)}
        self.host = np.array([number[host] for host in hosts], np.int64)
        sizes = np.bincount(self.host, minlength=len(names))
        self.hosts = [name for name, size in zip(names, sizes, strict=True) if size > 1] if len(names) > 1 else []
        self.host_rows = np.array([number[name] for name in self.hosts], np.int64)
        self.classes: list[Meeting] = []
        self.meets: dict[int, bool] = {}
        """Whether a class is known to be a gate of all who come to it."""
        self._calls = np.ones(len(ranks), np.bool_)
        self._gates, self._stages, self._steps = no_events(), no_events(), no_events()
        self.done = -1
        """The last step that was counted."""
        self._last = np.full(len(ranks), -1)
        count = len(ranks)
        self.kind = np.concatenate(
            [
                np.full(count, LATE),
                np.full(count, BUSY),
                np.full(count, LOADER),
                np.full(count, DEVICE),
                np.full(len(self.hosts), HOST),
                np.full(MOST_CLASSES, TRANSFER),
                [STEP],
            ]
        )

    def place(self, series: int) -> tuple[int, int]:
        """(kind, index of rank, host or class) of a series."""
        kind = int(self.kind[series])
        return kind, series - int(np.argmax(self.kind == kind))

    def add(self, seen: Seen) -> StepRows | None:
        """Take events in; the rows of the steps that are complete now."""
        self.classes = list(seen.classes)
        self._calls = np.array(
            [seen.seats[int(rank)].sees == "calls" if int(rank) in seen.seats else True for rank in self.ranks]
        )
        mine = (np.isin(part.rank, self.ranks) for part in (seen.gates, seen.stages, seen.steps))
        self._gates = joined([self._gates, seen.gates.take(next(mine))])
        self._stages = joined([self._stages, seen.stages.take(next(mine))])
        self._steps = joined([self._steps, seen.steps.take(next(mine))])
        self._keep_newest()
        upto = self._complete(seen.ended)
        if upto <= self.done or (self.done < 0 and upto - int(self._steps.number.min()) < FIRST_LOOK):
            return None
        return self._rows(upto)

    def _keep_newest(self) -> None:
        """Give back the oldest events where they are too many: a job that ends no step must not be kept for ever."""
        count = len(self._gates) + len(self._stages) + len(self._steps)
        most = self._rows_of_all.allowed(self, count)
        if count > most:
            self._gates, self._stages, self._steps = (
                _newest(part, most // 3) for part in (self._gates, self._stages, self._steps)
            )

    def _complete(self, ended: frozenset[int]) -> int:
        """The last step that all have done who are still waited for."""
        if not len(self._steps):
            return -1
        last = self._last
        np.maximum.at(last, np.searchsorted(self.ranks, self._steps.rank), self._steps.number)
        waited = (last >= last.max() - PATIENCE) & ~np.isin(self.ranks, list(ended))
        return int(last[waited].min()) if waited.any() else self.done

    def _rows(self, upto: int) -> StepRows:
        first = self.done + 1
        if self.done < 0:  # whoever began to listen late
            first = int(self._steps.number.min())
        first = max(first, upto - MOST_MISSED)
        made = int(self._steps.number[self._steps.number >= first].min())
        if made - first >= FIRST_LOOK:  # nobody was heard for a while, or a counter leapt
            first = made
        upto = min(upto, first + max(MOST_CELLS // len(self.kind), FIRST_LOOK))
        n = upto - first + 1
        zero = int(self._steps.begin.min())
        took = self._durations(first, n)
        gates, at = self._gates, step_of(self._gates, self._steps, self.ranks, zero)
        gate, total = numbered(gates.klass, gates.number)
        step = np.full(total, -1)
        np.maximum.at(step, gate, at)
        ready = (step <= upto)[gate] if total else np.zeros(0, np.bool_)
        late, wait, transfer = self._met(gates.take(ready), at[ready], gate[ready], first, n)
        load, waits = self._staged(LOAD, first, n), self._staged(QUEUED, first, n)
        device, before = self._device(first - LAG, n), self._staged(QUEUED, first - LAG, n)
        self._stages = self._stages.take(self._stages.number > upto - LAG)
        self._gates = gates.take(~ready)
        # The last steps stay: gates that began before them are told by their ends.
        self._steps = self._steps.take(self._steps.number >= upto)
        busy = took - wait
        if not self._sees_late():
            late = np.full_like(late, np.nan)
        step_s = _middle(took)
        parts = [late, _centred(busy), _centred(load), _centred(device), self._by_host(late), transfer, step_s[:, None]]
        longest = np.broadcast_to(waits.max(axis=1, keepdims=True), (n, MOST_CLASSES + 1))
        apart = _centred(waits)
        waited = np.concatenate([apart, apart, apart, _centred(before), self._by_host(apart), longest], axis=1)
        self.done = upto
        return StepRows(first, np.concatenate(parts, axis=1), waited, waits, float(np.nanmedian(step_s)))

    def _by_host(self, values: Floats) -> Floats:
        """Of every host of several ranks their mean."""
        means = [values[:, self.host == one].mean(axis=1) for one in self.host_rows]
        return np.stack(means, axis=1) if means else values[:, :0]

    def _staged(self, verb: str, first: int, n: int) -> Floats:
        """How long every rank was in a stage, by step, s."""
        out = np.zeros((n, len(self.ranks)))
        if len(self._stages):
            number = self._stages.number
            some = self._stages.take(self._is_verb(verb)[self._stages.klass] & (number >= first) & (number < first + n))
            np.add.at(out, (some.number - first, np.searchsorted(self.ranks, some.rank)), (some.end - some.begin) * S)
        return out

    def _device(self, first: int, n: int) -> Floats:
        """What the device of every rank took, by step, s; NaN where that is not told, or by few."""
        took = self._staged(DEVICE_VERB, first, n)
        most = 2 * (took > 0).sum(axis=1, keepdims=True) > len(self.ranks)
        return np.where((took > 0) & most, took, np.nan)

    def _durations(self, first: int, n: int) -> Floats:
        took = np.full((n, len(self.ranks)), np.nan)
        steps = self._steps.take((self._steps.number >= first) & (self._steps.number < first + n))
        took[steps.number - first, np.searchsorted(self.ranks, steps.rank)] = (steps.end - steps.begin) * S
        return took

    def _met(self, gates: Events, at: Ints, gate: Ints, first: int, n: int) -> tuple[Floats, Floats, Floats]:
        """(lateness and waits of every rank, transfers of every class), by step."""
        count = len(self.ranks)
        late, wait = np.zeros((n, count)), np.zeros((n, count))
        transfer, turns = np.zeros((n, MOST_CLASSES)), np.zeros((n, MOST_CLASSES))
        inside = (at >= first) & (at < first + n)
        if not inside.any():
            return late, wait, np.full((n, MOST_CLASSES), np.nan)
        gates, at, gate = gates.take(inside), at[inside] - first, numbered(gate[inside])[0]
        rank = np.searchsorted(self.ranks, gates.rank)
        turn = Turns(gates, gate)
        self._look_at(gates, gate, turn)
        meets = np.array([self.meets.get(k, False) for k in range(len(self.classes))])[gates.klass]
        hop = self._is_verb(HOP)[gates.klass]
        behind = np.where(hop, _behind_receiver(gates, turn, gate), (gates.begin - turn.middle[gate])) * S
        counted = (meets | hop) & (turn.members[gate] > 1)
        np.add.at(late, (at[counted], rank[counted]), behind[counted])
        # After its last callback a backward pass does nothing but wait, whoever it is for.
        waits = (meets | hop | self._is_verb(BACKWARD)[gates.klass]) & (gates.end > 0) & self._calls[rank]
        np.add.at(wait, (at[waits], rank[waits]), (gates.end - gates.begin)[waits] * S)
        ended = counted & (gates.end > 0) & (gates.klass < MOST_CLASSES)
        np.add.at(transfer, (at[ended], gates.klass[ended]), np.maximum(gates.end - turn.opens[gate], 0)[ended] * S)
        np.add.at(turns, (at[ended], gates.klass[ended]), 1)
        # Ends are recorded of some calls: what all of them take is as many times that.
        calls = np.zeros((n, MOST_CLASSES))
        near = gates.klass < MOST_CLASSES
        np.add.at(calls, (at[near], gates.klass[near]), 1 / turn.members[gate][near])
        return late, wait, np.where(turns > 0, calls * transfer / np.maximum(turns, 1), np.nan)

    def _sees_late(self) -> bool:
        """Whether there is a place at which ranks are seen to wait for each other."""
        return any(self.meets.values()) or bool(self._is_verb(HOP).any())

    def _is_verb(self, verb: str) -> Mask:
        return np.array([one.verb == verb for one in self.classes] or [False])

    def _look_at(self, gates: Events, gate: Ints, turn: Turns) -> None:
        """Tell of classes that are new whether all who come there wait for each other."""
        for klass in np.unique(gates.klass).tolist():
            if klass in self.meets:
                continue
            one = self.classes[klass]
            if one.verb != BACKWARD:
                self.meets[klass] = verb_of(one.verb) in ALL_WAIT
                continue
            told = meets_all(gates, gate, turn, klass, len(self.ranks))
            if told is not None:
                self.meets[klass] = told


def _newest(events: Events, most: int) -> Events:
    """The last of them."""
    return events if len(events) <= most else events.take(np.arange(len(events) - most, len(events)))


class Turns:
    """Of every gate: how many came, when the middle and the last of them came, when the first left."""

    def __init__(self, gates: Events, gate: Ints) -> None:
        count = int(gate.max()) + 1 if len(gate) else 0
        self.members = np.bincount(gate, minlength=count)
        order = np.lexsort((gates.begin, gate))
        begins = np.cumsum(self.members) - self.members
        came = gates.begin[order]
        low, high = begins + (self.members - 1) // 2, begins + self.members // 2
        self.middle = came[low] + (came[high] - came[low]) // 2 if count else np.zeros(0, np.int64)
        self.opens = came[begins + self.members - 1] if count else np.zeros(0, np.int64)
        self.left = np.full(count, np.iinfo(np.int64).max)
        ended = gates.end > 0
        np.minimum.at(self.left, gate[ended], gates.end[ended])


def meets_all(gates: Events, gate: Ints, turn: Turns, klass: int, ranks: int) -> bool | None:
    """Whether nobody leaves a place before all have come; None if too few turns tell."""
    mine = np.unique(gate[gates.klass == klass])
    whole = mine[(turn.members[mine] == ranks) & (turn.left[mine] < np.iinfo(np.int64).max)]
    if len(mine) < 3 or len(whole) < len(mine) / 2:
        return None if len(mine) < 3 else False
    return bool((turn.left[whole] >= turn.opens[whole] - TIMER_NS).mean() >= TOGETHER)


def step_of(events: Events, steps: Events, ranks: Ints, zero: int) -> Ints:
    """The step in which each event began, by its rank's own steps; beyond all of them where none has ended since."""
    if not len(events):
        return np.zeros(0, np.int64)
    # One number for rank and time: all ranks are searched at once.
    order = np.lexsort((steps.end, steps.rank))
    ends = np.searchsorted(ranks, steps.rank[order]) * SPAN + np.clip(steps.end[order] - zero, 0, SPAN - 1)
    rank = np.searchsorted(ranks, events.rank)
    at = np.searchsorted(ends, rank * SPAN + np.clip(events.begin - zero, 0, SPAN - 1))
    found = np.minimum(at, len(ends) - 1)
    within = (at < len(ends)) & (steps.rank[order][found] == events.rank)
    beyond = np.iinfo(np.int64).max
    out: Ints = np.where(within, steps.number[order][found], beyond)
    return out


def _behind_receiver(gates: Events, turn: Turns, gate: Ints) -> Ints:
    """Of hops: how much later the sender came than its receiver; 0 for the receiver, and where it did not wait."""
    sends = gates.flags & 1 > 0
    receiver = np.zeros(len(turn.members), np.int64)
    np.maximum.at(receiver, gate[~sends], gates.begin[~sends])
    out: Ints = np.where(sends & (receiver[gate] > 0), np.maximum(gates.begin - receiver[gate], 0), 0)
    return out


def _centred(values: Floats) -> Floats:
    """Each rank's values less the middle one of its step."""
    return np.asarray(values - _middle(values)[:, None])


def _middle(values: Floats) -> Floats:
    """The middle value of each step; NaN where there is none."""
    middle = np.full(len(values), np.nan)
    known = np.isfinite(values).any(axis=1)
    middle[known] = np.nanmedian(values[known], axis=1)
    return middle
