"""Kineto JSON → events: the header as found, the events slice by slice, their arguments by kind.

The event list is decoded in slices of about a megabyte while the bytes flow, so that a large file is held neither as
bytes nor as Python objects. A slice is cut where it looks like the seam of two events; a wrong cut cannot decode, and then
the brackets are counted.
"""

# Annotations are no texts here, as they are elsewhere: the decoders would evaluate each of them in every process.
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from operator import attrgetter
from typing import TypeVar, cast

import msgspec

from taut.core.array_types import Json
from taut.read.json_values import Int64, without_nan

SLICE_BYTES = 1 << 20
Place = int | str | float | None
# Between texts that are looked up together: no JSON holds it.
SEPARATOR = b"\0"
_NO_ARGS = msgspec.Raw(b"{}")
NOTHING = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """One trace event, as far as taut uses it."""

    name: str | None = None
    ph: str | None = None
    cat: str | None = None
    ts: float | None = None
    dur: float | None = None
    pid: Place = None
    tid: Place = None
    args: msgspec.Raw = _NO_ARGS


class DeviceArgs(msgspec.Struct, gc=False):
    """Where a device event ran, and which call launched it."""

    correlation: Int64 = -1
    stream: Place = None
    device: Place = None
    bytes: Int64 = -1
    grid: msgspec.Raw = _NO_ARGS
    block: msgspec.Raw = _NO_ARGS


class CopyArgs(msgspec.Struct, gc=False):
    """What a copy records beside its name: its direction, and its bytes in the words of other profilers."""

    kind: Json = None
    direction: Json = None
    size: Int64 = -1


class RuntimeArgs(msgspec.Struct, gc=False):
    """What ties a runtime call to the device event it launched."""

    correlation: Int64 = -1


class DimsArgs(msgspec.Struct, gc=False):
    """The shapes of an op's inputs."""

    dims: list[Json] | None = msgspec.field(default=None, name="Input Dims")


class ShapeArgs(msgspec.Struct, gc=False):
    """The shapes, types and plain values of an operator's arguments, undecoded: most operators share them with others."""

    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    old_dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


class CommArgs(msgspec.Struct, gc=False):
    """Everything an event may record about the collective it belongs to."""

    external: Json = msgspec.field(default=None, name="External id")
    collective: Json = msgspec.field(default=None, name="Collective name")
    group: Json = msgspec.field(default=None, name="Process Group Name")
    group_id: Json = msgspec.field(default=None, name="Process Group ID")
    ranks: Json = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Json = msgspec.field(default=None, name="Group size")
    rank_start: Json = msgspec.field(default=None, name="Global rank start")
    rank_stride: Json = msgspec.field(default=None, name="Global rank stride")
    in_elements: Json = msgspec.field(default=None, name="In msg nelems")
    out_elements: Json = msgspec.field(default=None, name="Out msg nelems")
    dtype: Json = None
    Seq: Json = None
    seq: Json = None
    source: Json = msgspec.field(default=None, name="Src Rank")
    target: Json = msgspec.field(default=None, name="Dst Rank")
    dims: Json = msgspec.field(default=None, name="Input Dims")
    types: Json = msgspec.field(default=None, name="Input type")
    concrete: Json = msgspec.field(default=None, name="Concrete Inputs")


class Header(msgspec.Struct):
    """What a trace has beside the event list."""

    distributedInfo: Json = None
    deviceProperties: Json = None
    host_name: Json = None
    baseTimeNanoseconds: Json = None


class _Whole(Header):
    traceEvents: list[Event] = []


class _WholeRaw(Header):
    traceEvents: list[msgspec.Raw] = []


_STRICT = msgspec.json.Decoder(list[Event])
_STRICT_WHOLE = msgspec.json.Decoder(_Whole)
_EVENT = msgspec.json.Decoder(Event)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BARE_LIST = re.compile(rb"\s*\[")
_LIST_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT = re.compile(rb"\}\s*,\s*\{")
_NEXT = re.compile(rb"[, \t\r\n]*")

