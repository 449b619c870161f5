"""The last steps of a job as they were seen, kept for analyses."""

from __future__ import annotations

from collections import deque

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints
from taut.watch.seen import Events, Seen, joined, no_events

STEPS, SPAN_S = 120, 60.0
"""An analysis sees the last steps: no more than this, and of slow steps so many that they fill this time, but FEWEST."""
FEWEST = 36
PAST = 3
"""Of what is suspected since a while an analysis sees so many times as many steps."""
MOST_OPS = 200_000
"""Ops that an analysis is given: of a large job fewer steps."""
MOST_ROWS = 1_000_000
"""Rows of events that are kept for it."""


class RecentSteps:
    """Keeps the newest events: as many steps as an analysis may see, and no more rows than it is given."""

    def __init__(self) -> None:
        self.newest = Seen(no_events(), no_events(), no_events(), [], {})
        """What came last."""
        self._kept: deque[Seen] = deque()
        self._rows = 0

    def keep(self, seen: Seen, done: int) -> None:
        """Keep what is new, of a job whose last complete step is ``done``."""
        self.newest = seen
        self._kept.append(seen)
        self._rows += _rows(seen)
        while len(self._kept) > 1 and (self._rows > MOST_ROWS or _last_step(self._kept[0]) < done - STEPS - 1):
            self._rows -= _rows(self._kept.popleft())

    def window(self, done: int, ranks: int, step_s: float, age: int) -> tuple[Seen, int]:
        """(the steps that an analysis is given, of which the last ``age`` are suspected; how many ranks it may have)."""
        parts, new = self._kept, self.newest
        gates, stages, steps = (joined([getattr(one, name) for one in parts]) for name in ("gates", "stages", "steps"))
        kept = Seen(gates, stages, steps, new.classes, new.seats, new.ended)
        whole = max(len(np.unique(kept.steps.number)), 1)
        rows = (2.5 * len(kept.gates) + 4 * len(kept.steps)) / whole
        few = max(FEWEST, PAST * age if age else int(SPAN_S / max(step_s, 1e-6)))
        count = min(STEPS, few, max(int(MOST_OPS / max(rows, 1)), FEWEST))
        most = int(MOST_OPS / max(count * rows / ranks, 1))
        return _upto(_since(kept, done - count), done), most


def of_ranks(seen: Seen, ranks: Ints) -> Seen:
    """What was seen of some ranks."""
    gates, stages, steps = (part.take(np.isin(part.rank, ranks)) for part in (seen.gates, seen.stages, seen.steps))
    some = set(ranks.tolist())
    classes = [msgspec.structs.replace(one, ranks=tuple(rank for rank in one.ranks if rank in some)) for one in seen.classes]
    return Seen(gates, stages, steps, classes, seen.seats, seen.ended)


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


def _since(seen: Seen, step: int) -> Seen:
    """What was seen from a step on, by each rank's own steps."""
    steps = seen.steps.take(seen.steps.number > step)
    begins: dict[int, int] = {}
    order = np.argsort(steps.begin, kind="stable")[::-1]
    begins.update(zip(steps.rank[order].tolist(), steps.begin[order].tolist(), strict=True))
    return Seen(_after(seen.gates, begins), _after(seen.stages, begins), steps, seen.classes, seen.seats, seen.ended)


def _after(events: Events, begins: dict[int, int]) -> Events:
    if not len(events):
        return events
    least = np.array([begins.get(rank, 0) for rank in range(int(events.rank.max()) + 1)], np.int64)
    return events.take(events.begin >= least[events.rank])


def _upto(seen: Seen, step: int) -> Seen:
    """What was seen up to the end of a step."""
    steps = seen.steps.take(seen.steps.number <= step)
    return Seen(seen.gates, seen.stages, steps, seen.classes, seen.seats, seen.ended)
