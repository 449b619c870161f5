"""Mutations of tables: CSV and its like, Parquet, SQLite, and of the containers gzip and tar."""

from __future__ import annotations

import functools
import gzip
import io
import sqlite3
import tarfile
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing.mutate import INTEGERS, TEXTS, TOKENS, Mutator, lines, number_text, pick, raw, scalar, times


def cells(separator: bytes) -> Mutator:
    """A mutator of tables as text: cells, headers, rows and columns."""

    def mutate(rng: Random, data: bytes) -> bytes:
        if rng.random() < 0.15:
            return lines(rng, data)
        rows = [row.split(separator) for row in data.split(b"\n")]
        for _ in range(times(rng)):
            rows = _cell(rng, rows)
        end = b"\r\n" if rng.random() < 0.03 else b"\n"
        return end.join(separator.join(row) for row in rows)

    return mutate


def _cell(rng: Random, rows: list[list[bytes]]) -> list[list[bytes]]:
    at = 0 if rng.random() < 0.15 else rng.randrange(len(rows))
    row = rows[at]
    col = rng.randrange(len(row)) if row else 0
    kind = rng.randrange(13)
    if kind <= 4:
        row[col : col + 1] = [number_text(rng, row[col]) if row else b""]
    elif kind == 5:
        row[col : col + 1] = [rng.choice(TOKENS)]
    elif kind == 6:
        row.insert(col, pick(rng, row) or b"")
    elif kind == 7 and row:
        del row[col]
    elif kind == 8:
        rows.insert(rng.randrange(len(rows) + 1), list(row))
    elif kind == 9 and len(rows) > 1:
        del rows[at]
    elif kind == 10:  # a whole column
        value = number_text(rng, row[col] if row else b"")
        rows = [rows[0]] + [[*r[:col], value, *r[col + 1 :]] for r in rows[1:]]
    elif kind == 11 and row:  # a column twice, or gone
        rows = [r[:col] + r[col : col + 1] * rng.choice([0, 2]) + r[col + 1 :] for r in rows]
    else:
        rows[at] = [b'"' + cell + b'"' for cell in row]
    return rows


csv, tsv, pipes = cells(b","), cells(b"\t"), cells(b"|")


