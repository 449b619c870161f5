"""Protobuf bytes → arrays, without a schema: frames, the fields of many messages at once, packed numbers.

Nothing is trusted: a length beyond its message, a number of more than ten bytes, a group (nobody writes them any more)
or field 0 ends the reading with the byte at which it stands, and memory is bounded by the slice that is read at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.jit import kernel

# The bytes of a file, signed.
Octets: TypeAlias = NDArray[np.int8]
# Wire types; the others are groups.
VARINT, FIXED64, SPAN, FIXED32 = 0, 1, 2, 5
# More messages in one file than an execution trace of one rank holds.
MESSAGES = 10_000_000
MESSAGE_BYTES = 16 << 20
SLICE_BYTES = 8 << 20
REMEDY = "copy the file again, or leave it out"


@dataclass
class Fields:
    """Fields of many messages, one row each, in the order of the bytes."""

    owner: Ints
    """Which of the messages it belongs to."""
    number: Ints
    wire: Ints
    value: Ints
    """The number, as 64 bits; of a span, the byte at which it begins."""
    length: Ints
    """Bytes of a span; 0 for a number."""

    def take(self, rows: Ints | Mask) -> Fields:
        """The chosen rows."""
        return Fields(self.owner[rows], self.number[rows], self.wire[rows], self.value[rows], self.length[rows])

    def spans(self, number: int) -> Fields:
        """The rows of one field that hold bytes."""
        return self.take((self.number == number) & (self.wire == SPAN))


@kernel()
def varint(data: Octets, at: int, end: int) -> tuple[int, int]:
    """(the number at a byte, the byte after it); the latter is -1 where there is no number. Bit 63 is the sign."""
    # Seven bits a byte, the lowest first; the tenth byte has one bit left to give, the sign.
    value = 0
    for place in range(9):
        if at >= end:
            return 0, -1
        byte = data[at] & 255
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at
    if at >= end or data[at] & 254:
        return 0, -1
    if data[at] & 1:
        value = value - 4611686018427387904 - 4611686018427387904
    return value, at + 1


@kernel()
def next_field(data: Octets, at: int, end: int) -> tuple[int, int, int, int]:
    """(tag, value, size, byte after it) of the field at a byte; the last is -1 where there is none.

    The value is a number, or where so many bytes begin.
    """
    tag, at = varint(data, at, end)
    kind = tag & 7
    if at < 0 or tag < 8 or tag > 4294967295 or kind == 3 or kind == 4 or kind > 5:
        return 0, 0, 0, -1
    if kind == 0:
        value, at = varint(data, at, end)
        return tag, value, 0, at
    size = 8 if kind == 1 else 4
    if kind == 2:
        size, at = varint(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return 0, 0, 0, -1
    if kind == 2:
        return tag, at, size, at + size
    value = data[at + size - 1]
    for place in range(size - 2, -1, -1):
        value = value * 256 + (data[at + place] & 255)
    return tag, value, 0, at + size


@kernel(lists=True)
def frames(data: Octets, most: int) -> tuple[Ints, Ints, int]:
    """(begin, end, bad byte or -1) of messages that stand behind their lengths, at most so many; empty ones left out."""
    begin, finish = np.empty(0, np.int64), np.empty(0, np.int64)
    end, count = len(data), 0
    # The first turn counts, the second fills: kernels have no lists that grow.
    for turn in range(2):
        at, count = 0, 0
        while at < end and count < most:
            length, after = varint(data, at, end)
            if after < 0 or length < 0 or length > end - after:
                return begin, finish, at
            if turn and length:
                begin[count] = after
                finish[count] = after + length
            count += 1 if length else 0
            at = after + length
        if turn == 0:
            begin, finish = np.empty(count, np.int64), np.empty(count, np.int64)
    return begin, finish, -1


@kernel(lists=True)
def fields(data: Octets, begin: Ints, finish: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints, int]:
    """(owner, number, wire, value, length, bad byte or -1) of the fields of messages."""
    owner, number, wire = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    value, length = np.empty(0, np.int64), np.empty(0, np.int64)
    for turn in range(2):
        count = 0
        for message in range(len(begin)):
            at, end = begin[message], finish[message]
            while at < end:
                here = at
                tag, found, size, at = next_field(data, at, end)
                if at < 0:
                    return owner, number, wire, value, length, here
                if turn:
                    owner[count] = message
                    number[count] = tag >> 3
                    wire[count] = tag & 7
                    value[count] = found
                    length[count] = size
                count += 1
        if turn == 0:
            owner, number, wire = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
            value, length = np.empty(count, np.int64), np.empty(count, np.int64)
    return owner, number, wire, value, length, -1


@kernel(lists=True)
def numbers(data: Octets, begin: Ints, finish: Ints) -> tuple[Ints, Ints, int]:
    """(span, number, bad byte or -1) of spans that hold numbers one after another."""
    span, value = np.empty(0, np.int64), np.empty(0, np.int64)
    for turn in range(2):
        count = 0
        for i in range(len(begin)):
            at = begin[i]
            while at < finish[i]:
                here = at
                found, at = varint(data, at, finish[i])
                if at < 0:
                    return span, value, here
                if turn:
                    span[count] = i
                    value[count] = found
                count += 1
        if turn == 0:
            span, value = np.empty(count, np.int64), np.empty(count, np.int64)
    return span, value, -1


@kernel(lists=True)
def digests(data: Octets, begin: Ints, length: Ints) -> Ints:
    """A number for the bytes of each span, the same for the same bytes."""
    out = np.empty(len(begin), np.int64)
    for i in range(len(begin)):
        digest = length[i]
        for at in range(begin[i], begin[i] + length[i]):
            digest = (digest & 36028797018963967) * 131 + (data[at] & 255)  # 55 bits × 131 fit 63 bits
        out[i] = digest
    return out


def messages(data: bytes | bytearray, label: str) -> tuple[Ints, Ints]:
    """Where the messages of a file lie that stand behind their lengths."""
    begin, finish, bad = frames(np.frombuffer(data, dtype=np.int8), MESSAGES + 1)
    if bad >= 0:
        raise InputRefused(label, f"no message at byte {bad:,} of {len(data):,}: broken off or damaged", REMEDY)
    if len(begin) > MESSAGES:
        raise TooLarge(label, f"more than {MESSAGES:,} messages", "trace fewer steps")
    if (finish - begin > MESSAGE_BYTES).any():
        at = int(begin[np.argmax(finish - begin > MESSAGE_BYTES)])
        raise TooLarge(label, f"a message of more than {MESSAGE_BYTES >> 20} MiB at byte {at:,}")
    return begin, finish


def slices(begin: Ints, finish: Ints) -> Iterator[slice]:
    """The messages in runs of about SLICE_BYTES."""
    at = 0
    while at < len(begin):
        to = max(int(np.searchsorted(finish, begin[at] + SLICE_BYTES, "right")), at + 1)
        yield slice(at, to)
        at = to


def fields_of(data: bytes | bytearray, begin: Ints, finish: Ints, label: str) -> Fields:
    """The fields of these messages."""
    *columns, bad = fields(np.frombuffer(data, dtype=np.int8), begin, finish)
    if bad >= 0:
        raise InputRefused(label, f"no field at byte {bad:,}: damaged, or no Chakra trace", REMEDY)
    return Fields(*columns)


def numbers_of(data: bytes | bytearray, packed: Fields, label: str) -> tuple[Ints, Ints]:
    """(owner, number) of the numbers packed into these spans."""
    span, value, bad = numbers(np.frombuffer(data, dtype=np.int8), packed.value, packed.value + packed.length)
    if bad >= 0:
        raise InputRefused(label, f"no number at byte {bad:,}: damaged, or no Chakra trace", REMEDY)
    return packed.owner[span], value


def words(data: bytes | bytearray, spans: Fields) -> tuple[Ints, list[bytes]]:
    """(index into the words, the distinct words) of spans, most of which say the same as others."""
    digest = digests(np.frombuffer(data, dtype=np.int8), spans.value, spans.length)
    _, first, index = np.unique(digest, return_index=True, return_inverse=True)
    begin, length = spans.value[first].tolist(), spans.length[first].tolist()
    return index.ravel(), [bytes(data[at : at + size]) for at, size in zip(begin, length, strict=True)]
