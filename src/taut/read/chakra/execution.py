"""PyTorch execution traces (of its ExecutionTraceObserver): operators, their inputs, and no times.

Beside the Kineto trace of the same rank they record what that leaves open about its collectives: process group, sequence
number, bytes, root or peer. A trace that Chakra's linker has merged with Kineto's holds times, and is a trace itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

import msgspec
import numpy as np

from taut.core.array_types import Ints, Json
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL, Kind, Trace, Verb
from taut.read.chakra import reader as chakra
from taut.read.chakra.execution_calls import Node, call_of, made_groups
from taut.read.chakra.execution_linked import is_linked, linked_nodes
from taut.read.chakra.nodes import rank_in_name
from taut.read.columns import Codes
from taut.read.contents import Call, Execution, Plan
from taut.read.json_values import integer
from taut.read.verb_words import HOPS

_HEAD = re.compile(rb'^\s*\{[^\[{]{0,4096}?"schema"\s*:\s*"\d+\.\d+(?:\.\d+)?[^"]{0,40}"')
# What a Kineto trace without group names calls the group of its collectives.
UNNAMED = "default"
# More objects in one file than an execution trace of one rank holds.
OBJECTS = 10_000_000
# Pairs of collectives that are compared, at most, where two records of a rank differ.
COMPARED = 4_000_000
_ROOTED = (Verb.BROADCAST, Verb.SCATTER, Verb.REDUCE, Verb.GATHER)


class _File(msgspec.Struct):
    nodes: list[Node]
    rank: Json = None


def sniff(head: bytes) -> bool:
    """A JSON object that names its schema's version and lists nodes."""
    return _HEAD.match(head) is not None and b'"nodes"' in head


def load(data: bytes | bytearray, label: str) -> Execution | Trace | Plan:
    """One execution trace; with times in it, a trace."""
    if data.count(b"{") > OBJECTS:
        raise TooLarge(label, f"more than {OBJECTS:,} objects", "trace fewer steps")
    try:
        found = msgspec.json.decode(data, type=_File)
    except RecursionError:
        raise TooLarge(label, "nested too deeply to be a trace") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputRefused(label, f"not a readable execution trace: {error}", "leave it out") from None
    if not found.nodes:
        raise InputRefused(label, "no operator in this execution trace", "leave it out")
    members = made_groups(found.nodes)
    recorded = [call_of(node) for node in found.nodes if "record_param_comms" in node.name]
    calls = sorted((call for call in recorded if call), key=lambda call: call.order)
    rank, notes = _rank(integer(found.rank), calls, members, label)
    if is_linked(found.nodes):
        nodes = linked_nodes(found.nodes, notes)
        nodes.rank, nodes.group_ranks = rank, members
        return chakra.of_nodes(nodes, label, notes)
    ids = {integer(node.id) for node in found.nodes}
    missing = sum(node.caller not in ids for node in found.nodes)
    counts = Counter({"operators in execution traces": len(found.nodes), "dependencies on a node that is not there": missing})
    return Execution(label, rank, calls, members, +counts, notes)


def _rank(recorded: int, calls: Sequence[Call], members: Mapping[str, Sequence[int]], label: str) -> tuple[int, list[str]]:
    """The rank: from the file, from its collectives, or from the file's name, with a note."""
    if 0 <= recorded < 2**31:
        return recorded, []
    mine = [call for call in calls if call.verb not in (*_ROOTED, *HOPS) and call.member >= 0]
    known = {members[call.group][call.member] for call in mine if call.member < len(members.get(call.group, ()))}
    if not known and len({call.group for call in calls}) == 1 and not members:
        known = {call.member for call in mine}
    if len(known) == 1:
        return min(known.pop(), 2**31 - 1), []
    rank = rank_in_name(label)
    return rank, [f"{label} does not name its rank: taken as rank {rank} from the file name"] if rank >= 0 else []


