"""Own time: how long each rank takes for each step when every rank it meets is already there.

Gates and edges between ranks are removed, transfers take no time, and the graph is replayed once for all ranks. The own time of
a rank in a step is the increment of the running maximum of its ends. A gap that spans several steps is divided among them, by
where it lay. Names decide nothing: kernels, host, loader, copies and gaps all count.

Where ranks wait for each other in calls that are not gates, own time equals the wall on all ranks: it is unknown there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import greatest
from taut.core.tables import NULL, Table, col
from taut.graph import Graph
from taut.replay.timeline import Change, Timeline, replay

ROLE_STEPS = 5
"""First steps from which the role of a rank is read; later steps may hold a fault (theory.md, *Role*)."""
EQUAL_TO_WALL = 0.005
"""Share of the step within which own times of all ranks are the wall: healthy ranks differ by 1–2 % (theory.md, *Always*)."""
WAITING_GAP = 0.05
"""Share of the median step from which a gap that ends as the last of the others arrives is a wait: no launch takes it."""


class OwnTimeRow:
    """Own time of a rank in a step."""

    rank: int = col("int32", "participant")
    step: int = col("int32", "step label")
    own_ns: int = col("int64", "time the rank takes for the step when every rank it meets is already there, ns; -1 if unknown")
    reference_ns: int = col("int64", "median own time of the other ranks of its role in that step, ns; -1 if there are none")


class OwnTime(Struct, frozen=True, dict=True):
    """Own times of all ranks and steps, and what a replay needs to shorten them."""

    graph: Graph
    """Without gaps that are waits: what changes are replayed on."""
    ns: Floats
    """Own time by rank and step, ns; NaN where a rank did nothing."""
    role: Ints
    """Role of each rank: ranks of one role are compared."""
    spanning_ops: Indices
    spanned_steps: Indices
    spanning_shares: Floats
    """Gaps that begin in an earlier step: op, earlier step, share of the gap in that step."""
    wall_ns: Ints
    """Observed length of each step."""

    @cached_property
    def reference_ns(self) -> Floats:
        """Median own time of the other ranks of the role, by rank and step; NaN for a rank that has none."""
        return median_of_others(self.ns, self.role)

    @cached_property
    def is_known(self) -> bool:
        """Whether own times differ from the wall: they do not where ranks wait in calls that are not gates."""
        if len(self.ns) < 2:
            return True
        some = ~np.isnan(self.ns).all(axis=0)
        spread = np.nanmax(self.ns[:, some], axis=0) - np.nanmin(self.ns[:, some], axis=0)
        return bool(np.median(spread / np.maximum(self.wall_ns[some], 1)) > EQUAL_TO_WALL)

    def shortened(self, cut_ns: Floats) -> list[Change]:
        """Changes after which each own time is shorter by so much: works and gaps of the rank in the step scaled alike."""
        graph = self.graph
        own = np.nan_to_num(self.ns)
        factor = np.clip(1 - np.nan_to_num(cut_ns) / np.maximum(own, 1), 0, 1)
        scale = factor[graph.rank_index, graph.window]
        gap_scale = scale.copy()
        moved = factor[graph.rank_index[self.spanning_ops], self.spanned_steps] - scale[self.spanning_ops]
        np.add.at(gap_scale, self.spanning_ops, self.spanning_shares * moved)
        works = np.flatnonzero((scale < 1) & ~meets(graph))
        gaps = np.flatnonzero((gap_scale < 1) & (graph.gap_ns > 0))
        return [Change(works, "work", "scale", scale[works]), Change(gaps, "gap", "scale", gap_scale[gaps])]


def own_time(graph: Graph, observed: Timeline) -> OwnTime:
    """Own times of a graph: one replay for all ranks."""
    graph = _without_waiting_gaps(graph, observed)
    alone = replay(_within_ranks(graph))
    ops, steps, shares, ends = _spanning_gaps(graph, observed, alone)
    return OwnTime(graph, _increments(graph, alone, ends), roles(graph), ops, steps, shares, observed.window_ns)


def own_time_table(own: OwnTime) -> Table:
    """The own times as a table, by rank and step."""
    ranks, steps = own.ns.shape
    return Table(
        OwnTimeRow,
        {
            "rank": np.repeat(own.graph.ranks, steps),
            "step": np.tile(own.graph.steps, ranks),
            "own_ns": _whole(own.ns if own.is_known else np.full(own.ns.shape, np.nan)),
            "reference_ns": _whole(own.reference_ns if own.is_known else np.full(own.ns.shape, np.nan)),
        },
    )


def _whole(times: Floats) -> Ints:
    return np.where(np.isnan(times), NULL, np.rint(np.nan_to_num(times))).astype(np.int64).ravel()


def meets(graph: Graph) -> Mask:
    """Whether an op takes part in a gate."""
    found: Mask = (graph.join >= 0) | (graph.wait >= 0)
    return found


def roles(graph: Graph) -> Ints:
    """Number of each rank's role: its stage, and what it met in its first steps; never what it does between meetings."""
    met = np.flatnonzero(meets(graph))
    ranks, verbs = len(graph.ranks), int(graph.ops.verb.max(initial=0)) + 1
    first = np.full(ranks, len(graph.steps))
    np.minimum.at(first, graph.rank_index, graph.window)
    step = graph.window[met] - first[graph.rank_index[met]]
    met, step = met[step < ROLE_STEPS], step[step < ROLE_STEPS]
    count = np.zeros((ranks, ROLE_STEPS, verbs), np.int64)
    np.add.at(count, (graph.rank_index[met], step, graph.ops.verb[met]), 1)
    signature = np.column_stack([graph.role_of_rank, np.median(count, axis=1)])
    return np.unique(signature, axis=0, return_inverse=True)[1].ravel()


