"""Op tables: Parquet or CSV with at least rank, step, class, start and duration; one row per op.

Column names are recognised in several spellings; a unit suffix (`_ns`, `_us`, `_ms`, `_s`) is honoured, otherwise
floats are seconds and integers nanoseconds; timestamps and durations have a unit of their own. Optional columns (lane,
stage, dp_rank, bytes, group, seq, peer, micro-batch) are used when present. The rendezvous a class takes part in is read
off its name; who takes part is inferred later from the data (`graph/rendezvous.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Codes, Column, Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import greatest, least
from taut.core.scratch import kept
from taut.core.tables import NULL, Kind, Mark, Member, Op, Table, Trace, Verb
from taut.read.arrow_columns import INT32, INT64, has_any, times_ns, wholes, words
from taut.read.contents import Metrics
from taut.read.files import Member as File
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
    from taut.read.metrics import reader as metrics

    data = member.read()
    return metrics.load(data, member.label) if metrics.is_parquet(data) else load(data, member.label)


def load(data: bytes, label: str) -> Trace:
    """One trace out of one table."""
    file = open_table(data, label)
    named = {key: column for key in SPELLINGS if (column := find(file.names, key)) is not None}
    missing = [key for key in REQUIRED if key not in named]
    if missing:
        raise InputRefused(label, f"op table lacks {', '.join(missing)}", "columns needed: " + ", ".join(REQUIRED))
    rows = TimedRows(file.each(list(dict.fromkeys(named.values()))), named, label)
    names, name_id = words(rows.column("name"), named["name"], label, in_order=False)
    verb_of, kind_of, class_of = zip(*(_meaning(n) for n in names), strict=True)
    classes = sorted(set(class_of))
    place = {name: i for i, name in enumerate(classes)}
    to_class = np.array([place[name] for name in class_of], dtype=np.int32)
    ints = {key: _whole(column, key, named[key], label) for key in WHOLE if (column := rows.filled(key)) is not None}
    lanes, lane = rows.worded("lane")
    groups, group = rows.worded("group")
    ops: dict[str, Column] = {
        "rank": ints["rank"],
        "step": ints["step"],
        "name": kept(to_class[name_id]),
        "verb": kept(np.array(verb_of, dtype=np.int8)[name_id]),
        "kind": kept(np.array(kind_of, dtype=np.int8)[name_id]),
        "start_ns": rows.start_ns,
        "end_ns": kept(rows.start_ns + rows.duration_ns),
        "part": _part(ints, len(name_id), group is not None),
        "lane": np.broadcast_to(np.int32(0), (len(name_id),)) if lane is None or len(lanes) < 2 else lane,
    }
    ops.update({key: ints[key] for key in ("size", "peer") if key in ints})
    if group is not None:
        ops["group"] = kept(np.where(np.array([g == "" for g in groups])[group], NULL, group))
        if "seq" in ints:
            ops["seq"] = ints["seq"]
    table = Table(Op, ops)
    hosts, host = rows.worded("host")
    return Trace(
        ops=table,
        names=classes,
        lanes=lanes or ["ops"],
        groups=groups,
        members=_members(table, ints, None if host is None else (hosts, host)),
        marks=Table(Mark, {}, 0),
        name=label.rsplit("/", 1)[-1].split(".")[0] or "table",
        source=label,
        relative=_relative(ints["step"], rows.start_ns),
        timer_ns=TIMER_NS if lane is None else 1000,
        counts=rows.counts,
    )


class TimedRows:
    """The rows of a table that have a start and a duration of at least 0; each column is read when it is asked for, once."""

    def __init__(self, read: Callable[[str], pa.ChunkedArray], named: Mapping[str, str], label: str) -> None:
        self.read, self.named, self.label = read, named, label
        columns = [(named[key], read(named[key])) for key in ("start", "duration")]
        if not len(columns[0][1]):
            raise InputRefused(label, "op table is empty", "give one with a row for each op")
        (start, start_ok), (duration, duration_ok) = (times_ns(column, name, label) for name, column in columns)
        good = start_ok & duration_ok & (duration >= 0)
        self.counts = {"events": len(good), "ops": int(good.sum())}
        if not good.any():
            unread = zip(columns, (start_ok, duration_ok), strict=True)
            far = any(not np.any(ok) and has_any(column, name, label) for (name, column), ok in unread)
            raise InputRefused(label, *_untimed(far))
        self._good: Mask | None = None
        if not good.all():
            self.counts["dropped: negative or not a number"] = len(good) - self.counts["ops"]
            self._good, start, duration = good, start[good], duration[good]
        self.start_ns, self.duration_ns = kept(start), kept(duration)

    def column(self, key: str) -> pa.ChunkedArray:
        """One of the columns that the table has."""
        import pyarrow as pa

        found = self.read(self.named[key])
        return found if self._good is None else found.filter(pa.array(self._good))

    def filled(self, key: str) -> pa.ChunkedArray | None:
        """The column; None where the table has none, or nothing in it that is not required."""
        if key not in self.named:
            return None
        found = self.column(key)
        return None if key not in REQUIRED and found.null_count == len(found) else found

    def worded(self, key: str) -> tuple[list[str], Codes | None]:
        """The texts of a column, and a code per row; neither where it is not filled."""
        found = self.filled(key)
        return ([], None) if found is None else words(found, self.named[key], self.label)


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
    count = int(step.max()) - low + 1
    first, last = least(step - low, count, start), greatest(step - low, count, start)
    seen = last >= first
    first, last = first[seen], last[seen]
    if len(first) < 2 or (first[1:] < last[:-1]).mean() <= 0.5:
        return False
    return bool(np.median(np.abs(np.diff(first))) < 0.5 * np.median(last - first))


def _members(ops: Table, ints: Whole, hosts: tuple[list[str], Ints | Codes] | None) -> Table:
    """One row a rank, from the first op of each."""
    from taut.core.group_kernels import first_rows

    low, high = int(ops.rank.min()), int(ops.rank.max())
    if high - low > 16 * len(ops) + 1024:
        # Sparse rank numbers: sorted, because a table by number would be large.
        ranks, first = np.unique(ops.rank, return_index=True)
    else:
        where = first_rows(ops.rank, low, high - low + 1)
        ranks = np.flatnonzero(where >= 0)
        first, ranks = where[ranks], ranks + low
    columns: dict[str, Column] = {"rank": ranks}
    for key in ("stage", "dp_rank"):
        if key in ints:
            columns[key] = ints[key][first]
    if hosts is not None:
        columns["host"] = np.array([*hosts[0], None], dtype=object)[hosts[1][first]]
    return Table(Member, columns)
