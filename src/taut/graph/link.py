"""Trace → Graph: match gates, align clocks, draw edges, order events, and split durations into gap, wait and work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, structs

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import coded, greatest, in_groups, least, numbered
from taut.core.scratch import kept, without_zeros, zeros
from taut.core.tables import NULL, Kind, Op, Table, Trace, Verb, constant
from taut.graph import bounds, clocks, hidden, jumps, rendezvous, roles, steps, wakes
from taut.graph import gate_matching as gates
from taut.graph.arrays import Graph, Predecessors, Slots
from taut.graph.device_windows import device_windows, with_other_steps

OVERLAP_NS = 1_000_000
"""An op may begin this much before its predecessor ends (timer noise) and still follow it."""
GATE_NS = 50_000
"""A member may end this much before the last arrives (clock residual) and still have waited for it."""

FEW_CIRCLES = 8
"""Gates of circles that are taken apart one at a time, all ops put in order each time: quick where few are wrong."""


class Edges(Struct):
    """Edges under construction: source, target and the lag added to the source's end."""

    source: Indices
    target: Indices
    lag: Ints

    @classmethod
    def join(cls, parts: Sequence[Edges]) -> Edges:
        """All edges of several parts."""
        some = [part for part in parts if len(part.source)]
        if len(some) == 1 and some[0].source.dtype == np.int32:
            return some[0]
        source, target = (
            np.concatenate([np.zeros(0, np.int32), *(getattr(p, name) for p in some)], dtype=np.int32, casting="same_kind")
            for name in ("source", "target")
        )
        return cls(source, target, np.concatenate([np.zeros(0, np.int64), *(p.lag for p in some)]))


def link(trace: Trace) -> Graph:
    """The operator graph of a trace."""
    if len(trace.ops) == 0:
        raise InputRefused(trace.source or trace.name, "holds no operator", "record with CPU or CUDA activities on")
    if int(trace.ops.lane.min()) < 0 or int(trace.ops.lane.max()) >= max(len(trace.lanes), 1):
        raise InputRefused(trace.source or trace.name, "an op lies in no lane", "give every op an index of Trace.lanes")
    windows = steps.windows(trace)
    if not windows.keep.any():
        raise InputRefused(trace.source or trace.name, "no operator lies inside a step", "profile at least one whole step")
    on_devices = device_windows(trace, windows)
    if on_devices is not None:
        trace, windows = with_other_steps(trace, windows, on_devices)
    inside = kept(np.flatnonzero(windows.keep))
    rows = _in_time(trace.ops, inside, windows)
    if rows is inside and len(rows) == len(trace.ops):
        ops = trace.ops.replace(step=windows.step)
    else:
        ops = _renumber(trace.ops.take(rows), rows, len(trace.ops)).replace(step=windows.step[rows])
    bounds.check(trace, ops, len(windows.labels))
    trace = replace(trace, ops=Table(Op, {}, 0))
    window = _window(windows.labels, ops.step)
    names: list[str] = []
    if not trace.waits_recorded:
        trace = replace(trace, members=roles.infer(ops, trace.members))
        verb, group, peer, names = rendezvous.infer(ops, trace.members)
        if names:
            group = np.where((group >= 0) & (ops.group < 0), group + len(trace.groups), group)
        ops = ops.replace(verb=verb, group=group, peer=peer)
        del verb, group, peer
    matching = gates.match(ops, window, trace.members, len(trace.groups))
    ops = jumps.corrected(ops, matching.jumps)
    clock, residual = clocks.fit(ops, matching.gate, matching.gates, trace.members, drifts=not trace.relative)
    matching = gates.settled(ops, matching, np.append(gates.expected_members(trace), np.zeros(len(names), dtype=np.int64)))

    one_axis = not np.any(windows.segment)
    segment = np.zeros(len(ops), np.int32) if one_axis else np.asarray(windows.segment, np.int32)[window]
    start, end = clocks.aligned(ops, clock)
    if on_devices is None:
        origin, start, end = _from_origin(_send_starts(ops, start, end) if trace.waits_recorded else start, end, segment)
    else:
        inside, origin, start, end = on_devices.cut(rows, start, end, segment)
        if len(inside) < len(ops):
            ops = _renumber(ops.take(inside), inside, len(ops))
            matching = structs.replace(matching, gate=matching.gate[inside])
            window, segment, start, end = window[inside], segment[inside], start[inside], end[inside]
    bounds.check_wall(trace, segment, end)
    lanes = _serial_lanes(ops, start, end, segment, trace.timer_ns)
    lane_names = _lane_names(trace.lanes, ops.lane, lanes.lane)
    trace = replace(trace, lanes=lane_names, groups=[*trace.groups, *names], ops=Table(Op, {}, 0))
    ops = ops.replace(start_ns=start, end_ns=end, lane=lanes.lane).narrowed("seq", "group")  # few ask for these from now on
    del start, end, rows, inside
    axis = Axis(windows, window, segment, origin)
    drawn = [_edges(ops, lanes, axis, trace, matching.gate)]
    del lanes, window, segment
    graph = _assemble(trace, ops, drawn.pop(), axis, matching, clock, residual)
    return graph if on_devices is None else replace(graph, device=on_devices.told())


