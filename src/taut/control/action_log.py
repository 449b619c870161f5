"""Actions as relations read them: sorted by time, words as numbers, with the demand that lay beside them.

Demand is what nobody here decides: requests, arrivals, a queue. It forces actions, so every relation asks for it first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from taut.control.job_attempts import Jobs, jobs
from taut.core.array_types import Codes, Floats, Ints, Mask
from taut.core.ids import word_ids
from taut.core.tables import NULL, Table, Trace

WORDS = ("layer", "controller", "target", "knob", "after", "trigger", "work", "outcome")
"""Columns of words: they are numbers here, -1 for none."""
DEMANDED = ("demand", "offered", "arrival", "requests", "request", "rps", "qps", "queue", "backlog", "load")
"""Metric names that hold one of these are demand, the earlier the better."""
NOT_DEMAND = ("planned", "forecast", "capacity", "allocated", "provisioned", "margin", "limit", "completed", "failed", "served")
"""Unless they hold one of these: they are answers to demand, or guesses of it."""
OWN = 0.9
"""A series of which so many samples were taken when a controller acted is what that controller saw, not demand itself."""
EARLY_NS = 1_000_000
"""How far the time of a sample and that of an action may differ and still be the same moment."""


@dataclass(frozen=True)
class Demand:
    """One series of demand."""

    name: str
    time_ns: Ints
    value: Floats
    own: bool = False
    """Sampled only when a controller acted: what it saw, which its own actions may have moved."""

    def at(self, time_ns: Ints | Floats) -> Floats:
        """The last sample before each time; the first one before there is any."""
        return self.value[np.maximum(np.searchsorted(self.time_ns, time_ns, side="right") - 1, 0)]


@dataclass(frozen=True)
class Log:
    """All actions of a trace in order of time; one array per column. Columns of words are indices into ``words[column]``."""

    time_ns: Ints
    layer: Codes
    controller: Codes
    target: Codes
    knob: Codes
    after: Codes
    trigger: Codes
    work: Codes
    outcome: Codes
    direction: Codes
    attempt: Codes
    deadline_ns: Ints
    busy_ns: Ints
    tokens: Ints
    """Read and written together."""
    accelerators: Ints
    """At least one."""
    parent: Ints
    """Row of the attempt before, in order of time; also where only works and numbers of attempts tell it."""
    recorded_parent: Ints
    """The same, only where the log names it."""
    stream: Ints
    """Actions of one controller on one knob of one target share a number."""
    words: Mapping[str, Sequence[str]]
    demand: Mapping[int, Demand]
    """Target → its demand; -1 for that of all."""
    trace: Trace
    notes: list[str] = field(init=False, default_factory=list)
    """What could not be tested, and why."""
    unjudged: list[str] = field(init=False, default_factory=list)
    """Those of it that leave open whether control is coherent."""

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def calls(self) -> int | None:
        """All calls behind the log, where it lists only those that were made again."""
        return self.trace.counts.get("calls")

    @cached_property
    def jobs(self) -> Jobs:
        """The attempts of jobs that a scheduler's log lists beside the actions."""
        return jobs(self.trace.attempts)

    @cached_property
    def of_job(self) -> Mask:
        """The actions on a job whose attempts are listed as well: they are counted there."""
        named = set(self.jobs.names)
        return np.array([word in named for word in self.words["work"]] + [False])[self.work]

    @cached_property
    def level(self) -> Floats:
        """The value after each action, NaN where it is no number."""
        return np.array([number(word) for word in self.words["after"]] + [np.nan])[self.after]

    @cached_property
    def root(self) -> Ints:
        """One number per action, shared by all that belong to the same logical work; -1 for what belongs to none.

        Parents are followed to the first action, whose work gives the name; what has parents but no work is named by its row.
        """
        top = np.where(self.parent >= 0, self.parent, np.arange(len(self)))
        for _ in range(64):  # each round doubles how far up an action looks
            further = top[top]
            if (further == top).all():
                break
            top = further
        work = self.work.astype(np.int64)
        named = np.where(work[top] >= 0, work[top], work)
        linked = (self.parent >= 0) | (np.bincount(top, minlength=len(self)) > 1)
        return np.where(named >= 0, named, np.where(linked, len(self.words["work"]) + top, NULL))

    def codes(self, column: str) -> Codes:
        """A column of words as numbers."""
        found: Codes = getattr(self, column)
        return found

    def code(self, column: str, word: str | None) -> int:
        """The number of a word: -1 for none, -2 for one that does not occur."""
        known = self.words[column]
        return known.index(word) if word in known else -2 if word else NULL

    def word(self, column: str, number: int) -> str:
        """The word behind a number; empty for none."""
        return self.words[column][number] if number >= 0 else ""

    def name(self, column: str, row: int) -> str:
        """The word that an action has in a column; empty for none."""
        return self.word(column, int(self.codes(column)[row]))

    def controllers(self, rows: Ints | Mask) -> tuple[str, ...]:
        """Who took some actions, in order of appearance."""
        return tuple(self.word("controller", number) for number in dict.fromkeys(self.controller[rows].tolist()))

    def demand_of(self, target: int) -> Demand | None:
        """What was demanded of a target: its own series, or the one of all; what a controller saw only if there is no other."""
        mine, of_all = self.demand.get(target), self.demand.get(-1)
        return of_all if mine is None or (mine.own and of_all is not None and not of_all.own) else mine

    def outside_demand(self, target: int) -> Demand | None:
        """The same, but only a series that no controller's actions can have moved."""
        known = self.demand_of(target)
        return None if known is None or known.own else known

    def matching(self, column: str, pattern: str) -> Mask:
        """Mask of the actions whose word in a column holds a pattern."""
        found = np.array([re.search(pattern, word, re.I) is not None for word in self.words[column]] + [False])
        return found[self.codes(column)]

    def cost(self, rows: Ints) -> tuple[int | None, int | None]:
        """(rank-nanoseconds, tokens) of some actions; None where none of them has it."""
        busy, tokens = self.busy_ns[rows], self.tokens[rows]
        known, counted = busy >= 0, tokens >= 0
        rank_ns = int((busy[known] * self.accelerators[rows][known]).sum()) if known.any() else None
        return rank_ns, int(tokens[counted].sum()) if counted.any() else None

    def launchers(self) -> tuple[str, ...]:
        """Who started the attempts of jobs, where actions tell."""
        return self.controllers(self.of_job & (self.attempt >= 0) & (self.controller >= 0))

    def groups(self, keys: Ints | Codes, rows: Ints, least: int = 1, most: int = 1000) -> list[Ints]:
        """Rows that share a key (-1 is none), each group in order of time: the largest ones of at least so many rows."""
        rows = rows[keys[rows] >= 0]
        order = rows[np.argsort(keys[rows], kind="stable")]
        begin = np.flatnonzero(np.diff(keys[order], prepend=-1))
        size = np.diff(np.append(begin, len(order)))
        large = np.flatnonzero(size >= least)
        large = np.sort(large[np.argsort(-size[large], kind="stable")[:most]])
        return [order[begin[k] : begin[k] + size[k]] for k in large]


