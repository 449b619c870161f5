"""Op tables: Parquet or CSV with at least rank, step, class, start and duration; one row per op.

Column names are recognised in several spellings; a unit suffix (`_ns`, `_us`, `_ms`, `_s`) is honoured, otherwise
floats are seconds and integers nanoseconds. Optional columns (lane, stage, dp_rank, bytes, group, seq, peer,
micro-batch) are used when present. The rendezvous a class takes part in is read off its name; who takes part is
inferred later from the data (`graph/rendezvous.py`).
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from taut.errors import InputRefused
from taut.tables import NULL, Kind, Mark, Member, Op, Table, Trace, Verb

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
LARGE = 8 << 20
"""Bytes of Parquet from which a second core is worth its overhead."""
TIMER_NS = 200_000
"""Without lanes the ops of a rank are put in one line; their timers were read by different threads."""
REQUIRED = ("rank", "step", "name", "start", "duration")
FAR = 4_000_000_000_000_000_000
"""Times beyond this many ns (126 years) are no times, and their sums would overflow."""
UNITS_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

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
    line = head.split(b"\n", 1)[0]
    if line[:1] in (b"{", b"[") or b"\x00" in line:
        return False
    header = [c.strip().strip('"') for c in line.decode("utf-8", "replace").split(",")]
    return all(find(header, key) is not None for key in REQUIRED)


def find(columns: list[str], key: str) -> str | None:
    """The spelling of ``key`` used in this table, with or without a unit suffix."""
    lowered = {c.lower(): c for c in columns}
    for spelling in SPELLINGS[key]:
        for suffix in ("", "_ns", "_us", "_ms", "_s"):
            if spelling + suffix in lowered:
                return lowered[spelling + suffix]
    return None


def load(data: bytes, label: str) -> Trace:
    """One trace out of one table."""
    table = _arrow(data, label)
    columns: list[str] = table.column_names
    named = {key: find(columns, key) for key in SPELLINGS}
    missing = [key for key in REQUIRED if named[key] is None]
    if missing:
        raise InputRefused(label, f"op table lacks {', '.join(missing)}", "columns needed: " + ", ".join(REQUIRED))
    if table.num_rows == 0:
        raise InputRefused(label, "op table is empty")

    start, start_ok = _ns(table, str(named["start"]), label)
    duration, duration_ok = _ns(table, str(named["duration"]), label)
    good = start_ok & duration_ok & (duration >= 0)
    rows = len(good)
    counts = {"events": rows, "ops": int(good.sum())}
    if good.all():
        good = slice(None)
    else:
        counts["dropped: negative or not a number"] = rows - counts["ops"]
        if not good.any():
            raise InputRefused(label, "no row has a finite start and a duration of at least 0")

    names, name_id = _dictionary(table, str(named["name"]))
    verb_of, kind_of, class_of = zip(*(_meaning(n) for n in names), strict=True)
    classes = sorted(set(class_of))
    to_class = np.array([classes.index(c) for c in class_of], dtype=np.int32)
    ints = {
        key: _ints(table, column, label)
        for key, column in named.items()
        if column is not None and key in ("rank", "step", "stage", "dp_rank", "chunk", "part", "seq", "size", "peer")
    }
    ops: dict[str, Any] = {
        "rank": ints["rank"],
        "step": ints["step"],
        "name": to_class[name_id],
        "verb": np.array(verb_of, dtype=np.int8)[name_id],
        "kind": np.array(kind_of, dtype=np.int8)[name_id],
        "start_ns": start,
        "end_ns": start + duration,
        "part": _part(ints, rows, named["group"] is not None),
    }
    ops.update({key: ints[key] for key in ("size", "peer") if key in ints})
    lanes, ops["lane"] = _dictionary(table, named["lane"]) if named["lane"] else (["ops"], np.zeros(rows, np.int32))
    groups: list[str] = []
    if named["group"]:
        groups, index = _dictionary(table, named["group"])
        ops["group"] = np.where(np.array([g == "" for g in groups])[index], NULL, index)
        if "seq" in ints:
            ops["seq"] = ints["seq"]
    relative = _relative(ops["step"][good], start[good])
    table_of = Table(Op, ops)
    kept = table_of if isinstance(good, slice) else table_of.take(good)
    return Trace(
        ops=kept,
        names=classes,
        lanes=lanes,
        groups=groups,
        members=_members(kept, {k: v[good] for k, v in ints.items()}, table, named["host"], good),
        marks=Table(Mark, {}, 0),
        name=label.rsplit("/", 1)[-1].split(".")[0] or "table",
        source=label,
        relative=relative,
        timer_ns=1000 if named["lane"] else TIMER_NS,
        counts=counts,
    )


def _arrow(data: bytes, label: str) -> Any:
    import pyarrow as pa

    try:
        if data[:4] == b"PAR1":
            import pyarrow.parquet as pq

            schema = pq.read_schema(pa.BufferReader(data))
            name = find(schema.names, "name")
            words = [f.name for f in schema if f.name == name and pa.types.is_string(f.type)]
            return pq.ParquetFile(pa.BufferReader(data), read_dictionary=words).read(use_threads=len(data) > LARGE)
        import pyarrow.csv

        return pyarrow.csv.read_csv(io.BytesIO(data))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputRefused(label, f"not a readable table ({str(error).splitlines()[0][:120]})") from None


def _ns(table: Any, column: str, label: str) -> tuple[Any, Any]:
    """Times of one column as integer ns, and where they were numbers at all."""
    values = table[column].to_numpy(zero_copy_only=False) if table[column].null_count == 0 else _nullable(table[column])
    if values.dtype.kind not in "iuf":
        raise InputRefused(label, f"column {column} holds no numbers")
    suffix = column.lower().rsplit("_", 1)[-1]
    if values.dtype == np.int64 and UNITS_NS.get(suffix, 1.0) == 1.0:
        return values, np.True_ if values.min() > -FAR and values.max() < FAR else np.abs(values) < FAR
    factor = UNITS_NS.get(suffix, 1e9 if values.dtype.kind == "f" else 1.0)
    wide = values.astype(np.float64) * factor if values.dtype.kind == "f" or factor != 1.0 else values
    ok = np.isfinite(wide) & (np.abs(wide) < FAR)
    return np.rint(np.where(ok, wide, 0)).astype(np.int64), ok


def _nullable(column: Any) -> Any:
    return np.array([np.nan if v is None else v for v in column.to_pylist()], dtype=np.float64)


def _ints(table: Any, column: str, label: str) -> Any:
    import pyarrow as pa

    values = table[column]
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InputRefused(label, f"column {column} holds no numbers")
    return (values.fill_null(-1) if values.null_count else values).to_numpy(zero_copy_only=False)


def _dictionary(table: Any, column: str) -> tuple[list[str], Any]:
    import pyarrow as pa

    values = table[column]
    if not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    encoded = values.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    names = [str(name) for name in encoded.dictionary.to_pylist()]
    index = encoded.indices
    if encoded.null_count:
        index, names = index.fill_null(len(names)), [*names, ""]
    return names, index.to_numpy(zero_copy_only=False).astype(np.int32)


def _meaning(name: str) -> tuple[Verb, Kind, str]:
    """(verb, kind, class) of a class name; the two ends of a hop share a class: they are one transfer."""
    words = re.sub(r"[-_./:]", " ", name.lower())
    for pattern, verb in VERBS:
        if re.search(pattern, words):
            if verb in (Verb.SEND, Verb.RECV):
                stem = re.sub(r"[-_ ]?(i?send|i?recv|receive)[-_ ]?", "", name)
                return verb, Kind.COMMUNICATE, f"{stem}-pp-comm" if stem else "pp-comm"
            return verb, Kind.SYNCHRONISE if verb == Verb.BARRIER else Kind.COMMUNICATE, name
    return Verb.NONE, Kind.COORDINATE if COORDINATE.search(words) else Kind.COMPUTE, name


def _part(ints: dict[str, Any], n: int, grouped: bool) -> Any:
    """Which micro-batch: its own column, else the sequence number, unless that counts a group's collectives."""
    if "part" not in ints and ("seq" not in ints or grouped):
        return np.broadcast_to(np.int32(NULL), (n,))
    part = ints.get("part", np.broadcast_to(np.int64(NULL), (n,)))
    if "seq" in ints and not grouped:
        part = np.where(part < 0, ints["seq"], part)
    if "chunk" in ints and ints["chunk"].max(initial=0) > 0:
        part = part + np.maximum(ints["chunk"], 0).astype(np.int64) * (int(part.max(initial=0)) + 1)
    return part


