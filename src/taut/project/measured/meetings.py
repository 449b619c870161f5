"""Who meets whom in a measured job, and which of these meetings grow when ranks are added.

More ranks are more *replicas*: ranks that hang together by meetings that stay as they are (a tensor-parallel pair, the
stages of a pipeline, a shard group). Meetings of all ranks grow; of the others those across replicas do. Ranks that pass
activations to each other are one replica; of the remaining groups, those whose members lie farthest apart are taken for
data-parallel, unless the caller names others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import UsageError
from taut.core.ids import sums
from taut.core.tables import Verb
from taut.graph import Graph
from taut.replay.data_parallel import joined, stride

HOPS = (Verb.SEND, Verb.RECV)


@dataclass(frozen=True)
class Meeting:
    """The rendezvous of a graph, as far as they grow."""

    grows: Mask
    """Per gate: whether more ranks mean more members."""
    members: Ints
    """Per gate: how many meet, untraced ones included where the group is known."""
    which: Ints
    """Per gate: number of the set of ranks that meets."""
    replica: Ints
    """Per rank (as an index): its replica."""
    replicas: int
    text: tuple[str, ...]
    """What was taken to grow and what to stay, in words."""


def meeting(graph: Graph, apart: int | None = None) -> Meeting:
    """Which gates grow; ``apart`` names the groups that do by how far apart their ranks' numbers are."""
    gates, ranks = graph.gates, len(graph.ranks)
    if len(gates) == 0:
        none = np.zeros(0, dtype=np.int64)
        return Meeting(none.astype(bool), none, none, np.arange(ranks), ranks, ())
    which, sets = _sets(graph)
    hop = np.zeros(len(sets), dtype=bool)
    hop[which[np.isin(gates.verb, HOPS)]] = True
    chain = joined(ranks, [s for s, is_hop in zip(sets, hop, strict=True) if is_hop])
    across = [not h and len(s) > 1 and len(set(chain[s].tolist())) == len(s) for s, h in zip(sets, hop, strict=True)]
    strides = [stride(graph.ranks[s]) for s in sets]
    whole = [len(s) == ranks and not h for s, h in zip(sets, hop, strict=True)]
    partly = [a and not w for a, w in zip(across, whole, strict=True)]
    chosen = _chosen([n for n, p in zip(strides, partly, strict=True) if p], apart)
    grow = np.array([w or (p and n == chosen) for w, p, n in zip(whole, partly, strides, strict=True)])
    kept = [s for s, g in zip(sets, grow, strict=True) if not g]
    replica = joined(ranks, kept)
    members = np.where(gates.expected > 0, gates.expected, gates.members).astype(np.int64)
    text = tuple(sorted({_describe(s, n, g, h) for s, n, g, h in zip(sets, strides, grow, hop, strict=True)}))
    return Meeting(grow[which], members, which, replica, int(replica.max()) + 1, text)


def _sets(graph: Graph) -> tuple[Ints, list[Ints]]:
    """(number of each gate's set of ranks, the sets as indices of ranks)."""
    rows = np.flatnonzero(graph.gate >= 0)
    gate, rank = graph.gate[rows], graph.rank_index[rows]
    # A random mark for each rank: gates with the same members have the same sum of marks.
    mark = np.random.default_rng(0).integers(1, 1 << 62, len(graph.ranks), dtype=np.int64)
    key = sums(gate, mark[rank], len(graph.gates))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(gate, kind="stable")
    begin = np.searchsorted(gate[order], [first, first + 1])
    return which.ravel(), [np.unique(rank[order[a:b]]) for a, b in begin.T]


def _chosen(strides: list[int], apart: int | None) -> int:
    if apart is None:
        return max(strides, default=-1)
    if apart not in strides:
        known = ", ".join(map(str, sorted(set(strides)))) or "none but all ranks"
        raise UsageError(f"no group of this run has ranks {apart} apart; it has {known}")
    return apart


def _describe(members: Ints, apart: int, grows: bool, hop: bool) -> str:
    if hop:
        return "hops between stages stay: replicas grow, stages do not"
    where = f"groups of {len(members)} ranks {apart} apart" if apart else f"groups of {len(members)} ranks"
    return f"{where} {'grow' if grows else 'stay'}"
