"""Tables in files, CSV or Parquet: the one place where either is decoded.

Names, numbers of columns and what the wanted columns inflate to are checked first, and only those columns are read. What
is refused: more columns than a table has, two columns of one name, columns of lists or structs, texts that are not UTF-8
(replacing letters would make one class out of two), a file that inflates like no table does.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from taut.core.errors import InputRefused, TooLarge
from taut.core.row_shares import is_shared, over_groups
from taut.read.files import RATIO, size_cap
from taut.read.limits import check_count
from taut.read.parquet_pages import Chunk, Damaged, chunks, pages

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

PARQUET = b"PAR1"
# More columns than this are no table: each takes memory while a file is read, even if it is empty.
MOST_COLUMNS = 10_000
# Bytes in which the first line of a CSV must end.
HEADER_BYTES = 1 << 20
# A Parquet footer has at most so many bytes, or this share of its file: it takes hundreds of times as much once read.
FOOTER_BYTES, FOOTER_SHARE = 1 << 20, 16
# Entries of one list in a footer: columns of a row group, row groups.
LISTED = 100_000
# A table may inflate to this, whatever its size on disk; beyond that the ratio counts.
FREE_BYTES = 16 << 20
# Beside that, the cells of so many rows: of codes and runs hourly rows are a hundred times as short on disk …
FREE_ROWS = 1_000_000
# … but no more than this, however many columns there are.
MOST_FREE_BYTES = 1 << 30
# Bytes of the shortest page, its header included.
LEAST_PAGE = 8
# No text of a table is longer.
TEXT_BYTES = 1 << 20
# Nor one inside a list or a map, where it is written out for every row.
NESTED_BYTES = 2000
# Bytes of Parquet from which a second core is worth its overhead.
LARGE = 8 << 20
BOM = b"\xef\xbb\xbf"


class TableFile(Protocol):
    """A table that is not read yet: the names of its columns, and those columns that are asked for."""

    @property
    def names(self) -> list[str]:
        """The names of all columns, as the file has them."""

    def read(self, wanted: Sequence[str], *, as_text: bool = False) -> pa.Table:
        """The wanted columns; ``as_text`` leaves the cells of a CSV as they are written."""

    def each(self, wanted: Sequence[str]) -> Callable[[str], pa.ChunkedArray]:
        """What gives one of the wanted columns, all of which are checked before."""


def check_once(wanted: Sequence[str], names: Sequence[str], label: str) -> None:
    """Refuse two columns of one name among those that are wanted; case is no difference."""
    lowered = [name.lower() for name in names]
    for name in wanted:
        if lowered.count(name.lower()) > 1:
            raise InputRefused(label, f"two columns are called {name[:80]!r}", "name every column once")


def open_table(data: bytes, label: str) -> TableFile:
    """The table in these bytes: Parquet by its magic number, else CSV."""
    return ParquetTable(data, label) if data[:4] == PARQUET else CsvTable(data, label)


@contextmanager
def readable(label: str, what: str) -> Iterator[None]:
    """Turn Arrow's errors on a damaged file into a refusal of one line."""
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise TooLarge(label, f"{what} that does not fit the memory", "write fewer rows to one file") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, UnicodeDecodeError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)[:120]
        remedy = "save it as UTF-8" if "UTF8" in why or "utf-8" in why else "write it again"
        raise InputRefused(label, f"not a readable {what} ({why})", remedy) from None


class CsvTable:
    """Comma-separated values with a header in the first line."""

    def __init__(self, data: bytes, label: str) -> None:
        self.data, self.label = data, label

    @cached_property
    def _begin(self) -> int:
        """Where the header begins: behind a byte order mark and blank lines."""
        head = bytes(self.data[:HEADER_BYTES])
        return len(head) - len(head.removeprefix(BOM).lstrip())

    @cached_property
    def _line(self) -> bytes:
        end = self.data.find(b"\n", self._begin, self._begin + HEADER_BYTES)
        if end < 0 and len(self.data) - self._begin > HEADER_BYTES:
            raise TooLarge(self.label, f"a first line of more than {HEADER_BYTES >> 20} MiB", "write a header of column names")
        return bytes(self.data[self._begin : end if end >= 0 else len(self.data)])

    @cached_property
    def names(self) -> list[str]:
        """The cells of the first line."""
        check_columns(self._line.count(b",") + 1, self.label)
        if b"\0" in self._line:
            raise InputRefused(self.label, "a NUL byte in the header", "write the table as UTF-8")
        return header_cells(self._line)

    def read(self, wanted: Sequence[str], *, as_text: bool = False) -> pa.Table:
        """The wanted columns; a row that does not have as many cells as the header is a refusal."""
        import pyarrow as pa
        import pyarrow.csv as arrow

        check_once(wanted, self.names, self.label)
        if self._line.count(b'"') % 2:
            raise InputRefused(self.label, "a header of several lines", "write the names of columns without line breaks")
        begin = min(self._begin + len(self._line) + 1, len(self.data))
        if not bytes(self.data[begin : begin + HEADER_BYTES]).strip():  # Arrow refuses what has no row
            return pa.table({name: pa.array([], pa.string() if as_text else pa.null()) for name in wanted})
        # Columns that are not wanted get names of their own, because two of them may have the same.
        unique = [name if name in wanted else f"\0{i}" for i, name in enumerate(self.names)]
        with readable(self.label, "CSV"):
            table = arrow.read_csv(
                pa.BufferReader(pa.py_buffer(self.data).slice(begin)),
                read_options=arrow.ReadOptions(column_names=unique),
                convert_options=arrow.ConvertOptions(
                    include_columns=list(wanted), column_types=dict.fromkeys(wanted, pa.string()) if as_text else {}
                ),
            )
        for name in wanted:
            if pa.types.is_binary(table[name].type):
                raise InputRefused(self.label, f"column {name[:80]} is not UTF-8", "save the table as UTF-8")
        return table

    def each(self, wanted: Sequence[str]) -> Callable[[str], pa.ChunkedArray]:
        """What gives one of the wanted columns; rows are read once."""
        columns = dict(zip(wanted, self.read(wanted).columns, strict=True))
        return columns.pop


