"""The last steps of a job as they were seen, kept for analyses."""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints
from taut.watch.seen import Events, KeptRows, Seen, joined, no_events, with_members

STEPS, SPAN_S = 120, 60.0
"""An analysis sees the last steps: no more than this, and of slow steps so many that they fill this time, but FEWEST."""
FEWEST = 36
PAST = 3
"""Of what is suspected since a while an analysis sees so many times as many steps."""
MOST_OPS = 200_000
"""Ops that an analysis is given: of a large job fewer steps."""
LARGEST = 2 * MOST_OPS
"""Ops beyond which fewer ranks and steps are analysed than an analysis wants: one takes up to 400 bytes (measured)."""
LEAST_KEPT, LEAST_RANKS, USUAL_RANKS = 14, 8, 32
"""Steps that are left where there are too many ops; ranks of a large job that are analysed, at least and if they fit."""
OPS_OF_GATE, OPS_OF_STEP = 2.5, 4
"""Ops that a gate, and a step, become, about."""


class RecentSteps:
    """Keeps the newest events: as many steps as an analysis may see, and no more rows than it is given."""

    def __init__(self, room: KeptRows | None = None) -> None:
        self.room = room or KeptRows()
        self.newest = Seen(no_events(), no_events(), no_events(), [], {})
        """What is known of the job, without its events."""
        self._kept: deque[Seen] = deque()
        self._rows = 0

    def keep(self, seen: Seen, done: int) -> None:
        """Keep what is new, of a job whose last complete step is ``done``."""
        self.newest = msgspec.structs.replace(seen, gates=no_events(), stages=no_events(), steps=no_events(), waits=no_events())
        self._kept.append(seen)
        self._rows += _rows(seen)
        most = self.room.allowed(self, self._rows)
        while self._rows > most or (len(self._kept) > 1 and _last_step(self._kept[0]) < done - STEPS - 1):
            self._rows -= _rows(self._kept.popleft())
        self.room.allowed(self, self._rows)

    def window(self, done: int, ranks: int, step_s: float, age: int) -> tuple[Seen, int]:
        """(the steps that an analysis is given, of which the last ``age`` are suspected; how many ranks it may have)."""
        parts, new = self._kept or [self.newest], self.newest
        steps = joined([one.steps for one in parts])
        whole = max(len(np.unique(steps.number)), 1)
        rows = (OPS_OF_GATE * sum(len(one.gates) for one in parts) + OPS_OF_STEP * len(steps)) / whole
        few = max(FEWEST, PAST * age if age else int(SPAN_S / max(step_s, 1e-6)))
        count = min(STEPS, few, max(int(MOST_OPS / max(rows, 1)), FEWEST))
        of_rank = max(count * rows / ranks, 1)
        most = max(int(MOST_OPS / of_rank), min(USUAL_RANKS, max(int(LARGEST / of_rank), LEAST_RANKS)))
        begins = _begins(steps.take(steps.number > done - count))
        # Each part by itself: all of them together are twice what is kept.
        gates, stages = (joined([_after(getattr(one, name), begins) for one in parts]) for name in ("gates", "stages"))
        return Seen(gates, stages, _within(steps, done - count, done), new.classes, new.seats, new.ended), most


def of_ranks(seen: Seen, ranks: Ints) -> Seen:
    """What was seen of some ranks."""
    gates, stages, steps = (part.take(np.isin(part.rank, ranks)) for part in (seen.gates, seen.stages, seen.steps))
    some, classes = set(ranks.tolist()), list(seen.classes)
    for klass in with_members(gates, classes):
        one = classes[klass]
        classes[klass] = msgspec.structs.replace(one, ranks=tuple(rank for rank in one.ranks if rank in some))
    return Seen(gates, stages, steps, classes, seen.seats, seen.ended)


def analysable(seen: Seen) -> Seen:
    """The same, of so few of its last steps that an analysis can be given it; nothing where even these are too many."""
    while (ops := OPS_OF_GATE * len(seen.gates) + OPS_OF_STEP * len(seen.steps) + len(seen.stages) / 2) > LARGEST:
        numbers = np.unique(seen.steps.number)
        kept = max(int(len(numbers) * LARGEST / ops), LEAST_KEPT)
        if kept >= len(numbers):
            return Seen(no_events(), no_events(), no_events(), seen.classes, seen.seats, seen.ended)
        after, last = int(numbers[-kept - 1]), int(numbers[-1])
        begins = _begins(seen.steps.take(seen.steps.number > after))
        gates, stages = _after(seen.gates, begins, others=False), _after(seen.stages, begins, others=False)
        seen = Seen(gates, stages, _within(seen.steps, after, last), seen.classes, seen.seats, seen.ended)
    return seen


def some_of(late: Floats, host: Ints, most: int) -> Ints:
    """Some of the ranks of a large job, by their index: the latest half, hosts and all, and some of the others."""
    first = np.argsort(-late, kind="stable")[: most // 2]
    mates = np.flatnonzero(np.isin(host, host[first[: max(most // 32, 1)]]))[: most // 2]
    spread = np.linspace(0, len(late) - 1, max(most - len(first), 1)).astype(np.int64)
    return np.unique(np.concatenate([first, mates, spread]))


def _rows(seen: Seen) -> int:
    return len(seen.gates) + len(seen.stages) + len(seen.steps)


def _last_step(seen: Seen) -> int:
    """The last step that ended in a part of the window; -1 if none did."""
    return int(seen.steps.number.max(initial=-1))


def _begins(steps: Events) -> tuple[Ints, Ints]:
    """(ranks in order, when the first of these steps began at each)."""
    ranks, index = np.unique(steps.rank, return_inverse=True)
    first = np.full(len(ranks), np.iinfo(np.int64).max)
    np.minimum.at(first, index, steps.begin)
    return ranks, first


def _after(events: Events, begins: tuple[Ints, Ints], others: bool = True) -> Events:
    """Those that a rank began after a time of its own; of ranks without one all of them, or none."""
    ranks, first = begins
    if not len(events) or not len(ranks):
        return events if others else events.take(np.zeros(len(events), np.bool_))
    at = np.minimum(np.searchsorted(ranks, events.rank), len(ranks) - 1)
    known = ranks[at] == events.rank
    return events.take(np.where(known, events.begin >= first[at], others))


def _within(steps: Events, after: int, upto: int) -> Events:
    """Steps behind one, up to another."""
    return steps.take((steps.number > after) & (steps.number <= upto))
