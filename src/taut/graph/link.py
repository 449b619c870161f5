"""Trace → Graph: match gates, align clocks, draw edges, order events, and split durations into gap, wait and work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.core.array_types import Indices, Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import least, numbered
from taut.core.tables import NULL, Op, Table, Trace, Verb, constant
from taut.graph import bounds, clocks, hidden, jumps, rendezvous, roles, steps, wakes
from taut.graph import gate_matching as gates
from taut.graph.arrays import Graph

OVERLAP_NS = 1_000_000
"""An op may begin this much before its predecessor ends (timer noise) and still follow it."""
GATE_NS = 50_000
"""A member may end this much before the last arrives (clock residual) and still have waited for it."""

FEW_CIRCLES = 8
"""Gates of circles that are taken apart one at a time, all ops put in order each time: quick where few are wrong."""


@dataclass
class Edges:
    """Edges under construction: source, target and the lag added to the source's end."""

    source: Ints
    target: Ints
    lag: Ints

    @classmethod
    def join(cls, parts: Sequence[Edges]) -> Edges:
        """All edges of several parts."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("source", "target", "lag")))


def link(trace: Trace) -> Graph:
    """The operator graph of a trace."""
    if len(trace.ops) == 0:
        raise InputRefused(trace.source or trace.name, "holds no operator", "record with CPU or CUDA activities on")
    if int(trace.ops.lane.min()) < 0 or int(trace.ops.lane.max()) >= max(len(trace.lanes), 1):
        raise InputRefused(trace.source or trace.name, "an op lies in no lane", "give every op an index of Trace.lanes")
    windows = steps.windows(trace)
    if not windows.keep.any():
        raise InputRefused(trace.source or trace.name, "no operator lies inside a step", "profile at least one whole step")
    rows = _in_time(trace.ops, np.flatnonzero(windows.keep), windows)
    ops = _renumber(trace.ops.take(rows), rows, len(trace.ops)).replace(step=windows.step[rows])
    bounds.check(trace, ops, len(windows.labels))
    window = np.searchsorted(windows.labels, ops.step)
    names: list[str] = []
    if not trace.told:
        trace = replace(trace, members=roles.infer(ops, trace.members))
        verb, group, peer, names = rendezvous.infer(ops, trace.members)
        group = np.where((group >= 0) & (ops.group < 0), group + len(trace.groups), group)
        ops = ops.replace(verb=verb, group=group, peer=peer)
    matching = gates.match(ops, window, trace.members, len(trace.groups))
    ops = jumps.mended(ops, matching.jumps)
    clock, residual = clocks.fit(ops, matching.gate, matching.gates, trace.members, drifts=not trace.relative)

    matching = gates.settled(ops, matching, np.append(gates.wanted(trace), np.zeros(len(names), dtype=np.int64)))

    segment = windows.segment[window].astype(np.int64)
    start, end = clocks.aligned(ops, clock)
    origin, start, end = _axis(_under_way(ops, start, end) if trace.told else start, end, segment)
    bounds.check_wall(trace, segment, end)
    lanes = _serial_lanes(ops, start, end, segment, trace.timer_ns)
    trace = replace(trace, lanes=_lane_names(trace.lanes, ops.lane, lanes.lane))
    ops = ops.replace(start_ns=start, end_ns=end, lane=lanes.lane)
    return _assemble(trace, ops, lanes, window, segment, origin, matching, clock, residual, windows, names)


def _in_time(ops: Table, rows: Ints, windows: steps.Windows) -> Ints:
    """Rows in which the ops of a rank follow one another in time, as whatever numbers them later expects."""
    from taut.core.group_kernels import order_groups
    from taut.graph.sweeps import in_order

    here = slice(None) if len(rows) == len(ops) else rows
    keys = [ops.rank[here]]
    if windows.segment.max(initial=0) > 0:
        keys.insert(0, windows.segment[np.searchsorted(windows.labels, windows.step[here])])
    group, groups = numbered(*keys)
    start, end = ops.start_ns[here], ops.end_ns[here]
    return rows if in_order(group, groups, start, end) else rows[order_groups(group, groups, start, end)[0]]


def _renumber(ops: Table, rows: Ints, total: int) -> Table:
    """Launch rows after the cut: an op whose launch was cut away has none."""
    if constant(ops.launch):
        return ops
    new = np.full(total + 1, NULL, dtype=np.int64)
    new[rows] = np.arange(len(rows))
    return ops.replace(launch=new[ops.launch])


def _axis(start: Ints, end: Ints, segment: Indices) -> tuple[Ints, Ints, Ints]:
    """Times relative to the origin of their segment: its first start."""
    if segment.max() == 0:
        first = int(start.min())
        return np.array([first]), start - first, end - first
    origin = least(segment, int(segment.max()) + 1, start)
    return origin, start - origin[segment], end - origin[segment]


def _under_way(ops: Table, start: Ints, end: Ints) -> Ints:
    """Starts, of messages from other ranks when they were sent: a receiver records only when one arrives."""
    rows = np.flatnonzero((ops.launch >= 0) & (ops.verb == Verb.RECV))
    rows = rows[ops.rank[ops.launch[rows]] != ops.rank[rows]]
    begun = start.copy()
    begun[rows] = np.minimum(start[ops.launch[rows]], end[rows])
    return begun


@dataclass(frozen=True)
class Lanes:
    """Ops in lane order: ``order``, where a lane begins, and where an op belongs to the same grouped call as the last."""

    lane: Indices
    order: Ints
    begins: Mask
    sibling: Mask
    rank: Indices
    """Number of the op's rank in its segment, of ``ranks``."""
    ranks: int


