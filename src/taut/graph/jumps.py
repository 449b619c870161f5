"""Clocks that are set while the job runs: seen where members of a gate could not have met, and taken out again.

A late rank makes its peers wait, so that all still end together; a slow link makes some end later, but while the others
are there. Only a clock lets a member begin after another has left, from one gate on, always by the same amount. What lies
before the first such gate is on the old time, what follows the largest hole before it on the new one.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.tables import Table

LEAST_NS = 10_000_000
"""A clock that is set by less than this looks like any other."""
STEADY_NS, STEADY = 1_000_000, 0.05
"""A new time holds: the ends of later gates scatter by no more than this, or this share of the jump."""
LEAST_GATES, MOST_JUMPS = 2, 3
"""Gates on either side without which a jump is none; a clock that jumps more often is not a clock."""


class Jump(Struct, frozen=True):
    """One rank's clock is ahead by ``by_ns`` from somewhere between two times of its own."""

    rank: int
    after_ns: int
    before_ns: int
    by_ns: int


def find(start: Ints, end: Ints, rank: Indices, number: Ints, sound: Mask, slack: int) -> list[Jump]:
    """Jumps of each rank against the lowest rank at its gates, the earliest first."""
    rows = np.flatnonzero(sound)
    rows = rows[np.lexsort((rank[rows], number[rows]))]
    _, begins, sizes = np.unique(number[rows], return_index=True, return_counts=True)
    first = rows[np.repeat(begins, sizes)]
    apart = np.maximum(start[rows], start[first]) > np.minimum(end[rows], end[first]) + slack
    out: list[Jump] = []
    for r in np.unique(rank[rows[apart]]).tolist():
        mine = rank[rows] == r
        order = np.argsort(end[first[mine]], kind="stable")
        out += _jumps_of_rank(r, rows[mine][order], first[mine][order], start, end, slack)
    return out


def _jumps_of_rank(r: int, mine: Ints, first: Ints, start: Ints, end: Ints, slack: int) -> list[Jump]:
    late = end[mine] - end[first]  # constant between jumps, whatever the ranks do: members of a gate end together
    cuts = np.flatnonzero(np.abs(np.diff(late)) > LEAST_NS) + 1
    if not 0 < len(cuts) <= MOST_JUMPS:
        return []
    parts = np.split(np.arange(len(mine)), cuts)
    levels = np.array([np.median(late[part]) for part in parts])
    if min(map(len, parts)) < LEAST_GATES:
        return []
    out = []
    for k, part in enumerate(parts[1:]):
        by, u, v = int(levels[k + 1] - levels[k]), mine[part], first[part]
        # Still on the old time it could not have met the others.
        old_start, old_end = start[u] - levels[k], end[u] - levels[k]
        apart = np.maximum(old_start, start[v]) > np.minimum(old_end, end[v]) + slack
        scatter = np.abs(late[part] - levels[k + 1]).max()
        if not apart.all() or scatter > max(STEADY_NS, STEADY * abs(by)):
            return []
        out.append(Jump(r, int(end[mine[part[0] - 1]]), int(start[u[0]]), by))
    return out


def shifts(jumps: list[Jump], rank: Indices, start: Ints) -> Ints:
    """How far each op is ahead of its rank's first time."""
    out = np.zeros(len(rank), dtype=np.int64)
    for jump in jumps:
        out[(rank == jump.rank) & (start >= _first_start_after(jump, rank, start))] += jump.by_ns
    return out


def _first_start_after(jump: Jump, rank: Indices, start: Ints) -> int:
    """The first start on the new time: after the largest hole."""
    inside = np.unique(start[(rank == jump.rank) & (start >= jump.after_ns) & (start <= jump.before_ns)])
    if len(inside) == 0 or jump.by_ns < 0:
        return jump.before_ns
    return int(inside[np.argmax(np.diff(inside, prepend=jump.after_ns))])


def corrected(ops: Table, jumps: list[Jump]) -> Table:
    """The ops with every clock as it was at first."""
    if not jumps:
        return ops
    ahead = shifts(jumps, ops.rank, ops.start_ns)
    return ops.replace(start_ns=ops.start_ns - ahead, end_ns=ops.end_ns - ahead)


def notes(jumps: list[Jump]) -> list[str]:
    """One line for each jump."""
    return [f"the clock of rank {j.rank} jumps by {j.by_ns / 1e9:+.3f} s during the trace: corrected" for j in jumps]
