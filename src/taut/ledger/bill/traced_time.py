"""Cells of a traced run → held time: the fates of each rank, step by step, each with the finding or controller behind it.

A cell tells how long a rank spent on a fate in a step, not when. Here the fates of a step lie one after the other, so that
those of all steps fill the traced time of their rank exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.ids import distinct, numbered, rows_of_ids, sums, weighed
from taut.core.reporting import FIRST_DATE_NS
from taut.core.tables import NULL, Table
from taut.ledger.bill.cut_rows import cut_at_days
from taut.ledger.bill.rows import Held
from taut.ledger.charge import FATES
from taut.result.types import Finding

STRUCTURE = "structural instability"
CONTENTION = "fabric contention"
TRANSFER = FATES.index("exposed transfer")
MENDED = ("fault wait", "slow compute")
"""Fates that the repair of a place mends."""


@dataclass(frozen=True)
class Traced:
    """What a run folder tells of traced time."""

    name: str
    """What the run is called in ``from``."""
    job: str
    cells: Table
    """``charge.Cell``."""
    members: Table
    actions: Table
    findings: Sequence[Finding]
    steps: Ints
    segment: Ints
    """Of every step, the stretch of time without a break that it belongs to."""
    origin_ns: Ints
    """When each stretch began."""
    relative: bool
    """Steps have their own time origin."""
    world_size: int | None
    opened_by: Mapping[tuple[int, int], Mapping[int, int]] | None = None
    """(rank, step) → rank that was waited for → ns, where several findings make that worth looking up."""
    joules_by: str = ""
    """Who measured the joules of its cells: counter or samples; empty where nobody did."""
    executed: int | None = None
    """Steps that the whole job made, where its logs tell."""

    @cached_property
    def dated(self) -> bool:
        """Whether its times are those of the calendar."""
        return not self.relative and len(self.origin_ns) > 0 and int(self.origin_ns.min()) >= FIRST_DATE_NS

    @cached_property
    def ranks(self) -> Ints:
        """Ranks that have cells."""
        return distinct(self.cells.rank)

    @cached_property
    def host_of(self) -> dict[int, str]:
        """Rank → host, empty if unknown."""
        return dict(zip(self.members.rank.tolist(), self.members.host.tolist(), strict=True))

    @property
    def coverage(self) -> str:
        """How much of the job was traced, in words."""
        of = f" of {self.executed:,}" if self.executed and self.executed > len(self.steps) else ""
        return f"run {self.name}: {len(self.steps):,}{of} steps"


class _Rows(Struct, frozen=True):
    """Rows of held time before they are placed: one for each rank, step, fate and cause."""

    rank: Ints
    step: Ints
    """Place in the run's steps."""
    fate: Ints
    cause: Ints
    length: Ints
    joules: Floats
    modelled: Mask
    """Whether the cause was computed, not looked up."""

    def take(self, index: Ints) -> _Rows:
        """Some of them, in another order."""
        return _Rows(*(getattr(self, name)[index] for name in self.__struct_fields__))


def traced_time(run: Traced) -> Table:
    """Rows of held time of all cells; they sum to the ledger of the run."""
    words, cause = _causes(run)
    rows = _transfers(run, _summed(run, cause), words)
    count, part = len(rows.rank), run.segment[rows.step].astype(np.int64)
    start, end = _placed(rows.rank, part, rows.length, run.origin_ns, run.dated)
    columns = {
        "job": np.full(count, run.job, dtype=object),
        "host": np.array([run.host_of.get(one, "") for one in rows.rank.tolist()], dtype=object),
        "rank": rows.rank, "accelerators": np.ones(count, dtype=np.int32), "start_ns": start, "end_ns": end,
        "rank_ns": rows.length, "fate": np.array(FATES, dtype=object)[rows.fate], "cause": words[rows.cause],
        "source": np.where(rows.modelled, "modelled", "measured").astype(object),
        "origin": np.where(rows.modelled, f"{run.coverage}, what its repair recovers", run.coverage).astype(object),
        **({"joules": rows.joules, "joules_by": np.full(count, run.joules_by, dtype=object)} if run.joules_by else {}),
    }  # fmt: skip
    return cut_at_days(Table(Held, columns, count))


def _summed(run: Traced, cause: Ints) -> _Rows:
    """Cells that share rank, step, fate and cause as one row, in this order."""
    cells = run.cells
    place = np.zeros(int(run.steps.max(initial=-1)) + 1, dtype=np.int64)
    place[run.steps] = np.arange(len(run.steps))
    step = place[cells.step]
    ids, count = numbered(cells.rank, step, cells.fate, cause)
    first = rows_of_ids(ids, count)
    return _Rows(
        cells.rank[first].astype(np.int64),
        step[first],
        cells.fate[first].astype(np.int64),
        cause[first],
        sums(ids, cells.rank_ns, count),
        weighed(ids, cells.joules, count),
        np.zeros(count, dtype=np.bool_),
    )


def _transfers(run: Traced, rows: _Rows, words: Texts) -> _Rows:
    """Exposed transfers, of which a part is traced to the slow link, or the contention, whose repair takes it away.

    A transfer over a slow link takes longer as a whole: which of its nanoseconds are too many nobody can say. The part is what
    the repair recovers of the rank time of the run, beyond the waits and the compute that are traced to it already.
    """
    code = {word: i for i, word in enumerate(words.tolist())}
    for one in run.findings:
        if not one.links and one.mode != CONTENTION:
            continue
        mine = (rows.fate == TRANSFER) & (rows.cause == 0)
        mine &= (run.steps[rows.step] >= one.steps[0]) & (run.steps[rows.step] <= one.steps[1])
        whole = int(rows.length[mine].sum())
        beside = int(rows.length[rows.cause == code[one.id]].sum())
        share = min(max(one.recoverable_wall_ns * len(run.ranks) - beside, 0) / max(whole, 1), 1.0)
        rows = _split(rows, np.flatnonzero(mine), share, code[one.id])
    return rows


