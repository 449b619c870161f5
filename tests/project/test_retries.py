"""Retries: attempts, layers, and the loads they keep alive."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.retries import expected_attempts, layered, load_points


def test_layers_multiply() -> None:
    """Three retries over a library's two."""
    assert layered([3, 2]) == 12
    assert layered([]) == 1


@given(st.floats(0, 0.99), st.integers(1, 20))
def test_attempts_are_a_geometric_sum(failure: float, attempts: int) -> None:
    assert expected_attempts(failure, attempts) == pytest.approx(sum(failure**k for k in range(attempts)))


def test_what_always_fails_takes_all_attempts() -> None:
    assert expected_attempts(1.0, 12) == 12


def test_without_retries_there_is_one_load() -> None:
    (point,) = load_points(30, 50, 0.5, 1)
    assert point == (30, pytest.approx(exp(-10)), True)


def test_three_retries_have_a_second_load_at_which_nothing_is_answered() -> None:
    """50 a second served, 30 asked for, half a second of patience: the good load, the brink, and 120 attempts a second."""
    good, brink, bad = load_points(30, 50, 0.5, 4)
    assert (good.stable, brink.stable, bad.stable) == (True, False, True)
    assert good.per_s == pytest.approx(30, rel=1e-3)
    assert 30 < brink.per_s < 50
    assert (bad.per_s, bad.failure) == (120, 1)


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0.01, 5), st.integers(2, 6))
def test_points_solve_the_equation_and_alternate(per_s: float, served: float, timeout: float, attempts: int) -> None:
    points = load_points(per_s, served, timeout, attempts)
    for point in points:
        failure = min(1.0, exp(-max((served - point.per_s) * timeout, 0.0)))
        assert per_s * expected_attempts(failure, attempts) == pytest.approx(point.per_s, rel=1e-2)
    assert [point.per_s for point in points] == sorted(point.per_s for point in points)