def _serial_lanes(ops: Table, start: Ints, end: Ints, segment: Indices, timer_ns: int) -> Lanes:
    """Lanes in which no two ops overlap by more than timer noise: what overlaps moves to a lane of its own.

    What is shorter than the timer's error goes before what seems to begin with it.
    """
    from taut.core.group_kernels import order_groups
    from taut.graph.sweeps import scan_lanes

    lane, (rank, ranks) = ops.lane, numbered(segment, ops.rank)
    early = np.where(end - start <= timer_ns, start - timer_ns, start)
    for _ in range(64):
        order, begin = order_groups(*numbered(rank, lane), early, end)
        begins = np.zeros(len(order), dtype=bool)
        begins[begin[:-1]] = True
        sibling, over, count = scan_lanes(order, begins, start, end, ops.kind, timer_ns, OVERLAP_NS)
        if count == 0:
            break
        over[1:] &= ~over[:-1] | sibling[1:]
        lane = lane.astype(np.int64)
        lane[order[over]] += int(lane.max()) + 1
        lane = numbered(lane)[0]
    return Lanes(lane, order, begins, sibling, rank, ranks)


def _lane_names(names: Sequence[str], before: Indices, after: Indices) -> Sequence[str]:
    """The names of the lanes: what moved keeps that of the lane it came from."""
    came = np.arange(len(names))
    if after is not before:
        came = np.zeros(int(after.max()) + 1, dtype=np.int64)
        came[after] = before
    return [names[lane] if lane < len(names) else f"lane {lane}" for lane in came.tolist()]


def _assemble(
    trace: Trace,
    ops: Table,
    lanes: Lanes,
    window: Indices,
    segment: Indices,
    origin: Ints,
    matching: gates.Matching,
    clock: Table,
    residual: int | None,
    windows: steps.Windows,
    names: list[str],
) -> Graph:
    from taut.graph.circles import Circles
    from taut.graph.sweeps import order_events

    n = len(ops)
    join, wait, slots = gates.slots(ops, matching.gate, matching.gates)
    edges, anchors, dropped = _edges(ops, lanes, window, segment, trace)
    explained = np.zeros(n, dtype=bool)
    explained[edges.target] = True
    edges = Edges.join([edges, anchors])
    opens = _openings(ops, join, slots)
    wait, wait_lag, late = _who_waited(ops, wait, opens)
    gate = matching.gate
    broken = 0
    while True:
        ptr, pred, lag = _csr(edges, n)
        events, order, position = order_events(ptr, pred, join, wait, slots, segment, len(origin))
        if len(order) == n:
            break
        stuck = position < 0
        victim = _gate_to_break(ops, gate, stuck)
        if victim is None:
            edges, lost = _cut(edges, stuck)
            dropped += lost
            continue
        victims = [victim]
        if broken >= FEW_CIRCLES:
            victims = list(Circles(ops, ptr, pred, join, wait, gate, slots, position).taken_apart())
        broken += len(victims)
        open_again = np.isin(gate, victims)
        join, wait = np.where(open_again, NULL, join), np.where(open_again, NULL, wait)
        gate = np.where(open_again, NULL, gate)
    if broken:
        gate = np.where(gate >= 0, np.unique(gate, return_inverse=True)[1].ravel() - int((gate < 0).any()), NULL)
    work = _work(ops, wait, wait_lag, opens)
    gap = _gaps(ops, ptr, pred, lag)

    new_ptr, new_pred, new_lag = _permute_csr(ptr, pred, lag, order, position)
    partial = [*trace.partial, *windows.notes, *jumps.notes(matching.jumps)]
    if broken:
        partial.append(f"{broken} gates wait for each other in a circle: taken apart, their waits are not seen")
    if matching.open:
        partial.append(
            f"{matching.open} of {matching.open + matching.gates} gates lack members that were not traced: who came last there "
            "is not known, and nobody is blamed for it"
        )
    if matching.misaligned:
        partial.append(f"{matching.misaligned} collectives have no counterpart in the others' order and are not matched")
    extended = _extend_groups(trace, names)
    ordered = ops.take(order)
    if not constant(ordered.launch):
        ordered = ordered.replace(launch=np.where(ordered.launch >= 0, position[ordered.launch], NULL))
    graph = Graph(
        trace=extended,
        ops=ordered,
        work_ns=work[order],
        gap_ns=gap[order],
        pred_ptr=new_ptr,
        pred=new_pred,
        lag_ns=new_lag,
        join=join[order].astype(np.int32),
        wait=wait[order].astype(np.int32),
        wait_lag_ns=wait_lag[order],
        slots=slots,
        events=events,
        gate=gate[order].astype(np.int32),
        explained=explained[order],
        window=window[order].astype(np.int32),
        steps=windows.labels,
        segment=np.asarray(windows.segment, dtype=np.int32),
        origin_ns=origin,
        members=trace.members,
        clock=clock,
        clock_residual_ns=residual,
        dropped_edges=dropped + late,
        partial=tuple(partial),
        counts={
            **trace.counts,
            "gates": matching.gates - broken,
            "unmatched": matching.unmatched,
            "misaligned": matching.misaligned,
            "circular gates": broken,
            "gates without their last arriver": matching.open,
        },
        roles=_roles(trace.members, ordered.rank),
    )
    return graph


