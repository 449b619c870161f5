"""Actions as relations read them: sorted by time, words as numbers, with the demand that lay beside them.

Demand is what nobody here decides: requests, arrivals, a queue. It forces actions, so every relation asks for it first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
    time_ns: Any
    value: Any
    own: bool = False
    """Sampled only when a controller acted: what it saw, which its own actions may have moved."""

    def at(self, time_ns: Any) -> Any:
        """The last sample before each time; the first one before there is any."""
        return self.value[np.maximum(np.searchsorted(self.time_ns, time_ns, side="right") - 1, 0)]


@dataclass(frozen=True)
class Log:
    """All actions of a trace in order of time; one array per column."""

    time_ns: Any
    ids: Mapping[str, Any]
    """Column of words → one number per action: index into ``words[column]``."""
    words: Mapping[str, Sequence[str]]
    numbers: Mapping[str, Any]
    """The other columns; ``parent`` counts rows in order of time."""
    level: Any
    """The value after each action, NaN where it is no number."""
    stream: Any
    """Actions of one controller on one knob of one target share a number."""
    demand: Mapping[int, Demand]
    """Target → its demand; -1 for that of all."""
    attempts: Table
    of_job: Any
    """Mask of the actions that tell of a job whose attempts are listed as well: they are counted there."""
    metrics: Table
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the reader counted beside: all calls, where the log lists only those that were made again."""
    notes: list[str] = field(default_factory=list)
    """What could not be told, and why."""

    def __len__(self) -> int:
        return len(self.time_ns)

    def __getattr__(self, name: str) -> Any:
        for columns in ("ids", "numbers"):
            found = self.__dict__.get(columns, {})
            if name in found:
                return found[name]
        raise AttributeError(name)

    @property
    def calls(self) -> int | None:
        """All calls behind the log, where it lists only those that were made again."""
        return self.counts.get("calls")

    def word(self, column: str, number: int) -> str:
        """The word behind a number; empty for none."""
        return self.words[column][number] if number >= 0 else ""

    def demand_of(self, target: int) -> Demand | None:
        """What was demanded of a target: its own series, or the one of all; what a controller saw only if there is no other."""
        mine, of_all = self.demand.get(target), self.demand.get(-1)
        return of_all if mine is None or (mine.own and of_all is not None and not of_all.own) else mine

    def holding(self, column: str, pattern: str) -> Any:
        """Mask of the actions whose word in a column holds a pattern."""
        found = np.array([re.search(pattern, word, re.I) is not None for word in self.words[column]] + [False])
        return found[self.ids[column]]

    def cost(self, rows: Any) -> tuple[int | None, int | None]:
        """(rank-nanoseconds, tokens) of some actions; None where none of them has it."""
        busy, tokens = self.busy_ns[rows], self.tokens[rows]
        known, counted = busy >= 0, tokens >= 0
        rank_ns = int((busy[known] * self.accelerators[rows][known]).sum()) if known.any() else None
        return rank_ns, int(tokens[counted].sum()) if counted.any() else None

    def launchers(self) -> tuple[str, ...]:
        """Who started the attempts of jobs, where actions tell."""
        found = dict.fromkeys(self.controller[self.of_job & (self.attempt >= 0) & (self.controller >= 0)].tolist())
        return tuple(self.word("controller", number) for number in found)

    def groups(self, keys: Any, rows: Any, least: int = 1, most: int = 1000) -> list[Any]:
        """Rows that share a key (-1 is none), each group in order of time: the largest ones of at least so many rows."""
        rows = rows[keys[rows] >= 0]
        order = rows[np.argsort(keys[rows], kind="stable")]
        begin = np.flatnonzero(np.diff(keys[order], prepend=-1)) if len(order) else np.zeros(0, dtype=np.int64)
        size = np.diff(np.append(begin, len(order)))
        large = np.flatnonzero(size >= least)
        large = np.sort(large[np.argsort(-size[large], kind="stable")[:most]])
        return [order[begin[k] : begin[k] + size[k]] for k in large]


