"""Kernels of coupling: how a delay travels, what the critical path is made of, how far blame reaches.

Arrays in, arrays out (see ``jit.py`` for how they run). A ripple is a replay that stops where a delay is absorbed, and so is
no sweep over all events.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Codes, Floats, Indices, Ints
from taut.core.jit import kernel, numpy_twin_of_kernel
from taut.replay.engine import sweep

NEVER = -(1 << 62)
"""Before every time."""
FEW = 32
"""Groups up to this size are sorted by insertion: no memory is asked for."""


@kernel(lists=True)
def ripple(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    gap: Ints,
    arrival: Ints,
    opening: Ints,
    end: Ints,
    lane: Indices,
    lanes: int,
    window: Indices,
    rank: Indices,
    ranks: int,
    cell: Ints,
    cells: int,
    last: Ints,
    op: Ints,
    until: Ints,
    delay: int,
    steps: int,
    gates: int,
    late: Ints,
    passed: Codes,
    fresh: Ints,
    through: Codes,
) -> tuple[Ints, Ints, Ints, int]:
    """Delay one op after the other and follow what moves: exactly the difference that a replay with the delay shows.

    A delay only ever moves times back, so a new time is the greater of the old one and what moved predecessors demand;
    ops that nothing moved reaches are passed by. Probe p delays ``op[p]`` (ascending) and visits ops up to ``until[p]``.
    The last four arguments are scratch: zeros per op, twice, and NEVER and zero per slot; they are left as they were.

    Returns (shift of each rank's last end: probes × steps since × ranks; greatest shift after passing g gates: probes ×
    gates; what lanes lost of their shift, by cell; what they caught from others, in all). Lanes and cells (a class on a
    rank) are numbered through the job.
    """
    # Per op, ``late``: how much later it arrives (once it has ended: ends) than before; ``passed``: gates that the delay
    # went through to get there. Per slot, ``fresh``: its opening as delayed ops set it; ``through``: the gates passed by
    # the op that set it.
    shift = np.zeros((len(op), steps, ranks), np.int64)
    left = np.zeros((len(op), gates + 1), np.int64)
    absorbed = np.zeros(cells, np.int64)
    caught = 0
    begin = 0
    for p in range(len(op)):
        while events[begin] != op[p]:
            begin += 1
        before = np.zeros(lanes, np.int64)  # how late the last op of each lane was
        first = window[op[p]]
        k, unended = begin, 0
        while k < len(events):
            event = events[k]
            k += 1
            v = event if event >= 0 else ~event
            if v > until[p] and unended == 0:  # past the last op that counts, and all that wait have ended
                break
            if event >= 0:
                t = arrival[v]
                g = 0
                for i in range(pred_ptr[v], pred_ptr[v + 1]):
                    u = pred[i]
                    if late[u] > 0 and end[u] + late[u] + lag[i] + gap[v] > t:
                        t = end[u] + late[u] + lag[i] + gap[v]
                        g = passed[u]
                if v == op[p]:
                    t += delay
                late[v] = t - arrival[v]
                passed[v] = g
                s = join[v]
                if s >= 0 and late[v] > 0 and t > fresh[s]:
                    fresh[s] = t
                    through[s] = g
                if wait[v] >= 0:
                    unended += v <= until[p]
                    continue
                passed[v] += s >= 0
            else:
                unended -= op[p] <= v <= until[p]
                t = max(opening[v], arrival[v] + late[v])
                s = wait[v]
                if fresh[s] + wait_lag[v] > t:
                    t = fresh[s] + wait_lag[v]
                    passed[v] = through[s]
                late[v] = t - opening[v]
                passed[v] += 1
            r = rank[v]
            # A lane's shift changes from op to op: what it loses was absorbed by slack before this op, what it gains came
            # from another lane.
            had = before[lane[v]] + (delay if v == op[p] else 0)
            if late[v] < had:
                absorbed[cell[v]] += had - late[v]
            else:
                caught += late[v] - had
            before[lane[v]] = late[v]
            w = window[v] - first
            if late[v] > 0 and 0 <= w < steps:
                shift[p, w, r] = max(shift[p, w, r], end[v] + late[v] - last[window[v], r])
                g = min(passed[v], gates)
                left[p, g] = max(left[p, g], late[v])
        for i in range(begin, k):  # leave the scratch arrays as they were
            v = events[i] if events[i] >= 0 else ~events[i]
            late[v], passed[v] = 0, 0
            if join[v] >= 0:
                fresh[join[v]], through[join[v]] = NEVER, 0
    return shift, left, absorbed, caught


@numpy_twin_of_kernel
def closers_plain(end: Ints, opener: Indices, window: Indices, windows: int) -> Ints:
    """``closers`` with numpy."""
    last = np.full(windows, NEVER, np.int64)
    np.maximum.at(last, window, end)
    rows = np.flatnonzero(end == last[window])
    rows = rows[np.argsort(opener[rows] < 0, kind="stable")]
    closer = np.full(windows, -1, np.int64)
    closer[window[rows]] = rows
    return closer


@kernel(plain=closers_plain)
def closers(end: Ints, opener: Indices, window: Indices, windows: int) -> Ints:
    """The op of each window that ends last, rather one that did not wait for another; -1 without ops."""
    closer = np.full(windows, -1, np.int64)
    for v in range(len(end)):
        c = closer[window[v]]
        if c < 0 or end[v] > end[c] or (end[v] == end[c] and (opener[v] < 0 or opener[c] >= 0)):
            closer[window[v]] = v
    return closer


@kernel(lists=True)
def turnovers(closer: Ints, bound: Indices, opener: Indices, window: Indices, windows: int, cell: Ints, cells: int) -> Floats:
    """Jaccard distance of each window's critical cells (classes on ranks) from those of the one before; NaN for the first."""
    seen = np.full(cells, -2, np.int64)  # the last window on whose path a cell was
    distance = np.full(windows, np.nan)
    size = 0
    for w in range(windows):
        v = closer[w]
        mine, common = 0, 0
        while v >= 0 and window[v] == w:
            key = cell[v]
            if seen[key] != w:
                mine += 1
                common += seen[key] == w - 1
                seen[key] = w
            v = bound[opener[v] if opener[v] >= 0 else v]  # back along the path: who opened the gate, whom it followed
        if w > 0 and size + mine > 0:
            distance[w] = 1 - common / (size + mine - common)  # one minus intersection over union
        size = mine
    return distance


