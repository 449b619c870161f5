"""The transfer that takes most of a run: its size, who takes part, and how long it takes without waiting."""

from __future__ import annotations

import numpy as np

from taut.core.ids import numbered, weighed
from taut.graph import Graph
from taut.result.brief_types import Transfer


def transfer_of(graph: Graph) -> Transfer | None:
    """Of gates with known bytes the class and size that takes the most rank time; None where there are none."""
    gates = graph.gates
    known = np.flatnonzero(gates.size > 0)
    ops = np.flatnonzero(graph.gate >= 0)
    if not len(known) or not len(ops):
        return None
    taken = weighed(graph.gate[ops], graph.work_ns[ops].astype(np.float64), len(gates))
    key, count = numbered(gates.name[known], gates.size[known])
    most = int(weighed(key, taken[known], count).argmax())
    mine = known[key == most]
    each = taken[mine] / np.maximum(gates.members[mine], 1)
    first = int(mine[0])
    return Transfer(
        name=graph.trace.names[int(gates.name[first])],
        size_bytes=int(gates.size[first]),
        members=int(np.median(gates.members[mine])),
        median_ns=float(np.median(each)),
    )
