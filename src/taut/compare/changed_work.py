"""What changed between two runs: the work of every class on every rank, and what that did to the wall clock.

Work is what a class takes on a rank in a step, waiting taken out. The effect is a replay of the later run with that work
as it was in the earlier one, so that work which nobody waits for has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from taut.core.differences import shifted
from taut.core.trend import corrected
from taut.diagnose.repeats import Repeat
from taut.graph import Graph
from taut.replay.timeline import Change, replay
from taut.result.types import ChangedBy, ChangedWork

FALSE_SHARE = 0.05
"""Of what is listed as changed, at most this share is false (Benjamini–Hochberg)."""
REPLAYED = 24
"""Classes on ranks whose effect is replayed: those whose work changed most. The others have none stated."""

Key = tuple[str, int]
"""A class on a rank."""


def changed(before: Repeat, after: Repeat, graph: Graph) -> tuple[list[ChangedWork], int, ChangedBy]:
    """What changed, the largest effect first; how many were tested; the effect by class, by rank and of all."""
    keys = [key for key in before.rows if key in after.rows]
    tables = [run.work_ns[[run.rows[key] for key in keys]] for run in (before, after)]
    p = shifted(*tables) if keys else None
    if p is None:
        return [], 0, ChangedBy(op_class={}, rank={}, all_wall_ns=None)
    q = np.array(corrected(p.tolist()), dtype=np.float64)
    medians = [np.median(table, axis=1) for table in tables]
    moved = np.abs(medians[1] - medians[0])
    listed = [int(i) for i in np.argsort(-moved, kind="stable") if q[i] <= FALSE_SHARE and moved[i] > 0]
    factor = {keys[i]: float(medians[0][i] / medians[1][i]) for i in listed if medians[1][i] > 0}
    cost = _costs(graph, factor)
    replayed = {keys[i]: cost([keys[i]]) for i in listed[:REPLAYED] if keys[i] in factor}
    listed.sort(key=lambda i: (keys[i] not in replayed, -abs(replayed.get(keys[i], 0))))
    names, ranks = ([*dict.fromkeys(key[part] for key in factor)][:REPLAYED] for part in (0, 1))
    rows = [
        ChangedWork(
            op_class=keys[i][0],
            rank=keys[i][1],
            before_ns=float(medians[0][i]),
            after_ns=float(medians[1][i]),
            p=float(p[i]),
            q=float(q[i]),
            effect_wall_ns=replayed.get(keys[i]),
        )
        for i in listed
    ]
    by = ChangedBy(
        op_class={str(name): cost([key for key in factor if key[0] == name]) for name in names},
        rank={str(rank): cost([key for key in factor if key[1] == rank]) for rank in ranks},
        all_wall_ns=cost(factor),
    )
    return rows, len(keys), by


def _costs(graph: Graph, factor: dict[Key, float]) -> Callable[[Iterable[Key]], int]:
    """A function that says what the changed work of some classes on ranks costs on the wall: negative where it saves."""
    number = {name: i for i, name in enumerate(graph.names)}
    table = np.ones((len(graph.names), len(graph.ranks)))
    place = {int(rank): i for i, rank in enumerate(graph.ranks)}
    wall = replay(graph).wall_ns

    def cost(chosen: Iterable[Key]) -> int:
        table[:] = 1.0
        for key in chosen:
            table[number[key[0]], place[key[1]]] = factor[key]
        scale = table[graph.ops.name, graph.rank_index]
        ops = np.flatnonzero(scale != 1.0)
        value = np.rint(graph.work_ns[ops] * scale[ops]).astype(np.int64)
        return int(wall - replay(graph, [Change(ops, "work", "set", value, "as in the earlier run")]).wall_ns)

    return cost
