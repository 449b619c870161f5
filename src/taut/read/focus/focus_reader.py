"""A FOCUS bill → one table of charges under the names of the newest version, and the rules that its files break.

Files are CSV (also compressed) or Parquet, of versions 1.0 to 1.4; a folder may hold one file per period beside their
metadata. Unknown stays null: a missing column, an empty cell, ``NULL``. Costs are decimals with 18 places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow
from msgspec import Struct

from taut.core.array_types import Mask
from taut.core.errors import NotATrace, TooLarge
from taut.read.files import STDIN, Member, Paths, Source, expand, listed, peek
from taut.read.focus.focus_cells import Clock, Place, Rounded, as_json, decimals, money_type
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_check import Broken, check, merged
from taut.read.focus.focus_columns import COLUMNS, COSTS, EARLIER, KINDS, TIME, VERSIONS, is_focus, is_kept, meant, version_of
from taut.read.limits import check_count
from taut.read.table_file import PARQUET, ParquetTable, check_columns, check_once, header_cells, readable

NULLS = ("", "NULL", "null", "Null", "\\N")
BLOCK_BYTES = 8 << 20
# More charges than this are not held at once.
MOST_ROWS = 50_000_000
# A file of metadata is no larger.
METADATA_BYTES = 1 << 20
EXPORT = "export the bill as FOCUS 1.0 to 1.4 (Cost and Usage), CSV or Parquet"
_VERSION = re.compile(rb'"(?:FocusVersion|focusVersion|focus_version)"\s*:\s*"v?(1\.\d)')
_EXPORTER = re.compile(rb'FOCUS_1_(\d)_AWS|"FocusCost"[^{}]{0,400}?"dataVersion"\s*:\s*"v?1\.(\d)')


class ChargeFile(Struct, frozen=True):
    """One file of a bill."""

    name: str
    version: str
    rows: int
    sha256: str


class Charges(Struct, frozen=True):
    """The charges of a bill."""

    table: pa.Table
    """Columns of the newest version, the exporters' own (``x_``), ``row`` (1 is the first charge of a file) and ``file``."""
    version: str
    """That of the files; the newest of them where they differ."""
    files: tuple[ChargeFile, ...]
    missing: tuple[str, ...]
    """Columns of the version that no file has; they are null in the table."""
    broken: tuple[Broken, ...]
    """Rules of the specification that the files break."""
    disputed: tuple[Broken, ...]
    """What focus-validator 1.0.0 reports of them beyond what the specification says."""
    notes: tuple[str, ...]


class _File(Struct):
    """What one file holds."""

    member: str
    names: list[str]
    table: pa.Table
    odd: dict[str, Mask]
    """Column of times → which cells are not written as they should be."""


class _Notes(Struct):
    """What is said once of all files."""

    clock: Clock
    lost: Rounded
    left_out: list[str]
    said: list[str]
    metadata: dict[Path, str | None]
    """Folder → the version that its metadata name."""


def read_focus(paths: Paths) -> Charges:
    """The charges of files and folders. Raises InputRefused for what is no FOCUS bill, or is damaged."""
    asked = [str(path) for path in listed(paths)]
    notes = _Notes(Clock(), Rounded(), [], [], {})
    tables: list[pa.Table] = []
    files: list[ChargeFile] = []
    broken: list[list[Broken]] = []
    disputed: list[list[Broken]] = []
    names: set[str] = set()
    for path in _expanded(asked):
        with Source(path) as source:
            here: list[tuple[str, str, int]] = []
            for file in _files(source, path in asked, notes):
                version = _version(path, file.names, notes)
                found = check(Charged(file.table, version, file.names, file.odd))
                tables.append(file.table)
                broken.append(found.broken)
                disputed.append(found.disputed)
                names |= set(meant(file.names))
                here.append((file.member, version, file.table.num_rows))
                check_count(sum(map(len, tables)), MOST_ROWS, "charges", file.member, "give fewer billing periods")
            digest = source.digest()
        files += [ChargeFile(*one, digest) for one in here]
    if not tables:
        raise NotATrace(asked[0] if asked else "no input", "holds no FOCUS file", EXPORT)
    table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    version = max(file.version for file in files)
    absent = (one.name for one in COLUMNS if one.since <= version <= one.until and one.name not in names)
    return Charges(table, version, tuple(files), tuple(absent), merged(broken), merged(disputed), _all_notes(notes, files))


def _expanded(asked: Sequence[str]) -> list[str]:
    """The files that are named; an empty folder is refused in the words of bills."""
    empty = next((path for path in asked if os.path.isdir(path) and not os.listdir(path)), None)
    if empty is not None:
        raise NotATrace(empty, "an empty folder", "name a folder with FOCUS files")
    return expand(asked)


