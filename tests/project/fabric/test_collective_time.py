"""Collectives take what their closed forms say."""

from __future__ import annotations

import pytest

from taut.project.fabric.collective_time import ALGORITHMS, rounds, time_ns


@pytest.mark.parametrize("members", [2, 3, 8, 1024])
def test_a_ring_sends_every_part_round_once_for_each_half(members: int) -> None:
    size, alpha, beta = 1e8, 5.0, 1 / 25
    expected = 2 * (members - 1) * alpha * 1e3 + 2 * (members - 1) / members * size * beta
    assert time_ns("all-reduce", "ring", members, size, 25.0, alpha) == pytest.approx(expected)
    halves = sum(time_ns(verb, "ring", members, size, 25.0, alpha) for verb in ("reduce-scatter", "all-gather"))
    assert halves == pytest.approx(expected)


@pytest.mark.parametrize("deep", [1, 3, 10])
def test_a_tree_sends_all_it_has_and_halving_sends_half_as_much_every_time(deep: int) -> None:
    members, size, alpha, beta = 2**deep, 1e8, 5.0, 1 / 25
    tree = 2 * deep * (alpha * 1e3 + size * beta)
    assert time_ns("all-reduce", "tree", members, size, 25.0, alpha) == pytest.approx(tree)
    halving = 2 * deep * alpha * 1e3 + 2 * (members - 1) / members * size * beta
    assert time_ns("all-reduce", "halving-doubling", members, size, 25.0, alpha) == pytest.approx(halving)


def test_a_tree_is_quicker_for_small_messages_and_a_ring_for_large_ones() -> None:
    def quickest(size: float) -> str:
        return min(("ring", "tree"), key=lambda a: time_ns("all-reduce", a, 64, size, 25.0, 5.0))

    assert quickest(1e3) == "tree"
    assert quickest(1e9) == "ring"
    best = time_ns("all-reduce", "best", 64, 1e6, 25.0, 5.0)
    assert best == min(time_ns("all-reduce", a, 64, 1e6, 25.0, 5.0) for a in ALGORITHMS)


def test_one_member_has_nobody_to_talk_to() -> None:
    assert rounds("all-reduce", "ring", 1, 1e9) == (0.0, 0.0)
