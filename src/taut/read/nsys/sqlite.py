"""A foreign SQLite file, opened so that it can only be read, and only so much.

Nothing in the file is trusted: tables count, views and virtual tables do not; generated columns are not listed; work is
bounded by the bytes of the file, because a page that points at itself makes a table endless.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import InputRefused, TooLarge
from taut.read.files import Member

MAGIC = b"SQLite format 3\x00"
# No name, and no row, is longer than this.
TEXT_BYTES = 16 << 20
# Instructions of SQLite's machine between two looks at the budget.
TICK = 10_000
# Instructions a file may cost for each of its bytes: reading a row takes a few for each column.
WORK_PER_BYTE = 64
LEAST_WORK = 50_000_000
# Rows of numbers that are held as objects at a time.
BATCH = 1 << 12
_CREATED = re.compile(r"\s*+CREATE\s++TABLE\b")
# A column as it is, -1 for nulls; and as whole numbers, -1 for anything else: SQLite lets a column hold any type.
_PLAIN = "ifnull({0}, -1)"
INTEGER = "CASE typeof({0}) WHEN 'integer' THEN {0} ELSE -1 END"


class Database:
    """The plain tables of one file."""

    def __init__(self, connection: sqlite3.Connection, label: str, size: int) -> None:
        self.label = label
        self._connection, self._size = connection, size
        self._left = LEAST_WORK + WORK_PER_BYTE * size
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES)
        connection.set_progress_handler(self._tick, TICK)
        for setting in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            connection.execute(f"PRAGMA {setting}")
        named = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 10000").fetchall()
        self._plain = {n for n, sql in named if isinstance(n, str) and isinstance(sql, str) and _CREATED.match(sql)}
        self._found: dict[str, frozenset[str]] = {}

    def _tick(self) -> bool:
        self._left -= TICK
        return self._left < 0

    def _columns(self, table: str) -> frozenset[str]:
        """The columns of a plain table, looked up when they are first asked for: of many tables few are."""
        if table not in self._found:
            quoted = table.replace('"', '""')
            found = self._connection.execute(f'PRAGMA table_info("{quoted}")')
            self._found[table] = frozenset(str(row[1]) for row in found)
        return self._found[table]

    def has(self, table: str, *columns: str) -> bool:
        """Whether a plain table has all of these columns."""
        return table in self._plain and self._columns(table).issuperset(columns)

    def rows(self, table: str, expressions: Sequence[str], where: str = "1") -> Iterator[tuple[Any, ...]]:
        """Rows of a table; no more than its file can hold."""
        cursor = self._connection.execute(f'SELECT {", ".join(expressions)} FROM "{table}" WHERE {where}')
        yield from islice(cursor, self._size)
        if next(cursor, None) is not None:
            raise TooLarge(self.label, f"table {table} does not end", "export the report again")

    def integers(self, table: str, columns: Sequence[str], where: str = "1") -> dict[str, Ints]:
        """Columns of whole numbers; -1 for what is missing, null or something else."""
        wanted = [name for name in columns if self.has(table, name)]
        if not wanted:
            return {name: np.zeros(0, dtype=np.int64) for name in columns}
        try:
            values = self._integers(table, wanted, _PLAIN, where)
        except TypeError:  # to ask every value for its type takes longer than to read it
            values = self._integers(table, wanted, INTEGER, where)
        found = {name: np.ascontiguousarray(values[:, at]) for at, name in enumerate(wanted)}
        return {name: found.get(name, np.full(len(values), -1, dtype=np.int64)) for name in columns}

    def _integers(self, table: str, columns: Sequence[str], form: str, where: str) -> Ints:
        """Columns side by side; raises TypeError where a value is no whole number."""
        rows, values = self.rows(table, [form.format(f'"{name}"') for name in columns], where), array("q")
        while some := list(chain.from_iterable(islice(rows, BATCH))):
            values.fromlist(some)
        return np.asarray(values).reshape(-1, len(columns))

    def texts(self, table: str, key: str, value: str, length: int, where: str = "1") -> Iterator[tuple[Any, str]]:
        """(key, text cut to a length) of every row whose value is a text."""
        if self.has(table, key, value):
            for name, text in self.rows(table, [f'"{key}"', f'substr("{value}", 1, {length})'], where):
                if isinstance(text, str):
                    yield name, text


def is_unclosed(member: Member) -> bool:
    """Whether what was written last may lie in a file beside the database, which is not read."""
    beside = (Path(f"{member.path}{end}") for end in ("-wal", "-journal")) if member.path else ()
    return any(path.is_file() and path.stat().st_size > 0 for path in beside)


@contextmanager
def opened(member: Member) -> Iterator[Database]:
    """The database of a member: in place where it lies on disk, else from its bytes."""
    try:
        connection, size = _connected(member)
        with closing(connection):
            yield Database(connection, member.label, size)
    except (
        sqlite3.Error,
        MemoryError,
        OverflowError,
        UnicodeDecodeError,
    ) as error:  # the last where SQLite names what is wrong
        why = "takes more work than its size explains" if "interrupted" in str(error) else f"{error or 'out of memory'}"
        raise InputRefused(member.label, f"damaged SQLite file ({why[:120]})", "export or copy it again") from None


def _connected(member: Member) -> tuple[sqlite3.Connection, int]:
    if member.path:
        path = Path(member.path).resolve()
        return sqlite3.connect(path.as_uri() + "?mode=ro&immutable=1", uri=True), path.stat().st_size
    # SQLite copies what it is given, so twice the bytes must fit.
    data = member.read(0.5)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(data)
    return connection, len(data)
