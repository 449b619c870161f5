"""Cells of a traced run → held time: the fates of each rank, step by step, each with the finding or controller behind it.

A cell tells how long a rank spent on a fate in a step, not when. Here the fates of a step lie one after the other, so that
those of all steps fill the traced time of their rank exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.ids import numbered, sums, weighed
from taut.core.reporting import FIRST_DATE_NS
from taut.core.tables import NULL, Table
from taut.ledger.bill.cut_rows import cut_at_days
from taut.ledger.bill.rows import Held
from taut.ledger.charge import FATES
from taut.result.types import Finding

STRUCTURE = "structural instability"
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
        return np.unique(self.cells.rank)

    @cached_property
    def host_of(self) -> dict[int, str]:
        """Rank → host, empty if unknown."""
        return dict(zip(self.members.rank.tolist(), self.members.host.tolist(), strict=True))

    @property
    def told(self) -> str:
        """How much of the job was traced, in words."""
        of = f" of {self.executed:,}" if self.executed and self.executed > len(self.steps) else ""
        return f"run {self.name}: {len(self.steps):,}{of} steps"


def traced_time(run: Traced) -> Table:
    """Rows of held time of all cells; they sum to the ledger of the run."""
    cells = run.cells
    words, cause = _causes(run)
    step = np.searchsorted(run.steps, cells.step)
    ids, count = numbered(cells.rank, step, cells.fate, cause)
    first = np.zeros(count, dtype=np.int64)
    first[ids] = np.arange(len(ids))
    length = sums(ids, cells.rank_ns, count)
    rank, part = cells.rank[first], run.segment[step[first]].astype(np.int64)
    start, end = _placed(rank, part, length, run.origin_ns, run.dated)
    columns = {
        "job": np.full(count, run.job, dtype=object),
        "host": np.array([run.host_of.get(one, "") for one in rank.tolist()], dtype=object),
        "rank": rank, "accelerators": np.ones(count, dtype=np.int32), "start_ns": start, "end_ns": end, "rank_ns": length,
        "fate": np.array(FATES, dtype=object)[cells.fate[first]], "cause": words[cause[first]],
        "source": np.full(count, "measured", dtype=object), "origin": np.full(count, run.told, dtype=object),
        **_measured(run, ids, count),
    }  # fmt: skip
    return cut_at_days(Table(Held, columns, count))


def _measured(run: Traced, ids: Ints, count: int) -> dict[str, Floats | Texts]:
    """Joules of the rows, where those of the cells were measured."""
    if not run.joules_by:
        return {}
    return {"joules": weighed(ids, run.cells.joules, count), "joules_by": np.full(count, run.joules_by, dtype=object)}


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
