"""Ranks that are slow together: found by level, priced as one, named by what only they share; unequal ranks stay quiet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from build import MS, analyze, barriers
from taut.diagnose.slow_sets import shared_place, shortest_half
from taut.graph import link

STEPS, RANKS = 12, 16


def work(seed: int, habit: float = 0.0) -> Any:
    """Steps of 100 ms with 2 % noise, on ranks that differ for good by a share."""
    rng = np.random.default_rng(seed)
    return 100 * MS * (1 + 0.02 * rng.standard_normal((STEPS, RANKS)) + habit * rng.standard_normal(RANKS))


def test_a_minority_does_not_move_the_shortest_half() -> None:
    middle, length = shortest_half(np.array([1.0, 1.1, 1.2, 1.3, 1.2, 9.0, 9.1, 9.2]))
    assert (round(middle, 6), round(length, 6)) == (1.16, 0.3)


@pytest.mark.parametrize("seed", range(3))
def test_members_of_unequal_strength_are_one_set_and_nobody_else_is_in_it(seed: int) -> None:
    took = work(seed)
    took[:, [2, 5, 11]] *= [1.4, 1.3, 1.2]
    (found,) = analyze(barriers(took, 5 * MS)).findings
    assert found.ranks == (2, 5, 11)


@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_are_unequal_for_good_stay_quiet(seed: int) -> None:
    assert analyze(barriers(work(seed, 0.04), 5 * MS)).findings == []


def test_a_set_is_found_among_unequal_ranks_as_a_heap_of_its_own() -> None:
    took = work(3, 0.03)
    took[:, 4:8] *= 1.4
    found = analyze(barriers(took, 5 * MS))
    assert [f.ranks for f in found.findings] == [(4, 5, 6, 7)]
    assert '"ranks":[4,5,6,7]' in "".join(found.to_json().split()), "a result with a set can be written"


def test_faults_of_different_ranks_at_different_times_are_findings_of_their_own() -> None:
    took = 100 * MS * (1 + 0.02 * np.random.default_rng(8).standard_normal((40, RANKS)))
    took[8:18, 3] *= 1.4
    took[22:36, 9] *= 1.4
    found = analyze(barriers(took, 5 * MS)).findings
    assert {(f.ranks, f.steps) for f in found} == {((3,), (8, 17)), ((9,), (22, 35))}


@pytest.mark.parametrize(
    ("ranks", "name"),
    [((0, 1, 2, 3), "host a"), ((0, 1, 2), ""), ((0, 1, 2, 3, 4), ""), ((4, 5, 6, 7, 8, 9, 10, 11), "hosts b, c")],
)
def test_a_set_has_the_name_of_what_all_of_it_and_nobody_else_shares(ranks: tuple[int, ...], name: str) -> None:
    graph = link(barriers(work(0), 5 * MS, hosts={rank: "abcd"[rank // 4] for rank in range(RANKS)}))
    assert shared_place(graph, ranks) == name


def test_where_every_rank_has_one_peer_the_slower_of_a_pair_is_found() -> None:
    """A pipeline of two replicas, half of whose stages have a slow rank: levels mirror each other."""
    took = work(5)
    took[:, [2, 7, 9, 12]] *= 1.4
    done = analyze(barriers(took, 5 * MS, stage={rank: rank // 2 for rank in range(RANKS)}))
    assert [f.ranks for f in done.findings] == [(2, 7, 9, 12)]


@pytest.mark.parametrize("seed", [11, 18, 20, 21])
def test_ranks_that_happen_to_stop_in_most_steps_have_no_level_where_all_stop_often(seed: int) -> None:
    """Of eight ranks that stop in 40 % of their steps some do in more than half of them: their median is that of a stop."""
    rng = np.random.default_rng(seed)
    took = 100 * MS * (1 + 0.05 * rng.standard_normal((30, 8)))
    stops = (rng.random(took.shape) < 0.4) * rng.uniform(100, 200, took.shape) * MS
    assert [f.ranks for f in analyze(barriers(took + stops, 5 * MS)).findings if f.ranks] == []
    stops[rng.random(took.shape) < 0.9] = 0
    stops[::2, 3] = stops[1:8:2, 3] = 150 * MS
    assert [f.ranks for f in analyze(barriers(took + stops, 5 * MS)).findings if f.ranks] == [(3,)]


def test_ranks_that_stop_together_are_a_set() -> None:
    """A host that stops now and then stops its ranks at the same time: mending one of them saves nothing."""
    took = 100 * MS * (1 + 0.02 * np.random.default_rng(2).standard_normal((30, RANKS)))
    took[np.ix_([3, 7, 12, 16, 21, 27], [4, 5])] += 90 * MS
    (found,) = analyze(barriers(took, 5 * MS, hosts={rank: f"n{rank // 2}" for rank in range(RANKS)})).findings
    assert (found.ranks, found.where) == ((4, 5), "host n2")


def test_one_member_that_saves_nearly_everything_is_no_set() -> None:
    took = work(7)
    took[:, [2, 9]] *= [2.5, 1.15]
    assert analyze(barriers(took, 5 * MS)).findings[0].ranks == (2,)


def test_a_rank_that_is_slow_and_stops_is_one_finding_and_no_set() -> None:
    """Slow since step 120, and stopping now and then all along, which the level of the rank and its stops both tell."""
    rng = np.random.default_rng(6)
    work = 100 * MS * np.exp(0.1 * rng.standard_normal((200, 16)))
    work += MS * rng.uniform(60, 180, (200, 16)) * (rng.random((200, 16)) < 0.03)
    work[120:, 3] += 50 * MS
    found = [finding.ranks for finding in analyze(barriers(work, 5 * MS)).findings if finding.ranks]
    assert found == [(3,)]
