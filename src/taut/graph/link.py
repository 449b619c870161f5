"""Trace → Graph: match gates, align clocks, draw edges, order events, and split durations into gap, wait and work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.errors import InputRefused
from taut.graph import clocks, gates, hidden, rendezvous, steps
from taut.graph.ids import numbered
from taut.graph.model import Gate, Graph
from taut.tables import NULL, Kind, Op, Table, Trace, Verb

OVERLAP_NS = 1_000_000
"""An op may begin this much before its predecessor ends (timer noise) and still follow it."""
GATE_NS = 50_000
"""A member may end this much before the last arrives (clock residual) and still have waited for it."""
IDLE_NS = 20_000
"""A lane idle for longer than this asks for an explanation."""


@dataclass
class Edges:
    """Edges under construction: source, target and the lag added to the source's end."""

    source: Any
    target: Any
    lag: Any

    @classmethod
    def join(cls, parts: Sequence[Edges]) -> Edges:
        """All edges of several parts."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("source", "target", "lag")))


def link(trace: Trace) -> Graph:
    """The operator graph of a trace."""
    if len(trace.ops) == 0:
        raise InputRefused(trace.source or trace.name, "holds no operator", "record with CPU or CUDA activities on")
    windows = steps.windows(trace)
    if not windows.keep.any():
        raise InputRefused(trace.source or trace.name, "no operator lies inside a step", "profile at least one whole step")
    rows = _in_time(trace.ops, np.flatnonzero(windows.keep), windows.step)
    ops = _renumber(trace.ops.take(rows), rows, len(trace.ops)).replace(step=windows.step[rows])
    window = np.searchsorted(windows.labels, ops.step)
    verb, group, peer, names = rendezvous.infer(ops, trace.members)
    group = np.where((group >= 0) & (ops.group < 0), group + len(trace.groups), group)
    ops = ops.replace(verb=verb, group=group, peer=peer)
    matching = gates.match(ops, ops.group.astype(np.int64))
    clock, residual = clocks.fit(ops, matching.gate, matching.gates, trace.members)

    shift = clock.offset_ns[np.searchsorted(trace.members.rank, ops.rank)]
    segment = windows.segment[window].astype(np.int64)
    origin, start, end = _axis(ops.start_ns - shift, ops.end_ns - shift, segment)
    lanes = _serial_lanes(ops, start, end, segment, trace.timer_ns)
    ops = ops.replace(start_ns=start, end_ns=end, lane=lanes.lane)
    return _assemble(trace, ops, lanes, window, segment, origin, matching, clock, residual, windows, names)


def _in_time(ops: Table, rows: Any, step: Any) -> Any:
    """Rows by step, rank and time: whatever groups them later finds them sorted already."""
    from taut.graph.kernels import order_groups

    order, _ = order_groups(*numbered(step[rows], ops.rank[rows]), ops.start_ns[rows], ops.end_ns[rows])
    return rows[order]


def _renumber(ops: Table, rows: Any, total: int) -> Table:
    """Launch rows after the cut: an op whose launch was cut away has none."""
    new = np.full(total + 1, NULL, dtype=np.int64)
    new[rows] = np.arange(len(rows))
    return ops.replace(launch=new[ops.launch])


def _axis(start: Any, end: Any, segment: Any) -> tuple[Any, Any, Any]:
    """Times relative to the origin of their segment: its first start."""
    origin = np.full(int(segment.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(origin, segment, start)
    return origin, start - origin[segment], end - origin[segment]


def _tolerance(duration_a: Any, duration_b: Any, timer_ns: int) -> Any:
    return np.minimum(OVERLAP_NS, np.maximum(timer_ns, np.minimum(duration_a, duration_b) // 2))


@dataclass(frozen=True)
class Lanes:
    """Ops in lane order: ``order``, where a lane begins, and where an op belongs to the same grouped call as the last."""

    lane: Any
    order: Any
    begins: Any
    sibling: Any


def _lanes(ops: Table, lane: Any, segment: Any, start: Any, end: Any, timer_ns: int) -> Lanes:
    """Lane order; what is shorter than the timer's error goes before what seems to begin with it."""
    from taut.graph.kernels import order_groups

    group, groups = numbered(segment, ops.rank, lane)
    instant = end - start <= timer_ns
    order, begin = order_groups(group, groups, np.where(instant, start - timer_ns, start), end)
    begins = np.zeros(len(order), dtype=bool)
    begins[begin[:-1]] = True
    s, e, communicates = start[order], end[order], ops.kind[order] == Kind.COMMUNICATE
    same = (s[1:] == s[:-1]) & (e[1:] == e[:-1]) & (e[1:] > s[1:]) & communicates[1:] & communicates[:-1] & ~begins[1:]
    return Lanes(lane, order, begins, np.concatenate([[False], same]))


