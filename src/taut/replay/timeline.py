"""Graph + changes → Timeline: the replay itself, and batches of replays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct, structs

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask, Numbers, Value
from taut.core.ids import greatest
from taut.core.jit import SMALL
from taut.core.row_shares import over_rows, threads_at_work
from taut.core.scratch import empty, kept, zeros
from taut.core.tables import NULL, constant
from taut.graph import Graph

Times = TypeVar("Times", Ints, Floats)


class Change(Struct, frozen=True):
    """An edit of a graph, with its reason: set, scale or add to the work or gap of some ops, or take their gate away."""

    ops: Indices | Mask
    what: Literal["work", "gap", "gate"]
    how: Literal["set", "scale", "add", "remove"]
    value: Numbers | float = 0
    reason: str = ""


class Timeline(Struct, frozen=True, dict=True):
    """The result of a replay. Times are ns from the origin of the op's segment."""

    graph: Graph
    arrival_ns: Ints
    end_ns: Ints
    bound: Indices
    """The op whose end set this op's arrival; -1 for the origin."""
    opener: Indices
    """The op whose arrival opened the gate this op waited at; -1 if it did not wait."""
    gap_ns: Ints
    work_ns: Ints
    join: Indices
    wait: Indices
    """Slots joined and waited at, as the changes left them."""

    @property
    def opening_ns(self) -> Ints:
        """When each op began its work: what it waited for had come by then."""
        return self.end_ns - self.work_ns

    @property
    def wait_ns(self) -> Ints:
        """Gate opening minus arrival, per op."""
        wait = self.opening_ns
        wait -= self.arrival_ns
        return wait

    def wait_at(self, ops: Indices) -> Ints:
        """The same of some ops."""
        return self.end_ns[ops] - self.work_ns[ops] - self.arrival_ns[ops]

    @cached_property
    def critical(self) -> Mask:
        """True for ops whose work moves the end of their segment: the critical path."""
        return self._backward[0]

    @cached_property
    def slack_ns(self) -> Ints:
        """How much later each op may end before its segment ends later."""
        return self._backward[1]

    @cached_property
    def _backward(self) -> tuple[Mask, Ints]:
        from taut.replay.engine import backward

        g = self.graph
        segment = g.segment[g.window].astype(np.int64)
        return backward(
            *g.program(self.join, self.wait),
            g.slots,
            self.gap_ns,
            self.arrival_ns,
            self.opening_ns,
            self.end_ns,
            self.bound,
            self.opener,
            segment,
            int(g.segment.max()) + 1,
        )

    @cached_property
    def completion_ns(self) -> Ints:
        """When the last op of each window ended, in its segment's time."""
        return completion(self.graph, self.end_ns)

    @cached_property
    def wall_ns(self) -> int:
        """The sum of the observed step windows."""
        return int(self.window_ns.sum())

    @cached_property
    def window_ns(self) -> Ints:
        """How long each window took."""
        return window_times(self.graph, self.completion_ns)


def completion(graph: Graph, end_ns: Ints) -> Ints:
    """When the last op of each window ended."""
    return np.maximum(greatest(graph.window, len(graph.steps), end_ns), 0)


def window_times(graph: Graph, done: Times) -> Times:
    """Window lengths from completion times: windows of a segment tile it. Works on one column or many."""
    # A window ends when the last op of it or of an earlier one ends; it begins where the one before it ended, the first
    # of a segment at the segment's origin.
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
    from taut.replay.engine import sweep

    work, gap, join, wait = changed(graph, changes, gaps)
    arrival, end, bound, opener = sweep(*graph.program(join, wait), graph.slots, work, gap)
    if gaps and not changes:  # the replay law: what is the same is kept once
        arrival, end = _once(arrival, graph.ops.start_ns), _once(end, graph.ops.end_ns)
    return Timeline(graph, arrival, end, bound, opener, gap, work, join, wait)


def walls(graph: Graph, changes: Sequence[Change]) -> Ints:
    """How long each window takes under changes: a replay of which nothing else is asked."""
    return window_times(graph, _done_and_waits(graph, *changed(graph, changes))[0])


def rank_waits(graph: Graph, work: Ints, gap: Ints) -> Ints:
    """How long each rank waits with this work and these gaps, ns."""
    return _done_and_waits(graph, work, gap, graph.join, graph.wait)[1]


def _done_and_waits(graph: Graph, work: Ints, gap: Ints, join: Indices, wait: Indices) -> tuple[Ints, Ints]:
    from taut.replay.chain_kernels import completions

    ranks, windows = (graph.rank_index, len(graph.ranks)), (graph.window, len(graph.steps))
    return completions(*graph.program(join, wait), graph.slots, work, gap, *windows, *ranks)


def _once(times: Ints, recorded: Ints) -> Ints:
    """The recorded times where they are the same."""
    return recorded if np.array_equal(times, recorded) else times


