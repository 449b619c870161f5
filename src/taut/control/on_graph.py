"""Actions on the operator graph: which ranks each one hits, when on the graph's own axis, and which op begins next there.

A target is a job, a rank, a stage, a host, a service, a process group or a class of ops, by the names that the trace has for
them. What has no such name, or lies outside the traced time, hits nothing and is counted; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.control.call_attempts import attempt_of
from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import word_ids
from taut.core.tables import NULL
from taut.graph import Graph

_NUMBERED = re.compile(r"(rank|stage)[ _:=/-]?(\d{1,9})", re.IGNORECASE)
_HOST = re.compile(r"(?:nodes?|pods?)/(?:.*/)?([^/]+)")
"""How orchestrators write a host; a pod's host name is its own."""
LONGEST_NS = 1 << 61
"""Whatever a log says, nobody is busy for longer than this."""
SHOWN = 3
"""Targets that a note names."""
START, SUBMISSION = 0, "submission"
"""A first attempt, and a job handed in: where work begins nobody has interfered yet."""


@dataclass(frozen=True)
class Projection:
    """The actions of a trace on its graph, one array element for each."""

    graph: Graph
    segment: Ints
    """Segment in whose time it was taken; -1 for none."""
    begin_ns: Ints
    """When, on the axis of that segment."""
    end_ns: Ints
    """Until when it kept its target busy; an attempt's time is work, not control, and does not count."""
    place: Ints
    """Index into ``ranks``; -1 where the target has no name on the graph, or the action lies outside the traced time."""
    ranks: Sequence[Ints]
    """Ranks, as indices into ``graph.ranks``, of every target that was found."""
    untargeted: list[str]
    """Actions in the traced time on what is no part of the graph, in a line if there are any."""
    unplaced: list[str]
    """Actions outside of it, likewise."""

    @cached_property
    def interferes(self) -> Mask:
        """Actions that may have made a pause: all but the begin of a job or a call."""
        actions = self.graph.trace.actions
        mask: Mask = (self.place >= 0) & (actions.attempt != START) & (actions.knob != SUBMISSION)
        return mask

    @cached_property
    def order(self) -> tuple[Indices, Ints]:
        """Ops by segment and rank in order of arrival, and where each (segment, rank) begins."""
        from taut.core.group_kernels import order_groups

        g = self.graph
        ranks, segments = len(g.ranks), int(g.segment.max()) + 1
        group = g.segment[g.window].astype(np.int64) * ranks + g.rank_index
        order, begin = order_groups(group, segments * ranks, g.ops.start_ns, g.ops.end_ns)
        return order, begin

    def next_ops(self, rows: Ints) -> tuple[Ints, Ints]:
        """Ops that begin next after one of some actions on their rank, or while it is at work, and the first for each."""
        order, begin = self.order
        start, ranks = self.graph.ops.start_ns, len(self.graph.ranks)
        hit, by = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for segment, rank, some, until in self._by_rank(rows):
            mine = order[begin[segment * ranks + rank] : begin[segment * ranks + rank + 1]]
            # An action hits the first op that begins after it: it lies after the start of the op before, or still goes on then.
            before = np.concatenate([[NULL], start[mine[:-1]]]) if len(mine) else start[mine]
            first = np.searchsorted(until, before, side="right")
            found = first < len(some)
            found[found] = self.begin_ns[some[first[found]]] <= start[mine[found]]
            hit.append(mine[found])
            by.append(some[first[found]])
        return np.concatenate(hit), np.concatenate(by)

    def inside(self, ops: Ints) -> Ints:
        """Of each op the last action that was at work on its rank from its begin to its end, -1 for none."""
        g = self.graph
        out = np.full(len(g), NULL, dtype=np.int64)
        if not len(ops) or not (self.end_ns > self.begin_ns).any():
            return out
        group = g.segment[g.window[ops]].astype(np.int64) * len(g.ranks) + g.rank_index[ops]
        order = np.argsort(group, kind="stable")
        ops, group = ops[order], group[order]
        for segment, rank, rows, until in self._by_rank(np.flatnonzero(self.interferes)):
            here = slice(*np.searchsorted(group, segment * len(g.ranks) + rank + np.arange(2)))
            mine = ops[here]
            last = np.searchsorted(self.begin_ns[rows], g.ops.start_ns[mine], side="right") - 1
            longest = np.maximum.accumulate(np.where(self.end_ns[rows] == until, np.arange(len(rows)), 0))
            found = (last >= 0) & (until[last] >= g.ops.end_ns[mine]) & (g.ops.end_ns[mine] > g.ops.start_ns[mine])
            out[mine[found]] = rows[longest[last[found]]]
        return out

    def _by_rank(self, rows: Ints) -> Iterator[tuple[int, int, Ints, Ints]]:
        """(segment, rank, those of some actions that hit it in order of time, until when any of them so far was at work)."""
        rows = rows[np.lexsort((self.begin_ns[rows], self.segment[rows]))]
        hitting: dict[int, list[int]] = {}
        for place in np.unique(self.place[rows]).tolist():
            for rank in self.ranks[place].tolist():
                hitting.setdefault(rank, []).append(place)
        known: dict[tuple[int, ...], list[tuple[int, Ints, Ints]]] = {}
        for rank, places in hitting.items():
            if tuple(places) not in known:
                mine = rows[np.isin(self.place[rows], places)]
                parts = np.split(mine, np.flatnonzero(np.diff(self.segment[mine])) + 1)
                known[tuple(places)] = [(int(self.segment[p[0]]), p, np.maximum.accumulate(self.end_ns[p])) for p in parts]
            for segment, mine, until in known[tuple(places)]:
                yield segment, rank, mine, until


