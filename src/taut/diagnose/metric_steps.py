"""Metrics on the axis of steps: what a sensor of a rank read on average in each of its steps."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.ids import weighed
from taut.core.tables import Kind, Table
from taut.graph import Graph
from taut.replay.exposed import copies

SEEN = 0.95
"""Share of the steps (or blocks of steps) that must hold a sample of every metric."""


class Steps(Struct, frozen=True):
    """One rank's steps, or blocks of steps where its sensors are slower than its steps."""

    took_ns: Floats
    """Its own work and gaps, mean per step, ns."""
    length_ns: Floats
    """From begin to end, waits included, mean per step, ns."""
    metrics: dict[str, Floats]
    """Mean of each metric."""
    window: Ints
    """Window of every step, blocks opened."""
    block: int = 1
    """Steps per block."""


def steps_of(graph: Graph, metrics: tuple[str, ...], least: int) -> dict[int, Steps]:
    """Index of a rank → its steps, for ranks that have the first of the metrics often enough for ``least`` blocks."""
    table = graph.trace.metrics
    if not len(table) or (graph.trace.relative and not len(graph.trace.marks)):
        return {}
    begin, end = extent(graph)
    took = _own(graph)
    out = {}
    for index, rank in enumerate(graph.ranks.tolist()):
        found = {name: _samples(table, rank, name) for name in metrics}
        if len(found[metrics[0]][0]):
            steps = _blocks(begin[index], end[index], took[index], found, least)
            if steps is not None:
                out[index] = steps
    return out


def _samples(table: Table, rank: int, name: str) -> tuple[Ints, Floats]:
    mine = (table.rank == rank) & (table.metric == name)
    order = np.argsort(table.time_ns[mine], kind="stable")
    return table.time_ns[mine][order], table.value[mine][order]


def _own(graph: Graph) -> Floats:
    """Own work and gaps of every rank in every window, ns."""
    own = (graph.ops.kind != Kind.COMMUNICATE) | copies(graph)
    cell = graph.rank_step[own]
    total = weighed(cell, (graph.work_ns + graph.gap_ns)[own], len(graph.ranks) * len(graph.steps))
    return total.reshape(len(graph.ranks), -1)


def extent(graph: Graph) -> tuple[Ints, Ints]:
    """Begin and end of every window on every rank, ns in the rank's own clock: marks if there are any, else its ops."""
    ranks, windows = len(graph.ranks), len(graph.steps)
    begin, end = np.full(ranks * windows, np.iinfo(np.int64).max), np.full(ranks * windows, np.iinfo(np.int64).min)
    marks = graph.trace.marks
    if graph.trace.relative:
        window = np.searchsorted(graph.steps, marks.step).clip(0, windows - 1)
        rank = np.searchsorted(graph.ranks, marks.rank).clip(0, ranks - 1)
        known = (graph.steps[window] == marks.step) & (graph.ranks[rank] == marks.rank) & (marks.start_ns >= 0)
        cell, first, last = (rank * windows + window)[known], marks.start_ns[known], marks.end_ns[known]
    else:
        offset = np.where(graph.clock.applied > 0, graph.clock.offset_ns, 0)[graph.rank_index]
        origin = graph.origin_ns[graph.segment[graph.window]] + offset
        cell = graph.rank_step
        first, last = origin + graph.ops.start_ns, origin + graph.ops.end_ns
    np.minimum.at(begin, cell, first)
    np.maximum.at(end, cell, last)
    return begin.reshape(ranks, windows), end.reshape(ranks, windows)


def _blocks(begin: Ints, end: Ints, took: Floats, found: dict[str, tuple[Ints, Floats]], least: int) -> Steps | None:
    """Steps in the smallest blocks in which every metric was sampled; None if too few are left."""
    window = np.flatnonzero(begin <= end)
    begin, end, took = begin[window], end[window], took[window]
    # Sensors may be slower than steps: blocks are doubled until nearly each holds a sample.
    block = 1
    while len(begin) // block >= least:
        count = len(begin) // block
        cut = slice(0, count * block)
        starts, ends = begin[cut][::block], end[cut][block - 1 :: block]
        means = {name: _mean(starts, ends, *samples) for name, samples in found.items()}
        sampled = {name: values for name, values in means.items() if np.isfinite(values).mean() >= SEEN}
        if next(iter(found)) in sampled:
            length = (end[cut] - begin[cut]).reshape(-1, block).mean(axis=1)
            own = took[cut].reshape(-1, block).mean(axis=1)
            return Steps(own, length, {name: _filled(values) for name, values in sampled.items()}, window[cut], block)
        block *= 2
    return None


def _mean(begin: Ints, end: Ints, time: Ints, value: Floats) -> Floats:
    """Mean of the samples in each interval, NaN where there is none."""
    total = np.concatenate([[0.0], np.cumsum(value)])
    first, last = np.searchsorted(time, begin), np.searchsorted(time, end)
    count = last - first
    return np.where(count > 0, (total[last] - total[first]) / np.maximum(count, 1), np.nan)


def _filled(values: Floats) -> Floats:
    """Gaps filled from the neighbours in time."""
    known = np.isfinite(values)
    return np.interp(np.arange(len(values)), np.flatnonzero(known), values[known])
