"""What followed a meeting of replicas follows it in any replay of a policy.

A rank that came last did not wait, so nothing in its trace tells that its optimiser needs the reduction: where edges were
learnt from who woke whom, this one may be missing, and the rank would run ahead of a meeting that it has to attend. So the
first op of every computing lane that began after the last meeting of its step had ended is bound to it. The gap before it
becomes shorter by as much, and an unchanged replay is what it was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import numbered
from taut.core.tables import NULL, Kind, constant
from taut.graph import Graph
from taut.graph.arrays import Predecessors
from taut.graph.sweeps import order_events


class Bound(Struct, frozen=True):
    """A graph with these edges, its ops in an order that a sweep can follow, ready for any work and gaps."""

    graph: Graph
    was: Indices
    """Per op: which op of the graph it was made of it is."""
    shorter_ns: Ints | None
    """Per op that it was made of: how much shorter the gap before it is; None where no edge was added."""

    def with_times(self, work_ns: Ints, gap_ns: Ints) -> Graph:
        """The graph with this work and these gaps, both in the order of the ops that it was made of."""
        if self.shorter_ns is None:
            return replace(self.graph, work_ns=work_ns, gap_ns=gap_ns)
        gap = np.maximum(gap_ns - self.shorter_ns, 0)
        return replace(self.graph, work_ns=work_ns[self.was], gap_ns=gap[self.was])


def bound_to_meetings(graph: Graph, meets: Mask) -> Bound:
    """The graph with these edges; ``meets`` are the ops that meet other replicas."""
    same, source, target = np.arange(len(graph)), *_edges(graph, meets)
    if not len(source):
        return Bound(graph, same, None)
    segment = graph.segment[graph.window].astype(np.int64)
    more = _with_edges(graph, source, target)
    events, order, position = order_events(
        more.ptr, more.pred, graph.join, graph.wait, graph.slots, segment, int(segment.max()) + 1
    )
    if len(order) < len(graph):  # clocks that disagree close a circle
        return Bound(graph, same, None)
    ready = graph.ops.start_ns - graph.gap_ns
    shorter = np.zeros(len(graph), dtype=np.int64)
    np.maximum.at(shorter, target, graph.ops.end_ns[source] - ready[target])
    edges = more.permuted(order, position)
    columns = ("join", "wait", "wait_lag_ns", "gate", "explained", "window", "roles", "work_ns", "gap_ns")
    ops = graph.ops.take(order)
    if not constant(ops.launch):
        ops = ops.replace(launch=np.where(ops.launch >= 0, position[ops.launch], NULL))
    bound = replace(
        graph,
        **{name: getattr(graph, name)[order] for name in columns},
        ops=ops,
        events=events,
        pred_ptr=edges.ptr,
        pred=edges.pred,
        lag_ns=edges.lag,
    )
    return Bound(bound, order, shorter)


def _with_edges(graph: Graph, source: Ints, target: Ints) -> Predecessors:
    """The edges of a graph, and these."""
    order = np.argsort(target, kind="stable")
    at = graph.pred_ptr[target[order] + 1]
    count = np.diff(graph.pred_ptr) + np.bincount(target, minlength=len(graph))
    pred, lag = np.insert(graph.pred, at, source[order]), np.insert(graph.lag_ns, at, 0)
    return Predecessors(np.append(0, np.cumsum(count)), pred, lag)


def _edges(graph: Graph, meets: Mask) -> tuple[Ints, Ints]:
    """From the last meeting of every rank and step to the first op after it in each of the rank's computing lanes."""
    ops, index = graph.ops, graph.rank_index
    segment = graph.segment[graph.window].astype(np.int64)
    span = int(ops.end_ns.max(initial=0)) + 1
    start, end = segment * span + ops.start_ns, segment * span + ops.end_ns
    rows = np.flatnonzero(meets)
    rows = rows[np.lexsort((ops.end_ns[rows], graph.window[rows], index[rows]))]
    last = np.append((np.diff(index[rows]) != 0) | (np.diff(graph.window[rows]) != 0), True) if len(rows) else rows > 0
    rows = rows[last]
    begin = np.searchsorted(index[rows], np.arange(len(graph.ranks) + 1))

    lane, lanes = numbered(index, ops.lane)
    computes = np.bincount(lane, weights=ops.kind == Kind.COMPUTE, minlength=lanes) > 0
    order = np.lexsort((start, lane))
    first = np.searchsorted(lane[order], np.arange(lanes + 1))
    source, target = [], []
    for one in np.flatnonzero(computes).tolist():
        mine = order[first[one] : first[one + 1]]
        ends = rows[begin[index[mine[0]]] : begin[index[mine[0]] + 1]]
        at = np.searchsorted(start[mine], end[ends])
        found = mine[np.minimum(at, len(mine) - 1)]
        holds = (at < len(mine)) & (segment[found] == segment[ends]) & ~meets[found]
        source.append(ends[holds])
        target.append(found[holds])
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *source]), np.concatenate([none, *target])
