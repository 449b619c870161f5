"""The ledger: every rank-nanosecond has one fate and one cause; integers; they sum to ranks × wall.

A rank has many lanes; which of them counts at each nanosecond is in ``replay/exposed.py``. What hides under compute is not
in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from msgspec import Struct, field, structs

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.group_kernels import add_at, table_totals
from taut.core.ids import coded, numbered, positions, sums, taken, total, weighed
from taut.core.prices import MONEY_UNIT, Prices, amount
from taut.core.row_shares import over_rows
from taut.core.scratch import kept
from taut.core.tables import NULL, Kind, Table, col, narrowest
from taut.diagnose.job_indices import StepEnergy
from taut.graph import Graph
from taut.ledger.fitted_watts import STATES
from taut.ledger.state_power import split_watts
from taut.replay.blame import PARTS, AtSome, Blame, WaitTotals
from taut.replay.exposed import Exposed, copies, exposed
from taut.replay.timeline import Timeline
from taut.result.types import LedgerEnergy, LedgerEntry

if TYPE_CHECKING:
    from taut.ledger.cell_energy import CellEnergy
    from taut.ledger.overhead import Overhead


class Cell:
    """Rank-time of one fate on one rank in one step."""

    rank: int = col("int32", "participant")
    step: int = col("int32", "iteration of the outer loop")
    fate: int = col("int8", "index into ledger.CATEGORIES", 0)
    name: int = col("int32", "index into Graph.names: class of the op that holds the time, or that it waited before")
    rank_ns: int = col("int64", "time on the wall of this rank, ns", 0)
    action: int = col("int64", "row of the action that took it, where a controller did; -1 for none")
    joules: float = col(
        "float64", "energy, J: measured and divided among fates, else by watts that were given; NaN if unknown", np.nan
    )


class Sources(dict[str, Ints]):
    """Time around every op by its source; parts of waits, which few ops have, are made for all ops only where asked."""

    def __init__(self, of_all: Mapping[str, Ints], waits: Mapping[str, AtSome], count: int) -> None:
        super().__init__(of_all)
        self.waits, self.count = waits, count

    def __missing__(self, part: str) -> Ints:
        return self.waits[part].of_all(self.count)


class Context(Struct, frozen=True, dict=True):
    """What a claim may look at: the graph, and the exposed time around each op, ns."""

    graph: Graph
    blame: Blame
    time: Sources
    """Exposed time per op by its source: ``work``, ``idle`` before it, each part of its wait, and what controllers took."""
    overhead: Overhead | None = None
    """What controllers took: it is in none of the other sources."""
    rows: slice = field(default_factory=lambda: slice(None))
    """The ops that are looked at, of all."""
    whole: Context | None = None
    """The same of all ops, where these are some of them."""

    def part(self, rows: slice) -> Context:
        """The same of some ops in a row."""
        waits = {}
        for name, some in self.time.waits.items():
            mine = slice(*np.searchsorted(some.ops, (rows.start, rows.stop)))
            waits[name] = AtSome(some.ops[mine] - rows.start, some.ns[mine])
        graph = self.graph.part(rows)
        time = Sources({name: ns[rows].astype(np.int64) for name, ns in self.time.items()}, waits, len(graph))
        return structs.replace(self, graph=graph, time=time, rows=rows, whole=self)

    @cached_property
    def slow(self) -> Ints:
        """Exposed compute above its reference."""
        work, reference = self.time["work"], self.blame.peers.value_ns[self.rows]
        rows = np.flatnonzero((self.graph.ops.kind == Kind.COMPUTE) & (self.graph.work_ns > reference) & (work > 0))
        took = self.graph.work_ns[rows]
        share = np.minimum((took - reference[rows]) / np.maximum(took, 1), 1)
        out = np.zeros(len(self.graph), dtype=np.int64)
        slow = np.floor(work[rows] * share).astype(np.int64)
        out[rows] = np.minimum(slow, work[rows])  # floats round up beyond 2⁵³ ns
        return out

    @cached_property
    def uncalled(self) -> Mask:
        """Ops before which the rank was free for other requests: a call from another rank had not come yet."""
        ops = self.graph.ops
        if not self.graph.trace.waits_recorded:
            return np.zeros(len(ops), dtype=bool)
        if self.whole is not None:
            return self.whole.uncalled[self.rows]
        return np.asarray((ops.launch >= 0) & (ops.rank[ops.launch] != ops.rank))

    def work(self, mask: Mask) -> dict[str, Ints | AtSome]:
        """The exposed work of some ops."""
        return {"work": np.where(mask, self.time["work"], 0)} if mask.any() else {}


Claim: TypeAlias = Callable[[Context], Mapping[str, Ints | AtSome]]
"""What a fate claims of each source of time (see ``Context.time``), ns per op."""


class Category(Struct, frozen=True):
    """One fate: what it is called, how much power a rank draws meanwhile, and which time it claims."""

    fate: str
    power: Literal["load", "stall", "idle"]
    claim: Claim


def _source(name: str) -> Claim:
    """A claim of one source of time, whatever the op."""
    return lambda c: {name: source} if (source := c.time.waits.get(name, c.time.get(name))) is not None else {}


def _nothing(_: Context) -> dict[str, Ints | AtSome]:
    return {}


def _productive(c: Context) -> dict[str, Ints | AtSome]:
    return {"work": np.where(c.graph.ops.kind == Kind.COMPUTE, c.time["work"], 0) - c.slow}


def _meets(c: Context) -> Mask:
    return np.isin(c.graph.ops.kind, (Kind.COMMUNICATE, Kind.SYNCHRONISE))


def _host(c: Context) -> dict[str, Ints | AtSome]:
    idle = np.where(c.uncalled, 0, c.time["idle"]) if c.graph.trace.waits_recorded else c.time["idle"]
    return {**c.work(c.graph.ops.kind == Kind.COORDINATE), "idle": idle, "gap_ns": c.time.waits["gap_ns"]}


CATEGORIES: tuple[Category, ...] = (
    Category("productive", "load", _productive),
    Category("slow compute", "load", lambda c: {"work": c.slow}),
    Category("exposed copy", "stall", lambda c: c.work(copies(c.graph))),
    Category("exposed transfer", "stall", lambda c: c.work(_meets(c) & (c.graph.gate >= 0))),
    Category("communication undivided", "stall", lambda c: c.work(_meets(c) & (c.graph.gate < 0))),
    Category("fault wait", "stall", _source("fault_ns")),
    Category("jitter wait", "stall", _source("jitter_ns")),
    Category("structural wait", "stall", _source("structural_ns")),
    Category("gap", "idle", _host),
    Category("unexplained", "idle", _source("unexplained_ns")),
    Category("unobserved", "idle", _nothing),
    Category("idle", "idle", _source("idle")),
    Category("control overhead", "idle", _source("control")),
    Category("discarded", "load", _source("discarded")),
)
"""All fates, in the order in which they claim: of each source of time the first claim wins, and what nobody claims is
unexplained. Everything else names a fate by its word, so a new line may stand anywhere."""
FATES = tuple(one.fate for one in CATEGORIES)
IN_GATES = {"gap": "gap_ns", "unexplained": "unexplained_ns"}
"""Fates of ranks that do nothing, and the source of what of their time is a wait inside a gate: for the gap of another."""
AVOIDABLE = ("slow compute", "fault wait", "jitter wait")
"""Fates that a job with every op at its reference does not have."""


Claims: TypeAlias = dict[tuple[str, str], list[AtSome]]
"""What a fate got, by it and, of what nobody claimed, by its source."""
PART = 1 << 16
"""Ops whose time is claimed at once."""
CELLS = 1 << 17
"""Cells that are looked at at once."""
HOUR_NS = Decimal(3_600_000_000_000)
"""An hour in ns."""


class Ledger(Struct, frozen=True, dict=True):
    """Cells and their sums."""

    cells: Table
    total_rank_ns: int
    hidden_wait_rank_ns: int
    """Gate wait that hid under compute or transfer: not in the cells."""
    prices: Prices
    waits: Table
    """All waits and their parts as they were booked, hidden ones too."""
    wait_parts: WaitTotals
    """Their sums, rank-ns."""
    overhead: Overhead | None = None
    """What controllers took, where the trace has actions."""
    categories: tuple[Category, ...] = CATEGORIES
    """The fates that the codes of the cells stand for."""
    energy_told: LedgerEnergy | None = None
    """Who tells the joules of the cells; None where nobody does."""

    @cached_property
    def by_fate(self) -> dict[str, int]:
        """Rank-ns per fate, every fate listed."""
        found = [0] * len(self.categories)
        for some in self.cells.parts(CELLS):
            fate, ns = some.fate, some.rank_ns
            if len(ns) * int(ns.max(initial=0)) < 1 << 63:  # then every sum fits
                part = sums(fate, ns, len(found)).tolist()
            else:
                part = [total(ns[fate == i]) for i in range(len(found))]
            found = [one + more for one, more in zip(found, part, strict=True)]
        return dict(zip([one.fate for one in self.categories], found, strict=True))

    def by_rank(self, ranks: Ints) -> Ints:
        """Rank-ns by rank and fate."""
        return self._by("rank", ranks)

    def by_step(self, steps: Ints) -> Ints:
        """Rank-ns by step and fate."""
        return self._by("step", steps)

    def _by(self, column: str, labels: Ints) -> Ints:
        fates = len(self.categories)
        found = np.zeros(len(labels) * fates, dtype=np.int64)
        for some in self.cells.parts(CELLS):
            at = positions(labels, some.columns[column])
            found += table_totals(at, len(labels), some.fate, fates, some.rank_ns)
        return found.reshape(len(labels), fates)

    @property
    def closes(self) -> bool:
        """True when the cells sum to ranks × wall exactly."""
        return sum(self.by_fate.values()) == self.total_rank_ns

    @property
    def energy_known(self) -> bool:
        """Whether every cell has joules."""
        return self.energy_told is not None and self.energy_told.joules is not None

    def _joules(self) -> list[float | None]:
        """Joules of every fate."""
        if not self.energy_known:
            return [None] * len(self.categories)
        watts = self.prices.watts
        if watts is not None and self.energy_told is not None and not self.energy_told.coverage:
            return [self.by_fate[one.fate] * 1e-9 * watts[one.power] for one in self.categories]
        return [float(one) for one in weighed(self.cells.fate, self.cells.joules, len(self.categories))]

    def entries(self) -> list[LedgerEntry]:
        """One line per fate: rank-ns, joules, money, carbon; money closes to the total to the last digit."""
        money, carbon = spread(self.prices.base_rate, list(self.by_fate.values())), self.prices.kg_co2e_per_kwh
        out = []
        for one, cost, joules in zip(self.categories, money, self._joules(), strict=True):
            kg = None if joules is None or carbon is None else joules / 3.6e6 * carbon
            out.append(LedgerEntry(fate=one.fate, rank_ns=self.by_fate[one.fate], joules=joules, money=cost, kg_co2e=kg))
        return out

    def energy(self, steps: Ints) -> StepEnergy | None:
        """Joules of every step, and of what of it remains where every op takes its reference; None where they are unknown."""
        if not self.energy_known:
            return None
        stays = np.array([one.fate not in AVOIDABLE for one in self.categories])[self.cells.fate]
        joules, at = self.cells.joules, positions(steps, self.cells.step)
        return StepEnergy(weighed(at, joules, len(steps)), weighed(at, joules * stays, len(steps)))

    def price(self, rank_ns: int) -> str | None:
        """Money for some rank-time, six decimals."""
        rate = self.prices.base_rate
        return None if rate is None else amount(rate * rank_ns / HOUR_NS)


def spread(gpu_hour: Decimal | None, rank_ns: list[int]) -> list[str | None]:
    """Money for parts of some rank time, six decimals; by largest remainder the parts sum to the rounded total."""
    if gpu_hour is None:
        return [None] * len(rank_ns)
    exact = [gpu_hour * ns / HOUR_NS / MONEY_UNIT for ns in rank_ns]
    floor = [int(x) for x in exact]
    # Units that rounding down lost go to the lines with the largest remainders.
    short = int(sum(exact, Decimal(0)).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)) - sum(floor)
    for i in sorted(range(len(exact)), key=lambda i: (floor[i] - exact[i], i))[:short]:
        floor[i] += 1
    return [amount(Decimal(x) * MONEY_UNIT) for x in floor]


def charge(
    graph: Graph,
    observed: Timeline,
    blame: Blame,
    prices: Prices | None = None,
    categories: tuple[Category, ...] | None = None,
    shown: Exposed | None = None,
) -> Ledger:
    """Give every rank-nanosecond of the observed timeline its fate: one of CATEGORIES, unless others are given.

    ``shown`` is the exposed time of its ops, where it is known already.
    """
    categories = categories or CATEGORIES
    shown = shown or exposed(graph, observed)
    waits, count = _exposed_parts(blame, shown.waiting), len(graph)
    context = Context(graph, blame, Sources({"work": shown.working, "idle": shown.idle}, waits, count))
    if len(graph.trace.actions):
        context = _controlled(context, observed, shown)
    claims = _claims(context, categories)
    hidden = blame.totals.wait_ns - total(shown.waiting)
    # What claims hold of a large job is not held twice.
    nothing = np.zeros(0, dtype=np.int32)
    shown = structs.replace(shown, working=nothing, waiting=nothing, idle=nothing)
    context = structs.replace(context, time=Sources({}, context.time.waits, count))
    cells = _cells(context, claims, shown, categories)
    whole = total(shown.stop) * len(graph.ranks)
    prices = prices or Prices()
    told = _energy(context, cells, categories, prices)
    if told is not None:
        cells = cells.replace(joules=told.joules)
    result = None if told is None else told.result
    return Ledger(cells, whole, hidden, prices, blame.waits, blame.totals, context.overhead, categories, result)


def _energy(c: Context, cells: Table, categories: tuple[Category, ...], prices: Prices) -> CellEnergy | None:
    """Joules of the cells, as measured beside the run or by watts that were given."""
    graph = c.graph
    if not len(graph.trace.metrics) and not split_watts(prices)[1]:
        return None
    from taut.ledger.cell_energy import cell_energy

    rank, window = np.searchsorted(graph.ranks, cells.rank), np.searchsorted(graph.steps, cells.step)
    waited = np.zeros(len(cells), dtype=np.int64)
    for i, one in enumerate(categories):
        if one.fate in IN_GATES and len(graph.trace.metrics):
            mine = np.flatnonzero(cells.fate == i)
            waited[mine] = _of_classes(c, c.time.waits[IN_GATES[one.fate]], rank[mine], window[mine], cells.name[mine])
    waited = np.minimum(waited, cells.rank_ns)
    state = np.array([STATES.index(one.power) for one in categories], np.int64)[cells.fate]
    return cell_energy(graph, rank * len(graph.steps) + window, cells.rank_ns, waited, state, prices)


def _of_classes(c: Context, waits: AtSome, rank: Ints, window: Ints, name: Ints) -> Ints:
    """Sums of some time around ops over their rank, window and class, for each of some cells."""
    graph, some, ns = c.graph, waits.ops, waits.ns
    keys = (graph.rank_index[some], graph.window[some], graph.ops.name[some])
    group, count = numbered(*(np.concatenate([one, other]) for one, other in zip(keys, (rank, window, name), strict=True)))
    return sums(group[: len(some)], ns, count)[group[len(some) :]]


def _controlled(c: Context, observed: Timeline, shown: Exposed) -> Context:
    """The same with what controllers took as sources of their own."""
    from taut.ledger.overhead import overhead

    time, gap = c.time, c.time.waits["gap_ns"]
    found = overhead(c.graph, observed, c.blame, shown, np.where(c.uncalled, time["idle"], 0), time["gap_ns"])
    own = {
        "work": time["work"] - found.own_ns - found.discarded_ns,
        "idle": time["idle"] - found.pause_ns,
        "control": found.ns,
        "discarded": found.discarded_ns,
    }
    waits = {**time.waits, "gap_ns": AtSome(gap.ops, gap.ns - found.wait_ns[gap.ops])}
    return structs.replace(c, time=Sources(own, waits, time.count), overhead=found)


def _exposed_parts(blame: Blame, waiting: Indices) -> dict[str, AtSome]:
    """The exposed part of every wait, split as the whole wait is; cumulative rounding leaves no remainder."""
    waits = blame.waits
    shown = waiting[waits.op].astype(np.int64)
    whole = np.maximum(waits.wait_ns, 1).astype(np.float64)
    out, running, given = {}, np.zeros(len(waits)), np.zeros(len(waits), dtype=np.int64)
    for part in PARTS:
        # Running sums are rounded, not parts: what one part loses the next one gets.
        running = running + waits.columns[part]
        upto = np.floor(shown.astype(np.float64) * (running / whole) + 1e-9).astype(np.int64)
        upto = shown if part == PARTS[-1] else np.minimum(upto, shown)  # floats round up beyond 2⁵³ ns
        out[part] = AtSome(waits.op, upto - given)
        given = upto
    return out


def _claimed(c: Context, categories: tuple[Category, ...]) -> Iterator[tuple[str, str, Ints | AtSome]]:
    """Every fate with what it gets of the time around each op, ns: of each source the first claim wins.

    What nobody claims is unexplained, source by source, which are named.
    """
    left: dict[str, Ints | AtSome] = {**c.time, **c.time.waits}
    for one in categories:
        yield one.fate, "", _taken(one.claim(c), left, c.time.count)
    for source, rest in left.items():
        yield "unexplained", source, rest


def _taken(claims: Mapping[str, Ints | AtSome], left: dict[str, Ints | AtSome], count: int) -> Ints | AtSome:
    """What a fate gets of all sources that it claims, ns per op, and takes out of what is left; empty if it gets nothing."""
    taken: list[Ints | AtSome] = []
    for source, claim in claims.items():
        rest = left.pop(source, None)
        if rest is None:
            continue  # fates before took all of it
        if claim is rest:  # a whole source changes hands, without arithmetic: most claims are of this kind
            taken.append(claim)
            continue
        there = _of_all(rest, count)
        part = np.minimum(_of_all(claim, count), there)
        left[source] = there - part
        taken.append(part)
    some = [one for one in taken if isinstance(one, AtSome) or one.any()]
    if len(some) == 1:
        return some[0]
    return reduce(np.add, [_of_all(one, count) for one in some]) if some else np.zeros(0, dtype=np.int64)


def _of_all(time: Ints | AtSome, count: int) -> Ints:
    """Time around each of so many ops."""
    return time.of_all(count) if isinstance(time, AtSome) else time


def _grouped(*keys: Indices) -> tuple[Codes, Codes]:
    """The group of each op that has the same keys, and one op of each group."""
    cell, cells = coded(*keys)
    member = np.zeros(cells, dtype=np.int32)
    member[cell] = np.arange(len(cell), dtype=np.int32)
    return cell, kept(member)


def _claims(c: Context, categories: tuple[Category, ...]) -> Claims:
    """What every fate gets, and what is left of a source, made for some ops at a time: temporaries are small.

    In the order in which fates claim.
    """
    out: Claims = {(one.fate, ""): [] for one in categories}
    for told in over_rows(lambda share: list(_claims_of(c, categories, share)), c.time.count):
        for key, some in told:
            out.setdefault(key, []).append(some)
    return {key: some for key, some in out.items() if some}


def _claims_of(c: Context, categories: tuple[Category, ...], share: slice) -> Iterator[tuple[tuple[str, str], AtSome]]:
    """The same of a share of the ops, one after the other."""
    for first in range(share.start, share.stop, PART):
        part = c.part(slice(first, min(first + PART, share.stop)))
        for fate, source, ns in _claimed(part, categories):
            at = np.flatnonzero(ns.ns if isinstance(ns, AtSome) else ns)
            if len(at):
                some = (ns.ops[at], ns.ns[at]) if isinstance(ns, AtSome) else (at, ns[at])
                ops, held = (some[0] + first).astype(np.int32), narrowest(some[1])
                yield (fate, source), AtSome(kept(ops), kept(held))


def _claimed_rows(c: Context, claims: Claims, code: Mapping[str, int]) -> list[list[Indices]]:
    """Columns of the cells of every fate that claims any time: rank, step, fate, class, ns, action; claims are emptied."""
    graph = c.graph
    actions = {} if c.overhead is None else {"control overhead": c.overhead.action, "discarded": c.overhead.attempt}
    rows: list[list[Indices]] = []
    by_class = _grouped(graph.rank_index, graph.window, graph.ops.name)
    steps = graph.steps.astype(np.int32)
    ids = [narrowest(taken(one, by_class[1])) for one in (graph.ops.rank, graph.window, graph.ops.name)]
    ids[1] = narrowest(steps)[ids[1]]
    of_classes = kept(np.zeros(len(by_class[1]), dtype=np.int64))
    for fate, source in list(claims):
        cell, member = _grouped(by_class[0], actions[fate]) if fate in actions else by_class
        summed = kept(np.zeros(len(member), dtype=np.int64)) if fate in actions else of_classes
        for some in claims.pop((fate, source)):
            add_at(summed, cell, some.ops, some.ns.astype(np.int64, copy=False))
        used = np.flatnonzero(summed).astype(np.int32)
        ns, fates = kept(narrowest(taken(summed, used))), np.broadcast_to(np.int8(code[fate]), len(used))
        summed[:] = 0  # of classes it serves the next fate
        action = np.broadcast_to(np.int64(NULL), len(used))
        if fate in actions:
            member = member[used]
            used, action = by_class[0][member], actions[fate][member]
        rank, step, name = (kept(taken(one, used)) for one in ids)
        rows.append([rank, step, fates, name, ns, action])
    return rows


def _cells(c: Context, claims: Claims, shown: Exposed, categories: tuple[Category, ...]) -> Table:
    """One row per rank, step, fate and class of op (and action, where a controller took the time)."""
    graph, ranks = c.graph, len(c.graph.ranks)
    code = {one.fate: i for i, one in enumerate(categories)}
    rows = _claimed_rows(c, claims, code)
    over = np.flatnonzero(shown.tail)
    if len(over):
        last_window = np.zeros(len(shown.stop), dtype=np.int64)
        last_window[graph.segment] = np.arange(len(graph.segment))
        # A rank without any op in a segment was not observed; after its last op nothing explains its time.
        absent = (shown.begin[:-1] == shown.begin[1:])[over]
        fates = np.where(absent, code["unobserved"], code["unexplained"])
        if graph.trace.waits_recorded:  # a service that a request does not need, or needs no more, is free for others
            fates = np.full(len(over), code["idle"])
        nameless, step = np.full(len(over), NULL, np.int32), graph.steps[last_window[over // ranks]].astype(np.int32)
        rows.append([graph.ranks[over % ranks], step, fates.astype(np.int8), nameless, shown.tail[over], nameless])
    if not rows:
        return Table(Cell, {}, 0)

    def joined(i: int) -> Indices:
        out = np.concatenate([narrowest(row[i]) for row in rows])
        for row in rows:  # the parts are let go one column after the other
            row[i] = row[i][:0].copy()
        return out

    columns = {"rank": joined(0), "step": joined(1), "fate": joined(2), "name": joined(3), "rank_ns": joined(4)}
    columns |= {} if c.overhead is None else {"action": joined(5)}
    return Table(Cell, columns, narrow=columns)  # more cells than ops: they take less memory so
