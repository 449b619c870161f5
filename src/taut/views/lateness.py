"""Who waited for whom: waiting by the rank that caused it and the rank that waited, in groups where ranks are many.

The cause is not who came last at a gate: whoever passes a delay on comes last too. So waits are blamed again, as
``taut analyze`` does; of a very large job those of its first steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec.structs import replace as replaced

from taut.core.array_types import Ints
from taut.core.ids import weighed
from taut.core.rank_words import rank_label, short_host
from taut.graph import Graph
from taut.replay.blame import Pairs, blame
from taut.replay.timeline import replay
from taut.result.brief_types import RankLateness
from taut.stored import Run

MOST = 32
"""Rows and columns of the map."""
LEAST = 0.0005
"""Pairs below this share are left out."""
OPS = 1_000_000
"""Ops that are blamed: of larger jobs the first ones."""


def lateness_of(run: Run, ops: int = OPS) -> RankLateness | None:
    """The map of a run; None where nobody caused anybody to wait."""
    return lateness(run.graph, ops)


def lateness(graph: Graph, ops: int = OPS) -> RankLateness | None:
    """The map of a graph, blamed on its first ops."""
    some = _first(graph, ops)
    blamed = blame(some, replay(some), replay(some, gaps=False))
    found, caused = blamed.pairs, int(blamed.pairs.ns.sum())
    if caused <= 0:
        return None
    steps = None if some is graph else int(some.window.max()) + 1
    covered = min(caused / max(int(blamed.waits.wait_ns.sum()), 1), 1.0)
    return replaced(_grouped(found, graph, steps), covered_share=covered)


def _first(graph: Graph, ops: int) -> Graph:
    """The graph of the first ops: the program is in event order, so its beginning is a program of its own."""
    if len(graph) <= ops:
        return graph
    events = graph.events[: int(np.flatnonzero(graph.events == ops)[0])]
    edges = int(graph.pred_ptr[ops])
    return replace(
        graph,
        ops=graph.ops.take(np.arange(ops)),
        work_ns=graph.work_ns[:ops],
        gap_ns=graph.gap_ns[:ops],
        pred_ptr=graph.pred_ptr[: ops + 1],
        pred=graph.pred[:edges],
        lag_ns=graph.lag_ns[:edges],
        join=graph.join[:ops],
        wait=graph.wait[:ops],
        wait_lag_ns=graph.wait_lag_ns[:ops],
        events=events,
        gate=graph.gate[:ops],
        explained=graph.explained[:ops],
        window=graph.window[:ops],
        roles=graph.roles[:ops],
    )


def _grouped(pairs: Pairs, graph: Graph, steps: int | None) -> RankLateness:
    """Shares by group of ranks; ``steps`` are those that were looked at, if not all."""
    group, labels = _groups(graph)
    cause, victim = group[pairs.number // pairs.ranks], group[pairs.number % pairs.ranks]
    share = weighed(cause * len(labels) + victim, pairs.ns, len(labels) ** 2) / int(pairs.ns.sum())
    kept = np.flatnonzero(share >= LEAST)
    return RankLateness(
        labels=labels,
        cause=[int(one) for one in kept // len(labels)],
        victim=[int(one) for one in kept % len(labels)],
        share=[float(one) for one in share[kept]],
        first_steps=steps,
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
    return _blocks(graph.ranks.astype(np.int64))


def _blocks(ranks: Ints) -> tuple[Ints, list[str]]:
    """Blocks of neighbouring ranks."""
    size = -(-len(ranks) // MOST)
    block = np.arange(len(ranks)) // size
    ends = [(int(some[0]), int(some[-1])) for some in np.split(ranks, np.arange(size, len(ranks), size))]
    return block, [f"rank {first}" if first == last else f"ranks {first}–{last}" for first, last in ends]
