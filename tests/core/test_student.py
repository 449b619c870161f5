"""Student's and Fisher's distributions agree with scipy's."""

from __future__ import annotations

import pytest
from scipy.special import fdtrc, stdtr, stdtrit

from taut.core.student import fisher_tail, least_fisher_tail, student_quantile, student_tail

FREE = [1, 2, 3, 7, 30, 1000, 99_999]


@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("t", [-3.0, 0.0, 0.5, 2.0, 6.0, 40.0])
def test_the_upper_tail(free: float, t: float) -> None:
    assert student_tail(t, free) == pytest.approx(float(stdtr(free, -t)), rel=1e-6, abs=1e-200)


@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("tail", [0.4, 0.01, 1e-5, 1e-9])
def test_where_a_tail_begins(free: float, tail: float) -> None:
    assert student_quantile(tail, free) == pytest.approx(float(-stdtrit(free, tail)), rel=1e-6)


@pytest.mark.parametrize("freedom", [(1, 3), (2, 30), (7, 64), (255, 1024), (12, 9999)])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 1.7, 4.0, 60.0])
def test_the_tail_of_a_ratio_of_variances_and_what_it_is_at_least(freedom: tuple[int, int], ratio: float) -> None:
    chance = float(fdtrc(*freedom, ratio))
    assert fisher_tail(ratio, *freedom) == pytest.approx(chance, rel=1e-9, abs=1e-200)
    assert least_fisher_tail(ratio, *freedom) <= chance * (1 + 1e-9)


def test_many_degrees_of_freedom_are_normal() -> None:
    assert student_quantile(0.025, 1e9) == pytest.approx(1.959964, rel=1e-6)