class ParquetTable:
    """Parquet; texts stay coded, so that one that is named a million times is held once."""

    def __init__(self, data: bytes, label: str) -> None:
        self.data, self.label = data, label
        self._pages = 0
        """Pages that were counted so far."""

    def _opened(self, coded: Sequence[str] = ()) -> pq.ParquetFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        footer = int.from_bytes(self.data[-8:-4], "little")
        if self.data[-4:] == PARQUET and max(FOOTER_BYTES, len(self.data) // FOOTER_SHARE) < footer <= len(self.data):
            raise TooLarge(self.label, f"a footer of {footer:,} bytes", "write fewer columns and row groups")
        with readable(self.label, "Parquet file"):
            return pq.ParquetFile(pa.BufferReader(self.data), read_dictionary=list(coded), thrift_container_size_limit=LISTED)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return self._opened()

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self._file.schema_arrow if self.names else ()

    @property
    def rows(self) -> int:
        """How many rows there are, by the footer."""
        return int(self._file.metadata.num_rows)

    @cached_property
    def names(self) -> list[str]:
        """The names of the schema's columns."""
        check_columns(self._file.metadata.num_columns, self.label)
        with readable(self.label, "Parquet file"):
            return list(self._file.schema_arrow.names)

    def read(self, wanted: Sequence[str], *, as_text: bool = False, nested: Sequence[str] = ()) -> pa.Table:
        """The wanted columns, if what they inflate to is in proportion to the file.

        Columns of lists, maps and structs are refused, but for those named by ``nested``.
        """
        coded = self._checked(wanted, nested)
        return self._decoded(wanted, coded)

    def each(self, wanted: Sequence[str]) -> Callable[[str], pa.ChunkedArray]:
        """What reads one of the wanted columns, all of which are checked now: a large table is never in memory as a whole."""
        coded = self._checked(wanted)
        return lambda name: self._decoded([name], coded)[name]

    def _checked(self, wanted: Sequence[str], nested: Sequence[str] = ()) -> list[str]:
        """The paths of the texts among these columns; refuses what is no table."""
        import pyarrow as pa

        check_once(wanted, self.names, self.label)
        with readable(self.label, "Parquet file"):
            fields = [self._file.schema_arrow.field(name) for name in wanted]
        for field in fields:
            if pa.types.is_nested(field.type) and field.name not in nested:
                why = f"column {field.name[:80]} holds {str(field.type)[:40]}, not one value a row"
                raise InputRefused(self.label, why, "write one value in each cell")
        return self._check_size(wanted)

    def _decoded(self, wanted: Sequence[str], coded: Sequence[str]) -> pa.Table:
        with readable(self.label, "Parquet file"):
            table = self._read(list(wanted), coded).select(list(wanted))
            for column in table.columns:
                column.validate()
        for name in wanted:
            self._check_texts(name, table[name])
        return table

    def _read(self, wanted: list[str], coded: Sequence[str]) -> pa.Table:
        """Some columns; of a long file, where threads work on rows, its row groups in shares."""
        import pyarrow as pa

        about, several = self._file.metadata, len(self.data) > LARGE
        if not is_shared() or about.num_row_groups < 2:
            return self._opened(coded).read(columns=wanted, use_threads=several)

        def share_of(share: slice) -> pa.Table:
            groups = list(range(share.start, share.stop))
            return self._opened(coded).read_row_groups(groups, columns=wanted, use_threads=several)

        begin = np.cumsum([0, *(about.row_group(i).num_rows for i in range(about.num_row_groups))])
        return pa.concat_tables(over_groups(share_of, begin))

    def _check_size(self, wanted: Sequence[str]) -> list[str]:
        """The paths of texts; refuses columns that inflate to far more than a table of that size does, before they do."""
        schema, decoded = self._file.metadata.schema, 0
        abouts = [schema.column(i) for i in range(len(schema))]
        leaves = [i for i, about in enumerate(abouts) if _selected(about.path, wanted)]
        cells = min(self.rows, FREE_ROWS) * sum(max(8, abouts[i].length) for i in leaves)
        cap = min(size_cap(), max(min(FREE_BYTES + cells, MOST_FREE_BYTES), RATIO * len(self.data)))
        try:
            for group in chunks(self.data):
                for leaf in leaves:
                    decoded += self._inflated(group[leaf], abouts[leaf])
                    if decoded > cap:
                        why = f"inflates to more than {cap >> 20:,} MiB, far more than its {len(self.data):,} bytes"
                        raise TooLarge(self.label, why, "write fewer rows to one file")
        except (Damaged, IndexError):
            raise InputRefused(self.label, "not a readable Parquet file (a damaged footer or page)", "write it again") from None
        return [abouts[i].path for i in leaves if _is_text(abouts[i])]

    def _inflated(self, chunk: Chunk, about: pq.ColumnSchema) -> int:
        """Bytes that a chunk takes once it is decoded, at most."""
        width, size, seen = max(8, about.length), 0, 0
        for inflated, values, repeats in pages(self.data, chunk):
            size += inflated + values * (inflated if repeats else width)
            seen += values
            self._pages += 1
            if self._pages > len(self.data) // LEAST_PAGE:  # chunks that share their bytes
                raise Damaged
        if about.max_repetition_level == 0 and seen != chunk.rows:
            raise Damaged
        return size

    def _check_texts(self, name: str, column: pa.ChunkedArray) -> None:
        """Refuses texts that are none; of nested columns too, whose texts are coded as well."""
        import pyarrow as pa

        for chunk in column.chunks:
            for words in _dictionaries(chunk):
                if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type)):
                    raise InputRefused(self.label, f"column {name[:80]} holds {words.type}, not text", "write it as text")
                try:
                    words.validate(full=True)
                except pa.ArrowInvalid:
                    raise InputRefused(self.label, f"column {name[:80]} is not UTF-8", "write it as UTF-8") from None
                longest = _longest(words)
                if longest > (TEXT_BYTES if chunk.type.num_fields == 0 else NESTED_BYTES):
                    raise TooLarge(self.label, f"column {name[:80]} holds a text of {longest:,} bytes", "write shorter texts")


