"""What a log hands out: checkpoints (c2sp.org/tlog-checkpoint) and proofs of records (c2sp.org/tlog-proof), as text."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence

from msgspec import Struct

from taut.audit.merkle import HASH_BYTES, check_inclusion, leaf_hash
from taut.audit.note import BadNote, decoded, parted

PROOF = "c2sp.org/tlog-proof@v1"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
MOST_HASHES = 63
"""A path in a tree of 2⁶³ leaves."""


class Checkpoint(Struct, frozen=True):
    """The root of a log at a size."""

    origin: str
    """Which log."""
    size: int
    root: bytes

    def __str__(self) -> str:
        return f"{self.origin}\n{self.size}\n{b64encode(self.root).decode()}\n"


def checkpoint_of(note: str) -> Checkpoint:
    """What a signed checkpoint says; whether to believe it is the signatures' affair."""
    text, _ = parted(note)
    lines = text.split("\n")[:-1]
    if len(lines) < 3 or not all(lines):
        raise BadNote("not a checkpoint: it has fewer than three lines, or an empty one")
    root = decoded(lines[2])
    if not _NUMBER.fullmatch(lines[1]) or len(root) != HASH_BYTES:
        raise BadNote(f"not a checkpoint: {lines[1][:40]!r} is no size, or {lines[2][:60]!r} no root")
    return Checkpoint(lines[0], int(lines[1]), root)


class Proof(Struct, frozen=True):
    """That a record lies in a log: its place, the hashes beside its way to the root, and the signed checkpoint."""

    index: int
    path: tuple[bytes, ...]
    note: str
    record: bytes = b""
    """The record itself, carried along as ``extra``; whoever has it from elsewhere does not need it."""

    def __str__(self) -> str:
        extra = [f"extra {b64encode(self.record).decode()}"] if self.record else []
        hashes = [b64encode(each).decode() for each in self.path]
        return "\n".join([PROOF, *extra, f"index {self.index}", *hashes, "", self.note])

    @property
    def checkpoint(self) -> Checkpoint:
        """What the proof leads to."""
        return checkpoint_of(self.note)

    def holds(self, record: bytes | None = None) -> bool:
        """Whether the path leads from the record to the checkpoint's root; who signed that is asked of the note."""
        top = self.checkpoint
        leaf = leaf_hash(self.record if record is None else record)
        return check_inclusion(leaf, self.index, top.size, self.path, top.root)


def proof_of(text: str) -> Proof:
    """What a proof's text says."""
    head, blank, note = text.partition("\n\n")
    first, *lines = head.split("\n")
    if first != PROOF or not blank:
        raise BadNote(f"not a proof: its first line is {first[:40]!r}, not {PROOF!r}, or no checkpoint follows")
    record = b""
    if lines and lines[0].startswith("extra "):
        record = decoded(lines.pop(0).removeprefix("extra "))
        if not record:
            raise BadNote("not a proof: what follows extra is no base64")
    index, path = _index(lines[:1]), _path(lines[1:])
    checkpoint_of(note)
    return Proof(index, path, note, record)


def _index(lines: Sequence[str]) -> int:
    word, _, number = (lines[0] if lines else "").partition(" ")
    if word != "index" or not _NUMBER.fullmatch(number):
        raise BadNote("not a proof: no line says at which index the record lies")
    return int(number)


def _path(lines: Sequence[str]) -> tuple[bytes, ...]:
    path = tuple(map(decoded, lines))
    if len(path) > MOST_HASHES or any(len(each) != HASH_BYTES for each in path):
        raise BadNote("not a proof: a line of its path is no hash")
    return path
