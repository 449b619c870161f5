"""Pipeline stages and data-parallel indices read off who sends to whom, where the trace does not name them.

In a pipeline every pair of neighbours sends both ways, activations forward and gradients back, and the first message of
a step goes forward. The stage of a rank is its distance from the ranks nobody sends forward to; ranks joined by hops
belong to one data-parallel index. A pattern that is no pipeline (a ring, everybody with everybody) gives no roles.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Indices, Ints
from taut.core.ids import least, numbered
from taut.core.tables import NULL, Table, Verb

MOST_STAGES = 1024
"""No pipeline has more; without a cap a long chain of hops would take the square of its length."""


def infer(ops: Table, members: Table) -> Table:
    """The members with stage and data-parallel index filled in, if hops between ranks form pipelines."""
    if len(members) < 2 or (members.stage >= 0).any():
        return members
    sends = np.flatnonzero((ops.verb == Verb.SEND) & (ops.peer >= 0))
    hops = _forward(ops, sends, members.rank)
    stage = _depth(hops, len(members)) if len(hops) else None
    if stage is None:
        return members
    index = _components(hops, len(members))
    return members.replace(stage=stage, dp_rank=index)


def _forward(ops: Table, sends: Ints, ranks: Indices) -> Ints:
    """Pairs (from, to) of member positions, in the direction of their first message in the first step."""
    if len(sends) == 0:
        return np.zeros((0, 2), dtype=np.int64)
    sends = sends[ops.step[sends] == ops.step[sends].min()]
    source, sink = np.searchsorted(ranks, ops.rank[sends]), np.searchsorted(ranks, ops.peer[sends])
    known = (sink < len(ranks)) & (ranks[np.minimum(sink, len(ranks) - 1)] == ops.peer[sends])
    source, sink, start = source[known], sink[known], ops.start_ns[sends][known]
    pair, pairs = numbered(np.minimum(source, sink), np.maximum(source, sink))
    first = np.flatnonzero(start == least(pair, pairs, start)[pair])
    return np.unique(np.stack([source[first], sink[first]], axis=1), axis=0)


def _depth(hops: Ints, count: int) -> Ints | None:
    """Longest way from a rank without forward predecessor; None where the hops close a circle or do not make stages."""
    # Bellman–Ford for longest paths: each round lets one more hop count.
    depth = np.zeros(count, dtype=np.int64)
    for _ in range(min(count, MOST_STAGES + 1)):
        deeper = depth.copy()
        np.maximum.at(deeper, hops[:, 1], depth[hops[:, 0]] + 1)
        if (deeper == depth).all():
            straight = (depth[hops[:, 1]] == depth[hops[:, 0]] + 1).all()
            linked = np.isin(np.arange(count), hops).all()
            return depth if straight and linked else None
        depth = deeper
    return None


def _components(hops: Ints, count: int) -> Ints:
    """Number of the pipeline each rank belongs to, pipelines in the order of their lowest rank."""
    label = np.arange(count)
    for _ in range(count):
        low = np.minimum(label[hops[:, 0]], label[hops[:, 1]])
        new = label.copy()
        np.minimum.at(new, hops[:, 0], low)
        np.minimum.at(new, hops[:, 1], low)
        new = new[new]  # a label's own label is as good, and halves the way
        if (new == label).all():
            break
        label = new
    return numbered(label)[0] if count else np.full(0, NULL)