@functools.lru_cache(maxsize=64)
def _table(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def parquet(rng: Random, data: bytes) -> bytes:
    """A Parquet table with columns of other types, nulls, extremes, doubled, dropped, cut or emptied."""
    if rng.random() < 0.2:
        return raw(rng, data)
    table = _table(data)
    for _ in range(times(rng, 4)):
        table = column(rng, table)
    out = io.BytesIO()
    try:
        pq.write_table(table, out, compression="none" if rng.random() < 0.5 else "zstd")
    except (pa.ArrowException, ValueError):
        return raw(rng, data)
    return out.getvalue()


def column(rng: Random, table: pa.Table) -> pa.Table:
    """The table with one column, or its rows, changed."""
    kind = rng.randrange(12)
    if not table.num_columns:
        return table
    at = rng.randrange(table.num_columns)
    name, old = table.column_names[at], table.column(at)
    if kind == 0:
        return table.remove_column(at)
    if kind == 1:
        return table.append_column(rng.choice([name, name.upper(), name + "_ms"]), old)
    if kind == 2:
        return table.rename_columns([rng.choice([*TEXTS[:40], n + "_s"]) if n == name else n for n in table.column_names])
    if kind == 3:
        return table.slice(rng.randrange(table.num_rows + 1), rng.choice([0, 1, 2, None]))
    if kind == 4:
        return pa.concat_tables([table] * 2)
    if kind == 5:
        order = list(range(table.num_rows))
        rng.shuffle(order)
        return table.take(order)
    return table.set_column(at, name, values(rng, old))


def values(rng: Random, old: Any) -> Any:
    """A column like the old one: a few values extreme, null, or all of another type."""
    rows, kind = old.to_pylist(), rng.randrange(8)
    n = len(rows)
    if kind >= 4 or not n:
        for _ in range(times(rng)):
            if n:
                rows[rng.randrange(n)] = _like(rng, rows, old.type)
        try:
            return pa.array(rows, old.type)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            pass
    return pa.array(*_other(rng, n, rows))


def _like(rng: Random, rows: list[Any], kind: Any) -> Any:
    if rng.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - 1)
        around = rng.choice([v for v in rows if isinstance(v, int)] or [0])
        return rng.choice(
            [0, -1, 1, top - 1, -top, top // 2, around + 1, around - 1, around * 2, len(rows), len(rows) - 1, -len(rows), 10**6]
        )
    if pa.types.is_floating(kind):
        return float(rng.choice([0.0, -1.0, 0.5, 1e18, 1e300, float("nan"), float("inf"), -float("inf")]))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return rng.choice(TEXTS).encode("utf-8", "replace").decode()
    return rng.choice([None, True, False])


def _other(rng: Random, n: int, rows: list[Any]) -> tuple[list[Any], Any]:
    whole = [v if type(v) is int and abs(v) < 2**62 else i for i, v in enumerate(rows)]
    return rng.choice(
        [
            ([str(v) for v in rows], pa.string()),
            ([float(v) for v in whole], pa.float64()),
            ([float(v) + 0.5 for v in whole], pa.float64()),
            ([abs(v) for v in whole], pa.uint64()),
            ([bool(v) for v in rows], pa.bool_()),
            ([[v] for v in whole], pa.list_(pa.int64())),
            ([{"a": v} for v in whole], pa.struct([("a", pa.int64())])),
            ([None] * n, pa.null()),
            ([None] * n, pa.int64()),
            ([rng.choice([v for v in INTEGERS if abs(v) < 2**63]) for _ in rows], pa.int64()),
            ([rng.choice([v for v in INTEGERS if abs(v) < 2**63])] * n, pa.int64()),
            ([v % 120 for v in whole], pa.int8()),
            (whole, pa.timestamp("ns")),
            (whole, pa.timestamp("us", tz="UTC")),
            ([abs(v) % 86_400 for v in whole], pa.time32("s")),
            (whole, pa.duration("ns")),
            ([b"\xff\xfe"] * n, pa.binary()),
            ([np.float16(v % 100) for v in whole], pa.float16()),
        ]
    )


def sqlite(rng: Random, data: bytes) -> bytes:
    """A database with changed rows, types, columns, tables and views, or bytes flipped."""
    if rng.random() < 0.25:
        return raw(rng, data)
    base = sqlite3.connect(":memory:")
    try:
        base.deserialize(data)
        names = [row[0] for row in base.execute("select name from sqlite_master where type = 'table'")]
        for _ in range(times(rng)):
            _statement(rng, base, rng.choice(names))
        base.commit()
        return base.serialize()
    except (sqlite3.Error, OverflowError, UnicodeError):
        return raw(rng, data)
    finally:
        base.close()


def _statement(rng: Random, base: sqlite3.Connection, name: str) -> None:
    columns = [row[1] for row in base.execute(f"pragma table_info({name})")]
    column, other = rng.choice(columns), rng.choice(columns)
    some = f"where rowid in (select rowid from {name} order by rowid limit 1 offset {rng.randrange(6)})"
    kind = rng.randrange(10)
    if kind <= 4:
        value = scalar(rng)
        value = value if not isinstance(value, int) or abs(value) < 2**63 else str(value)
        value = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        base.execute(f'update {name} set "{column}" = ? {some if rng.random() < 0.7 else ""}', (value,))
    elif kind == 5:
        base.execute(f"delete from {name} {some if rng.random() < 0.7 else ''}")
    elif kind == 6:
        base.execute(f'update {name} set "{column}" = "{other}" {some}')
    elif kind == 7:
        base.execute(f'alter table {name} rename column "{column}" to "{column}x"')
    elif kind == 8:
        base.execute(f"alter table {name} rename to {name}_x" if rng.random() < 0.5 else f"drop table {name}")
    else:
        base.execute(f'update {name} set "{column}" = cast("{column}" as {rng.choice(["text", "blob", "real"])}) {some}')


def zipped(inner: Mutator) -> Mutator:
    """A gzip stream: its content changed, its bytes changed, cut, or followed by another."""

    def mutate(rng: Random, data: bytes) -> bytes:
        kind = rng.randrange(6)
        if kind <= 1:
            return raw(rng, data)
        packed = gzip.compress(inner(rng, gzip.decompress(data)), 1, mtime=0)
        if kind == 2:
            return gzip.compress(packed, 1, mtime=0)
        if kind == 3:
            return packed + rng.choice([packed, b"\0" * 20, b"x", b"\x1f\x8b"])
        return packed[: rng.randrange(len(packed))] if kind == 4 else packed

    return mutate


def tarred(inner: Mutator) -> Mutator:
    """A tar of traces: members changed, renamed, doubled, of another type; its bytes changed or cut."""

    def mutate(rng: Random, data: bytes) -> bytes:
        kind = rng.randrange(5)
        if kind == 0:
            return raw(rng, data)
        if kind == 1:
            return data[: rng.randrange(len(data))]
        packed = _repacked(rng, data, inner)
        return gzip.compress(packed, 1, mtime=0) if kind == 2 else packed

    return mutate


def _repacked(rng: Random, data: bytes, inner: Mutator) -> bytes:
    out = io.BytesIO()
    form = rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w", format=form) as new:
        for entry in old.getmembers():
            stream = old.extractfile(entry)
            content = stream.read() if stream else b""
            for _ in range(rng.choice([1, 1, 1, 2])):
                header, body = _entry(rng, entry.name, content, inner)
                try:
                    new.addfile(header, io.BytesIO(body))
                except (ValueError, UnicodeError):
                    continue
    return out.getvalue()


def _entry(rng: Random, name: str, content: bytes, inner: Mutator) -> tuple[tarfile.TarInfo, bytes]:
    header, body = tarfile.TarInfo(name), content
    kind = rng.randrange(8)
    if kind == 0:
        header.name = rng.choice(["", "x" * 300, "../../x", "/etc/x", "truth.json", "a/" * 200 + "b", "\udcff", "-"])
    elif kind == 1:
        header.type = rng.choice(
            [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, b"7", b"Z", b"S"]
        )
        header.linkname = rng.choice(["", name, "/etc/passwd"])
    elif kind <= 4:
        body = inner(rng, content)
    header.size = len(body) if header.isreg() else 0
    if kind == 5:
        header.pax_headers = {
            rng.choice(["path", "size", "GNU.sparse.major", "mtime", "hdrcharset"]): rng.choice(["-1", "9" * 30, "x", "1", "0"])
        }
    return header, body
