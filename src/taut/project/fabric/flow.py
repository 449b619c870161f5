"""Who gets how much of a shared link: max-min fair rates by progressive filling.

All flows grow at the same pace until a link is full; the flows on it stay at what they have, the others go on. So every
flow ends up with a full link on which nobody has more than it has, and nobody's rate can grow without another's, that is
no larger, shrinking. A route may name a link more than once: it then takes that many times the flow's rate of it.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.jit import kernel

# Links on all routes together up to which solving a round as arrays takes less than compiling would.
FEW = 100_000
# Links whose shares differ by less, relative to them, fill at once: rounding makes no order.
TIE = 1e-12


def rates(start: Ints, link: Ints, capacity: Floats) -> Floats:
    """Rate of every flow; flow f crosses ``link[start[f] : start[f + 1]]``. One that crosses none has no limit."""
    start, link, capacity = np.asarray(start, np.int64), np.asarray(link, np.int64), np.asarray(capacity, np.float64)
    if len(capacity) > len(link):
        # Few flows on a large fabric: only links that they cross count.
        crossed = np.zeros(len(capacity), dtype=bool)
        crossed[link] = True
        link, capacity = (np.cumsum(crossed) - 1)[link], capacity[crossed]
    found: Floats = fill(start, link, capacity)
    return found


def slowest(crossings: Ints, capacity: Floats) -> float:
    """The lowest of all rates, of how many flows cross each link: the level at which the first link is full."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a link that nobody crosses is never full; one of none has no level
        return float(np.fmin.reduce(capacity / crossings, initial=np.inf))


def filled(start: Ints, link: Ints, capacity: Floats) -> Floats:
    """The same without a compiler: one pass over what still grows for every level at which links fill."""
    known, link = np.unique(link, return_inverse=True)
    capacity, flows = capacity[known], len(start) - 1
    flow = np.repeat(np.arange(flows), np.diff(start))
    rate, used = np.full(flows, np.inf), np.zeros(len(known))
    active = np.bincount(link, minlength=len(known))
    while len(link):
        share = np.where(active > 0, (capacity - used) / np.maximum(active, 1), np.inf)
        # Progressive filling: the link with the smallest fair share saturates next.
        level = share.min()
        done = np.zeros(flows, dtype=bool)
        done[flow[(share <= level * (1 + TIE))[link]]] = True
        rate[done] = level
        gone = done[flow]
        frozen = np.bincount(link[gone], minlength=len(known))
        used += level * frozen
        active -= frozen
        flow, link = flow[~gone], link[~gone]
    return rate


@kernel()
def sink(key: Floats, item: Ints, at: int, size: int) -> int:
    """Move an item of a heap down to where it belongs."""
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and key[child + 1] < key[child]:
            child += 1
        if key[at] <= key[child]:
            break
        key[at], key[child] = key[child], key[at]
        item[at], item[child] = item[child], item[at]
        at = child
    return at


@kernel(plain=filled, small=FEW)
def fill(start: Ints, link: Ints, capacity: Floats) -> Floats:
    """Progressive filling with a heap of links by the level at which they fill.

    That level only rises while other flows stop growing, so a link's key is looked at again when it comes up, not before.
    """
    flows, links = len(start) - 1, len(capacity)
    first = np.zeros(links + 1, dtype=np.int64)
    for e in link:
        first[e + 1] += 1
    for k in range(links):
        first[k + 1] += first[k]
    at, on = first[:-1].copy(), np.empty(len(link), dtype=np.int64)
    for f in range(flows):
        for e in range(start[f], start[f + 1]):
            on[at[link[e]]] = f
            at[link[e]] += 1
    rate, used = np.full(flows, np.inf), np.zeros(links)
    active, frozen = first[1:] - first[:-1], np.zeros(links, dtype=np.int64)
    key, item, full, touched = np.empty(links), np.empty(links, dtype=np.int64), at, np.empty(links, dtype=np.int64)
    size = 0
    for k in range(links):
        if active[k] > 0:
            key[size], item[size] = capacity[k] / active[k], k
            size += 1
    for k in range(size // 2 - 1, -1, -1):
        sink(key, item, k, size)
    while size > 0:
        level, many = -1.0, 0
        while size > 0 and (level < 0 or key[0] <= level * (1 + TIE)):
            k = item[0]
            share = (capacity[k] - used[k]) / max(active[k], 1)
            if active[k] > 0 and share > key[0] * (1 + TIE):
                key[0] = share
                sink(key, item, 0, size)
                continue
            if active[k] > 0:
                level = share if level < 0 else min(level, share)
                full[many] = k
                many += 1
            size -= 1
            key[0], item[0] = key[size], item[size]
            sink(key, item, 0, size)
        changed = 0
        for i in range(many):
            for e in range(first[full[i]], first[full[i] + 1]):
                f = on[e]
                if rate[f] == np.inf:
                    rate[f] = level
                    for c in range(start[f], start[f + 1]):
                        k = link[c]
                        if frozen[k] == 0:
                            touched[changed] = k
                            changed += 1
                        frozen[k] += 1
        for i in range(changed):
            k = touched[i]
            used[k] += level * frozen[k]
            active[k] -= frozen[k]
            frozen[k] = 0
    return rate
