"""How far every rank strays from its peers in every step (its residuals), and what these cost the whole job.

A rank's own ops (what meets nobody) are compared with what they usually take on that rank and with what its role peers take
in the same step: a rank that is always slower does not stray, nor does one in a step in which everybody is slower. What
remains is variation from step to step, which a rendezvous turns into waiting. Cost comes from replay: the same run with every
own op where its rank and its step put it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Floats, Ints, Mask
from taut.core.group_kernels import group_sort, table_sums
from taut.core.ids import coded
from taut.core.tables import Kind
from taut.diagnose.class_medians import medians_of
from taut.diagnose.finding import Evidence, Finding
from taut.graph import Graph
from taut.replay.cell_medians import from_medians
from taut.replay.exposed import copies
from taut.replay.mixtures import grid
from taut.replay.timeline import changed, rank_waits


class Residuals(Struct, frozen=True):
    """Residuals of a run with its findings mended."""

    residual_ns: Floats
    """Ranks × windows: how much longer the busiest lane of a rank took than its rank and its step explain, ns."""
    cost_ns: Floats
    """Per window: what the wall clock would gain without residuals, beyond what ranks stray on average: that they would be late
    by if nobody waited for anybody; ns."""
    mean_ns: Floats
    """Per window: what ranks stray on average, ns."""
    transfer_ns: Floats
    """Per window: what it would gain besides if no transfer took longer than is usual for it, ns."""
    wall_ns: Floats
    """Per window, findings mended, ns."""
    work_ns: Ints
    """Per op: its work without residuals, ns."""
    gap_ns: Ints
    """Per op: the gap before it without residuals, ns."""
    slack_ns: Floats
    """Per rank: what it waits in a window without residuals, and may stray by before anybody waits for it, ns."""


def own_ops(graph: Graph) -> Mask:
    """Ops that are a rank's own: no gate, no transfer between ranks."""
    met = np.isin(graph.ops.kind, (Kind.COMMUNICATE, Kind.SYNCHRONISE))
    return np.asarray((~met | copies(graph)) & (graph.gate < 0))


def usual_of_rank(graph: Graph, values: Ints) -> Floats:
    """Median of a value over the run, for the same op on the same rank."""
    return medians_of(values, graph.ops.rank, graph.ops.name, graph.ops.size, graph.place)


def residuals(evidence: Evidence, findings: Sequence[Finding]) -> Residuals:
    """Residuals with these findings mended."""
    g, own, classes = evidence.graph, own_ops(evidence.graph), evidence.slowdowns.classes
    work, gap, _, _ = changed(g, [change for finding in findings for change in finding.changes])
    of_rank = group_sort(*classes)
    of_step = group_sort(*coded(g.window, g.roles, g.ops.name, g.ops.size, g.place))
    stray = _op_residuals(work, own, of_rank, of_step)
    # Where there are no gaps, none strays.
    apart_gap = from_medians(from_medians(gap, *of_rank), *of_step) if gap.any() else None
    del of_rank, of_step
    before = [None] * 3 if apart_gap is None else [gap - apart_gap, apart_gap, None]
    # Columns: as it was, without residuals, without longer transfers too.
    parts = (lambda: work - stray, lambda: np.where(own, stray, 0.0), lambda: np.where(own, 0.0, stray))
    prepared = grid(evidence.batch, before, (part() for part in parts))
    del before
    was, without, quick = prepared.walls(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])).T
    del prepared
    stray[~own] = 0.0
    even = np.maximum(np.rint(work - stray), 0).astype(np.int64)
    even_gap = gap if apart_gap is None else np.maximum(np.rint(gap - apart_gap), 0).astype(np.int64)
    by_rank = _by_rank(g, stray if apart_gap is None else stray + apart_gap)
    mean = np.clip(by_rank.mean(axis=0), 0.0, np.maximum(was - without, 0.0))
    return Residuals(
        residual_ns=by_rank,
        cost_ns=was - without - mean,
        mean_ns=mean,
        transfer_ns=without - quick,
        wall_ns=was,
        work_ns=even,
        gap_ns=even_gap,
        slack_ns=rank_waits(g, even, even_gap).astype(np.float64) / max(len(g.steps), 1),
    )


def _op_residuals(work: Ints, own: Mask, of_rank: tuple[Codes, Ints], of_step: tuple[Codes, Ints]) -> Floats:
    """Per op: of own ops how much longer they took than their rank and their step explain, of others than their rank does.

    What a step explains is what the role peers share in it; ops are given in the groups of both.
    """
    deviation = from_medians(work, *of_rank)
    apart = from_medians(deviation, *of_step)
    np.maximum(deviation, 0.0, out=deviation)
    np.copyto(apart, deviation, where=~own)
    return apart


def _by_rank(graph: Graph, apart: Floats) -> Floats:
    """Ranks × windows: the sum over the lane that strays most (of a late launch the device is late as well)."""
    shape = len(graph.ranks), len(graph.steps)
    lane, count = coded(graph.rank_index, graph.ops.lane)
    table = table_sums(lane, count, graph.window, shape[1], apart).reshape(count, -1)
    out = np.full(shape, -np.inf)
    rank_of = np.zeros(count, dtype=np.int64)
    rank_of[lane] = graph.rank_index
    np.maximum.at(out, rank_of, table)
    return out
