"""Sets of time of many groups of ops on one axis, by kernels: the groups lie one after the other, far apart."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.group_kernels import order_groups
from taut.core.jit import kernel, numpy_twin_of_kernel
from taut.core.spans import union


@numpy_twin_of_kernel
def union_of_groups_plain(group: Indices, zero: Ints, chosen: Mask, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """``union_of_groups`` by numpy."""
    at = zero[group[chosen]]
    found = union(start[chosen] + at, end[chosen] + at)
    return found.start, found.end


@numpy_twin_of_kernel
def begin_at_plain(group: Indices, zero: Ints, chosen: Mask, start: Ints, times: Ints) -> Codes:
    """``begin_at`` by numpy."""
    rows = np.flatnonzero(chosen)
    begin = start[rows] + zero[group[rows]]
    order = np.argsort(begin, kind="stable")
    if not len(rows):
        return np.full(len(times), -1, np.int32)
    first = order[np.minimum(np.searchsorted(begin[order], times), len(rows) - 1)]
    return np.where(begin[first] == times, rows[first], -1).astype(np.int32)


@kernel(plain=union_of_groups_plain)
def union_of_groups(group: Indices, zero: Ints, chosen: Mask, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Starts and ends of all time under any of the chosen ops, each from the zero of its group, in order of time."""
    order, begin = order_groups(group, len(zero), start, end)
    # The spans are found twice, first to count them.
    first, last = np.empty(0, np.int64), np.empty(0, np.int64)
    for write in range(2):
        found = 0
        for g in range(len(zero)):
            reach, some = 0, False
            for k in range(begin[g], begin[g + 1]):
                i = order[k]
                if not chosen[i] or end[i] <= start[i]:
                    continue
                if not some or start[i] > reach:
                    found += 1
                    reach = end[i]
                    if write == 1:
                        first[found - 1] = start[i] + zero[g]
                elif end[i] > reach:
                    reach = end[i]
                some = True
                if write == 1:
                    last[found - 1] = reach + zero[g]
        if write == 0:
            first, last = np.empty(found, np.int64), np.empty(found, np.int64)
    return first, last


@kernel(plain=begin_at_plain)
def begin_at(group: Indices, zero: Ints, chosen: Mask, start: Ints, times: Ints) -> Codes:
    """The first of the chosen ops, in their order, that begins at each of some times on the axis, which ascend; -1 for none."""
    out = np.full(len(times), -1, np.int32)
    if len(times) == 0:
        return out
    for i in range(len(group)):
        if chosen[i]:
            at = start[i] + zero[group[i]]
            k = np.searchsorted(times, at)
            if k < len(times) and times[k] == at and out[k] < 0:
                out[k] = i
    return out