def _window(labels: Ints, step: Indices) -> Indices:
    """Index of each op's step among the labels: the step itself where these count from 0 on."""
    if int(labels[0]) == 0 and int(labels[-1]) == len(labels) - 1:
        return step
    return np.searchsorted(labels, step).astype(np.int32)


def _in_time(ops: Table, rows: Ints, windows: steps.Windows) -> Ints:
    """Rows in which the ops of a rank follow one another in time, as whatever numbers them later expects."""
    from taut.graph.sweeps import in_order

    here = slice(None) if len(rows) == len(ops) else rows
    keys = [ops.rank[here]]
    if windows.segment.max(initial=0) > 0:
        keys.insert(0, windows.segment[np.searchsorted(windows.labels, windows.step[here])])
    group, groups = coded(*keys)
    start, end = ops.start_ns[here], ops.end_ns[here]
    return rows if in_order(group, groups, start, end) else rows[in_groups(group, groups, start, end)[0]]


def _renumber(ops: Table, rows: Ints, total: int) -> Table:
    """Launch rows after the cut: an op whose launch was cut away has none."""
    if constant(ops.launch):
        return ops
    new = np.full(total + 1, NULL, dtype=np.int64)
    new[rows] = np.arange(len(rows))
    return ops.replace(launch=new[ops.launch])


def _from_origin(start: Ints, end: Ints, segment: Indices) -> tuple[Ints, Ints, Ints]:
    """Times relative to the origin of their segment: its first start."""
    if segment.max() == 0:
        first = int(start.min())
        return np.array([first]), start - first, end - first
    origin = least(segment, int(segment.max()) + 1, start)
    return origin, start - origin[segment], end - origin[segment]


def _send_starts(ops: Table, start: Ints, end: Ints) -> Ints:
    """Starts, of messages from other ranks when they were sent: a receiver records only when one arrives."""
    rows = np.flatnonzero((ops.launch >= 0) & (ops.verb == Verb.RECV))
    rows = rows[ops.rank[ops.launch[rows]] != ops.rank[rows]]
    begun = start.copy()
    begun[rows] = np.minimum(start[ops.launch[rows]], end[rows])
    return begun


class Lanes(Struct, frozen=True):
    """Ops in lane order: ``order``, where a lane begins, and where an op belongs to the same grouped call as the last."""

    lane: Indices
    order: Codes
    begins: Mask
    sibling: Mask
    rank: Indices
    """Number of the op's rank in its segment, of ``ranks``."""
    ranks: int


def _serial_lanes(ops: Table, start: Ints, end: Ints, segment: Indices, timer_ns: int) -> Lanes:
    """Lanes in which no two ops overlap by more than timer noise: what overlaps moves to a lane of its own.

    What is shorter than the timer's error goes before what seems to begin with it.
    """
    from taut.graph.sweeps import neighbours

    lane, (rank, ranks) = ops.lane, coded(segment, ops.rank)
    short = end - start <= timer_ns
    early = kept(np.where(short, start - timer_ns, start)) if short.any() else start
    for _ in range(64):  # every round takes some ops out of crowded lanes; deeper nesting stays as it is
        order, begin = in_groups(*coded(rank, lane), early, end)
        begins = np.zeros(len(order), dtype=bool)
        begins[begin[:-1]] = True
        sibling, over = neighbours(order, begins, start, end, ops.kind, Kind.COMMUNICATE.value, timer_ns, OVERLAP_NS)
        if not over.any():
            break
        over[1:] &= ~over[:-1]  # of overlaps in a row only the first moves: the next op may then fit
        lane = lane.astype(np.int64)
        lane[order[over]] += int(lane.max()) + 1
        lane = coded(lane)[0]
    return Lanes(lane, order, begins, sibling, rank, ranks)


