"""Flight-recorder dumps, JSON or pickle: which communication calls a rank made, of which group, in which order.

Beside traces they name the group and sequence number of every collective. Alone they show who did not come to a gate,
which is all that is left of a job that hangs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.device_words import is_copy, on_device
from taut.core.errors import InputRefused, NotATrace
from taut.core.ids import greatest, least
from taut.core.tables import NULL, Call, Kind, Mark, Member, Op, Table, Trace, Verb, concat
from taut.read.columns import Codes
from taut.read.contents import ONLY_DUMPS, Dump
from taut.read.flight import arrivals, pickles
from taut.read.flight.pickles import Plain
from taut.read.json_values import elements, integer, integers
from taut.read.kineto.collectives import NO_GROUP
from taut.read.limits import RANKS, near
from taut.read.merge import left_out
from taut.read.op_rows import NAME_LENGTH, rank_list
from taut.read.verb_words import verb_of

# A dump entry is created while its call runs; clocks of the two records agree to well within this.
CREATED_NS = 200_000
EARLIER_NS = 60_000_000_000
# States of an entry whose transfer has begun.
BEGUN = ("started", "completed")
# Ranks without a dump that are listed one by one.
ABSENT = 1000
BARE = f"{ONLY_DUMPS}: calls and their order, not how long anything took"
_KEYS = (b'"collective_seq_id"', b'"nccl_comm_state"', b'"comm_lib_version"', b'"pg_status"')
_RANK = re.compile(r"(\d{1,7})\D*+\Z")
_HOP = re.compile(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})")


def sniff(head: bytes) -> bool:
    """A JSON object with the keys of a dump, or a pickle: no trace is one."""
    text = head.lstrip()
    return pickles.sniff(head) or (text[:1] == b"{" and any(word in text for word in _KEYS))


class _Entry(msgspec.Struct, gc=False):
    record_id: Plain = None
    pg_id: Plain = None
    time_created_ns: Plain = None
    profiling_name: Plain = None
    collective_seq_id: Plain = None
    p2p_seq_id: Plain = None
    op_id: Plain = None
    process_group: Plain = None
    input_sizes: Plain = None
    state: Plain = None
    retired: Plain = None
    time_discovered_started_ns: Plain = None
    is_p2p: Plain = None


class _File(msgspec.Struct):
    entries: list[_Entry] = []
    pg_config: Plain = None
    pg_status: Plain = None
    rank: Plain = None


def load(data: bytes | bytearray, label: str) -> Dump:
    """One dump; the rank comes from the dump if it is there, else from the file name, else it is -1."""
    dump = _decoded(data, label)
    entries = _ordered(dump.entries)
    rank = _rank(dump.rank, label)
    of = [_group(entry.process_group) for entry in entries]
    pg = integers([entry.pg_id for entry in entries])
    names, groups, members = Codes(), Codes(), _config(dump.pg_config, set(of))
    known = _recorded(dump, entries, pg, names, members).replace(group=groups.of(of))
    reached = _reached(dump, dict(zip(pg.tolist(), of, strict=True)), members)
    calls = concat(Call, [known, _counted(reached, groups)])
    calls = calls.replace(rank=np.full(len(calls), rank))
    return Dump(label, rank, calls, list(map(str, names)), list(map(str, groups)), members)


def _decoded(data: bytes | bytearray, label: str) -> _File:
    """What a file holds, which is JSON or a pickle."""
    try:
        if not pickles.sniff(data[:2]):
            return msgspec.json.decode(data, type=_File)
        value = pickles.plain(data, label)
        if not isinstance(value, dict) or "entries" not in value:
            raise NotATrace(label, "a pickle that is no flight-recorder dump", "leave it out")
        return _unpickled(value, label)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(label, f"not a readable flight-recorder dump: {error}", "leave it out") from None


def _recorded(dump: _File, entries: list[_Entry], pg: Ints, names: Codes, members: Mapping[str, Sequence[int]]) -> Table:
    """The calls that a dump has an entry of, in the order of the entries."""
    called = Codes()
    call = called.of(_texts([entry.profiling_name for entry in entries]))
    hop = np.array([entry.is_p2p is True for entry in entries], dtype=np.bool_)
    seq = np.where(hop, integers([e.p2p_seq_id for e in entries]), integers([e.collective_seq_id for e in entries]))
    return Table(
        Call,
        {
            "name": names.of(map(_name, map(str, called)))[call] if entries else call,
            "seq": seq,
            "verb": np.array(list(map(verb_of, called)), dtype=np.int64)[call] if entries else call,
            "peer": [_hop(entry, members) if p2p else NULL for entry, p2p in zip(entries, hop.tolist(), strict=True)],
            "size": [elements(entry.input_sizes) for entry in entries],
            "created_ns": integers([entry.time_created_ns for entry in entries]),
            "done": _done(dump, entries, pg, seq, hop),
            "started": [e.state in BEGUN or integer(e.time_discovered_started_ns) > 0 for e in entries],
        },
        len(entries),
    )


def _counted(reached: list[tuple[str, int, int]], groups: Codes) -> Table:
    """The calls of which a dump has only the number: the last of each group."""
    return Table(
        Call,
        {
            "group": groups.of(name for name, _, _ in reached),
            "seq": [enqueued for _, enqueued, _ in reached],
            "done": [int(completed >= enqueued) for _, enqueued, completed in reached],
        },
        len(reached),
    )


def _unpickled(value: dict[Plain, Plain], label: str) -> _File:
    """What a pickle holds, by reference: a copy could be as large as all that its references stand for."""
    listed = value["entries"]
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list | tuple) else []
    if not isinstance(listed, list | tuple) or len(entries) < len(listed):
        why = "not a readable flight-recorder dump: its entries are no list of dictionaries"
        raise InputRefused(label, why, "leave it out")
    fields, rest = _Entry.__struct_fields__, _File.__struct_fields__[1:]
    return _File([_Entry(*map(entry.get, fields)) for entry in entries], *map(value.get, rest))


def _rank(recorded: Plain, label: str) -> int:
    """The rank that a dump records, else the last number of its file's name, else -1."""
    rank = integer(recorded)
    if rank >= RANKS:
        raise InputRefused(label, f"a dump of rank {rank:,}, which no job has", "leave it out")
    found = None if rank >= 0 else _RANK.search(re.split(r"[/\\:]", label)[-1])
    return rank if rank >= 0 else int(found[1]) if found else -1


