"""Rings that were held up in steps that only the flight recorder holds: it records many more than the profiler traces.

A recorder says when each rank made a call, not when the call ended. But a member of a ring that ends late makes its next call
late, and so do those downstream of it, as far as the delay reached. So late ranks that follow each other in the ring, at least
two and not all of them, tell the link into the first, or the one to the second: who sends over a lossy link may end late as
well. One late rank alone may have stopped by itself, and says nothing here.
Calls of the traced steps are left out, because the trace tells more of them, and the next one: the profiler writes.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.change_points import OUTLIER
from taut.core.group_kernels import group_sort
from taut.core.ids import numbered
from taut.core.tables import Table, Verb
from taut.graph import Graph
from taut.graph.staircase import RING
from taut.replay.cell_medians import medians_and_spreads

SHARED = 0.5
"""Ranks that are late by this share of the latest are late with it."""


def recorded_hiccups(graph: Graph, least_ns: float) -> Ints:
    """For each delay of at least so much outside the traced steps: the first two that were late, and who sends to the first."""
    calls = graph.trace.calls
    calls = calls.take(
        (calls.created_ns >= 0) & np.isin(calls.verb, RING) & (calls.seq >= 0) & np.isin(calls.rank, graph.ranks)
    )
    found = [_in_group(graph, calls.take(calls.group == group), least_ns) for group in np.unique(calls.group).tolist()]
    return np.concatenate([np.zeros((0, 3), dtype=np.int64), *found])


def _in_group(graph: Graph, calls: Table, least_ns: float) -> Ints:
    """The same for one process group."""
    none = np.zeros((0, 3), dtype=np.int64)
    ranks, at = np.unique(calls.rank, return_inverse=True)
    seq, turn = np.unique(calls.seq, return_inverse=True)
    if len(ranks) < 3 or len(seq) * len(ranks) != len(np.unique(turn * len(ranks) + at)):
        whole = np.bincount(turn, minlength=len(seq)) == len(ranks)
        if len(ranks) < 3 or not whole.any() or whole.all():
            return none
        return _in_group(graph, calls.take(whole[turn]), least_ns)
    created = np.zeros((len(seq), len(ranks)))
    created[turn, at] = calls.created_ns - int(calls.created_ns.min())
    created -= graph.clock.offset_ns[np.searchsorted(graph.clock.rank, ranks)]
    order = np.zeros(len(seq), dtype=np.int64)
    order[turn] = np.arange(len(calls))
    late, far = _late(created, numbered(calls.name[order], calls.size[order]), least_ns)
    far &= ~_traced(graph, calls, turn, len(seq))
    far[1:] &= ~far[:-1]  # who is late stays so until all meet again: once is enough
    far[0] = False
    out = []
    for k in np.flatnonzero(far).tolist():
        down = graph.trace.backend == "gloo" and calls.verb[order[k - 1]] != Verb.ALL_GATHER
        arc = _begin_of_arc(late[k], ranks, -1 if down else 1)
        out += [arc] if arc is not None else []
    return np.array(out, dtype=np.int64).reshape(-1, 3)


def _late(created: Floats, kind: tuple[Ints, int], least_ns: float) -> tuple[Floats, Mask]:
    """Calls × ranks: how much later than usual each came after the first; and the calls in which one was far later."""
    cls, count = kind
    late = created - created.min(axis=1, keepdims=True)
    cell = (cls[:, None] * late.shape[1] + np.arange(late.shape[1])).ravel()
    below, spread = medians_and_spreads(-late.ravel(), *group_sort(cell, count * late.shape[1]))  # spikes do not widen it
    more: Floats = (late.ravel() + below[cell]).reshape(late.shape)
    usual = OUTLIER * np.nan_to_num(spread)[cell].reshape(late.shape)
    far: Mask = (more > np.maximum(usual, least_ns)).any(axis=1)
    return more, far


def _traced(graph: Graph, calls: Table, turn: Ints, count: int) -> Mask:
    """Calls made while the profiler traced, and the one after them."""
    zero = graph.origin_ns[graph.segment[graph.window]]  # calls have absolute times
    first, last = int((graph.ops.start_ns + zero).min()), int((graph.ops.end_ns + zero).max())
    inside = (calls.created_ns >= first) & (calls.created_ns <= last)
    out = np.zeros(count, dtype=bool)
    out[turn[inside]] = True
    out[1:] |= out[:-1]
    return out


def _begin_of_arc(late: Floats, ranks: Indices, way: int) -> tuple[int, ...] | None:
    """The rank before the late ones in the direction of the ring, and the first two of these, if all follow each other."""
    held = (late >= SHARED * late.max())[::way]
    if not 2 <= held.sum() < len(held):
        return None
    first = np.flatnonzero(held & ~np.roll(held, 1))
    along = np.roll(ranks[::way], 1 - int(first[0]))
    return tuple(along[:3].tolist()) if len(first) == 1 else None
