"""Named ranges (NVTX, regions) that look like iterations → step marks.

One name, numbered or repeated, on one thread, one after the other, around most of the launches of their process: that is
the outer loop. A name of an iteration (``step``, ``iter``) needs less evidence than one that does not. Steps reach to the
beginning of the next, so that what a job does between two ranges (loading, logging) belongs to one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.tables import NULL, Mark, Table

# Share of the launches, from the first range to the last, that must lie inside one.
NAMED, UNNAMED = 0.5, 0.8
# The process in a number of a thread: all but the lowest 24 bits.
PROCESS = ~0xFFFFFF
LEAST_NUMBERED, LEAST_REPEATED = 2, 3
_ITERATION = re.compile(r"step|iter", re.IGNORECASE)
_NOT_ITERATION = re.compile(r"epoch|optim|sched|::|micro", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")


class Loop(Struct, frozen=True):
    """The ranges of one process that may be its steps."""

    stem: str
    named: bool
    share: float
    step: Ints
    start: Ints
    end: Ints
    numbered: bool

    def marks(self) -> Table:
        """One mark a step; the rank is not known yet."""
        end = np.append(np.where(np.diff(self.step) == 1, self.start[1:], self.end[:-1]), self.end[-1:])
        rank = np.full(len(self.step), NULL)
        return Table(Mark, {"rank": rank, "step": self.step, "start_ns": self.start, "end_ns": end}, len(self.step))


class Ranges(Struct, frozen=True):
    """Ranges of all threads, and the names that they may have."""

    thread: Ints
    start: Ints
    end: Ints
    name: Ints
    names: Sequence[str]


def loops(ranges: Ranges, launches: Mapping[int, Ints]) -> dict[int, Loop]:
    """Process → its steps, of the one loop that most processes have; launches are times of work, sorted."""
    codes = {stem: code for code, stem in enumerate(dict.fromkeys(map(_stem, ranges.names)))}
    coded = np.array([codes[_stem(name)] if _stem(name) else NULL for name in ranges.names], dtype=np.int64)
    rows = np.flatnonzero(coded[ranges.name] >= 0) if len(ranges.name) else ranges.name
    found: dict[int, list[Loop]] = {}
    order = rows[np.lexsort((ranges.start[rows], coded[ranges.name[rows]], ranges.thread[rows]))]
    key = np.stack([ranges.thread[order], coded[ranges.name[order]]])
    cuts = np.flatnonzero((np.diff(key) != 0).any(axis=0)) + 1
    for mine in np.split(order, cuts):
        process = int(ranges.thread[mine[0]]) & PROCESS if len(mine) else NULL
        loop = _loop(ranges, mine, launches.get(process, np.zeros(0, dtype=np.int64)))
        if loop is not None:
            found.setdefault(process, []).append(loop)
    best = {
        process: max(some, key=lambda loop: (loop.named, round(loop.share, 1), -len(loop.step)))
        for process, some in found.items()
    }
    # Ranks of one job have one loop: a range that only some processes have is something else.
    usual = Counter(loop.stem for loop in best.values()).most_common(1)
    return {process: loop for process, loop in best.items() if loop.stem == usual[0][0]}


def is_iteration(name: str) -> bool:
    """Whether a name is one of an iteration."""
    return _ITERATION.search(name) is not None and _NOT_ITERATION.search(name) is None


def _stem(name: str) -> str:
    return "" if _NOT_ITERATION.search(name) else _NUMBER.sub("#", name.lower())


def _loop(ranges: Ranges, rows: Ints, launches: Ints) -> Loop | None:
    if len(rows) < LEAST_NUMBERED or not len(launches):
        return None
    start, end = ranges.start[rows], ranges.end[rows]
    names = [ranges.names[code] for code in ranges.name[rows].tolist()]
    if (start[1:] < end[:-1]).any():
        return None
    numbers = np.array([_last_number(name) for name in names], dtype=np.int64)
    numbered = bool((numbers >= 0).all() and (np.diff(numbers) > 0).all())
    named = _ITERATION.search(names[0]) is not None
    if not numbered and (len(rows) < LEAST_REPEATED or (not named and (numbers >= 0).any())):
        return None
    # Launches inside of ranges, against all from the first range to the last: a loop surrounds most of the work.
    inside = np.searchsorted(launches, end, "right") - np.searchsorted(launches, start, "left")
    span = np.searchsorted(launches, end[-1], "right") - np.searchsorted(launches, start[0], "left")
    share = float(inside.sum() / span) if span else 0.0
    if share < (NAMED if named else UNNAMED) or (inside == 0).mean() > 0.5:
        return None
    return Loop(_stem(names[0]), named, share, numbers if numbered else np.arange(len(rows)), start, end, numbered)


def _last_number(name: str) -> int:
    found = _NUMBER.findall(name)
    return int(found[-1]) if found else NULL
