"""Two runs of one job as one graph, the baseline's steps before the run's own; and what keeps two runs from being one job.

Ops, gates and steps of both stand in one set of arrays, with the names and groups of the later run, so that whatever asks
what an op took in other steps can ask the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import Scalar, numbered, weighed
from taut.core.scratch import kept
from taut.core.tables import NULL, Kind, Mark, Op, Table
from taut.graph.arrays import Graph

LEAST_SHARE = 0.01
"""A class that holds less than this share of a rank's own work may be missing in one of two runs of a job."""
MOST_STEPS = 0.9
"""Shapes that one run has so often a step at least make it another job if the other has none."""
FIRST = 5
"""Steps with which a run begins: what it meets in may change later."""
REST = " (after)"
"""What the reader calls the rest of an op that it cut at a wait: whether anything is left there is timing, not structure."""


class Joined(Struct, frozen=True):
    """Baseline and run as one graph."""

    graph: Graph
    ops: int
    """Ops of the baseline: they come first."""
    windows: int
    """Steps of the baseline, likewise."""

    @property
    def now(self) -> Mask:
        """Which ops are the later run's."""
        return np.arange(len(self.graph)) >= self.ops


def joined(before: Graph, after: Graph) -> Joined:
    """The graph of both runs; ranks are those of the later run, so they must be the same."""
    names, name_of = _united(before.names, after.names)
    lanes, lane_of = _united(before.trace.lanes, after.trace.lanes)
    groups, group_of = _united_groups(before, after)
    codes = {"name": name_of, "lane": lane_of, "group": group_of}
    columns = {}
    for column, theirs in before.ops.columns.items():
        mine = after.ops.columns[column]
        shift = len(before) * (mine >= 0) if column == "launch" else 0
        columns[column] = _after([codes[column][theirs] if column in codes else theirs, mine + shift])
    trace = replace(
        after.trace,
        names=names,
        lanes=lanes,
        groups=groups,
        marks=Table(Mark, {}, 0),
        group_ranks={**before.trace.group_ranks, **after.trace.group_ranks},
    )
    ops, gates, windows = len(before), int(before.gate.max(initial=NULL)) + 1, len(before.steps)
    graph = replace(
        after,
        trace=trace,
        ops=Table(Op, columns),
        work_ns=_after([before.work_ns, after.work_ns]),
        gap_ns=_after([before.gap_ns, after.gap_ns]),
        lag_ns=_after([before.lag_ns, after.lag_ns]),
        wait_lag_ns=_after([before.wait_lag_ns, after.wait_lag_ns]),
        explained=_after([before.explained, after.explained]),
        steps=_after([before.steps, after.steps]),
        origin_ns=_after([before.origin_ns, after.origin_ns]),
        pred_ptr=_after([before.pred_ptr, after.pred_ptr[1:] + before.pred_ptr[-1]]),
        pred=_after([before.pred, after.pred + ops]),
        join=_shifted(before.join, after.join, before.slots),
        wait=_shifted(before.wait, after.wait, before.slots),
        slots=before.slots + after.slots,
        gate=_shifted(before.gate, after.gate, gates),
        events=_after([before.events, np.where(after.events >= 0, after.events + ops, after.events - ops)]),
        window=_after([before.window, after.window + windows]),
        segment=_after([before.segment, after.segment + int(before.segment.max(initial=-1)) + 1]),
        roles=_after([after.role_of_rank[before.rank_index].astype(after.roles.dtype), after.roles]),
        device=None,
        stored_phases=[*before.phases, *after.phases],
    )
    return Joined(graph, ops, windows)


def _shifted(before: Indices, after: Indices, by: int) -> Indices:
    return _after([before, np.where(after >= 0, after + by, after)])


