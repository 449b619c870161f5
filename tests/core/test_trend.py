"""Trends over runs: oracles, laws, size under several nulls, power, and what few runs cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from taut.core.trend import corrected, trend

values = st.lists(st.integers(-1000, 1000), min_size=3, max_size=16)


def red(rng: Any, n: int, rho: float = 0.5) -> Any:
    """AR(1) noise in its steady state."""
    noise = rng.standard_normal(n + 40)
    for i in range(1, len(noise)):
        noise[i] += rho * noise[i - 1]
    return noise[40:]


NULLS = {
    "white": lambda rng, n: rng.standard_normal(n),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
    "skewed": lambda rng, n: rng.lognormal(0, 1, n),
    "red": red,
}


@given(values)
def test_the_slope_is_that_of_theil_and_sen(y: list[int]) -> None:
    found = trend(y)
    assert found is not None
    assert found.slope == pytest.approx(stats.theilslopes(y).slope)
    assert found.lo is None or found.hi is None or found.lo <= found.slope <= found.hi


@given(values)
def test_backwards_the_slope_is_the_opposite_and_as_likely(y: list[int]) -> None:
    ahead, back = trend(y), trend(y[::-1])
    assert ahead is not None
    assert back is not None
    assert (back.slope, back.p) == (pytest.approx(-ahead.slope), pytest.approx(ahead.p))


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=6, unique=True))
def test_few_values_are_no_surer_than_the_count_of_their_orders(y: list[int]) -> None:
    found = trend(y)
    assert found is not None
    assert found.p >= stats.kendalltau(np.arange(len(y)), y, method="exact").pvalue - 1e-12


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
def test_a_line_of_few_values_has_exactly_the_chance_of_its_order(n: int) -> None:
    found = trend(np.arange(n))
    assert found is not None
    assert found.p == pytest.approx(stats.kendalltau(np.arange(n), np.arange(n), method="exact").pvalue)


def test_two_runs_have_no_trend_and_equal_ones_a_flat_one() -> None:
    assert trend([1, 2]) is None
    flat = trend([3, 3, 3, 3, 3])
    assert flat is not None
    assert (flat.slope, flat.p) == (0, 1)


@pytest.mark.parametrize("null", NULLS)
@pytest.mark.parametrize(("n", "draws"), [(6, 300), (12, 1000), (40, 300)])
def test_false_alarms_stay_near_their_rate(null: str, n: int, draws: int) -> None:
    """Nominal size: 5 %. Twelve red values are the worst, 6 %: fewer draws there would test the draws."""
    found = [trend(NULLS[null](np.random.default_rng([n, seed]), n)) for seed in range(draws)]
    assert sum(t is not None and t.p <= 0.05 for t in found) <= 0.05 * draws * 1.5


def test_a_rise_is_found_and_its_interval_holds_it() -> None:
    found = [trend(0.5 * np.arange(16) + np.random.default_rng(seed).standard_normal(16)) for seed in range(100)]
    known = [t for t in found if t is not None]
    assert sum(t.p <= 0.05 for t in known) >= 95
    assert sum(t.lo is not None and t.hi is not None and t.lo <= 0.5 <= t.hi for t in known) >= 93


def test_a_step_back_and_forth_is_no_trend() -> None:
    found = trend([1, 9, 1, 9, 1, 9, 1, 9, 1, 9])
    assert found is not None
    assert found.p > 0.3


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_correction_is_that_of_benjamini_and_hochberg(p: list[float | None]) -> None:
    known = [x for x in p if x is not None]
    q = corrected(p)
    assert [x is None for x in q] == [x is None for x in p]
    expected = stats.false_discovery_control(known) if known else []
    assert [x for x in q if x is not None] == pytest.approx(list(expected))
