"""Who waited for whom: waiting at gates by the rank that came last and the rank that waited, in groups where ranks are many."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.rank_words import rank_label, short_host
from taut.core.tables import Table
from taut.graph import Graph
from taut.result.brief_types import RankLateness
from taut.stored import Run

MOST = 32
"""Rows and columns of the map."""
LEAST = 0.0005
"""Pairs below this share are left out."""


def lateness_of(run: Run) -> RankLateness | None:
    """The map of a run; None where nobody was late."""
    return by_waits(run.graph, run.waits)


def by_waits(graph: Graph, waits: Table) -> RankLateness | None:
    """The map by the waits of a graph.

    What waits with everybody at their reference (structural) and what nobody explains has no cause, and is not in it.
    """
    caused = waits.fault_ns + waits.jitter_ns + waits.gap_ns if len(waits) else np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(caused > 0)
    if not len(rows):
        return None
    group, labels = _groups(graph)
    of_op = group[graph.rank_index]
    cause, victim = of_op[waits.opener[rows]], of_op[waits.op[rows]]
    share = np.bincount(cause * len(labels) + victim, weights=caused[rows], minlength=len(labels) ** 2) / caused[rows].sum()
    return _listed(share, labels)


def _listed(share: Floats, labels: list[str]) -> RankLateness:
    pairs = np.flatnonzero(share >= LEAST)
    return RankLateness(
        labels=labels,
        cause=[int(one) for one in pairs // len(labels)],
        victim=[int(one) for one in pairs % len(labels)],
        share=[float(one) for one in share[pairs]],
    )


def _groups(graph: Graph) -> tuple[Ints, list[str]]:
    """(group of each rank in order, names of the groups): ranks, or hosts, or stages, or blocks of neighbours."""
    members, count = graph.members, len(graph.ranks)
    if count <= MOST:
        return np.arange(count), [rank_label(int(rank), members) for rank in graph.ranks]
    hosts, of = np.unique(members.host.astype(str), return_inverse=True)
    if 2 <= len(hosts) <= MOST and all(hosts):
        return of, [short_host(str(host)) for host in hosts]
    stages, of = np.unique(members.stage, return_inverse=True)
    if 2 <= len(stages) <= MOST and stages[0] >= 0:
        return of, [f"stage {stage}" for stage in stages]
    return _blocks(graph.ranks)


def _blocks(ranks: Ints) -> tuple[Ints, list[str]]:
    """Blocks of neighbouring ranks."""
    size = -(-len(ranks) // MOST)
    block = np.arange(len(ranks)) // size
    ends = [(int(some[0]), int(some[-1])) for some in np.split(ranks, np.arange(size, len(ranks), size))]
    return block, [f"rank {first}" if first == last else f"ranks {first}–{last}" for first, last in ends]