def changed(graph: Graph, changes: Sequence[Change], gaps: bool = True) -> tuple[Ints, Ints, Indices, Indices]:
    """(work, gap, slots joined, slots waited at) of every op as the changes leave them."""
    work, gap = graph.work_ns, graph.gap_ns if gaps else zeros(len(graph))
    join, wait = graph.join, graph.wait
    for change in changes:
        if change.what == "gate":
            join, wait = join.copy(), wait.copy()
            join[change.ops] = NULL
            wait[change.ops] = NULL
        elif change.what == "work":
            work = edited(work, change, work is not graph.work_ns)
        else:
            gap = edited(gap, change, gap is not graph.gap_ns)
    return work, gap, join, wait


def edited(values: Ints, change: Change, in_place: bool = False) -> Ints:
    """Work or gaps as a change leaves them; ``in_place`` where nobody else has the values."""
    empty_before = not in_place and not values.any()
    out = values if in_place else zeros(len(values)) if empty_before else _copied(values)
    if change.how == "set":
        out[change.ops] = change.value
    elif change.how == "scale":
        out[change.ops] = np.rint(out[change.ops] * change.value)
    elif change.how == "add":
        out[change.ops] = out[change.ops] + change.value
    else:
        out[change.ops] = 0
    if empty_before:  # no more pages are written than the change needs
        out[change.ops] = np.maximum(out[change.ops], 0)
        return out
    over_rows(lambda share: np.maximum(out[share], 0, out=out[share]), len(out))
    return out


def _copied(values: Ints) -> Ints:
    """The same values where they can be written."""
    out = empty((len(values),), values.dtype.type)
    over_rows(lambda share: np.copyto(out[share], values[share]), len(values))
    return out


PARALLEL = 1_000_000
"""Batches of fewer op visits than this are not worth a second thread."""


FOLD = 0.2
"""Share of ops that must be foldable for a second program to pay."""


class Batch(Struct, frozen=True):
    """Replays side by side on one graph; prepared once, asked often."""

    graph: Graph
    whole: Program
    short: Program
    """The program with chains of ops that nobody else looks at folded into the op that ends them."""

    COLUMNS = 128

    def walls(self, base: Ints, other: Ints, key: Indices, keys: int, gap: Ints, other_gap: Ints | None = None) -> Ints:
        """Window lengths, one column per key k: ops with key k take ``other`` work and gap, the rest ``base`` and ``gap``."""
        return self.many(base, other, [(key, keys)], gap, other_gap)[0]

    def many(
        self, base: Ints, other: Ints, cuts: Sequence[tuple[Indices, int]], gap: Ints, other_gap: Ints | None = None
    ) -> list[Ints]:
        """``walls`` for several cuts (key per op, number of keys), together where they can share a pass over the graph.

        A cut that is constant along folded chains (a rank), or blind to them (a link), is asked of the short program.
        """
        out: dict[int, Ints] = {}
        groups: dict[str, list[int]] = {"along": [], "blind": [], "whole": []}
        for i, (key, _) in enumerate(cuts):
            groups["whole" if other_gap is not None else self.short.carries(key)].append(i)
        short_gap = self.short.folded_gap(base, gap) if groups["along"] or groups["blind"] else None
        for how, members in groups.items():
            if not members:
                continue
            chosen = [cuts[i] for i in members]
            if short_gap is None or how == "whole":
                changed = gap if other_gap is None else other_gap
                before, after = _floats(gap), _floats(changed)
                walls = self._walls(self.whole, base, other, chosen, before, before if changed is gap else after)
            else:
                after = self.short.folded_gap(other, gap) if how == "along" else short_gap
                walls = self._walls(self.short, base, other, chosen, short_gap, after)
            out.update(zip(members, walls, strict=True))
        return [out[i] for i in range(len(cuts))]

    def _walls(
        self, program: Program, base: Ints, other: Ints, cuts: list[tuple[Indices, int]], before: Floats, after: Floats
    ) -> list[Ints]:
        """Window lengths by one program; ``before`` and ``after`` are the gaps of its ops, the usual and the others."""
        from taut.replay.engine import sweep_many

        g, p = self.graph, program
        offsets = np.cumsum([0] + [count for _, count in cuts])
        count = len(p.window)
        here = slice(None) if count == len(g) else p.ops
        if len(cuts) == 1 and count == len(g) and cuts[0][0].dtype == np.int32 and not constant(cuts[0][0]):
            key = cuts[0][0][None]
        else:
            key = empty((len(cuts), count), np.int32)
            for row, (k, _) in zip(key, cuts, strict=True):
                row[:] = k[here]
        work, changed = kept(base[here]), kept(other[here])

        def block(first: int) -> Ints:
            columns = min(width, int(offsets[-1]) - first)
            return sweep_many(*p.arrays, len(g.steps), before, after, work, changed, key, offsets[:-1] - first, columns)

        # Few columns at once keep their state in the cache; small programs run in numpy, where wide rows are better.
        width = self.COLUMNS if count > SMALL else int(offsets[-1])
        firsts = range(0, int(offsets[-1]), width)
        if len(firsts) * count < PARALLEL:
            done = [block(f) for f in firsts]
        else:
            from concurrent.futures import ThreadPoolExecutor  # with logging, which takes longer to load than a small job

            with ThreadPoolExecutor(max_workers=max(2, threads_at_work())) as pool:
                done = list(pool.map(block, firsts))
        walls = window_times(g, np.concatenate(done, axis=1))
        return np.split(walls, offsets[1:-1], axis=1)


