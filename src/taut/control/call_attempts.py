"""Attempts as the trace itself tells them: the ops of each call, on whichever rank, and of whatever it called in turn.

Only where a trace says what launched every op (spans). A lane holds one task after the other; a task begins with the op that
another one launched. An attempt is the task that its caller launched when it was made, or, where the caller did it itself,
the caller's ops of its class in that time. Two calls of one caller at the same moment cannot be told apart: neither is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.ids import numbered
from taut.core.tables import NULL
from taut.graph import Graph


@dataclass(frozen=True)
class Calls:
    """Attempts, as rows of the actions: in which segment and on which rank each was made, and from when to when, ns."""

    rows: Ints
    segment: Ints
    rank: Ints
    begin_ns: Ints
    end_ns: Ints

    def __getitem__(self, some: Mask) -> Calls:
        return Calls(self.rows[some], self.segment[some], self.rank[some], self.begin_ns[some], self.end_ns[some])


def attempt_of(graph: Graph, rows: Ints, segment: Ints, begin_ns: Ints, end_ns: Ints) -> Ints:
    """Of each op the attempt (one of ``rows``) that it belongs to, -1 for none; the arrays have one element for each row."""
    if not len(rows) or not graph.trace.waits_recorded:
        return np.full(len(graph), NULL, dtype=np.int64)
    calls = Calls(rows, segment, graph.trace.actions.rank[rows], begin_ns, end_ns)
    task, caller, launch = _tasks(graph)
    taken = _launched(graph, caller, launch, calls)
    out = taken[task]
    _inline(graph, calls[~np.isin(rows, taken)], out)
    return out


def _tasks(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """The task of every op, and of every task the task that launched it and the op that did; -1 for none."""
    ops = graph.ops
    lane, _ = numbered(graph.segment[graph.window], ops.rank, ops.lane)
    order = np.lexsort((ops.start_ns, lane))
    begins = np.concatenate([[True], np.diff(lane[order]) != 0]) | (ops.launch[order] >= 0)
    task = np.empty(len(ops), dtype=np.int64)
    task[order] = np.cumsum(begins) - 1
    launch = ops.launch[order[begins]].astype(np.int64)
    return task, np.where(launch >= 0, task[launch], NULL), launch


def _launched(graph: Graph, caller: Ints, launch: Ints, calls: Calls) -> Ints:
    """Of each task the attempt that it is, or lies below; -1 for none."""
    known = np.flatnonzero(launch >= 0)
    by = launch[known]
    # A launch and an attempt are the same call if segment, rank and begin agree, and no other has the same three.
    made = np.stack([calls.segment, calls.rank, calls.begin_ns], axis=1)
    launched = np.stack([graph.segment[graph.window[by]], graph.ops.rank[by], graph.ops.start_ns[by]], axis=1)
    number = np.unique(np.concatenate([made, launched]), axis=0, return_inverse=True)[1].ravel()
    mine, theirs = np.split(number, [len(calls.rows)])
    row = np.full(int(number.max()) + 1, NULL, dtype=np.int64)
    row[mine] = calls.rows
    row[(np.bincount(theirs, minlength=len(row)) != 1) | (np.bincount(mine, minlength=len(row)) != 1)] = NULL
    taken = np.full(len(launch) + 1, NULL, dtype=np.int64)
    taken[known] = row[theirs]
    up = np.append(caller, NULL)
    # Pointer jumping: each round doubles how many callers above a task are asked.
    for _ in range(len(launch).bit_length()):
        taken, up = np.where(taken >= 0, taken, taken[up]), np.where(up >= 0, up[up], NULL)
    return taken[:-1]


def _inline(graph: Graph, calls: Calls, out: Ints) -> None:
    """Attempts that are no calls of others: ops of the caller of that class in that time."""
    ops, names = graph.ops, {name: i for i, name in enumerate(graph.names)}
    cell, _ = numbered(graph.segment[graph.window], ops.rank, ops.name)
    order = np.lexsort((ops.start_ns, cell))
    place = {}
    for begin in np.flatnonzero(np.concatenate([[True], np.diff(cell[order]) != 0])).tolist():
        op = order[begin]
        place[int(graph.segment[graph.window[op]]), int(ops.rank[op]), int(ops.name[op])] = begin
    ends = np.searchsorted(cell[order], cell[order], side="right")
    for k, row in enumerate(calls.rows.tolist()):
        name = names.get(graph.trace.actions.target[row], NULL)
        first = place.get((int(calls.segment[k]), int(calls.rank[k]), name))
        if first is None:
            continue
        some = order[first : ends[first]]
        some = some[slice(*np.searchsorted(ops.start_ns[some], [calls.begin_ns[k], calls.end_ns[k]]))]
        out[some[(ops.end_ns[some] <= calls.end_ns[k]) & (out[some] < 0)]] = row
