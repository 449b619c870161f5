"""Sweeps that build the graph. Arrays in, arrays out (see ``jit.py`` for how they run)."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.jit import kernel


@kernel(lists=True)
def order_events(
    pred_ptr: Indices, pred: Indices, join: Indices, wait: Indices, slots: int, segment: Indices, segments: int
) -> tuple[Codes, Codes, Codes]:
    """Kahn's algorithm over arrivals and ends: (events, op at each position, position of each op).

    Events speak of positions: p means that the op at position p arrives, ~p that it ends after waiting. Segments follow
    one another, so that a sweep touches little memory at a time; so does keeping what is looked up in 32 bits. An op
    without a position (-1) is on a cycle, which only gates, or edges against time, can close.
    """
    # Successors of every op, waiters of every slot and first ops of every segment, each as a list per row (counts, then
    # running sums, then filled in).
    n = len(join)
    waiting = np.empty(n, np.int32)  # predecessors that have not ended
    succ_ptr = np.zeros(n + 1, np.int32)
    for v in range(n):
        waiting[v] = pred_ptr[v + 1] - pred_ptr[v]
        for i in range(pred_ptr[v], pred_ptr[v + 1]):
            succ_ptr[pred[i] + 1] += 1
    for v in range(n):
        succ_ptr[v + 1] += succ_ptr[v]
    fill = succ_ptr[:-1].copy()
    succ = np.empty(len(pred), np.int32)
    for v in range(n):
        for i in range(pred_ptr[v], pred_ptr[v + 1]):
            u = pred[i]
            succ[fill[u]] = v
            fill[u] += 1
    absent = np.zeros(slots + 1, np.int32)  # ops that join a slot and have not arrived
    waiters_ptr = np.zeros(slots + 2, np.int32)
    for v in range(n):
        if join[v] >= 0:
            absent[join[v]] += 1
        if wait[v] >= 0:
            waiters_ptr[wait[v] + 1] += 1
    for s in range(slots):
        waiters_ptr[s + 1] += waiters_ptr[s]
    fill_w = waiters_ptr[:-1].copy()
    waiters = np.empty(waiters_ptr[slots], np.int32)
    for v in range(n):
        if wait[v] >= 0:
            waiters[fill_w[wait[v]]] = v
            fill_w[wait[v]] += 1

    roots_ptr = np.zeros(segments + 1, np.int32)
    for v in range(n):
        if waiting[v] == 0:
            roots_ptr[segment[v] + 1] += 1
    for s in range(segments):
        roots_ptr[s + 1] += roots_ptr[s]
    fill_r = roots_ptr[:-1].copy()
    roots = np.empty(roots_ptr[segments], np.int32)
    for v in range(n):
        if waiting[v] == 0:
            roots[fill_r[segment[v]]] = v
            fill_r[segment[v]] += 1

    queue = np.empty(n, np.int32)
    head, tail, next_segment = 0, 0, 0
    events = np.empty(n + len(waiters), np.int32)
    position = np.full(n, -1, np.int32)
    order = np.empty(n, np.int32)
    ending = np.empty(n, np.int32)
    placed, written = 0, 0
    while head < tail or next_segment < segments:
        if head == tail:  # nothing more can happen in this segment: the next one begins
            for i in range(roots_ptr[next_segment], roots_ptr[next_segment + 1]):
                queue[tail] = roots[i]
                tail += 1
            next_segment += 1
            continue
        v = queue[head]
        head += 1
        position[v] = placed
        order[placed] = v
        events[written] = placed
        placed += 1
        written += 1
        ends = 0
        if join[v] >= 0:
            absent[join[v]] -= 1
        if wait[v] < 0:
            ending[0] = v
            ends = 1
        elif absent[wait[v]] == 0 and join[v] != wait[v]:  # its slot had opened before: it ends as it arrives
            ending[0] = v
            ends = 1
            events[written] = ~position[v]
            written += 1
        if join[v] >= 0 and absent[join[v]] == 0:  # the last to join: all that wait there end
            s = join[v]
            for i in range(waiters_ptr[s], waiters_ptr[s + 1]):
                w = waiters[i]
                if position[w] >= 0 and (w != v or join[v] == wait[v]):
                    ending[ends] = w
                    ends += 1
                    events[written] = ~position[w]
                    written += 1
        for k in range(ends):
            u = ending[k]
            for i in range(succ_ptr[u], succ_ptr[u + 1]):
                w = succ[i]
                waiting[w] -= 1
                if waiting[w] == 0:
                    queue[tail] = w
                    tail += 1
    return events[:written], order[:placed], position


EARLY_NS = 10_000_000
"""A waiter may wake up to this much (and half of its idle time) before the end of what it waited for is recorded."""


@kernel(lists=True)
def idle_causes(
    lane: Indices, start: Ints, end: Ints, kind: Indices, cuts: Ints, lanes: int, slack: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Edges that explain why an idle lane woke up: (cause op, woken op), and the same of one kind: (cause op, woken op).

    Ops cuts[g]..cuts[g+1] belong to one rank and are sorted by start. A lane that was idle and wakes at t waited for the
    op of another kind, on another lane, that ended nearest to t: before it, or a little after, since the end of a
    communication is recorded when its own thread runs again. Whatever else of that kind ended while the lane was idle,
    up to that one, is linked as well: a caller that waits for several waits for all. Where no other kind ended within
    ``slack`` of t, the last of the same kind to do so on another lane may be the cause; whether it is, recurrence decides.
    """
    n = len(start)
    causes = np.empty(4 * n + 4, np.int64)
    woken = np.empty(4 * n + 4, np.int64)
    kin, kin_woken = np.empty(n, np.int64), np.empty(n, np.int64)
    comm, rest = np.empty(n, np.int64), np.empty(n, np.int64)
    free = np.empty(lanes, np.int64)
    m, kins = 0, 0
    for g in range(len(cuts) - 1):
        begin, stop = cuts[g], cuts[g + 1]
        # Communication and the rest, each in order of their ends, with how many have ended by ``t`` (``_now``), or so soon
        # after it that their end may have been recorded late (``_done``).
        n_comm, n_rest, comm_done, comm_now, rest_done = 0, 0, 0, 0, 0
        for u in np.argsort(end[begin:stop]) + begin:
            if kind[u] == 1:
                comm[n_comm] = u
                n_comm += 1
            else:
                rest[n_rest] = u
                n_rest += 1
        free[:] = -(1 << 62)
        for i in range(begin, stop):
            t = start[i]
            while comm_done < n_comm and end[comm[comm_done]] <= t + EARLY_NS:
                comm_done += 1
            while comm_now < n_comm and end[comm[comm_now]] <= t:
                comm_now += 1
            while rest_done < n_rest and end[rest[rest_done]] <= t:
                rest_done += 1
            a = lane[i]
            idle = t - free[a] if free[a] > -(1 << 61) else 25 * slack  # before the first op of a lane: some
            if idle > slack:
                other, done, now = (rest, rest_done, rest_done) if kind[i] == 1 else (comm, comm_done, comm_now)
                nearest, distance = -1, max(slack, idle)
                k = min(done, now + 64) - 1  # at most 64 ends on either side are looked at
                while k >= 0 and k > now - 65 and end[other[k]] > t - idle:
                    u = other[k]
                    away = t - end[u] if end[u] <= t else 2 * (end[u] - t)  # an end after the start counts twice as far
                    if lane[u] != a and start[u] < t and away < distance:
                        nearest, distance = k, away
                    k -= 1
                k = nearest
                while k >= 0 and k > nearest - 16 and end[other[k]] > t - idle and m < len(causes):
                    u = other[k]
                    if lane[u] != a and start[u] < t:
                        causes[m] = u
                        woken[m] = i
                        m += 1
                        if kind[i] == 1:  # a transfer is started by one op, not by several
                            break
                    k -= 1
                if nearest < 0 or distance > slack:
                    same, done = (comm, comm_done) if kind[i] == 1 else (rest, rest_done)
                    k = done - 1
                    while k >= 0 and k > done - 65 and end[same[k]] >= t - slack:
                        u = same[k]
                        if end[u] <= t and lane[u] != a and start[u] < t:
                            kin[kins] = u
                            kin_woken[kins] = i
                            kins += 1
                            break
                        k -= 1
            if end[i] > free[a]:
                free[a] = end[i]
    return causes[:m], woken[:m], kin[:kins], kin_woken[:kins]


