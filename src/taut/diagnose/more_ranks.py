"""What more ranks at a rendezvous would cost: the last of many arrives later than the last of few.

Arrivals stray around where the references put them. Residuals of all gates of a class, pooled over the run, are what a
further rank would bring; the expected largest of n of them is by how much the last of n arrives late.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered, weighed
from taut.graph import Graph
from taut.graph.gate_matching import EVERYBODY

POOL = 20_000
"""Residuals of a class that tell enough; of more, every n-th is taken."""
TAIL = 4
"""Maxima of more than 1/TAIL of the pool are beyond it: from there on they grow as those of a normal distribution."""


class Meetings(Struct, frozen=True):
    """The ops that take part in a full rendezvous."""

    rows: Ints
    """Their ops."""
    gate: Ints
    """Dense number of each op's gate."""
    members: Ints
    """Per gate."""
    kind: Ints
    """Per gate: class of gates that may be pooled."""


def meetings(graph: Graph) -> Meetings | None:
    """The full rendezvous of a graph, None if it has none of at least two members."""
    rows = np.flatnonzero((graph.gate >= 0) & np.isin(graph.ops.verb, EVERYBODY) & (graph.wait >= 0) & (graph.join >= 0))
    if len(rows) == 0:
        return None
    gate, gates = numbered(graph.gate[rows])
    members = np.bincount(gate, minlength=gates)
    first = np.zeros(gates, dtype=np.int64)
    first[gate] = rows
    kind, _ = numbered(graph.ops.name[first], graph.ops.size[first], members)
    return Meetings(rows, gate, members, kind) if members.max() > 1 else None


def latest(m: Meetings, residual_ns: Floats, factors: tuple[float, ...]) -> Floats:
    """How late the last of a gate's members is expected, with ``factor`` times as many of them: ops × factors, ns.

    ``residual_ns`` is how much later than at reference each op arrived. What a gate's members have in common is taken out;
    few members hide part of the spread in that, which the factor √(n / (n − 1)) restores.
    """
    few = np.maximum(m.members, 2)
    common = weighed(m.gate, residual_ns) / m.members
    apart = (residual_ns - common[m.gate]) * np.sqrt(few / (few - 1))[m.gate]
    out = np.zeros((int(m.kind.max()) + 1, len(factors)))
    order = np.argsort(m.kind[m.gate], kind="stable")
    begins = np.searchsorted(m.kind[m.gate][order], np.arange(len(out) + 1))
    for k in range(len(out)):
        mine = order[begins[k] : begins[k + 1]]
        size = int(m.members[m.gate[mine[0]]])
        if size > 1:
            pool = np.sort(apart[mine[:: -(-len(mine) // POOL)]])
            out[k] = [largest(pool, factor * size) for factor in factors]
    return out[m.kind][m.gate]


def largest(pool: Floats, n: float) -> float:
    """Expected largest of n draws from a sorted pool."""
    size = len(pool)
    inside = min(n, max(size / TAIL, 2.0))
    # The largest of n draws is among the first k of the sorted pool with chance (k ÷ size)ⁿ.
    upto = (np.arange(size + 1) / size) ** inside
    value = float(pool @ np.diff(upto))
    return max(value, 0.0) * (_score(n) / _score(inside) if n > inside else 1.0)


def _score(n: float) -> float:
    """Expected largest of n standard normal draws (Blom)."""
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))
