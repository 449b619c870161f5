"""Kineto events as ops: their names and lanes, waits of the host, and marked steps."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Ints, Mask
from taut.core.ids import dense, distinct
from taut.core.tables import NULL, Kind, Table
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import ANNOTATION, COPY, CPU_OP, DEVICE, RUNTIME, SHADOW, is_comm, is_launch
from taut.read.known_marks import MIXED, OPTIMISER, PROFILER, tells_phase
from taut.read.op_rows import NAME_LENGTH, Rows, coded, issuer
from taut.read.step_marks import Loop, Ranges, cut_at_end, cut_note, loops, micro_steps

SET_BACK, SET_BACK_NS = "profiler steps that begin before the one before them ended", 1_000_000
LEAST_INSIDE = 3
JOINED = "profiler steps joined by gradient accumulation"


def event_names(events: Events, rows: Rows, chosen: Ints) -> Ints:
    """Codes in ``rows.names`` of these events' own names."""
    return coded(rows.names, events.name[chosen], lambda code: events.names[code][:NAME_LENGTH])


def thread_lanes(events: Events, rows: Rows, chosen: Ints, word: str) -> Ints:
    """Lanes ``word T`` of these host events, T being the thread."""
    return coded(rows.lanes, events.place[chosen], lambda thread: f"{word} {events.threads[thread]}")


def add_waits(events: Events, rows: Rows, chosen: Ints, name: str) -> None:
    """Add waits of the host (loader, checkpoint) as ops of coordination."""
    if len(chosen):
        lanes = thread_lanes(events, rows, chosen, "thread")
        rows.add(events.start[chosen], events.end[chosen], kind=Kind.COORDINATE, lane=lanes, name=rows.names[name])


def step_marks(events: Events, rank: int, counts: Counter[str]) -> tuple[Table, tuple[str, ...]]:
    """Annotations that are iterations as steps, and what was assumed; micro-steps of one optimiser step are joined.

    Steps of the profiler come first. Where there is one of them only, the marks that somebody wrote inside it are the
    steps: the profiler was told of one step, and the loop ran inside it. Shadows of annotations on the device serve only
    where the host's own are not recorded.
    """
    launches = _launches(events)
    loop = _profiler_steps(events, counts)
    full = _launched(loop, launches)
    loop = replace(loop, step=loop.step[full], start=loop.start[full], end=loop.end[full])
    shadows = events.rows(SHADOW)
    if len(loop.step) < 2:
        inside = (loop.start[0], loop.end[0]) if len(loop.step) else None
        found = _written_steps(events, launches, inside)
        if found is None and not len(loop.step) and len(shadows):
            found, shadows = loops(_shadows(events, shadows), {0: launches}).get(0), shadows[:0]
        loop = found or loop
    elif len(events.chosen(ANNOTATION, tells_phase)):
        loop = replace(loop, phase=_phases(loop, _written_steps(events, launches, None)))
    counts["dropped: gpu_user_annotation"] += len(shadows)
    notes: tuple[str, ...] = (f"annotations {loop.doubt}",) if loop.doubt else ()
    joined = counts[JOINED]
    if joined and loop.stem == PROFILER.name:
        notes += (f"{joined + len(loop.step)} profiler steps make {len(loop.step)}: the optimiser steps once in several",)
    marks = loop.marks().replace(rank=np.full(len(loop.step), rank))
    cut = cut_at_end(marks, launches, _lost(events)) if events.has_device else 0
    return (marks.take(np.arange(len(marks) - cut)), (*notes, cut_note(cut))) if cut else (marks, notes)


def is_step(name: str) -> bool:
    """Whether an annotation is a step of the profiler."""
    return PROFILER.pattern.match(name) is not None


