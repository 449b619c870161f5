"""Matching rendezvous over ranks: which ops meet, and whom each of them waits for.

Collectives of a group meet in order: by sequence number where one is recorded, else by their order in the step. Where
ranks disagree about that order (a cut window, a rank with fewer collectives), the longest common order of (verb, size)
is matched and the rest left alone: a wrong match is worse than none. Sends meet receives in the order of their channel.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from taut.graph.ids import greatest, least, numbered, occurrence
from taut.graph.model import Gate, Graph
from taut.tables import NULL, Table, Verb, constant

EVERYBODY = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.ALL_TO_ALL, Verb.BARRIER)
ROOT_GIVES = (Verb.BROADCAST, Verb.SCATTER)
ROOT_TAKES = (Verb.REDUCE, Verb.GATHER)


@dataclass(frozen=True)
class Matching:
    """Gate number of every op (-1: none), the number of gates, and what could not be matched."""

    gate: Any
    gates: int
    unmatched: int
    misaligned: int
    """Collectives left out because ranks disagree about the order."""


def match(ops: Table, window: Any) -> Matching:
    """Match collectives and point-to-point ops inside each window."""
    gate = np.full(len(ops), NULL, dtype=np.int64)
    p2p = (ops.verb == Verb.SEND) | (ops.verb == Verb.RECV)
    collective = (ops.verb != Verb.NONE) & ~p2p & (ops.group >= 0)
    count, misaligned = _collectives(ops, window, np.flatnonzero(collective), gate)
    count = _channels(ops, window, np.flatnonzero(p2p & (ops.peer >= 0)), gate, count)
    gate, count = _drop_lonely(gate, count)
    unmatched = int(((ops.verb != Verb.NONE) & (gate < 0)).sum())
    return Matching(gate, count, unmatched, misaligned)


def slots(ops: Table, gate: Any, count: int) -> tuple[Any, Any, int]:
    """(join, wait, number of slots): the slot each op joins and the slot it waits at, -1 for none."""
    join = np.where(gate >= 0, gate, NULL)
    wait = join.copy()
    verb, root = ops.verb, ops.rank == ops.peer
    rooted = np.isin(verb, ROOT_GIVES + ROOT_TAKES) & (ops.peer >= 0)
    gives, takes = np.isin(verb, ROOT_GIVES) & rooted, np.isin(verb, ROOT_TAKES) & rooted
    wait[gives & root] = NULL
    join[gives & ~root] = NULL
    wait[takes & ~root] = NULL
    return join.astype(np.int32), wait.astype(np.int32), count


def _collectives(ops: Table, window: Any, rows: Any, gate: Any) -> tuple[int, int]:
    if len(rows) == 0:
        return 0, 0
    rows = _in_order(ops, rows)
    g, rank, step = ops.group[rows].astype(np.int64), ops.rank[rows], window[rows]
    seq = ops.seq[rows]
    sequenced = _sequenced(g, seq)
    place = np.where(sequenced, seq, occurrence(g, step, rank))
    scope = np.where(sequenced, np.int64(NULL), step)
    number, count = numbered(g, scope, place)
    token = ops.verb[rows].astype(np.int64) * (1 << 56) + np.where(
        np.isin(ops.verb[rows], (Verb.ALL_TO_ALL, *ROOT_GIVES, *ROOT_TAKES)), 0, ops.size[rows] + 1
    )
    mixed = least(number, count, token) != greatest(number, count, token)
    bad = mixed[number] | _uneven_scopes(g, scope, rank)
    misaligned = 0
    if bad.any():
        scope_id, scopes = numbered(g, scope)
        again = np.zeros(scopes, dtype=bool)
        again[scope_id[bad]] = True
        redo = again[scope_id]
        number, count, misaligned = _by_longest_common_order(number, count, redo, g, scope, rank, token)
    gate[rows] = number
    return count, misaligned


def _issue(ops: Table, rows: Any) -> Any:
    """When ops were issued: their launch's start where known, else their own."""
    launch = ops.launch[rows]
    return ops.start_ns[np.where(launch >= 0, launch, rows)]


def _in_order(ops: Table, rows: Any) -> Any:
    """Rows by rank, then by when they were issued."""
    from taut.graph.kernels import order_groups

    issue = _issue(ops, rows)
    return rows[order_groups(*numbered(ops.rank[rows]), issue, issue)[0]]


