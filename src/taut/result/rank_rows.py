"""The table of ranks: where each is, what its time went to, how late it comes; the interesting ones first."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.rank_words import rank_label
from taut.graph import Graph
from taut.result.analysis_verdict import BOUNDS
from taut.result.computed import Computed
from taut.result.types import Bound, RankRow


def rank_rows(a: Computed) -> list[RankRow]:
    """One row a rank: those of findings first, then those that others waited for most, then the latest."""
    g, members, late = a.graph, a.graph.members, lateness(a.graph)
    caused = a.blame.caused_ns
    spent, whole = _spent(a)
    rows = [
        RankRow(
            rank=rank,
            label=rank_label(rank, members),
            host=members.host[i] or None,
            gpu=int(members.gpu[i]) if members.gpu[i] >= 0 else None,
            compute_share=int(spent["compute"][i]) / whole,
            communication_share=int(spent["communication"][i]) / whole,
            copy_share=int(spent["copy"][i]) / whole,
            wait_share=int(spent["synchronisation"][i]) / whole,
            gap_share=int(spent["host"][i]) / whole,
            late_ns=float(late[i]) if np.isfinite(late[i]) else None,
            caused_rank_ns=int(caused[i]),
        )
        for i, rank in enumerate(g.ranks.tolist())
    ]
    found = {rank: turn for turn, rank in reversed(list(enumerate(rank for f in a.findings for rank in f.ranks)))}
    return sorted(rows, key=lambda row: (found.get(row.rank, len(found)), -row.caused_rank_ns, -(row.late_ns or 0), row.rank))


def _spent(a: Computed) -> tuple[dict[Bound, Ints], int]:
    """Time of every rank by what it is bound by, ns, and the wall time; what nothing else claims is the host's."""
    ranks, held = a.graph.ranks, a.ledger.by_rank(a.graph.ranks)
    whole = max(a.ledger.total_rank_ns // len(ranks), 1)
    fates = np.array([one.fate for one in a.ledger.categories])
    kinds: tuple[Bound, ...] = ("compute", "communication", "copy", "synchronisation")
    spent: dict[Bound, Ints] = {one: held[:, np.isin(fates, BOUNDS.get(one, ()))].sum(axis=1) for one in kinds}
    spent["host"] = whole - sum(spent.values(), np.zeros(len(ranks), dtype=np.int64))
    return spent, whole


def lateness(graph: Graph) -> Floats:
    """By how much each rank comes behind the median arrival at the gate where it is latest, in the median step; NaN without."""
    late = lateness_by_step(graph)
    met = np.isfinite(late).any(axis=1)
    out = np.full(len(late), np.nan)
    out[met] = np.nanmedian(late[met], axis=1)
    return out


def lateness_by_step(graph: Graph) -> Floats:
    """The same in every step: ranks × windows, NaN where a rank meets nobody."""
    rows, steps, gates = np.flatnonzero(graph.gate >= 0), len(graph.steps), graph.gates
    late = np.full((len(graph.ranks), steps), -np.inf)
    if len(rows):
        middle = gates.opens_ns - gates.late_ns
        behind = (graph.ops.start_ns[rows] - middle[graph.gate[rows]]).astype(np.float64)
        np.maximum.at(late, (graph.rank_index[rows], graph.window[rows]), behind)
    late[late == -np.inf] = np.nan
    return late
