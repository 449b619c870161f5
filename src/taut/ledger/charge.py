"""The ledger: every rank-nanosecond has one fate and one cause; integers; they sum to ranks × wall.

A rank has many lanes; which of them counts at each nanosecond is in ``replay/exposed.py``. What hides under compute is not
in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.core.ids import numbered, sums, total
from taut.core.tables import NULL, Kind, Table, col
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.exposed import Exposed, exposed
from taut.replay.timeline import Timeline

if TYPE_CHECKING:
    from taut.ledger.overhead import Overhead


@dataclass(frozen=True)
class Cell:
    """Rank-time of one fate on one rank in one step."""

    rank: int = col("int32", "participant")
    step: int = col("int32", "iteration of the outer loop")
    fate: int = col("int8", "index into ledger.CATEGORIES", 0)
    name: int = col("int32", "index into Graph.names: class of the op that holds the time, or that it waited before")
    rank_ns: int = col("int64", "time on the wall of this rank, ns", 0)
    action: int = col("int64", "row of the action that took it, where a controller did; -1 for none")


@dataclass(frozen=True)
class Context:
    """What a claim may look at: exposed time per op, and how its wait was split."""

    graph: Graph
    blame: Blame
    working: Any
    waiting: Any
    idle: Any
    parts: dict[str, Any]
    """Exposed wait per op, by part of the wait."""
    overhead: Overhead | None = None
    """What controllers took: it is in none of the others."""

    @cached_property
    def slow(self) -> Any:
        """Exposed compute above its reference."""
        over = (self.graph.ops.kind == Kind.COMPUTE) & (self.blame.excess_ns > 0) & (self.working > 0)
        rows = np.flatnonzero(over)
        share = np.minimum(self.blame.excess_ns[rows] / np.maximum(self.graph.work_ns[rows], 1), 1)
        out = np.zeros(len(self.graph), dtype=np.int64)
        slow = np.floor(self.working[rows] * share).astype(np.int64)
        out[rows] = np.minimum(slow, self.working[rows])  # floats round up beyond 2⁵³ ns
        return out


def _productive(c: Context) -> Any:
    return np.where(c.graph.ops.kind == Kind.COMPUTE, c.working, 0) - c.slow


def _meets(c: Context) -> Any:
    return np.isin(c.graph.ops.kind, (Kind.COMMUNICATE, Kind.SYNCHRONISE))


def _transfer(c: Context) -> Any:
    return np.where(_meets(c) & (c.graph.gate >= 0), c.working, 0)


def _undivided(c: Context) -> Any:
    return np.where(_meets(c) & (c.graph.gate < 0), c.working, 0)


def _idle(c: Context) -> Any:
    """Time before a call from another rank came: the rank was free for other requests."""
    ops = c.graph.ops
    called = (ops.launch >= 0) & (ops.rank[ops.launch] != ops.rank)
    return np.where(called & c.graph.trace.told, c.idle, 0)


def _host(c: Context) -> Any:
    return np.where(c.graph.ops.kind == Kind.COORDINATE, c.working, 0) + c.idle - _idle(c) + c.parts["gap_ns"]


CATEGORIES: tuple[tuple[str, Callable[[Context], Any]], ...] = (
    ("productive", _productive),
    ("slow compute", lambda c: c.slow),
    ("exposed transfer", _transfer),
    ("communication undivided", _undivided),
    ("fault wait", lambda c: c.parts["fault_ns"]),
    ("jitter wait", lambda c: c.parts["jitter_ns"]),
    ("structural wait", lambda c: c.parts["structural_ns"]),
    ("gap", _host),
    ("unexplained", lambda c: c.parts["unexplained_ns"]),
    ("unobserved", lambda c: np.zeros(len(c.graph), dtype=np.int64)),
    ("idle", _idle),
    ("control overhead", lambda c: np.zeros(len(c.graph), dtype=np.int64) if c.overhead is None else c.overhead.ns),
    ("discarded", lambda c: np.zeros(len(c.graph), dtype=np.int64) if c.overhead is None else c.overhead.discarded_ns),
)
FATES = tuple(name for name, _ in CATEGORIES)
CONTROL, DISCARDED = FATES.index("control overhead"), FATES.index("discarded")
AVOIDABLE = tuple(FATES.index(fate) for fate in ("slow compute", "fault wait", "jitter wait"))
"""Fates that a job with every op at its reference does not have."""
LOAD, STALL, IDLE = (0, 1, 12), (2, 3, 4, 5, 6), (7, 8, 9, 10, 11)


@dataclass(frozen=True)
class Prices:
    """Rates given by the user; what is None stays unpriced."""

    gpu_hour: Decimal | None = None
    currency: str | None = None
    load_w: float | None = None
    stall_w: float | None = None
    idle_w: float | None = None
    kg_co2e_per_kwh: float | None = None
    tokens_in: Decimal | None = None
    """Price of a million tokens read."""
    tokens_out: Decimal | None = None
    """Price of a million tokens written."""
    token_currency: str | None = None

    def tokens(self, read: int | None, written: int | None) -> str | None:
        """Money for some tokens, six decimals; None without a price or without a count."""
        if self.tokens_in is None or self.tokens_out is None or (read is None and written is None):
            return None
        value = (self.tokens_in * (read or 0) + self.tokens_out * (written or 0)) / 1_000_000
        return str(value.quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN))

    def watts(self, fate: int) -> float | None:
        """Power of a rank while it lives this fate."""
        if self.load_w is None:
            return None
        stall = self.load_w if self.stall_w is None else self.stall_w
        idle = stall if self.idle_w is None else self.idle_w
        return self.load_w if fate in LOAD else stall if fate in STALL else idle


@dataclass(frozen=True)
class Ledger:
    """Cells and their sums."""

    cells: Table
    total_rank_ns: int
    hidden_wait_rank_ns: int
    """Gate wait that hid under compute or transfer: not in the cells."""
    prices: Prices
    overhead: Overhead | None = None
    """What controllers took, where the trace has actions."""

    @cached_property
    def by_fate(self) -> dict[str, int]:
        """Rank-ns per fate, every fate listed."""
        return {name: total(self.cells.rank_ns[self.cells.fate == i]) for i, name in enumerate(FATES)}

    @property
    def closes(self) -> bool:
        """True when the cells sum to ranks × wall exactly."""
        return sum(self.by_fate.values()) == self.total_rank_ns

    def entries(self) -> list[dict[str, Any]]:
        """One line per fate: rank-ns, joules, money, carbon; money closes to the total to the last digit."""
        money = spread(self.prices.gpu_hour, list(self.by_fate.values()))
        out = []
        for i, (fate, rank_ns) in enumerate(self.by_fate.items()):
            watts = self.prices.watts(i)
            joules = None if watts is None else rank_ns * 1e-9 * watts
            carbon = self.prices.kg_co2e_per_kwh
            kg = None if joules is None or carbon is None else joules / 3.6e6 * carbon
            out.append({"fate": fate, "rank_ns": rank_ns, "joules": joules, "money": money[i], "kg_co2e": kg})
        return out

    def joules_by_step(self, steps: Any) -> tuple[Any, Any]:
        """Joules of every step, and of what of it remains where every op takes its reference; None without power."""
        if self.prices.load_w is None:
            return None, None
        watts = np.array([self.prices.watts(fate) for fate in range(len(FATES))])
        joules = self.cells.rank_ns * 1e-9 * watts[self.cells.fate]
        at, stays = np.searchsorted(steps, self.cells.step), ~np.isin(self.cells.fate, AVOIDABLE)
        both = (np.bincount(at, weights=joules * part, minlength=len(steps)) for part in (1, stays))
        return next(both), next(both)

    def price(self, rank_ns: int) -> str | None:
        """Money for some rank-time, six decimals."""
        if self.prices.gpu_hour is None:
            return None
        value = self.prices.gpu_hour * rank_ns / Decimal(3_600_000_000_000)
        return str(value.quantize(Decimal("0.000001"), rounding=ROUND_HALF_EVEN))


def spread(gpu_hour: Decimal | None, rank_ns: list[int]) -> list[str | None]:
    """Money for parts of some rank time, six decimals; by largest remainder the parts sum to the rounded total."""
    if gpu_hour is None:
        return [None] * len(rank_ns)
    unit = Decimal("0.000001")
    exact = [gpu_hour * ns / Decimal(3_600_000_000_000) / unit for ns in rank_ns]
    floor = [int(x) for x in exact]
    short = int(sum(exact, Decimal(0)).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)) - sum(floor)
    for i in sorted(range(len(exact)), key=lambda i: (floor[i] - exact[i], i))[:short]:
        floor[i] += 1
    return [str((Decimal(x) * unit).quantize(unit)) for x in floor]


def charge(graph: Graph, observed: Timeline, blame: Blame, prices: Prices | None = None) -> Ledger:
    """Give every rank-nanosecond of the observed timeline its fate."""
    shown = exposed(graph, observed)
    context = Context(graph, blame, shown.working, shown.waiting, shown.idle, _exposed_parts(blame, shown.waiting))
    if len(graph.trace.actions):
        context = _controlled(context, observed, shown)
    cells = _cells(context, shown.tail, shown.begin, len(shown.stop))
    hidden = blame.totals["wait_ns"] - total(shown.waiting)
    return Ledger(cells, total(shown.stop) * len(graph.ranks), hidden, prices or Prices(), context.overhead)


def _controlled(c: Context, observed: Timeline, shown: Exposed) -> Context:
    """The same with what controllers took taken out of everything else."""
    from taut.ledger.overhead import overhead

    found = overhead(c.graph, observed, c.blame, shown, _idle(c), c.parts["gap_ns"])
    return replace(
        c, working=c.working - found.own_ns - found.discarded_ns, idle=c.idle - found.pause_ns, overhead=found,
        parts={**c.parts, "gap_ns": c.parts["gap_ns"] - found.wait_ns},
    )  # fmt: skip


def _exposed_parts(blame: Blame, waiting: Any) -> dict[str, Any]:
    """The exposed part of every wait, split as the whole wait is; cumulative rounding leaves no remainder."""
    from taut.replay.blame import PARTS

    waits = blame.waits
    exposed = waiting[waits.op].astype(np.float64)
    whole = np.maximum(waits.wait_ns, 1).astype(np.float64)
    out, running, given = {}, np.zeros(len(waits)), np.zeros(len(waits), dtype=np.int64)
    for part in PARTS:
        running = running + waits.columns[part]
        upto = np.floor(exposed * (running / whole) + 1e-9).astype(np.int64)
        upto = np.minimum(upto, waiting[waits.op])  # floats round up beyond 2⁵³ ns
        if part == PARTS[-1]:
            upto = waiting[waits.op]
        out[part] = np.zeros(len(waiting), dtype=np.int64)
        out[part][waits.op] = upto - given
        given = upto
    return out


def _cells(context: Context, tail: Any, begin: Any, segments: int) -> Table:
    graph = context.graph
    ranks = len(graph.ranks)
    index = graph.rank_index
    rows: list[tuple[Any, ...]] = []
    cell, cells = numbered(index, graph.window, graph.ops.name)
    member = np.zeros(cells, dtype=np.int64)
    member[cell] = np.arange(len(graph))
    for fate, (_, claim) in enumerate(CATEGORIES):
        ns = claim(context)
        if not ns.any():
            continue
        mine, count, some, action = cell, cells, member, np.int64(NULL)
        if fate in (CONTROL, DISCARDED) and context.overhead is not None:
            action = context.overhead.action if fate == CONTROL else context.overhead.attempt
            mine, count = numbered(cell, action)
            some = np.zeros(count, dtype=np.int64)
            some[mine] = np.arange(len(graph))
        summed = sums(mine, ns, count)
        used = np.flatnonzero(summed)
        first = some[used]
        rows.append(
            (
                index[first],
                graph.window[first],
                fate,
                graph.ops.name[first],
                summed[used],
                np.broadcast_to(action, len(graph))[first],
            )
        )
    last_window = np.zeros(segments, dtype=np.int64)
    last_window[graph.segment] = np.arange(len(graph.segment))
    # A service that a request does not need, or needs no more, is free for others.
    over, absent = np.flatnonzero(tail), begin[:-1] == begin[1:]
    fates = np.where(absent[over], FATES.index("unobserved"), FATES.index("unexplained"))
    fates = np.full(len(over), FATES.index("idle")) if graph.trace.told else fates
    if len(over):
        rows.append(
            (over % ranks, last_window[over // ranks], fates, np.full(len(over), -1), tail[over], np.full(len(over), NULL))
        )
    if not rows:
        return Table(Cell, {}, 0)
    return Table(
        Cell,
        {
            "rank": graph.ranks[np.concatenate([r[0] for r in rows])],
            "step": graph.steps[np.concatenate([r[1] for r in rows])],
            "fate": np.concatenate([np.broadcast_to(r[2], len(r[0])) for r in rows]),
            "name": np.concatenate([r[3] for r in rows]),
            "rank_ns": np.concatenate([r[4] for r in rows]),
            **({"action": np.concatenate([r[5] for r in rows])} if context.overhead is not None else {}),
        },
    )
