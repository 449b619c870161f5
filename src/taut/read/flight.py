"""Flight-recorder dumps (JSON) that lie beside traces: they know a collective's process group and sequence number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from taut.errors import InputRefused
from taut.read.columns import Codes, Ints
from taut.read.kineto_json import integer
from taut.read.kineto_rows import rank_list
from taut.read.words import verb_of
from taut.tables import Kind, Trace, Verb

CREATED_NS = 200_000
"""A dump entry is created while its call runs; clocks of the two records agree to well within this."""
EARLIER_NS = 60_000_000_000
_SPOKEN = (b'"collective_seq_id"', b'"nccl_comm_state"', b'"comm_lib_version"', b'"pg_status"')
_RANK = re.compile(r"(\d{1,7})(?!.*\d)")


@dataclass
class Dump:
    """The collectives one rank recorded, in order of creation."""

    label: str
    rank: int
    created_ns: Ints
    verb: Ints
    seq: Ints
    group: list[str]
    group_ranks: dict[str, list[int]] = field(default_factory=dict)


def sniff(head: bytes) -> bool:
    """A JSON object with the keys of a dump."""
    text = head.lstrip()
    return text[:1] == b"{" and any(word in text for word in _SPOKEN)


class _Entry(msgspec.Struct):
    time_created_ns: Any = None
    profiling_name: Any = None
    collective_seq_id: Any = None
    process_group: Any = None
    is_p2p: Any = None


class _File(msgspec.Struct):
    entries: list[_Entry] = []
    pg_config: Any = None
    rank: Any = None


def load(data: bytes | bytearray, label: str) -> Dump:
    """One dump; the rank comes from the dump if it says, else from the file name, else it is -1."""
    try:
        dump = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable flight-recorder dump: {error}", "leave it out") from None
    entries = [entry for entry in dump.entries if integer(entry.time_created_ns) > 0 and entry.is_p2p is not True]
    entries.sort(key=lambda entry: integer(entry.time_created_ns))
    rank = integer(dump.rank)
    if rank < 0:
        found = _RANK.search(re.split(r"[/\\:]", label)[-1])
        rank = int(found[1]) if found else -1
    return Dump(
        label=label,
        rank=rank,
        created_ns=np.array([integer(entry.time_created_ns) for entry in entries], dtype=np.int64),
        verb=np.array([verb_of(str(entry.profiling_name)) for entry in entries], dtype=np.int64),
        seq=np.array([integer(entry.collective_seq_id) for entry in entries], dtype=np.int64),
        group=[_group(entry.process_group) for entry in entries],
        group_ranks=_config(dump.pg_config),
    )


def _group(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) and value else ""


def _config(config: Any) -> dict[str, list[int]]:
    groups = config if isinstance(config, dict) else {}
    named = {
        str(entry.get("name") or key): rank_list(entry.get("ranks")) for key, entry in groups.items() if isinstance(entry, dict)
    }
    return {name: ranks for name, ranks in named.items() if name and ranks}


def apply(trace: Trace, dumps: Sequence[Dump], counts: Mapping[str, int]) -> Trace:
    """The trace with group and sequence number of every collective that a dump of its rank also has."""
    if not dumps:
        return replace(trace, counts={**trace.counts, **counts})
    groups = Codes({name: code for code, name in enumerate(trace.groups)})
    group, seq = trace.ops.group.copy(), trace.ops.seq.copy()
    matched = 0
    for dump in dumps:
        rows, entries = _matches(trace, dump)
        seq[rows] = dump.seq[entries]
        named = np.flatnonzero(np.array([bool(dump.group[i]) for i in entries.tolist()], dtype=np.bool_))
        group[rows[named]] = groups.of(dump.group[i] for i in entries[named].tolist())
        matched += len(rows)
    ranks = {name: members for dump in dumps for name, members in dump.group_ranks.items()}
    found = {"flight-recorder dumps": len(dumps), "collectives named by the flight recorder": matched}
    return replace(
        trace,
        ops=trace.ops.replace(group=group, seq=seq),
        groups=list(map(str, groups)),
        group_ranks={**ranks, **trace.group_ranks},
        counts={**trace.counts, **counts, **found},
    )


def _matches(trace: Trace, dump: Dump) -> tuple[Ints, Ints]:
    """Rows of ops and entries of the dump that are the same collective."""
    ops = trace.ops
    mine = (ops.rank == dump.rank) & (ops.kind == Kind.COMMUNICATE) & (ops.seq < 0)
    mine &= (ops.verb != Verb.SEND) & (ops.verb != Verb.RECV)
    rows = np.flatnonzero(mine)
    call = ops.launch[rows]
    begin = np.where(call >= 0, ops.start_ns[call], ops.start_ns[rows])
    finish = np.where(call >= 0, ops.end_ns[call], ops.start_ns[rows])
    order = np.lexsort((rows, begin))
    rows, begin, finish, issued = rows[order], begin[order], finish[order], call[order] >= 0
    if not len(dump.seq) or not len(rows):
        return rows[:0], rows[:0]
    # An entry is created after its call began, before the next call does; without the call, some time before the transfer.
    following = np.append(begin[1:], np.iinfo(np.int64).max)
    after = np.searchsorted(dump.created_ns, begin - CREATED_NS // 4, "left")
    before = np.searchsorted(dump.created_ns, finish + CREATED_NS, "right") - 1
    entry = np.minimum(np.where(issued, after, before), len(dump.seq) - 1)
    created = dump.created_ns[np.maximum(entry, 0)]
    during = (created >= begin - CREATED_NS // 4) & ((created <= finish + CREATED_NS) | (created < following))
    good = (entry >= 0) & np.where(issued, during, created >= begin - EARLIER_NS)
    good &= np.concatenate([[True], entry[1:] > entry[:-1]])
    return rows[good], entry[good]
