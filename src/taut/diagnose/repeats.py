"""A run reduced to what its repeats must share: work by class, rank and step, and the order of gates on every rank.

Differences of structure are facts and are listed; whether differences of timing are more than jitter is a test
(``nondeterminism.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered, weighed
from taut.graph import Graph

REST = " (after)"
"""What the reader calls the rest of an op that it cut at a wait: whether anything is left there is timing, not structure."""

Meeting = tuple[str, int, int, str]
"""One gate as a rank sees it: class, bytes, peer, process group."""


@dataclass(frozen=True)
class Repeat:
    """One run, as far as it can be compared with another."""

    rows: Mapping[tuple[str, int], int]
    """(class, rank) → row of the tables."""
    ranks: Ints
    steps: Ints
    step_ns: Ints
    """Wall time of every step."""
    work_ns: Floats
    """Work of every row in every step, all its ops together."""
    ops: Ints
    """Number of ops of every row in every step."""
    orders: list[tuple[Meeting, ...]]
    """The orders of gates that occur, process group by process group."""
    order: Ints
    """Rank × step: which of them."""


def repeat(graph: Graph, step_ns: Sequence[int] | Ints) -> Repeat:
    """Reduce a run."""
    ops, windows = graph.ops, len(graph.steps)
    row, count = numbered(ops.name, ops.rank)
    one = np.zeros(count, dtype=np.int64)
    one[row] = np.arange(len(row))
    rows = {(graph.names[n], int(r)): i for i, (n, r) in enumerate(zip(ops.name[one], ops.rank[one], strict=True))}
    cell, cells = row * windows + graph.window, count * windows
    work = weighed(cell, graph.work_ns, cells).reshape(count, windows)
    many = np.bincount(cell, minlength=cells).reshape(count, windows)
    return Repeat(rows, np.asarray(graph.ranks), np.asarray(graph.steps), np.asarray(step_ns), work, many, *_orders(graph))


def _orders(graph: Graph) -> tuple[list[tuple[Meeting, ...]], Ints]:
    """The distinct orders of gates, and which of them each rank followed in each step."""
    ops, windows, rank = graph.ops, len(graph.steps), graph.rank_index
    met = np.flatnonzero(graph.gate >= 0)
    met = met[np.lexsort((ops.name[met], ops.start_ns[met], ops.group[met], graph.window[met], rank[met]))]
    token, count = numbered(*(getattr(ops, key)[met] for key in ("name", "size", "peer", "group")))
    one = np.zeros(count, dtype=np.int64)
    one[token] = met
    groups = [*graph.trace.groups, ""]
    words = [(graph.names[ops.name[i]], int(ops.size[i]), int(ops.peer[i]), groups[ops.group[i]]) for i in one.tolist()]
    cells = len(graph.ranks) * windows
    ends = np.cumsum(np.bincount(graph.rank_step[met], minlength=cells))
    known: dict[bytes, int] = {}
    # Orders of gates repeat from step to step: each is kept once, by the bytes of its tokens.
    which = [
        known.setdefault(token[begin:end].tobytes(), len(known))
        for begin, end in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)
    ]
    orders = [tuple(words[i] for i in np.frombuffer(key, dtype=token.dtype)) for key in known]
    return orders, np.array(which, dtype=np.int64).reshape(len(graph.ranks), windows)


@dataclass(frozen=True)
class StructureDifference:
    """One difference of structure between two runs."""

    what: str
    """``rank``, ``class``, ``count`` or ``gate order``."""
    rank: int
    name: str | None = None
    """The class; of a gate order the one that the first run has at the first place that differs."""
    before: int | str | None = None
    after: int | str | None = None
    """Ops: all of a class, or in the steps compared; of a gate order the gates at that place; None where it is absent."""
    step: int | None = None
    """First step that differs; None where the runs differ as a whole."""
    steps: int | None = None
    """Steps that differ."""

    @property
    def graph(self) -> bool:
        """Whether it makes another graph of the run: a count alone does not."""
        return self.what != "count"


def structure_differences(a: Repeat, b: Repeat) -> list[StructureDifference]:
    """All differences of structure between two runs, in the steps that both have."""
    alone = sorted(set(a.ranks.tolist()) ^ set(b.ranks.tolist()))
    at = _common(a.steps, b.steps)
    ranks = ((rank, *(1 if rank in run.ranks else None for run in (a, b))) for rank in alone)
    return [
        *(StructureDifference("rank", rank, None, before, after) for rank, before, after in ranks),
        *_classes(a, b, at),
        *_gates(a, b, at),
    ]


def _common(a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Places of the same steps in both runs; where none has the same label, steps are compared in their order."""
    _, first, second = np.intersect1d(a, b, return_indices=True)
    if len(first):
        return first, second
    shorter = np.arange(min(len(a), len(b)))
    return shorter, shorter


def _classes(a: Repeat, b: Repeat, at: tuple[Ints, Ints]) -> Iterator[StructureDifference]:
    ranks = set(a.ranks.tolist()) & set(b.ranks.tolist())
    for name, rank in sorted(a.rows.keys() ^ b.rows.keys(), key=lambda key: (key[1], key[0])):
        if rank in ranks and not name.endswith(REST):
            before, after = (int(run.ops[run.rows[name, rank]].sum()) if (name, rank) in run.rows else None for run in (a, b))
            yield StructureDifference("class", rank, name, before, after)
    both = sorted(a.rows.keys() & b.rows.keys(), key=lambda key: (key[1], key[0]))
    mine, theirs = (run.ops[[run.rows[key] for key in both]][:, k] for run, k in zip((a, b), at, strict=True))
    for i in np.flatnonzero((mine != theirs).any(axis=1)).tolist():
        name, rank = both[i]
        where = np.flatnonzero(mine[i] != theirs[i])
        if not name.endswith(REST):
            before, after, step = int(mine[i].sum()), int(theirs[i].sum()), int(a.steps[at[0][where[0]]])
            yield StructureDifference("count", rank, name, before, after, step, len(where))


def _gates(a: Repeat, b: Repeat, at: tuple[Ints, Ints]) -> Iterator[StructureDifference]:
    number = {order: i for i, order in enumerate(b.orders)}
    same = np.array([number.get(order, -1) for order in a.orders], dtype=np.int64)
    for rank in np.intersect1d(a.ranks, b.ranks).tolist():
        mine, theirs = (run.order[np.searchsorted(run.ranks, rank)][k] for run, k in zip((a, b), at, strict=True))
        where = np.flatnonzero(same[mine] != theirs)
        if len(where):
            one, other = a.orders[mine[where[0]]], b.orders[theirs[where[0]]]
            place = next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
            before, after = (_gate_text(order[place]) if place < len(order) else None for order in (one, other))
            name = one[place][0] if place < len(one) else None
            yield StructureDifference("gate order", rank, name, before, after, int(a.steps[at[0][where[0]]]), len(where))


def _gate_text(meeting: Meeting) -> str:
    name, size, peer, group = meeting
    return (
        name + (f" {size} B" if size >= 0 else "") + (f" with {peer}" if peer >= 0 else "") + (f" in {group}" if group else "")
    )
