"""Which ops belong to which step, which steps are kept, and which of them share a time axis."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import distinct, numbered
from taut.core.tables import NULL, Trace
from taut.graph.recurring_units import recurring

NEAR = 0.5
"""Marks that are less than this share of a step apart follow each other."""


class Windows(Struct, frozen=True):
    """The kept ops and their windows: ``window`` per kept op, step label and segment per window."""

    keep: Mask
    step: Indices
    labels: Ints
    segment: Indices
    before: Ints
    """Of each segment the recorded step right before its first, -1 where there is none."""
    notes: tuple[str, ...] = ()


def windows(trace: Trace) -> Windows:
    """Steps by the trace's marks or step column; the profiler's first step dropped; else by recurring collectives."""
    ops = trace.ops
    step = ops.step
    notes: list[str] = []
    if len(ops) and (step < 0).all():
        step = recurring(trace)
        if step.max() > 0:
            cut = " (cut ones at the edges are left out)" if (step < 0).any() else ""
            notes.append(f"no step marks: {int(step.max()) + 1} steps found from what recurs{cut}")
        else:
            notes.append("no step marks and nothing recurs: the whole trace is one window")
    labels = distinct(step)
    labels = labels[labels >= 0]
    if trace.relative:
        return Windows(step >= 0, step, labels, np.arange(len(labels)), np.full(len(labels), NULL), tuple(notes))
    recorded = labels
    labels, dropped = _common(trace, step, labels)
    if dropped:
        notes.append(dropped)
    # Marks that tell the phase are a server's own, and no profiler starts with the first of them.
    if len(labels) >= 3 and len(trace.marks) and not (trace.marks.phase != "").any():
        labels = labels[_not_first_of_cycle(_holes(trace, labels))]
    keep = step >= 0 if len(labels) and len(labels) == len(recorded) else np.isin(step, labels)
    segment = np.cumsum(_holes(trace, labels), dtype=np.int64)
    return Windows(keep, step, labels, segment, _before(trace, labels, segment, recorded), tuple(notes))


def _common(trace: Trace, step: Indices, labels: Ints) -> tuple[Ints, str]:
    """Steps that every rank recorded; a job is compared only where all its ranks were watched."""
    ranks = len(trace.members)
    if ranks < 2 or len(labels) == 0:
        return labels, ""
    cell, cells = numbered(step, trace.ops.rank)
    first = np.zeros(cells, dtype=np.int64)
    first[cell] = step
    seen = np.bincount(np.searchsorted(labels, first[first >= 0]), minlength=len(labels))
    full = labels[seen == ranks]
    if len(full) == len(labels):
        return labels, ""
    if len(full) == 0:
        return labels, "no step was recorded on all ranks: waits across ranks cannot be trusted"
    return full, f"{len(labels) - len(full)} of {len(labels)} steps were not recorded on all ranks and are left out"


def _not_first_of_cycle(holes: Mask) -> Mask:
    """The first step of every profiler cycle carries the profiler's own start."""
    keep = ~holes
    keep[0] = False
    return keep if keep.any() else np.ones(len(keep), dtype=bool)


def _holes(trace: Trace, labels: Ints) -> Mask:
    """Whether steps are missing before each label: then it begins a time axis of its own.

    Numbers that are left out are no hole where the marks follow each other: steps of several micro-steps have the number
    of the first.
    """
    holes = np.zeros(len(labels), dtype=bool)
    holes[1:] = np.diff(labels) > 1
    marks = trace.marks
    mine = np.flatnonzero(marks.rank == marks.rank[0]) if len(marks) and holes.any() else np.zeros(0, dtype=np.int64)
    at = dict(zip(marks.step[mine].tolist(), mine.tolist(), strict=True))
    for i in np.flatnonzero(holes).tolist():
        one, other = at.get(int(labels[i - 1])), at.get(int(labels[i]))
        if one is not None and other is not None:
            apart = int(marks.start_ns[other]) - int(marks.end_ns[one])
            holes[i] = apart > NEAR * (int(marks.end_ns[one]) - int(marks.start_ns[one]))
    return holes


def _before(trace: Trace, labels: Ints, segment: Ints, recorded: Ints) -> Ints:
    """Of each segment the recorded step right before its first, -1 where there is none."""
    first = labels[np.flatnonzero(np.diff(segment, prepend=NULL))]
    at = np.searchsorted(recorded, first)
    follows = (at > 0) & ~_holes(trace, recorded)[at]
    return np.where(follows, recorded[at - 1], NULL)
