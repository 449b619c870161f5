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
    # Ops of a group mostly come in the order of their starts: then nothing is sorted.
    tidy, latest = True, np.full(len(zero), -(1 << 62), np.int64)
    for i in range(len(group)):
        if start[i] < latest[group[i]]:
            tidy = False
            break
        latest[group[i]] = start[i]
    order = np.empty(0, np.int32)
    if not tidy:
        order, _ = order_groups(group, len(zero), start, end)
    # The spans are found twice, first to count those of each group.
    at = np.zeros(len(zero) + 1, np.int64)
    first, last = np.empty(0, np.int64), np.empty(0, np.int64)
    reach = np.empty(len(zero), np.int64)
    for write in range(2):
        reach[:] = -(1 << 62)
        for k in range(len(group)):
            i = k if tidy else order[k]
            if not chosen[i] or end[i] <= start[i]:
                continue
            g = group[i]
            if start[i] > reach[g]:
                at[g] += 1
                reach[g] = end[i]
                if write == 1:
                    first[at[g] - 1] = start[i] + zero[g]
            elif end[i] > reach[g]:
                reach[g] = end[i]
            if write == 1:
                last[at[g] - 1] = reach[g] + zero[g]
        if write == 0:
            found = 0
            for g in range(len(zero)):  # where the spans of each group begin
                count = at[g]
                at[g] = found
                found += count
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