# The header where it was read, events, and how many elements of the list were no events.
Batch = tuple[Header | None, list[Event], int]

# The most that may come before the event list, behind it, or in one event of a file that is not held whole.
EVENT_BYTES = 64 << 20
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[][{},]', re.DOTALL)


Piece = bytes | bytearray | memoryview


class Buffer:
    """A window on the bytes of a file: read at its end, passed at its front, and freed there when more is read.

    The window reaches from ``at`` to ``stop``, so that a file that is held whole need not be copied.
    """

    def __init__(self, chunks: Iterable[Piece]) -> None:
        self._chunks = iter(chunks)
        first = next(self._chunks, b"")
        self.bytes: bytearray | memoryview = bytearray(first) if isinstance(first, bytes) else first
        self.at = self.stop = 0
        self._discarded, self._exhausted = 0, False

    def __len__(self) -> int:
        return self.stop - self.at

    @property
    def ended(self) -> bool:
        """Whether the file has nothing behind the window."""
        return self._exhausted and self.stop == len(self.bytes)

    @property
    def passed(self) -> int:
        """Bytes of the file before the window."""
        return self._discarded + self.at

    def fill(self, size: int) -> None:
        """Widen the window to this size, or to the end of the file."""
        while len(self.bytes) - self.at < size and not self._exhausted:
            chunk = next(self._chunks, None)
            self._exhausted = chunk is None
            if chunk is not None:
                if isinstance(self.bytes, bytearray):
                    del self.bytes[: self.at]
                else:  # memory that cannot grow
                    self.bytes = bytearray(self.bytes[self.at :])
                self._discarded, self.at, self.stop = self.passed, 0, len(self)
                self.bytes += chunk
        self.stop = max(self.stop, min(self.at + size, len(self.bytes)))

    def grow(self) -> None:
        """Widen the window: no boundary between events was found in it."""
        self.fill(2 * max(len(self), SLICE_BYTES))
        if len(self) > EVENT_BYTES and not self.ended:
            raise OverflowError(f"nothing that could be one event after byte {self.passed:,}")


def slices(text: Buffer) -> Iterator[Batch]:
    """Events slice by slice; the last slice carries the rest of the document, and with it the header."""
    head = _head(text)
    while head:
        text.fill(2 * SLICE_BYTES + 1)
        if len(text) <= 2 * SLICE_BYTES:
            break
        cut = _CUT.search(text.bytes, text.at + SLICE_BYTES, text.stop)
        if cut is None:
            if text.ended:
                break
            text.grow()
            continue
        try:
            batch = _list(_bracketed(text, cut.start() + 1))
        except (msgspec.DecodeError, UnicodeDecodeError):
            stop, last = _seam(text)
            if not stop and not last:
                if text.ended:
                    break
                text.grow()
                continue
            yield None, *_repaired(_bracketed(text, stop))
            text.at = stop
            if last:
                break
            text.at = _NEXT.match(text.bytes, text.at).end()  # type: ignore[union-attr]  # matches nothing at the least
        else:
            yield None, *batch
            text.at = cut.end() - 1
    while not text.ended:
        text.grow()
    # A short file was not cut: it is decoded where it lies.
    uncut = text.passed == text.at == len(head)
    yield from whole(text.bytes[: text.stop] if uncut else head + text.bytes[text.at : text.stop])


def _bracketed(text: Buffer, stop: int) -> bytes:
    """The text up to a byte as a list of its own, in one copy."""
    with memoryview(text.bytes) as view, view[text.at : stop] as front:
        return b"".join((b"[", front, b"]"))


def _head(text: Buffer) -> bytes:
    """What stands before the first event, passed in the text; empty where there is no list."""
    while True:
        text.fill(SLICE_BYTES)
        first = _BARE_LIST.match(text.bytes, 0, text.stop) or _LIST_START.search(text.bytes, 0, text.stop)
        if first or text.ended:
            break
        text.grow()
    text.at = first.end() if first else 0
    return bytes(text.bytes[: text.at])