def _lane_names(names: Sequence[str], before: Indices, after: Indices) -> Sequence[str]:
    """The names of the lanes: what moved keeps that of the lane it came from."""
    came = np.arange(len(names))
    if after is not before:
        came = np.zeros(int(after.max()) + 1, dtype=np.int64)
        came[after] = before
    return [names[lane] if lane < len(names) else f"lane {lane}" for lane in came.tolist()]


class Axis(Struct, frozen=True):
    """Which step each op belongs to, and what its times count from."""

    windows: steps.Windows
    window: Indices
    """Index of each op's step among the kept ones."""
    segment: Indices
    """Segment of each op: ops of one segment share a time axis."""
    origin_ns: Ints
    """Absolute time of each segment's zero."""


class Drawn(Struct, frozen=True):
    """Edges that hold, those that only keep ops from floating, and how many were left out."""

    edges: Edges
    anchors: Edges
    dropped: int


class Ordered(Struct, frozen=True):
    """The ops in an order that a sweep can follow, once what closes circles has been taken out."""

    predecessors: Predecessors
    slots: Slots
    gate: Indices
    events: Codes
    order: Codes
    """The op at each position."""
    position: Codes
    """The position of each op."""
    broken: int
    """Gates that were taken apart."""
    dropped: int
    """Edges that were left out."""


def _assemble(
    trace: Trace, ops: Table, drawn: Drawn, axis: Axis, matching: gates.Matching, clock: Table, residual: int | None
) -> Graph:
    """The graph of matched and aligned ops, which are emptied."""
    from taut.graph.sweeps import gaps_before

    slots = gates.slots(ops, matching.gate, matching.gates)
    explained, dropped = np.zeros(len(ops), dtype=bool), drawn.dropped
    explained[drawn.edges.target] = True
    opens = _openings(ops, slots)
    slots, wait_lag, late = _who_waited(ops, slots, opens)
    edges = Edges.join([drawn.edges, drawn.anchors])
    del drawn  # whatever is not asked for again is let go before the ops are moved
    found = _ordered(ops, edges, slots, matching.gate, axis)
    del edges
    order, slots = found.order, found.slots
    predecessors = found.predecessors.permuted(order, found.position)
    predecessors = structs.replace(predecessors, lag=without_zeros(predecessors.lag))
    found = structs.replace(found, predecessors=predecessors)
    same_steps = axis.window is ops.step
    ordered = ops.reordered(order)
    if not constant(ordered.launch):
        ordered = ordered.replace(launch=np.where(ordered.launch >= 0, found.position[ordered.launch], NULL))
    gate = found.gate[order]
    join = gate if slots.join is found.gate else slots.join[order]
    wait = join if slots.wait is slots.join else slots.wait[order]
    wait_lag = _in_place(wait_lag, order)
    return Graph(
        trace=trace,
        ops=ordered,
        work_ns=_work(ordered, wait, wait_lag, opens),
        gap_ns=without_zeros(
            gaps_before(ordered.start_ns, ordered.end_ns, predecessors.ptr, predecessors.pred, predecessors.lag)
        ),
        pred_ptr=predecessors.ptr,
        pred=predecessors.pred,
        lag_ns=predecessors.lag,
        join=join,
        wait=wait,
        wait_lag_ns=wait_lag,
        slots=slots.count,
        events=found.events,
        gate=gate,
        explained=explained[order],
        window=ordered.step if same_steps else axis.window[order],
        steps=axis.windows.labels,
        segment=np.asarray(axis.windows.segment, dtype=np.int32),
        origin_ns=axis.origin_ns,
        members=trace.members,
        clock=clock,
        clock_residual_ns=residual,
        dropped_edges=dropped + found.dropped + late,
        partial=(*trace.partial, *axis.windows.notes, *jumps.notes(matching.jumps), *_notes(matching, found.broken)),
        counts={
            **trace.counts,
            "gates": matching.gates - found.broken,
            "unmatched": matching.unmatched,
            "misaligned": matching.misaligned,
            "circular gates": found.broken,
            "gates without their last arriver": matching.open,
        },
        roles=_roles(trace.members, ordered.rank),
    )


