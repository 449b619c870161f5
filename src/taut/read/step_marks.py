"""Named ranges (annotations, NVTX, regions) that are iterations → step marks.

First the marks that profilers, frameworks and servers are known to write (`known_marks.py`). Then loops that people named
themselves: one name, numbered or repeated, on one thread, one after the other, around most of the launches of their process;
a name of an iteration (``step``, ``iter``) needs less evidence than one that does not. Between the two kinds of names stand
events that happen once an iteration, such as the step of an optimiser. Steps reach to the beginning of the next, so that
what a job does between two ranges (loading, sampling, logging) belongs to one of them; a range in which nothing was launched
is no step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from taut.core.array_types import Ints, Mask
from taut.core.tables import NULL, Mark, Table
from taut.read.known_marks import DRAFTS, IMPLIED, OPTIMISER, VERIFY, WRITTEN, Edge, Family, Known, known

# Share of the launches, from the first range to the last, that must lie inside one.
KNOWN, NAMED, UNNAMED = 0.25, 0.5, 0.8
# A first or last step with less of the usual launches than this is cut.
WHOLE = 0.9
# A last step that lost more of its launches than others, by this share of all, is cut by the end of the recording.
LOST = 0.02
# Known marks around less than this share of what another loop holds are not the loop; what is only implied has steps that
# differ by less than this, and hold at least as much of all launches.
HALF = 0.5
# The process in a number of a thread: all but the lowest 24 bits.
PROCESS = ~0xFFFFFF
LEAST_NUMBERED, LEAST_NAMED, LEAST_REPEATED = 2, 2, 3
MOST_TURNS = 8
"""Optimiser steps (or batches) that one iteration may have."""
DOUBTS = {
    Edge.BEGIN: "that come once an iteration are taken as the beginnings of steps",
    Edge.END: "of optimisers are taken as the ends of steps",
}
_ITERATION = re.compile(r"step|iter|\bbatch[ _#:-]?\d", re.IGNORECASE)
_NOT_ITERATION = re.compile(
    r"optim|sched|::|micro|CompiledFxGraph|Torch-Compiled|DataLoader|criteri|writer|iterator", re.IGNORECASE
)
# Parts of an iteration, which recur inside it; some may be all of it, but say nothing about that.
_PART = re.compile(r"layer|block|attn|attention|mlp|moe|expert|embed|head|module|bucket|chunk|request", re.IGNORECASE)
_PASS = re.compile(r"forward|backward|fwd|bwd", re.IGNORECASE)
_EPOCH = re.compile(r"epoch", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}")
_NONE = np.zeros(0, dtype=np.int64)


class Loop(Struct, frozen=True):
    """The ranges of one process that are its steps; ``numbered`` where their names count them."""

    stem: str
    named: bool
    share: float
    step: Ints
    start: Ints
    end: Ints
    numbered: bool
    phase: list[str] = field(default_factory=list)
    """Of each step, where the names tell it."""
    reaches: bool = True
    """Whether steps reach to the beginning of the next."""
    doubt: str = ""
    """What was assumed, in words for a note, where the ranges are none that are known to be steps."""

    def marks(self) -> Table:
        """One mark a step; the rank is not known yet."""
        reached = (np.diff(self.step) == 1) & self.reaches
        end = np.append(np.where(reached, self.start[1:], self.end[:-1]), self.end[-1:])
        rank, phase = np.full(len(self.step), NULL), np.array(self.phase or [""] * len(self.step), dtype=object)
        columns = {"rank": rank, "step": self.step, "start_ns": self.start, "end_ns": end, "phase": phase}
        return Table(Mark, columns, len(self.step))

    def joined(self, updates: Ints) -> Loop:
        """Micro-steps of one update of the weights as one step; ``updates`` are the times of the updates."""
        start, end = self.marks().start_ns, self.marks().end_ns
        updated = np.searchsorted(updates, end, "left") > np.searchsorted(updates, start, "left")
        if not updated.any() or updated.all():
            return self
        first, last = micro_steps(self.step, updated)
        phase = [self.phase[k] for k in first.tolist()] if self.phase else []
        step = self.step[first] if self.numbered else np.arange(len(first))
        return replace(self, step=step, start=self.start[first], end=end[last], phase=phase)


def micro_steps(step: Ints, updates: Mask) -> tuple[Ints, Ints]:
    """First and last micro-step of every step that updates the weights; none reaches back over a hole in the numbers."""
    last = np.flatnonzero(updates)
    begins = np.flatnonzero(np.diff(step, prepend=step[0] - 2) != 1)
    cycle = np.searchsorted(begins, last, "right") - 1
    return np.maximum(np.concatenate([[0], last[:-1] + 1]), begins[cycle]), last


def cut_at_end(marks: Table, served: Ints, lost: Ints) -> int:
    """How many of the last steps were cut by the end of the recording, of which at least two steps are left.

    ``served`` are the times of launches whose work was recorded, ``lost`` those of launches without any, both in order. Every
    step may lose some: calls that a graph captures launch nothing.
    """
    with_work, without = (_inside(times, marks.start_ns, marks.end_ns) for times in (served, lost))
    share = without / np.maximum(with_work + without, 1)
    whole = len(marks)
    while whole > LEAST_NUMBERED and share[whole - 1] > np.median(share[: whole - 1]) + LOST:
        whole -= 1
    return len(marks) - whole


def cut_note(steps: int) -> str:
    """What is said of cut steps."""
    left_out = "the last step is" if steps == 1 else f"the last {steps} steps are"
    return f"the recording ends before the work that was launched in it: {left_out} left out"


class Ranges(Struct, frozen=True):
    """Ranges of all threads, and the names that they may have."""

    thread: Ints
    start: Ints
    end: Ints
    name: Ints
    names: Sequence[str]


def loops(ranges: Ranges, launches: Mapping[int, Ints]) -> dict[int, Loop]:
    """Process → its steps, of the one loop that most processes have; launches are times of work, sorted."""
    process = ranges.thread & PROCESS
    written, implied = (_families(ranges, launches, families) for families in (WRITTEN, IMPLIED))
    named = _own_names(ranges, launches)
    best: dict[int, Loop] = {}
    for one in np.unique(process).tolist():
        own, known_marks = named.get(one), written.get(one)
        if own and own.named and known_marks and _covers(known_marks, launches[one]) < HALF * _covers(own, launches[one]):
            known_marks = None  # marks of something that happens beside the loop, such as a warm-up
        found = known_marks or (own if own and own.named else None) or implied.get(one) or own
        if found:
            updates = np.flatnonzero(_matching(ranges, OPTIMISER) & (process == one))
            best[one] = found if one in implied and found is implied[one] else found.joined(np.sort(ranges.start[updates]))
    # Ranks of one job have one loop: a range that only some processes have is something else.
    usual = Counter(loop.stem for loop in best.values()).most_common(1)
    return {one: loop for one, loop in best.items() if loop.stem == usual[0][0]}


def _covers(loop: Loop, launches: Ints) -> int:
    """Launches from the first step to the last."""
    return int(_inside(launches, loop.start[:1], loop.end[-1:])[0])


def is_iteration(name: str) -> bool:
    """Whether a name is one of an iteration."""
    return bool(_ITERATION.search(name) and _stem(name)) and not (_PART.search(name) or _PASS.search(name))


def _matching(ranges: Ranges, pattern: re.Pattern[str]) -> Mask:
    passed = np.array([pattern.match(name) is not None for name in ranges.names], dtype=np.bool_)
    return passed[ranges.name] if len(ranges.name) else np.zeros(0, dtype=np.bool_)


def _families(ranges: Ranges, launches: Mapping[int, Ints], families: Sequence[Family]) -> dict[int, Loop]:
    """Process → its steps by the first of these families that it has."""
    found: dict[int, Loop] = {}
    for family in families:
        meanings = {code: what for code, name in enumerate(ranges.names) if (what := known(family, name)) is not None}
        rows = np.flatnonzero(np.isin(ranges.name, list(meanings))) if meanings else _NONE
        for process in np.unique(ranges.thread[rows] & PROCESS).tolist():
            if process in found or not len(launches.get(process, _NONE)):
                continue
            mine = rows[ranges.thread[rows] & PROCESS == process]
            loop = _known_loop(family, ranges, _one_thread(ranges, mine, launches[process]), meanings, launches[process])
            if loop is not None:
                found[process] = loop
    return found


def _one_thread(ranges: Ranges, rows: Ints, launches: Ints) -> Ints:
    """Those on the thread whose ranges hold most of the launches, in order, without what lies inside another."""
    inside = _inside(launches, ranges.start[rows], ranges.end[rows])
    threads, at = np.unique(ranges.thread[rows], return_inverse=True)
    most = threads[np.argmax(np.bincount(at, weights=inside + 1e-3))]
    return _outermost(ranges, rows[ranges.thread[rows] == most])


def _outermost(ranges: Ranges, rows: Ints) -> Ints:
    """Those of one thread that lie inside no other of them, in order."""
    rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
    ended = np.concatenate([[-1], np.maximum.accumulate(ranges.end[rows])[:-1]])
    outermost: Ints = rows[ranges.end[rows] > ended]
    return outermost


def _inside(launches: Ints, start: Ints, end: Ints) -> Ints:
    """Launches in each interval."""
    inside: Ints = np.searchsorted(launches, end, "left") - np.searchsorted(launches, start, "left")
    return inside


def _picked(what: list[Known], chosen: Mask) -> list[Known]:
    return [one for one, keep in zip(what, chosen.tolist(), strict=True) if keep]


def _known_loop(family: Family, ranges: Ranges, rows: Ints, meanings: Mapping[int, Known], launches: Ints) -> Loop | None:
    what = [meanings[code] for code in ranges.name[rows].tolist()]
    if any(one.mode == VERIFY for one in what):
        target = np.array([one.mode not in DRAFTS for one in what], dtype=np.bool_)
        rows, what = rows[target], _picked(what, target)
    start, end = ranges.start[rows], ranges.end[rows]
    if family.edge is Edge.END:
        start, end, kept = _until(end, launches)
    else:
        end, kept = reaching(start, end, launches, cut=family.edge is Edge.BEGIN)
    to = np.append(start[1:], end[-1:])
    kept &= _inside(launches, start, to) > 0
    rows, what, start, end, to = rows[kept], _picked(what, kept), start[kept], end[kept], to[kept]
    if len(rows) < family.least or not _holds_work(family, ranges, rows, launches):
        return None
    # What happens several times an iteration shows in names or launches that take turns.
    turns = 1 if family.edge is Edge.SPAN else _turns(ranges.name[rows], _inside(launches, start, to))
    whole = len(rows) // turns * turns
    start, what = start[:whole:turns], what[:whole:turns]
    if family.edge is not Edge.SPAN:
        end = to[turns - 1 : whole : turns]
        count = _inside(launches, start, end)
        odd = np.abs(count - np.median(count)) > HALF * np.median(count)
        # Three optimisers of one step are not three steps.
        if len(start) < LEAST_NUMBERED or odd.mean() > 1 - UNNAMED or count.sum() < HALF * len(launches):
            return None
    numbers = np.array([one.number for one in what], dtype=np.int64)
    numbered = bool((numbers >= 0).all() and (np.diff(numbers) > 0).all())
    step = numbers if numbered else np.arange(len(start))
    phase = [one.phase for one in what]
    written = family.edge is Edge.SPAN
    return Loop(family.name, written, 1.0, step, start, end, numbered, phase, doubt=DOUBTS.get(family.edge, ""))


def _holds_work(family: Family, ranges: Ranges, rows: Ints, launches: Ints) -> bool:
    """Whether enough is launched inside the ranges themselves, where they should be most of a step."""
    if family.edge is not Edge.SPAN:
        return True
    start, end = ranges.start[rows], ranges.end[rows]
    span = int(_inside(launches, start[:1], end[-1:])[0])
    return bool(span and _inside(launches, start, end).sum() >= KNOWN * span)


def reaching(start: Ints, end: Ints, launches: Ints, cut: bool) -> tuple[Ints, Mask]:
    """Ends of ranges, the last one's behind as many launches as usually follow a range; a cut step is not kept."""
    kept = np.ones(len(start), dtype=np.bool_)
    if len(start) < 2:
        return end, kept
    between = np.maximum(_inside(launches, end[:-1], start[1:]), 0)
    usual, longest = int(np.median(between)), int(np.maximum(start[1:] - end[:-1], 0).max())
    after = int(np.searchsorted(launches, end[-1], "left"))
    follow = launches[after : after + usual]
    if not cut:
        follow = follow[follow <= end[-1] + longest]
    kept[-1] = not cut or len(follow) >= WHOLE * usual
    last = max(int(end[-1]), int(follow[-1]) + 1 if len(follow) else 0)
    return np.append(end[:-1], last), kept


