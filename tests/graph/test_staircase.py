"""Members of a ring end one after the other behind a slow link: place, kind and height of the stairs."""

from __future__ import annotations

import numpy as np
import pytest

from taut.graph.staircase import LIKE, closing_staircase, staircase


def ends(members: int, receivers: list[int], ahead: float, height: float = 1.0) -> np.ndarray:
    """Written down member by member: stairs to the next receiver upstream and, as many as may be ahead, downstream."""
    out = []
    for member in range(members):
        up = min((member - receiver) % members for receiver in receivers)
        down = min((receiver - member) % members for receiver in receivers)
        out.append(-height * min(up, ahead * down))
    return np.array(out, dtype=np.float64)


@pytest.mark.parametrize("ahead", [1, 2, 1000])
@pytest.mark.parametrize("members", [4, 8, 13, 64, 200])
@pytest.mark.parametrize("both", [False, True])
def test_the_place_is_exact(members: int, ahead: int, both: bool) -> None:
    receivers = [members - 1, 0] if both else [members - 1]
    found = staircase(ends(members, receivers, ahead, 0.8))
    assert found is not None
    assert found.receivers.tolist() == receivers
    assert found.like > 0.999
    assert found.height == pytest.approx(0.8, rel=0.02)


@pytest.mark.parametrize("ahead", [1, 2, 1000])
@pytest.mark.parametrize(("members", "receivers"), [(8, [1, 4]), (16, [3, 10]), (64, [5, 37]), (128, [0, 2])])
def test_of_two_links_apart_both_receivers_end_last(members: int, receivers: list[int], ahead: int) -> None:
    noise = 0.03 * np.random.default_rng(members).standard_normal(members)
    found = closing_staircase(ends(members, receivers, ahead, 0.9) + noise)
    assert found is not None
    assert sorted(found.receivers.tolist()) == receivers


def test_one_link_with_habits_is_not_taken_for_two() -> None:
    for seed in range(20):
        found = closing_staircase(ends(16, [3], 2, 0.9) + 0.3 * np.random.default_rng(seed).standard_normal(16))
        assert found is not None
        assert not found.apart
        assert 3 in found.receivers


def test_ends_by_host_are_no_staircase() -> None:
    """Half of the ranks end late, or every other one, or one alone."""
    for late in (np.arange(16) >= 8, np.arange(16) % 2 == 0, np.arange(16) == 5):
        found = staircase(np.where(late, 1.0, 0.0))
        assert found is not None
        assert found.like < LIKE


def test_stairs_must_close_the_ring() -> None:
    assert closing_staircase(ends(8, [3], 1, 0.9)) is not None
    assert closing_staircase(ends(8, [3], 1, 0.3)) is None
    assert closing_staircase(ends(8, [3], 1, 2.0)) is None
    assert closing_staircase(np.zeros(8)) is None


@pytest.mark.parametrize("held", [1, 2])
@pytest.mark.parametrize("members", [8, 16, 64])
def test_a_sender_that_waits_for_its_receiver_is_not_taken_for_a_slow_interface(members: int, held: int) -> None:
    """Deep buffers, but a rank ends when its last chunk is taken: the sender ends a chunk or two before its receiver."""
    late = ends(members, [3], 1000)
    late[2] = -held
    found = staircase(late)
    assert found is not None
    assert found.receivers.tolist() == [3]
