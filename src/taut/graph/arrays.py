"""The operator graph: ops, edges and gates as flat arrays, in an order a single sweep can follow.

Op v arrives at max over its predecessors u of (end_u + lag_uv) + gap_v. If it waits at a slot, the slot opens with the
latest arrival among the ops that join it; v then ends at max(arrival, opening) + work_v. A slot is one side of a gate:
who joins delays, who waits is delayed (see ``gates.py`` for which verb does which).

``events`` is the program of a sweep: the number v means "op v arrives" (and ends, if it waits nowhere), ~v means
"op v, which waits, ends". Ops are numbered in the order of their arrival events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.ids import coded, greatest, least, numbered
from taut.core.scratch import kept
from taut.core.tables import NULL, Kind, Table, Trace, col
from taut.result.types import Device

PER_OP = ("work_ns", "gap_ns", "pred_ptr", "pred", "lag_ns", "join", "wait", "wait_lag_ns", "events", "gate", "explained",
          "window", "roles")  # fmt: skip
"""What a graph has of every op or edge."""
MOST_HOLES = 1 << 20
MIXED = "mixed"
"""Numbers that may stay unused, whatever the number of ops is."""


class Gate:
    """A rendezvous: a set of ops that all begin their transfer when the last of them arrives."""

    gate: int = col("int32", "gate number, in order of opening")
    verb: int = col("int8", "tables.Verb of the rendezvous", 0)
    name: int = col("int32", "index into Graph.names: class of the rendezvous")
    step: int = col("int32", "step of its first member")
    group: int = col("int32", "index into Graph.groups; -1 if the group was inferred")
    members: int = col("int32", "ops matched", 0)
    expected: int = col("int32", "ops that should be there, from the group; -1 if unknown")
    opens_ns: int = col("int64", "when the last member arrived, ns, aligned clock")
    last_rank: int = col("int32", "rank of the last arriver")
    late_ns: int = col("int64", "last arrival minus median arrival, ns")
    size: int = col("int64", "bytes of the largest member; -1 if unknown")


class Clock:
    """Clock of one rank against rank 0's (or the lowest rank's)."""

    rank: int = col("int32", "participant")
    offset_ns: int = col("int64", "rank's clock minus the first rank's clock in the middle of the run, ns", 0)
    lo_ns: int = col("int64", "lower end of the interval, ns", 0)
    hi_ns: int = col("int64", "upper end of the interval, ns", 0)
    applied: int = col("int8", "1 if the ops were shifted by the offset, 2 if by the drift as well", 0)
    drift_ppm: float = col("float64", "how much faster it runs than the first rank's, ppm; NaN if unknown", np.nan)


class Predecessors(Struct, frozen=True):
    """The edges into every op: those of op v are rows ptr[v] … ptr[v + 1] − 1."""

    ptr: Codes
    pred: Codes
    lag: Ints
    """Added to the end of the predecessor, ns."""

    def permuted(self, order: Indices, position: Indices) -> Predecessors:
        """The same edges when the ops are put in another order; ``position`` is its inverse."""
        from taut.graph.sweeps import permute_edges

        return Predecessors(*permute_edges(self.ptr, self.pred, self.lag, order, position))


class Slots(Struct, frozen=True):
    """The slot that each op joins and the one that it waits at, -1 for none, and how many slots there are."""

    join: Indices
    wait: Indices
    count: int


@dataclass(frozen=True, eq=False)
class Graph:
    """Everything a replay needs, and where it came from."""

    trace: Trace
    ops: Table
    """The ops in event order, clocks aligned, times relative to the origin of their segment."""
    work_ns: Ints
    gap_ns: Ints
    pred_ptr: Indices
    pred: Indices
    lag_ns: Ints
    join: Indices
    wait: Indices
    wait_lag_ns: Ints
    """At most 0: how much before its slot opened a waiting op may begin its work (clock residual)."""
    slots: int
    events: Indices
    gate: Indices
    """Gate number of each op, -1 for none."""
    explained: Mask
    """True for ops that follow another op; False for those merely anchored in time."""
    window: Indices
    """Index of each op's step among the kept steps (0, 1, …)."""
    steps: Ints
    """Step label of each window."""
    segment: Indices
    """Segment of each window: windows of one segment share a time axis."""
    origin_ns: Ints
    """Absolute time of each segment's zero, ns."""
    members: Table
    clock: Table
    clock_residual_ns: int | None
    dropped_edges: int
    partial: Sequence[str]
    counts: Mapping[str, int]
    roles: Indices
    """Role of each op's rank: ranks of one role do the same work (pipeline stage; all ranks if unknown)."""
    device: Device | None = None
    """What the accelerators did in their windows; None without any, and in a graph that comes from a run folder."""
    stored_phases: Sequence[str] | None = None
    """Phase of each window in a graph that comes from a run folder, which keeps no marks."""

    def __post_init__(self) -> None:
        # Half of the memory, and one compiled form of every kernel, wherever a graph comes from.
        for name in ("pred_ptr", "pred", "events"):
            object.__setattr__(self, name, _narrow(getattr(self, name)))
        places: dict[int, Indices] = {}
        for name in PER_OP:  # one array under two names is kept once
            own = getattr(self, name)
            if id(own) not in places:
                places[id(own)] = kept(own)
            object.__setattr__(self, name, places[id(own)])

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def names(self) -> Sequence[str]:
        """Class names, indexed by ``ops.name``."""
        return self.trace.names

    @property
    def ranks(self) -> Indices:
        """The ranks present, ascending."""
        return self.members.rank

    @property
    def edges(self) -> int:
        """Number of precedence edges, gates not counted."""
        return len(self.pred)

    def part(self, rows: slice) -> Graph:
        """Some ops in a row, for what looks at each op by itself: edges, gates and launches stay those of all ops."""
        part: Graph = object.__new__(Graph)
        own = {name: getattr(self, name)[rows] for name in ("work_ns", "gap_ns", "join", "wait", "gate", "window", "roles")}
        part.__dict__.update({f.name: getattr(self, f.name) for f in fields(self)} | own | {"ops": self.ops.sliced(rows)})
        return part

    def program(self, join: Indices, wait: Indices) -> tuple[Indices, Indices, Indices, Ints, Indices, Indices, Ints]:
        """What a sweep follows, in the order in which kernels take it, with these slots."""
        return self.events, self.pred_ptr, self.pred, self.lag_ns, join, wait, self.wait_lag_ns

    @cached_property
    def gates(self) -> Table:
        """One row per gate: where and when it opened, and who came last."""
        from taut.graph.gate_matching import table

        return table(self)

    @cached_property
    def rank_index(self) -> Codes:
        """Each op's rank as an index into ``ranks``, in 32 bits: see ``rank_step`` and ``on_rank`` before multiplying it."""
        low, span = int(self.ranks[0]), int(self.ranks[-1]) - int(self.ranks[0]) + 1
        if low == 0 and span == len(self.ranks):
            return np.asarray(self.ops.rank)
        if span > 16 * len(self.ops) + 1024:  # numbers from the file must not say how much memory is taken
            return kept(np.searchsorted(self.ranks, self.ops.rank).astype(np.int32))
        where = np.zeros(span, dtype=np.int32)
        where[self.ranks - low] = np.arange(len(self.ranks))
        offset: Indices = self.ops.rank - low
        return kept(where[offset])

    @property
    def rank_step(self) -> Ints:
        """Each op's rank and window as one number: rank × windows + window."""
        return self.rank_index.astype(np.int64) * len(self.steps) + self.window

    @cached_property
    def role_of_rank(self) -> Ints:
        """Role of each of ``ranks``."""
        out = np.zeros(len(self.ranks), dtype=np.int64)
        out[self.rank_index] = self.roles
        return out

    def on_rank(self, key: Indices, count: int) -> tuple[Indices, int]:
        """Numbers of (rank, key) for keys below ``count``, and how many there are; without holes where they would be many."""
        ranks = len(self.ranks)
        if ranks * count > MOST_HOLES + 16 * len(self):
            return numbered(self.rank_index, key)
        kind = np.int32 if ranks * count < 1 << 31 else np.int64
        found: Indices = self.rank_index * kind(count)
        found += key
        return kept(found), ranks * count

    @cached_property
    def shape(self) -> Ints:
        """Size of an op as far as it tells classes apart: one that a rank seldom has in a step (data decides it) is none."""
        ops = self.ops
        own = np.flatnonzero((ops.kind == Kind.COMPUTE) & (ops.size >= 0) & (ops.part < 0))
        if not len(own):
            return ops.size
        name, names = numbered(ops.name[own])
        family, families = numbered(name, ops.size[own])
        if families == names:
            return ops.size
        shape: Ints = ops.size.copy()
        cell, _ = numbered(self.rank_index[own], self.window[own])
        seen = np.bincount(_firsts(family, cell), minlength=families)
        seen_by_name = np.bincount(_firsts(name, cell), minlength=names)
        shape[own[2 * seen[family] < seen_by_name[name]]] = NULL
        return kept(shape)

    @cached_property
    def aligned(self) -> Mask:
        """Whether an op's place in its step is known: ranks and steps agree on how many there are of its name and shape."""
        return self._turns[1]

    @cached_property
    def place(self) -> Indices:
        """Place of an op in its step: its micro-batch, else its turn among the ops of that name, where ranks agree on it.

        Steps of several phases (prefill, decode) have places of their own: their ops are never of one class.
        """
        nth, aligned = self._turns
        parts, phases = self.ops.part >= 0, int(self._phase.max(initial=0)) + 1
        place = np.where(parts, self.ops.part, np.where(aligned, nth, 0)) if parts.any() or not aligned.all() else nth
        return kept(place * phases + self._phase if phases > 1 else place)

    @cached_property
    def phases(self) -> list[str]:
        """Phase of each window as the marks of all ranks tell it; empty where they do not, mixed where they differ."""
        if self.stored_phases is not None:
            return list(self.stored_phases)
        marks, recorded = self.trace.marks, dict[int, set[str]]()
        for row in np.flatnonzero(marks.phase != "").tolist():
            recorded.setdefault(int(marks.step[row]), set()).add(str(marks.phase[row]))
        words = (recorded.get(step, {""}) for step in self.steps.tolist())
        return [next(iter(one)) if len(one) == 1 else MIXED for one in words]

    @cached_property
    def _phase(self) -> Ints:
        """Number of the phase in which each op's rank was in its step; 0 throughout where no two differ."""
        marks = self.trace.marks
        words = dict.fromkeys([*self.phases, *map(str, marks.phase.tolist())])
        if len(words) < 2:
            return np.broadcast_to(np.int64(0), (len(self.ops),))
        codes = {word: code for code, word in enumerate(words)}
        phase = np.array([codes[word] for word in self.phases], dtype=np.int64)[self.window]
        if len(marks):
            # The rank's own mark tells more than those of all: servers beside each other need not be in step.
            own = np.array([codes[str(word)] for word in marks.phase], dtype=np.int64)
            key = marks.step.astype(np.int64) << 32 | marks.rank
            order = np.argsort(key, kind="stable")
            mine = self.steps[self.window] << 32 | self.ops.rank
            at = np.minimum(np.searchsorted(key[order], mine), len(key) - 1)
            phase = np.where(key[order][at] == mine, own[order][at], phase)
        return numbered(phase)[0]

    @cached_property
    def _turns(self) -> tuple[Codes, Mask]:
        from taut.core.group_kernels import turn

        ops = self.ops
        family, families = coded(ops.name, self.shape, self._phase)
        cell, cells = coded(family, ops.rank, self.window)
        nth, count = turn(cell, cells)  # turns are compared only where all ranks have as many in every step
        rows = count[cell]
        agreed = (least(family, families, rows) == greatest(family, families, rows))[family] | (ops.part >= 0)
        loose = np.flatnonzero(~agreed)
        if len(loose):
            # Steps of several kinds: all ranks agree in each, and each kind recurs. A turn is then one of its kind of step.
            kinds = _recurring(family[loose], self.window[loose].astype(np.int64), rows[loose])
            nth[loose] = np.where(kinds, numbered(rows[loose], nth[loose])[0], nth[loose])
            agreed[loose] = kinds
        return kept(nth), kept(agreed)