def project(graph: Graph) -> Projection:
    """The actions of a graph's trace on the graph."""
    actions = graph.trace.actions
    segment, begin = _when(graph)
    rows = np.flatnonzero(segment >= 0)
    place, ranks, unknown = _targets(graph, rows, begin, segment)
    busy = np.where(actions.attempt < 0, np.clip(actions.busy_ns, 0, LONGEST_NS), 0)
    untargeted, unplaced = _untargeted(unknown, len(rows)), _unplaced(graph, len(actions), len(rows))
    return Projection(graph, segment, begin, begin + busy, place, ranks, untargeted, unplaced)


def _untargeted(unknown: list[str], placed: int) -> list[str]:
    if not unknown:
        return []
    names = [repr(word[:40]) for word in dict.fromkeys(unknown)]
    some = ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
    return [
        f"{len(unknown):,} of {placed:,} actions in the traced time act on what is no rank, host, service or job of the trace "
        f"({some}): what they cost is not known"
    ]


def _unplaced(graph: Graph, actions: int, placed: int) -> list[str]:
    own = graph.trace.relative and graph.trace.zero_ns is None
    why = "its steps have times of their own" if own else "it was not traced then"
    return [f"{actions - placed:,} of {actions:,} actions have no place on the graph: {why}"] if placed < actions else []


def axis_ns(graph: Graph) -> Ints | None:
    """Time of each segment's zero, ns since the origin of the trace's clock; None where steps have times of their own."""
    if not graph.trace.relative:
        origin: Ints = graph.origin_ns
        return origin
    if graph.trace.zero_ns is None:
        return None
    zero: Ints = graph.origin_ns + np.asarray(graph.trace.zero_ns, dtype=np.int64)[graph.steps]
    return zero


def _when(graph: Graph) -> tuple[Ints, Ints]:
    """Segment of each action, and its time there."""
    actions, zero = graph.trace.actions, axis_ns(graph)
    nowhere = np.full(len(actions), NULL, dtype=np.int64)
    if zero is None or not len(actions):
        return nowhere, nowhere
    at = actions.time_ns - _offset_ns(graph)
    stop = np.zeros(len(zero), dtype=np.int64)
    np.maximum.at(stop, graph.segment[graph.window], graph.ops.end_ns)
    if graph.trace.relative:  # requests overlap: only the step that an action names tells which it belongs to
        known = np.isin(actions.step, graph.steps)
        segment = np.where(known, np.searchsorted(graph.steps, actions.step), NULL)
    else:
        order = np.argsort(zero, kind="stable")
        before = np.searchsorted(zero[order], at, side="right") - 1
        segment = np.where(before >= 0, order[before], NULL)
    inside = (segment >= 0) & (at >= zero[segment]) & (at - zero[segment] <= stop[segment])
    return np.where(inside, segment, NULL), np.where(inside, at - zero[segment], NULL)


def _offset_ns(graph: Graph) -> Ints | int:
    """How far the clock of whoever acted is from the graph's, where it is one of the ranks."""
    actions, clock = graph.trace.actions, graph.clock
    if not clock.applied.any():
        return 0
    at = np.minimum(np.searchsorted(clock.rank, actions.rank), len(clock) - 1)
    return np.where(clock.rank[at] == actions.rank, clock.offset_ns[at], 0)


