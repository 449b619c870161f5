"""Ring collectives: who ends late, and what the ring would be without a slow link.

Every chunk of a ring crosses every link, in an all-reduce 2(N−1) times and in the one-way collectives N−1 times, and the
receiver of a slow link ends one chunk later than the others. So the lateness of that receiver is the price of one
crossing, and the whole gate lost that many times as much: a reference that needs neither a baseline nor a fabric file.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import Verb
from taut.graph import Graph

RING = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
FALSE_ALARMS = 0.01
"""Chance that any rank of a healthy run is called the receiver of a slow link."""
OF_A_ROUND = 2.0
"""A receiver is late by one round; twice that is no ring."""
UNLIKE = 4
"""Collectives whose sizes differ by this factor tell a slow link from a busy host."""
HABIT = 4
"""Ranks of one healthy host end up to this many times the range of its earlier half later than that half."""
LEAST = 20
"""Without its slow link a transfer keeps at least one part in this many of its time: a chunk is an estimate."""


class Ring(Struct, frozen=True):
    """Ops of ring collectives with at least three members, and how much later than the first each of them ended."""

    rows: Ints
    late_ns: Ints
    least_ns: Ints
    """Per gate: the shortest transfer among its members."""
    members: Ints


def ring(graph: Graph) -> Ring | None:
    """The ring collectives of a graph, or None if it has none."""
    inside = (graph.gate >= 0) & np.isin(graph.ops.verb, RING)
    gates = len(graph.gates)
    members = np.bincount(graph.gate[inside], minlength=gates)
    rows = np.flatnonzero(inside & (members[np.maximum(graph.gate, 0)] >= 3)) if gates else np.zeros(0, dtype=np.int64)
    if len(rows) == 0:
        return None
    gate = graph.gate[rows]
    least = np.full(gates, np.iinfo(np.int64).max)
    np.minimum.at(least, gate, graph.work_ns[rows])
    return Ring(rows, graph.work_ns[rows] - least[gate], least, members)


def late_receivers(graph: Graph, rings: Ring) -> tuple[Mask, Floats]:
    """(which ranks end later than the others as a rule, score of every rank): the receivers of slow links.

    Median lateness against the median of the other ranks, in units of its standard error; the null is that all ranks
    end alike, the alarm corrected for the number of ranks. When most ranks are late, none is.
    """
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import describe_cells, leave_one_out

    ranks = len(graph.ranks)
    order, begin = group_sort(graph.rank_index[rings.rows], ranks)
    count = np.diff(begin)
    middle, spread = describe_cells(rings.late_ns, order, begin)
    reference = leave_one_out(middle, spread, np.flatnonzero(count), np.array([0, (count > 0).sum()]))[0]
    typical = np.nanmedian(spread) if (count > 1).any() else 0.0
    # A median of n values has 1.2533 (√(π/2)) times the standard error of their mean; below 1 µs clocks tell nothing.
    error = np.maximum(np.fmax(spread, typical), 1000.0) * 1.2533 / np.sqrt(np.maximum(count, 1))
    score = np.nan_to_num((middle - reference) / error) * (count >= 3)
    slow = (score > NormalDist().inv_cdf(1 - FALSE_ALARMS / ranks)) & (middle > _habit(middle[count > 0]))
    slow &= _like_a_link(graph, rings, slow[graph.rank_index[rings.rows]])
    return slow & (2 * slow.sum() <= ranks), score


def _like_a_link(graph: Graph, rings: Ring, late: Mask) -> bool:
    """Whether lateness is what a slow link would give: a round of the whole transfer, and more in larger collectives.

    A busy host is late in all of them, whatever their size, and by more than a round if it is late once for all.
    """
    rows, lateness = rings.rows[late], rings.late_ns[late]
    size, verb = graph.ops.size[rows], graph.ops.verb[rows]
    large = 2 * size > size.max(initial=0)
    whole = graph.work_ns[rows] - lateness  # what the others took
    for kind in np.unique(verb[large]):
        mine = large & (verb == kind)
        share = np.median(lateness[mine] * _rounds(graph, rings, rows)[mine] / np.maximum(whole[mine], 1))
        if share > OF_A_ROUND:
            return False
    if not len(size) or size.min() <= 0 or size.max() < UNLIKE * size.min():
        return True
    return bool(np.median(lateness[large]) >= 2 * np.median(lateness[size < 2 * size.min()]))


def _rounds(graph: Graph, rings: Ring, rows: Ints) -> Ints:
    """How often each chunk crosses a link; gloo's reduce-scatter is an all-reduce."""
    both = (Verb.ALL_REDUCE, Verb.REDUCE_SCATTER) if graph.trace.backend == "gloo" else (Verb.ALL_REDUCE,)
    return (rings.members[graph.gate[rows]] - 1) * np.where(np.isin(graph.ops.verb[rows], both), 2, 1)


def _habit(middle: Floats) -> float:
    """How late a rank may end by habit: beyond the earlier half of the ranks by some times their own range."""
    early = np.sort(middle)[: (len(middle) + 1) // 2]
    return float(early[-1] + HABIT * (early[-1] - early[0])) if len(early) else 0.0


def without_slow_links(graph: Graph, rings: Ring, mended: Mask) -> Ints:
    """Work of every op if the links into some receivers (mask over rings.rows) were like the others, ns.

    A round of the ring takes as long as its slowest link: what another slow link still costs is not saved.
    """
    gate = graph.gate[rings.rows]
    still = late_receivers(graph, rings)[0][graph.rank_index[rings.rows]] & ~mended
    chunk, left = np.zeros(len(rings.members), dtype=np.int64), np.zeros(len(rings.members), dtype=np.int64)
    np.maximum.at(chunk, gate[mended], rings.late_ns[mended])
    np.maximum.at(left, gate[still], rings.late_ns[still])
    hops = (rings.members - 1) * np.where(graph.gates.verb == Verb.ALL_REDUCE, 2, 1)
    # The receiver's own lateness is one crossing and goes with ``late_ns``; the gate as a whole loses the other crossings.
    saved = (hops - 1) * np.maximum(chunk - left, 0)
    common = np.maximum(rings.least_ns - saved, rings.least_ns // LEAST)
    work = graph.work_ns.copy()
    work[rings.rows] = common[gate] + np.where(mended, 0, rings.late_ns)
    return work
