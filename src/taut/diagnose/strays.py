"""How far every rank strays from its peers in every step, and what the strays cost the whole job.

A rank's own ops (what meets nobody) are compared with what they usually take on that rank and with what its role peers take
in the same step: a rank that is always slower does not stray, nor does one in a step in which everybody is slower. What
remains is variation from step to step, which a rendezvous turns into waiting. Cost comes from replay: the same run with every
own op where its rank and its step put it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.tables import Kind
from taut.diagnose.class_medians import medians_of
from taut.diagnose.finding import Evidence, Finding
from taut.diagnose.job_regime import mended
from taut.graph import Graph
from taut.replay.exposed import copies
from taut.replay.mixtures import grid
from taut.replay.timeline import replay


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
    g, batch = evidence.graph, evidence.batch
    _, work, gap = mended(g, evidence.blame, findings)
    own = own_ops(g)
    deviation = work - usual_of_rank(g, work)
    longer = np.maximum(deviation, 0.0)
    longer[own] = 0.0
    apart = _apart(g, deviation)
    apart[~own] = 0.0
    del deviation
    # Where there are no gaps, none strays.
    apart_gap = _apart(g, gap - usual_of_rank(g, gap)) if gap.any() else np.zeros(len(g))
    # Columns: as it was, without strays, without longer transfers too.
    prepared = grid(batch, [gap - apart_gap, apart_gap, None], [work - apart - longer, apart, longer])
    del longer
    was, without, quick = prepared.walls(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])).T
    even = np.maximum(np.rint(work - apart), 0).astype(np.int64)
    even_gap = np.maximum(np.rint(gap - apart_gap), 0).astype(np.int64) if gap.any() else gap
    by_rank = _by_rank(g, apart + apart_gap)
    mean = np.clip(by_rank.mean(axis=0), 0.0, np.maximum(was - without, 0.0))
    return Strays(
        stray_ns=by_rank,
        cost_ns=was - without - mean,
        mean_ns=mean,
        transfer_ns=without - quick,
        wall_ns=was,
        work_ns=even,
        gap_ns=even_gap,
        slack_ns=_slack(g, even, even_gap),
    )


def _slack(graph: Graph, work: Ints, gap: Ints) -> Floats:
    """Mean wait of every rank in a window with this work and these gaps, ns."""
    even = replay(replace(graph, work_ns=work, gap_ns=gap))
    waits = weighed(graph.rank_index, even.wait_ns, len(graph.ranks))
    return waits / max(len(graph.steps), 1)


def _apart(graph: Graph, deviation: Floats) -> Floats:
    """What of deviations the role peers do not share in the same step."""
    return deviation - medians_of(deviation, graph.window, graph.roles, graph.ops.name, graph.ops.size, graph.place)


def _by_rank(graph: Graph, apart: Floats) -> Floats:
    """Ranks × windows: the sum over the lane that strays most (of a late launch the device is late as well)."""
    shape = len(graph.ranks), len(graph.steps)
    lane, count = numbered(graph.rank_index, graph.ops.lane)
    table = weighed(lane * shape[1] + graph.window, apart, count * shape[1]).reshape(count, -1)
    out = np.full(shape, -np.inf)
    rank_of = np.zeros(count, dtype=np.int64)
    rank_of[lane] = graph.rank_index
    np.maximum.at(out, rank_of, table)
    return out