def apply(trace: Trace, executions: Sequence[Execution]) -> Trace:
    """The trace with what its execution traces know of the collectives."""
    if not executions:
        return trace
    ops = trace.ops
    groups = Codes({name: code for code, name in enumerate(trace.groups)})
    columns = {name: ops.columns[name].astype(np.int64) for name in ("group", "seq", "size", "peer")}
    counts: Counter[str] = Counter({"execution traces": len(executions)})
    ranks, notes, members = set(trace.members.rank.tolist()), list(trace.partial), dict(trace.group_ranks)
    for execution in executions:
        counts.update(execution.counts)
        notes += execution.notes
        if execution.rank not in ranks:
            notes.append(f"{execution.label} left out: an execution trace without the profiler's trace of its rank")
            continue
        rows = _issued(trace, execution.rank)
        mine, theirs, whole = _aligned(ops.verb[rows], ops.size[rows], execution.calls)
        counts["collectives named by execution traces"] += len(mine)
        counts["collectives in traces only"] += len(rows) - len(mine)
        counts["collectives in execution traces only"] += len(execution.calls) - len(theirs)
        members = {**execution.group_ranks, **members}
        found = [execution.calls[i] for i in theirs.tolist()]
        _fill(rows[mine], found, columns, groups, members, whole)
    if counts["dependencies on a node that is not there"]:
        notes.append(chakra.UNFOLLOWED)
    lost, extra = counts["collectives in execution traces only"], counts["collectives in traces only"]
    if lost or extra:
        notes.append(f"execution traces hold {lost} collectives that the traces do not, and lack {extra} that they do")
    return replace(
        trace,
        ops=ops.replace(**columns),
        groups=list(map(str, groups)),
        group_ranks=members,
        partial=tuple(dict.fromkeys(notes)),
        counts={**trace.counts, **+counts},
    )


def _issued(trace: Trace, rank: int) -> Ints:
    """The rendezvous of a rank in the order in which they were issued."""
    ops = trace.ops
    rows = np.flatnonzero((ops.rank == rank) & (ops.kind == Kind.COMMUNICATE) & (ops.verb != Verb.NONE))
    launch = ops.launch[rows]
    return rows[np.lexsort((rows, ops.start_ns[np.where(launch >= 0, launch, rows)]))]


def _aligned(verb: Ints, size: Ints, calls: Sequence[Call]) -> tuple[Ints, Ints, bool]:
    """(places in the trace, places in the execution trace, whether nothing is missing on either side)."""
    theirs = [call.verb for call in calls]
    if verb.tolist() == theirs:
        every = np.arange(len(calls), dtype=np.int64)
        return every, every, True
    ours = list(zip(verb.tolist(), size.tolist(), strict=True))
    named = [(call.verb, call.size) for call in calls]
    codes = Codes()
    long, short = (codes.of(side).tobytes() for side in (ours, named))
    # An execution trace often covers a part of the profile: its calls are then one run of the others, found as bytes.
    at = long.find(short) if named else -1
    if at >= 0 and at % 8 == 0:
        every = np.arange(len(calls), dtype=np.int64)
        return every + at // 8, every, False
    if len(ours) * len(named) > COMPARED:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), False
    blocks = SequenceMatcher(None, ours, named, autojunk=False).get_matching_blocks()
    pairs = np.array([(b.a + k, b.b + k) for b in blocks for k in range(b.size)], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], False


def _fill(
    rows: Ints,
    calls: Sequence[Call],
    columns: dict[str, Ints],
    groups: Codes,
    members: Mapping[str, Sequence[int]],
    whole: bool,
) -> None:
    """Put what the calls record where the trace has nothing."""
    unnamed = groups.get(UNNAMED, -2)
    open_ = np.isin(columns["group"][rows], (NULL, unnamed))
    for row, call, unknown in zip(rows.tolist(), calls, open_.tolist(), strict=True):
        if unknown and call.group:
            columns["group"][row] = groups[call.group]
        if columns["size"][row] < 0:
            columns["size"][row] = call.size
        ranks = members.get(call.group, ())
        if columns["peer"][row] < 0 and call.verb in (*_ROOTED, *HOPS) and 0 <= call.member < len(ranks):
            columns["peer"][row] = ranks[call.member]
    if not whole:
        return  # a sequence number that belongs to another call would match strangers
    seq, group = np.array([call.seq for call in calls], dtype=np.int64), columns["group"][rows]
    collective = np.isin([call.verb for call in calls], HOPS, invert=True)
    for code in np.unique(group).tolist():
        here = np.flatnonzero((group == code) & collective)
        if len(here) and (seq[here] >= 0).all() and (np.diff(seq[here]) > 0).all() and (columns["seq"][rows[here]] < 0).all():
            columns["seq"][rows[here]] = seq[here]
