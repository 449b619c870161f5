"""Signed notes (c2sp.org/signed-note): a text, a blank line, and one line for every key that signed it.

A key that verifies is one line of text, ``name+id+data``: its name, the first four bytes of a hash of name and key, and the
kind of signature with the public key. Two kinds are known: Ed25519 over the text, by which a log signs, and the cosignature
(c2sp.org/tlog-cosignature), by which a witness says when it saw the text.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from taut.core.errors import UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ED25519, COSIGNATURE = 1, 4
"""Kinds of signatures, as the first byte of a key's data."""
DASH = "—"
MOST_SIGNATURES = 100
MOST_CHARACTERS = 1 << 20
_NAME = re.compile(r"[^\s+]+")


class BadNote(Exception):
    """A note, a key or a proof that is not what it should be; says why."""


class Key(Struct, frozen=True):
    """What verifies the signatures of one signer."""

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        """Four bytes that tell keys of one name apart."""
        return sha256(f"{self.name}\n".encode() + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{b64encode(bytes([self.kind]) + self.public).decode()}"

    def verifies(self, text: str, signature: bytes) -> bool:
        """Whether this key signed a text."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if len(signature) != (72 if self.kind == COSIGNATURE else 64):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature[-64:], self._signed(text, signature[:-64]))
        except (InvalidSignature, ValueError):
            return False
        return True

    def _signed(self, text: str, stamp: bytes) -> bytes:
        """The bytes that were signed: a witness signs the time with the text."""
        if self.kind == ED25519:
            return text.encode()
        return f"cosignature/v1\ntime {int.from_bytes(stamp)}\n{text}".encode()


def key_of(text: str) -> Key:
    """The key that a line of text stands for."""
    name, _, rest = text.strip().partition("+")
    told, _, data = rest.partition("+")
    raw = decoded(data)
    if not _NAME.fullmatch(name) or len(raw) != 33 or raw[0] not in (ED25519, COSIGNATURE):
        raise UsageError(
            f"{text.strip()[:80]!r} is no key that verifies; give NAME+ID+DATA, as taut audit proof --key prints it"
        )
    key = Key(name, raw[0], raw[1:])
    if key.id.hex() != told:
        raise UsageError(f"{text.strip()[:80]!r}: its id should be {key.id.hex()}; copy the whole key again")
    return key


def public_key(name: str, private: Ed25519PrivateKey) -> Key:
    """What verifies the notes that ``private`` signs under a name."""
    return Key(name, ED25519, private.public_key().public_bytes_raw())


def signed(text: str, name: str, private: Ed25519PrivateKey) -> str:
    """A text with the signature line of one key."""
    key = public_key(name, private)
    return f"{text}\n{signature_line(key, private.sign(text.encode()))}"


def signature_line(key: Key, signature: bytes) -> str:
    """One line below a note."""
    return f"{DASH} {key.name} {b64encode(key.id + signature).decode()}\n"


def parted(note: str) -> tuple[str, list[tuple[str, bytes, bytes]]]:
    """The text of a note, and (name, id, signature) of its lines."""
    head, blank, tail = note.rpartition("\n\n")
    if not blank or not tail.endswith("\n") or len(note) > MOST_CHARACTERS or _CONTROL.search(note):
        raise BadNote("not a signed note: no blank line before the signatures, or control characters")
    lines = tail[:-1].split("\n")
    if len(lines) > MOST_SIGNATURES:
        raise BadNote(f"a note with {len(lines)} signatures; {MOST_SIGNATURES} are read")
    return f"{head}\n", [_signature(line) for line in lines]


_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


def _signature(line: str) -> tuple[str, bytes, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, data = rest.partition(" ")
    raw = decoded(data)
    if dash != DASH or not _NAME.fullmatch(name) or len(raw) < 5:
        raise BadNote(f"not a signature line: {line[:60]!r}")
    return name, raw[:4], raw[4:]


def is_signed_by(note: str, key: Key) -> bool:
    """Whether a key signed a note, once. Lines of other keys do not count; a wrong line of this one spoils the note."""
    text, lines = parted(note)
    own = [signature for name, id_, signature in lines if (name, id_) == (key.name, key.id)]
    return len(own) == 1 and key.verifies(text, own[0])


def decoded(text: str) -> bytes:
    """Standard base64 in its only spelling; nothing where it is none."""
    try:
        raw = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if b64encode(raw).decode() == text else b""
