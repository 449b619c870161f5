"""Coupling: who is felt by whom, how far away, how a delay travels, and what the critical path does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.response import Response, respond
from taut.replay.timeline import Timeline
from taut.replay.turnover import Turnover, turnover

LEAST = 0.01
"""A cause is felt by a victim, or across so many gates, from this share of all blamed wait on."""
PAIRS, ABSORBERS = 10, 5
"""Rows at most: of the matrix, and of the places where slack absorbs a delay."""
WAITS = 50_000
"""Waits that are walked back to count gates: of more, every so many-th is taken."""
MOST_GATES = 64
"""Causes further away than this are counted as that far."""

Hops = Callable[[int, int], int | None]
"""Switches between two ranks; None where that is not known."""


@dataclass(frozen=True)
class Coupling:
    """How the ranks of a job hold on to each other."""

    graph: Graph
    matrix: Any
    """Cause rank × victim rank, rank-ns."""
    reach_gates: int | None
    amplification: float | None
    responses: list[Response]
    turnover: Turnover
    hops: Hops | None

    @property
    def pairs(self) -> list[tuple[int, int, int]]:
        """(cause, victim, rank-ns) that are felt, the largest first."""
        cause, victim = np.nonzero(self.matrix > LEAST * self.matrix.sum())
        caused = self.matrix[cause, victim]
        ranks = self.graph.ranks
        top = np.argsort(-caused, kind="stable")
        return [(int(ranks[cause[i]]), int(ranks[victim[i]]), int(caused[i])) for i in top]

    def entry(self) -> dict[str, Any]:
        """Coupling in the words of ``--json``."""
        pairs, between = self.pairs, self.hops or (lambda a, b: None)
        hops = [between(a, b) for a, b, _ in pairs]
        rows = [
            {"cause": a, "victim": b, "rank_ns": ns, "hops": h}
            for (a, b, ns), h in zip(pairs[:PAIRS], hops[:PAIRS], strict=True)
        ]
        first, *rest = [response.entry(ABSORBERS) for response in self.responses] or [None]
        return {
            "reach_ranks": max((abs(a - b) for a, b, _ in pairs), default=0) if self.matrix.any() else None,
            "reach_gates": self.reach_gates,
            "reach_hops": max((h for h in hops if h is not None), default=None),
            "amplification": self.amplification,
            "matrix": rows,
            "response": {**first, "median_rank": rest[0] if rest else None} if first else None,
            "turnover": self.turnover.entry(),
        }


def couple(graph: Graph, blame: Blame, observed: Timeline, gap_free: Timeline, hops: Hops | None = None) -> Coupling:
    """Measure the coupling of a blamed graph: delays are put on the rank that is the largest cause, and on the median one."""
    median, caused = int(graph.ranks[len(graph.ranks) // 2]), blame.matrix.sum(axis=1)
    cause = int(graph.ranks[caused.argmax()]) if caused.any() else median
    excess = float(np.maximum(blame.excess_ns, 0)[blame.fault_ns > 0].sum())
    return Coupling(
        graph, blame.matrix, _reach_gates(graph, blame, observed, gap_free),
        float(blame.fault_ns.sum() / excess) if excess > 0 else None,
        respond(graph, observed, list(dict.fromkeys([cause, median]))) if len(graph.ranks) > 1 else [],
        turnover(graph, gap_free), hops,
    )  # fmt: skip


def _reach_gates(graph: Graph, blame: Blame, observed: Timeline, gap_free: Timeline) -> int | None:
    """Gates between a cause and the furthest victims that feel it; the gate the victim waits at is the first."""
    from taut.replay.ripples import gates_between

    waits, none = blame.waits, np.zeros(len(graph))
    late = np.maximum(graph.gap_ns - np.nan_to_num(blame.gap_reference), 0.0)
    found = np.zeros(MOST_GATES + 1)
    for amount, timeline, work, gap in (
        (waits.fault_ns, gap_free, np.maximum(blame.excess_ns, 0.0), none),
        (waits.gap_ns, observed, none, late),
    ):
        blamed = np.flatnonzero(amount)
        rows = blamed[:: len(blamed) // WAITS + 1]
        found += gates_between(
            waits.op[rows], amount[rows], timeline.bound, timeline.opener, graph.gate, work, gap, MOST_GATES
        )
    felt = np.flatnonzero(found > LEAST * found.sum())
    return int(felt.max()) if len(felt) else None
