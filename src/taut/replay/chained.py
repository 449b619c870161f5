"""Steps that each have a time origin of their own, put behind one another where their numbers follow.

What a rank did not do between its last op of a step and its first of the next stays as it was: it is the gap of that op. So
a replay of the joined graph takes as long as the steps took one by one, and a rank that need not wait goes on by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.graph import Graph
from taut.replay.engine import sweep
from taut.replay.timeline import completion


def chained(graph: Graph) -> Graph:
    """The graph in which consecutive steps share a time axis."""
    windows = len(graph.steps)
    run = np.cumsum(np.diff(graph.steps, prepend=graph.steps[:1]) != 1) - 1 if windows else np.zeros(0, dtype=np.int64)
    if not graph.trace.relative or (np.diff(run) > 0).all():
        return graph
    _, end, _, _ = sweep(*graph.program(graph.join, graph.wait), graph.slots, graph.work_ns, graph.gap_ns)
    length = completion(graph, end)
    begin = np.cumsum(length) - length
    begin -= begin[np.searchsorted(run, run)]  # from the origin of the run
    ends = begin[graph.window] + end

    # The last op of every rank and step, by rank, then step.
    order = np.lexsort((end, graph.window, graph.rank_index))
    rank, window = graph.rank_index[order], graph.window[order]
    final = np.append((rank[1:] != rank[:-1]) | (window[1:] != window[:-1]), True)
    last, cell = order[final], np.empty(len(graph), dtype=np.int64)
    cell[order] = np.cumsum(np.append(False, final[:-1]))
    root = np.flatnonzero(np.diff(graph.pred_ptr) == 0)
    before = np.maximum(cell[root] - 1, 0)
    follows = (cell[root] > 0) & (rank[final][before] == graph.rank_index[root])
    follows &= run[window[final][before]] == run[graph.window[root]]

    gap = graph.gap_ns.copy()
    gap[root] += begin[graph.window[root]]
    behind, after = last[before[follows]], root[follows]
    gap[after] -= ends[behind]
    count = np.diff(graph.pred_ptr)
    count[after] = 1
    at = graph.pred_ptr[after]
    return replace(
        graph,
        gap_ns=gap,
        pred_ptr=np.append(0, np.cumsum(count)),
        pred=np.insert(graph.pred, at, behind),
        lag_ns=np.insert(graph.lag_ns, at, 0),
        segment=run.astype(np.int32),
        origin_ns=np.zeros(int(run[-1]) + 1, dtype=np.int64),
    )