def _ordered(entries: list[_Entry]) -> list[_Entry]:
    """The entries that record when they were created, in that order."""
    created, record = integers([entry.time_created_ns for entry in entries]), integers([entry.record_id for entry in entries])
    # Entries of a ring buffer begin anywhere; record ids decide between equal times.
    order = np.lexsort((record, created))
    return [entries[i] for i in order[created[order] > 0].tolist()]


def _text(value: Plain) -> str:
    """The text of a name or number, as far as names go; empty of lists and tables, which may be any size."""
    if type(value) is str:
        return value[:NAME_LENGTH]
    return str(value)[:NAME_LENGTH] if value is None or isinstance(value, (str, int, float)) else ""


def _texts(values: list[Plain]) -> list[str]:
    """The texts of many; where all are texts they are not cut here, but later, once for each different one."""
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else list(map(_text, values))


def _group(value: Plain) -> str:
    if not isinstance(value, (list, tuple)) or not value:
        return ""
    name = value[0]
    return name if type(name) is str and len(name) <= NAME_LENGTH else _text(name)


def _name(text: str) -> str:
    """The call's class: the ends of a hop are its place, not its class."""
    return _HOP.sub("", text[:NAME_LENGTH]).strip()


def _hop(entry: _Entry, members: Mapping[str, Sequence[int]]) -> int:
    """Global rank of the other end of a send or receive, -1 if it is not recorded: names hold ranks inside the group."""
    found = _HOP.search(_text(entry.profiling_name))
    if found is None:
        return NULL
    other, ranks = int(found[3]), members.get(_group(entry.process_group), ())
    return ranks[other] if other < len(ranks) else NULL


