"""What no job is: refused before anything is computed from it, whichever reader it came through."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Indices, Ints
from taut.core.errors import InputRefused, TooLarge
from taut.core.ids import distinct, greatest, total
from taut.core.tables import Table, Trace
from taut.read.limits import WALL_NS, YEAR_NS

FAR_NS = 3 * 10**18
"""The year 2065: a time minus the difference of two others still fits 64 bits."""
MOST_CELLS, CELLS_PER_OP = 1 << 22, 64
"""Ranks × steps at most, whatever the ops are, and for each op: ranks that are nearly always absent are no job."""


def check(trace: Trace, ops: Table, steps: int) -> None:
    """Refuses ops that no job can have recorded: times, ranks and names beyond all bounds."""
    where = trace.source or trace.name
    low, high = int(ops.start_ns.min()), int(ops.end_ns.max())
    if low < -FAR_NS or high > FAR_NS or int(ops.start_ns.max()) > FAR_NS or int(ops.end_ns.min()) < -FAR_NS:
        beyond = low if low < -FAR_NS else max(high, int(ops.start_ns.max()))
        why = f"a time of {beyond:,} ns is out of range (it lies beyond the year 2065)"
        raise InputRefused(where, why, "check the unit of the times")
    if (ops.end_ns < ops.start_ns).any():
        raise InputRefused(where, "an op ends before it begins", "leave such ops out")
    ranks = distinct(ops.rank)
    if int(ranks[0]) < 0:
        raise InputRefused(where, f"rank {int(ranks[0])} is negative", "number the ranks from 0 on")
    known = trace.members.rank
    if (np.diff(known) <= 0).any() or not np.isin(ranks, known).all():
        raise InputRefused(where, "an op has a rank that is not among the members", "list every rank once, ascending")
    if int(ops.name.min()) < 0 or int(ops.name.max()) >= len(trace.names) or int(ops.group.max()) >= len(trace.groups):
        raise InputRefused(where, "an op refers to a class or group that has no name", "give every op an index of Trace.names")
    if steps * len(known) > MOST_CELLS + CELLS_PER_OP * len(ops):
        why = f"{len(known):,} ranks and {steps:,} steps, but only {len(ops):,} ops: most ranks are absent from most steps"
        raise TooLarge(where, why, "analyze the ranks of one job, or fewer steps")


def check_wall(trace: Trace, segment: Indices, end: Ints) -> None:
    """Refuses a run of more than ten years; ``end`` counts from the begin of each segment."""
    segments = int(segment.max()) + 1
    wall = max(int(end.max()), 0) if segments == 1 else total(np.maximum(greatest(segment, segments, end), 0))
    if wall > WALL_NS:
        years = wall / YEAR_NS
        raise InputRefused(trace.source or trace.name, f"a run of {years:,.0f} years", "check the unit of the times")
