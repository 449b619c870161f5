"""The page headers of a Parquet file: what its columns inflate to, told before anything is inflated.

A decoder believes the headers of pages and the rows of row groups, and allocates what they say; sizes in the footer bind
nobody. Headers are structs of Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taut.tables import NULL

DEPTH = 8
"""Structs inside structs; the headers of pages have two."""
INFLATED, STORED = 2, 3
"""Fields of a page's header."""
DATA, DATA_V2 = 5, 8
"""Fields that say more of a page of data: its values, and their encoding."""
DELTA_BYTE_ARRAY = 7
"""An encoding in which every text may repeat the one before."""


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

    def value(self, kind: int, depth: int) -> Any:
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
        elif kind == 12:
            return self.struct(depth + 1)
        else:  # lists, sets and maps: no header of a page has one
            raise Damaged
        return None

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Fields by their number."""
        if depth > DEPTH:
            raise Damaged
        fields: dict[int, Any] = {}
        field = 0
        while (head := self.byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self.number()
            fields[field] = self.value(head & 15, depth)
        return fields


def pages(data: bytes, column: Any) -> Iterator[tuple[int, int, bool]]:
    """(inflated bytes, values, whether texts repeat the one before) of every page of a column chunk."""
    start, first = column.data_page_offset, column.dictionary_page_offset
    reader = _Reader(data, first if first and 0 < first < start else start)
    left = column.num_values
    while left > 0:
        header = reader.struct()
        inflated, stored = header.get(INFLATED, NULL), header.get(STORED, NULL)
        about = header.get(DATA, header.get(DATA_V2, {}))
        values = about.get(1, 0) if isinstance(about, dict) else None
        if not all(isinstance(number, int) and number >= 0 for number in (inflated, stored, values)):
            raise Damaged
        yield inflated, values, about.get(2 if DATA in header else 4) == DELTA_BYTE_ARRAY
        reader.at += stored
        left -= values
