"""Graph + changes → Timeline: the replay itself, and batches of replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from taut.graph import Graph
from taut.tables import NULL


@dataclass(frozen=True)
class Change:
    """An edit of a graph, with its reason: set, scale or add to the work or gap of some ops, or take their gate away."""

    ops: Any
    what: Literal["work", "gap", "gate"]
    how: Literal["set", "scale", "add", "remove"]
    value: Any = 0
    reason: str = ""


@dataclass(frozen=True)
class Timeline:
    """The result of a replay. Times are ns from the origin of the op's segment."""

    graph: Graph
    arrival_ns: Any
    opening_ns: Any
    end_ns: Any
    bound: Any
    """The op whose end set this op's arrival; -1 for the origin."""
    opener: Any
    """The op whose arrival opened the gate this op waited at; -1 if it did not wait."""
    gap_ns: Any
    work_ns: Any

    @cached_property
    def wait_ns(self) -> Any:
        """Gate opening minus arrival, per op."""
        return self.opening_ns - self.arrival_ns

    @cached_property
    def completion_ns(self) -> Any:
        """When the last op of each window ended, in its segment's time."""
        return completion(self.graph, self.end_ns)

    @cached_property
    def wall_ns(self) -> int:
        """The sum of the observed step windows."""
        return int(window_times(self.graph, self.completion_ns).sum())

    @cached_property
    def window_ns(self) -> Any:
        """How long each window took."""
        return window_times(self.graph, self.completion_ns)


def completion(graph: Graph, end_ns: Any) -> Any:
    """When the last op of each window ended."""
    done = np.zeros(len(graph.steps), dtype=np.int64)
    np.maximum.at(done, graph.window, end_ns)
    return done


def window_times(graph: Graph, done: Any) -> Any:
    """Window lengths from completion times: windows of a segment tile it. Works on one column or many."""
    segment = graph.segment
    running = done.copy()
    for w in range(1, len(running)):
        if segment[w] == segment[w - 1]:
            running[w] = np.maximum(running[w], running[w - 1])
    first = np.concatenate([[True], segment[1:] != segment[:-1]])
    before = np.concatenate([np.zeros_like(running[:1]), running[:-1]])
    mask = first if running.ndim == 1 else first[:, None]
    return running - np.where(mask, 0, before)


def replay(graph: Graph, changes: Sequence[Change] = (), *, gaps: bool = True) -> Timeline:
    """Replay the graph under changes; without any, the observed timeline to the nanosecond."""
    from taut.replay.kernels import sweep

    work, gap = graph.work_ns, graph.gap_ns if gaps else np.zeros_like(graph.gap_ns)
    join, wait = graph.join, graph.wait
    for change in changes:
        if change.what == "gate":
            join, wait = join.copy(), wait.copy()
            join[change.ops] = NULL
            wait[change.ops] = NULL
        elif change.what == "work":
            work = _edit(work, change)
        else:
            gap = _edit(gap, change)
    arrival, opening, end, bound, opener = sweep(
        graph.events, graph.pred_ptr, graph.pred, graph.lag_ns, join, wait, graph.wait_lag_ns, graph.slots, work, gap
    )
    return Timeline(graph, arrival, opening, end, bound, opener, gap, work)


def _edit(values: Any, change: Change) -> Any:
    out = values.copy()
    if change.how == "set":
        out[change.ops] = change.value
    elif change.how == "scale":
        out[change.ops] = np.rint(out[change.ops] * change.value)
    elif change.how == "add":
        out[change.ops] += change.value
    else:
        out[change.ops] = 0
    return np.maximum(out, 0)


PARALLEL = 1_000_000
"""Batches of fewer op visits than this are not worth a second thread."""


@dataclass(frozen=True)
class Batch:
    """Replays side by side on one graph; prepared once, asked often."""

    graph: Graph
    op_register: Any
    slot_register: Any
    n_ops: int
    n_slots: int
    closes: Any

    COLUMNS = 32

    def walls(self, base: Any, other: Any, key: Any, keys: int, gap: Any, other_gap: Any = None) -> Any:
        """Window lengths, one column per key k: ops with key k take ``other`` work and gap, the rest ``base`` and ``gap``."""
        return self.many(base, other, [(key, keys)], gap, other_gap)[0]

    def many(
        self, base: Any, other: Any, cuts: Sequence[tuple[Any, int]], gap: Any, other_gap: Any = None
    ) -> list[Any]:
        """``walls`` for several cuts (key per op, number of keys) in one pass over the graph."""
        from concurrent.futures import ThreadPoolExecutor

        from taut.replay.kernels import sweep_many

        g = self.graph
        offsets = np.cumsum([0] + [count for _, count in cuts])
        key = np.stack([np.where(k >= 0, k + o, -1) for (k, _), o in zip(cuts, offsets[:-1], strict=True)], axis=1)

        def block(first: int) -> Any:
            return sweep_many(
                g.events, g.pred_ptr, g.pred, g.lag_ns, g.join, g.wait, g.wait_lag_ns, gap,
                gap if other_gap is None else other_gap,
                self.op_register, self.slot_register, self.n_ops, self.n_slots, base, other, key.astype(np.int64), first,
                min(self.COLUMNS, int(offsets[-1]) - first), g.window, len(g.steps), self.closes,
            )  # fmt: skip

        firsts = range(0, int(offsets[-1]), self.COLUMNS)
        if len(firsts) * len(g) < PARALLEL:
            done = [block(f) for f in firsts]
        else:
            with ThreadPoolExecutor(max_workers=2) as pool:
                done = list(pool.map(block, firsts))
        walls = window_times(g, np.concatenate(done, axis=1))
        return np.split(walls, offsets[1:-1], axis=1)


def batch(graph: Graph) -> Batch:
    """Prepare batched replays of a graph."""
    from taut.replay.kernels import registers

    op_register, slot_register, n_ops, n_slots = registers(
        graph.events, graph.pred_ptr, graph.pred, graph.join, graph.wait, graph.slots
    )
    closes = np.ones(len(graph), dtype=bool)
    target = np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr))
    closes[graph.pred[graph.window[graph.pred] == graph.window[target]]] = False
    return Batch(graph, op_register, slot_register, n_ops, n_slots, closes)
