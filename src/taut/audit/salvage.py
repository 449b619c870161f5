"""Records out of a file that SQLite no longer opens: cut short, or with bits flipped in what holds its pages together.

Pages of a table end up in the file one by one, and each lists its own rows. So the rows are read page by page, without the
tree above them, and a row counts only if its hash fits its record. The layout is that of the SQLite file format: a leaf page
begins with 13, the number of its cells and their offsets; a cell is length, row id and the row, whose rest lies on a chain
of overflow pages if it is long.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from taut.audit.database import PAGE_BYTES
from taut.audit.log import Row
from taut.audit.merkle import HASH_BYTES, leaf_hash

LEAF_PAGE = 13
LONGEST_LOCAL = PAGE_BYTES - 35
LEAST_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
"""Bytes of a row that stay on its page: at most, and at least where the rest lies elsewhere."""
MOST_BYTES = 1 << 32
"""A log is smaller."""


def salvaged(path: Path) -> list[Row]:
    """Rows of ``records`` that a damaged file still holds, by index; of two with one index, one whose hash fits."""
    if path.stat().st_size > MOST_BYTES:
        return []
    data = path.read_bytes()
    found: dict[int, Row] = {}
    for page in range(0, len(data), PAGE_BYTES):
        for row in _rows(data, page):
            if row.body is None or leaf_hash(row.body) == row.leaf:
                found.setdefault(row.id, row)
    return [found[k] for k in sorted(found)]


def _rows(data: bytes, page: int) -> Iterator[Row]:
    """What can be read of the rows of one page."""
    if data[page] != LEAF_PAGE:
        return
    for k in range(int.from_bytes(data[page + 3 : page + 5])):
        at = page + 8 + 2 * k
        if at + 2 > min(page + PAGE_BYTES, len(data)):
            return
        row = _row(data, page + int.from_bytes(data[at : at + 2]), page + PAGE_BYTES)
        if row is not None:
            yield row


def _row(data: bytes, at: int, end: int) -> Row | None:
    length, at = _varint(data, at)
    number, at = _varint(data, at)
    payload = _payload(data, at, length, end)
    return None if payload is None else _columns(number, payload)


def _payload(data: bytes, at: int, length: int, end: int) -> bytes | None:
    """The bytes of a row, together with what lies on other pages."""
    if length > len(data):
        return None
    local = length
    if length > LONGEST_LOCAL:
        local = LEAST_LOCAL + (length - LEAST_LOCAL) % (PAGE_BYTES - 4)
        local = local if local <= LONGEST_LOCAL else LEAST_LOCAL
    if at + local > end:
        return None
    parts, left = [data[at : at + local]], length - local
    following = int.from_bytes(data[at + local : at + local + 4]) if left else 0
    while left > 0 and 0 < following <= len(data) // PAGE_BYTES:
        start = (following - 1) * PAGE_BYTES
        parts.append(data[start + 4 : start + 4 + min(left, PAGE_BYTES - 4)])
        left, following = left - len(parts[-1]), int.from_bytes(data[start : start + 4])
    whole = b"".join(parts)
    return whole if len(whole) == length else None


def _columns(number: int, payload: bytes) -> Row | None:
    """A row of ``records``: nothing (its index is the row id), 32 bytes, bytes or null, bytes or null."""
    head, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < head and len(kinds) <= 4:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if len(kinds) != 4 or at != head or kinds[0] != 0 or kinds[1] != 2 * HASH_BYTES + 12:
        return None
    values: list[bytes | None] = []
    for kind in kinds[1:]:
        if kind != 0 and (kind < 12 or kind & 1):
            return None
        size = 0 if kind == 0 else (kind - 12) // 2
        values.append(None if kind == 0 else payload[at : at + size])
        at += size
    leaf, body, texts = values
    return Row(number, leaf, body, texts) if leaf is not None and at == len(payload) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, seven bits each but for the ninth, and where it ends."""
    value = 0
    for k in range(9):
        byte = data[at + k] if at + k < len(data) else 0
        if k == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 127
        if byte < 128:
            return value, at + k + 1
    raise AssertionError