def _serial_lanes(ops: Table, start: Any, end: Any, segment: Any, timer_ns: int) -> Lanes:
    """Lanes in which no two ops overlap by more than timer noise: what overlaps moves to a lane of its own."""
    lane = ops.lane.astype(np.int64)
    for _ in range(64):
        lanes = _lanes(ops, lane, segment, start, end, timer_ns)
        s, e = start[lanes.order], end[lanes.order]
        tolerance = _tolerance(e[1:] - s[1:], e[:-1] - s[:-1], timer_ns)
        over = np.concatenate([[False], s[1:] < e[:-1] - tolerance]) & ~lanes.begins & ~lanes.sibling
        if not over.any():
            break
        over[1:] &= ~over[:-1] | lanes.sibling[1:]
        lane = lane.copy()
        lane[lanes.order[over]] += int(lane.max()) + 1
        lane = numbered(lane)[0]
    return lanes


def _assemble(
    trace: Trace, ops: Table, lanes: Lanes, window: Any, segment: Any, origin: Any, matching: gates.Matching, clock: Table,
    residual: int | None, windows: steps.Windows, names: list[str],
) -> Graph:  # fmt: skip
    from taut.graph.kernels import order_events

    n = len(ops)
    join, wait, slots = gates.slots(ops, matching.gate, matching.gates)
    edges, anchors, dropped = _edges(ops, lanes, segment, trace.timer_ns, trace.members)
    explained = np.zeros(n, dtype=bool)
    explained[edges.target] = True
    edges = Edges.join([edges, anchors])
    wait, wait_lag, late = _who_waited(ops, join, wait, slots)
    gate = matching.gate
    broken = 0
    while True:
        ptr, pred, lag = _csr(edges, n)
        events, position, placed = order_events(ptr, pred, join, wait, slots, segment, len(origin))
        if placed == n:
            break
        stuck = position < 0
        victim = _gate_to_break(ops, gate, stuck)
        if victim is None:
            edges, lost = _cut(edges, stuck)
            dropped += lost
            continue
        broken += 1
        open_again = gate == victim
        join, wait = np.where(open_again, NULL, join), np.where(open_again, NULL, wait)
        gate = np.where(open_again, NULL, gate)
    if broken:
        gate = np.where(gate >= 0, np.unique(gate, return_inverse=True)[1].ravel() - int((gate < 0).any()), NULL)
    opens = _openings(ops, join, slots)
    work = _work(ops, wait, wait_lag, opens)
    gap = _gaps(ops, ptr, pred, lag)

    order = np.empty(n, dtype=np.int64)
    order[position] = np.arange(n)
    new_ptr, new_pred, new_lag = _permute_csr(ptr, pred, lag, order, position)
    sign = events < 0
    real = np.where(sign, ~events, events)
    moved = position[real]
    partial = [*trace.partial, *windows.notes]
    if broken:
        partial.append(f"{broken} gates wait for each other in a circle: taken apart, their waits are not seen")
    if matching.misaligned:
        partial.append(f"{matching.misaligned} collectives have no counterpart in the others' order and are not matched")
    extended = _extend_groups(trace, names)
    ordered = ops.take(order)
    launch = np.where(ordered.launch >= 0, position[ordered.launch], NULL)
    ordered = ordered.replace(launch=launch)
    index = np.searchsorted(trace.members.rank, ordered.rank)
    graph = Graph(
        trace=extended, ops=ordered, work_ns=work[order], gap_ns=gap[order],
        pred_ptr=new_ptr, pred=new_pred, lag_ns=new_lag,
        join=join[order].astype(np.int32), wait=wait[order].astype(np.int32), wait_lag_ns=wait_lag[order], slots=slots,
        events=np.where(sign, ~moved, moved), gate=gate[order].astype(np.int32), explained=explained[order],
        gates=_gate_table(ops, gate, matching.gates - broken, extended, window, windows.labels),
        window=window[order].astype(np.int32), steps=windows.labels, segment=np.asarray(windows.segment, dtype=np.int32),
        origin_ns=origin, members=trace.members, clock=clock, clock_residual_ns=residual,
        dropped_edges=dropped + late, partial=tuple(partial),
        counts={**trace.counts, "gates": matching.gates - broken, "unmatched": matching.unmatched,
                "misaligned": matching.misaligned, "circular gates": broken},
        roles=np.maximum(trace.members.stage[index], 0).astype(np.int32),
    )  # fmt: skip
    return graph