def median_of_others(values: Floats, role: Ints) -> Floats:
    """Per rank and step: the median of the other ranks of its role; NaN where there are none."""
    out = np.full(values.shape, np.nan)
    order = np.argsort(role, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(role[order])) + 1):
        if len(rows) > 1:
            out[rows] = _median_of_other_rows(values[rows])
    return out


def _median_of_other_rows(values: Floats) -> Floats:
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(values))[:, None], axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    missing = np.isnan(values)
    others = (~missing).sum(axis=0) - ~missing
    middle = [np.maximum(others - 1, 0) // 2, others // 2]  # the two in the middle, the same one of an odd number
    taken = [np.take_along_axis(ranked, np.minimum(k + (k >= place), len(values) - 1), axis=0) for k in middle]
    return np.where(others > 0, (taken[0] + taken[1]) / 2, np.nan)


def _without_waiting_gaps(graph: Graph, observed: Timeline) -> Graph:
    """The graph without long gaps before gates that end as the last of the other members arrives: they are waits."""
    long_ns = WAITING_GAP * float(np.median(observed.window_ns))
    met = np.flatnonzero(meets(graph) & (graph.gate >= 0))
    is_long = graph.gap_ns[met] >= long_ns
    if not is_long.any():
        return graph
    prompt, late = met[~is_long], met[is_long]
    last = greatest(graph.gate[prompt], int(graph.gate.max()) + 1, observed.arrival_ns[prompt])
    is_wait = observed.arrival_ns[late] <= last[graph.gate[late]] + long_ns / 10
    gap = graph.gap_ns.copy()
    gap[late[is_wait]] = 0
    return replace(graph, gap_ns=gap)


def _within_ranks(graph: Graph) -> Graph:
    """The graph without gates and edges between ranks, its transfers without length."""
    to = np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr))
    stays = graph.rank_index[graph.pred] == graph.rank_index[to]
    pointer = np.concatenate([[0], np.cumsum(np.bincount(to[stays], minlength=len(graph)))])
    nowhere = np.full(len(graph), NULL, np.int32)
    return replace(
        graph,
        work_ns=np.where(meets(graph), 0, graph.work_ns),
        pred_ptr=pointer,
        pred=graph.pred[stays],
        lag_ns=graph.lag_ns[stays],
        join=nowhere,
        wait=nowhere,
        slots=0,
        events=np.arange(len(graph)),  # ops are numbered in the order in which they arrive; without gates they end then
    )


def _spanning_gaps(graph: Graph, observed: Timeline, alone: Timeline) -> tuple[Indices, Indices, Floats, Ints]:
    """Gaps that begin in an earlier step: (op, earlier step, share in that step), and when ranks alone end these steps, ns."""
    ends = np.zeros((len(graph.ranks), len(graph.steps)), np.int64)
    before = _last_step_before(graph)
    spans = np.flatnonzero((before >= 0) & (before < graph.window) & (graph.gap_ns > 0))
    spans = spans[graph.segment[before[spans]] == graph.segment[graph.window[spans]]]
    count = graph.window[spans] - before[spans]
    op, nth = np.repeat(spans, count), _running_numbers(count)
    step = before[op] + nth
    border = _running_maximum(observed.completion_ns[None], graph.segment)[0]
    gap = graph.gap_ns[op]
    inside = np.clip(border[step] - (observed.arrival_ns[op] - gap), 0, gap)  # of the gap, up to the end of that step
    share = (inside - np.where(nth > 0, np.concatenate([[0], inside[:-1]]), 0)) / np.maximum(gap, 1)
    some = inside > 0
    np.maximum.at(ends, (graph.rank_index[op[some]], step[some]), (alone.arrival_ns[op] - (gap - inside))[some])
    return op[some], step[some], share[some], ends


def _last_step_before(graph: Graph) -> Ints:
    """The last step of the predecessors of each op, -1 without any."""
    out = np.full(len(graph), NULL, np.int64)
    some = np.flatnonzero(np.diff(graph.pred_ptr))
    if len(some):
        out[some] = np.maximum.reduceat(graph.window[graph.pred], graph.pred_ptr[some])
    return out


def _running_numbers(counts: Ints) -> Ints:
    """0, 1, … for each count, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _increments(graph: Graph, alone: Timeline, ends: Ints) -> Floats:
    """By how much each step moves the latest end of each rank, ns; NaN where a rank did nothing."""
    np.maximum.at(ends, (graph.rank_index, graph.window), alone.end_ns)
    there = np.zeros(ends.shape, bool)
    there[graph.rank_index, graph.window] = True
    running = _running_maximum(ends, graph.segment)
    first = np.diff(graph.segment, prepend=NULL) != 0
    before = np.where(first, 0, np.concatenate([np.zeros_like(running[:, :1]), running[:, :-1]], axis=1))
    return np.where(there, (running - before).astype(np.float64), np.nan)


def _running_maximum(times: Ints, segment: Indices) -> Ints:
    """The largest so far of each row, within segments."""
    out = times.copy()
    for columns in _segments(segment):
        np.maximum.accumulate(out[:, columns], axis=1, out=out[:, columns])
    return out


def _segments(segment: Indices) -> Iterator[slice]:
    """Columns of each segment that has several."""
    edges = [0, *(np.flatnonzero(np.diff(segment)) + 1).tolist(), len(segment)]
    return (slice(first, last) for first, last in pairwise(edges) if last - first > 1)