def _targets(graph: Graph, rows: Ints, begin_ns: Ints, segment: Ints) -> tuple[Ints, list[Ints], list[str]]:
    """Of each action the index of its target's ranks, these ranks, and the targets that have none."""
    actions = graph.trace.actions
    place = np.full(len(actions), NULL, dtype=np.int64)
    if not len(rows):
        return place, [], []
    target, words = word_ids(actions.target[rows])
    is_work = (actions.target[rows] == actions.work[rows]).astype(np.int64)
    keys = np.stack([target, np.where(target >= 0, NULL, actions.rank[rows]), is_work], axis=1)
    kinds, which = np.unique(keys, axis=0, return_inverse=True)
    names = _TargetNames(graph)
    found: list[Ints] = []
    at = np.full(len(kinds), NULL, dtype=np.int64)
    for k, (number, rank, of_work) in enumerate(kinds.tolist()):
        ranks = names.of(words[number], bool(of_work)) if number >= 0 else names.numbered("rank", rank)
        if len(ranks):
            at[k] = len(found)
            found.append(ranks)
    place[rows] = at[which.ravel()]
    _called(graph, rows[place[rows] < 0], begin_ns, segment, place, found)
    lost = target[(place[rows] < 0) & (target >= 0)]
    return place, found, [words[number] for number in lost.tolist()]


def _called(graph: Graph, rows: Ints, begin_ns: Ints, segment: Ints, place: Ints, found: list[Ints]) -> None:
    """Targets that are calls, where the trace tells its calls itself: the ranks that did the work of each attempt."""
    busy = np.clip(graph.trace.actions.busy_ns[rows], 0, LONGEST_NS)
    attempt = attempt_of(graph, rows, segment[rows], begin_ns[rows], begin_ns[rows] + busy)
    ops = np.flatnonzero(attempt >= 0)
    pairs = np.unique(np.stack([attempt[ops], graph.rank_index[ops]], axis=1), axis=0)
    sets: dict[tuple[int, ...], int] = {}
    for some in np.split(pairs, np.flatnonzero(np.diff(pairs[:, 0])) + 1) if len(pairs) else []:
        ranks = tuple(some[:, 1].tolist())
        if ranks not in sets:
            sets[ranks] = len(found)
            found.append(some[:, 1])
        place[some[0, 0]] = sets[ranks]


class _TargetNames:
    """What the trace calls its ranks, alone and together."""

    def __init__(self, graph: Graph) -> None:
        trace, members = graph.trace, graph.members
        self.graph = graph
        self.jobs = {*trace.attempts.job.tolist(), *trace.attempts.name.tolist()} - {""}
        self.only = len(set(trace.attempts.job.tolist())) == 1
        self.known: dict[str, Ints] = {}
        for words in (members.host, np.array([host.partition(".")[0] for host in members.host]), members.role, members.name):
            for word in {word for word in words.tolist() if word and not word.isdecimal()}:
                self.known.setdefault(word, np.flatnonzero(words == word))

    def of(self, target: str, is_work: bool) -> Ints:
        """The ranks that a target means; none where nothing has its name."""
        trace = self.graph.trace
        if target == trace.name or (target in self.jobs and self.only):
            return np.arange(len(self.graph.ranks))
        if target in self.jobs or (is_work and target.isdigit()):
            return np.zeros(0, dtype=np.int64)  # another job
        if found := _NUMBERED.fullmatch(target):
            return self.numbered(found[1].lower(), int(found[2]))
        if target.isdecimal() and len(target) < 10:
            return self.numbered("rank", int(target))
        host = _HOST.fullmatch(target)
        named = host[1] if host else target
        if named in self.known:
            return self.known[named]
        if target in trace.group_ranks:
            return np.flatnonzero(np.isin(self.graph.ranks, list(trace.group_ranks[target])))
        if target in trace.names:
            return np.unique(self.graph.rank_index[self.graph.ops.name == list(trace.names).index(target)])
        return np.zeros(0, dtype=np.int64)

    def numbered(self, kind: str, number: int) -> Ints:
        """The rank, or the ranks of the stage, of that number."""
        column = self.graph.ranks if kind == "rank" else self.graph.members.stage
        return np.flatnonzero(column == number) if number >= 0 else np.zeros(0, dtype=np.int64)