def _in_place(values: Ints, order: Indices) -> Ints:
    """Values in another order; where all are 0, of which nothing has to be written."""
    return values[order] if values.any() else zeros(len(values))


def _notes(matching: gates.Matching, broken: int) -> Iterator[str]:
    """What could not be matched, one line each."""
    if broken:
        yield f"{broken} gates wait for each other in a circle: they are ignored, and waiting at them is not seen"
    if matching.open:
        yield (
            f"{matching.open} of {matching.open + matching.gates} gates lack members that were not traced: who arrived last "
            "there is not known, so nobody is blamed"
        )
    if matching.misaligned:
        yield f"{matching.misaligned} collectives have no counterpart on the other ranks and are not matched"


def _ordered(ops: Table, edges: Edges, slots: Slots, gate: Indices, axis: Axis) -> Ordered:
    """Put the ops in order; gates that wait for each other in a circle, then edges that close one, are taken out.

    Sends that ended before their receive began are let go first: that they waited is only put down to clocks.
    """
    from taut.graph.circles import Circles
    from taut.graph.sweeps import order_events

    broken = dropped = 0
    early: Mask | None = None
    while True:
        predecessors = _predecessors(edges, len(ops))
        events, order, position = order_events(
            predecessors.ptr, predecessors.pred, slots.join, slots.wait, slots.count, axis.segment, len(axis.origin_ns)
        )
        if len(order) == len(ops):
            break
        stuck = position < 0
        early = _early_sends(ops, slots) if early is None else early
        hardly = early & (slots.wait >= 0) & np.isin(gate, gate[stuck & (gate >= 0)])
        if hardly.any():
            slots = structs.replace(slots, wait=np.where(hardly, np.int32(NULL), slots.wait))
            continue
        victim = _gate_to_break(ops, gate, stuck)
        if victim is None:
            edges, lost = _cut(edges, stuck)
            dropped += lost
            continue
        victims = [victim]
        if broken >= FEW_CIRCLES:
            victims = list(Circles(ops, predecessors, slots, gate, position).taken_apart())
        broken += len(victims)
        open_again = np.isin(gate, victims)
        null = np.int32(NULL)
        slots = Slots(np.where(open_again, null, slots.join), np.where(open_again, null, slots.wait), slots.count)
        gate = np.where(open_again, null, gate)
    if broken:  # number the gates that are left without holes
        kept = gate >= 0
        gate[kept] = numbered(gate[kept])[0]
    return Ordered(predecessors, slots, gate, events, order, position, broken, dropped)


def _early_sends(ops: Table, slots: Slots) -> Mask:
    """Sends that ended before the slot opened that they are taken to wait for."""
    opens = _openings(ops, slots)
    early: Mask = (ops.verb == Verb.SEND) & (slots.wait >= 0) & (opens[np.maximum(slots.wait, 0)] > ops.end_ns)
    return early


def _roles(members: Table, rank: Indices) -> Indices:
    """Role of each op: that of its rank where it has one, else its rank's stage, or one for all."""
    if (members.role != "").any():
        return np.unique(members.role, return_inverse=True)[1].astype(np.int32)[np.searchsorted(members.rank, rank)]
    if (members.stage <= 0).all():
        return np.broadcast_to(np.int32(0), (len(rank),))
    return np.maximum(members.stage, 0).astype(np.int32)[np.searchsorted(members.rank, rank)]


