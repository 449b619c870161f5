"""Ring collectives: who ends late, and what the ring would be without a slow link.

Every chunk of a ring crosses every link, in an all-reduce 2(N−1) times and in the one-way collectives N−1 times, and the
receiver of a slow link ends one chunk later than the others. So the lateness of that receiver is the price of one
crossing, and the whole gate lost that many times as much: a reference that needs neither a baseline nor a fabric file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.graph import Graph
from taut.tables import Verb

RING = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
LEAST = 20
"""Without its slow link a transfer keeps at least one part in this many of its time: a chunk is an estimate."""


@dataclass(frozen=True)
class Ring:
    """Ops of ring collectives with at least three members, and how much later than the first each of them ended."""

    rows: Any
    late_ns: Any
    least_ns: Any
    """Per gate: the shortest transfer among its members."""
    members: Any


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


def without(graph: Graph, rings: Ring, slow: Any) -> Any:
    """Work of every op if the links into the ``slow`` receivers (mask over rings.rows) were like the others, ns."""
    gate = graph.gate[rings.rows]
    chunk = np.zeros(len(rings.members), dtype=np.int64)
    np.maximum.at(chunk, gate[slow], rings.late_ns[slow])
    hops = (rings.members - 1) * np.where(graph.gates.verb == Verb.ALL_REDUCE, 2, 1)
    common = np.maximum(rings.least_ns - (hops - 1) * chunk, rings.least_ns // LEAST)
    work = graph.work_ns.copy()
    work[rings.rows] = common[gate] + np.where(slow, 0, rings.late_ns)
    return work
