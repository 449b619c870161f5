"""The retry-load equation and what logs tell of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions import queue, trace
from taut.control import metastability, prepare
from taut.control.metastability import fixed_points


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


def found(retries: int):
    rows = queue(np.random.default_rng(1), 30, 50, 0.5, retries, 100, (40, 44))
    return metastability.relate(prepare(trace(rows)), np.random.default_rng(0))


def test_a_queue_that_stays_down_after_a_stall_is_called_vulnerable() -> None:
    (one,) = found(3)
    assert one.p is None
    assert one.statistic == pytest.approx(4.0, rel=0.01)
    assert "a timeout of 500 ms and 3 retries have two stable loads" in one.because


def test_a_queue_without_retries_is_not() -> None:
    assert found(0) == []