@kernel(lists=True)
def edges_by_target(source: Indices, target: Indices, lag: Ints, ops: int) -> tuple[Codes, Codes, Ints]:
    """Edges in the order of their targets: (where those into each op begin, sources, lags)."""
    ptr = np.zeros(ops + 1, np.int32)
    for v in target:
        ptr[v + 1] += 1
    for v in range(ops):
        ptr[v + 1] += ptr[v]
    fill = ptr[:-1].copy()
    pred, late = np.empty(len(source), np.int32), np.zeros(len(source), np.int64)
    for i in range(len(source)):
        at = fill[target[i]]
        pred[at] = source[i]
        if lag[i] != 0:  # memory in which nothing is written takes none
            late[at] = lag[i]
        fill[target[i]] += 1
    return ptr, pred, late


@kernel()
def timer_noise(took: int, other_took: int, timer: int, most: int) -> int:
    """By how much two ops may seem to overlap, ns: half of the shorter, at least the timer's error, at most ``most``."""
    return min(max(min(took, other_took) // 2, min(timer, most)), most)


@kernel(lists=True)
def neighbours(
    order: Indices, begins: Mask, start: Ints, end: Ints, kind: Indices, communicates: int, timer: int, most: int
) -> tuple[Mask, Mask]:
    """For ops in lane order: (part of the same grouped call as the one before, overlaps the one before).

    A grouped call is several communications of one interval.
    """
    n = len(order)
    sibling, over = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for i in range(1, n):
        if begins[i]:
            continue
        u, v = order[i - 1], order[i]
        took = end[v] - start[v]
        same = start[u] == start[v] and end[u] == end[v] and took > 0
        if same and kind[u] == communicates and kind[v] == communicates:
            sibling[i] = True
        elif start[v] < end[u] - timer_noise(took, end[u] - start[u], timer, most):
            over[i] = True
    return sibling, over


@kernel(lists=True)
def held_edges(
    source: Indices, target: Indices, lag: Ints, start: Ints, end: Ints, timer: int, most: int
) -> tuple[Codes, Codes, Ints]:
    """Edges that the trace does not contradict: (source, target, lag).

    By how much an op began before its edge allows it: what timer noise explains becomes a lag, more contradicts the edge.
    """
    held = 0
    for i in range(len(source)):
        u, v = source[i], target[i]
        if end[u] + lag[i] - start[v] <= timer_noise(end[u] - start[u], end[v] - start[v], timer, most):
            held += 1
    kept_source, kept_target = np.empty(held, np.int32), np.empty(held, np.int32)
    late = np.zeros(held, np.int64)
    m = 0
    for i in range(len(source)):
        u, v = source[i], target[i]
        early = end[u] + lag[i] - start[v]
        if early <= timer_noise(end[u] - start[u], end[v] - start[v], timer, most):
            kept_source[m] = u
            kept_target[m] = v
            by = lag[i] - max(early, 0)
            if by != 0:  # memory in which nothing is written takes none
                late[m] = by
            m += 1
    return kept_source, kept_target, late


@kernel(lists=True)
def gaps_before(start: Ints, end: Ints, ptr: Indices, pred: Indices, lag: Ints) -> Ints:
    """What no edge explains: start minus the latest predecessor (or the segment's origin)."""
    gap = np.zeros(len(start), np.int64)
    for v in range(len(start)):
        ready = 0
        for i in range(ptr[v], ptr[v + 1]):
            ready = max(ready, end[pred[i]] + lag[i])
        if start[v] != ready:
            gap[v] = start[v] - ready
    return gap


@kernel(lists=True)
def permute_edges(ptr: Indices, pred: Indices, lag: Ints, order: Indices, position: Indices) -> tuple[Codes, Codes, Ints]:
    """The same edges when the ops are put in another order, of which ``position`` is the inverse."""
    begin = np.zeros(len(ptr), np.int32)
    moved, late = np.empty(len(pred), np.int32), np.zeros(len(pred), np.int64)
    m = 0
    for p in range(len(order)):
        v = order[p]
        for i in range(ptr[v], ptr[v + 1]):
            moved[m] = position[pred[i]]
            if lag[i] != 0:
                late[m] = lag[i]
            m += 1
        begin[p + 1] = m
    return begin, moved, late


@kernel(lists=True)
def lane_edges(order: Indices, begins: Mask, sibling: Mask) -> tuple[Codes, Codes]:
    """Every op follows the op, or all ops of the grouped call, before it in its lane: (source, target)."""
    n = len(order)
    # Places of the grouped call before each op: begin … block − 1; ``block`` is where the current call begins. They are
    # found twice, first to count the edges.
    begin, block, m = 0, 0, 0
    for i in range(n):
        if begins[i]:
            begin, block = i, i
        elif not sibling[i]:
            begin, block = block, i
        m += block - begin
    source, target = np.empty(m, np.int32), np.empty(m, np.int32)
    begin, block, m = 0, 0, 0
    for i in range(n):
        if begins[i]:
            begin, block = i, i
        elif not sibling[i]:
            begin, block = block, i
        for k in range(begin, block):
            source[m] = order[k]
            target[m] = order[i]
            m += 1
    return source, target


@kernel(lists=True)
def gaps_in_lanes(order: Indices, begins: Mask, start: Ints, end: Ints) -> tuple[Codes, Ints]:
    """Per op: (the op before it in its lane or -1, what lies between them, 0 for the first)."""
    n = len(order)
    before, gap = np.full(n, -1, np.int32), np.zeros(n, np.int64)
    for i in range(1, n):
        if not begins[i]:
            u, v = order[i - 1], order[i]
            before[v] = u
            if start[v] != end[u]:  # memory in which nothing is written takes none
                gap[v] = start[v] - end[u]
    return before, gap


@kernel(lists=True)
def in_order(group: Indices, groups: int, start: Ints, end: Ints) -> int:
    """1 if the rows of every group come by start, then end; else 0."""
    last_start = np.full(groups, -(1 << 62), np.int64)
    last_end = np.full(groups, -(1 << 62), np.int64)
    for i in range(len(group)):
        g = group[i]
        if start[i] < last_start[g] or (start[i] == last_start[g] and end[i] < last_end[g]):
            return 0
        last_start[g] = start[i]
        last_end[g] = end[i]
    return 1
