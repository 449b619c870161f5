"""The same job, two answers: its parts as a dashboard shows them, and its operator graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import positions, weighed
from taut.core.rank_words import rank_label, short_host
from taut.core.tables import Table
from taut.graph import Graph
from taut.ledger.charge import FATES
from taut.ledger.device_use import device_mask
from taut.replay.timeline import completion, window_times
from taut.result.types import AnalysisResult, Component
from taut.result.view_types import Overview, Structure, StructurePart
from taut.stored import Run
from taut.views.cells import cells_of
from taut.views.headlines import in_order, stopped
from taut.views.lateness import lateness_of
from taut.views.operator_view import condensed

PARTS = 64
"""Parts that are shown one by one."""


def structure(run: Run, seen: Overview | None = None) -> Structure:
    """The parts of a run, its operator graph, and where a delay is put at first; ``seen`` is its overview, where known."""
    graph, rank = run.graph, _delayed_rank(run)
    cells = cells_of(run, ("rank", "step", "fate", "name", "rank_ns"))
    return Structure(
        parts=parts(run, cells),
        view=condensed(graph, cells),
        waits=lateness_of(run) if seen is None else seen.waits,
        ranks=[rank_label(int(rank), graph.members) for rank in graph.ranks],
        steps=[int(step) for step in graph.steps],
        stopped=stopped(run.result),
        delayed_rank=rank,
        delayed_step=_delayed_step(graph, rank),
    )


def parts(run: Run, cells: Table) -> list[StructurePart]:
    """Hosts where they hold several ranks, else accelerators; those that hang first, then those that produce least."""
    graph, result = run.graph, run.result
    of, labels = _grouped(graph)
    busy, productive = busy_shares(graph), productive_shares(graph, cells)
    score = np.array([productive[of == k].mean() for k in range(len(labels))])
    hangs = np.isin(np.arange(len(labels)), of[np.isin(graph.ranks, stopped(result))])
    order = np.lexsort((score, ~hangs))
    shown = [(labels[k], np.flatnonzero(of == k)) for k in order[:PARTS]]
    if len(order) > PARTS:
        shown.append((f"{len(order) - PARTS:,} others", np.flatnonzero(np.isin(of, order[PARTS:]))))
    return [_part(label, rows, graph, result, busy, productive) for label, rows in shown]


def _part(label: str, rows: Ints, graph: Graph, result: AnalysisResult, busy: Floats, productive: Floats) -> StructurePart:
    ranks = [int(rank) for rank in graph.ranks[rows]]
    metrics = _metrics(result.components, set(ranks), {str(host) for host in graph.members.host[rows]} - {""})
    told = [one.inside for one in metrics if one.inside is not None]
    return StructurePart(
        label=label,
        ranks=ranks,
        busy_share=float(busy[rows].mean()),
        productive_share=float(productive[rows].mean()),
        metrics=metrics,
        inside=all(told) if told else None,
        stopped=not set(stopped(result)).isdisjoint(ranks),
    )


def _metrics(components: Sequence[Component], ranks: set[int], hosts: set[str]) -> list[Component]:
    """Metrics of some ranks, and of their hosts."""
    return [one for one in components if one.rank in ranks or (one.rank is None and one.component in hosts)]


def _grouped(graph: Graph) -> tuple[Ints, list[str]]:
    """(part of each rank in order, names of the parts)."""
    hosts, of = np.unique(graph.members.host.astype(str), return_inverse=True)
    if 2 <= len(hosts) < len(graph.ranks) and all(hosts):
        return of, [short_host(str(host)) for host in hosts]
    return np.arange(len(graph.ranks)), [rank_label(int(rank), graph.members) for rank in graph.ranks]


def busy_shares(graph: Graph) -> Floats:
    """Of the wall, the time of each rank under any kernel or copy, waits included; without an accelerator, under any op."""
    on_device = device_mask(graph)
    rows = np.flatnonzero(on_device) if on_device.any() else np.arange(len(graph))
    ops, rank = graph.ops, graph.rank_index
    rows = rows[np.argsort(rank[rows], kind="stable")]
    low = int(ops.start_ns.min(initial=0))
    longest = int(ops.end_ns.max(initial=0)) - low + 1
    # Segments have a time of their own: one after the other.
    at = graph.segment[graph.window[rows]].astype(np.int64) * longest - low
    covered = np.zeros(len(graph.ranks))
    begins = np.searchsorted(rank[rows], np.arange(len(graph.ranks) + 1))
    for k, (first, last) in enumerate(pairwise(begins)):
        some = rows[first:last]
        covered[k] = _covered(ops.start_ns[some] + at[first:last], ops.end_ns[some] + at[first:last])
    wall = int(window_times(graph, completion(graph, ops.end_ns)).sum())
    return np.minimum(covered / max(wall, 1), 1.0)


def _covered(start: Ints, end: Ints) -> int:
    """Time under any of some intervals."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([start[:1], end[:-1]])
    return int(np.maximum(end - np.maximum(start, before), 0).sum())


def productive_shares(graph: Graph, cells: Table) -> Floats:
    """Of the rank time of each rank that was observed, what was productive."""
    count, fates = len(graph.ranks), len(FATES)
    code = positions(graph.ranks, cells.rank).astype(np.int64) * fates + cells.fate
    held = weighed(code, cells.rank_ns, count * fates).reshape(count, fates)
    seen = held.sum(axis=1) - held[:, FATES.index("unobserved")]
    return np.asarray(held[:, FATES.index("productive")] / np.maximum(seen, 1))


def _delayed_rank(run: Run) -> int:
    """The first rank of the first finding that has one, else the one that waits least; one that has ops."""
    graph = run.graph
    named = [rank for finding in in_order(run.result) for rank in finding.ranks]
    least = [row.rank for row in sorted(run.result.ranks or [], key=lambda row: row.wait_share)]
    works = {int(rank) for rank in graph.ranks[np.unique(graph.rank_index)]}
    return next((rank for rank in [*named, *least] if rank in works), min(works))


def _delayed_step(graph: Graph, rank: int) -> int:
    """The middle one of the steps in which a rank is the last at most of the late gates: there a delay travels furthest."""
    gates = graph.gates
    at = np.searchsorted(graph.steps, gates.step)
    late = np.maximum(gates.late_ns, 0)
    share = weighed(at, np.where(gates.last_rank == rank, late, 0), len(graph.steps))
    share = share / np.maximum(weighed(at, late, len(graph.steps)), 1)
    has = np.isin(np.arange(len(graph.steps)), graph.window[graph.ops.rank == rank])
    best = np.flatnonzero(has & (share >= max(float(share.max(initial=0.0)) / 2, 0.5)))
    best = best if len(best) else np.flatnonzero(has)
    return int(graph.steps[best[len(best) // 2]])