def _relative(step: Any, start: Any) -> bool:
    """True when the steps overlap in time: each then has its own origin."""
    low = int(step.min())
    if int(step.max()) - low > 16 * len(step) + 1024:
        return False
    first = np.full(int(step.max()) - low + 1, np.iinfo(np.int64).max)
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(first, step - low, start)
    np.maximum.at(last, step - low, start)
    seen = last >= first
    first, last = first[seen], last[seen]
    return bool((first[1:] < last[:-1]).mean() > 0.5) if len(first) > 1 else False


def _members(ops: Table, ints: dict[str, Any], table: Any, host: str | None, good: Any) -> Table:
    low = int(ops.rank.min())
    if int(ops.rank.max()) - low > 16 * len(ops) + 1024:
        ranks, first = np.unique(ops.rank, return_index=True)
    else:
        where = np.full(int(ops.rank.max()) - low + 1, NULL, dtype=np.int64)
        where[ops.rank[::-1] - low] = np.arange(len(ops))[::-1]
        ranks = np.flatnonzero(where >= 0)
        first, ranks = where[ranks], ranks + low
    columns: dict[str, Any] = {"rank": ranks}
    for key in ("stage", "dp_rank"):
        if key in ints:
            columns[key] = ints[key][first]
    if host:
        values = np.array(table[host].to_pylist(), dtype=object)[good]
        columns["host"] = values[first]
    return Table(Member, columns)