def _until(end: Ints, launches: Ints) -> tuple[Ints, Ints, Mask]:
    """Steps between the ends of ranges; the first has as many launches before it as the others, or is cut."""
    kept = np.ones(len(end), dtype=np.bool_)
    usual = int(np.median(_inside(launches, end[:-1], end[1:]))) if len(end) > 1 else 0
    before = int(np.searchsorted(launches, end[0], "left"))
    kept[0] = before >= WHOLE * usual
    first = launches[max(before - usual, 0)] if usual and before else end[0]
    return np.concatenate([[first], end[:-1]]), end, kept


def _turns(name: Ints, count: Ints) -> int:
    """How many ranges make one step: by names or by launches that take turns; 1 where they are alike or follow no order."""
    one_name = bool((name[1:] == name[:-1]).all())
    if len(count) < 3 or (one_name and _alike(count, 0.03)):
        return 1
    # Launches that differ little are in turns if they repeat exactly.
    within = 0.0 if _alike(count, 0.25) else 0.1
    for turns in range(2, min(MOST_TURNS, len(count) // 2) + 1):
        in_turn = (name[turns:] == name[:-turns]).all()
        # Of the first the beginning may be a guess.
        if in_turn and (not one_name or all(_alike(count[k or turns :: turns], within) for k in range(turns))):
            return turns
    return 1


def _alike(count: Ints, within: float) -> bool:
    usual = np.median(count)
    return bool((np.abs(count - usual) <= within * usual).all())


def _own_names(ranges: Ranges, launches: Mapping[int, Ints]) -> dict[int, Loop]:
    """Process → the loop that people named, if there is one."""
    stems = list(map(_stem, ranges.names))
    codes = {stem: code for code, stem in enumerate(dict.fromkeys(stems))}
    coded = np.array([codes[stem] if stem else NULL for stem in stems], dtype=np.int64)
    rows = np.flatnonzero(coded[ranges.name] >= 0) if len(ranges.name) else ranges.name
    found: dict[int, list[Loop]] = {}
    order = rows[np.lexsort((ranges.start[rows], coded[ranges.name[rows]], ranges.thread[rows]))]
    key = np.stack([ranges.thread[order], coded[ranges.name[order]]])
    cuts = np.flatnonzero((np.diff(key) != 0).any(axis=0)) + 1
    for mine in np.split(order, cuts):
        process = int(ranges.thread[mine[0]]) & PROCESS if len(mine) else NULL
        loop = _loop(ranges, mine, launches.get(process, _NONE))
        if loop is not None:
            found.setdefault(process, []).append(loop)
    return {
        process: max(some, key=lambda loop: (loop.named, round(loop.share, 1), -len(loop.step)))
        for process, some in found.items()
    }


def _stem(name: str) -> str:
    """The name without its numbers; empty for one that cannot be an iteration's."""
    iteration = _ITERATION.search(name) is not None
    if _NOT_ITERATION.search(name) or (_EPOCH.search(name) and not iteration) or (_PART.search(name) and not iteration):
        return ""
    return _NUMBER.sub("#", name.lower())


def _loop(ranges: Ranges, rows: Ints, launches: Ints) -> Loop | None:
    if len(rows) < LEAST_NUMBERED or not len(launches):
        return None
    rows = _outermost(ranges, rows)
    start, end = ranges.start[rows], ranges.end[rows]
    names = [ranges.names[code] for code in ranges.name[rows].tolist()]
    if len(rows) < LEAST_NUMBERED or (start[1:] < end[:-1]).any():
        return None
    named = is_iteration(names[0])
    # Launches inside of ranges, against all from the first range to the last: a loop surrounds most of the work.
    inside = np.searchsorted(launches, end, "right") - np.searchsorted(launches, start, "left")
    span = np.searchsorted(launches, end[-1], "right") - np.searchsorted(launches, start[0], "left")
    share = float(inside.sum() / span) if span else 0.0
    if share < (NAMED if named else UNNAMED) or (inside == 0).mean() > 0.5:
        return None
    counted = _counted(names)
    numbered = counted is not None
    if not numbered and (len(rows) < (LEAST_NAMED if named else LEAST_REPEATED) or (not named and _NUMBER.search(names[0]))):
        return None
    end, _ = reaching(start, end, launches, cut=False)
    step = np.arange(len(rows)) if counted is None else counted
    # Ranges of one number are parts of one iteration.
    first = np.flatnonzero(np.concatenate([[True], np.diff(step) != 0]))
    end = end[np.append(first[1:] - 1, len(rows) - 1)]
    stem = _stem(names[0])
    doubt = "" if numbered else f"named {stem!r} are taken as steps, numbered in their order"
    return Loop(stem, named, share, step[first], start[first], end, numbered, doubt=doubt)


def _counted(names: Sequence[str]) -> Ints | None:
    """The number in each name that counts the iterations: one that always grows, else one that waits for another."""
    numbers = np.array([_NUMBER.findall(name) for name in names], dtype=np.int64).reshape(len(names), -1)
    grows = np.diff(numbers, axis=0)
    for column in np.flatnonzero((grows > 0).all(axis=0)).tolist():
        return numbers[:, column]
    if _EPOCH.search(names[0]):
        return None
    for column in np.flatnonzero(((grows == 0) | (grows == 1)).all(axis=0) & (grows > 0).any(axis=0)).tolist():
        # Iteration 4 part 0, iteration 4 part 1, iteration 5 part 0: the parts are counted while the iteration stands.
        stands = grows[:, column] == 0
        if (grows[stands] == 1).all(axis=0).any():
            return numbers[:, column]
    return None