def _edges(ops: Table, lanes: Lanes, axis: Axis, trace: Trace, gate: Indices) -> Drawn:
    """Lane order, launches, wake-ups and unseen rendezvous; edges the trace contradicts are dropped and counted."""
    from taut.graph.sweeps import held_edges, lane_edges

    parts = [_plain(*lane_edges(lanes.order, lanes.begins, lanes.sibling)), _launch_edges(ops, axis.segment)]
    if not trace.waits_recorded:
        parts += _wake_edges(ops, lanes, axis.window, trace.members, trace.timer_ns)
        parts.append(_plain(*hidden.edges(ops, lanes.order, lanes.begins, axis.window, trace.members, gate)))
    edges = Edges.join(parts)
    del parts
    found = held_edges(edges.source, edges.target, edges.lag, ops.start_ns, ops.end_ns, trace.timer_ns, OVERLAP_NS)
    kept = Edges(*found)
    return Drawn(kept, _anchors(ops, lanes, kept.target), len(edges.source) - len(kept.source))


def _plain(source: Indices, target: Indices) -> Edges:
    """Edges without a lag."""
    return Edges(source, target, zeros(len(source)))


def _anchors(ops: Table, lanes: Lanes, explained: Indices) -> Edges:
    """An op that nothing explains hangs on the start of the op that began before it on its rank: nothing floats."""

    loose = np.ones(len(ops), dtype=bool)
    loose[explained] = False
    if int(loose.sum()) == lanes.ranks:  # only the first op of every rank: there is nothing before it
        return _plain(*np.zeros((2, 0), dtype=np.int64))
    launched = ((ops.launch >= 0) & ~loose).astype(np.int64)
    order, begin = in_groups(lanes.rank, lanes.ranks, ops.start_ns, launched)
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


def _openings(ops: Table, slots: Slots) -> Ints:
    """When each slot opened: the latest arrival among those that join it."""
    inside = slots.join >= 0
    return greatest(slots.join[inside], slots.count + 1, ops.start_ns[inside])


def _who_waited(ops: Table, slots: Slots, opens: Ints) -> tuple[Slots, Ints, int]:
    """(slots without the waits that did not happen, lag of every wait, how many were left out).

    Who ended before the slot opened did not wait for it, unless by less than the clock can tell.
    """
    rows = np.flatnonzero(slots.wait >= 0)
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    short = opens[slots.wait[rows]] - end
    # A twentieth of the duration, between GATE_NS and OVERLAP_NS, is put down to clocks.
    impossible = short > np.maximum(GATE_NS, np.minimum(OVERLAP_NS, (end - start) // 20))
    eager = impossible & (ops.verb[rows] == Verb.SEND)
    lag, late = zeros(len(ops)), np.flatnonzero(~impossible & (short > 0))
    lag[rows[late]] = -short[late]
    if impossible.any():
        wait = slots.wait.copy()
        wait[rows[impossible]] = NULL
        slots = structs.replace(slots, wait=wait)
    return slots, kept(lag) if len(late) else lag, int((impossible & ~eager).sum())


def _work(ops: Table, wait: Indices, wait_lag: Ints, opens: Ints) -> Ints:
    # What lies between arrival and opening is waiting; the rest of the duration is work.
    rows, work = np.flatnonzero(wait >= 0), ops.end_ns - ops.start_ns
    work[rows] = ops.end_ns[rows] - np.maximum(ops.start_ns[rows], opens[wait[rows]] + wait_lag[rows])
    return kept(work)


def _predecessors(edges: Edges, n: int) -> Predecessors:
    from taut.graph.sweeps import edges_by_target

    return Predecessors(*edges_by_target(edges.source, edges.target, edges.lag, n))


def _gate_to_break(ops: Table, gate: Indices, stuck: Mask) -> int | None:
    """In a circle of gates, the one whose members begin farthest apart is the least likely to be real."""
    rows = np.flatnonzero(stuck & (gate >= 0))
    if len(rows) == 0:
        return None
    which, count = numbered(gate[rows])
    apart = greatest(which, count, ops.start_ns[rows]) - least(which, count, ops.start_ns[rows])
    return int(gate[rows[which == np.argmax(apart)][0]])


def _cut(edges: Edges, stuck: Mask) -> tuple[Edges, int]:
    """Edges among stuck ops that run against time close the circle: drop those with negative lag."""
    bad = stuck[edges.source] & stuck[edges.target] & (edges.lag < 0)
    if not bad.any():
        bad = stuck[edges.source] & stuck[edges.target]
    keep = ~bad
    return Edges(edges.source[keep], edges.target[keep], edges.lag[keep]), int(bad.sum())
