"""The footer and the page headers of a Parquet file: what its columns inflate to, known before anything is inflated.

A decoder believes the headers of pages and the rows of row groups, and allocates what they say; sizes in the footer are not
checked by it. Both are structs of Thrift's compact protocol. Arrow shows a footer, too, but a damaged one ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    Value: TypeAlias = bool | int | list["Value"] | dict[int, "Value"] | None
    """A value of Thrift; None for texts and fractions, which are not used."""

# Structs inside structs; a footer has six.
DEPTH = 12
# Field of a footer.
ROW_GROUPS = 4
# Fields of a row group.
COLUMNS, ROWS = 1, 3
# Field of a column chunk that describes it, and fields of that.
META, VALUES, FIRST_DATA, FIRST_DICTIONARY = 3, 5, 9, 11
# Fields of a page's header.
INFLATED, STORED = 2, 3
# Fields that say more of a page of data: its values, and their encoding.
DATA, DATA_V2 = 5, 8
# An encoding in which every text may repeat the one before.
DELTA_BYTE_ARRAY = 7


class Damaged(Exception):
    """A header that cannot be read."""


class _Reader:
    """Values of the compact protocol, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        if not 0 <= self.at < len(self.data):
            raise Damaged
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise Damaged

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def value(self, kind: int, depth: int) -> Value:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.number()
        if kind == 7:
            self.at += 8
        elif kind == 8:
            length = self.varint()  # first: it moves on as well
            self.at += length
        elif kind in (9, 10):
            return self.list(depth + 1)
        elif kind == 12:
            return self.struct(depth + 1)
        else:  # maps: there are none
            raise Damaged
        return None

    def list(self, depth: int) -> list[Value]:
        """Values of one kind."""
        head = self.byte()
        size, kind = head >> 4, head & 15
        size = self.varint() if size == 15 else size
        if depth > DEPTH or size > len(self.data) - self.at:
            raise Damaged
        return [self.byte() if kind in (1, 2) else self.value(kind, depth) for _ in range(size)]

    def struct(self, depth: int = 0) -> dict[int, Value]:
        """Fields by their number."""
        if depth > DEPTH:
            raise Damaged
        fields: dict[int, Value] = {}
        field = 0
        while (head := self.byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self.number()
            fields[field] = self.value(head & 15, depth)
        return fields


class Chunk(NamedTuple):
    """One column of one row group: where its pages begin, how many values they hold, and how many rows there are."""

    begin: int
    values: int
    rows: int


def chunks(data: bytes) -> list[list[Chunk]]:
    """The column chunks of every row group, as the footer lists them."""
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Reader(bytes(data[max(len(data) - 8 - size, 0) : -8]), 0).struct()
    groups = _list(footer.get(ROW_GROUPS, []))
    return [[_chunk(one, _struct(group).get(ROWS)) for one in _list(_struct(group).get(COLUMNS))] for group in groups]


def _chunk(column: Value, rows: Value) -> Chunk:
    about = _struct(_struct(column).get(META, {}))
    data, words = _count(about.get(FIRST_DATA)), _count(about.get(FIRST_DICTIONARY, 0))
    return Chunk(words if 0 < words < data else data, _count(about.get(VALUES)), _count(rows))


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise Damaged
    return value


def _struct(value: Value) -> dict[int, Value]:
    if not isinstance(value, dict):
        raise Damaged
    return value


def _count(value: Value) -> int:
    if not isinstance(value, int) or value < 0:
        raise Damaged
    return value


def pages(data: bytes, chunk: Chunk) -> Iterator[tuple[int, int, bool]]:
    """(inflated bytes, values, whether texts repeat the one before) of every page of a column chunk."""
    reader, left = _Reader(data, chunk.begin), chunk.values
    while left > 0:
        header = reader.struct()
        about = _struct(header.get(DATA, header.get(DATA_V2, {})))
        values = _count(about.get(1, 0))
        yield _count(header.get(INFLATED)), values, about.get(2 if DATA in header else 4) == DELTA_BYTE_ARRAY
        reader.at += _count(header.get(STORED))
        left -= values