def _seam(text: Buffer) -> tuple[int, bool]:
    """End of the last whole element of the list that the text begins in (0 for none), and whether the list ends there."""
    # Strings are one token, so that brackets inside them do not count.
    depth = stop = 0
    for token in _TOKEN.finditer(text.bytes, text.at, text.stop):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
            if depth < 0:
                return token.start(), True
            if depth == 0:
                stop = token.end()
        elif mark == b"," and depth == 0:
            stop = token.start()
    return stop, False


def _repaired(data: bytes | bytearray) -> tuple[list[Event], int]:
    """Events of a slice, with NaN and bytes that are no text taken out where they are what is wrong."""
    try:
        return _list(data)
    except UnicodeDecodeError:
        return _repaired(bytes(data).decode("utf-8", "replace").encode())
    except msgspec.DecodeError:
        without = without_nan(data)
        if without is None:
            raise
        return _list(without)


def whole(data: Piece) -> Iterator[Batch]:
    """The document in one piece."""
    if _BARE_LIST.match(data):
        yield Header(), *_list(data)
        return
    try:
        document = _STRICT_WHOLE.decode(data)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(data, type=_WholeRaw)
        yield raw, *_lenient(raw.traceEvents)
    else:
        yield document, document.traceEvents, 0


def _list(data: Piece) -> tuple[list[Event], int]:
    try:
        return _STRICT.decode(data), 0
    except msgspec.ValidationError:
        return _lenient(msgspec.json.decode(data, type=list[msgspec.Raw]))


def _lenient(raws: list[msgspec.Raw]) -> tuple[list[Event], int]:
    """Event by event, field by field: a wrong type costs the field, not the file."""
    events = [event for event in map(_one, raws) if event is not None]
    return events, len(raws) - len(events)


def _one(raw: msgspec.Raw) -> Event | None:
    try:
        return _EVENT.decode(raw)
    except msgspec.ValidationError:
        pass
    try:
        fields = _FIELDS.decode(raw)
    except msgspec.ValidationError:
        return None
    event = Event(args=fields.get("args", _NO_ARGS))
    for name, kind in _TYPES.items():
        if name in fields:
            with suppress(msgspec.ValidationError, UnicodeDecodeError):
                setattr(event, name, msgspec.json.decode(fields[name], type=kind, strict=False))
    return event


_TYPES = {"name": str, "ph": str, "cat": str, "ts": float, "dur": float, "pid": Place, "tid": Place}


_ARGS = attrgetter("args")
_Args = TypeVar("_Args", bound=msgspec.Struct)


def args_of(events: Iterable[Event], kind: type[_Args]) -> list[_Args]:
    """The arguments of many events in one decode; those of the wrong type become empty."""
    raws = list(map(_ARGS, events))
    if not raws:
        return []
    parts: list[bytes] = [*raws]
    # The brackets go into the ends, so that all is copied once.
    parts[0] = b"[" + parts[0]
    parts[-1] = b"%b]" % parts[-1]
    try:
        return cast("list[_Args]", _decoder(kind).decode(b",".join(parts)))
    except (msgspec.ValidationError, UnicodeDecodeError):
        return [_one_args(raw, kind) for raw in raws]


@cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[list[msgspec.Struct]]:
    """What decodes a list of them: to make it takes longer than a short list does."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _one_args(raw: msgspec.Raw, kind: type[_Args]) -> _Args:
    """Field by field where it must be: a wrong type costs the field, not the others."""
    with suppress(msgspec.ValidationError, UnicodeDecodeError):
        return msgspec.json.decode(raw, type=kind, strict=False)
    found = kind()
    with suppress(msgspec.ValidationError, UnicodeDecodeError):
        fields = _FIELDS.decode(raw)
        for one in msgspec.structs.fields(kind):
            if one.encode_name in fields:
                with suppress(msgspec.ValidationError, UnicodeDecodeError):
                    setattr(found, one.name, msgspec.json.decode(fields[one.encode_name], type=one.type, strict=False))
    return found
