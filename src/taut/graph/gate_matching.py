"""Matching rendezvous over ranks: which ops meet, and whom each of them waits for.

Collectives of a group meet in order: by sequence number where one is recorded, else by their order in the step. Where
ranks disagree about that order (a cut window, a rank with fewer collectives), or somebody had left before the last came,
the scope is aligned anew (``align.py``) and what has no certain counterpart is left alone: a wrong match is worse than
none. Names play no part: an eager and a compiled rank call the same thing differently. Sends meet receives in the order
of their channel.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from taut.core.array_types import Codes, Indices, Ints, Mask
from taut.core.ids import greatest, in_groups, least, numbered, occurrence
from taut.core.scratch import kept
from taut.core.tables import NULL, Table, Trace, Verb, constant
from taut.graph import align
from taut.graph.arrays import Gate, Graph, Slots
from taut.graph.jumps import Jump

EVERYBODY = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.ALL_TO_ALL, Verb.BARRIER)
ROOT_GIVES = (Verb.BROADCAST, Verb.SCATTER)
ROOT_TAKES = (Verb.REDUCE, Verb.GATHER)
SIZELESS = (Verb.ALL_TO_ALL, *ROOT_GIVES, *ROOT_TAKES)
"""Verbs whose members may move different numbers of bytes."""
STRAIGHT = 1.5
"""Who goes straight through a gate takes at most this many times as long as the quickest to come last in its class …"""
STRAIGHT_NS = 100_000
"""… and this much more."""
REPEATS = 4
"""Kernels that one sequence number may stand for; one that stands for more does not count anything."""


class Matching(Struct, frozen=True):
    """Gate number of every op (-1: none), the number of gates, and what could not be matched."""

    gate: Indices
    gates: int
    unmatched: int
    misaligned: int
    """Collectives left out because ranks disagree about the order."""
    jumps: list[Jump] = field(default_factory=list)
    """Clocks that were set while the job ran."""
    open: int = 0
    """Gates left out because members that were not traced may have come last."""


def match(ops: Table, window: Indices, members: Table, given: int) -> Matching:
    """Match collectives and point-to-point ops inside each window; groups from ``given`` on were inferred from times."""
    gate = np.full(len(ops), NULL, dtype=np.int32)
    p2p = (ops.verb == Verb.SEND) | (ops.verb == Verb.RECV)
    collective = (ops.verb != Verb.NONE) & ~p2p & (ops.group >= 0)
    count, misaligned, found = _collectives(ops, window, np.flatnonzero(collective), gate, members, given)
    count = _channels(ops, window, np.flatnonzero(p2p & (ops.peer >= 0)), gate, count)
    gate, count = _drop_lonely(gate, count)
    unmatched = int(((ops.verb != Verb.NONE) & (gate < 0)).sum())
    return Matching(gate, count, unmatched, misaligned, jumps=found)


def slots(ops: Table, gate: Indices, count: int) -> Slots:
    """The slots of so many gates: whom each op waits for depends on its verb."""
    verb, root = ops.verb, ops.rank == ops.peer
    gives, takes = (np.isin(verb, verbs) & (ops.peer >= 0) for verbs in (ROOT_GIVES, ROOT_TAKES))
    eager = (verb == Verb.SEND) & (ops.start_ns == ops.end_ns)  # what takes no time does not wait
    if not (gives.any() or takes.any() or eager.any()):
        return Slots(gate, gate, count)
    join, wait = gate.copy(), gate.copy()
    wait[gives & root] = NULL
    join[gives & ~root] = NULL
    wait[(takes & ~root) | eager] = NULL
    return Slots(join, wait, count)


def _collectives(
    ops: Table, window: Indices, rows: Ints, gate: Codes, members: Table, given: int
) -> tuple[int, int, list[Jump]]:
    if len(rows) == 0:
        return 0, 0, []
    rows = _in_order(ops, rows)
    g, rank, step = ops.group[rows].astype(np.int64), ops.rank[rows], window[rows]
    verb, seq = ops.verb[rows].astype(np.int64), ops.seq[rows]
    sequenced = _sequenced(g, rank, seq)
    # Calls of one scope (a group, and without sequence numbers a step) with the same place meet. One sequence number may
    # stand for several kernels: ``again`` counts them.
    place = np.where(sequenced, seq, occurrence(g, step, rank))
    again = np.where(sequenced, occurrence(g, rank, seq), 0)
    scope = numbered(g, np.where(sequenced, np.int64(NULL), step))[0]
    number, count = numbered(scope, place, again)
    token = _token(g, verb, ops.size[rows])
    mixed = _differ(number, count, np.where(sequenced, verb, token))[number]
    # In doubt is an order in which calls of one place differ, or of which some ranks have more: it is aligned anew.
    doubt = ~sequenced & (mixed | _uneven(scope, rank))
    meets = np.isin(verb, EVERYBODY)
    times, timed = align.Times(ops, rows, members), meets & (g < given)
    apart = timed & times.impossible(number, count)[number]
    if (doubt | apart).any():
        times.correct(number, count, ~mixed & ~doubt & timed)
        doubt |= ~sequenced & timed & times.impossible(number, count)[number]
    number[sequenced & mixed] = NULL
    if doubt.any():
        redo = np.isin(scope, scope[doubt])
        number, count = align.realign(number, count, redo, align.Calls(scope, rank, token, meets), times)
    gate[rows] = number
    return count, int((number < 0).sum()), times.jumps


def _token(group: Ints, verb: Ints, size: Ints) -> Ints:
    """What a collective does; the size tells only in groups that record it for all."""
    sized = ~np.isin(verb, SIZELESS)  # sizes are below 2⁵⁶: the verb has the bits above
    unknown = np.zeros(int(group.max()) + 1, dtype=bool)
    unknown[group[sized & (size < 0)]] = True
    return (verb << 56) + np.where(sized & ~unknown[group], size + 1, 0)


def _differ(ids: Ints, count: int, values: Ints) -> Mask:
    """True for ids that have different values."""
    return np.not_equal(least(ids, count, values), greatest(ids, count, values))


def _issue(ops: Table, rows: Ints) -> Ints:
    """When ops were issued: their launch's start where known, else their own."""
    launch = ops.launch[rows]
    return ops.start_ns[np.where(launch >= 0, launch, rows)]


