"""The log: an append-only list of records whose hashes make a Merkle tree, in one SQLite file.

``head`` holds size, root and right edge of the tree, so that appending looks at two rows however long the log is. A record
is acknowledged when its transaction is on disk. Nothing is ever changed but texts that are taken out and records whose
time is over; both are recorded, and leave the hashes as they are.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from base64 import b64encode
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from taut.audit import trust
from taut.audit.database import connected, damaged, is_new, lay_out, rows, writing
from taut.audit.merkle import HASH_BYTES, Frontier, inclusion, leaf_hash, root_of
from taut.audit.record import (
    BEGIN,
    Detail,
    Record,
    Texts,
    decoded_record,
    decoded_texts,
    made,
)
from taut.core.errors import AuditError, UsageError
from taut.core.signals import Held

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from taut.audit.checkpoint import Proof

ORIGIN = "taut/audit/"
"""How the names of logs begin; 16 random bytes follow."""
Ends: TypeAlias = tuple[int, bytes, bytes, int, bytes]
ENDS = (
    """SELECT size, root, peaks, (SELECT max(id) FROM records), (SELECT leaf FROM records ORDER BY id DESC LIMIT 1) FROM head"""
)
"""The head, and the last record with its hash."""
GROW = "UPDATE head SET size = ?, root = ?, peaks = ? WHERE id = 0"
SET_BACK = (
    "was set back or replaced since you wrote its first {} records; bring it back, or move it away to begin anew, "
    "or go on from here: taut audit adopt {}"
)
COPIED = "is a copy of the log at {}, which you use; to use this one instead: taut audit adopt {}"
NO_CONFIGURATION = "your configuration cannot be written, so whose log it is cannot be known; set HOME or XDG_CONFIG_HOME"
NAME = re.compile(r"taut/audit/[0-9a-f]{32}")
"""Names of logs: anything else could be taken for a part of what is signed."""
NOT_KNOWN = "this user neither began nor adopted this audit log; to use it: taut audit adopt {}"


class Row(NamedTuple):
    """A row of ``records``, unchecked."""

    id: int
    leaf: bytes
    body: bytes | None
    """None once its time is over."""
    texts: bytes | None


class Entry(msgspec.Struct, frozen=True):
    """A record in its log."""

    index: int
    leaf: bytes
    body: bytes | None
    """None once its time is over."""
    record: Record | None
    texts: Texts


class Appended(msgspec.Struct, frozen=True):
    """A record that is on disk."""

    index: int
    body: bytes
    proof: Proof | None
    """None where it was not signed."""
    unsigned: str = ""
    """Why not, where a key was given."""


class Log:
    """An open log."""

    def __init__(self, path: Path, connection: sqlite3.Connection, version: str) -> None:
        self.path, self._connection, self._version = path, connection, version
        self._written = False
        self._tree: Frontier | None = None
        """As this log was when it was last written to from here, with what its ends then hold."""
        self._ends: Ends | None = None
        self._appended = False
        """Whether what was appended is still to be remembered."""
        self._origin: str | None = None
        self._known: trust.KnownLog | None = None
        """Its entry in the register of logs, once it was read."""
        self._goes_on = False
        """Whether it was seen to begin with what this user wrote."""
        self._author: bytes | None = None
        self.replaced: trust.KnownLog | None = None
        """The log of this user that lay here before this one was begun."""

    def append(
        self,
        kind: str,
        details: Mapping[str, Detail],
        *,
        key: Ed25519PrivateKey | None = None,
        at_ns: int | None = None,
        also: Callable[[int], None] | None = None,
    ) -> Appended:
        """Add a record; it is on disk when this returns. With a key, the log is signed up to it.

        ``also`` does what the record tells, in the same transaction. Refused for a log that this user does not know.
        """
        self._author = self._author or trust.author_key()
        with Held(), writing(self._connection):
            self._begin(at_ns)
            tree = self.frontier()
            if not self._goes_on:
                self._check_state(tree)
            path = tuple(reversed(tree.peaks))
            index, body = self._put(kind, details, tree, at_ns)
            if also is not None:
                also(index)
            note, unsigned = self._try_to_sign(tree, key)
        self._written, self._tree, self._appended = True, tree, True
        if note is None:
            return Appended(index, body, None, unsigned)
        # What only signing needs is loaded here: most verbs sign nothing, and recording them is to take no time.
        from taut.audit.checkpoint import Proof

        self.remember()
        return Appended(index, body, Proof(index, path, note, body))

    def _try_to_sign(self, tree: Frontier, key: Ed25519PrivateKey | None) -> tuple[str | None, str]:
        """A signed checkpoint, or why there is none: the record is to be written all the same."""
        try:
            return (None, "") if key is None else (self._sign(tree, key), "")
        except AuditError as error:
            return None, str(error)

    def _begin(self, at_ns: int | None) -> None:
        """Name the log in its first record, if it has none yet."""
        if not self._written and is_new(self._connection, self.path):
            lay_out(self._connection)
            if not trust.is_kept():
                raise AuditError(f"{self.path}: {NO_CONFIGURATION}")
            place, self._origin = trust.place_of(self.path), f"{ORIGIN}{os.urandom(16).hex()}"
            self.replaced = trust.log_at(place)
            if self.replaced is not None:
                trust.know_anew(msgspec.structs.replace(self.replaced, path=None))
            self._put(BEGIN, {"log": self._origin}, tree := Frontier(), at_ns)
            self._known = trust.KnownLog(self._origin, "begun", place, 1, b64encode(tree.root()).decode())
            trust.know(self._known)
            self._goes_on = True

    def _put(self, kind: str, details: Mapping[str, Detail], tree: Frontier, at_ns: int | None) -> tuple[int, bytes]:
        """Write a record behind the last, and the tree with it."""
        index, before = tree.size, b2a_base64(tree.root(), newline=False).decode()
        at_ns = time.time_ns() if at_ns is None else at_ns
        body, texts = made(kind, details, index=index, before=before, version=self._version, at_ns=at_ns, author=self._author)
        tree.append(leaf := leaf_hash(body))
        beside = msgspec.json.encode(texts) if texts else None
        self._connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (index, leaf, body, beside))
        head = (tree.size, tree.root(), b"".join(tree.peaks))
        self._connection.execute(GROW if index else "INSERT INTO head VALUES (0, ?, ?, ?)", head)
        self._ends = (*head, index, leaf)
        return index, body

    def frontier(self) -> Frontier:
        """The right edge of the tree; refused where the head does not fit the last record."""
        known, self._tree = self._tree, None  # it is changed by whoever gets it
        if known is not None and self._connection.execute(ENDS).fetchall() == [self._ends]:
            return known
        tree = self.head()
        last = rows(self._connection, "SELECT id, leaf FROM records ORDER BY id DESC LIMIT 1", tuple[int, bytes])
        ends_well = not tree.size & 1 or (bool(last) and tree.peaks[-1] == last[0][1])
        if [index for index, _ in last] != [tree.size - 1] or not ends_well:
            raise damaged(self.path, f"its head says {tree.size} records, and the last is another")
        return tree

    def head(self) -> Frontier:
        """The right edge of the tree as the head tells it; refused where the head does not fit itself."""
        heads = rows(self._connection, "SELECT size, root, peaks FROM head", tuple[int, bytes, bytes])
        try:
            ((size, root, peaks),) = heads
            tree = Frontier(size, [peaks[k : k + HASH_BYTES] for k in range(0, len(peaks), HASH_BYTES)])
        except ValueError:
            raise damaged(self.path, "its head does not fit itself") from None
        if tree.root() != root:
            raise damaged(self.path, "its head does not fit itself")
        return tree

    def _sign(self, tree: Frontier, key: Ed25519PrivateKey) -> str:
        """A signed checkpoint of the tree, kept in the log."""
        from taut.audit.checkpoint import Checkpoint
        from taut.audit.note import signed

        origin = self.origin()
        note = signed(str(Checkpoint(origin, tree.size, tree.root())), origin, key)
        self._connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (tree.size, note.encode()))
        return note

    def check_known(self) -> trust.KnownLog:
        """The entry of the log in the register; refused where this user neither began nor adopted it, or uses another copy."""
        if self._known is None:
            if not trust.is_kept():
                raise AuditError(f"{self.path}: {NO_CONFIGURATION}")
            known, place = trust.known_log(self.origin()), trust.place_of(self.path)
            if known is None:
                raise AuditError(f"{self.path}: {NOT_KNOWN.format(self.path)}")
            if known.path not in (None, place) and origin_at(Path(known.path)) == known.origin:
                raise AuditError(f"{self.path}: {COPIED.format(known.path, self.path)}")
            self._known = msgspec.structs.replace(known, path=place)
        return self._known

    def _check_state(self, tree: Frontier) -> None:
        """Refuse a log that does not go on from what this user wrote: two histories would both be proven."""
        known = self.check_known()
        root = b64encode(tree.root()).decode() if tree.size == known.size else None
        if tree.size > known.size:  # somebody else wrote as well, or the last to write was killed
            root = b64encode(root_of([row.leaf for row in self.raw()[: known.size]])).decode()
        if root != known.root:
            raise AuditError(f"{self.path}: {SET_BACK.format(known.size, self.path)}")
        self._goes_on = True

    def remember(self) -> None:
        """Keep how far this user wrote: it shows that a log was set back."""
        tree, known = self.head(), self.check_known()
        root = b64encode(tree.root()).decode()
        self._known = msgspec.structs.replace(known, size=tree.size, root=root)
        self._appended = False
        with suppress(AuditError):  # then a log that is set back is found by a checkpoint kept elsewhere
            trust.know(self._known)

    def sign(self, key: Ed25519PrivateKey) -> str:
        """A signed checkpoint of all records."""
        with Held(), writing(self._connection):
            self._check_written()
            self._check_state(tree := self.frontier())
            note = self._sign(tree, key)
        self.remember()
        return note

    def origin(self) -> str:
        """The name of this log: random, in its first record."""
        if self._origin is not None:
            return self._origin
        first = self.entry(0).record
        name = first.details.get("log") if first is not None else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise damaged(self.path, "its first record does not name it")
        self._origin = name
        return name

    def entry(self, index: int) -> Entry:
        """The record at an index."""
        self._check_written()
        question = "SELECT id, leaf, body, texts FROM records WHERE id = ?"
        found = rows(self._connection, question, Row, index)
        if not found:
            raise UsageError(f"{self.path}: has no record {index}; taut audit log --audit {self.path} lists them")
        return self._entry(found[0])

    def entries(self) -> list[Entry]:
        """All records, oldest first."""
        return [self._entry(row) for row in self.raw()]

    def raw(self) -> list[Row]:
        """All rows, unchecked, oldest first."""
        self._check_written()
        return rows(self._connection, "SELECT id, leaf, body, texts FROM records ORDER BY id", Row)

    def _entry(self, row: Row) -> Entry:
        index, leaf, body, texts = row
        try:
            return Entry(index, leaf, body, None if body is None else decoded_record(body), decoded_texts(texts))
        except ValueError as error:
            raise damaged(self.path, f"record {index} {error}") from None

    def checkpoints(self) -> list[str]:
        """Signed checkpoints of this log, smallest first."""
        self._check_written()
        found = rows(self._connection, "SELECT note FROM checkpoints ORDER BY size", tuple[bytes])
        return [note.decode("utf-8", "replace") for (note,) in found]

    def proof(self, index: int, key: Ed25519PrivateKey) -> Proof:
        """That a record lies in the log as it is now, signed."""
        from taut.audit.checkpoint import Proof

        with Held(), writing(self._connection):
            self._check_written()
            entry, leaves = self.entry(index), [row.leaf for row in self.raw()]
            self._check_state(tree := self.frontier())
            note = self._sign(tree, key)
        self.remember()
        return Proof(index, tuple(inclusion(leaves, index)), note, entry.body or b"")

    def take_out(self, index: int, body: bool, texts: Texts | None) -> None:
        """Remove texts of a record, or all of it but its hash; to be called while the record that tells it is written."""
        beside = msgspec.json.encode(texts) if texts else None
        gone = ", body = NULL" if body else ""
        self._connection.execute(f"UPDATE records SET texts = ?{gone} WHERE id = ?", (beside, index))

    def problems(self) -> Sequence[str]:
        """What SQLite's own check says of the file; nothing where it is sound."""
        found = [line for (line,) in rows(self._connection, "PRAGMA integrity_check(3)", tuple[str])]
        return [] if found == ["ok"] else found

    def _check_written(self) -> None:
        if not self._written and is_new(self._connection, self.path):
            raise AuditError(f"{self.path}: holds no record yet; any verb of taut's writes one")
        self._written = True


@contextmanager
def open_log(path: Path, version: str = "", create: bool = False) -> Iterator[Log]:
    """A log to read, or with ``create`` to append to."""
    if not create and not path.is_file():
        raise AuditError(f"{path}: there is no audit log; verbs write one beside their runs, or where --audit FILE says")
    if create:
        _make_room(path)
    with connected(path, create) as connection:
        log = Log(path, connection, version)
        yield log
        if log._appended:
            log.remember()


def origin_at(path: Path) -> str | None:
    """The name of the log in a file; None where there is none that can be read."""
    try:
        with open_log(path) as log:
            return log.origin()
    except AuditError:
        return None


def _make_room(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AuditError(f"{path}: its folder cannot be made ({error.strerror}); give --audit FILE elsewhere") from None
