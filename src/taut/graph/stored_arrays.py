"""Whether the arrays of a graph that comes from a file fit together.

Kernels trust their indices: one that points outside its array would read or write memory that is not its own. A graph made
by ``link`` is sound by construction; one that was stored is checked here, every index and the order of events.
"""

from __future__ import annotations

import numpy as np

from taut.core.tables import Kind, Verb
from taut.graph.arrays import Graph

FAR_NS = 10**18
"""Times and durations beyond this many ns (31 years) overflow when a few of them are added up."""


EPOCH_NS = 4 * 10**18
"""Absolute times beyond this (the year 2096) leave no room for what is added to them."""


class Unsound(Exception):
    """What does not fit, in a few words."""


def check(graph: Graph) -> None:
    """Raise ``Unsound`` unless every index of the graph lies inside the array it points into."""
    n = len(graph.ops)
    if n == 0 or len(graph.ranks) == 0:
        raise Unsound("it holds no operator")
    _check_shapes(graph, n)
    _check_indices(graph, n)
    _check_times(graph)
    _check_order(graph, n)


def _check_shapes(graph: Graph, n: int) -> None:
    for name in ("work_ns", "gap_ns", "join", "wait", "wait_lag_ns", "gate", "explained", "window", "roles"):
        _require(len(getattr(graph, name)) == n, f"{name} has another number of rows than the ops")
    _require(len(graph.pred_ptr) == n + 1 and bool((np.diff(graph.pred_ptr) >= 0).all()), "numbers of predecessors are wrong")
    _require(int(graph.pred_ptr[-1]) == len(graph.pred) == len(graph.lag_ns), "numbers of predecessors and edges differ")
    _require(len(graph.steps) == len(graph.segment) > 0, "steps and segments differ in number")
    _require(len(graph.origin_ns) > 0, "there is no origin of time")
    _require(bool((np.diff(graph.steps) > 0).all()), "steps are not in order")
    ranks = graph.ranks
    _require(bool((np.diff(ranks.astype(np.int64)) > 0).all()) and int(ranks[0]) >= 0, "ranks are not in order")
    _require(0 <= graph.slots <= 2 * n, f"{graph.slots} slots for {n} ops")


def _check_indices(graph: Graph, n: int) -> None:
    ops, trace = graph.ops, graph.trace
    inside = (
        ("pred", graph.pred, 0, n),
        ("join", graph.join, -1, graph.slots),
        ("wait", graph.wait, -1, graph.slots),
        ("gate", graph.gate, -1, n),
        ("roles", graph.roles, -1, n),
        ("window", graph.window, 0, len(graph.steps)),
        ("segment", graph.segment, 0, len(graph.origin_ns)),
        ("name", ops.name, 0, len(trace.names)),
        ("lane", ops.lane, 0, len(trace.lanes)),
        ("group", ops.group, -1, len(trace.groups)),
        ("launch", ops.launch, -1, n),
        ("kind", ops.kind, 0, len(Kind)),
        ("verb", ops.verb, 0, len(Verb)),
        ("parent", trace.actions.parent, -1, len(trace.actions)),
        *([("steps", graph.steps, 0, len(trace.zero_ns))] if trace.relative and trace.zero_ns is not None else []),
    )
    for name, values, low, high in inside:
        within = len(values) == 0 or (int(values.min()) >= low and int(values.max()) < high)
        _require(within, f"column {name} points outside what it refers to")
    gates = np.bincount(graph.gate[graph.gate >= 0])
    _require(bool((gates > 0).all()), "a gate has no members")
    place = np.searchsorted(graph.ranks, ops.rank)
    known = graph.ranks[np.minimum(place, len(graph.ranks) - 1)] == ops.rank
    _require(bool(known.all()), "an op belongs to no rank")


def _check_times(graph: Graph) -> None:
    ops = graph.ops
    times = (ops.start_ns, ops.end_ns, graph.work_ns, graph.gap_ns, graph.lag_ns, graph.wait_lag_ns)
    for values, far in (*((values, FAR_NS) for values in times), (graph.origin_ns, EPOCH_NS)):
        _require(len(values) == 0 or (int(values.min()) > -far and int(values.max()) < far), "a time is out of range")
    _require(int(graph.work_ns.min()) >= 0, "an op has negative work")
    _require(bool((ops.end_ns >= ops.start_ns).all()), "an op ends before it begins")


def _check_order(graph: Graph, n: int) -> None:
    """Every op arrives once, in order; what waits ends once, after those it waits for; nobody comes before a predecessor."""
    events, waits = graph.events, graph.wait >= 0
    arrivals, ends = np.flatnonzero(events >= 0), np.flatnonzero(events < 0)
    _require(len(arrivals) == n and bool((events[arrivals] == np.arange(n)).all()), "ops do not arrive in order")
    ended = ~events[ends]
    _require(len(ended) == int(waits.sum()) and int(ended.max(initial=0)) < n, "ends of waiting ops are missing")
    done = arrivals.copy()
    done[ended] = ends
    _require(bool((done[waits] > arrivals[waits]).all()), "a waiting op ends before it arrives")
    _require(int(np.bincount(ended).max(initial=0)) <= 1 and bool(waits[ended].all()), "an op ends twice")
    target = np.repeat(np.arange(n), np.diff(graph.pred_ptr))
    _require(bool((done[graph.pred] < arrivals[target]).all()), "an op arrives before its predecessor ends")
    last = np.full(graph.slots, -1)
    joins = graph.join >= 0
    np.maximum.at(last, graph.join[joins], arrivals[joins])
    _require(bool((last[graph.wait[waits]] < done[waits]).all()), "a slot opens before its last member arrives")


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise Unsound(why)
