"""Chakra execution traces, protobuf or JSON, one file per rank: nodes, what they depend on, and sometimes when they ran.

With starts a file is a trace like any other. With durations only it is a plan: ``laid_out`` puts the nodes of all ranks
behind what they depend on, with a note that its starts were not measured. With neither it is refused.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused
from taut.core.jit import kernel
from taut.core.tables import NULL, Kind, Mark, Member, Table, Trace, Verb
from taut.read.chakra import json_nodes, proto_nodes
from taut.read.chakra.nodes import COLLECTIVE, COMPUTE, MEM_LOAD, MEM_STORE, METADATA, RECV, SEND, Needs, Nodes, rank_in_name
from taut.read.chakra.proto_sniff import is_protobuf
from taut.read.columns import Codes, grouped, grouped_max
from taut.read.communication_families import assumed_verb, communication, is_communication
from taut.read.contents import Plan
from taut.read.limits import check_wall
from taut.read.op_rows import Rows
from taut.read.verb_words import verb_of

_JSON = re.compile(rb"\s*[{\[]")
# Starts from here on count from 1970, so that none can be 0 (which protobuf leaves out).
EPOCH_NS = 10**18
# With more than this share of the computing nodes without a duration, no schedule means anything.
TIMELESS = 0.1
# Messages that are compared, at most, to find out whether they recur.
COMPARED = 200_000_000
ONE_STEP = "no step marks, and the messages do not recur: the whole trace is one window"
UNFOLLOWED = "some dependencies name a node that is not in the trace: they are not followed"
NOT_MATCHED = "some collectives name the dimensions of the network that they span, not their group: they are not matched"


def trace_of(plan: Plan, rank: int, start: Ints, end: Ints) -> Trace:
    """The trace of a plan once its times are known."""
    check_wall(start, end, plan.label)
    rows = Rows()
    for codes, words in ((rows.names, plan.names), (rows.lanes, plan.lanes), (rows.groups, plan.groups)):
        codes.of(words)
    rows.add(start, end, **plan.columns)
    marks = Table(Mark, {}, 0) if _recurs(plan) else _one_step(rank, start, end)
    ops = rows.table(rank, marks)
    counts = plan.counts + rows.counts
    counts["ops"] = len(ops)
    return Trace(
        ops=ops,
        names=list(map(str, rows.names)),
        lanes=list(map(str, rows.lanes)),
        groups=list(map(str, rows.groups)),
        members=Table(Member, {"rank": np.array([rank])}, 1),
        marks=marks,
        source=plan.label,
        group_ranks=plan.group_ranks,
        partial=[*plan.notes, ONE_STEP] if len(marks) else plan.notes,
        counts=dict(counts),
    )


def _recurs(plan: Plan) -> bool:
    """Whether the messages are one sequence, three times or more: then these are steps, which the graph will find."""
    rows = np.flatnonzero(plan.columns["verb"] != Verb.NONE)
    rows = rows[np.argsort(plan.place[rows], kind="stable")]
    token = plan.columns["verb"][rows] * (1 << 56) + plan.columns["size"][rows]
    # Three turns at least: two alike may be chance.
    periods = range(1, min(len(rows) // 3, COMPARED // max(len(rows), 1)) + 1)
    return any((token[period:] == token[:-period]).all() for period in periods)


def _one_step(rank: int, start: Ints, end: Ints) -> Table:
    column = {"rank": [rank], "step": [0], "start_ns": [start.min()], "end_ns": [int(end.max()) + 1]}
    return Table(Mark, {name: np.array(value) for name, value in column.items()}, 1)


def sniff(head: bytes) -> bool:
    """JSON in the words of Chakra, or protobuf of the shape of a header and nodes."""
    return json_nodes.sniff(head) or is_protobuf(head)


def load(data: bytes | bytearray, label: str) -> Trace | Plan:
    """One file: a trace if it records when nodes started, else a plan."""
    json = _JSON.match(data) is not None
    nodes = json_nodes.nodes(data, label) if json else proto_nodes.nodes(data, label)
    notes = []
    named = np.unique(nodes.number["rank"][nodes.number["rank"] >= 0])
    if nodes.rank < 0 and len(named) == 1 and named[0] < 2**31:
        nodes.rank = int(named[0])
    if nodes.rank < 0:
        nodes.rank = rank_in_name(label)
        if nodes.rank >= 0:
            notes.append(f"{label} does not name its rank: taken as rank {nodes.rank} from the file name")
    return of_nodes(nodes, label, notes)


def of_nodes(nodes: Nodes, label: str, notes: list[str]) -> Trace | Plan:
    """The trace or the plan that these nodes are."""
    # A start of 0 is missing or real: protobuf leaves zeros out. Times that count from 1970 are never 0.
    started, epoch = nodes.start_ns > 0, bool((nodes.start_ns >= EPOCH_NS).any())
    measured = len(np.unique(nodes.start_ns[started])) > 1
    keep = nodes.type != METADATA
    if measured:
        started |= (not epoch) & (nodes.duration_ns > 0)
        nodes.counts["dropped: no start"] += int((keep & ~started).sum())
        keep &= started
        keep &= _worth_keeping(nodes, keep)
    if not keep.any():
        raise InputRefused(label, "no node that takes time in this trace", "convert the trace again")
    plan = _plan(nodes, np.flatnonzero(keep), label, notes)
    if not measured:
        _refuse_timeless(nodes, plan, keep)
        return plan
    start = np.maximum(nodes.start_ns[keep], 0)
    return trace_of(plan, plan.rank, start, start + plan.duration_ns)


def _worth_keeping(nodes: Nodes, started: Mask) -> Mask:
    """Of host nodes, which call one another: those that launch something, or without devices the outermost."""
    host = np.equal(nodes.number["is_cpu_op"], 1)
    kept: Mask = ~host
    if (nodes.number["is_cpu_op"] == 0).any():
        kept[nodes.needs.source[~host[nodes.needs.target]]] = True
    else:
        rows = np.flatnonzero(host & started)
        thread, start = np.unique(nodes.number["tid"][rows], return_inverse=True)[1].ravel(), nodes.start_ns[rows]
        end = start + np.maximum(nodes.duration_ns[rows], 0)
        order = np.lexsort((-end, start, thread))
        kept[rows[order[end[order] > grouped_max(thread[order], end[order])]]] = True
    nodes.counts["dropped: host nodes inside others, or that launch nothing"] += int((host & started & ~kept).sum())
    return kept


def _refuse_timeless(nodes: Nodes, plan: Plan, keep: Mask) -> None:
    """A plan needs durations; collectives may lack theirs, because they can at least be waited for."""
    computing = (plan.columns["kind"] != Kind.COMMUNICATE) & np.isin(nodes.type[keep], (COMPUTE, MEM_LOAD, MEM_STORE))
    busy = computing & ((plan.duration_ns > 0) | (nodes.number["num_ops"][keep] > 0))
    timeless = int((busy & (plan.duration_ns == 0)).sum())
    if not plan.duration_ns.any():
        why = "neither starts nor durations: structure and sizes only"
    elif timeless > TIMELESS * max(int(busy.sum()), 1):
        why = f"{timeless:,} of {int(busy.sum()):,} computing nodes have operations to do but no duration"
    else:
        return
    raise InputRefused(plan.label, why, "give the Kineto traces that it was made from, or a trace with duration_micros")


def _plan(nodes: Nodes, rows: Ints, label: str, notes: list[str]) -> Plan:
    needs = nodes.needs.among(rows, len(nodes))
    place = _places(nodes.id[rows], needs)
    forward = place[needs.source] < place[needs.target]
    nodes.counts["control dependencies against the data"] += int((~forward & needs.control).sum())
    circular = int((~forward & ~needs.control).sum())
    if circular:
        nodes.counts["dependencies that close a circle"] += circular
        notes.append("some nodes depend on each other in a circle: the dependencies that close it are not followed")
    if nodes.counts["dependencies on a node that is not there"]:
        notes.append(UNFOLLOWED)
    ops = _Ops(nodes, rows, needs, notes)
    followed = needs.take(forward)
    return Plan(
        label=label,
        rank=nodes.rank,
        columns=ops.columns,
        duration_ns=np.maximum(nodes.duration_ns[rows], 0),
        names=list(map(str, ops.names)),
        lanes=list(map(str, ops.lanes)),
        groups=list(map(str, ops.groups)),
        group_ranks=nodes.group_ranks,
        source=followed.source,
        target=followed.target,
        place=place,
        serial=ops.serial,
        tag=nodes.number["comm_tag"][rows],
        counts=Counter({reason: n for reason, n in nodes.counts.items() if n}),
        notes=notes,
    )


def _places(ids: Ints, needs: Needs) -> Ints:
    """The order of issue: by id where that respects the data, else the first order that does."""
    n, order = len(ids), np.argsort(ids, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    source, target = place[needs.source[~needs.control]], place[needs.target[~needs.control]]
    if (source < target).all():
        return place
    by_source = grouped(source)
    first = np.searchsorted(source[by_source], np.arange(n + 1))
    found = topological(first, target[by_source], np.bincount(target, minlength=n))
    place[order[found]] = np.arange(n)
    return place


@kernel(lists=True)
def topological(first: Ints, target: Ints, pending: Ints) -> Ints:
    """Nodes in an order that respects their dependencies; those in a circle, and behind it, at the end."""
    n = len(first) - 1
    out, seen, left = np.empty(n, np.int64), np.zeros(n, np.bool_), np.empty(n, np.int64)
    count, at = 0, 0
    for v in range(n):
        left[v] = pending[v]
        if pending[v] == 0:
            out[count] = v
            count += 1
            seen[v] = True
    while at < count:
        v = out[at]
        at += 1
        for i in range(first[v], first[v + 1]):
            left[target[i]] -= 1
            if left[target[i]] == 0:
                out[count] = target[i]
                seen[target[i]] = True
                count += 1
    for v in range(n):
        if not seen[v]:
            out[count] = v
            count += 1
    return out


class _Ops:
    """Columns of the ops that nodes are."""

    def __init__(self, nodes: Nodes, rows: Ints, needs: Needs, notes: list[str]) -> None:
        self.nodes, self.rows = nodes, rows
        self.names, self.lanes, self.groups = Codes(), Codes(), Codes()
        kind, device, host = nodes.type[rows], self._is_cpu(0), self._is_cpu(1)
        offloads = bool(device.any())
        message = np.isin(kind, (SEND, RECV, COLLECTIVE)) & ~(host & offloads)
        computes = np.isin(kind, (0, COMPUTE, MEM_LOAD, MEM_STORE)) & ~(host & offloads)
        verb = self._verbs(message)
        group = self._group_codes(message, verb, notes)
        self.serial = ~message | (nodes.number["stream"][rows] >= 0) | device
        size = nodes.number["comm_size"][rows]
        self.columns: dict[str, Ints] = {
            "kind": np.where(message, Kind.COMMUNICATE, np.where(computes, Kind.COMPUTE, Kind.COORDINATE)).astype(np.int64),
            "lane": self._lane_codes(message, host, device, offloads),
            "name": self._name_codes(message, verb),
            "verb": verb,
            "group": group,
            "size": np.where(size >= 0, size, nodes.number["tensor_size"][rows]),
            "peer": self._peers(verb),
            "launch": self._launches(needs, host, device),
        }

    def _is_cpu(self, value: int) -> Mask:
        return np.equal(self.nodes.number["is_cpu_op"][self.rows], value)

    def _verbs(self, message: Mask) -> Ints:
        """The verb of each message: as recorded, else from its name."""
        nodes, rows = self.nodes, self.rows
        kind, recorded = nodes.type[rows], nodes.number["comm_type"][rows]
        verb = np.where(message & (kind == COLLECTIVE) & (recorded > 0), recorded, int(Verb.NONE))
        verb[message & (kind == SEND)], verb[message & (kind == RECV)] = Verb.SEND, Verb.RECV
        words = np.array([_named_verb(name) for name in nodes.names], dtype=np.int64)
        silent = message & (kind == COLLECTIVE) & (recorded < 0)
        verb[silent] = words[nodes.name[rows[silent]]]
        nothing = (nodes.number["comm_size"][rows] == 0) & (kind == COLLECTIVE) & (verb != Verb.BARRIER)
        nodes.counts["collectives of no bytes, not a rendezvous"] += int((nothing & (verb != Verb.NONE)).sum())
        verb[nothing] = Verb.NONE
        return verb

    def _group_codes(self, message: Mask, verb: Ints, notes: list[str]) -> Ints:
        """The group of each rendezvous; without a name it is that of all ranks, unless only some dimensions are spanned."""
        nodes, rows = self.nodes, self.rows
        named = self.groups.of(nodes.groups)
        group = np.append(named, NULL)[nodes.group[rows]]
        group[~message] = NULL
        open_ = message & (group < 0) & (verb != Verb.NONE) & (verb != Verb.SEND) & (verb != Verb.RECV)
        some = open_ & (nodes.some_dims[rows] == 1)
        if some.any():
            nodes.counts["collectives without a group"] += int(some.sum())
            notes.append(NOT_MATCHED)
        if (open_ & ~some).any():
            group[open_ & ~some] = self.groups["default"]
        return group

    def _lane_codes(self, message: Mask, host: Mask, device: Mask, offloads: bool) -> Ints:
        """A thread, a stream, or, where the trace has neither, the resource that a node of its kind needs."""
        nodes, rows = self.nodes, self.rows
        tid, stream = nodes.number["tid"][rows], nodes.number["stream"][rows]
        # Where a kernel has no stream, its thread stands for one.
        stream = np.where((stream < 0) & device, tid, stream)
        memory = np.isin(nodes.type[rows], (MEM_LOAD, MEM_STORE))
        which = np.select([host, stream >= 0, message, memory], [0, 1, 2, 3], 4)
        number = np.where(which == 0, tid, np.where(which == 1, stream, NULL))
        numbers, place = np.unique(number, return_inverse=True)
        used, inverse = np.unique(which * len(numbers) + place.ravel(), return_inverse=True)
        words = ("thread", "stream", "network", "memory", "compute")
        pairs = zip((used // len(numbers)).tolist(), numbers[used % len(numbers)].tolist(), strict=True)
        named = [words[w] if n < 0 else f"{words[w]} {n}" for w, n in pairs]
        return self.lanes.of(named)[inverse.ravel()]

    def _name_codes(self, message: Mask, verb: Ints) -> Ints:
        """A message's class is its verb; other nodes keep their names."""
        nodes = self.nodes
        name = self.names.of(nodes.names)[nodes.name[self.rows]]
        communications = (communication(word) for word in nodes.names)
        nccl = np.array([one is not None and not one.word for one in communications], dtype=np.bool_)[nodes.name[self.rows]]
        for known, library in ((message & nccl, "nccl "), (message & ~nccl, "")):
            for code in np.unique(verb[known & (verb != Verb.NONE)]).tolist():
                name[known & (verb == code)] = self.names[f"{library}{Verb(code).word}"]
        return name

    def _peers(self, verb: Ints) -> Ints:
        number, rows = self.nodes.number, self.rows
        peer = np.where(verb == Verb.SEND, number["comm_dst"][rows], NULL)
        peer = np.where(verb == Verb.RECV, number["comm_src"][rows], peer)
        return np.where((peer >= 0) & (peer < 2**31), peer, NULL)

    def _launches(self, needs: Needs, host: Mask, device: Mask) -> Ints:
        """The host node that a device node depends on; of several the one issued last."""
        launch = np.full(len(self.rows), NULL, dtype=np.int64)
        issued = needs.take(host[needs.source] & device[needs.target])
        # Written in the order of issue, so that the last of several wins.
        order = np.argsort(self.nodes.id[self.rows[issued.source]], kind="stable")
        launch[issued.target[order]] = issued.source[order]
        return launch


def _named_verb(name: str) -> Verb:
    return assumed_verb(name) if is_communication(name) else verb_of(name)