def sniff(head: bytes) -> bool:
    """Whether these first bytes are those of a bill in CSV; a Parquet file is known by its columns, when it is opened."""
    line = head.lstrip().partition(b"\n")[0]
    return is_focus(header_cells(line)) or is_focus(_cells(line, ";"))


def _all_notes(notes: _Notes, files: Sequence[ChargeFile]) -> tuple[str, ...]:
    said = list(notes.said)
    if len({file.version for file in files}) > 1:
        each = ", ".join(f"{file.name} {file.version}" for file in files[:4])
        said.append(f"the files are of different versions of FOCUS: {each}")
    if notes.clock.bare:
        said.append("times that name no zone are taken as UTC")
    for column, cells in notes.lost.cells.items():
        off = notes.lost.amount[column]
        said.append(f"{column}: {cells:,} cells have more than 18 decimals and were rounded, {off:+.2E} in all")
    if notes.left_out:
        said.append(f"no FOCUS files, left out: {', '.join(notes.left_out[:8])}")
    return tuple(said)


def _files(source: Source, asked: bool, notes: _Notes) -> Iterator[_File]:
    """The bills in one input; a file of a folder that is none is left out, one that was named is refused."""
    for member in source.members():
        is_parquet = member.head[:4] == PARQUET
        table = ParquetTable(member.read(), member.label) if is_parquet else None
        delimiter, header = (",", b"") if table else _header(member)
        names = table.names if table else header_cells(header) if delimiter == "," else _cells(header, delimiter)
        if not is_focus(names):
            if not asked or source.label != member.label:
                notes.left_out += [member.name] if not member.name.endswith(".json") else []
                continue
            found = meant(names)
            lacking = [name for name in (*COSTS, TIME) if name not in found and not (name in COSTS and {*COSTS} & {*found})]
            lacking = lacking or ["most columns that each version has"]
            raise NotATrace(member.label, f"not a FOCUS file: it lacks {' and '.join(lacking)}", EXPORT)
        check_columns(len(names), member.label)
        check_once([*_wanted(names).values()], names, member.label)
        if table:
            yield _from_parquet(table, member.label, notes)
        else:
            yield _from_csv(member, names, delimiter, notes)


def _header(member: Member) -> tuple[str, bytes]:
    """The delimiter and the first line of a CSV that is not blank; nothing where the head of a file holds none."""
    head = bytes(member.head)
    begin = len(head) - len(head.lstrip())
    end = head.find(b"\n", begin)
    line = head[begin : end if end >= 0 else len(head)].rstrip(b"\r")
    if b"\0" in line or not line:
        return ",", b""
    delimiter = max(",;\t|", key=lambda one: line.count(one.encode()))
    return delimiter, line


def _cells(line: bytes, delimiter: str) -> list[str]:
    return [cell.strip().strip('"') for cell in line.decode("utf-8", "replace").split(delimiter)]


def _from_csv(member: Member, names: list[str], delimiter: str, notes: _Notes) -> _File:
    head = bytes(member.head)
    begin = len(head) - len(head.lstrip())
    end = head.find(b"\n", begin)
    member.stream.read(end + 1 if end >= 0 else len(head))  # the header
    wanted = _wanted(names)
    coded = pa.dictionary(pa.int32(), pa.string())
    types = {name: pa.string() if KINDS.get(column) == "number" else coded for column, name in wanted.items()}
    file = _Growing(member.label, wanted, notes)
    if end >= 0 and _has_rows(member):
        unique = [name if name in types else f"\0{i}" for i, name in enumerate(names)]
        with (
            readable(member.label, "CSV"),
            arrow.open_csv(
                pa.PythonFile(member.stream, mode="r"),
                read_options=arrow.ReadOptions(column_names=unique, block_size=BLOCK_BYTES, use_threads=False),
                parse_options=arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                convert_options=arrow.ConvertOptions(
                    include_columns=list(types), column_types=types, null_values=NULLS, strings_can_be_null=True
                ),
            ) as reader,
        ):
            for batch in reader:
                file.add(batch)
    return file.done(names)


def _has_rows(member: Member) -> bool:
    return bool(peek(member.stream).strip())


def _from_parquet(table: ParquetTable, label: str, notes: _Notes) -> _File:
    wanted = _wanted(table.names)
    file = _Growing(label, wanted, notes)
    found = table.read(list(wanted.values()), nested=[name for name in wanted.values() if _may_nest(name, wanted)])
    with readable(label, "Parquet file"):
        found.validate(full=True)  # codes of a damaged file may point nowhere
    if any(str(found[wanted[name]].type) in {"double", "float"} for name in COSTS if name in wanted):
        notes.said.append(f"{label}: costs are binary floats in the file; each was read as the shortest decimal that means it")
    with readable(label, "Parquet file"):
        for batch in found.to_batches(max_chunksize=1 << 18):
            file.add(batch)
    return file.done(table.names)