def _extend_groups(trace: Trace, names: list[str]) -> Trace:
    import dataclasses

    return dataclasses.replace(trace, groups=[*trace.groups, *names], ops=Table(Op, {}, 0))


def _edges(ops: Table, lanes: Lanes, segment: Any, timer_ns: int, members: Table) -> tuple[Edges, Edges, int]:
    """Lane order, launches, wake-ups and unseen rendezvous; edges the trace contradicts are dropped and counted."""
    parts = [_lane_edges(lanes), _launch_edges(ops, segment), *_wake_edges(ops, segment)]
    unseen = hidden.edges(ops, lanes.order, lanes.begins, segment, members)
    parts.append(Edges(*unseen, np.zeros(len(unseen[0]), dtype=np.int64)))
    joined = Edges.join(parts)
    source, target, lag = joined.source, joined.target, joined.lag
    early = ops.end_ns[source] + lag - ops.start_ns[target]
    length = ops.end_ns - ops.start_ns
    tolerance = _tolerance(length[source], length[target], timer_ns)
    good = early <= tolerance
    lag = lag - np.maximum(early, 0)
    kept = Edges(source[good], target[good], lag[good])
    return kept, _anchors(ops, segment, kept.target), int((~good).sum())


def _anchors(ops: Table, segment: Any, explained: Any) -> Edges:
    """An op that nothing explains hangs on the start of the op that began before it on its rank: nothing floats."""
    from taut.graph.kernels import order_groups

    launched = (ops.launch >= 0).astype(np.int64)
    order, begin = order_groups(*numbered(segment, ops.rank), ops.start_ns, launched)
    loose = np.ones(len(ops), dtype=bool)
    loose[explained] = False
    loose[order[begin[:-1]]] = False
    place = np.flatnonzero(loose[order])
    source, target = order[place - 1], order[place]
    return Edges(source, target, ops.start_ns[source] - ops.end_ns[source])


