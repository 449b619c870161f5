"""Records: what is written about a verb, a decision, an outcome, and how free text in it can be taken out again.

A record is canonical JSON (RFC 8785), and its bytes are a leaf of the tree. Names and free text are not in it: it holds a
hash of each with 32 random bytes of salt. Text and salt are kept beside it and can be removed; nothing can be guessed from
the hash that stays, and no proof changes.
"""

from __future__ import annotations

import math
import os
import re
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from taut.core.array_types import Json
else:
    Json = Any  # not from there at run time: that room's module brings numpy, and a record must be quick

FORMAT = 1
"""Of records; later versions of taut read earlier ones."""
BEGIN, VERB, DECISION, OUTCOME, REDACTION, PRUNE = "begin", "verb", "decision", "outcome", "redaction", "prune"
SALTED = "salted"
"""The key of a hash that stands for a text."""
SALT_BYTES = 32
EXACT = (1 << 53) - 1
"""Whole numbers beyond this have no exact form in canonical JSON: they are written as text."""


class Text(msgspec.Struct, frozen=True):
    """A name or free text of a record: only its salted hash goes into the tree."""

    text: str


Detail: TypeAlias = "bool | int | float | str | Decimal | Text | Sequence[Detail] | Mapping[str, Detail] | None"


class Kept(msgspec.Struct, frozen=True):
    """A text beside its record."""

    salt: str
    text: str

    @property
    def hash(self) -> str:
        """What the record holds of it."""
        return sha256(bytes.fromhex(self.salt) + self.text.encode()).hexdigest()


Texts: TypeAlias = dict[str, Kept]
"""Texts by their place in the record: the keys that lead there, each after a stroke."""


class Record(msgspec.Struct, frozen=True):
    """One entry of the audit trail, as its canonical JSON tells it."""

    kind: str
    at: str
    """When, by the clock of the machine that wrote it; the order of records is that of the log, whatever clocks say."""
    index: int
    before: str
    """The root of all records before this one: a record that is replaced no longer fits those that follow."""
    version: str
    details: dict[str, Json]
    format: int = FORMAT
    author: str | None = None
    """The mark of its author: a keyed hash of all the rest, which the author alone can verify."""


def made(
    kind: str,
    details: Mapping[str, Detail],
    *,
    index: int,
    before: str,
    version: str,
    at_ns: int,
    author: bytes | None = None,
) -> tuple[bytes, Texts]:
    """The bytes of a new record, marked with the key of its author, and the texts that it commits to."""
    aside = _Aside()
    body: dict[str, Json] = {
        "kind": kind, "at": stamp(at_ns), "index": index, "before": before, "version": version, "format": FORMAT,
        "details": _all_committed(details, "", aside),
    }  # fmt: skip
    plain = canonical(body, aside.fractions)
    return plain if author is None else marked(plain, author), aside.texts


MARK_BYTES = 16
"""Of a mark: nobody guesses one of 128 bits."""
BEGINS = b'{"at":"'
"""How every record begins, in canonical JSON; the mark of its author comes behind that time."""
_MARK = re.compile(rb'(\{"at":"[^"]*")(,"author":"[^"]*")?')


def marked(plain: bytes, key: bytes) -> bytes:
    """A record with the mark of its author, in the one place where canonical JSON has it."""
    at = plain.index(b'"', len(BEGINS)) + 1
    mark = b2a_base64(blake2b(plain, digest_size=MARK_BYTES, key=key).digest(), newline=False)
    return b'%b,"author":"%b"%b' % (plain[:at], mark, plain[at:])


def unmarked(body: bytes) -> tuple[bytes, bytes]:
    """A record without the mark of its author, and the mark; empty where there is none."""
    found = _MARK.match(body)
    if found is None or found[2] is None:
        return body, b""
    return found[1] + body[found.end() :], found[2]


class _Aside:
    """What is put aside while a record is made."""

    def __init__(self) -> None:
        self.texts: Texts = {}
        self.fractions = False
        """Whether there are numbers that are not whole."""


