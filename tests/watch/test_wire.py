"""Messages: what is packed is proved and read again; everything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.watch.wire import (
    BYE,
    EVENTS,
    HEAD,
    HELLO,
    MOST_BYTES,
    PROOF_BYTES,
    Ranks,
    WireError,
    check,
    check_runs,
    head_of,
    packed,
    runs,
)

KEY = b"k" * 32


def read(data: bytes, expected: int, key: bytes = KEY) -> tuple[int, bytes]:
    """(kind, body) of a message, as a collector reads it."""
    head, proof, body = data[: HEAD.size], data[HEAD.size : HEAD.size + PROOF_BYTES], data[HEAD.size + PROOF_BYTES :]
    length, kind, _ = head_of(head)
    if length != len(body):
        raise WireError("cut off")
    check(key, expected, head, proof, body)
    return kind, body


@given(st.integers(HELLO, BYE), st.binary(max_size=300), st.integers(0, 1 << 40))
def test_what_is_packed_is_read(kind: int, body: bytes, number: int) -> None:
    assert read(packed(KEY, number, kind, body), number) == (kind, body)


@given(st.binary(max_size=60), st.data())
def test_a_changed_bit_is_refused(body: bytes, data: st.DataObject) -> None:
    message = bytearray(packed(KEY, 3, EVENTS, body))
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        read(bytes(message), 3)


@pytest.mark.parametrize(
    ("number", "key", "why"),
    [(2, KEY, "out of its order"), (4, KEY, "out of its order"), (3, b"x" * 32, "proof is wrong")],
)
def test_another_turn_or_another_key(number: int, key: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        read(packed(KEY, 3, EVENTS, b"abc"), number, key)


def test_lengths_and_kinds_that_no_message_has() -> None:
    with pytest.raises(WireError, match="more than"):
        head_of(HEAD.pack(MOST_BYTES + 1, EVENTS, 0))
    with pytest.raises(WireError, match="of no kind"):
        head_of(HEAD.pack(0, 9, 0))


@given(st.lists(st.integers(0, 5000), unique=True, max_size=60))
def test_runs_stand_for_ranks(ranks: list[int]) -> None:
    found = Ranks(runs(ranks))
    assert (list(found), len(found), 5001 in found) == (ranks, len(ranks), False)


def test_large_groups_are_short() -> None:
    assert runs(range(4096)) == [0, 4095, 1]
    assert runs(range(3, 4096, 8)) == [3, 4091, 8]


@pytest.mark.parametrize("some", [[0, 1], [0, 5, 0], [0, 5, 2], [5, 0, 1], [0, (1 << 31) - 1, 1], [-1, 3, 1]])
def test_what_is_no_run_is_refused(some: list[int]) -> None:
    with pytest.raises(WireError):
        check_runs(some, 1 << 20)