def _lane_edges(lanes: Lanes) -> Edges:
    """Every op follows the op (or the grouped ops) before it in its lane."""
    order, leads = lanes.order, ~lanes.sibling
    block = np.cumsum(leads) - 1
    begins = np.flatnonzero(leads)
    sizes = np.diff(np.append(begins, len(order)))
    rows = np.flatnonzero(~lanes.begins[begins][block])
    before = block[rows] - 1
    repeat = sizes[before]
    target = np.repeat(order[rows], repeat)
    offset = np.arange(len(target)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    source = order[np.repeat(begins[before], repeat) + offset]
    return Edges(source, target, np.zeros(len(target), dtype=np.int64))


def _launch_edges(ops: Table, segment: Any) -> Edges:
    """A launched op cannot begin before its launch began (the call itself may return later)."""
    target = np.flatnonzero(ops.launch >= 0)
    source = ops.launch[target]
    same = segment[source] == segment[target]
    source, target = source[same], target[same]
    return Edges(source, target, ops.start_ns[source] - ops.end_ns[source])


def _wake_edges(ops: Table, segment: Any) -> list[Edges]:
    """Why an idle lane woke: work of another kind that ended just before, on another lane of the same rank."""
    from taut.graph.kernels import idle_causes, order_groups

    lanes = int(ops.lane.max()) + 1
    if lanes == 1:
        return []
    order, cuts = order_groups(*numbered(segment, ops.rank), ops.start_ns, ops.end_ns)
    lane, start, end, kind = (a[order] for a in (ops.lane, ops.start_ns, ops.end_ns, ops.kind))
    cause, woken = idle_causes(lane, start, end, kind, cuts, lanes, IDLE_NS)
    s, t = order[cause], order[woken]
    return [Edges(s, t, np.minimum(ops.start_ns[t] - ops.end_ns[s], 0))]


def _openings(ops: Table, join: Any, slots: int) -> Any:
    """When each slot opened: the latest arrival among those that join it."""
    opens = np.full(slots + 1, np.iinfo(np.int64).min)
    inside = join >= 0
    np.maximum.at(opens, join[inside], ops.start_ns[inside])
    return opens


def _who_waited(ops: Table, join: Any, wait: Any, slots: int) -> tuple[Any, Any, int]:
    """Who ended before the slot opened did not wait for it, unless by less than the clock can tell."""
    opens = _openings(ops, join, slots)
    waits = wait >= 0
    short = np.where(waits, opens[np.maximum(wait, 0)] - ops.end_ns, 0)
    allowed = np.maximum(GATE_NS, np.minimum(OVERLAP_NS, (ops.end_ns - ops.start_ns) // 20))
    impossible = waits & (short > allowed)
    eager = impossible & (ops.verb == Verb.SEND)
    lag = np.where(waits & ~impossible, -np.maximum(short, 0), 0)
    return np.where(impossible, NULL, wait), lag.astype(np.int64), int((impossible & ~eager).sum())


def _work(ops: Table, wait: Any, wait_lag: Any, opens: Any) -> Any:
    opening = np.where(wait >= 0, np.maximum(ops.start_ns, opens[np.maximum(wait, 0)] + wait_lag), ops.start_ns)
    return ops.end_ns - opening


def _csr(edges: Edges, n: int) -> tuple[Any, Any, Any]:
    from taut.graph.kernels import group_sort

    order, ptr = group_sort(edges.target, n)
    return ptr, edges.source[order], edges.lag[order]


def _permute_csr(ptr: Any, pred: Any, lag: Any, order: Any, position: Any) -> tuple[Any, Any, Any]:
    counts = np.diff(ptr)[order]
    new_ptr = np.zeros(len(ptr), dtype=np.int64)
    np.cumsum(counts, out=new_ptr[1:])
    take = np.repeat(ptr[:-1][order] - new_ptr[:-1], counts) + np.arange(len(pred))
    return new_ptr, position[pred[take]], lag[take]


def _gaps(ops: Table, ptr: Any, pred: Any, lag: Any) -> Any:
    """What no edge explains: start minus the latest predecessor (or the segment's origin)."""
    ready = np.zeros(len(ops), dtype=np.int64)
    has = np.flatnonzero(np.diff(ptr) > 0)
    if len(has):
        ready[has] = np.maximum(np.maximum.reduceat(ops.end_ns[pred] + lag, ptr[:-1][has]), 0)
    return ops.start_ns - ready


def _gate_to_break(ops: Table, gate: Any, stuck: Any) -> int | None:
    """In a circle of gates, the one whose members begin farthest apart is the least likely to be real."""
    rows = np.flatnonzero(stuck & (gate >= 0))
    if len(rows) == 0:
        return None
    ids, where = np.unique(gate[rows], return_inverse=True)
    first, last = np.full(len(ids), np.iinfo(np.int64).max), np.full(len(ids), np.iinfo(np.int64).min)
    np.minimum.at(first, where.ravel(), ops.start_ns[rows])
    np.maximum.at(last, where.ravel(), ops.start_ns[rows])
    return int(ids[np.argmax(last - first)])


def _cut(edges: Edges, stuck: Any) -> tuple[Edges, int]:
    """Edges among stuck ops that run against time close the circle: drop those with negative lag."""
    bad = stuck[edges.source] & stuck[edges.target] & (edges.lag < 0)
    if not bad.any():
        bad = stuck[edges.source] & stuck[edges.target]
    keep = ~bad
    return Edges(edges.source[keep], edges.target[keep], edges.lag[keep]), int(bad.sum())


def _gate_table(ops: Table, gate: Any, count: int, trace: Trace, window: Any, labels: Any) -> Table:
    from taut.graph.kernels import order_groups

    rows = np.flatnonzero(gate >= 0)
    if len(rows) == 0:
        return Table(Gate, {}, 0)
    order, begin = order_groups(gate[rows], count, ops.start_ns[rows], ops.end_ns[rows])
    rows, ids, begins, sizes = rows[order], np.arange(count), begin[:-1], np.diff(begin)
    last = rows[begins + sizes - 1]
    middle = (ops.start_ns[rows[begins + (sizes - 1) // 2]] + ops.start_ns[rows[begins + sizes // 2]]) // 2
    wanted = gates.expected(ops, gate, count, trace.groups, trace.group_ranks)
    return Table(
        Gate,
        {
            "gate": ids, "verb": ops.verb[last], "name": ops.name[last], "step": labels[window[last]],
            "group": ops.group[last], "members": sizes, "expected": wanted[ids], "opens_ns": ops.start_ns[last],
            "last_rank": ops.rank[last], "late_ns": ops.start_ns[last] - middle,
            "size": np.maximum.reduceat(ops.size[rows], begins),
        },
    )  # fmt: skip