def prepare(trace: Trace) -> Log:
    """The log of a trace."""
    table = trace.actions
    order = np.argsort(table.time_ns, kind="stable") if len(table) else np.zeros(0, dtype=np.int64)
    ids, words = {}, {}
    for column in WORDS:
        ids[column], words[column] = intern(table.columns[column][order])
    time_ns = table.time_ns[order]
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), NULL
    parent = table.parent[order]
    parent = np.where((parent >= 0) & (parent < len(order)), parent, NULL)
    numbers = {name: table.columns[name][order] for name in ("rank", "direction", "attempt", "deadline_ns", "busy_ns")}
    into, out = table.tokens_in[order], table.tokens_out[order]
    numbers["tokens"] = np.where((into >= 0) | (out >= 0), np.maximum(into, 0) + np.maximum(out, 0), NULL)
    numbers["accelerators"] = np.maximum(table.accelerators[order], 1).astype(np.int64)
    numbers["parent"] = place[parent]
    numbers["told_parent"] = numbers["parent"].copy()
    _link(ids, numbers["attempt"], numbers["parent"])
    levels = np.array([number(word) for word in words["after"]] + [np.nan])
    key = (ids["controller"].astype(np.int64) * (len(words["target"]) + 1) + ids["target"] + 1) * (len(words["knob"]) + 1)
    stream = np.unique(key + ids["knob"] + 1, return_inverse=True)[1] if len(order) else key
    demand = demands(trace.metrics, words["target"], time_ns)
    named = set(trace.attempts.job.tolist())
    of_job = np.array([word in named for word in words["work"]] + [False])[ids["work"]]
    return Log(
        time_ns, ids, words, numbers, levels[ids["after"]], stream, demand, trace.attempts, of_job, trace.metrics, trace.counts
    )


def _link(ids: Mapping[str, Any], attempt: Any, parent: Any) -> None:
    """Fill in the parents of repeats that have none: logs of outcomes name the work and number its attempts, no more.

    It is the last attempt before, by the same controller at the same work and target, if its number is one less.
    """
    loose = (ids["work"] >= 0) & (attempt > 0) & (parent < 0)
    if not loose.any():
        return
    wanted = np.zeros(int(ids["work"].max()) + 1, dtype=bool)
    wanted[ids["work"][loose]] = True
    rows = np.flatnonzero((attempt >= 0) & (ids["work"] >= 0) & wanted[ids["work"]])
    names = [ids[column][rows] for column in ("knob", "controller", "target", "work")]
    order = np.lexsort(names)
    same = np.all([np.diff(name[order]) == 0 for name in names], axis=0)
    order = rows[order]
    follows = same & (np.diff(attempt[order].astype(np.int64)) == 1) & loose[order[1:]]
    parent[order[1:][follows]] = order[:-1][follows]


def intern(column: Any) -> tuple[Any, list[str]]:
    """Words as numbers, in order of appearance; the empty word is -1."""
    import pyarrow as pa

    found = pa.array(column, type=pa.string()).dictionary_encode()
    words = found.dictionary.to_pylist()
    ids = found.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    if "" in words:
        empty = words.index("")
        ids = np.where(ids == empty, np.int32(NULL), ids - (ids > empty)).astype(np.int32)
        words.pop(empty)
    return ids, words


def number(word: str) -> float:
    """A value as a number, with whatever unit stands behind it; NaN for other words."""
    found = re.match(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", word[:64])
    return float(found[0]) if found else np.nan


def series(metrics: Table) -> dict[tuple[str, str], tuple[Any, Any]]:
    """(component, metric) → times and values, in order of time, without what is not a number."""
    if not len(metrics):
        return {}
    component, components = intern(metrics.component)
    metric, names = intern(metrics.metric)
    key = (component.astype(np.int64) + 1) * (len(names) + 1) + metric + 1
    order = np.lexsort((metrics.time_ns, key))
    order = order[np.isfinite(metrics.value[order])]
    out = {}
    for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []:
        name = names[metric[rows[0]]] if metric[rows[0]] >= 0 else ""
        of = components[component[rows[0]]] if component[rows[0]] >= 0 else ""
        out[of, name] = metrics.time_ns[rows], metrics.value[rows]
    return out


def demands(metrics: Table, targets: Sequence[str], acted_ns: Any) -> dict[int, Demand]:
    """The best series of demand of every target, and of all."""
    place = {word: i for i, word in enumerate(targets)}
    best: dict[int, tuple[int, Demand]] = {}
    for (component, name), (time_ns, value) in series(metrics).items():
        rank = demanded(name)
        if rank is None or len(time_ns) < 2:
            continue
        target = place.get(component, -1)
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