def _done(dump: _File, entries: Sequence[_Entry], pg: Ints, seq: Ints, hop: Mask) -> Mask:
    """True if the call completed; the status of its group decides where the entry itself does not say.

    A group's status numbers calls as the entries number them all (gloo), or as their own kind (NCCL). It is that of the newest
    entry; of a group that has sends and receives, also if they are no longer in the dump, NCCL's shows nothing.
    """
    op = integers([entry.op_id for entry in entries])
    mixed = set(pg[hop].tolist())
    done = np.array([entry.state == "completed" for entry in entries], dtype=np.bool_)
    for group, (enqueued, completed) in _status(dump).items():
        mine = np.flatnonzero(pg == group)
        if not len(mine) or completed > enqueued:
            continue
        number = op if op[mine[-1]] == enqueued else seq
        if number[mine[-1]] == enqueued and (number is op or group not in mixed):
            done[mine] |= (number[mine] >= 0) & (number[mine] <= completed)
    # Of gloo's two threads the slower may set the status back. Gloo retires a call when it times out, too, and then its status
    # says so as well: of calls that not all members made neither counts (``diagnose/open_calls.py``).
    done |= np.array([entry.retired is True for entry in entries], dtype=np.bool_)
    return done


def _status(dump: _File) -> dict[int, tuple[int, int]]:
    """Last call enqueued and last completed of every group, by the number the process itself gives the group."""
    status = dump.pg_status if isinstance(dump.pg_status, dict) else {}
    return {
        integer(_text(key)): (integer(value.get("last_enqueued_collective")), integer(value.get("last_completed_collective")))
        for key, value in status.items()
        if isinstance(value, dict) and integer(_text(key)) >= 0
    }


