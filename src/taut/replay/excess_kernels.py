"""Kernels that sum the excess of ops over their references by rank and window."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import weighed
from taut.core.jit import kernel, numpy_twin_of_kernel


@numpy_twin_of_kernel
def excess_of_steps_plain(
    rank: Indices, window: Indices, ranks: int, windows: int, chosen: Mask, work: Ints, reference: Floats
) -> tuple[Floats, Floats]:
    """``excess_of_steps`` by numpy."""
    cell, usual = (rank.astype(np.int64) * windows + window)[chosen], reference[chosen]
    return weighed(cell, work[chosen] - usual, ranks * windows), weighed(cell, usual, ranks * windows)


@kernel(plain=excess_of_steps_plain)
def excess_of_steps(
    rank: Indices, window: Indices, ranks: int, windows: int, chosen: Mask, work: Ints, reference: Floats
) -> tuple[Floats, Floats]:
    """(Work above the reference, the reference) of the chosen ops, which have one, summed by rank and window."""
    excess, usual = np.zeros(ranks * windows, np.float64), np.zeros(ranks * windows, np.float64)
    for v in range(len(work)):
        if chosen[v]:
            cell = rank[v] * windows + window[v]
            excess[cell] += work[v] - reference[v]
            usual[cell] += reference[v]
    return excess, usual


@numpy_twin_of_kernel
def spread_of_steps_plain(
    rank: Indices,
    window: Indices,
    ranks: int,
    windows: int,
    chosen: Mask,
    work: Ints,
    reference: Floats,
    cell: Indices,
    within: Floats,
    between: Floats,
) -> tuple[Floats, Floats, Floats, Ints]:
    """``spread_of_steps`` by numpy."""
    step, size, spread = (rank.astype(np.int64) * windows + window)[chosen], ranks * windows, within[cell[chosen]]
    net, variance, shared = (
        weighed(step, np.nan_to_num(values), size)
        for values in (work[chosen] - reference[chosen], spread * spread, between[cell[chosen]])
    )
    return net, variance, shared, np.bincount(step, minlength=size)


@kernel(plain=spread_of_steps_plain)
def spread_of_steps(
    rank: Indices,
    window: Indices,
    ranks: int,
    windows: int,
    chosen: Mask,
    work: Ints,
    reference: Floats,
    cell: Indices,
    within: Floats,
    between: Floats,
) -> tuple[Floats, Floats, Floats, Ints]:
    """(Work above the reference, squares of spreads within ranks, spreads between ranks, ops) of the chosen ops, summed by rank
    and window; what is not known counts as nothing."""
    size = ranks * windows
    net, variance, shared = np.zeros(size, np.float64), np.zeros(size, np.float64), np.zeros(size, np.float64)
    count = np.zeros(size, np.int64)
    for v in range(len(work)):
        if not chosen[v]:
            continue
        step, c = rank[v] * windows + window[v], cell[v]
        count[step] += 1
        if not np.isnan(reference[v]):
            net[step] += work[v] - reference[v]
        if not np.isnan(within[c]):
            variance[step] += within[c] * within[c]
        if not np.isnan(between[c]):
            shared[step] += between[c]
    return net, variance, shared, count
