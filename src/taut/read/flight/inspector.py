"""Logs of NCCL's Inspector (a profiler plugin of NCCL since 2.28): JSON lines of a process, one for each collective or hop.

A line, or the marker before a batch of lines, names the communicator and the rank inside it; the process is host and pid.
Which ranks of the job these are follows from the communicator that holds all processes. How long an operation took on the
device is always there. When it began and ended is there in verbose logs only. Without, the members of a collective end
together, where the first of their lines was written or before the next one of their communicator begins: who came late,
and by how much, is as measured, because who waits for others runs longer; the time between collectives is a lower bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import greatest, least, numbered
from taut.core.tables import NULL, Call, Kind, Member, Op, Table, Trace, concat
from taut.read.columns import Codes
from taut.read.contents import InspectorLog, Seat
from taut.read.flight.arrivals import Calls
from taut.read.limits import check_wall
from taut.read.op_rows import NAME_LENGTH
from taut.read.verb_words import HOPS, verb_of

LANES = ("between", "device", "host")
BETWEEN, DEVICE, HOST = range(3)
# An operation that takes longer than a day is none.
TOOK_NS = 86_400 * 10**9
# Times are whole microseconds.
TIMER_NS = 2_000
# A communicator and, of collectives, what they do.
Group = tuple[str, str]
_KEYS = (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"', b'"inspector_output_format_version"')
_Count = Annotated[int, msgspec.Meta(ge=-1, le=2**53)]
_Rank = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_Us = Annotated[int, msgspec.Meta(ge=-1, le=2**52)] | Annotated[float, msgspec.Meta(ge=-1, le=2.0**52)]
_Text = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH)]


class _Header(msgspec.Struct, gc=False):
    id: _Text = ""
    rank: _Rank = NULL
    n_ranks: _Rank = NULL


class _Metadata(msgspec.Struct, gc=False):
    dump_timestamp_us: _Us = NULL
    hostname: _Text = ""
    pid: _Count = NULL


class _Kernel(msgspec.Struct, gc=False):
    kernel_start_ts: _Us = NULL
    kernel_stop_ts: _Us = NULL


class _Times(msgspec.Struct, gc=False):
    coll_start_ts: _Us = NULL
    coll_stop_ts: _Us = NULL
    p2p_start_ts: _Us = NULL
    p2p_stop_ts: _Us = NULL
    kernel_events: list[_Kernel] = []


class _Collective(msgspec.Struct, gc=False):
    coll: _Text = ""
    coll_sn: _Count = NULL
    coll_msg_size_bytes: _Count = NULL
    coll_exec_time_us: _Us = NULL
    event_trace_ts: _Times | None = None


class _Hop(msgspec.Struct, gc=False):
    p2p: _Text = ""
    p2p_sn: _Count = NULL
    p2p_peer: _Rank = NULL
    p2p_msg_size_bytes: _Count = NULL
    p2p_exec_time_us: _Us = NULL
    event_trace_ts: _Times | None = None


class _Stats(msgspec.Struct, gc=False):
    coll_dropped_since_last_dump: _Count = 0
    p2p_dropped_since_last_dump: _Count = 0


class _Line(msgspec.Struct, gc=False):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Collective | None = None
    p2p_perf: _Hop | None = None
    dump_stats: _Stats | None = None


def sniff(head: bytes) -> bool:
    """A JSON line with the keys of the plugin."""
    line = head.lstrip()[:4096]
    return line[:1] == b"{" and b'"header"' in line and any(key in line for key in _KEYS)


def load(data: bytes | bytearray, label: str) -> InspectorLog:
    """One file; what is no operation of a communicator is counted, a file without any is refused."""
    lines, unreadable = _lines(bytes(data))
    seats, names = dict[Seat, int](), Codes()
    now, dumped, lost, ops = NULL, NULL, 0, []
    for line in lines:
        if line.header is not None and line.metadata is not None:  # newer logs say both once, before a batch
            h, m = line.header, line.metadata
            seat = Seat(m.hostname, m.pid, h.id, h.rank, h.n_ranks)
            now, dumped = seats.setdefault(seat, len(seats)), int(m.dump_timestamp_us)
        if line.coll_perf is not None:
            c = line.coll_perf
            ops.append((now, names[c.coll], c.coll_sn, NULL, c.coll_msg_size_bytes, c.coll_exec_time_us, dumped, *_span(c)))
        elif line.p2p_perf is not None:
            p = line.p2p_perf
            ops.append((now, names[p.p2p], p.p2p_sn, p.p2p_peer, p.p2p_msg_size_bytes, p.p2p_exec_time_us, dumped, *_span(p)))
        elif line.dump_stats is not None:
            lost += max(line.dump_stats.coll_dropped_since_last_dump, 0) + max(line.dump_stats.p2p_dropped_since_last_dump, 0)
    values = np.array(ops, dtype=np.float64).reshape(len(ops), len(_COLUMNS)).T
    columns = {name: _whole(column, 1000 if name in _US else 1) for name, column in zip(_COLUMNS, values, strict=True)}
    good = (columns["seq"] >= 0) & (columns["took"] >= 0) & (columns["took"] <= TOOK_NS) & (columns["dumped"] > 0)
    known = np.array([seat.known() for seat in seats], dtype=np.bool_)
    for name, usable in (("seat", known), ("name", np.array(list(map(bool, names)), dtype=np.bool_))):
        good &= columns[name] >= 0
        good[good] &= usable[columns[name][good]]
    if not good.any():
        raise InputRefused(label, "no operation of a communicator in this Inspector log", "leave it out")
    columns = {name: column[good] for name, column in columns.items()}
    timed = (columns["start"] > 0) & (columns["end"] >= columns["start"])
    called = timed & (columns["call"] > 0) & (columns["called"] >= columns["call"])
    for name, there in (("start", timed), ("end", timed), ("call", called), ("called", called)):
        columns[name] = np.where(there, columns[name], NULL)
    bad = unreadable + int((~good).sum())
    columns["seat"] = np.cumsum(known)[columns["seat"]] - 1
    return InspectorLog(label, [seat for seat in seats if seat.known()], list(map(str, names)), columns, lost, bad)


_COLUMNS = ("seat", "name", "seq", "peer", "size", "took", "dumped", "call", "called", "start", "end")
_US = ("took", "dumped", "call", "called", "start", "end")


def _whole(column: Floats, unit: int) -> Ints:
    """Numbers as whole ones of a smaller unit, exactly; -1 stays."""
    below = np.floor(column)
    whole: Ints = below.astype(np.int64) * unit + np.rint((column - below) * unit).astype(np.int64)
    return np.where(column < 0, NULL, whole)


def _lines(data: bytes) -> tuple[list[_Line], int]:
    """(the lines of a log, how many cannot be read): the last one of a job that died is cut."""
    decoder = msgspec.json.Decoder(_Line)
    try:
        return decoder.decode_lines(data), 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    lines, bad = [], 0
    for line in filter(bytes.strip, data.split(b"\n")):
        try:
            lines.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            bad += 1
    return lines, bad


def _span(op: _Collective | _Hop) -> tuple[float, float, float, float]:
    """(when the host began to enqueue it, when it was done with that, first kernel start, last kernel end), µs."""
    times = op.event_trace_ts
    if times is None or not times.kernel_events:
        return NULL, NULL, NULL, NULL
    call, called = max(times.coll_start_ts, times.p2p_start_ts), max(times.coll_stop_ts, times.p2p_stop_ts)
    begin = min([kernel.kernel_start_ts for kernel in times.kernel_events])
    return call, called, begin, max([kernel.kernel_stop_ts for kernel in times.kernel_events])


def gather(logs: Sequence[InspectorLog]) -> Trace:
    """One trace out of the logs of a job's processes."""
    seats, names, c = _joined(logs)
    number, world, notes = _ranks(seats)
    sits = {(seat.comm, seat.rank): number[seat.process] for seat in seats}
    groups = dict[Group, int]()
    row = _rows(c, seats, names, number, sits, groups)
    check_wall(row["start_ns"], row["end_ns"], logs[0].label)
    order = np.lexsort((row["end_ns"], row["start_ns"], row["rank"]))
    row = {name: column[order] for name, column in row.items()}
    calls = Table(Call, {**{name: row[name] for name in _CALL}, "created_ns": row["start_ns"]})
    steps = Calls(calls, sized=True)
    found = steps.find_steps()
    host = {number[seat.process]: seat.host for seat in seats}
    return Trace(
        ops=_ops(row, steps.step if found else np.full(len(order), NULL), len(names)),
        names=[*names, *(f"between, before {name}" for name in names), *(f"launch of {name}" for name in names)],
        lanes=list(LANES),
        groups=[_group_name(group) for group in groups],
        members=Table(Member, {"rank": sorted(host), "host": [host[rank] for rank in sorted(host)]}),
        source=logs[0].label,
        world_size=world,
        backend="nccl",
        timer_ns=TIMER_NS,
        group_ranks=_members(seats, sits, groups),
        partial=[*notes, *_notes(logs, row, found)],
        counts={"operations": len(order), "dropped: unreadable": sum(log.unreadable for log in logs)},
    )


