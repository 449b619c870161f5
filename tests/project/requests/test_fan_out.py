"""Fan-out and hedging of independent leaves: order statistics, exactly."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import UsageError
from taut.project.noise import GRID, table
from taut.project.requests.fan_out import TAILS, fan_out, hedged, percentile, through
from taut.project.training.scenario import Noise

EXPONENTIAL = table(Noise("exponential", 1.0))


@pytest.mark.parametrize("tail", TAILS)
def test_a_distribution_goes_through_what_it_was_given(tail: str) -> None:
    leaf = through({0.5: 1.0, 0.95: 5.0, 0.99: 10.0}, tail)
    assert [percentile(leaf, c) for c in (0.5, 0.95, 0.99)] == pytest.approx([1, 5, 10], rel=1e-3)
    assert (np.diff(leaf) > 0).all()


def test_tails_go_on_as_their_kind_does() -> None:
    lognormal = through({0.5: 1.0, 0.8413447460685429: 2.0})
    assert percentile(lognormal, 0.9986501019683699) == pytest.approx(8, rel=1e-3)
    pareto = through({0.99: 1.0, 0.999: 10.0}, "pareto")
    assert percentile(pareto, 0.99999) == pytest.approx(1000, rel=0.02)


@pytest.mark.parametrize("leaves", [1, 10, 1000])
@pytest.mark.parametrize("chance", [0.001, 0.5, 0.99, 0.999999])
def test_the_slowest_leaf_is_a_power_of_its_chance(leaves: int, chance: float) -> None:
    expected = -np.log(-np.expm1(np.log(chance) / leaves))
    assert percentile(fan_out(EXPONENTIAL, leaves), chance) == pytest.approx(expected, rel=2e-3, abs=2e-5)


def test_most_leaves_answer_at_their_own_percentile() -> None:
    """The time until 95 % of many leaves have answered is the 95th percentile of one, whatever the request."""
    assert percentile(fan_out(EXPONENTIAL, 100_000, 0.95), 0.99) == pytest.approx(log(20), rel=0.015)
    some = np.sort(np.random.default_rng(1).exponential(size=(20_000, 40)), axis=1)[:, 37]
    assert percentile(fan_out(EXPONENTIAL, 40, 0.95), 0.9) == pytest.approx(np.quantile(some, 0.9), rel=0.02)


def test_two_exponential_leaves_asked_at_once_take_half_as_long() -> None:
    both, extra = hedged(EXPONENTIAL, 0.0)
    assert extra == pytest.approx(1.0, abs=1e-6)
    inner = np.abs(GRID) < 8
    assert both[inner] == pytest.approx(EXPONENTIAL[inner] / 2, rel=1e-2, abs=1e-4)


@given(st.floats(0.1, 5.0))
def test_a_hedge_after_a_delay_is_the_quicker_of_two(delay: float) -> None:
    sooner, extra = hedged(EXPONENTIAL, delay)
    assert extra == pytest.approx(np.exp(-delay), rel=1e-2)
    for chance in (0.5, 0.9, 0.999):
        plain = -log(1 - chance)
        assert percentile(sooner, chance) == pytest.approx(min(plain, (plain + delay) / 2), rel=1e-2)


@pytest.mark.parametrize("quantiles", [{}, {0.5: 1.0}, {0.5: 0.0, 0.9: 1.0}, {0.0: 1.0, 0.5: 2.0}, {0.5: 1.0, 1.0: 2.0}])
def test_too_little_to_go_through_is_refused(quantiles: dict[float, float]) -> None:
    with pytest.raises(UsageError):
        through(quantiles)
