"""How far every rank strays from its peers in every step, and what the strays cost the whole job.

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


class Strays(Struct, frozen=True):
    """Strays of a run with its findings mended."""

    stray_ns: Floats
    """Ranks × windows: how much longer the busiest lane of a rank took than its rank and its step explain, ns."""
    cost_ns: Floats
    """Per window: what the wall clock would gain without strays, beyond what ranks stray on average: that they would be late by
    if nobody waited for anybody; ns."""
    mean_ns: Floats
    """Per window: what ranks stray on average, ns."""
    transfer_ns: Floats
    """Per window: what it would gain besides if no transfer took longer than is usual for it, ns."""
    wall_ns: Floats
    """Per window, findings mended, ns."""
    work_ns: Ints
    """Per op: its work without strays, ns."""
    gap_ns: Ints
    """Per op: the gap before it without strays, ns."""
    slack_ns: Floats
    """Per rank: what it waits in a window without strays, and may stray by before anybody waits for it, ns."""


def own_ops(graph: Graph) -> Mask:
    """Ops that are a rank's own: no gate, no transfer between ranks."""
    met = np.isin(graph.ops.kind, (Kind.COMMUNICATE, Kind.SYNCHRONISE))
    return np.asarray((~met | copies(graph)) & (graph.gate < 0))


def usual_of_rank(graph: Graph, values: Ints) -> Floats:
    """Median of a value over the run, for the same op on the same rank."""
    return medians_of(values, graph.ops.rank, graph.ops.name, graph.ops.size, graph.place)


def strays(evidence: Evidence, findings: Sequence[Finding]) -> Strays:
    """Strays with these findings mended."""
    g, own, classes = evidence.graph, own_ops(evidence.graph), evidence.slowdowns.classes
    work, gap, _, _ = changed(g, [change for finding in findings for change in finding.changes])
    stray = _stray(g, work, own, classes)
    # Where there are no gaps, none strays.
    apart_gap = _apart(g, from_medians(gap, *group_sort(*classes))) if gap.any() else None
    before = [None] * 3 if apart_gap is None else [gap - apart_gap, apart_gap, None]
    # Columns: as it was, without strays, without longer transfers too.
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
    return Strays(
        stray_ns=by_rank,
        cost_ns=was - without - mean,
        mean_ns=mean,
        transfer_ns=without - quick,
        wall_ns=was,
        work_ns=even,
        gap_ns=even_gap,
        slack_ns=rank_waits(g, even, even_gap).astype(np.float64) / max(len(g.steps), 1),
    )


def _stray(graph: Graph, work: Ints, own: Mask, classes: tuple[Codes, int]) -> Floats:
    """Per op: of own ops how much longer they took than their rank and their step explain, of others than their rank does."""
    deviation = from_medians(work, *group_sort(*classes))
    apart = _apart(graph, deviation)
    np.maximum(deviation, 0.0, out=deviation)
    np.copyto(apart, deviation, where=~own)
    return apart


def _apart(graph: Graph, deviation: Floats) -> Floats:
    """What of deviations the role peers do not share in the same step."""
    step = coded(graph.window, graph.roles, graph.ops.name, graph.ops.size, graph.place)
    return from_medians(deviation, *group_sort(*step))


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
