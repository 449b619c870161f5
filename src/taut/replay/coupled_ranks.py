"""Coupling: who is felt by whom, how far away, how a delay travels, and what the critical path does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Ints
from taut.core.tables import NULL
from taut.graph import Graph
from taut.replay.blame import Blame, Pairs
from taut.replay.response import Response, respond
from taut.replay.timeline import Timeline
from taut.replay.turnover import Turnover, turnover
from taut.result import types

LEAST = 0.01
"""A cause is felt by a victim, or across so many gates, from this share on: of what the hardest hit pair has, of all."""
PAIRS, ABSORBERS = 10, 5
"""Rows at most: of the matrix, and of the places where slack absorbs a delay."""
WAITS = 50_000
"""Waits that are walked back to count gates: of more, every so many-th is taken."""
MOST_GATES = 64
"""Causes further away than this are counted as that far."""

Hops = Callable[[Ints, Ints], Ints]
"""Switches between pairs of ranks, arrays in and out; NULL where that is not known."""


class Coupling(Struct, frozen=True, dict=True):
    """How the ranks of a job hold on to each other."""

    graph: Graph
    blamed: Pairs
    """Cause rank × victim rank, rank-ns."""
    reach_gates: int | None
    amplification: float | None
    responses: list[Response]
    turnover: Turnover
    hops: Hops | None

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(cause, victim, rank-ns, hops) of the pairs that are felt, the largest first."""
        cause, victim, caused = self.blamed.above(LEAST)
        top = np.argsort(-caused, kind="stable")
        ranks = self.graph.ranks.astype(np.int64)
        cause, victim = ranks[cause[top]], ranks[victim[top]]
        hops = np.full(len(top), NULL) if self.hops is None else self.hops(cause, victim)
        return cause, victim, caused[top], hops

    def entry(self) -> types.Coupling:
        """Coupling as ``--json`` has it."""
        cause, victim, _, hops = self.pairs
        responses = [response.entry(ABSORBERS) for response in self.responses]
        return types.Coupling(
            reach_ranks=int(np.abs(cause - victim).max()) if len(cause) else None,
            reach_gates=self.reach_gates,
            reach_hops=int(hops.max()) if (hops >= 0).any() else None,
            amplification=self.amplification,
            matrix=[
                types.Felt(cause=int(a), victim=int(b), rank_ns=int(ns), hops=int(h) if h >= 0 else None)
                for a, b, ns, h in zip(*(column[:PAIRS] for column in self.pairs), strict=True)
            ],
            response=replace(responses[0], median_rank=next(iter(responses[1:]), None)) if responses else None,
            turnover=self.turnover.entry(),
        )


def couple(graph: Graph, blame: Blame, observed: Timeline, gap_free: Timeline, hops: Hops | None = None) -> Coupling:
    """Measure the coupling of a blamed graph: delays are put on the rank that is the largest cause, and on the median one."""
    median, caused = int(graph.ranks[len(graph.ranks) // 2]), blame.caused_ns
    cause = int(graph.ranks[caused.argmax()]) if caused.any() else median
    excess = float(np.maximum(blame.excess_at(blame.fault.ops), 0).sum())
    return Coupling(
        graph,
        blame.pairs,
        _reach_gates(graph, blame, observed, gap_free),
        float(blame.fault.ns.sum() / excess) if excess > 0 else None,
        respond(graph, observed, list(dict.fromkeys([cause, median]))) if len(graph.gates) else [],
        turnover(graph, gap_free),
        hops,
    )


def _reach_gates(graph: Graph, blame: Blame, observed: Timeline, gap_free: Timeline) -> int | None:
    """Gates between a cause and the furthest victims that feel it; the gate the victim waits at is the first."""
    from taut.replay.ripples import gates_between

    waits, found = blame.waits, np.zeros(MOST_GATES + 1)
    for amount, timeline, by_gap in ((waits.fault_ns, gap_free, 0), (waits.gap_ns, observed, 1)):
        blamed = np.flatnonzero(amount)
        if len(blamed) == 0:
            continue
        rows = blamed[:: len(blamed) // WAITS + 1]  # shares are wanted, so a regular sample will do
        excess = graph.gap_ns - np.nan_to_num(blame.gap_reference) if by_gap else blame.excess_ns
        found += gates_between(
            waits.op[rows], amount[rows], timeline.bound, timeline.opener, graph.gate, excess, by_gap, MOST_GATES
        )
    felt = np.flatnonzero(found > LEAST * found.sum())
    return int(felt.max()) if len(felt) else None
