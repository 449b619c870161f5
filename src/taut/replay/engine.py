"""The engine: sweeps over the event program of a graph. Arrays in, arrays out (see ``jit.py`` for how they run).

One replay keeps who bound whom, in whole numbers; many side by side keep only what their columns need, in floats that
vectorise. Jobs too large for edges in memory are swept by ``project/training/grid.py``, which a test holds to this.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask
from taut.core.jit import kernel, numpy_twin_of_kernel


@kernel(lists=True)
def sweep(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    work: Ints,
    gap: Ints,
) -> tuple[Ints, Ints, Codes, Codes]:
    """One replay: (arrival, end, binding predecessor of the arrival, op that opened the slot).

    The recurrence, for op v with predecessors u, slot j that it joins and slot s that it waits at:

        arrival(v) = max(0, max over u of end(u) + lag(u, v)) + gap(v)
        opens(j)   = max over the ops that join j of their arrival
        end(v)     = max(arrival(v), opens(s) + wait_lag(v)) + work(v)
    """
    n = len(work)
    arrival = np.empty(n, np.int64)
    end = np.empty(n, np.int64)
    bound = np.empty(n, np.int32)
    opener = np.full(n, -1, np.int32)
    opens = np.full(slots + 1, -(1 << 62), np.int64)
    last = np.full(slots + 1, -1, np.int32)
    for event in events:
        if event >= 0:  # op v arrives; if it waits nowhere, it also ends
            v = event
            t = 0
            b = -1
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                ready = end[pred[i]] + lag[i]
                # Of predecessors that are ready at once the first binds; one that is ready at the origin still binds.
                if ready > t or (b < 0 and ready == t):
                    t = ready
                    b = pred[i]
            t += gap[v]
            arrival[v] = t
            bound[v] = b
            end[v] = t + work[v]
            s = join[v]
            if s >= 0 and t > opens[s]:
                opens[s] = t
                last[s] = v
        else:  # op ~event ends: by now everybody who joins its slot has arrived
            v = ~event
            s = wait[v]
            t = opens[s] + wait_lag[v]
            if t > arrival[v]:  # else it came last, or alone, and what was written at its arrival holds
                opener[v] = last[s]
                end[v] = t + work[v]
    return arrival, end, bound, opener


@kernel(lists=True)
def registers(
    events: Indices, pred_ptr: Indices, pred: Indices, join: Indices, wait: Indices, slots: int
) -> tuple[Codes, Codes, int, int]:
    """Where a batched replay keeps its state: (op register, slot register, how many of each).

    An op's register is free again after its last successor has arrived (and it has ended), a slot's after its last
    waiter has ended; so the state of thousands of replays stays in the cache however long the program is.
    """
    n = len(join)
    # Ops arrive in the order of their numbers, so the last use of an op is its successor with the greatest number.
    last_use = np.arange(n).astype(np.int32)
    for v in range(n):
        for i in range(pred_ptr[v], pred_ptr[v + 1]):
            if v > last_use[pred[i]]:
                last_use[pred[i]] = v
    slot_last = np.full(slots + 1, -1, np.int64)  # the last event that looks at each slot
    for k in range(len(events)):
        if events[k] < 0:
            v = ~events[k]
            slot_last[wait[v]] = k
        else:
            v = events[k]
            if join[v] >= 0:
                slot_last[join[v]] = k
    # Registers that were given back are kept on two stacks, and taken from there before a new one is made.
    op_register = np.empty(n, np.int32)
    slot_register = np.full(slots + 1, -1, np.int32)
    free_op = np.empty(n + 1, np.int32)
    free_slot = np.empty(slots + 1, np.int32)
    n_free_op, n_free_slot, ops_used, slots_used = 0, 0, 0, 0
    ended = np.zeros(n, np.bool_)
    for k in range(len(events)):
        if events[k] >= 0:
            v = events[k]
            if n_free_op > 0:
                n_free_op -= 1
                op_register[v] = free_op[n_free_op]
            else:
                op_register[v] = ops_used
                ops_used += 1
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                u = pred[i]
                if last_use[u] == v:
                    last_use[u] = -1  # a predecessor that is listed twice is given back once
                    free_op[n_free_op] = op_register[u]
                    n_free_op += 1
            s = join[v]
            if s >= 0 and slot_register[s] < 0:
                if n_free_slot > 0:
                    n_free_slot -= 1
                    slot_register[s] = free_slot[n_free_slot]
                else:
                    slot_register[s] = slots_used
                    slots_used += 1
            if wait[v] < 0:
                ended[v] = True
            if s >= 0 and slot_last[s] == k:
                free_slot[n_free_slot] = slot_register[s]
                n_free_slot += 1
        else:
            v = ~events[k]
            ended[v] = True
            s = wait[v]
            if slot_last[s] == k:
                free_slot[n_free_slot] = slot_register[s]
                n_free_slot += 1
        if ended[v] and last_use[v] == v:  # nobody comes after it
            last_use[v] = -1
            free_op[n_free_op] = op_register[v]
            n_free_op += 1
    return op_register, slot_register, ops_used, slots_used


@numpy_twin_of_kernel
def sweep_many_plain(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    op_register: Codes,
    slot_register: Codes,
    n_ops: int,
    n_slots: int,
    window: Indices,
    closes: Mask,
    windows: int,
    gap: Floats,
    other_gap: Floats,
    base: Ints,
    other: Ints,
    key: Codes,
    offset: Ints,
    columns: int,
) -> Ints:
    """``sweep_many`` with numpy over the columns."""
    state = np.zeros((n_ops + 1, columns))  # a row per register, a column per replay
    opens, done = np.full((n_slots + 1, columns), -1e300), np.zeros((windows, columns))
    # Per op the columns that take ``other`` for it.
    mine = np.where(key >= 0, key + offset[:, None], -1).T
    hits = [[k for k in row if 0 <= k < columns] for row in mine.tolist()]
    more_gap, more_work = (other_gap - gap).tolist(), (other - base).tolist()
    seen = set()
    pred_ptr, pred, lag, gap, base, wait_lag = (a.tolist() for a in (pred_ptr, pred, lag, gap, base, wait_lag))
    join, wait, op_register, slot_register = (a.tolist() for a in (join, wait, op_register, slot_register))
    for event in events.tolist():
        v = event if event >= 0 else ~event
        r = op_register[v]
        row = state[r]
        if event >= 0:
            ready = np.zeros(columns)
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                np.maximum(ready, state[op_register[pred[i]]] + lag[i], out=ready)
            np.add(ready, gap[v], out=row)
            for k in hits[v]:
                row[k] += more_gap[v]
            if join[v] >= 0:
                gate = opens[slot_register[join[v]]]
                # A register may hold an older slot's opening: the first to join overwrites it.
                gate[:] = np.maximum(gate, row) if join[v] in seen else row
                seen.add(join[v])
            if wait[v] >= 0:
                continue
        else:
            gate = opens[slot_register[wait[v]]]
            np.maximum(row, gate + wait_lag[v], out=row)
        row += base[v]
        for k in hits[v]:
            row[k] += more_work[v]
        if closes[v]:
            np.maximum(done[window[v]], row, out=done[window[v]])
    return done.astype(np.int64)


@kernel(plain=sweep_many_plain, fastmath={"nnan", "ninf", "nsz"})
def sweep_many(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    op_register: Codes,
    slot_register: Codes,
    n_ops: int,
    n_slots: int,
    window: Indices,
    closes: Mask,
    windows: int,
    gap: Floats,
    other_gap: Floats,
    base: Ints,
    other: Ints,
    key: Codes,
    offset: Ints,
    columns: int,
) -> Ints:
    """Replays side by side, in floats (exact below 2**53 ns) so that columns vectorise.

    Column k takes ``other`` work and ``other_gap`` for ops one of whose keys d (unless negative) is k - offset[d],
    ``base`` and ``gap`` for the rest. An op's register holds its arrival until it has ended.

    Returns when each window's last op ended, per column; ``closes`` marks the ops that can be the last.
    """
    state = np.zeros((n_ops + 1, columns), np.float64)
    opens = np.zeros((n_slots + 1, columns), np.float64)
    seen = np.zeros(len(slot_register), np.bool_)
    done = np.zeros((windows, columns), np.float64)
    for event in events:
        v = event if event >= 0 else ~event
        r = op_register[v]
        add = np.float64(base[v])
        if event >= 0:
            lo, hi = pred_ptr[v], pred_ptr[v + 1]
            own = gap[v]
            if lo == hi:
                for k in range(columns):
                    state[r, k] = own
            else:
                # The same recurrence as in ``sweep``. The gap is added with the first predecessor already, and to the
                # lag of the others, so that no further pass over the columns is needed for it.
                u = op_register[pred[lo]]
                late = np.float64(lag[lo])
                for k in range(columns):
                    state[r, k] = max(state[u, k] + late, 0.0) + own
                for i in range(lo + 1, hi):
                    u = op_register[pred[i]]
                    late = np.float64(lag[i]) + own
                    for k in range(columns):
                        state[r, k] = max(state[r, k], state[u, k] + late)
            if other_gap[v] != gap[v]:  # few ops differ: all columns take the usual gap, those that ask for it the rest
                more = other_gap[v] - gap[v]
                for d in range(len(offset)):
                    k = key[d, v] + offset[d]
                    if key[d, v] >= 0 and 0 <= k < columns:
                        state[r, k] += more
            if join[v] >= 0:
                s = slot_register[join[v]]
                if seen[join[v]]:
                    for k in range(columns):
                        opens[s, k] = max(opens[s, k], state[r, k])
                else:
                    seen[join[v]] = True
                    for k in range(columns):
                        opens[s, k] = state[r, k]
            if wait[v] >= 0:
                continue
            for k in range(columns):
                state[r, k] += add
        else:
            s = slot_register[wait[v]]
            late = np.float64(wait_lag[v])
            for k in range(columns):
                state[r, k] = max(state[r, k], opens[s, k] + late) + add
        if other[v] != base[v]:
            more = np.float64(other[v] - base[v])
            for d in range(len(offset)):  # written out twice: a call would make a view of the row, and count who holds it
                k = key[d, v] + offset[d]
                if key[d, v] >= 0 and 0 <= k < columns:
                    state[r, k] += more
        if closes[v]:
            w = window[v]
            for k in range(columns):
                done[w, k] = max(done[w, k], state[r, k])
    return done.astype(np.int64)


@kernel(lists=True)
def backward(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    gap: Ints,
    arrival: Ints,
    opening: Ints,
    end: Ints,
    bound: Indices,
    opener: Indices,
    segment: Indices,
    segments: int,
) -> tuple[Mask, Ints]:
    """One reverse sweep: (critical: the segment's end moves with this op's work; slack: how much later it may end).

    Backwards, with ``final`` the end of the segment and ``late`` how much later an op may arrive:

        slack(u) = min(final − end(u), min over successors v of late(v) + arrival(v) − gap(v) − lag(u, v) − end(u))
        late(v)  = min(slack(v) + wait of v, min over the waiters w of the slot it joins of what w's opening allows)

    Critical is what the last op of its segment is bound to: through a gate the op that opened it, else the predecessor
    that arrived last.
    """
    n = len(gap)
    slack = np.full(n, 1 << 61, np.int64)
    late = np.full(n, 1 << 61, np.int64)
    latest_opening = np.full(slots + 1, 1 << 61, np.int64)
    final = np.full(segments, -1, np.int64)
    closer = np.full(segments, -1, np.int64)
    for v in range(n):
        if end[v] > final[segment[v]]:
            final[segment[v]] = end[v]
            closer[segment[v]] = v
    critical = np.zeros(n, np.bool_)
    on_path = np.zeros(n, np.bool_)
    for s in range(segments):
        if closer[s] >= 0:
            critical[closer[s]] = True
    for k in range(len(events) - 1, -1, -1):
        event = events[k]
        v = ~event if event < 0 else event
        if event < 0 or wait[v] < 0:  # the end of v
            slack[v] = min(slack[v], final[segment[v]] - end[v])
            if critical[v]:
                on_path[opener[v] if opener[v] >= 0 else v] = True  # whose arrival set this end
            late[v] = min(late[v], slack[v] + opening[v] - arrival[v])
            if wait[v] >= 0:
                s = wait[v]
                latest_opening[s] = min(latest_opening[s], slack[v] + opening[v] - wait_lag[v])
        if event >= 0:  # the arrival of v
            if join[v] >= 0:
                late[v] = min(late[v], latest_opening[join[v]] - arrival[v])
            if on_path[v] and bound[v] >= 0:
                critical[bound[v]] = True
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                u = pred[i]
                slack[u] = min(slack[u], late[v] + arrival[v] - gap[v] - lag[i] - end[u])
    return critical, slack


@kernel(lists=True)
def chains(
    pred_ptr: Indices, pred: Indices, lag: Ints, window: Indices, join: Indices, wait: Indices
) -> tuple[Mask, Codes, int]:
    """(ops that can be the last of their window, the op that follows each in a chain or -1, how many are followed).

    An op that another of its window follows cannot be the window's last: the other ends no earlier. A chain is where an op has
    one successor, that successor no other predecessor, and no gate is in between.
    """
    n = len(join)
    closes = np.ones(n, np.bool_)
    successors = np.zeros(n, np.int32)
    for v in range(n):
        for i in range(pred_ptr[v], pred_ptr[v + 1]):
            successors[pred[i]] += 1
            if window[pred[i]] == window[v] and lag[i] >= 0:
                closes[pred[i]] = False
    follower = np.full(n, -1, np.int32)
    chained = 0
    for v in range(n):
        i = pred_ptr[v]
        if pred_ptr[v + 1] == i + 1:
            u = pred[i]
            if successors[u] == 1 and window[u] == window[v] and lag[i] >= 0 and join[u] < 0 and wait[u] < 0:
                follower[u] = v
                chained += 1
    return closes, follower, chained


@kernel(lists=True)
def fold_gaps(ops: Indices, heir: Indices, folded: Indices, onward: Ints, work: Ints, gap: Ints) -> Floats:
    """Gap before each of some ops with the ops that are folded into it: their gaps, work and lags."""
    passed = np.zeros(len(ops), np.float64)
    for k in range(len(folded)):
        v = folded[k]
        passed[heir[k]] += gap[v] + work[v] + onward[k]
    for k in range(len(ops)):
        passed[k] = gap[ops[k]] + passed[k]
    return passed


@kernel(lists=True)
def fold(follower: Indices) -> tuple[Codes, Codes]:
    """Chains of ops: (op that ends each op's chain, op that begins the chain an op ends); ops are in event order."""
    n = len(follower)
    owner = np.arange(n).astype(np.int32)
    first = owner.copy()
    for v in range(n):  # a follower has a greater number, so one pass forward carries heads and one back carries ends
        if follower[v] >= 0:
            first[follower[v]] = first[v]
    for v in range(n - 1, -1, -1):
        if follower[v] >= 0:
            owner[v] = owner[follower[v]]
    return owner, first