_SORTED = msgspec.json.Encoder(order="sorted")


def canonical(body: Json, fractions: bool = True) -> bytes:
    """Canonical JSON. msgspec writes the same bytes in a tenth of the time, but for fractions, which RFC 8785 writes in
    another form, and for the order of keys, which may differ beyond ASCII."""
    data = b"" if fractions else _SORTED.encode(body)
    if data and data.isascii():
        return data
    import rfc8785

    return rfc8785.dumps(body)


def stamp(at_ns: int) -> str:
    """Nanoseconds since 1970 as a time of the calendar, UTC; clocks beyond it are taken for its last day."""
    try:
        return f"{datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec='microseconds')[:26]}Z"
    except (OverflowError, ValueError, OSError):
        return "9999-12-31T23:59:59.999999Z" if at_ns > 0 else "0001-01-01T00:00:00.000000Z"


def _committed(value: Detail, place: str, aside: _Aside) -> Json:
    """A value with hashes for its texts, which are put aside, and numbers that canonical JSON can hold."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Text):
        salt, text = os.urandom(SALT_BYTES), value.text.encode("utf-8", "replace")
        aside.texts[place] = Kept(salt.hex(), text.decode())
        return {SALTED: sha256(salt + text).hexdigest()}
    if isinstance(value, dict):
        return _all_committed(value, place, aside)
    if isinstance(value, (int, float, Decimal)):
        aside.fractions |= isinstance(value, float)
        return _number(value)
    if type(value) is not list and isinstance(value, Mapping):  # asking an abstract class takes long: lists are not asked
        return _all_committed(value, place, aside)
    return [_committed(each, f"{place}/{k}", aside) for k, each in enumerate(value)]


def _all_committed(values: Mapping[str, Detail], place: str, aside: _Aside) -> dict[str, Json]:
    return {key: each if isinstance(each, str) else _committed(each, f"{place}/{key}", aside) for key, each in values.items()}


def _number(value: float | Decimal) -> Json:
    if isinstance(value, Decimal) or (isinstance(value, int) and abs(value) > EXACT) or not math.isfinite(value):
        return str(value)
    return value


def hashes(details: Json, place: str = "") -> Iterator[tuple[str, str]]:
    """(place, hash) of every text that a record commits to."""
    if isinstance(details, dict):
        found = details.get(SALTED)
        if len(details) == 1 and isinstance(found, str):
            yield place, found
            return
        for key, each in details.items():
            yield from hashes(each, f"{place}/{key}")
    elif isinstance(details, list):
        for k, each in enumerate(details):
            yield from hashes(each, f"{place}/{k}")


def revealed(details: Json, texts: Texts, place: str = "") -> Json:
    """A record's details with its texts in their places; null where one was taken out."""
    if isinstance(details, dict):
        if len(details) == 1 and SALTED in details:
            return texts[place].text if place in texts else None
        return {key: revealed(each, texts, f"{place}/{key}") for key, each in details.items()}
    if isinstance(details, list):
        return [revealed(each, texts, f"{place}/{k}") for k, each in enumerate(details)]
    return details


def decoded_record(body: bytes) -> Record:
    """The record that bytes of the log stand for; ValueError where they are none."""
    try:
        return msgspec.json.decode(body, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is no record ({error})") from None


def _is_hex(salt: str) -> bool:
    return len(salt) == 2 * SALT_BYTES and not salt.strip("0123456789abcdef")


def decoded_texts(data: bytes | None) -> Texts:
    """The texts beside a record; ValueError where they cannot be read."""
    if data is None:
        return {}
    try:
        texts = msgspec.json.decode(data, type=Texts)
        salts = {kept.salt for kept in texts.values()}
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"has texts that cannot be read ({error})") from None
    # One spelling only: hexadecimal letters of the other case, or blanks, would be a change that no hash shows.
    if msgspec.json.encode(texts) != data or not all(map(_is_hex, salts)):
        raise ValueError("has texts that are not spelled as they were written")
    return texts