_CALL = ("rank", "name", "group", "seq", "peer", "size", "verb")


def _joined(logs: Sequence[InspectorLog]) -> tuple[list[Seat], list[str], dict[str, Ints]]:
    """Seats, names and columns of all logs together."""
    seats, names, parts = dict[Seat, int](), Codes(), []
    for log in logs:
        own = np.array([seats.setdefault(seat, len(seats)) for seat in log.seats], dtype=np.int64)
        called = names.of(log.names)
        parts.append({**log.columns, "seat": own[log.columns["seat"]], "name": called[log.columns["name"]]})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    return list(seats), list(map(str, names)), columns


def _rows(
    c: Mapping[str, Ints],
    seats: Sequence[Seat],
    names: Sequence[str],
    number: Mapping[tuple[str, int], int],
    sits: Mapping[tuple[str, int], int],
    groups: dict[Group, int],
) -> dict[str, Ints]:
    """What is known of every operation, once; NCCL numbers every kind of collective of a communicator apart."""
    rank, comm = (
        np.array([number[seat.process] for seat in seats])[c["seat"]],
        Codes().of(seat.comm for seat in seats)[c["seat"]],
    )
    kind, _ = numbered(comm, np.where(c["peer"] >= 0, NULL, c["name"]))
    at = np.unique(kind, return_index=True)[1]
    called = zip(c["seat"][at].tolist(), c["name"][at].tolist(), (c["peer"][at] >= 0).tolist(), strict=True)
    keys = [(seats[seat].comm, "" if hop else names[name]) for seat, name, hop in called]
    group = np.array([groups.setdefault(key, len(groups)) for key in keys], dtype=np.int64)[kind]
    _, once = np.unique(numbered(rank, group, c["seq"], c["peer"])[0], return_index=True)
    once.sort()
    c, rank, comm, group = {name: column[once] for name, column in c.items()}, rank[once], comm[once], group[once]
    start, end, packed = _laid_out(c, rank, comm, group)
    met = zip(c["seat"].tolist(), c["peer"].tolist(), strict=True)
    return {
        "rank": rank,
        "group": group,
        "start_ns": start,
        "end_ns": end,
        "packed": packed.astype(np.int64),
        "untimed": (c["start"] < 0).astype(np.int64),
        "peer": np.array([NULL if peer < 0 else sits.get((seats[seat].comm, peer), NULL) for seat, peer in met]),
        "verb": np.array([verb_of(name) for name in names])[c["name"]],
        **{name: c[name] for name in ("seat", "name", "seq", "size", "call", "called")},
    }


