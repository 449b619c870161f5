"""Kernels behind references, blame and ledger: cells of peers, branches of waits, and what a rank was doing when."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers
from taut.core.jit import kernel, numpy_twin_of_kernel

PROBES = 64
"""Slots that are looked at for a pair of ranks."""


@kernel()
def middle(ordered: Floats, skip: int) -> float:
    """Median of a sorted array with one element left out (-1: none)."""
    n = len(ordered) - (1 if skip >= 0 else 0)
    return float(0.5 * (pick(ordered, skip, (n - 1) // 2) + pick(ordered, skip, n // 2)))


@kernel()
def pick(ordered: Floats, skip: int, i: int) -> float:
    """Element i of a sorted array with one element left out."""
    return float(ordered[i + 1] if 0 <= skip <= i else ordered[i])


@kernel()
def quantile(ordered: Floats, skip: int, q: float) -> float:
    """Quantile of a sorted array with one element left out, linear between neighbours."""
    n = len(ordered) - (1 if skip >= 0 else 0)
    x = q * (n - 1)
    i = int(x)
    j = min(i + 1, n - 1)
    return float(pick(ordered, skip, i) * (1.0 - (x - i)) + pick(ordered, skip, j) * (x - i))


@kernel()
def distance(ordered: Floats, center: float) -> float:
    """Median distance of the elements of a sorted array from a value: the farthest is always at one of the ends."""
    # Take the farthest away n/2 times: what is left then is the median distance, without sorting distances.
    n = len(ordered)
    left, right = 0, n - 1
    far, upper = 0.0, 0.0
    for i in range(n - 1, (n - 1) // 2 - 1, -1):
        below, above = center - ordered[left], ordered[right] - center
        if below > above:
            far = below
            left += 1
        else:
            far = above
            right -= 1
        if i == n // 2:  # of an even number the mean of the two in the middle
            upper = far
    return float(0.5 * (far + upper))


@kernel()
def describe_cells(values: Numbers, order: Indices, begin: Ints) -> tuple[Floats, Floats]:
    """(median, spread) of each cell; the spread is the larger of the scaled MAD and the scaled upper tail.

    Two values give their range over its expectation (1.128 standard deviations), one gives none.
    """
    cells = len(begin) - 1
    median = np.full(cells, np.nan)
    spread = np.full(cells, np.nan)
    for c in range(cells):
        if begin[c + 1] == begin[c]:
            continue
        mine = np.sort(values[order[begin[c] : begin[c + 1]]].astype(np.float64))
        median[c] = middle(mine, -1)
        # 1.4826 and 1.2816 turn the median distance and the 90 % quantile of a normal distribution into its spread.
        if len(mine) == 2:
            spread[c] = (mine[1] - mine[0]) / 1.128
        elif len(mine) > 2:
            spread[c] = max(1.4826 * distance(mine, median[c]), (quantile(mine, -1, 0.9) - median[c]) / 1.2816)
    return median, spread


@kernel()
def cell_medians(values: Numbers, order: Indices, begin: Ints) -> Floats:
    """Median of each cell; NaN where it has no row."""
    cells = len(begin) - 1
    median = np.full(cells, np.nan)
    for c in range(cells):
        n = begin[c + 1] - begin[c]
        if n > 0:
            mine = np.partition(values[order[begin[c] : begin[c + 1]]].astype(np.float64), n // 2)
            # Below the upper middle lies what is not larger: of an even number the largest of it is the lower middle.
            median[c] = 0.5 * ((mine[n // 2] if n % 2 == 1 else np.max(mine[: n // 2])) + mine[n // 2])
    return median


@numpy_twin_of_kernel
def rounded_reference_plain(work: Ints, reference: Floats) -> Ints:
    """``rounded_reference`` by numpy."""
    unknown = np.isnan(reference)
    return np.where(unknown, work, np.rint(np.where(unknown, 0.0, reference)).astype(np.int64))


@kernel(plain=rounded_reference_plain)
def rounded_reference(work: Ints, reference: Floats) -> Ints:
    """The reference of every op in whole ns, its work where there is none."""
    out = np.empty(len(work), np.int64)
    for v in range(len(work)):
        out[v] = work[v] if np.isnan(reference[v]) else np.int64(np.rint(reference[v]))
    return out


@numpy_twin_of_kernel
def less_medians_plain(values: Numbers, order: Indices, begin: Ints, out: Floats) -> int:
    """``less_medians`` by numpy."""
    rows = order[begin[0] : begin[-1]]
    out[rows] = values[rows] - np.repeat(cell_medians(values, order, begin), np.diff(begin))
    return len(rows)


@kernel(plain=less_medians_plain)
def less_medians(values: Numbers, order: Indices, begin: Ints, out: Floats) -> int:
    """Write of each row of some cells its value less the median of its cell; returns how many rows these are."""
    median = cell_medians(values, order, begin)
    for c in range(len(begin) - 1):
        for k in range(begin[c], begin[c + 1]):
            out[order[k]] = values[order[k]] - median[c]
    return int(begin[len(begin) - 1] - begin[0])  # kernels take no negative index


ENOUGH_PEERS = 5
"""Ranks of one class that tell what is ordinary by themselves, where each did it only once."""


UNEQUAL = 0.1
"""Two ranks alone cannot tell a slow one from unequal ones: this share of the work is then taken as ordinary spread."""
FEW = 4
"""A spread taken from few ranks is itself uncertain: it is widened by 1 + FEW / (ranks − 2), which keeps the false alarms
of stable but unequal ranks at 2 % for four of them and below 1 % from eight on."""


@kernel()
def leave_one_out(median: Floats, spread: Floats, order: Ints, begin: Ints) -> tuple[Floats, Floats, Floats]:
    """Per cell, from the other cells of its class: (reference, spread within a rank, spread between ranks).

    ``order``/``begin`` list the cells (one per rank) of each class. A rank alone in its class is compared with its own
    history; NaN where there is none. The spread between ranks leaves the slowest out, lest a culprit excuse itself.
    """
    cells = len(median)
    reference = np.full(cells, np.nan)
    within = np.full(cells, np.nan)
    between = np.full(cells, np.nan)
    for k in range(len(begin) - 1):
        mine = order[begin[k] : begin[k + 1]]
        m = len(mine)
        if m == 1 and not np.isnan(spread[mine[0]]):
            reference[mine[0]] = median[mine[0]]
            within[mine[0]] = spread[mine[0]]
        if m < 2:
            continue
        rank = np.argsort(median[mine])
        ordered = median[mine][rank]
        known = spread[mine]
        known = np.sort(known[~np.isnan(known)])
        # Ranks that did it only once have no spread: the median of the others' serves. Where nobody has one, enough
        # ranks tell by how they differ, and fewer tell nothing.
        w = middle(known, -1) if len(known) > 0 else (0.0 if m >= ENOUGH_PEERS else np.nan)
        if m == 2:
            apart = UNEQUAL * abs(ordered[0])
        else:
            # Interquartile range without the slowest; 1.349 spreads wide for a normal distribution.
            apart = (quantile(ordered, m - 1, 0.75) - quantile(ordered, m - 1, 0.25)) / 1.349 * (1 + FEW / (m - 2))
        for i in range(m):
            c = mine[rank[i]]
            reference[c] = middle(ordered, i)
            within[c] = w
            between[c] = apart
    return reference, within, between


@kernel()
def meet(p: int, q: int, bound: Indices, opener: Indices, last: Ints, mine: Ints) -> tuple[int, int, int, int]:
    """Walk two arrivals up the binding forest: (ops on p's branch, on q's branch, shared end, where they meet).

    Writes the arrivals passed on each branch into ``last`` and ``mine``; the work below arrival x is that of bound[x],
    except for the shared end, where both branches hang on the same op.
    """
    # Ops are numbered in event order and binding predecessors have smaller numbers: stepping back from the greater of
    # the two reaches the lowest common ancestor.
    a, b = 0, 0
    while p != q:
        if p >= 0 and q >= 0 and bound[p] >= 0 and bound[p] == bound[q]:
            last[a] = p
            mine[b] = q
            u = bound[p]
            return a + 1, b + 1, u, opener[u] if opener[u] >= 0 else u
        if p > q:
            last[a] = p
            a += 1
            u = bound[p]
            p = -1 if u < 0 else (opener[u] if opener[u] >= 0 else u)  # through a gate: on to who came last there
        else:
            mine[b] = q
            b += 1
            u = bound[q]
            q = -1 if u < 0 else (opener[u] if opener[u] >= 0 else u)
    return a, b, -1, p


@kernel()
def slot_of(keys: Ints, key: int) -> int:
    """Where the sum of a pair is kept: at its own number, or, where keys are listed, at the slot that holds it or is free.

    The last slot takes what finds none.
    """
    if len(keys) == 0:
        return key
    size = len(keys) - 1  # open addressing: from its remainder on the first slot that is its own or free
    for probe in range(PROBES):
        slot = (key + probe) % size
        if keys[slot] == key or keys[slot] < 0:
            keys[slot] = key
            return slot
    return size


@kernel()
def share_out(
    amount: int,
    weights: Floats,
    ops: Ints,
    count: int,
    cause: Ints,
    keys: Ints,
    sums: Ints,
    rank: Indices,
    ranks: int,
    victim: int,
    counted: Mask,
) -> int:
    """Give an integer amount to ops in proportion to their weights, without remainder; returns what counted ops were given."""
    total = 0.0
    for i in range(count):
        total += weights[i]
    if total <= 0:
        return 0
    given, running, told = 0, 0.0, 0
    for i in range(count):
        running += weights[i]
        # Rounding running sums, not shares, leaves no remainder.
        now = amount if i == count - 1 else int(amount * (running / total))
        if weights[i] > 0 or now > given:
            cause[ops[i]] += now - given
            sums[slot_of(keys, rank[ops[i]] * ranks + victim)] += now - given
            told += now - given if counted[ops[i]] else 0
            given = now
    return told


@kernel(lists=True)
def split_work(
    waited: Ints,
    least: Ints,
    ordinary: Ints,
    z: float,
    wait: Ints,
    bound: Indices,
    opener: Indices,
    work: Ints,
    reference: Floats,
    cell: Indices,
    within: Floats,
    between: Floats,
    rank: Indices,
    ranks: int,
    slots: int,
    counted: Mask,
) -> tuple[Ints, Ints, Floats, Ints, Ints, Ints]:
    """Split gap-free waits: (fault, structural, score) per waiting op, fault per cause op, rank pairs and their sums.

    Of the fault of a wait only what ``counted`` ops caused is told. Spreads are those of the ``cell`` of an op.

    ``waited`` lists the waiting ops, ``wait`` how long each waits without gaps, ``least`` how much of that is to be split,
    ``ordinary`` the wait that remains with every op at its reference: that is structural. The rest is excess of the last
    arriver: first on its branch below the meeting point, then, as far as that does not cover it, above (a delay both share,
    but which the waiting op's slack had absorbed). It is fault if it lies outside the prediction interval, else jitter; the
    score says by how much.
    """
    n = len(work)
    fault = np.zeros(len(waited), np.int64)
    structural = np.zeros(len(waited), np.int64)
    score = np.full(len(waited), np.nan)
    cause = np.zeros(n, np.int64)
    keys, sums = np.full(slots, -1, np.int64), np.zeros(slots if slots > 0 else ranks * ranks, np.int64)
    last, mine, weight = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.float64)
    for j in range(len(waited)):
        v = waited[j]
        total = wait[j]
        if opener[v] < 0 or total <= 0 or least[j] <= 0:
            continue
        a, b, common, x = meet(opener[v], v, bound, opener, last, mine)
        # Net excess: that of the last arriver's branch minus that of the waiter's own. Spreads within ranks add in
        # quadrature, those between ranks linearly, because unequal ranks stay unequal from op to op.
        net, weighed, variance, shared, known = 0.0, 0.0, 0.0, 0.0, True
        for i in range(b):
            u = bound[mine[i]]
            if u < 0 or u == common:
                continue
            c = cell[u]
            if np.isnan(reference[u]) or np.isnan(within[c]):
                known = False
                continue
            net -= work[u] - reference[u]
            variance += within[c] * within[c]
            shared += between[c]
        plain = min(max(ordinary[j], 0), total)
        i = 0
        while True:
            if i < a:
                u = bound[last[i]]
            elif x >= 0 and net < total - plain and i < n:  # above the meeting point, until the wait is covered
                u = bound[x] if i > a or common < 0 else common
                x = -1 if u < 0 else (opener[u] if opener[u] >= 0 else u)
            else:
                break
            last[i] = u
            weight[i] = 0.0
            i += 1
            if u < 0 or (i <= a and u == common):
                continue
            c = cell[u]
            if np.isnan(reference[u]) or np.isnan(within[c]):
                known = known and i > a
                continue
            excess = work[u] - reference[u]
            weight[i - 1] = max(0.0, excess)
            weighed += weight[i - 1]
            net += excess
            variance += within[c] * within[c]
            shared += between[c]
        if not known:
            continue
        scale = least[j] / total  # the part of the gap-free wait that was observed
        score[j] = net / max(np.sqrt(variance + shared * shared), 1.0)
        if score[j] > z:
            amount = int(min(net, total - plain, weighed) * scale)
            fault[j] = share_out(amount, weight, last, i, cause, keys, sums, rank, ranks, rank[v], counted)
        structural[j] = min(int(plain * scale), least[j] - fault[j])
    return fault, structural, score, cause, keys, sums


@kernel(lists=True)
def split_gaps(
    waited: Ints,
    rest: Ints,
    bound: Indices,
    opener: Indices,
    gap: Ints,
    reference: Floats,
    rank: Indices,
    ranks: int,
    slots: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """Blame what is left of observed waits on gaps in excess of their class: (gap per waiting op, per cause op, rank pairs
    and their sums)."""
    n = len(gap)
    blamed = np.zeros(len(waited), np.int64)
    cause = np.zeros(n, np.int64)
    keys, sums = np.full(slots, -1, np.int64), np.zeros(slots if slots > 0 else ranks * ranks, np.int64)
    last, mine, weight = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.float64)
    counted = np.ones(n, np.bool_)
    for j in range(len(waited)):
        v = waited[j]
        if rest[j] <= 0 or opener[v] < 0:
            continue
        a, b, _, _ = meet(opener[v], v, bound, opener, last, mine)
        net = 0.0  # gaps of the last arriver's branch in excess of their class, minus those of the waiter's own
        for i in range(a):
            x = last[i]
            excess = gap[x] - (0.0 if np.isnan(reference[x]) else reference[x])
            weight[i] = max(0.0, excess)
            net += excess
        for i in range(b):
            x = mine[i]
            net -= gap[x] - (0.0 if np.isnan(reference[x]) else reference[x])
        if net > 0:
            amount = rest[j] if net >= rest[j] else int(net)
            blamed[j] = share_out(amount, weight, last, a, cause, keys, sums, rank, ranks, rank[v], counted)
    return blamed, cause, keys, sums


@kernel(lists=True)
def part_of_gaps(
    waited: Ints, blamed: Ints, bound: Indices, opener: Indices, gap: Ints, reference: Floats, held: Ints
) -> tuple[Ints, Ints]:
    """Of what ``split_gaps`` blamed on gaps: the part of each wait that lies in some of them, and the op with the largest.

    ``held`` says how much of the gap before each op is meant.
    """
    n = len(gap)
    part = np.zeros(len(waited), np.int64)
    most = np.full(len(waited), -1, np.int64)
    last, mine = np.empty(n, np.int64), np.empty(n, np.int64)
    for j in range(len(waited)):
        v = waited[j]
        if blamed[j] <= 0 or opener[v] < 0:
            continue
        a, _, _, _ = meet(opener[v], v, bound, opener, last, mine)
        total, meant, largest = 0.0, 0.0, 0.0
        for i in range(a):
            x = last[i]
            excess = max(0.0, gap[x] - (0.0 if np.isnan(reference[x]) else reference[x]))
            here = min(excess, 1.0 * held[x])
            total += excess
            meant += here
            if here > largest:
                largest = here
                most[j] = x
        if meant > 0:
            part[j] = min(blamed[j], int(blamed[j] * (meant / total)))
    return part, most


@kernel()
def expose_groups(
    begin: Ints,
    stop: Ints,
    order: Indices,
    lane: Indices,
    lanes: int,
    arrival: Ints,
    opening: Ints,
    end: Ints,
    level: Indices,
    working: Ints,
    waiting: Ints,
    idle: Ints,
    tail: Ints,
) -> int:
    """What some ranks were doing at every nanosecond, added to (working, waiting, idle before) per op and the tails of groups.

    A group is one rank in one segment: ops order[begin[g]:begin[g+1]] by arrival, watched from 0 to stop[g]. The first
    that applies at any moment: some lane works at level 0 (compute), 1 (transfer) or 2 (copy), some lane waits, some lane
    works at level 4 (host); otherwise the time belongs to the next op that begins. Returns how many groups these are.
    """
    current = np.empty(lanes, np.int64)
    for g in range(len(stop)):
        lo, hi = begin[g], begin[g + 1]
        current[:] = -1
        now, i, used = 0, lo, 0
        while now < stop[g]:  # from one change to the next: an arrival, an opening or an end
            while i < hi and arrival[order[i]] <= now:
                v = order[i]
                if end[v] > now:
                    current[lane[v]] = v
                    used = max(used, lane[v] + 1)
                i += 1
            until = min(stop[g], arrival[order[i]]) if i < hi else stop[g]
            best, best_level = -1, 9
            for k in range(used):
                v = current[k]
                if v < 0:
                    continue
                if end[v] <= now:
                    current[k] = -1
                    continue
                what = 3 if now < opening[v] else level[v]
                until = min(until, opening[v] if now < opening[v] else end[v])
                if what < best_level or (what == best_level and v < best):  # of equals the op that arrived first
                    best, best_level = v, what
            if best < 0 and i < hi:
                idle[order[i]] += until - now
            elif best < 0:
                tail[g] += until - now
            elif best_level == 3:
                waiting[best] += until - now
            else:
                working[best] += until - now
            now = until
    return len(stop)


@kernel(lists=True)
def expose(
    begin: Ints, stop: Ints, order: Indices, lane: Indices, lanes: int, arrival: Ints, opening: Ints, end: Ints, level: Indices
) -> tuple[Ints, Ints, Ints, Ints]:
    """What each rank was doing at every nanosecond: (working, waiting, idle before) per op, and the idle tail per group."""
    n = len(arrival)
    working, waiting, idle = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    tail = np.zeros(len(stop), np.int64)
    expose_groups(begin, stop, order, lane, lanes, arrival, opening, end, level, working, waiting, idle, tail)
    return working, waiting, idle, tail


@kernel(lists=True)
def fastest_other(gate: Indices, gates: int, work: Ints) -> Ints:
    """Per op: the least work among the other members of its gate; 0 for ops without a gate or alone in it."""
    # The two least of each gate: the fastest op is compared with the second, all others with the fastest.
    first = np.full(gates, 1 << 62, np.int64)
    second = np.full(gates, 1 << 62, np.int64)
    who = np.full(gates, -1, np.int64)
    for v in range(len(gate)):
        g = gate[v]
        if g < 0:
            continue
        if work[v] < first[g]:
            second[g] = first[g]
            first[g] = work[v]
            who[g] = v
        elif work[v] < second[g]:
            second[g] = work[v]
    out = np.zeros(len(gate), np.int64)
    for v in range(len(gate)):
        g = gate[v]
        if g >= 0:
            least = second[g] if who[g] == v else first[g]
            out[v] = least if least < (1 << 61) else 0
    return out
