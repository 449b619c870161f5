"""The ring of a rank: every event comes out once and in its order, or is counted."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from taut.watch.event_ring import Ring
from taut.watch.wire import EVENT, STEP

TURNS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=30)


def numbers(data: bytes) -> list[int]:
    return [one[3] for one in EVENT.iter_unpack(data)]


@given(st.integers(1, 8), TURNS)
def test_nothing_is_lost_unless_it_is_counted(size: int, turns: list[tuple[int, int]]) -> None:
    ring, added, out = Ring(size), 0, list[int]()
    for adds, takes in turns:
        for _ in range(adds):
            ring.add((STEP, 0, 0, added, 1, 2, 0))
            added += 1
        out += numbers(ring.take(takes))
        assert len(out) + len(ring) + ring.dropped == added
    out += numbers(ring.take(size))
    assert out == sorted(set(out))
    assert len(out) + ring.dropped == added


def test_threads_that_write_at_once() -> None:
    ring, out = Ring(64), list[int]()
    threads = [threading.Thread(target=lambda: [ring.add((STEP, 0, 0, k, 1, 2, 0)) for k in range(500)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or len(ring):
        out += numbers(ring.take(16))
    assert len(out) + ring.dropped == 1500


def test_what_was_taken_and_did_not_arrive_is_counted_too() -> None:
    ring = Ring(4)
    ring.add((STEP, 0, 0, 0, 1, 2, 0))
    ring.take(1)
    ring.lose(1)
    assert ring.dropped == 1