def _is_text(about: pq.ColumnSchema) -> bool:
    """Whether a leaf holds texts, which are read with their codes."""
    return bool(about.physical_type == "BYTE_ARRAY") and "DECIMAL" not in str(about.logical_type).upper()


def _longest(words: pa.StringArray) -> int:
    """Bytes of the longest text; from their edges, because Arrow's functions take as long to load as a table to read."""
    import pyarrow as pa

    edges = words.buffers()[1]
    if not len(words) or edges is None:
        return 0
    found = np.frombuffer(edges, np.int64 if pa.types.is_large_string(words.type) else np.int32)
    return int(np.diff(found[words.offset : words.offset + len(words) + 1]).max())


def _dictionaries(array: pa.Array) -> Iterator[pa.StringArray]:
    """The texts of a coded array, and of all arrays inside it."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        yield array.dictionary
    elif pa.types.is_map(array.type):
        yield from (*_dictionaries(array.keys), *_dictionaries(array.items))
    elif pa.types.is_struct(array.type):
        for i in range(array.type.num_fields):
            yield from _dictionaries(array.field(i))
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _dictionaries(array.values)


def _selected(path: str, wanted: Sequence[str]) -> bool:
    """Whether Arrow reads a leaf when these columns are asked for: it goes by the path up to any dot."""
    return any(path == name or path.startswith(f"{name}.") for name in wanted)


def check_columns(count: int, label: str) -> None:
    """Refuse more columns than a table has."""
    check_count(count, MOST_COLUMNS, "columns", label, "write only the columns that are needed")


def csv_rows(text: str, label: str) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by the names of their columns in lower case) of every row that is not empty, for short tables."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        check_columns(len(header), label)
        for row in filter(None, reader):
            yield reader.line_num, dict(zip(header, row, strict=False))
    except csv.Error as error:
        raise InputRefused(f"{label}:{reader.line_num}", f"not a readable CSV ({error})", "cut the file there") from None


def header_cells(line: bytes) -> list[str]:
    """The cells of a CSV's first line, without blanks around them; those of a damaged line as they are."""
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r\n").replace("\0", "")
    try:
        return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:
        return [cell.strip().strip('"') for cell in text.split(",")]
