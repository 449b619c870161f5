"""Aligning the collectives of ranks that disagree about their order, without forcing anything together.

A window was cut, a rank has one broadcast more, or nothing numbers the calls. Two collectives can be the same if they do
the same (verb, size) and, where everybody waits for everybody, if both were under way at once. Among the longest common
orders of such pairs only what all of them share is taken: where two answers are equally good, there is none.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import greatest, least, numbered
from taut.core.jit import kernel
from taut.core.tables import Table
from taut.graph import jumps
from taut.graph.jumps import Jump

SAME_HOST_NS = 100_000
"""Device times of one host agree to this."""
OTHER_HOST_NS = 1_000_000
"""Hosts that keep time by NTP agree to this, once a common offset is taken out."""
LEAST_GATES = 3
"""Gates without which a rank's clock is taken as it is."""
SHARED = 20
"""Two collectives that are one have at least this part of the shorter in common: the last to come moves its bytes in it."""
MOST_PAIRS = 1 << 24
"""Two ranks with more pairs of collectives than this in one scope are not aligned."""


class Times:
    """Starts and ends of the collectives on one clock, as far as hosts and unquestioned gates tell, and its error."""

    def __init__(self, ops: Table, rows: Ints, members: Table) -> None:
        self.start, self.end = ops.start_ns[rows].astype(np.int64), ops.end_ns[rows].astype(np.int64)
        self._rank, self._members = ops.rank[rows], members
        host = members.host
        self.slack = SAME_HOST_NS if host[0] != "" and (host == host[0]).all() else OTHER_HOST_NS
        self.jumps: list[Jump] = []

    def correct(self, number: Ints, count: int, sound: Mask) -> None:
        """Take out what the clocks of other hosts are off by, as gates that nobody questions show it."""
        if self.slack == SAME_HOST_NS:
            return
        self.jumps = jumps.find(self.start, self.end, self._rank, number, sound, OTHER_HOST_NS)
        off = jumps.shifts(self.jumps, self._rank, self.start)
        place = np.searchsorted(self._members.rank, self._rank)
        off += _offsets(self.end - off, place, len(self._members), number, count, sound)[place]
        self.start, self.end = self.start - off, self.end - off

    def impossible(self, number: Ints, count: int) -> Mask:
        """Gates of which somebody had left before the last came."""
        return greatest(number, count, self.start) > least(number, count, self.end) + self.slack


def _offsets(end: Ints, rank: Indices, ranks: int, number: Ints, count: int, sound: Mask) -> Ints:
    """How much later each rank's clock is than its peers', where that is more than hosts usually differ by."""
    some = np.flatnonzero(sound)
    some = some[np.bincount(number[some], minlength=count)[number[some]] > 1]
    some = some[np.lexsort((end[some], number[some]))]
    _, begins, sizes = np.unique(number[some], return_index=True, return_counts=True)
    late = end[some] - np.repeat(end[some[begins + (sizes - 1) // 2]], sizes)  # against the median end of the gate
    order = np.lexsort((late, rank[some]))
    begin = np.searchsorted(rank[some][order], np.arange(ranks + 1))
    gates = np.diff(begin)
    median = np.append(late, 0)[np.append(order, len(late))[begin[:-1] + gates // 2]]
    return np.where((gates >= LEAST_GATES) & (np.abs(median) > OTHER_HOST_NS), median, 0)


class Calls(Struct, frozen=True):
    """Collectives, one entry each."""

    scope: Ints
    """Calls of one scope are in one order."""
    rank: Indices
    token: Ints
    """What it does: collectives of one gate have the same."""
    meets: Mask
    """Whether everybody waits for everybody."""


def realign(number: Ints, count: int, redo: Mask, calls: Calls, times: Times) -> tuple[Ints, int]:
    """Gate numbers with the marked scopes aligned anew, every rank against the one with most collectives; -1 for none."""
    number = number.copy()
    rows = np.flatnonzero(redo)
    rows = rows[np.lexsort((rows, calls.rank[rows], calls.scope[rows]))]
    cell, cells = numbered(calls.scope[rows], calls.rank[rows])
    begin = np.searchsorted(cell, np.arange(cells + 1))
    of_scope = calls.scope[rows][begin[:-1]]
    longest = np.lexsort((np.arange(cells), -np.diff(begin), of_scope))
    base = longest[np.searchsorted(of_scope[longest], of_scope)]
    kind = numbered(calls.token[rows])[0]
    found = align(
        begin, base, kind, calls.meets[rows].astype(np.int64), times.start[rows], times.end[rows], times.slack, MOST_PAIRS
    )
    number[rows] = np.where(found >= 0, count + found, -1)
    return number, count + len(rows)


@kernel(lists=True)
def align(begin: Ints, base: Ints, kind: Ints, meets: Ints, start: Ints, end: Ints, slack: int, most: int) -> Ints:
    """Row of its base list that each row certainly stands for, -1 for none; rows of a base list stand for themselves.

    List c holds the rows begin[c]..begin[c+1]. One table counts the longest common order after each pair, one up to it; a
    pair belongs to every longest order if it alone can take its place in them.
    """
    found = np.full(len(kind), -1, np.int64)
    for c in range(len(begin) - 1):
        b, d = begin[c], base[c]
        a = begin[d]
        m, n = begin[c + 1] - b, begin[d + 1] - a
        if c == d:
            for i in range(n):
                found[a + i] = a + i
            continue
        if m * n > most:
            continue
        # Longest common subsequence of two lists: after[i, j] counts the longest common order of rows i… and j…, upto[i, j]
        # that of rows …i−1 and …j−1:
        #     after[i, j] = max(after[i+1, j], after[i, j+1], after[i+1, j+1] + 1 if i and j can be one)
        wide = m + 1
        after = np.zeros((n + 1) * wide, np.int64)
        upto = np.zeros((n + 1) * wide, np.int64)
        can = np.zeros(n * m, np.int64)
        for i in range(n):
            for j in range(m):
                u, v = a + i, b + j
                shared = min(end[u], end[v]) - max(start[u], start[v])
                need = min(end[u] - start[u], end[v] - start[v]) // SHARED
                if kind[u] == kind[v] and (meets[u] == 0 or shared + slack >= need):
                    can[i * m + j] = 1
        for i in range(n - 1, -1, -1):
            for j in range(m - 1, -1, -1):
                best = max(after[(i + 1) * wide + j], after[i * wide + j + 1])
                if can[i * m + j] == 1:
                    best = max(best, after[(i + 1) * wide + j + 1] + 1)
                after[i * wide + j] = best
        for i in range(n):
            for j in range(m):
                best = max(upto[i * wide + j + 1], upto[(i + 1) * wide + j])
                if can[i * m + j] == 1:
                    best = max(best, upto[i * wide + j] + 1)
                upto[(i + 1) * wide + j + 1] = best
        total = after[0]
        # A pair lies on some longest order if what comes before it, itself and what follows add up to the total; where it
        # is the only one at its place, it lies on all of them.
        rivals = np.zeros(total + 1, np.int64)
        for i in range(n):
            for j in range(m):
                if can[i * m + j] == 1 and upto[i * wide + j] + 1 + after[(i + 1) * wide + j + 1] == total:
                    rivals[upto[i * wide + j]] += 1
        for i in range(n):
            for j in range(m):
                at = upto[i * wide + j]
                if can[i * m + j] == 1 and at + 1 + after[(i + 1) * wide + j + 1] == total and rivals[at] == 1:
                    found[b + j] = a + i
    return found