def _after(parts: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
    """One array after the other, on disk where long ones lie there."""
    return kept(np.concatenate(parts))


def _united(before: Sequence[str], after: Sequence[str]) -> tuple[list[str], Ints]:
    """Words of both, the later run's first, and the place of each of the earlier run's; -1 stays -1."""
    place = {word: i for i, word in reversed(list(enumerate(after)))}
    words = list(after)
    for word in before:
        if word not in place:
            place[word] = len(words)
            words.append(word)
    return words, np.array([*(place[word] for word in before), NULL], dtype=np.int64)


def _united_groups(before: Graph, after: Graph) -> tuple[list[str], Ints]:
    """Process groups of both: the same name and ranks, else the same ranks, whatever they are called."""
    ranks = [{name: tuple(g.trace.group_ranks.get(name, ())) for name in g.trace.groups} for g in (before, after)]
    by_ranks = {some: name for name, some in reversed(ranks[1].items()) if some}
    called = [name if ranks[1].get(name) == some else by_ranks.get(some, name) for name, some in ranks[0].items()]
    return _united(called, after.trace.groups)


def difference(before: Graph, after: Graph) -> str | None:
    """What makes two runs different jobs, in a few words; None where they are the same graph.

    Compared are the ranks, the gates that each of them has in most of its steps (class, bytes, peer), and the classes,
    with their shapes, that hold a share of a rank's own work.
    """
    ranks = [set(g.ranks.tolist()) for g in (before, after)]
    if ranks[0] != ranks[1]:
        if len(ranks[0]) != len(ranks[1]):
            return f"it has {len(ranks[0])} ranks, this run {len(ranks[1])}"
        return f"rank {min(ranks[0] - ranks[1])} is not in this run"
    both = joined(before, after)
    g = both.graph
    met, own = g.gate >= 0, np.isin(g.ops.kind, (Kind.COMPUTE, Kind.COORDINATE))
    return _gates(both, met) or _classes(both, own & ~met)


def _often(both: Joined, rows: Ints, *keys: Indices) -> tuple[Ints, Floats, Floats]:
    """(one row of each combination of keys, how often a step has it in the baseline, and in the run)."""
    ids, count = numbered(*(key[rows] for key in keys))
    one = np.zeros(count, dtype=np.int64)
    one[ids] = rows
    now = rows >= both.ops
    windows = both.windows, len(both.graph.steps) - both.windows
    a, b = (np.bincount(ids[part], minlength=count) / max(n, 1) for part, n in zip((~now, now), windows, strict=True))
    return one, a, b


def _gates(both: Joined, met: Mask) -> str | None:
    g, rows = both.graph, np.flatnonzero(met)
    keys = g.ops.rank, g.ops.name, g.ops.size, g.ops.peer
    one, *often = _often(both, rows, *keys)
    a, b = (np.rint(some).astype(np.int64) for some in often)
    # Ranks that fall out of step meet no more: the job is the one that the run began as.
    ids, count = numbered(*(key[rows] for key in keys))
    first = min(FIRST, len(g.steps) - both.windows)
    begun = (rows >= both.ops) & (g.window[rows] < both.windows + first)
    at_first = np.rint(np.bincount(ids[begun], minlength=count) / first).astype(np.int64)
    wrong = np.flatnonzero((a != b) & (a != at_first))
    if not len(wrong):
        return None
    op, i = int(one[wrong[0]]), wrong[0]
    size = f" of {int(g.ops.size[op]):,} B" if g.ops.size[op] >= 0 else ""
    peer = f" with rank {int(g.ops.peer[op])}" if g.ops.peer[op] >= 0 else ""
    return f"rank {int(g.ops.rank[op])} meets in {g.names[g.ops.name[op]]}{size}{peer} {a[i]} times a step, in this run {b[i]}"


def _classes(both: Joined, own: Mask) -> str | None:
    g, rows = both.graph, np.flatnonzero(own)
    if not len(rows):
        return None
    large = _large(both, rows)
    rows = rows[large]
    rest = np.array([name.endswith(REST) for name in g.names], dtype=bool)
    rows = rows[~rest[g.ops.name[rows]]]
    if not len(rows):
        return None
    ids, count = numbered(g.ops.rank[rows], g.ops.name[rows])
    one = np.zeros(count, dtype=np.int64)
    one[ids] = rows
    there = [np.bincount(ids[part], minlength=count) > 0 for part in (rows < both.ops, rows >= both.ops)]
    alone = np.flatnonzero(there[0] != there[1])
    if len(alone):
        op = int(one[alone[0]])
        where = "does not have" if there[0][alone[0]] else "has, and it does not"
        return f"rank {int(g.ops.rank[op])} computes {g.names[g.ops.name[op]]}, which this run {where}"
    shaped = rows[g.ops.size[rows] >= 0]
    if not len(shaped):
        return None
    one, a, b = _often(both, shaped, g.ops.rank, g.ops.name, g.shape)
    # Calls of a host that take next to no time are not kept in every step: what is seldom in one run may be in none of another.
    wrong = np.flatnonzero(((a >= MOST_STEPS) & (b == 0)) | ((b >= MOST_STEPS) & (a == 0)))
    if not len(wrong):
        return None
    op = int(one[wrong[0]])
    which = "this run" if b[wrong[0]] else "the baseline"
    return f"{g.names[g.ops.name[op]]} on rank {int(g.ops.rank[op])} has a size of {int(g.shape[op]):,} in {which} only"


def _large(both: Joined, rows: Ints) -> Mask:
    """Which of the rows are of a class that holds some share of its rank's own work, in either run."""
    g = both.graph
    run = (rows >= both.ops).astype(np.int64)
    rank, ranks = numbered(run, g.rank_index[rows])
    cell, cells = numbered(run, g.rank_index[rows], g.ops.name[rows])
    work: Floats = g.work_ns[rows].astype(np.float64)
    share = weighed(cell, work, cells)[cell] / np.maximum(weighed(rank, work, ranks)[rank], 1.0)
    kin, count = numbered(g.rank_index[rows], g.ops.name[rows])
    most = np.zeros(count)
    np.maximum.at(most, kin, share)
    return np.asarray(most[kin] >= LEAST_SHARE)


__all__ = ["Joined", "difference", "joined"]
