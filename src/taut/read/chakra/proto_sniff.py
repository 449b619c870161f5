"""Whether bytes are a Chakra trace in protobuf: it has no magic word, so the shape of its first messages decides."""

from __future__ import annotations

from collections.abc import Iterator

from taut.read.chakra.protobuf_bytes import FIXED32, FIXED64, MESSAGE_BYTES, SPAN, VARINT, varint

# Fields of a message that are looked at; more than a header or a node begins with.
_FIELDS = 64


def is_protobuf(head: bytes) -> bool:
    """A header and a node, each behind its length, or, as the oldest files have it, two nodes."""
    found = []
    for begin, end in _messages(head):
        fields = list(_fields(head, begin, min(end, len(head))))
        if not fields or fields[-1] is None:
            return False
        found.append(fields)
        if len(found) == 2:
            break
    if not found:
        return False
    first, *rest = found
    titled = all(f and f[0] in (1, 2) and f[1] == SPAN for f in first)
    if titled and not rest:
        return _is_header(head, first)
    return (_is_header(head, first) if titled else _is_node(head, first)) and all(_is_node(head, fields) for fields in rest)


# Number, wire type, value or begin of the span, its length.
Field = tuple[int, int, int, int]


def _messages(head: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(head):
        length, after = varint.plain(head, at, len(head))
        if after < 0 or not 0 <= length <= MESSAGE_BYTES:
            return
        if length:
            yield after, after + length
        elif at:
            return
        at = after + length


def _fields(head: bytes, at: int, end: int) -> Iterator[Field | None]:
    """The fields of a message as far as the head goes; None where it is no message."""
    for _ in range(_FIELDS):
        if at >= end:
            return
        tag, at = varint.plain(head, at, end)
        if at < 0:
            return
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= 32 or kind not in (VARINT, FIXED64, SPAN, FIXED32):
            yield None
            return
        value, after = varint.plain(head, at, end) if kind in (VARINT, SPAN) else (0, at)
        if after < 0:
            return
        if kind == SPAN:
            if not 0 <= value <= MESSAGE_BYTES:
                yield None
                return
            yield number, kind, after, value
            at = after + value
        else:
            yield number, kind, value, 0
            at = after + {FIXED64: 8, FIXED32: 4}.get(kind, 0)


def _is_node(head: bytes, fields: list[Field | None]) -> bool:
    """A number, a name and a type come first in a node, in this order."""
    known = {f[0]: f for f in reversed(fields) if f}
    name, kind, number = known.get(2), known.get(3), known.get(1)
    if name is None or name[1] != SPAN or (number is not None and number[1] != VARINT):
        return False
    if kind is not None and not (kind[1] == VARINT and 0 <= kind[2] <= 32):
        return False
    return (kind is not None or number is not None) and _printable(head[name[2] : name[2] + name[3]])


def _is_header(head: bytes, fields: list[Field | None]) -> bool:
    """A version, or attributes, each of which begins with its name."""
    for field in fields:
        if field is None:
            return False
        _, _, at, length = field
        span = head[at : at + length]
        attribute = len(span) > 2 and span[0] == 0x0A and span[1] < 128 and _printable(span[2 : 2 + span[1]])
        if not attribute and not (field[0] == 1 and _printable(span)):
            return False
    return True


def _printable(text: bytes) -> bool:
    """Text, which a cut may have taken the last bytes of."""
    return bool(text) and text[:256].decode("utf-8", "ignore").isprintable() and text[:200].isascii()
