"""The SQLite file of a log: how it is opened, what it must hold, and one line for whatever SQLite says is wrong.

A commit is on disk before it is acknowledged (rollback journal, ``synchronous=EXTRA``: the journal's removal is synced as
well). The journal is not a write-ahead log, because that is shared memory between processes of one machine, and runs often
lie on a network's file system. Removed text is overwritten with zeros (``secure_delete``).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from os import fsencode
from pathlib import Path
from stat import S_ISREG
from typing import TypeVar
from urllib.parse import quote

import msgspec

from taut.core.errors import AuditError, DamagedLog

T = TypeVar("T")

APPLICATION = int.from_bytes(b"taut")
LAYOUT = 1
"""Version of the tables (``user_version``)."""
PAGE_BYTES = 4096
PATIENCE_S = 5.0
"""Another writer is waited for this long; it needs milliseconds."""
TABLES = (
    "CREATE TABLE records (id INTEGER PRIMARY KEY, leaf BLOB NOT NULL, body BLOB, texts BLOB)",
    "CREATE TABLE head (id INTEGER PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, peaks BLOB NOT NULL)",
    "CREATE TABLE checkpoints (size INTEGER PRIMARY KEY, note BLOB NOT NULL)",
)
SETTINGS = (
    f"PRAGMA page_size={PAGE_BYTES}",
    "PRAGMA synchronous=EXTRA",
    "PRAGMA secure_delete=ON",
    "PRAGMA cell_size_check=ON",
    "PRAGMA trusted_schema=OFF",
)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
REASONS = {
    sqlite3.SQLITE_BUSY: ("another process has been writing to it for too long", "try again"),
    sqlite3.SQLITE_LOCKED: ("another process has been writing to it for too long", "try again"),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room, or give --audit FILE elsewhere"),
    sqlite3.SQLITE_READONLY: ("it, or its folder, is read-only", "give --audit FILE elsewhere"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "give --audit FILE elsewhere"),
    sqlite3.SQLITE_PERM: ("it may not be opened", "give --audit FILE elsewhere"),
}
"""What the low byte of SQLite's error code means here, and the way out."""


SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""How a journal ends that names another file, which SQLite deletes: those of a log, which is one file, do not."""
NO_WAL = b"\x01\x01"
"""Bytes 18 and 19 of a database that keeps no write-ahead log."""


def _check_plain(path: Path) -> None:
    """Refuse what a log of taut's never is, before SQLite opens it: SQLite deletes or writes files that others may name."""
    if path.is_symlink() and not path.exists():
        raise AuditError(f"{path}: is a link that leads nowhere; remove it, or give --audit FILE")
    if path.exists() and not path.is_file():
        raise AuditError(f"{path}: is no plain file; give another --audit FILE")
    for suffix in ("-journal", "-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):  # the journal of another writer comes and goes
            if not S_ISREG(beside.lstat().st_mode) or suffix != "-journal":
                raise damaged(path, f"{beside.name} lies beside it, which no log of taut's has")
            with beside.open("rb") as stream:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - len(SUPER_JOURNAL)))
                if stream.read() == SUPER_JOURNAL:
                    raise damaged(path, f"{beside.name} names another file, to be deleted")
    if path.is_file():
        with path.open("rb") as stream:
            head = stream.read(20)
        if len(head) == 20 and head[18:] != NO_WAL:
            raise damaged(path, "its header is not that of a log")


@contextmanager
def connected(path: Path, create: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to the file of a log; every failure of SQLite inside is one line of taut's."""
    _check_plain(path)
    where = f"file:{quote(fsencode(path.absolute()))}?mode={'rwc' if create else 'rw'}"
    try:
        with closing(sqlite3.connect(where, uri=True, timeout=PATIENCE_S, isolation_level=None)) as connection:
            for setting in SETTINGS:
                connection.execute(setting)
            yield connection
    except sqlite3.Error as error:
        raise failure(path, error) from None
    except UnicodeDecodeError:  # SQLite names what it cannot read, and the name itself is damaged
        raise damaged(path, "names in it are no text") from None


def failure(path: Path, error: sqlite3.Error) -> AuditError:
    """What SQLite says, in one line."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in DAMAGED:
        return damaged(path, f"{error}")
    why, remedy = REASONS.get(code, (str(error), "check the disk, or give --audit FILE elsewhere"))
    return AuditError(f"{path}: the audit log cannot be used: {why}; {remedy}")


def damaged(path: Path, why: str) -> DamagedLog:
    """The refusal of a log that is not as it was written."""
    return DamagedLog(
        f"{path}: the audit log is damaged ({why}); taut audit verify {path} says what is left; move it away to begin anew"
    )


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, one writer at a time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def rows(connection: sqlite3.Connection, question: str, of: type[T], *values: int) -> list[T]:
    """Rows of the types they should have; flipped bits give others."""
    found = connection.execute(question, values).fetchall()
    try:
        return [msgspec.convert(row, type=of) for row in found]
    except msgspec.ValidationError as error:
        raise sqlite3.DatabaseError(f"a row of the wrong type: {error}") from None


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is still empty; refused if it holds something else than a log of a known version."""
    tables = [sql for (sql,) in rows(connection, "SELECT sql FROM sqlite_schema ORDER BY rowid", tuple[str | None])]
    ((application,),) = rows(connection, "PRAGMA application_id", tuple[int])
    ((layout,),) = rows(connection, "PRAGMA user_version", tuple[int])
    if not tables and not application and not layout:
        return True
    if application != APPLICATION and tuple(tables) == TABLES:
        raise damaged(path, "its header is not that of a log")
    if application != APPLICATION:
        raise AuditError(f"{path}: is a database, but no audit log of taut's; give another --audit FILE")
    if layout > LAYOUT:
        raise AuditError(f"{path}: was written by a later version of taut (layout {layout}, here {LAYOUT}); update taut")
    if tuple(tables) != TABLES:
        raise damaged(path, "its tables are not those of a log")
    return False


def lay_out(connection: sqlite3.Connection) -> None:
    """The tables of an empty log; part of the transaction that writes its first record."""
    for table in TABLES:
        connection.execute(table)
    connection.execute(f"PRAGMA application_id={APPLICATION}")
    connection.execute(f"PRAGMA user_version={LAYOUT}")