def _narrow(values: Indices) -> Indices:
    """Indices in 32 bits; those of a damaged file that do not fit stay as they are, and are refused later."""
    fits = not len(values) or (int(values.min()) >= -(1 << 31) and int(values.max()) < 1 << 31)
    return values.astype(np.int32, copy=False) if fits else values


LEAST_STEPS = 3
"""Steps in which a kind of step must be seen."""


def _recurring(family: Indices, window: Indices, rows: Indices) -> Mask:
    """Per op: whether, of its family, all ranks have as many in every step (``rows``), and every such number recurs."""
    families = int(family.max()) + 1
    step, steps = numbered(family, window)
    low, high = least(step, steps, rows), greatest(step, steps, rows)
    of = np.zeros(steps, dtype=np.int64)
    of[step] = family
    kind, kinds = numbered(of, low)
    seldom = (np.bincount(kind, minlength=kinds)[kind] < LEAST_STEPS) | (low != high)
    return ~(np.bincount(of, weights=seldom, minlength=families) > 0)[family]


def _firsts(ids: Ints, cell: Ints) -> Ints:
    """The ids of all pairs of an id and a cell, each once."""
    pair, pairs = numbered(ids, cell)
    out = np.zeros(pairs, dtype=np.int64)
    out[pair] = ids
    return out
