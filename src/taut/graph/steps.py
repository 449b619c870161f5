"""Which ops belong to which step, which steps are kept, and which of them share a time axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import distinct, numbered
from taut.core.tables import Trace, Verb

MOST_TRIED = 1024
"""Periods that are tried one after the other, which is quick for short ones."""


@dataclass(frozen=True)
class Windows:
    """The kept ops and their windows: ``window`` per kept op, step label and segment per window."""

    keep: Mask
    step: Ints
    labels: Ints
    segment: Indices
    notes: tuple[str, ...] = ()


def windows(trace: Trace) -> Windows:
    """Steps by the trace's marks or step column; the profiler's first step dropped; else by recurring collectives."""
    ops = trace.ops
    step = ops.step.astype(np.int64)
    notes: list[str] = []
    if len(ops) and (step < 0).all():
        step = _recurring(trace)
        if step.max() > 0:
            notes.append(f"no step marks: {int(step.max()) + 1} steps found from what recurs")
        else:
            notes.append("no step marks and nothing recurs: the whole trace is one step")
    labels = distinct(step)
    labels = labels[labels >= 0]
    if trace.relative:
        return Windows(step >= 0, step, labels, np.arange(len(labels)), tuple(notes))
    all_labels = len(labels)
    labels, dropped = _common(trace, step, labels)
    if dropped:
        notes.append(dropped)
    if len(labels) >= 3 and len(trace.marks):
        labels = labels[_not_first_of_cycle(labels)]
    keep = step >= 0 if len(labels) and len(labels) == all_labels else np.isin(step, labels)
    return Windows(keep, step, labels, _segments(labels), tuple(notes))


def _common(trace: Trace, step: Ints, labels: Ints) -> tuple[Ints, str]:
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


def _not_first_of_cycle(labels: Ints) -> Mask:
    """The first step of every profiler cycle carries the profiler's own start."""
    first = np.concatenate([[True], np.diff(labels) > 1])
    keep = ~first
    return keep if keep.any() else np.ones(len(labels), dtype=bool)


def _segments(labels: Ints) -> Ints:
    """Runs of consecutive steps share a time axis."""
    return np.concatenate([[0], np.cumsum(np.diff(labels) > 1)]) if len(labels) else np.zeros(0, dtype=np.int64)


def _recurring(trace: Trace) -> Ints:
    """Steps of each rank from a recurring sequence of collectives, else from ops that all occur equally often."""
    ops = trace.ops
    out = np.zeros(len(ops), dtype=np.int64)
    order = np.lexsort((ops.start_ns, ops.rank))
    for mine in np.split(order, np.flatnonzero(np.diff(ops.rank[order])) + 1):
        calls = mine[ops.verb[mine] != Verb.NONE]
        # Name and size in one number; sizes are below 2⁴⁰ bytes.
        token = ops.name[calls].astype(np.int64) * (1 << 40) + ops.size[calls] + 1
        period = _period(token)
        if period:
            # A step ends with the last collective of each period; the last step runs to the end.
            cuts = ops.end_ns[calls[period - 1 :: period]][: len(token) // period - 1]
        else:
            cuts = ops.start_ns[_once_a_step(ops.name[mine], mine)][1:]
        out[mine] = np.searchsorted(cuts, ops.start_ns[mine], side="right")
    return out


def _once_a_step(name: Indices, rows: Ints) -> Ints:
    """Rows of the first op among those whose class occurs as often as most classes do: once a step."""
    count = np.bincount(name)
    often = np.bincount(count[count >= 3]) if (count >= 3).any() else np.zeros(1)
    if often.max() < 3:
        return rows[:1]
    steps = int(np.argmax(often))
    first = np.flatnonzero(count[name] == steps)[0]
    same: Mask = name == name[first]
    return rows[same]


def _period(token: Ints) -> int:
    """Smallest period that repeats at least three times over the whole sequence, 0 if none."""
    n = len(token)
    for period in range(1, min(n // 3, MOST_TRIED) + 1):
        if (token[period:] == token[:-period]).all():
            return period
    return _long_period(numbered(token)[0].tolist()) if n // 3 > MOST_TRIED else 0


def _long_period(token: list[int]) -> int:
    """The same in one pass (Knuth, Morris and Pratt), whatever the period is."""
    border, same = [0] * len(token), 0
    for i in range(1, len(token)):
        while same and token[i] != token[same]:
            same = border[same - 1]
        same += token[i] == token[same]
        border[i] = same
    period = len(token) - same
    return period if 3 * period <= len(token) else 0
