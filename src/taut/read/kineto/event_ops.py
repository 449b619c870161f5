"""Kineto events as ops: their names and lanes, waits of the host, and the steps of the profiler."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from taut.core.array_types import Ints
from taut.core.tables import Kind, Mark, Table
from taut.read.kineto.event_columns import ANNOTATION, Events
from taut.read.op_rows import NAME_LENGTH, Rows, coded

SET_BACK, SET_BACK_NS = "profiler steps that begin before the one before them ended", 1_000_000
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")


def event_names(events: Events, rows: Rows, chosen: Ints) -> Ints:
    """Codes in ``rows.names`` of these events' own names."""
    return coded(rows.names, events.name[chosen], lambda code: events.names[code][:NAME_LENGTH])


def thread_lanes(events: Events, rows: Rows, chosen: Ints, word: str) -> Ints:
    """Lanes ``word T`` of these host events, T being the thread."""
    return coded(rows.lanes, events.place[chosen], lambda thread: f"{word} {events.threads[thread]}")


def add_waits(events: Events, rows: Rows, chosen: Ints, lane: str, name: str) -> None:
    """Add waits of the host (loader, checkpoint) as ops of coordination."""
    if len(chosen):
        lanes = thread_lanes(events, rows, chosen, lane)
        rows.add(events.start[chosen], events.end[chosen], kind=Kind.COORDINATE, lane=lanes, name=rows.names[name])


def step_marks(events: Events, rank: int, counts: Counter[str]) -> Table:
    """ProfilerStep annotations as steps; micro-steps of one optimiser step are joined."""
    rows = events.chosen(ANNOTATION, lambda name: _STEP.match(name) is not None)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    rows = rows[np.sort(np.unique(events.name[rows], return_index=True)[1])]
    step = np.array([int(events.names[code].split("#")[1]) for code in events.name[rows].tolist()], dtype=np.int64)
    start, end = events.start[rows], events.end[rows]
    counts[SET_BACK] += int((start[np.argsort(step)][1:] < end[np.argsort(step)][:-1] - SET_BACK_NS).sum())
    optimiser = np.sort(events.start[events.chosen(ANNOTATION, lambda name: name.startswith("Optimizer.step#"))])
    updates = np.searchsorted(optimiser, end, "left") > np.searchsorted(optimiser, start, "left")
    if updates.any() and not updates.all():
        # Gradient accumulation: a step reaches from the first micro-step to the one that updates the weights.
        last = np.flatnonzero(updates)
        first = np.concatenate([[0], last[:-1] + 1])
        counts["profiler steps joined by gradient accumulation"] += int((last - first).sum())
        counts["profiler steps without their optimiser step"] += len(step) - int(last[-1]) - 1
        step, start, end = step[first], start[first], end[last]
    return Table(Mark, {"rank": np.full(len(step), rank), "step": step, "start_ns": start, "end_ns": end}, len(step))
