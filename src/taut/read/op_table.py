"""Op tables: Parquet or CSV with at least rank, step, class, start and duration; one row per op.

Column names are recognised in several spellings; a unit suffix (`_ns`, `_us`, `_ms`, `_s`) is honoured, otherwise
floats are seconds and integers nanoseconds; timestamps and durations have a unit of their own. Optional columns (lane,
stage, dp_rank, bytes, group, seq, peer, micro-batch) are used when present. The rendezvous a class takes part in is read
off its name; who takes part is inferred later from the data (`graph/rendezvous.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Codes, Column, Ints
from taut.core.errors import InputRefused
from taut.core.scratch import kept
from taut.core.tables import NULL, Kind, Mark, Member, Op, Table, Trace, Verb
from taut.read.arrow_columns import INT32, INT64, has_any, times_ns, wholes, words
from taut.read.files import Member as File
from taut.read.metrics import reader as metrics
from taut.read.metrics.series import Metrics
from taut.read.table_file import BOM, header_cells, open_table
from taut.read.verb_words import HOPS

if TYPE_CHECKING:
    import pyarrow as pa

SPELLINGS: dict[str, tuple[str, ...]] = {
    "rank": ("rank", "global_rank", "worker"),
    "step": ("step", "iteration", "iter"),
    "name": ("optype", "class", "op", "name", "op_name"),
    "start": ("start_ts", "start", "ts", "start_time", "begin"),
    "duration": ("duration", "dur"),
    "lane": ("lane", "stream", "thread", "tid"),
    "stage": ("stage", "pp_rank"),
    "dp_rank": ("dp_rank", "dp"),
    "chunk": ("mc", "chunk", "model_chunk"),
    "part": ("mb_id", "microbatch", "micro_batch", "mb"),
    "seq": ("seq_id", "seq"),
    "size": ("bytes", "size"),
    "group": ("group", "process_group", "pg"),
    "peer": ("peer", "peer_rank", "root"),
    "host": ("host", "hostname", "host_name"),
}
# Without lanes the ops of a rank are put in one line; their timers were read by different threads.
TIMER_NS = 200_000
REQUIRED = ("rank", "step", "name", "start", "duration")
# Columns of numbers with 64 bits.
WIDE = ("seq", "size")
# Columns of whole numbers, by key.
Whole = dict[str, Ints | Codes]
WHOLE = ("rank", "step", "stage", "dp_rank", "chunk", "part", "peer", *WIDE)

VERBS: tuple[tuple[str, Verb], ...] = (
    (r"all.?reduce", Verb.ALL_REDUCE),
    (r"all.?gather", Verb.ALL_GATHER),
    (r"reduce.?scatter", Verb.REDUCE_SCATTER),
    (r"all.?to.?all", Verb.ALL_TO_ALL),
    (r"barrier", Verb.BARRIER),
    (r"broadcast", Verb.BROADCAST),
    (r"scatter", Verb.SCATTER),
    (r"gather", Verb.GATHER),
    (r"\breduce\b", Verb.REDUCE),
    (r"\bsend\b|isend", Verb.SEND),
    (r"\brecv\b|\breceive\b|irecv", Verb.RECV),
)
COORDINATE = re.compile(r"\bgc\b|load|checkpoint|host|launch|\bsave\b", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """Parquet magic, or a CSV header that names the required columns."""
    if head[:4] == b"PAR1":
        return True
    line = head.removeprefix(BOM).split(b"\n", 1)[0]
    if line[:1] in (b"{", b"[") or b"\x00" in line:
        return False
    header = header_cells(line)
    return all(find(header, key) is not None for key in REQUIRED)


def find(columns: list[str], key: str) -> str | None:
    """The spelling of ``key`` used in this table, with or without a unit suffix."""
    lowered = {c.lower(): c for c in columns}
    for spelling in SPELLINGS[key]:
        for suffix in ("", "_ns", "_us", "_ms", "_s"):
            if spelling + suffix in lowered:
                return lowered[spelling + suffix]
    return None


def load_member(member: File) -> Trace | Metrics:
    """One trace out of one table; a Parquet file may hold samples of metrics instead."""
    data = member.read()
    return metrics.load(data, member.label) if metrics.is_parquet(data) else load(data, member.label)


def load(data: bytes, label: str) -> Trace:
    """One trace out of one table."""
    file = open_table(data, label)
    named = {key: column for key in SPELLINGS if (column := find(file.names, key)) is not None}
    missing = [key for key in REQUIRED if key not in named]
    if missing:
        raise InputRefused(label, f"op table lacks {', '.join(missing)}", "columns needed: " + ", ".join(REQUIRED))
    table = file.read(list(dict.fromkeys(named.values())))
    if table.num_rows == 0:
        raise InputRefused(label, "op table is empty", "give one with a row for each op")
    columns, start, duration, counts = _timed(table, named["start"], named["duration"], label)
    del table
    rows = len(start)
    named = {key: column for key, column in named.items() if key in REQUIRED or columns[column].null_count < rows}

    names, name_id = words(columns.pop(named["name"]), named["name"], label, in_order=False)
    verb_of, kind_of, class_of = zip(*(_meaning(n) for n in names), strict=True)
    classes = sorted(set(class_of))
    place = {name: i for i, name in enumerate(classes)}
    to_class = np.array([place[name] for name in class_of], dtype=np.int32)
    ints = {key: _whole(columns.pop(named[key]), key, named[key], label) for key in WHOLE if key in named}
    ops: dict[str, Column] = {
        "rank": ints["rank"],
        "step": ints["step"],
        "name": kept(to_class[name_id]),
        "verb": kept(np.array(verb_of, dtype=np.int8)[name_id]),
        "kind": kept(np.array(kind_of, dtype=np.int8)[name_id]),
        "start_ns": start,
        "end_ns": kept(start + duration),
        "part": _part(ints, rows, "group" in named),
    }
    ops.update({key: ints[key] for key in ("size", "peer") if key in ints})
    lanes, ops["lane"] = ["ops"], np.broadcast_to(np.int32(0), (rows,))
    if "lane" in named:
        lanes, lane = words(columns.pop(named["lane"]), named["lane"], label)
        ops["lane"] = lane if len(lanes) > 1 else ops["lane"]
    groups: list[str] = []
    if "group" in named:
        groups, index = words(columns.pop(named["group"]), named["group"], label)
        ops["group"] = np.where(np.array([g == "" for g in groups])[index], NULL, index)
        if "seq" in ints:
            ops["seq"] = ints["seq"]
    table = Table(Op, ops)
    hosts = words(columns.pop(named["host"]), named["host"], label) if "host" in named else None
    return Trace(
        ops=table,
        names=classes,
        lanes=lanes,
        groups=groups,
        members=_members(table, ints, hosts),
        marks=Table(Mark, {}, 0),
        name=label.rsplit("/", 1)[-1].split(".")[0] or "table",
        source=label,
        relative=_relative(ints["step"], start),
        timer_ns=1000 if "lane" in named else TIMER_NS,
        counts=counts,
    )


def _timed(
    table: pa.Table, begins: str, lasts: str, label: str
) -> tuple[dict[str, pa.ChunkedArray], Ints, Ints, dict[str, int]]:
    """The rows that have a start and a duration of at least 0: other columns, these two in ns; and how many are dropped.

    Columns may be let go one by one: a large table is not held twice.
    """
    import pyarrow as pa

    start, start_ok = times_ns(table[begins], begins, label)
    duration, duration_ok = times_ns(table[lasts], lasts, label)
    good = start_ok & duration_ok & (duration >= 0)
    counts = {"events": len(good), "ops": int(good.sum())}
    if good.all():
        return _others(table, begins, lasts), kept(start), kept(duration), counts
    counts["dropped: negative or not a number"] = len(good) - counts["ops"]
    if not good.any():
        both = ((begins, start_ok), (lasts, duration_ok))
        raise InputRefused(label, *_untimed(any(not np.any(ok) and has_any(table[c], c, label) for c, ok in both)))
    return _others(table.filter(pa.array(good)), begins, lasts), kept(start[good]), kept(duration[good]), counts


def _others(table: pa.Table, *done: str) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names if name not in done}


def _untimed(out_of_range: bool) -> tuple[str, str]:
    """Why no row has times, and what to do."""
    if out_of_range:
        return "all times are out of range (126 years)", "check their unit: a suffix of the column names it (_ns, _us, _ms, _s)"
    return "no row has a finite start and a duration of at least 0", "check these two columns"


def _whole(column: pa.ChunkedArray, key: str, name: str, label: str) -> Ints | Codes:
    least, most = (-INT64 - 1, INT64) if key in WIDE else (0 if key == "rank" else -INT32 - 1, INT32)
    return kept(wholes(column, name, label, least, most))


def _meaning(name: str) -> tuple[Verb, Kind, str]:
    """(verb, kind, class) of a class name; the two ends of a hop share a class: they are one transfer."""
    words = re.sub(r"[-_./:]", " ", name.lower())
    for pattern, verb in VERBS:
        if re.search(pattern, words):
            if verb in HOPS:
                stem = re.sub(r"[-_ ]?(i?send|i?recv|receive)[-_ ]?", "", name)
                return verb, Kind.COMMUNICATE, f"{stem}-pp-comm" if stem else "pp-comm"
            return verb, Kind.SYNCHRONISE if verb == Verb.BARRIER else Kind.COMMUNICATE, name
    return Verb.NONE, Kind.COORDINATE if COORDINATE.search(words) else Kind.COMPUTE, name


def _part(ints: Whole, n: int, grouped: bool) -> Ints | Codes:
    """Which micro-batch: its own column, else the sequence number, unless that counts a group's collectives."""
    if "part" not in ints and ("seq" not in ints or grouped):
        return np.broadcast_to(np.int32(NULL), (n,))
    part = ints.get("part", np.broadcast_to(np.int64(NULL), (n,)))
    if "seq" in ints and not grouped:
        part = np.where(part < 0, ints["seq"], part)
    if "chunk" in ints and ints["chunk"].max(initial=0) > 0:
        part = part + np.maximum(ints["chunk"], 0).astype(np.int64) * (int(part.max(initial=0)) + 1)
    return part


