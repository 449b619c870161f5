"""Effects of places on own time: the same rank since the same step whatever its time is called, and nobody in healthy jobs."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.array_types import Floats
from taut.diagnose.effects.null_scores import limits
from taut.diagnose.effects.search import Effect, search
from taut.diagnose.effects.series import Place, Series

RANKS, STEPS = 8, 40


def own_times(ranks: int = RANKS, steps: int = STEPS, seed: int = 0) -> Floats:
    """Steps of 40 ms with 2 % of noise, habits of 1 %, and step lengths that all ranks share."""
    rng = np.random.default_rng(seed)
    shared = 0.15 * rng.standard_normal(steps)
    return 40e6 * np.exp(shared + 0.01 * rng.standard_normal((ranks, 1)) + 0.02 * rng.standard_normal((ranks, steps)))


def effects(own: Floats, sets: list[Place] | None = None) -> list[Effect]:
    return search(Series.of(own, np.zeros(len(own), np.int64)), sets or [], limits)


def slower(own: Floats, rows: list[int], factor: Floats | float, first: int = 0, last: int = STEPS) -> Floats:
    out = own.copy()
    out[rows, first:last] *= factor
    return out


SHAPES = {
    "always": (np.full(STEPS, 1.2), "always", 0),
    "since": (np.where(np.arange(STEPS) >= 12, 1.2, 1.0), "since", 12),
    "span": (np.where((np.arange(STEPS) >= 12) & (np.arange(STEPS) < 24), 1.25, 1.0), "span", 12),
    "ramp": (1 + 0.4 * np.clip((np.arange(STEPS) - 9) / 30, 0, 1), "ramp", 10),
    "periodic": (np.where(np.arange(STEPS) % 8 == 3, 1.4, 1.0), "periodic", 3),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_slow_rank_is_found_with_its_shape(name: str, seed: int) -> None:
    factor, kind, first = SHAPES[name]
    (found,) = effects(slower(own_times(seed=seed), [5], factor))
    assert (found.place.rows, found.shape.kind, found.is_certain) == ((5,), kind, True)
    assert abs(found.shape.first - first) <= (3 if kind == "ramp" else 1)


@pytest.mark.parametrize("name", SHAPES)
def test_what_it_costs_is_what_was_added(name: str) -> None:
    factor, _, _ = SHAPES[name]
    own = own_times()
    (found,) = effects(slower(own, [5], factor))
    added = float((own[5] * (factor - 1)).sum())
    assert found.cut_ns.sum() == pytest.approx(added, rel=0.2)
    assert not np.delete(found.cut_ns, 5, axis=0).any()


@pytest.mark.parametrize("seed", range(40))
def test_healthy_ranks_are_no_finding(seed: int) -> None:
    assert not [one for one in effects(own_times(seed=seed)) if one.is_certain]


def test_two_ranks_with_different_faults_are_both_found() -> None:
    own = slower(slower(own_times(), [2], 1.15, first=10), [6], 1.3)
    assert {one.place.rows for one in effects(own)} == {(2,), (6,)}


def test_ranks_of_a_host_that_became_slower_are_one_place() -> None:
    hosts = [Place("host", f"h{k}", tuple(range(4 * k, 4 * k + 4))) for k in range(4)]
    own = slower(own_times(ranks=16), [4, 5, 6, 7], 1.1, first=15)
    assert [one.place.name for one in effects(own, hosts)] == ["h1"]


def test_ranks_of_different_roles_are_not_compared() -> None:
    own = own_times()
    own[4:] *= 3
    role = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    assert search(Series.of(own, role), [], limits) == []


def test_a_rank_without_peers_is_compared_with_its_past() -> None:
    own = own_times(ranks=4)
    own *= np.array([[1.0], [2.0], [3.0], [1.5]])
    (found,) = search(Series.of(slower(own, [2], 1.2, first=20), np.arange(4)), [], limits)
    assert (found.place.rows, found.shape.kind, found.shape.first) == ((2,), "since", 20)
