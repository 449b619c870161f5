"""Types for JSON of which many fields are known and few are used: every field that an object could have costs time.

Samples of a file show its keys. A type of these refuses any other key, so that one which the samples missed is noticed, and
the file is decoded again with all the fields that are known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from taut.core.array_types import Json

SAMPLES, SAMPLE_BYTES = 16, 4 << 10
_FIRST = re.compile(rb'\[\s*\{\s*("[^"\\\x00-\x1f]{1,60}")\s*:')
_KEY = re.compile(rb'"([^"\\\x00-\x1f]{1,60})"\s*:')
# Bytes of lines that are decoded at once: what they become should stay in the processor's cache.
SLAB = 256 << 10
# The same of a list: fewer and larger, because what is made of them are short arrays.
LIST_SLAB = 1 << 20
T = TypeVar("T")
Known = Mapping[str, tuple[Any, Any]]
"""Key → type and default."""


class Keys:
    """The keys that objects have, as far as types should have fields for them."""

    def __init__(self, keys: Iterable[str] | None) -> None:
        self._keys = None if keys is None else sorted(keys)

    def struct(self, name: str, known: Known, *more: tuple[str, type, Any], gc: bool = True) -> type[msgspec.Struct]:
        """A type with the known fields among these keys; others are refused. Without keys: all known, others passed over."""
        used = [key for key in known if self._keys is None or key in self._keys]
        fields = [(key, known[key][0], msgspec.field(default=known[key][1], name=key)) for key in used]
        own = {*known, *(field[0] for field in more)}
        for i, key in enumerate(self._keys or ()):
            if key not in own:
                fields.append((f"_{i}", msgspec.Raw, msgspec.field(default=None, name=key)))
        return msgspec.defstruct(name, [*fields, *more], gc=gc, forbid_unknown_fields=self._keys is not None)


def sampled(raw: bytes) -> set[str]:
    """The keys that samples from all over the bytes show, and perhaps some that are none."""
    stride = max(len(raw) // SAMPLES, SAMPLE_BYTES)
    pieces = (raw[at : at + SAMPLE_BYTES] for at in range(0, len(raw), stride))
    return {key.decode("utf-8", "replace") for key in set(chain.from_iterable(map(_KEY.findall, pieces)))}


def decoded(raw: bytes, decode: Callable[[Keys], T]) -> T:
    """What a function decodes with types of the keys that samples show, else with all."""
    try:
        return decode(Keys(sampled(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError):  # the latter names an unknown key, or tries to
        return decode(Keys(None))


def line_slabs(raw: bytes, decoder: msgspec.json.Decoder[T], at: int = 0, last: int | None = None) -> Iterator[list[T]]:
    """What the lines hold, some lines at a time; from one place to another, where lines begin."""
    last = len(raw) if last is None else last
    while at < last:
        end = raw.rfind(b"\n", at, min(at + SLAB, last)) + 1 or raw.find(b"\n", at, last) + 1 or last
        yield decoder.decode_lines(raw[at:end])
        at = end


def list_slabs(raw: bytes, decoder: msgspec.json.Decoder[list[T]]) -> Iterator[list[T]]:
    """What a list of objects holds, some at a time: it is cut where an object begins with the key that the first begins with.

    A cut inside of an object leaves brackets open, and cannot be decoded.
    """
    first = _FIRST.match(raw)
    seam = re.compile(rb"\}\s*,\s*(?=\{\s*" + re.escape(first[1]) + rb"\s*:)") if first else None
    at, view = 1, memoryview(raw)
    while seam and (found := seam.search(raw, at + LIST_SLAB)):
        yield decoder.decode(b"".join((b"[", view[at : found.start() + 1], b"]")))
        at = found.end()
    yield decoder.decode(b"".join((b"[", view[at:])))


def under(value: Json, *keys: str) -> Json:
    """What lies under these keys, one inside the other; None if something on the way is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def json_object(line: str) -> dict[str, Json] | None:
    """One JSON line as a mapping; None if it is none. Python's own decoder, because logs hold NaN."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
