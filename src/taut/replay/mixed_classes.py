"""Classes whose ops are not equally long, and therefore have no reference: mixed shapes, and steps of several kinds.

A slow rank, or a rank that is slow in some steps, makes all its ops of a class longer, or all of them in these steps. So
lengths are compared only where nobody can be slow: within one step of one rank (*mixed shapes*), and between steps by what
all ranks share (*kinds of steps*, prefill and decode). What differs between ranks is never taken for a mixture.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import coded, greatest, in_groups, least, taken
from taut.core.scratch import kept
from taut.core.tables import Kind
from taut.graph import Graph
from taut.replay.exposed import copies

WIDE = float(np.log(2.0))
"""Lengths within one step of one rank whose middle four fifths are more than this (twofold) apart have no common reference.
For lognormal ops that is a coefficient of variation of 27 %; equal kernels have 1 to 5 %."""
APART, LEAST_APART = 23.0, float(np.log(1.1))
"""One mode has no hole: among n logarithms of lengths, the largest distance of two neighbours in the middle four fifths is
below APART / n of these four fifths. Null: logarithms with an exponential tail (lengths with a Pareto tail), heavier than
any measured: the sum over i ≥ n/10 of exp(−i t) is 1 % at t = 5 / (n/10), and four fifths are log 9 wide. Measured size: at
most 0.7 % there, below 0.1 % for lognormal lengths. Power for equal modes eight of their spreads apart: two modes 74 % in 64
ops and 96 % in 100, three 74 % in 100 and 99 % in 150, four 90 % in 150; below 30 ops none, there only WIDE tells. Holes of
less than 10 % are left alone, whatever n is: clocks of whole microseconds make them, and little depends on it."""
KINDS = float(np.log(1.25))
"""Steps are of two kinds where their lengths fall into two heaps at least 1.25-fold apart, and twice as far apart as either is
wide. Measured size: below 0.1 % for steps that stray by 5 %; by 30 %: 5 % of five steps, 2 % of six, 0.2 % of ten. Power for
kinds 1.5-fold apart that stray by 3 %: above 95 % up to 20 steps."""
LEAST_TURNS = 3
"""Changes from one kind of step to the other that tell kinds from a job that became slow, or was for a while."""


def kinds_and_mixed(graph: Graph, cls: Indices, classes: int) -> tuple[Indices, Mask]:
    """Per op: the kind of step it is in (0 or 1) as its class tells them apart; whether its class has no reference."""
    kind, mixed = np.zeros(len(cls), dtype=np.int8), np.zeros(len(cls), dtype=np.bool_)
    rows = np.flatnonzero(((graph.ops.kind == Kind.COMPUTE) | copies(graph)) & (graph.gate < 0)).astype(np.int32)
    # Most classes are of one length all over, and asked no further.
    own, work = kept(taken(cls, rows)), kept(taken(graph.work_ns, rows))
    unlike = least(own, classes, work) * np.exp(LEAST_APART) <= greatest(own, classes, work)
    if not unlike.all():
        chosen = np.flatnonzero(taken(unlike, own))
        rows, own, work = taken(rows, chosen), kept(taken(own, chosen)), kept(taken(work, chosen))
    if not len(rows):
        return kind, mixed
    np.maximum(work, 1, out=work)
    window = taken(graph.window, rows)
    cell, cells = coded(own, window, taken(graph.rank_index, rows))
    step, steps = coded(own, window)
    del window
    # The quickest rank stands for a step: what is slow on some ranks only does not show in it.
    if cells == len(rows):  # one op of a class in a step of a rank: it is the median of its cell, and at no distance from it
        shared = np.log(least(step, steps, work).astype(np.float64))
    else:
        order, begin = in_groups(cell, cells, work, work)
        low, high = order[(begin[:-1] + begin[1:] - 1) // 2], order[(begin[:-1] + begin[1:]) // 2]
        del order
        middle = 0.5 * (np.log(work[low].astype(np.float64)) + np.log(work[high].astype(np.float64)))
        shared = np.full(steps, np.inf)
        np.minimum.at(shared, step[low], middle)
        loose = ~graph.aligned[rows]
        if loose.any():
            mixed[rows] = _holes(own, classes, np.log(work.astype(np.float64)) - middle[cell], loose)[own]
    del work, cell
    class_of_step = np.zeros(steps, dtype=np.int64)
    class_of_step[step] = own
    kind_of_step, odd = _kinds(class_of_step, classes, shared, len(graph.ranks))
    if kind_of_step.any():
        kind[rows] = kind_of_step[step]
    if odd.any():
        mixed[rows] |= odd[own]
    return kind, mixed


def _holes(cls: Indices, classes: int, length: Floats, chosen: Mask) -> Mask:
    """Classes whose lengths, about the median of their rank and step, are wide apart or have a hole."""
    rows = np.flatnonzero(chosen)
    order = rows[np.lexsort((length[rows], cls[rows]))]
    cls, length = cls[order], length[order]
    count = np.bincount(cls, minlength=classes)
    begin = np.concatenate([[0], np.cumsum(count)])[:-1]
    some = count > 1
    tenth = count // 10
    low, high = begin + tenth, begin + np.maximum(count - 1 - tenth, 0)
    wide = np.zeros(classes)
    wide[some] = length[high[some]] - length[low[some]]
    step = np.append(np.diff(length), 0.0)
    at = np.arange(len(length))
    step[(at < low[cls]) | (at >= high[cls])] = 0.0
    hole = np.zeros(classes)
    hole[some] = np.maximum.reduceat(step, begin[some])
    return some & ((wide > WIDE) | ((hole > LEAST_APART) & (hole * count > APART * wide)))


def _kinds(of: Ints, classes: int, shared: Floats, ranks: int) -> tuple[Ints, Mask]:
    """Kind (0 or 1) of every step of a class, and classes of which two steps alone cannot tell which is ordinary.

    Of every step, by class and then in the order of time: its class, and the logarithm of its length.
    """
    steps = len(of)
    # Steps of a class, from the shortest to the longest; the widest distance of neighbours makes two heaps.
    by_length = np.lexsort((shared, of))
    count = np.bincount(of, minlength=classes)
    start = np.concatenate([[0], np.cumsum(count)])[:-1]
    there = np.flatnonzero(count > 1)
    odd, kind = np.zeros(classes, dtype=np.bool_), np.zeros(steps, dtype=np.int64)
    if not len(there):
        return kind, odd
    value = shared[by_length]
    first, last = start[there], start[there] + count[there] - 1
    odd[there] = (count[there] == 2) & (ranks == 1) & (value[last] - value[first] > WIDE)
    gap = np.append(np.diff(value), 0.0)
    gap[start[there] + count[there] - 1] = 0.0
    widest = np.zeros(classes)
    widest[there] = np.maximum.reduceat(gap, first)
    # The place of the widest distance: the last of the heap below it.
    at = np.flatnonzero((gap == widest[of[by_length]]) & (gap >= KINDS))
    split = np.full(classes, -1, dtype=np.int64)
    split[of[by_length[at]]] = at
    found = there[split[there] >= 0]
    below = value[split[found]] - value[start[found]]
    above = value[start[found] + count[found] - 1] - value[split[found] + 1]
    heaps = np.zeros(classes, dtype=np.bool_)
    heaps[found] = 2 * np.maximum(below, above) <= widest[found]
    place = np.empty(steps, dtype=np.int64)
    place[by_length] = np.arange(steps)
    kind = (heaps[of] & (place > split[of])).astype(np.int64)
    # In the order of time: how often the kind changes, and whether the longer kind comes first.
    turns = np.concatenate([[0], (np.diff(kind) != 0) & (np.diff(of) == 0)])
    changes = np.bincount(of, weights=turns, minlength=classes)
    opens = np.zeros(classes, dtype=np.bool_)
    # A job may open with steps of another kind (a prefill, a warm-up), if they are far longer.
    opens[there] = (kind[start[there]] == 1) & (widest[there] >= WIDE) & (count[there] > 2)
    kind[~((changes >= LEAST_TURNS) | (opens & (changes == 1)))[of]] = 0
    return kind, odd
