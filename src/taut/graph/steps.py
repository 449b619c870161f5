"""Which ops belong to which step, which steps are kept, and which of them share a time axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.tables import Trace, Verb


@dataclass(frozen=True)
class Windows:
    """The kept ops and their windows: ``window`` per kept op, step label and segment per window."""

    keep: Any
    step: Any
    labels: Any
    segment: Any
    notes: tuple[str, ...] = ()


def windows(trace: Trace) -> Windows:
    """Steps by the trace's marks or step column; the profiler's first step dropped; else by recurring collectives."""
    ops = trace.ops
    step = ops.step.astype(np.int64)
    notes: list[str] = []
    if len(ops) and (step < 0).all():
        step = _recurring(trace)
        if step.max() > 0:
            notes.append(f"no step marks: {int(step.max()) + 1} steps found from recurring collectives")
        else:
            notes.append("no step marks and nothing recurs: the whole trace is one step")
    labels = np.unique(step[step >= 0])
    if trace.relative:
        return Windows(step >= 0, step, labels, np.arange(len(labels)), tuple(notes))
    labels, dropped = _common(trace, step, labels)
    if dropped:
        notes.append(dropped)
    if len(labels) >= 3 and len(trace.marks):
        labels = labels[_not_first_of_cycle(labels)]
    keep = np.isin(step, labels)
    return Windows(keep, step, labels, _segments(labels), tuple(notes))


def _common(trace: Trace, step: Any, labels: Any) -> tuple[Any, str]:
    """Steps that every rank recorded; a job is compared only where all its ranks were watched."""
    ranks = np.unique(trace.ops.rank)
    if len(ranks) < 2 or len(labels) == 0:
        return labels, ""
    inside = step >= 0
    pairs = np.unique(np.stack([step[inside], trace.ops.rank[inside].astype(np.int64)]), axis=1)
    seen = np.bincount(np.searchsorted(labels, pairs[0]), minlength=len(labels))
    full = labels[seen == len(ranks)]
    if len(full) == len(labels):
        return labels, ""
    if len(full) == 0:
        return labels, "no step was recorded on all ranks: waits across ranks cannot be trusted"
    return full, f"{len(labels) - len(full)} of {len(labels)} steps were not recorded on all ranks and are left out"


def _not_first_of_cycle(labels: Any) -> Any:
    """The first step of every profiler cycle carries the profiler's own start."""
    first = np.concatenate([[True], np.diff(labels) > 1])
    keep = ~first
    return keep if keep.any() else np.ones(len(labels), dtype=bool)


def _segments(labels: Any) -> Any:
    """Runs of consecutive steps share a time axis."""
    return np.concatenate([[0], np.cumsum(np.diff(labels) > 1)]) if len(labels) else np.zeros(0, dtype=np.int64)


def _recurring(trace: Trace) -> Any:
    """Steps from a recurring sequence of collectives on the first rank: cut before each repetition."""
    ops = trace.ops
    out = np.zeros(len(ops), dtype=np.int64)
    for rank in np.unique(ops.rank):
        mine = np.flatnonzero(ops.rank == rank)
        calls = mine[ops.verb[mine] != Verb.NONE]
        calls = calls[np.argsort(ops.start_ns[calls], kind="stable")]
        token = ops.name[calls].astype(np.int64) * (1 << 40) + ops.size[calls] + 1
        period = _period(token)
        if period == 0:
            continue
        ends = ops.end_ns[calls[period - 1 :: period]]
        out[mine] = np.minimum(np.searchsorted(ends, ops.start_ns[mine]), max(len(token) // period - 1, 0))
    return out


def _period(token: Any) -> int:
    """Smallest period that repeats at least three times over the whole sequence, 0 if none."""
    n = len(token)
    for period in range(1, n // 3 + 1):
        if (token[period:] == token[:-period]).all():
            return period
    return 0