def _roles(members: Table, rank: Indices) -> Indices:
    """Role of each op: that of its rank where it has one, else its rank's stage, or one for all."""
    if (members.role != "").any():
        return np.unique(members.role, return_inverse=True)[1].astype(np.int32)[np.searchsorted(members.rank, rank)]
    if (members.stage <= 0).all():
        return np.broadcast_to(np.int32(0), (len(rank),))
    return np.maximum(members.stage, 0).astype(np.int32)[np.searchsorted(members.rank, rank)]


def _extend_groups(trace: Trace, names: list[str]) -> Trace:
    return replace(trace, groups=[*trace.groups, *names], ops=Table(Op, {}, 0))


def _edges(ops: Table, lanes: Lanes, window: Indices, segment: Ints, trace: Trace) -> tuple[Edges, Edges, int]:
    """Lane order, launches, wake-ups and unseen rendezvous; edges the trace contradicts are dropped and counted."""
    from taut.graph.sweeps import hold_edges, lane_edges

    parts = [_plain(*lane_edges(lanes.order, lanes.begins, lanes.sibling)), _launch_edges(ops, segment)]
    if not trace.told:
        parts += _wake_edges(ops, lanes, window, trace.members, trace.timer_ns)
        parts.append(_plain(*hidden.edges(ops, lanes.order, lanes.begins, window, trace.members)))
    joined = Edges.join(parts)
    source, target, lag, dropped = hold_edges(
        joined.source, joined.target, joined.lag, ops.start_ns, ops.end_ns, trace.timer_ns, OVERLAP_NS
    )
    return Edges(source, target, lag), _anchors(ops, lanes, target), dropped


def _plain(source: Ints, target: Ints) -> Edges:
    """Edges without a lag."""
    return Edges(source, target, np.zeros(len(source), dtype=np.int64))


def _anchors(ops: Table, lanes: Lanes, explained: Ints) -> Edges:
    """An op that nothing explains hangs on the start of the op that began before it on its rank: nothing floats."""
    from taut.core.group_kernels import order_groups

    loose = np.ones(len(ops), dtype=bool)
    loose[explained] = False
    if int(loose.sum()) == lanes.ranks:  # only the first op of every rank: there is nothing before it
        return _plain(*np.zeros((2, 0), dtype=np.int64))
    launched = ((ops.launch >= 0) & ~loose).astype(np.int64)
    order, begin = order_groups(lanes.rank, lanes.ranks, ops.start_ns, launched)
    loose[order[begin[:-1]]] = False
    place = np.flatnonzero(loose[order])
    source, target = order[place - 1], order[place]
    return Edges(source, target, ops.start_ns[source] - ops.end_ns[source])