def prepare(trace: Trace) -> Log:
    """The log of a trace."""
    table = trace.actions
    order = np.argsort(table.time_ns, kind="stable")
    coded = {column: word_ids(table.columns[column][order]) for column in WORDS}
    ids, words = {column: found[0] for column, found in coded.items()}, {column: found[1] for column, found in coded.items()}
    time_ns, attempt = table.time_ns[order], table.attempt[order]
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), NULL
    recorded = table.parent[order]
    recorded = place[np.where((recorded >= 0) & (recorded < len(order)), recorded, NULL)]
    into, out = table.tokens_in[order], table.tokens_out[order]
    # One number for controller, target and knob; each may be -1, so that each has one value more than words.
    key = (ids["controller"].astype(np.int64) * (len(words["target"]) + 1) + ids["target"] + 1) * (len(words["knob"]) + 1)
    return Log(
        time_ns,
        **ids,
        direction=table.direction[order],
        attempt=attempt,
        deadline_ns=table.deadline_ns[order],
        busy_ns=table.busy_ns[order],
        tokens=np.where((into >= 0) | (out >= 0), np.maximum(into, 0) + np.maximum(out, 0), NULL),
        accelerators=np.maximum(table.accelerators[order], 1).astype(np.int64),
        parent=_with_parents(ids, attempt, recorded),
        recorded_parent=recorded,
        stream=np.unique(key + ids["knob"] + 1, return_inverse=True)[1],
        words=words,
        demand=demands(trace.metrics, words["target"], time_ns),
        trace=trace,
    )


