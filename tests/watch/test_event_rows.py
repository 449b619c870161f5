"""Tables of events in bounded memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.watch.event_rows import CHUNK, CHUNK_BYTES, ROW, EventRows, Room, Rows


def rows(first: int, count: int) -> EventRows:
    out = np.zeros(count, ROW)
    out["begin_ns"] = np.arange(first, first + count)
    return out


@given(st.lists(st.integers(0, 3 * CHUNK), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 10 * CHUNK))
def test_the_newest_are_kept(counts: list[int], chunks: int, since: int) -> None:
    table, added = Rows(Room(chunks * CHUNK_BYTES)), 0
    for count in counts:
        table.append(rows(added, count), 0)
        added += count
    assert table.end == added
    assert table.room.used_bytes <= chunks * CHUNK_BYTES
    assert min(added, (chunks - 1) * CHUNK) <= len(table) <= chunks * CHUNK
    assert table.since(since)["begin_ns"].tolist() == list(range(max(since, table.first), added))
    assert table.last(10)["begin_ns"].tolist() == list(range(max(added - 10, table.first), added))


def test_the_fullest_table_gives() -> None:
    room = Room(4 * CHUNK_BYTES)
    large, small = Rows(room), Rows(room)
    large.append(rows(0, 4 * CHUNK), 0)
    small.append(rows(0, 5), 0)
    assert (large.first, len(small), room.used_bytes) == (CHUNK, 5, 4 * CHUNK_BYTES)


def test_what_is_old_is_given_back() -> None:
    room = Room(8 * CHUNK_BYTES)
    table = Rows(room)
    table.append(rows(0, CHUNK), 10)
    table.append(rows(CHUNK, 3), 20)
    table.forget(15)
    assert (table.first, len(table), room.used_bytes) == (CHUNK, 3, CHUNK_BYTES)
    table.forget(25)
    assert (len(table), len(table.since(0)), room.used_bytes) == (0, 0, 0)
    table.append(rows(CHUNK + 3, 2), 30)
    assert table.since(0)["begin_ns"].tolist() == [CHUNK + 3, CHUNK + 4]
    room.free(table)
    assert (room.used_bytes, room.tables) == (0, [])