class Program(Struct, frozen=True):
    """The arrays a batched sweep follows."""

    ops: Codes
    """The graph's ops it visits; of a program of all of them, beside which there is a short one, not held."""
    folded: Codes
    heir: Codes
    """Per folded op: the op it is folded into, as an index of ``ops``."""
    onward_ns: Ints
    """Per folded op: the lag to the op that follows it."""
    events: Indices
    pred_ptr: Indices
    pred: Indices
    lag_ns: Ints
    join: Indices
    wait: Indices
    wait_lag_ns: Ints
    window: Indices
    closes: Mask
    op_register: Indices
    slot_register: Indices
    n_ops: int
    n_slots: int

    @property
    def arrays(self) -> tuple[Value, ...]:
        """What a batched sweep follows, in the order in which kernels take it."""
        edges = self.events, self.pred_ptr, self.pred, self.lag_ns
        slots = self.join, self.wait, self.wait_lag_ns
        return *edges, *slots, self.op_register, self.slot_register, self.n_ops, self.n_slots, self.window, self.closes

    def folded_gap(self, work: Ints, gap: Ints) -> Floats:
        """Gap before each op of the program with its folded chain in it: their gaps, work and lags."""
        from taut.replay.engine import fold_gaps

        return fold_gaps(self.ops, self.heir, self.folded, self.onward_ns, work, gap)

    def carries(self, key: Indices) -> str:
        """``along`` where a key is constant along folded chains, which then change as a whole, ``blind`` where no folded op
        has one, else ``whole``."""
        from taut.replay.chain_kernels import carried

        if not len(self.folded):
            return "whole"
        return "along" if constant(key) else ("whole", "along", "blind")[carried(key, self.ops, self.heir, self.folded)]


def _floats(values: Ints) -> Floats:
    """Numbers as floats; where all are 0, of which nothing has to be written."""
    return kept(values.astype(np.float64)) if values.any() else zeros(len(values)).view(np.float64)


def batch(graph: Graph) -> Batch:
    """Prepare batched replays of a graph."""
    from taut.replay.engine import chains, fold

    n = len(graph)
    closes, follower, chained = chains(graph.pred_ptr, graph.pred, graph.lag_ns, graph.window, graph.join, graph.wait)
    everything, none = kept(np.arange(n, dtype=np.int32)), np.zeros(0, dtype=np.int32)
    whole = _program(graph, everything, everything, none, none, np.zeros(0, dtype=np.int64), closes)
    if chained < FOLD * n:
        return Batch(graph, whole, whole)
    folded, ops = (kept(np.flatnonzero(some).astype(np.int32)) for some in (follower >= 0, follower < 0))
    onward = zeros(len(folded))
    if graph.lag_ns.any():
        onward = kept(graph.lag_ns[graph.pred_ptr[follower[folded]]])  # who follows in a chain has no other predecessor
    owner, first = fold(follower)
    heir = kept(np.cumsum(follower < 0, dtype=np.int32)[owner[folded]] - np.int32(1))
    del follower, owner, everything
    return Batch(graph, structs.replace(whole, ops=none), _program(graph, ops, first[ops], folded, heir, onward, closes))


def _program(graph: Graph, ops: Codes, heads: Codes, folded: Codes, heir: Codes, onward: Ints, closes: Mask) -> Program:
    """The program over the kept ops; each takes the predecessors of the head of its chain."""
    from taut.replay.engine import registers

    here: slice | Codes = slice(None)  # all ops without a copy
    ptr, pred, lag, events = graph.pred_ptr, graph.pred, graph.lag_ns, graph.events
    if len(ops) < len(graph):
        here = ops
        number = np.full(len(graph), -1, dtype=np.int32)
        number[ops] = np.arange(len(ops), dtype=np.int32)
        counts = np.diff(graph.pred_ptr)[heads]
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        take = np.repeat(graph.pred_ptr[heads] - ptr[:-1], counts) + np.arange(ptr[-1], dtype=np.int32)
        ptr, pred, lag = kept(ptr), kept(number[graph.pred[take]]), kept(graph.lag_ns[take])
        del take
        events = np.where(graph.events < 0, ~number[~graph.events], number[graph.events])
        events = kept(events[number[np.where(graph.events < 0, ~graph.events, graph.events)] >= 0])
    join, wait = kept(graph.join[here]), kept(graph.wait[here])
    op_register, slot_register, n_ops, n_slots = registers(events, ptr, pred, join, wait, graph.slots)
    return Program(
        ops,
        folded,
        heir,
        onward,
        events,
        ptr,
        pred,
        lag,
        join,
        wait,
        kept(graph.wait_lag_ns[here]),
        kept(graph.window[here]),
        kept(closes[here]),
        op_register,
        slot_register,
        n_ops,
        n_slots,
    )