def _sequenced(group: Any, seq: Any) -> Any:
    """True for ops of groups in which every op has a sequence number."""
    without = np.zeros(int(group.max()) + 1, dtype=bool)
    np.logical_or.at(without, group, seq < 0)
    return ~without[group]


def _uneven_scopes(group: Any, scope: Any, rank: Any) -> Any:
    """True for ops of scopes (group, step) in which the ranks hold different numbers of collectives."""
    scope_id, scopes = numbered(group, scope)
    cell, cells = numbered(scope_id, rank)
    per_op = np.bincount(cell, minlength=cells)[cell]
    uneven = least(scope_id, scopes, per_op) != greatest(scope_id, scopes, per_op)
    return uneven[scope_id] & (scope >= 0)


def _by_longest_common_order(
    number: Any, count: int, redo: Any, group: Any, scope: Any, rank: Any, token: Any
) -> tuple[Any, int, int]:
    """Realign the marked scopes: every rank against the one with most collectives."""
    number, misaligned = number.copy(), 0
    by_scope: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in np.flatnonzero(redo).tolist():
        by_scope[int(group[i]), int(scope[i])][int(rank[i])].append(i)
    for ranks in by_scope.values():
        longest = max(ranks.values(), key=len)
        base = [int(token[i]) for i in longest]
        for place, i in enumerate(longest):
            number[i] = count + place
        for mine in ranks.values():
            if mine is longest:
                continue
            number[mine] = NULL
            blocks = SequenceMatcher(None, base, [int(token[i]) for i in mine], autojunk=False).get_matching_blocks()
            for block in blocks:
                for k in range(block.size):
                    number[mine[block.b + k]] = count + block.a + k
            misaligned += int((number[mine] < 0).sum())
        count += len(longest)
    return number, count, misaligned


def _channels(ops: Table, window: Any, rows: Any, gate: Any, count: int) -> int:
    """Send k of a channel (sender, receiver, step, part) meets receive k."""
    if len(rows) == 0:
        return count
    if not constant(ops.launch):  # else issued when begun, and in that order already
        rows = _in_order(ops, rows)
    sends = ops.verb[rows] == Verb.SEND
    rank, peer = ops.rank[rows].astype(np.int64), ops.peer[rows].astype(np.int64)
    source, sink = np.where(sends, rank, peer), np.where(sends, peer, rank)
    channel, _ = numbered(numbered(source, sink)[0], window[rows], ops.part[rows])
    number, pairs = numbered(channel, occurrence(channel, sends))
    gate[rows] = count + number
    return count + pairs


def _drop_lonely(gate: Any, count: int) -> tuple[Any, int]:
    """Gates with one member are none; the others are numbered without holes."""
    members = np.bincount(gate[gate >= 0], minlength=count + 1)
    new = np.cumsum(members >= 2) - 1
    keep = (gate >= 0) & (members[np.maximum(gate, 0)] >= 2)
    return np.where(keep, new[np.maximum(gate, 0)], NULL), int((members >= 2).sum())


def table(graph: Graph) -> Table:
    """The gates of a graph: one row each, with who came last and by how much."""
    from taut.graph.kernels import order_groups

    ops, rows = graph.ops, np.flatnonzero(graph.gate >= 0)
    if len(rows) == 0:
        return Table(Gate, {}, 0)
    gate = graph.gate[rows].astype(np.int64)
    order, begin = order_groups(gate, int(gate.max()) + 1, ops.start_ns[rows], ops.end_ns[rows])
    rows, begins, sizes = rows[order], begin[:-1], np.diff(begin)
    last = rows[begins + sizes - 1]
    middle = (ops.start_ns[rows[begins + (sizes - 1) // 2]] + ops.start_ns[rows[begins + sizes // 2]]) // 2
    wanted = np.array([len(graph.trace.group_ranks.get(g, ())) or NULL for g in graph.trace.groups] + [NULL])
    p2p = (ops.verb[last] == Verb.SEND) | (ops.verb[last] == Verb.RECV)
    return Table(
        Gate,
        {
            "gate": np.arange(len(last)), "verb": ops.verb[last], "name": ops.name[last],
            "step": graph.steps[graph.window[last]], "group": ops.group[last], "members": sizes,
            "expected": np.where(p2p, 2, wanted[ops.group[last]]), "opens_ns": ops.start_ns[last],
            "last_rank": ops.rank[last], "late_ns": ops.start_ns[last] - middle,
            "size": np.maximum.reduceat(ops.size[rows], begins),
        },
    )  # fmt: skip