def _profiler_steps(events: Events, counts: Counter[str]) -> Loop:
    """ProfilerStep annotations, each to its own end."""
    rows = events.chosen(ANNOTATION, is_step)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    rows = rows[np.sort(np.unique(events.name[rows], return_index=True)[1])]
    step = np.array([int(events.names[code].split("#")[1]) for code in events.name[rows].tolist()], dtype=np.int64)
    start, end = events.start[rows], events.end[rows]
    counts[SET_BACK] += int((start[np.argsort(step)][1:] < end[np.argsort(step)][:-1] - SET_BACK_NS).sum())
    optimiser = np.sort(events.start[events.chosen(ANNOTATION, lambda name: OPTIMISER.match(name) is not None)])
    updates = np.searchsorted(optimiser, end, "left") > np.searchsorted(optimiser, start, "left")
    if updates.any() and not updates.all():
        # Gradient accumulation: a step reaches from the first micro-step to the one that updates the weights.
        first, last = micro_steps(step, updates)
        counts[JOINED] += int((last - first).sum())
        counts["profiler steps without their optimiser step"] += len(step) - int(last[-1]) - 1
        step, start, end = step[first], start[first], end[last]
    return Loop(PROFILER.name, True, 1.0, step, start, end, numbered=True, reaches=False)


def _launched(loop: Loop, launches: Ints) -> Mask:
    """The steps in which something was launched; a mark around nothing is no step."""
    return np.searchsorted(launches, loop.end, "left") > np.searchsorted(launches, loop.start, "left")


def _launches(events: Events) -> Ints:
    """When work was launched, in order: by the calls that launch, else when device or host work began."""
    work = events.rows(DEVICE, COPY)
    if not len(work):
        return np.sort(events.start[np.concatenate([events.rows(CPU_OP), events.chosen(ANNOTATION, is_comm)])])
    return distinct(_launched_at(events, work))


def _lost(events: Events) -> Ints:
    """When work was launched of which nothing is recorded, in order."""
    calls = events.chosen(RUNTIME, is_launch)
    lost = calls[~np.isin(events.correlation[calls], events.correlation[events.rows(DEVICE, COPY)])]
    return np.sort(events.start[lost])


def _launched_at(events: Events, work: Ints) -> Ints:
    """When each piece of device work was launched; when it began, where that is not recorded."""
    calls = events.rows(RUNTIME)
    by = issuer(events.correlation[calls], events.correlation[work])
    return np.where(by >= 0, np.append(events.start[calls], NULL)[by], events.start[work])


def _shadows(events: Events, rows: Ints) -> Ranges:
    """Shadows of annotations, as the times at which the host launched what lies in them: ops belong where they are launched."""
    work = events.rows(DEVICE, COPY)
    work = work[np.argsort(events.start[work], kind="stable")]
    launched = np.append(_launched_at(events, work), NULL)
    first, last = (np.searchsorted(events.start[work], time[rows], "left") for time in (events.start, events.end))
    rows, first, last = (column[last > first] for column in (rows, first, last))
    bounds = np.stack([first, last], axis=1).ravel()
    start, end = (reduce.reduceat(launched, bounds)[::2] if len(rows) else rows for reduce in (np.minimum, np.maximum))
    return Ranges(events.place[rows].astype(np.int64), start, end + 1, *_codes(events, rows))


def _written_steps(events: Events, launches: Ints, inside: tuple[int, int] | None) -> Loop | None:
    """The loop that people or frameworks annotated; inside a step of the profiler only a named one of several turns."""
    rows = events.chosen(ANNOTATION, lambda name: not is_step(name) and not is_comm(name))
    if inside is not None:
        rows = rows[(events.start[rows] >= inside[0]) & (events.end[rows] <= inside[1])]
        launches = launches[(launches >= inside[0]) & (launches < inside[1])]
    ranges = Ranges(events.place[rows].astype(np.int64), events.start[rows], events.end[rows], *_codes(events, rows))
    found = loops(ranges, {0: launches}).get(0)
    if found is None or (inside is not None and (not found.named or len(found.step) < LEAST_INSIDE)):
        return None
    return found


def _phases(loop: Loop, inside: Loop | None) -> list[str]:
    """The phase of each step by the marks of servers inside it; mixed where they differ."""
    if inside is None or not any(inside.phase):
        return []
    first, last = (np.searchsorted(inside.start, time, "left").tolist() for time in (loop.start, loop.end))
    phases = ({word for word in inside.phase[a:b] if word} for a, b in zip(first, last, strict=True))
    return [MIXED if len(one) > 1 else "".join(one) for one in phases]


def _codes(events: Events, rows: Ints) -> tuple[Ints, list[str]]:
    used, ids = dense(events.name[rows])
    return ids, [events.names[code][:NAME_LENGTH] for code in used.tolist()]