def _in_order(ops: Table, rows: Ints) -> Ints:
    """Rows by rank, then by when they were issued."""

    issue = _issue(ops, rows)
    return rows[in_groups(*numbered(ops.rank[rows]), issue, issue)[0]]


def _sequenced(group: Ints, rank: Indices, seq: Ints) -> Mask:
    """True for ops of groups in which every op has a sequence number, and the numbers count."""
    without = np.zeros(int(group.max()) + 1, dtype=bool)
    without[group[seq < 0]] = True
    without[group[occurrence(group, rank, seq) >= REPEATS]] = True
    return ~without[group]


def _uneven(scope: Ints, rank: Indices) -> Mask:
    """True for ops of scopes in which the ranks hold different numbers of collectives."""
    cell, cells = numbered(scope, rank)
    per_op = np.bincount(cell, minlength=cells)[cell]
    return _differ(scope, int(scope.max()) + 1, per_op)[scope]


def _channels(ops: Table, window: Indices, rows: Ints, gate: Codes, count: int) -> int:
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


def _drop_lonely(gate: Indices, count: int) -> tuple[Codes, int]:
    """Gates with one member are none; the others are numbered without holes."""
    met = np.bincount(gate[gate >= 0], minlength=count + 1) >= 2  # the last is none, and stands for what has no gate
    new = np.where(met, np.cumsum(met) - 1, NULL).astype(np.int32)
    return kept(new[gate]), int(met.sum())


def settled(ops: Table, matching: Matching, wanted: Ints) -> Matching:
    """Only gates whose last arriver is known; ``wanted`` are the members a gate of each group should have, 0 if unknown.

    Where members were not traced, one of them may have come last. The last one seen is taken for it only where at least
    half are there and it goes straight through, or where all wait for a root that is there.
    """
    gate, count = matching.gate, matching.gates
    rows = np.flatnonzero((gate >= 0) & ~np.isin(ops.verb, (Verb.SEND, Verb.RECV)))
    at = gate[rows]
    lacking = wanted[ops.group[rows]] > np.bincount(at, minlength=count)[at]
    if not lacking.any():
        return matching
    # How long the transfer took after the last one seen had arrived; its class's quickest shows how long one takes.
    left = (greatest(at, count, ops.end_ns[rows]) - greatest(at, count, ops.start_ns[rows]))[at]
    kind, kinds = numbered(ops.group[rows], ops.verb[rows], ops.size[rows])
    quickest = least(kind, kinds, left)[kind]
    few = 2 * np.bincount(at, minlength=count)[at] < wanted[ops.group[rows]]
    rooted = np.zeros(count, dtype=bool)
    rooted[at[np.isin(ops.verb[rows], ROOT_GIVES) & (ops.peer[rows] == ops.rank[rows])]] = True
    unknown = np.zeros(count + 1, dtype=bool)
    unknown[at[lacking & (few | (left > STRAIGHT * quickest + STRAIGHT_NS)) & ~rooted[at]]] = True
    kept, gates = _drop_lonely(np.where(unknown[gate], np.int32(NULL), gate), count)
    lost = int(((gate >= 0) & (kept < 0)).sum())
    return replace(matching, gate=kept, gates=gates, unmatched=matching.unmatched + lost, open=count - gates)


def expected_members(trace: Trace) -> Ints:
    """Members that a gate of each group should have: all of the job where ranks are missing and the group names none."""
    world = trace.world_size or 0
    unnamed = world if world > len(trace.members) else 0
    return np.array([len(trace.group_ranks.get(group, ())) or unnamed for group in trace.groups], dtype=np.int64)


def table(graph: Graph) -> Table:
    """The gates of a graph: one row each, with who came last and by how much."""

    ops, rows = graph.ops, np.flatnonzero(graph.gate >= 0)
    if len(rows) == 0:
        return Table(Gate, {}, 0)
    gate = graph.gate[rows].astype(np.int64)
    order, begin = in_groups(gate, int(gate.max()) + 1, ops.start_ns[rows], ops.end_ns[rows])
    rows, begins, sizes = rows[order], begin[:-1], np.diff(begin)
    last = rows[begins + sizes - 1]
    middle = (ops.start_ns[rows[begins + (sizes - 1) // 2]] + ops.start_ns[rows[begins + sizes // 2]]) // 2
    wanted = np.array([len(graph.trace.group_ranks.get(g, ())) or NULL for g in graph.trace.groups] + [NULL])
    p2p = (ops.verb[last] == Verb.SEND) | (ops.verb[last] == Verb.RECV)
    return Table(
        Gate,
        {
            "gate": np.arange(len(last)),
            "verb": ops.verb[last],
            "name": ops.name[last],
            "step": graph.steps[graph.window[last]],
            "group": ops.group[last],
            "members": sizes,
            "expected": np.where(p2p, 2, wanted[ops.group[last]]),
            "opens_ns": ops.start_ns[last],
            "last_rank": ops.rank[last],
            "late_ns": ops.start_ns[last] - middle,
            "size": np.maximum.reduceat(ops.size[rows], begins),
        },
    )
