"""Steps out of the order of calls: the sequence that recurs, and which call belongs to which turn of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.read.flight import recurring_calls as recurs


def turns(letters: str, times: list[int] | None = None) -> str:
    """The turns of calls named by letters, one sign for each: a digit, or a dot outside every turn."""
    token = np.array([ord(letter) for letter in letters])
    found = recurs.turns(token, np.arange(len(letters)) if times is None else np.array(times))
    return "" if found is None else "".join("." if turn < 0 else str(turn) for turn in found.turn)


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ("abcabcabcabc", "000111222333"),
        ("xyabcabcabcab", "..000111222.."),
        ("aabaabaab", "000111222"),
        ("aaaaaa", "012345"),
        ("abcdef", ""),
        ("abab", ""),
        ("", ""),
    ],
    ids=[
        "clean",
        "set-up before and a rest after",
        "a call twice in a step",
        "one call",
        "nothing recurs",
        "too rarely",
        "none",
    ],
)
def test_the_sequence_that_recurs(calls: str, steps: str) -> None:
    assert turns(calls) == steps


def test_a_loop_inside_a_step_is_no_step() -> None:
    assert turns("hgggrhgggrhgggr") == "000001111122222"


def test_calls_that_do_not_belong_to_the_sequence_go_to_the_step_after_them() -> None:
    assert turns("abcabcabcXabcabcabc") == "0001112223333444555"


def test_a_step_begins_after_the_longest_pause_where_the_start_is_lost() -> None:
    assert turns("bcabcabcabca", [1, 2, 9, 11, 12, 19, 21, 22, 29, 31, 32, 39]) == "..000111222."


def test_after_a_long_pause_only_what_follows_is_taken() -> None:
    calls = "abcabcabc" + "X" + "abcabcabc"
    times = [*range(9), 20, *range(100, 109)]
    assert turns(calls, times) == ".........." + "000111222"
    assert turns(calls + "X" + "abcabc", [*times, 150, *range(200, 206)]) == "." * 20 + "000111", "two thirds are long enough"


@given(st.lists(st.integers(0, 3), max_size=60))
def test_any_order_of_calls_has_turns_that_repeat_the_sequence(calls: list[int]) -> None:
    token = np.array(calls, dtype=np.int64)
    found = recurs.turns(token, np.arange(len(calls)))
    if found is None:
        return
    assert set(found.turn[found.turn >= 0]) == set(range(found.turn.max() + 1))
    for turn in range(found.turn.max() + 1):
        mine = token[found.turn == turn]
        assert np.array_equal(mine[len(mine) - len(found.sequence) :], found.sequence)