def _split(rows: _Rows, some: Ints, share: float, cause: int) -> _Rows:
    """Rows in two: a share of some of them has a cause of its own."""
    part = np.floor(rows.length[some] * share).astype(np.int64)
    used = rows.joules[some] * (part / np.maximum(rows.length[some], 1))
    length, joules = rows.length.copy(), rows.joules.copy()
    length[some] -= part
    joules[some] -= used
    count = len(some)
    rank, step, fate = (np.concatenate([column, column[some]]) for column in (rows.rank, rows.step, rows.fate))
    both = _Rows(
        rank,
        step,
        fate,
        np.concatenate([rows.cause, np.full(count, cause)]),
        np.concatenate([length, part]),
        np.concatenate([joules, used]),
        np.concatenate([rows.modelled, np.ones(count, dtype=np.bool_)]),
    )
    order = np.lexsort((both.cause, both.fate, both.step, both.rank))
    return both.take(order[both.length[order] > 0])


def _placed(rank: Ints, part: Ints, length: Ints, origin_ns: Ints, dated: bool) -> tuple[Ints, Ints]:
    """Begin and end of rows in order of rank and step: one behind the other from where their stretch begins."""
    nowhen = np.full(len(rank), NULL, dtype=np.int64)
    if not dated or not len(rank):
        return nowhen, nowhen
    upto = np.cumsum(length)
    new = np.concatenate([[True], (rank[1:] != rank[:-1]) | (part[1:] != part[:-1])])
    before = (upto - length)[np.flatnonzero(new)][np.cumsum(new) - 1]
    start = origin_ns[part] + upto - length - before
    return start, start + length


def stretches(held: Table) -> tuple[Ints, Ints]:
    """Begins and ends of the time that rows of held time cover together; rows of ranks next to each other are joined."""
    timed = held.take(held.start_ns >= 0)
    order = np.argsort(timed.start_ns, kind="stable")
    start, end = timed.start_ns[order], np.maximum.accumulate(timed.end_ns[order]) if len(timed) else timed.end_ns
    if not len(start):
        return start, end
    new = np.flatnonzero(np.concatenate([[True], start[1:] > end[:-1]]))
    return start[new], end[np.append(new[1:], len(start)) - 1]


def _causes(run: Traced) -> tuple[Texts, Ints]:
    """What cells may be traced to, the first of them nothing, and which of these each cell is."""
    located = [one for one in run.findings if one.mode != STRUCTURE]
    structural = next((one for one in run.findings if one.mode == STRUCTURE), None)
    words: list[str] = ["", *(one.id for one in located)]
    cells, cause = run.cells, np.zeros(len(run.cells), dtype=np.int64)
    for fate in MENDED:
        rows = np.flatnonzero(cells.fate == FATES.index(fate))
        cause[rows] = _mended(run, located, rows, fate == "slow compute")
    if structural is not None:
        words.append(structural.id)
        cause[cells.fate == FATES.index("jitter wait")] = len(words) - 1
    decided = np.flatnonzero(cells.action >= 0)
    if len(decided) and len(run.actions):
        who = run.actions.controller[np.minimum(cells.action[decided], len(run.actions) - 1)]
        names = list(dict.fromkeys(who.tolist()))
        code = {name: len(words) + i for i, name in enumerate(names)}
        words += [name or "a controller that is not named" for name in names]
        cause[decided] = [code[name] for name in who.tolist()]
    return np.array(words, dtype=object), cause


def _mended(run: Traced, findings: Sequence[Finding], rows: Ints, own: bool) -> Ints:
    """Of cells, the finding (from 1) whose repair mends them: on its own ranks, or those that wait for them; 0 for none."""
    out = np.zeros(len(rows), dtype=np.int64)
    rank, step = run.cells.rank[rows], run.cells.step[rows]
    weight = np.zeros(len(rows), dtype=np.int64)
    for number, one in enumerate(findings, 1):
        fits = (step >= one.steps[0]) & (step <= one.steps[1])
        if own:
            fits &= np.isin(rank, one.ranks) if one.ranks else np.zeros(len(rows), dtype=bool)
        mine = np.ones(len(rows), dtype=np.int64) if own else _waited_for(run, one, rank, step)
        # The most recoverable come first, and stay where no other was waited for longer.
        better: Mask = fits & ((out == 0) | (mine > weight))
        out[better], weight[better] = number, mine[better]
    return out


def _waited_for(run: Traced, finding: Finding, rank: Ints, step: Ints) -> Ints:
    """How long each rank waited in each step for the ranks of a finding, ns; 0 where that is not known."""
    if run.opened_by is None:
        return np.zeros(len(rank), dtype=np.int64)
    blamed = {*finding.ranks, *(int(end) for link in finding.links for end in link.split(":"))}
    known = {key: sum(ns for opener, ns in openers.items() if opener in blamed) for key, openers in run.opened_by.items()}
    return np.array([known.get(key, 0) for key in zip(rank.tolist(), step.tolist(), strict=True)], dtype=np.int64)