def _relative(step: Ints | Codes, start: Ints) -> bool:
    """True when the steps overlap in time and do not go on: each then has its own origin.

    Steps of a pipeline overlap, too, but each begins about a step after the one before.
    """
    low = int(step.min())
    if int(step.max()) - low > 16 * len(step) + 1024:
        return False
    first = np.full(int(step.max()) - low + 1, np.iinfo(np.int64).max)
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(first, step - low, start)
    np.maximum.at(last, step - low, start)
    seen = last >= first
    first, last = first[seen], last[seen]
    if len(first) < 2 or (first[1:] < last[:-1]).mean() <= 0.5:
        return False
    return bool(np.median(np.abs(np.diff(first))) < 0.5 * np.median(last - first))


def _members(ops: Table, ints: Whole, hosts: tuple[list[str], Ints | Codes] | None) -> Table:
    """One row a rank, from the first op of each."""
    low = int(ops.rank.min())
    if int(ops.rank.max()) - low > 16 * len(ops) + 1024:
        # Sparse rank numbers: sorted, because a table by number would be large.
        ranks, first = np.unique(ops.rank, return_index=True)
    else:
        where = np.full(int(ops.rank.max()) - low + 1, NULL, dtype=np.int64)
        where[ops.rank[::-1] - low] = np.arange(len(ops))[::-1]
        ranks = np.flatnonzero(where >= 0)
        first, ranks = where[ranks], ranks + low
    columns: dict[str, Column] = {"rank": ranks}
    for key in ("stage", "dp_rank"):
        if key in ints:
            columns[key] = ints[key][first]
    if hosts is not None:
        columns["host"] = np.array([*hosts[0], None], dtype=object)[hosts[1][first]]
    return Table(Member, columns)
