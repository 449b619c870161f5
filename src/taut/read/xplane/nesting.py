"""Events that lie inside one another → pieces that do not: at any moment the innermost counts."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.jit import kernel


@kernel(lists=True)
def _pieces(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints, int]:
    """(event, start, end, how many) of the pieces of events that are sorted by start, the longer first."""
    most = 2 * len(start) + 1
    owner, begins, ends = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    stack = np.empty(len(start) + 1, np.int64)
    depth, count, at = 0, 0, 0
    for event in range(len(start)):
        # What ended before this one began; what is left open is cut where this one begins.
        while depth and end[stack[depth - 1]] <= start[event]:
            depth -= 1
            if end[stack[depth]] > at:
                owner[count] = stack[depth]
                begins[count] = at
                ends[count] = end[stack[depth]]
                at = end[stack[depth]]
                count += 1
        if depth and start[event] > at:
            owner[count] = stack[depth - 1]
            begins[count] = at
            ends[count] = start[event]
            count += 1
        at = max(at, start[event]) if depth else start[event]
        stack[depth] = event
        depth += 1
    while depth:
        depth -= 1
        if end[stack[depth]] > at:
            owner[count] = stack[depth]
            begins[count] = at
            ends[count] = end[stack[depth]]
            at = end[stack[depth]]
            count += 1
    return owner, begins, ends, count


def innermost(start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """(event, start, end) of pieces in order of time, none of which overlaps another; events without a length have none."""
    order = np.lexsort((-end, start))
    owner, begins, ends, count = _pieces(start[order], end[order])
    return order[owner[:count]], begins[:count], ends[:count]
