"""A mean above zero in a series whose steps resemble their neighbours: found, and not where it only wandered there."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.persistence import above_zero


def alarms(memory: float, white: float, n: int, mean: float = 0.0, jobs: int = 400) -> float:
    """Share of red series, with white noise on top, whose mean is called above zero at 1 %."""
    rng = np.random.default_rng(n)
    y = rng.standard_normal((jobs, n + 50))
    for k in range(1, n + 50):
        y[:, k] = memory * y[:, k - 1] + np.sqrt(1 - memory**2) * y[:, k]
    y = y[:, 50:] + white * rng.standard_normal((jobs, n)) + mean
    return float(np.mean([above_zero(one)[1] < 0.01 for one in y]))


@pytest.mark.parametrize("n", [12, 48, 120])
@pytest.mark.parametrize(("memory", "white"), [(0.0, 0.0), (0.5, 0.0), (0.8, 0.0), (0.8, 1.0)])
def test_size(memory: float, white: float, n: int) -> None:
    """At 1 %, more than ten of 400 have a chance below 0.3 %."""
    assert alarms(memory, white, n) <= 0.025


def test_power() -> None:
    assert alarms(0.0, 0.0, 48, 1.0) > 0.9
    assert alarms(0.8, 0.0, 48, 1.0) < alarms(0.5, 0.0, 48, 1.0)


def test_heavy_tails_make_it_milder() -> None:
    rng = np.random.default_rng(1)
    assert np.mean([above_zero(one)[1] < 0.01 for one in rng.standard_t(2, (400, 48))]) <= 0.01


@pytest.mark.parametrize("series", [[], [1.0] * 4])
def test_few_steps_say_nothing(series: list[float]) -> None:
    assert above_zero(series) == (0.0, 1.0)


def test_what_never_varies_is_certain() -> None:
    assert above_zero([1.0] * 20)[1] < 1e-3
    assert above_zero([0.0] * 20)[1] == pytest.approx(0.5)