def _reached(dump: _File, named: Mapping[int, str], members: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """(group, last call enqueued, last completed) of the groups without an entry.

    A process numbers its groups in the order of their names, leaving out those it is no member of: where the counts agree,
    and the entries agree, that order identifies them.
    """
    status = sorted(_status(dump).items())
    if len(status) != len(members) or not all(name.isdecimal() for name in members):
        return []
    order = sorted(members, key=int)
    agreed = all(named.get(pg, name) == name for (pg, _), name in zip(status, order, strict=True))
    if not agreed:
        return []
    return [(name, *status[i][1]) for i, name in enumerate(order) if status[i][0] not in named and status[i][1][0] >= 0]


def _config(config: Plain, called: set[str]) -> dict[str, list[int]]:
    """Group → its ranks. A single group without a name is the one group of which there are calls and no name."""
    groups = config if isinstance(config, dict) else {}
    parsed: dict[str, list[int]] = {}  # groups of a pickle may share one text
    named = {
        _text(entry.get("name") or key): _ranks_of(entry.get("ranks"), parsed)
        for key, entry in groups.items()
        if isinstance(entry, dict)
    }
    other = called - set(named)
    if "" in named and len(other) == 1:
        named[other.pop()] = named[""]
    return {name: ranks for name, ranks in named.items() if name and ranks}


def _ranks_of(value: Plain, parsed: dict[str, list[int]]) -> list[int]:
    """The ranks of a group; those of a text that was met before are the same list."""
    if not isinstance(value, str):
        return rank_list(value)
    if value not in parsed:
        parsed[value] = rank_list(value)
    return parsed[value]


def alone(dumps: Sequence[Dump], refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """The trace of a job of which only dumps are left."""
    known, moved = _latest(dumps)
    names, groups = Codes(), Codes()
    calls = concat(Call, [_recoded(dump, names, groups) for dump in known])
    group_ranks = {group: ranks for dump in known for group, ranks in dump.group_ranks.items()}
    world = {rank for ranks in group_ranks.values() for rank in ranks}
    return calls_only(
        Trace(
            ops=Table(Op, {}, 0),
            names=list(map(str, names)),
            lanes=list(arrivals.LANES),
            groups=list(map(str, groups)),
            members=Table(Member, {"rank": [dump.rank for dump in known]}),
            name=name,
            source=source,
            world_size=len(world) or None,
            group_ranks=group_ranks,
            calls=calls,
            moved=moved,
            partial=left_out(refused),
        )
    )


def _latest(dumps: Sequence[Dump]) -> tuple[list[Dump], dict[int, bool]]:
    """(the last dump of every rank, of ranks with several whether the last one shows more than the one before it)."""
    of: dict[int, list[Dump]] = {}
    for dump in dumps:
        if dump.rank >= 0:
            of.setdefault(dump.rank, []).append(dump)
    moved: dict[int, bool] = {}
    for rank, several in of.items():
        several.sort(key=_progress)
        if len(several) > 1:
            moved[rank] = _progress(several[-1]) > _progress(several[-2])
    return _told_apart([of[rank][-1] for rank in sorted(of)]), moved


def _told_apart(dumps: list[Dump]) -> list[Dump]:
    """The dumps, with groups called by their members, too, where several groups have one name."""
    ranks: dict[str, set[tuple[int, ...]]] = {}
    for dump in dumps:
        for name, members in dump.group_ranks.items():
            ranks.setdefault(name, set()).add(tuple(members))
    shared = {name for name, several in ranks.items() if len(several) > 1}

    def own(dump: Dump, name: str) -> str:
        members = dump.group_ranks.get(name, ())
        return f"{name} of {', '.join(map(str, members))}"[:NAME_LENGTH] if name in shared and members else name

    return (
        [
            msgspec.structs.replace(
                dump,
                groups=[own(dump, name) for name in dump.groups],
                group_ranks={own(dump, name): members for name, members in dump.group_ranks.items()},
            )
            for dump in dumps
        ]
        if shared
        else dumps
    )


def _progress(dump: Dump) -> tuple[int, ...]:
    """How far a rank had come when it was dumped: its last call, how many calls it made in its groups, the open ones, all."""
    calls = dump.calls
    made = int(calls.seq[calls.seq >= 0].max(initial=-1))
    return int(calls.created_ns.max(initial=-1)), made, -int((calls.done == 0).sum()), int(calls.started.sum()), len(calls)


def calls_only(trace: Trace) -> Trace:
    """What the dumps of a trace show without it: arrivals and what lies between them if the job ran, else bare calls."""
    calls = trace.calls.take(np.argsort(trace.calls.rank, kind="stable"))
    calls = calls.take(calls.created_ns >= 0)
    calls = calls.take(near(calls.created_ns, calls.created_ns))
    ranks = set(np.unique(trace.calls.rank).tolist())
    world = {rank for some in trace.group_ranks.values() for rank in some}
    missing = sorted(world - ranks)
    whole = not missing if world else len(ranks) > max(ranks, default=0)
    cut = _met(calls) if whole and ranks and all(trace.moved.get(rank, False) for rank in ranks) else calls
    underway, calls = len(calls) - len(cut), cut
    laid = arrivals.lay_out(calls, trace.names) if whole and _ran(calls) else None
    absent = [f"no dump of rank {rank}" for rank in missing[:ABSENT]]
    absent += [f"no dump of {len(missing) - ABSENT:,} more ranks"] if len(missing) > ABSENT else []
    if underway and laid is not None:
        absent.append(f"the job runs: {underway} calls that not all had made and completed when they were dumped are left out")
    return replace(
        trace,
        calls=trace.calls if laid is None else calls,
        ops=_bare(calls) if laid is None else laid.ops,
        names=trace.names if laid is None else laid.names,
        lanes=list(arrivals.LANES),
        marks=Table(Mark, {}, 0),
        ended_ns={},
        partial=[*([BARE] if laid is None else _notes(laid, trace.names)), *absent, *trace.partial],
    )


def _recoded(dump: Dump, names: Codes, groups: Codes) -> Table:
    """The calls of a dump with the codes of the job; one known by its group's status only has no name."""
    own, called = groups.of(dump.groups), np.append(names.of(dump.names), NULL)
    return dump.calls.replace(group=own[dump.calls.group], name=called[dump.calls.name])


def _ran(calls: Table) -> bool:
    """Whether all calls completed, and no member of a group is behind the others."""
    if not len(calls) or not calls.done.all():
        return False
    rows = np.flatnonzero((calls.verb != Verb.SEND) & (calls.verb != Verb.RECV))
    cells, cell = np.unique(calls.group[rows].astype(np.int64) << 32 | calls.rank[rows], return_inverse=True)
    made = greatest(cell, len(cells), calls.seq[rows])
    most = greatest(cells >> 32, int(calls.group.max()) + 1, made)
    return bool((made == most[cells >> 32]).all())


def _met(calls: Table) -> Table:
    """The calls before the first of each rank that did not complete, or that not all members had come to.

    A job that runs is dumped in the middle of a step, one rank a little after the other. Sends and receives are counted from
    the end, so with them everything stays as it is.
    """
    while len(calls) and not ((calls.verb == Verb.SEND) | (calls.verb == Verb.RECV)).any():
        group = calls.group.astype(np.int64)
        cells, cell = np.unique(group << 32 | calls.rank, return_inverse=True)
        made = greatest(cell, len(cells), np.where(calls.done == 1, calls.seq, NULL))
        common = least(cells >> 32, int(group.max()) + 1, made)
        ranks, rank = np.unique(calls.rank, return_inverse=True)
        first = np.full(len(ranks), len(calls))
        beyond = np.flatnonzero((calls.seq > common[group]) | (calls.done != 1))
        np.minimum.at(first, rank[beyond], beyond)
        if not len(beyond):
            break
        calls = calls.take(np.arange(len(calls)) < first[rank])
    return calls


def _bare(calls: Table) -> Table:
    """Every call as an op as long as nothing else is known to follow: none is a rendezvous, only their order is known."""
    last = int(calls.created_ns.max(initial=0))
    following, own = np.full(len(calls), last), calls.rank[1:] == calls.rank[:-1]
    following[:-1][own] = calls.created_ns[1:][own]
    columns = {
        "rank": calls.rank,
        "lane": np.zeros(len(calls)),
        "step": np.zeros(len(calls)),
        "name": calls.name,
        "kind": np.full(len(calls), Kind.COMMUNICATE),
        "start_ns": calls.created_ns,
        "end_ns": following,
    }
    return Table(Op, columns, len(calls))


def _notes(laid: arrivals.Laid, names: Sequence[str]) -> list[str]:
    """What arrivals do not show, and what was inferred instead of read."""
    notes = [
        f"{ONLY_DUMPS}: when ranks came to their gates, not how long transfers took; that counts as work after "
        "them, so a slow link shows as slow ranks at its ends, or as all ranks being slower",
        f"no step marks: {laid.steps} steps found from the calls that recur, {laid.outside} calls outside them left out",
        "where a rank waited for its calls was found from what lets its work vary least from step to step",
    ]
    if any(name.startswith(("nccl", "rccl")) for name in names):
        notes.append("calls are made by the host: a device that falls behind its host is not seen")
    if laid.clocks:
        off = ", ".join(f"rank {rank} {ns / 1e6:+.1f} ms" for rank, ns in sorted(laid.clocks.items())[:8])
        more = f" and {len(laid.clocks) - 8} more" if len(laid.clocks) > 8 else ""
        notes.append(f"clocks set right by what ranks usually differ where they come closest together: {off}{more}")
    else:
        notes.append("clocks taken as they are: arrivals show none that is off, but would hardly show a constant offset")
    return notes


def apply(trace: Trace, dumps: Sequence[Dump]) -> Trace:
    """The trace with the calls of its dumps, and with group and sequence number of every collective that a dump also has."""
    dumps, moved = _latest(dumps)
    if not dumps:
        return trace
    groups = Codes({name: code for code, name in enumerate(trace.groups)})
    names = Codes({name: code for code, name in enumerate(trace.names)})
    group, seq = trace.ops.group.copy(), trace.ops.seq.copy()
    matched, calls = 0, []
    for dump in dumps:
        own = groups.of(dump.groups)
        rows, entries = _matches(trace, dump)
        found = dump.collectives.take(entries)
        seq[rows] = found.seq
        named = np.array([bool(dump.groups[i]) for i in found.group.tolist()], dtype=np.bool_)
        group[rows[named]] = own[found.group[named]]
        matched += len(rows)
        calls.append(_recoded(dump, names, groups))
    ranks = {name: members for dump in dumps for name, members in dump.group_ranks.items()}
    found_counts = {"flight-recorder dumps": len(dumps), "collectives named by the flight recorder": matched}
    nameless = (trace.ops.group < 0) & (trace.ops.verb != Verb.NONE)
    settled = not (nameless & (group < 0)).any()  # the dumps name all groups that the traces left open
    return replace(
        trace,
        partial=[line for line in trace.partial if not (settled and NO_GROUP in line)],
        ops=trace.ops.replace(group=group, seq=seq),
        names=list(map(str, names)),
        groups=list(map(str, groups)),
        group_ranks={**ranks, **trace.group_ranks},
        calls=concat(Call, calls),
        dumped=tuple(dump.rank for dump in dumps),
        moved=moved,
        ended_ns={} if tuple(trace.lanes) == arrivals.LANES else _ended(trace),
        counts={**trace.counts, **found_counts},
    )


def _ended(trace: Trace) -> dict[int, int]:
    """When the last op of every rank ended."""
    cell, ranks = np.unique(trace.ops.rank, return_inverse=True)
    last = greatest(ranks, len(cell), trace.ops.end_ns)
    return dict(zip(cell.tolist(), last.tolist(), strict=True))


def _matches(trace: Trace, dump: Dump) -> tuple[Ints, Ints]:
    """Rows of ops and collectives of the dump that are the same."""
    ops, copies = trace.ops, np.append(is_copy(trace.names), False)
    mine = (ops.rank == dump.rank) & (ops.kind == Kind.COMMUNICATE) & (ops.seq < 0) & ~copies[ops.name]
    rows = np.flatnonzero(mine & (ops.verb != Verb.SEND) & (ops.verb != Verb.RECV))
    on_host = ~on_device(trace.lanes)[ops.lane[rows]] if len(rows) else np.zeros(0, dtype=np.bool_)
    alone = (ops.launch[rows] < 0) & on_host & (ops.verb[rows] != Verb.NONE)
    called, entries = _called(ops, rows[~alone], dump.collectives.created_ns)
    others, left = _before(ops, rows[alone], dump.collectives, set(entries.tolist()))
    return np.concatenate([called, others]), np.concatenate([entries, left])


def _before(ops: Table, rows: Ints, calls: Table, taken: set[int]) -> tuple[Ints, Ints]:
    """Transfers of the host whose call is no op, from the last one back: the latest call of their verb and size before each.

    A host issues several before the first of them begins, and runs those of one kind in the order in which they were issued.
    """
    verbs = np.where(calls.verb == Verb.REDUCE_SCATTER, Verb.ALL_REDUCE, calls.verb)  # gloo makes one of the other
    waiting: dict[int, dict[int, list[int]]] = {}
    for i in range(len(calls)):
        if i not in taken:
            waiting.setdefault(int(verbs[i]), {}).setdefault(int(calls.size[i]), []).append(i)
    fitting: dict[tuple[int, int], list[list[int]]] = {}
    found: list[tuple[int, int]] = []
    for row in rows[np.lexsort((rows, ops.start_ns[rows]))][::-1].tolist():
        verb, size, start = int(ops.verb[row]), int(ops.size[row]), int(ops.start_ns[row])
        key = (Verb.ALL_REDUCE if verb == Verb.REDUCE_SCATTER else verb, size)
        if key not in fitting:
            sizes = waiting.get(key[0], {})
            fitting[key] = [queue for n, queue in sizes.items() if size < 0 or n < 1 or size % n == 0]
        for queue in fitting[key]:
            while queue and calls.created_ns[queue[-1]] > start:
                queue.pop()  # made after this transfer, and so after all that come before it
        best = max(fitting[key], key=lambda queue: queue[-1] if queue else -1, default=[])
        if best and calls.created_ns[best[-1]] >= start - EARLIER_NS:
            found.append((row, best.pop()))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _called(ops: Table, rows: Ints, created_ns: Ints) -> tuple[Ints, Ints]:
    """Rows of collectives and entries of the dump that are the same, by when the call was made or the transfer began."""
    call = ops.launch[rows]
    begin = np.where(call >= 0, ops.start_ns[call], ops.start_ns[rows])
    finish = np.where(call >= 0, ops.end_ns[call], ops.start_ns[rows])
    order = np.lexsort((rows, begin))
    rows, begin, finish, issued = rows[order], begin[order], finish[order], call[order] >= 0
    if not len(created_ns) or not len(rows):
        return rows[:0], rows[:0]
    # An entry is created after its call began, before the next call does; without the call, some time before the transfer.
    following = np.append(begin[1:], np.iinfo(np.int64).max)
    after = np.searchsorted(created_ns, begin - CREATED_NS // 4, "left")
    before = np.searchsorted(created_ns, finish + CREATED_NS, "right") - 1
    entry = np.minimum(np.where(issued, after, before), len(created_ns) - 1)
    created = created_ns[np.maximum(entry, 0)]
    during = (created >= begin - CREATED_NS // 4) & ((created <= finish + CREATED_NS) | (created < following))
    good = (entry >= 0) & np.where(issued, during, created >= begin - EARLIER_NS)
    good &= np.concatenate([[True], entry[1:] > entry[:-1]])
    return rows[good], entry[good]