def _may_nest(name: str, wanted: dict[str, str]) -> bool:
    return KINDS.get(next(column for column, one in wanted.items() if one == name), "json") == "json"


def _wanted(names: Sequence[str]) -> dict[str, str]:
    """Column of the table → column of the file: those of the specification, and the exporter's own."""
    found = meant(names)
    return found | {name: name for name in names if is_kept(name) and name not in found.values()}


class _Growing:
    """A file's table as its blocks come."""

    def __init__(self, label: str, wanted: dict[str, str], notes: _Notes) -> None:
        self._label, self._wanted, self._notes = label, wanted, notes
        self._blocks: list[pa.Table] = []
        self._odd: dict[str, list[Mask]] = {}
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Understand the cells of one block."""
        if self._rows + batch.num_rows > MOST_ROWS:
            raise TooLarge(self._label, f"more than {MOST_ROWS:,} charges", "split it by billing period")
        columns: dict[str, pa.Array] = {}
        for column, name in self._wanted.items():
            cells, kind = batch.column(batch.schema.get_field_index(name)), KINDS.get(column, "text")
            if kind == "number":
                columns[column] = decimals(cells, Place(self._label, name, self._rows), self._notes.lost)
            elif kind == "time":
                columns[column], odd = self._notes.clock.times(cells)
                self._odd.setdefault(column, []).append(odd)
            else:
                columns[column] = _text(as_json(cells))
        first = self._rows + 1
        columns["row"] = pa.array(np.arange(first, first + batch.num_rows))
        self._blocks.append(pa.table(columns))
        self._rows += batch.num_rows

    def done(self, names: list[str]) -> _File:
        """The whole file, with all columns of the newest version."""
        empty = {column: pa.nulls(0, column_type(column)) for column in self._wanted} | {"row": pa.nulls(0, pa.int64())}
        table = pa.concat_tables(self._blocks).unify_dictionaries() if self._blocks else pa.table(empty)
        odd = {column: np.concatenate(masks) for column, masks in self._odd.items()}
        return _File(self._label, names, _normalised(table, self._label), odd)


def column_type(column: str) -> pa.DataType:
    """The type that a column of the normalised table has; texts are coded."""
    match KINDS.get(column, "text"):
        case "number":
            return money_type()
        case "time":
            return pa.timestamp("us", "UTC")
    return pa.dictionary(pa.int32(), pa.string())


def _text(cells: pa.Array) -> pa.Array:
    coded = pa.dictionary(pa.int32(), pa.string())
    if cells.type == coded:
        return cells
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    return cells.cast(pa.string()).dictionary_encode().cast(coded)


def _normalised(table: pa.Table, label: str) -> pa.Table:
    """The columns of the newest version in their order, the exporter's own behind them; what is missing is null."""
    rows = table.num_rows
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    for column in COLUMNS:
        name = column.name
        if name not in table.column_names and EARLIER.get(name) in table.column_names:
            name = EARLIER[name]
        columns[column.name] = table[name] if name in table.column_names else pa.nulls(rows, column_type(name))
    columns |= {name: table[name] for name in table.column_names if name not in KINDS and name != "row"}
    columns["row"] = table["row"]
    code = pa.array(np.zeros(rows, dtype=np.int32))
    columns["file"] = pa.DictionaryArray.from_arrays(code, pa.array([label], pa.string()))
    return pa.table(columns)


def _version(path: str, names: list[str], notes: _Notes) -> str:
    """The version of a file: what metadata beside it say, else what its columns tell."""
    told = version_of(names)
    folder = Path(path).parent
    if path != STDIN and folder not in notes.metadata:
        notes.metadata[folder] = _metadata_version(folder)
    said = notes.metadata.get(folder)
    if said is None or said == told:
        return told
    if said not in VERSIONS:
        notes.said.append(f"{Path(path).name}: metadata name version {said}, which taut does not know; read as {told}")
        return told
    if told > said:
        notes.said.append(f"{Path(path).name}: metadata name version {said}, but it has columns of {told}")
    return said


def _metadata_version(folder: Path) -> str | None:
    """The version that JSON files in a folder name, if they name exactly one."""
    found: set[str] = set()
    for beside in sorted(folder.glob("*.json"))[:64]:
        try:
            if beside.stat().st_size > METADATA_BYTES:
                continue
            text = beside.read_bytes()
        except OSError:
            continue
        found |= {one.decode() for one in _VERSION.findall(text)}
        found |= {f"1.{(one or other).decode()}" for one, other in _EXPORTER.findall(text)}
    return found.pop() if len(found) == 1 else None