def _launch_edges(ops: Table, segment: Indices) -> Edges:
    """A launched op cannot begin before its launch began (the call itself may return later)."""
    target = np.flatnonzero(ops.launch >= 0)
    source = ops.launch[target]
    same = segment[source] == segment[target]
    source, target = source[same], target[same]
    lag = ops.start_ns[source] - ops.end_ns[source]
    # A message may arrive before it was sent by as much as clocks of two hosts are apart once aligned.
    early = np.minimum(ops.start_ns[target] - ops.start_ns[source], 0)
    residual = (ops.rank[source] != ops.rank[target]) & (early >= -OVERLAP_NS)
    return Edges(source, target, lag + np.where(residual, early, 0))


def _wake_edges(ops: Table, lanes: Lanes, window: Indices, members: Table, timer_ns: int) -> list[Edges]:
    """What woke idle lanes (a wake-up may be recorded before its cause's end), and what that teaches of busy ones."""
    found = wakes.edges(ops, lanes, window, _roles(members, ops.rank), timer_ns)
    seen = Edges(found.source, found.target, np.minimum(ops.start_ns[found.target] - ops.end_ns[found.source], 0))
    return [seen, _plain(found.learned_source, found.learned_target)]


def _openings(ops: Table, join: Indices, slots: int) -> Ints:
    """When each slot opened: the latest arrival among those that join it."""
    opens = np.full(slots + 1, np.iinfo(np.int64).min)
    inside = join >= 0
    np.maximum.at(opens, join[inside], ops.start_ns[inside])
    return opens


def _who_waited(ops: Table, wait: Indices, opens: Ints) -> tuple[Indices, Ints, int]:
    """Who ended before the slot opened did not wait for it, unless by less than the clock can tell."""
    waits = wait >= 0
    short = np.where(waits, opens[np.maximum(wait, 0)] - ops.end_ns, 0)
    allowed = np.maximum(GATE_NS, np.minimum(OVERLAP_NS, (ops.end_ns - ops.start_ns) // 20))
    impossible = waits & (short > allowed)
    eager = impossible & (ops.verb == Verb.SEND)
    lag = np.where(waits & ~impossible, -np.maximum(short, 0), 0)
    return np.where(impossible, NULL, wait), lag.astype(np.int64), int((impossible & ~eager).sum())


def _work(ops: Table, wait: Indices, wait_lag: Ints, opens: Ints) -> Ints:
    opening = np.where(wait >= 0, np.maximum(ops.start_ns, opens[np.maximum(wait, 0)] + wait_lag), ops.start_ns)
    return ops.end_ns - opening


def _csr(edges: Edges, n: int) -> tuple[Ints, Ints, Ints]:
    from taut.core.group_kernels import group_sort

    order, ptr = group_sort(edges.target, n)
    return ptr, edges.source[order], edges.lag[order]


def _permute_csr(ptr: Ints, pred: Ints, lag: Ints, order: Ints, position: Ints) -> tuple[Ints, Ints, Ints]:
    counts = np.diff(ptr)[order]
    new_ptr = np.zeros(len(ptr), dtype=np.int64)
    np.cumsum(counts, out=new_ptr[1:])
    take = np.repeat(ptr[:-1][order] - new_ptr[:-1], counts) + np.arange(len(pred))
    return new_ptr, position[pred[take]], lag[take]


def _gaps(ops: Table, ptr: Ints, pred: Ints, lag: Ints) -> Ints:
    """What no edge explains: start minus the latest predecessor (or the segment's origin)."""
    ready = np.zeros(len(ops), dtype=np.int64)
    has = np.flatnonzero(np.diff(ptr) > 0)
    if len(has):
        ready[has] = np.maximum(np.maximum.reduceat(ops.end_ns[pred] + lag, ptr[:-1][has]), 0)
    return ops.start_ns - ready


def _gate_to_break(ops: Table, gate: Indices, stuck: Mask) -> int | None:
    """In a circle of gates, the one whose members begin farthest apart is the least likely to be real."""
    rows = np.flatnonzero(stuck & (gate >= 0))
    if len(rows) == 0:
        return None
    ids, where = np.unique(gate[rows], return_inverse=True)
    first, last = np.full(len(ids), np.iinfo(np.int64).max), np.full(len(ids), np.iinfo(np.int64).min)
    np.minimum.at(first, where.ravel(), ops.start_ns[rows])
    np.maximum.at(last, where.ravel(), ops.start_ns[rows])
    return int(ids[np.argmax(last - first)])


def _cut(edges: Edges, stuck: Mask) -> tuple[Edges, int]:
    """Edges among stuck ops that run against time close the circle: drop those with negative lag."""
    bad = stuck[edges.source] & stuck[edges.target] & (edges.lag < 0)
    if not bad.any():
        bad = stuck[edges.source] & stuck[edges.target]
    keep = ~bad
    return Edges(edges.source[keep], edges.target[keep], edges.lag[keep]), int(bad.sum())