def _ranks(seats: Sequence[Seat]) -> tuple[dict[tuple[str, int], int], int | None, list[str]]:
    """(rank of every process, ranks of the job, what was guessed): as the communicator that holds all of them counts."""
    processes = sorted({seat.process for seat in seats})
    inside: dict[tuple[int, str], dict[tuple[str, int], int]] = {}
    for seat in seats:
        inside.setdefault((seat.ranks, seat.comm), {})[seat.process] = seat.rank
    for (ranks, _), known in sorted(inside.items(), reverse=True):
        if len(known) == len(processes) == len(set(known.values())):
            return known, ranks, []
    note = "no communicator holds all processes: ranks are numbered by host and process, which may not be the job's own order"
    return {process: rank for rank, process in enumerate(processes)}, None, [note]


def _members(seats: Sequence[Seat], sits: Mapping[tuple[str, int], int], groups: Iterable[Group]) -> dict[str, list[int]]:
    """Ranks of the groups of which all members are there."""
    sizes, there = {seat.comm: seat.ranks for seat in seats}, Counter(comm for comm, _ in sits)
    whole = {
        comm: [sits[comm, i] for i in range(count)]
        for comm, count in there.items()
        if count == sizes[comm] and all((comm, i) in sits for i in range(count))
    }
    return {_group_name(group): whole[group[0]] for group in groups if group[0] in whole}


def _group_name(group: Group) -> str:
    return " ".join(group).rstrip()


