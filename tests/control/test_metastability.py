"""The retry-load equation and what logs tell of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import queue, trace
from taut.control import metastability
from taut.control.metastability import fixed_points
from taut.control.relations import prepare


def test_without_retries_there_is_one_load() -> None:
    (one,) = fixed_points(30, 50, 0.5, 0)
    assert one.rate == pytest.approx(30)
    assert one.stable


def test_three_retries_have_two_stable_loads() -> None:
    low, middle, high = fixed_points(30, 50, 0.5, 3)
    assert [p.stable for p in (low, middle, high)] == [True, False, True]
    assert low.rate == pytest.approx(30, abs=0.01)
    assert high.rate == pytest.approx(120)
    assert high.late == 1.0


@given(st.floats(1, 200), st.floats(1, 200), st.floats(0.01, 10), st.integers(0, 8))
def test_every_solution_solves_the_equation(rate: float, service: float, timeout: float, retries: int) -> None:
    points = fixed_points(rate, service, timeout, retries)
    assert points
    for p in points:
        late = float(np.exp(min(0.0, -(service - p.rate) * timeout)))
        expected = rate * (retries + 1) if late == 1 else rate * (1 - late ** (retries + 1)) / (1 - late)
        assert p.rate == pytest.approx(expected, rel=1e-3)
    stable = [p.stable for p in points]
    assert stable[0]
    assert all(a != b for a, b in pairwise(stable))


@given(st.floats(1, 200), st.floats(1, 200), st.floats(0.01, 10), st.integers(0, 8), st.floats(0, 8))
def test_a_budget_bounds_the_load_and_never_adds_one(
    rate: float, service: float, timeout: float, retries: int, budget: float
) -> None:
    free, bound = fixed_points(rate, service, timeout, retries), fixed_points(rate, service, timeout, retries, budget)
    assert bound
    assert all(p.rate <= rate * (1 + budget) * (1 + 1e-6) for p in bound)
    assert sum(p.stable for p in bound) <= sum(p.stable for p in free)
    if rate * (1 + budget) * 1.5 < service and timeout * service > 30:
        assert len(bound) == 1


def test_the_upper_load_of_the_pair_goes_with_a_budget_that_leaves_room() -> None:
    assert [p.rate for p in fixed_points(30, 50, 0.5, 3, 0.2)] == pytest.approx([30], abs=0.01)
    assert [p.rate for p in fixed_points(30, 50, 0.5, 3, 1.0) if p.stable] == pytest.approx([30, 60], abs=0.01)


def found(retries: int = 3, service: float = 50, arrivals: float = 30, seed: int = 1, **how: Any):
    rows = queue(np.random.default_rng(seed), arrivals, service, 0.5, retries, 100, (40, 44), **how)
    return metastability.relate(prepare(trace(rows)), np.random.default_rng(0))


def estimates(arrivals: float, service: float, seed: int, **how: Any) -> metastability.Estimates | None:
    rows = queue(np.random.default_rng(seed), arrivals, service, 0.5, 3, 100, (40, 44), **how)
    log = prepare(trace(rows))
    return metastability.estimated(log, np.arange(len(log)), np.random.default_rng(0))


def test_a_queue_that_stays_down_after_a_stall_is_called_vulnerable() -> None:
    (one,) = found(3)
    assert one.p is None
    assert one.statistic == pytest.approx(4.0, rel=0.01)
    assert "a timeout of 500 ms and 3 retries have two stable loads" in one.because


def test_a_queue_without_retries_is_not() -> None:
    assert found(0) == []


@settings(max_examples=25, deadline=None)
@given(
    st.floats(20, 40), st.floats(1.5, 6), st.sampled_from([0.0, 0.0013, 0.01, 0.1]), st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 1000),
)  # fmt: skip
def test_what_is_served_is_told_apart_from_what_is_spent_on_the_way(
    arrivals: float, ample: float, delay: float, spread: float, seed: int
) -> None:
    got = estimates(arrivals, ample * arrivals, seed, delay=delay, spread=spread)
    if got is None:
        return  # it was hardly ever full
    assert got.beside == 1
    # A tenth and five standard errors of as many answers as a full server gives.
    assert got.serves_per_s[0] == pytest.approx(ample * arrivals, rel=0.1 + 5 * spread / np.sqrt(metastability.FULL))
    assert got.delay_s >= delay - 1e-3


def test_the_interval_of_what_is_served_holds_it() -> None:
    """Of 40 queues about 38 intervals hold the truth; fewer than 32 would have a chance of 1e-4."""
    held = 0
    for seed in range(40):
        got = estimates(30, 50, seed, delay=0.01)
        assert got is not None
        low, high = np.quantile(got.serves_per_s[1:], (0.025, 0.975))
        held += low <= 50 <= high
    assert held >= 32


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_an_ample_server_far_away_is_not_vulnerable(spread: float, seed: int) -> None:
    """A thousand a second, and 1.3 ms on the way, of which the way is most."""
    assert found(service=1000, seed=seed, delay=0.0013, spread=spread) == []


def test_constant_service_is_no_timeout_and_serves_as_it_does() -> None:
    (one,) = found(spread=0.0)
    assert "50 served (50 to 50)" in one.because
    assert found(service=200, spread=0.0) == []


@pytest.mark.parametrize("seed", range(5))
def test_many_servers_serve_more_than_one_answer_says(seed: int) -> None:
    """40 at once of 200 ms each: 200 a second, where one that takes 200 ms alone would serve 35."""
    assert found(service=5, seed=seed, servers=40) == []


@pytest.mark.parametrize(("budget", "vulnerable"), [(0.2, False), (1.0, True)])
def test_a_budget_is_seen_where_most_is_late(budget: float, vulnerable: bool) -> None:
    got = estimates(30, 50, 1, budget=budget)
    assert got is not None
    assert got.budget[0] == pytest.approx(budget, abs=0.1)
    assert bool(found(budget=budget)) == vulnerable