@numpy_twin_of_kernel
def shuffled_plain(values: Ints, order: Ints, begin: Ints, chance: Floats) -> Ints:
    """``shuffled`` with numpy."""
    out = values.copy()
    out[order] = values[order[np.lexsort((chance, np.repeat(np.arange(len(begin) - 1), np.diff(begin))))]]
    return out


@kernel(plain=shuffled_plain)
def shuffled(values: Ints, order: Ints, begin: Ints, chance: Floats) -> Ints:
    """The values exchanged inside each group of rows order[begin[k]:begin[k+1]], sorted by a chance per row."""
    out = values.copy()
    place = np.arange(len(order))
    for k in range(len(begin) - 1):
        low, high = begin[k], begin[k + 1]
        if high - low > FEW:
            place[low:high] = low + np.argsort(chance[low:high])
        else:
            for i in range(low + 1, high):
                j = i
                while j > low and chance[place[j - 1]] > chance[i]:
                    place[j] = place[j - 1]
                    j -= 1
                place[j] = i
        for i in range(low, high):
            out[order[i]] = values[order[place[i]]]
    return out


@numpy_twin_of_kernel
def turnovers_of_many_plain(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    gap: Ints,
    work: Ints,
    window: Indices,
    windows: int,
    cell: Ints,
    cells: int,
) -> Floats:
    """``turnovers_of_many`` with numpy over the replays."""
    work = np.ascontiguousarray(work.T)
    n, many = work.shape
    end, bound = np.empty((n, many), np.int64), np.full((n, many), -1, np.int64)
    opener, arrival = np.full((n, many), -1, np.int64), np.empty((n, many), np.int64)
    opens, last = np.full((slots + 1, many), NEVER, np.int64), np.full((slots + 1, many), -1, np.int64)
    pred_ptr, pred, lag, gap, wait_lag = (a.tolist() for a in (pred_ptr, pred, lag, gap, wait_lag))
    for event in events.tolist():
        if event >= 0:
            v, t = event, arrival[event]
            t[:] = 0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                ready = end[pred[i]] + lag[i]
                # As in ``sweep``: the first predecessor binds even at the origin, later ones only if they are later.
                later = ready >= t if i == pred_ptr[v] else (ready > t) | ((bound[v] < 0) & (ready == t))
                np.copyto(t, ready, where=later)
                np.copyto(bound[v], pred[i], where=later)
            t += gap[v]
            end[v] = t + work[v]
            s = join[v]
            if s >= 0:
                later = t > opens[s]
                np.copyto(opens[s], t, where=later)
                np.copyto(last[s], v, where=later)
        else:
            v = ~event
            t = opens[wait[v]] + wait_lag[v]
            later = t > arrival[v]
            np.copyto(opener[v], last[wait[v]], where=later)
            np.copyto(end[v], t + work[v], where=later)
    final = [closers.plain(end[:, i], opener[:, i], window, windows) for i in range(many)]
    about = window.tolist(), windows, cell.tolist(), cells
    walk = turnovers.plain
    return np.array([walk(final[i], bound[:, i].tolist(), opener[:, i].tolist(), *about) for i in range(many)])


@kernel(plain=turnovers_of_many_plain)
def turnovers_of_many(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    gap: Ints,
    work: Ints,
    window: Indices,
    windows: int,
    cell: Ints,
    cells: int,
) -> Floats:
    """``turnovers`` of replays with other work: replays × ops in, replays × windows out."""
    distance = np.empty((len(work), windows))
    for i in range(len(work)):
        _, end, bound, opener = sweep(events, pred_ptr, pred, lag, join, wait, wait_lag, slots, work[i], gap)
        closer = closers(end, opener, window, windows)
        distance[i] = turnovers(closer, bound, opener, window, windows, cell, cells)
    return distance


@kernel(lists=True)
def gates_between(
    waited: Ints, amount: Ints, bound: Indices, opener: Indices, meets: Indices, excess: Floats, by_gap: int, most: int
) -> Floats:
    """Blamed wait by the number of gates between cause and victim: the excess nearest to the wait is charged first.

    An op's excess is that of its work, or of the gap before it.
    """
    found = np.zeros(most + 1, np.float64)
    for j in range(len(waited)):
        rest = float(amount[j])
        x = opener[waited[j]]
        g = 1
        while rest > 0 and x >= 0 and g <= most:
            u = bound[x]
            cause = x if by_gap else u
            if cause >= 0 and excess[cause] > 0:
                part = min(rest, excess[cause])
                found[g] += part
                rest -= part
            if u < 0:
                break
            g += meets[u] >= 0  # one more gate on the way back
            x = opener[u] if opener[u] >= 0 else u
    return found