def _laid_out(c: Mapping[str, Ints], rank: Ints, comm: Ints, group: Ints) -> tuple[Ints, Ints, Mask]:
    """(start, end, whether it ends before its line was written because the next one follows) of every operation."""
    start, end, packed = c["start"].copy(), c["end"].copy(), np.zeros(len(rank), dtype=np.bool_)
    todo = np.flatnonzero(start < 0)
    if not len(todo):
        return start, end, packed
    hop = c["peer"][todo] >= 0
    # A hop stands alone on its rank; the members of a collective end together.
    gate, gates = numbered(np.where(hop, todo, NULL), np.where(hop, NULL, group[todo]), np.where(hop, NULL, c["seq"][todo]))
    took, bound, line, serial = np.zeros((4, gates), dtype=np.int64)
    bound[:], line[:] = np.iinfo(np.int64).max, len(rank)
    np.maximum.at(took, gate, c["took"][todo])
    np.minimum.at(bound, gate, c["dumped"][todo])
    np.minimum.at(line, gate, todo)  # lines are written in the order of completion
    serial[gate] = np.where(hop, int(comm.max()) + 1 + rank[todo], comm[todo])
    order = np.lexsort((line, bound, serial))
    last = np.empty(gates, dtype=np.int64)
    for rows in np.split(order, np.flatnonzero(np.diff(serial[order])) + 1):
        # end[i] = min(bound[i], end[i + 1] - took[i + 1]): as late as its line allows, and before the next one of its
        # communicator begins. With S the running sum of took, end - S is the least bound - S from here on.
        spent = np.cumsum(took[rows])
        last[rows] = np.minimum.accumulate((bound[rows] - spent)[::-1])[::-1] + spent
    end[todo] = last[gate]
    start[todo] = end[todo] - c["took"][todo]
    packed[todo] = (last < bound)[gate]
    return start, end, packed


def _ops(row: Mapping[str, Ints], step: Ints, names: int) -> Table:
    """Operations, their launches where those are known, and the time between an operation and what came before it."""
    rank, start, end = row["rank"], row["start_ns"], row["end_ns"]
    first = np.flatnonzero(np.concatenate([[True], np.diff(rank) != 0]))
    # Operations of a rank may overlap; the time between them begins when the last one before has ended.
    latest = np.concatenate([np.maximum.accumulate(part) for part in np.split(end, first[1:])])
    ended, begun = (np.concatenate([[NULL], column[:-1]]) for column in (latest, start))
    since = np.where(ended <= start, ended, begun)
    follows = since < start
    follows[first] = False
    launched = row["call"] >= 0
    launch = np.where(launched, np.cumsum(launched) - 1, NULL)
    same, kinds = {"rank": rank, "step": step, "size": row["size"]}, np.zeros(len(rank), dtype=np.int64)
    hosts = {
        **same,
        "kind": kinds + Kind.COORDINATE,
        "lane": kinds + HOST,
        "name": row["name"] + 2 * names,
        "start_ns": row["call"],
        "end_ns": row["called"],
    }
    between = {**same, "lane": kinds + BETWEEN, "name": row["name"] + names, "start_ns": since, "end_ns": start}
    hop = np.isin(row["verb"], HOPS)
    made = {
        **same,
        "kind": kinds + Kind.COMMUNICATE,
        "lane": kinds + DEVICE,
        "launch": launch,
        "verb": row["verb"],
        "name": row["name"],
        "group": row["group"],
        "peer": row["peer"],
        "start_ns": start,
        "end_ns": end,
        "seq": np.where(hop, NULL, row["seq"]),
    }
    return concat(Op, [Table(Op, hosts).take(launched), Table(Op, between).take(follows), Table(Op, made)])


def _notes(logs: Sequence[InspectorLog], row: Mapping[str, Ints], found: bool) -> list[str]:
    """What these logs do not record."""
    notes = ["only NCCL Inspector logs: what ranks do between operations is not recorded and counts as their work"]
    untimed, packed, lost = int(row["untimed"].sum()), int(row["packed"].sum()), sum(log.lost for log in logs)
    if untimed:
        notes.append(
            f"{untimed} of {len(row['rank'])} operations without times (NCCL_INSPECTOR_DUMP_VERBOSE=1 records them): how long "
            "they took is measured, they are laid out to end together where the first of their lines was written"
        )
    if packed:
        notes.append(f"{packed} operations were written together with later ones: the time between them is not known")
    if found:
        notes.append("no step marks: steps found from the operations that recur")
    if lost:
        notes.append(f"{lost} operations lost in the plugin's ring buffer (NCCL_INSPECTOR_DUMP_COLL_RING_SIZE makes it larger)")
    met = ~np.isin(row["verb"], HOPS)
    absent = _absent(row["seq"][met], *numbered(row["rank"][met], row["group"][met]))
    if absent:
        notes.append(f"{absent} collectives are not in the logs: lost, or below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES")
    return notes


def _absent(seq: Ints, series: Ints, count: int) -> int:
    """Numbers left out between the first and the last of every series; every number comes once."""
    return int((greatest(series, count, seq) - least(series, count, seq) + 1).sum()) - len(seq)
