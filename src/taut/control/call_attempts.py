"""Attempts as the trace itself tells them: the ops of each call, on whichever rank, and of whatever it called in turn.

Only where a trace says what launched every op (spans). A lane holds one task after the other; a task begins with the op that
another one launched. An attempt is the task that its caller launched when it was made, or, where the caller did it itself,
the caller's ops of its class in that time. Two calls of one caller at the same moment cannot be told apart: neither is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.core.ids import numbered
from taut.core.tables import NULL
from taut.graph import Graph


def attempt_of(graph: Graph, rows: Any, segment: Any, begin_ns: Any, end_ns: Any) -> Any:
    """Of each op the attempt (one of ``rows``) that it belongs to, -1 for none; the arrays have one element for each row."""
    out = np.full(len(graph), NULL, dtype=np.int64)
    if not len(rows) or not graph.trace.told:
        return out
    rank = graph.trace.actions.rank[rows]
    task, of, called = _tasks(graph)
    taken = _launched(graph, of, called, rows, segment, rank, begin_ns)
    out = np.where(taken >= 0, taken, NULL)[task]
    missed = ~np.isin(rows, taken)
    _inline(graph, rows[missed], segment[missed], rank[missed], begin_ns[missed], end_ns[missed], out)
    return out


def _tasks(graph: Graph) -> tuple[Any, Any, Any]:
    """The task of every op, and of every task the op that launched it and the task of that; -1 for none."""
    ops = graph.ops
    lane, _ = numbered(graph.segment[graph.window], ops.rank, ops.lane)
    order = np.lexsort((ops.start_ns, lane))
    begins = np.concatenate([[True], np.diff(lane[order]) != 0]) | (ops.launch[order] >= 0)
    task = np.empty(len(ops), dtype=np.int64)
    task[order] = np.cumsum(begins) - 1
    called = ops.launch[order[begins]].astype(np.int64)
    return task, np.where(called >= 0, task[called], NULL), called


def _launched(graph: Graph, of: Any, called: Any, rows: Any, segment: Any, rank: Any, begin_ns: Any) -> Any:
    """Of each task the attempt that it is, or lies below; -1 for none."""
    known = np.flatnonzero(called >= 0)
    by = called[known]
    told = np.stack([segment, rank, begin_ns], axis=1)
    seen = np.stack([graph.segment[graph.window[by]], graph.ops.rank[by], graph.ops.start_ns[by]], axis=1)
    _, number = np.unique(np.concatenate([told, seen]), axis=0, return_inverse=True)
    number = number.ravel()
    mine, theirs = number[: len(rows)], number[len(rows) :]
    count = np.bincount(theirs, minlength=int(number.max()) + 1), np.bincount(mine, minlength=int(number.max()) + 1)
    row = np.full(int(number.max()) + 1, NULL, dtype=np.int64)
    row[mine] = rows
    sure = (count[0] == 1) & (count[1] == 1)
    taken = np.full(len(called) + 1, NULL, dtype=np.int64)
    taken[known] = np.where(sure[theirs], row[theirs], NULL)
    up = np.append(of, NULL)
    for _ in range(len(called).bit_length()):
        taken, up = np.where(taken >= 0, taken, taken[up]), np.where(up >= 0, up[up], NULL)
    return taken[:-1]


def _inline(graph: Graph, rows: Any, segment: Any, rank: Any, begin_ns: Any, end_ns: Any, out: Any) -> None:
    """Attempts that are no calls of others: ops of the caller of that class in that time."""
    ops, names = graph.ops, {name: i for i, name in enumerate(graph.names)}
    cell, _ = numbered(graph.segment[graph.window], ops.rank, ops.name)
    order = np.lexsort((ops.start_ns, cell))
    place = {}
    for begin in np.flatnonzero(np.concatenate([[True], np.diff(cell[order]) != 0])).tolist():
        op = order[begin]
        place[int(graph.segment[graph.window[op]]), int(ops.rank[op]), int(ops.name[op])] = begin
    ends = np.searchsorted(cell[order], cell[order], side="right")
    for k, row in enumerate(rows.tolist()):
        name = names.get(graph.trace.actions.target[row], NULL)
        first = place.get((int(segment[k]), int(rank[k]), name))
        if first is None:
            continue
        some = order[first : ends[first]]
        some = some[slice(*np.searchsorted(ops.start_ns[some], [begin_ns[k], end_ns[k]]))]
        out[some[(ops.end_ns[some] <= end_ns[k]) & (out[some] < 0)]] = row