def _with_parents(ids: Mapping[str, Codes], attempt: Codes, recorded: Ints) -> Ints:
    """Parents, also of repeats that have none on record: logs of outcomes name the work and number its attempts, no more.

    It is the last attempt before, by the same controller at the same work and target, if its number is one less.
    """
    parent = recorded.copy()
    loose = (ids["work"] >= 0) & (attempt > 0) & (parent < 0)
    if not loose.any():
        return parent
    wanted = np.zeros(int(ids["work"].max()) + 1, dtype=bool)
    wanted[ids["work"][loose]] = True
    rows = np.flatnonzero((attempt >= 0) & (ids["work"] >= 0) & wanted[ids["work"]])
    names = [ids[column][rows] for column in ("knob", "controller", "target", "work")]
    order = np.lexsort(names)
    same = np.all([np.diff(name[order]) == 0 for name in names], axis=0)
    order = rows[order]
    follows = same & (np.diff(attempt[order].astype(np.int64)) == 1) & loose[order[1:]]
    parent[order[1:][follows]] = order[:-1][follows]
    return parent


def number(word: str) -> float:
    """A value as a number, with whatever unit stands behind it; NaN for other words."""
    found = re.match(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word[:64])
    return float(found[0]) if found else np.nan


def series(metrics: Table) -> dict[tuple[str, str], tuple[Ints, Floats]]:
    """(component, metric) → times and values, in order of time, without what is not a number."""
    component, components = word_ids(metrics.component)
    metric, names = word_ids(metrics.metric)
    key = component.astype(np.int64) * (len(names) + 1) + metric
    order = np.lexsort((metrics.time_ns, key))
    order = order[np.isfinite(metrics.value[order])]
    out = {}
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []:
        of, name = component[rows[0]], metric[rows[0]]
        pair = components[of] if of >= 0 else "", names[name] if name >= 0 else ""
        out[pair] = metrics.time_ns[rows], metrics.value[rows]
    return out


def demands(metrics: Table, targets: Sequence[str], acted_ns: Ints) -> dict[int, Demand]:
    """The best series of demand of every target, and of all."""
    place = {word: i for i, word in enumerate(targets)}
    best: dict[int, tuple[int, Demand]] = {}
    for (component, name), (time_ns, value) in series(metrics).items():
        rank = demanded(name)
        if rank is None or len(time_ns) < 2:
            continue
        target = place.get(component, -1)
        # Samples with an action within a millisecond of them.
        near = np.searchsorted(acted_ns, time_ns - EARLY_NS) < np.searchsorted(acted_ns, time_ns + EARLY_NS, side="right")
        found = Demand(name, time_ns, value, bool(near.mean() >= OWN))
        rank += len(DEMANDED) * found.own
        if target not in best or rank < best[target][0]:
            best[target] = rank, found
    return {target: found for target, (_, found) in best.items()}


def demanded(name: str) -> int | None:
    """How surely a metric is demand: 0 is best, None if it is none."""
    low = name.lower()
    if any(word in low for word in NOT_DEMAND):
        return None
    return next((rank for rank, word in enumerate(DEMANDED) if word in low), None)
