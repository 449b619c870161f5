"""Spans of steps in which something is higher than outside: size under several nulls, power, and near-misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taut.core.change_points import levels, outliers
from taut.core.concentration import concentrated

SERIES, STEPS, RUNS = 8, 32, 400


def gaussian(rng: Any) -> Any:
    return rng.standard_normal((SERIES, STEPS))


def heavy(rng: Any) -> Any:
    """Student's t with three degrees of freedom."""
    return rng.standard_t(3, (SERIES, STEPS))


def hiccups(rng: Any) -> Any:
    """One step in fifty takes twenty spreads longer, wherever it falls."""
    return gaussian(rng) + 20 * (rng.random((SERIES, STEPS)) < 0.02)


def unequal(rng: Any) -> Any:
    """Every series its own level and spread."""
    return gaussian(rng) * rng.uniform(0.5, 2, (SERIES, 1)) + 10 * rng.standard_normal((SERIES, 1))


@pytest.mark.parametrize("null", [gaussian, heavy, hiccups, unequal])
def test_false_alarms_stay_near_their_rate(null: Any) -> None:
    """Nominal size: 1 % a run for levels and 1 % for spikes."""
    series = [1e6 * (100 + null(np.random.default_rng(seed))) for seed in range(RUNS)]
    assert sum(bool(levels(y)) for y in series) <= 0.01 * RUNS * 1.5
    assert sum(_spiked(y) >= 0 for y in series) <= 0.01 * RUNS * 1.5


def _spiked(y: Any) -> int:
    """The series on which outliers fall more often than by chance, -1 if there is none."""
    high = outliers(y).sum(axis=1)
    chance = [concentrated(int(k), int(high.sum()), 1 / len(y), len(y)) for k in high]
    return int(np.argmin(chance)) if min(chance) < 0.01 else -1


@pytest.mark.parametrize(("shift", "least"), [(2.0, 0.3), (3.0, 0.9), (4.0, 0.95)])
def test_a_level_is_found_with_its_onset(shift: float, least: float) -> None:
    """Power: a shift by some spreads in 20 of 32 steps of one series."""
    right = exact = 0
    for seed in range(100):
        y = gaussian(np.random.default_rng(seed))
        y[3, 12:] += shift
        found = levels(1e6 * (100 + y))
        right += [s.series for s in found] == [3]
        exact += any(abs(s.first - 12) <= 2 and s.last == STEPS - 1 for s in found)
    assert right >= least * 100
    assert exact >= (0.85 if shift > 2 else 0.3) * 100


def test_spikes_of_one_series_are_found_and_are_no_level() -> None:
    for seed in range(40):
        y = gaussian(np.random.default_rng(seed))
        y[5, 10::4] += 30
        assert levels(1e6 * (100 + y)) == []
        assert _spiked(1e6 * (100 + y)) == 5


def test_a_lone_hiccup_is_nothing() -> None:
    y = gaussian(np.random.default_rng(1))
    y[2, 20] += 500
    assert levels(1e6 * (100 + y)) == []
    assert _spiked(1e6 * (100 + y)) == -1


def test_too_few_steps_say_nothing() -> None:
    assert levels(np.arange(12.0).reshape(2, 6)) == []


def test_a_red_series_without_kin_seldom_has_a_level() -> None:
    """AR(1) noise of 0.8 in one series of 12 steps, which cannot tell how red it is: 6 of 100 (18 if it is asked alone)."""
    found = 0
    for seed in range(100):
        y = np.random.default_rng(seed).standard_normal((1, 12))
        for k in range(1, 12):
            y[:, k] = 0.8 * y[:, k - 1] + 0.6 * y[:, k]
        found += bool(levels(1000 + 30 * y))
    assert found <= 6


def one_noisy(rng: Any) -> Any:
    """One series has five times the spread of the others, lognormal."""
    return np.exp(rng.standard_normal((SERIES, STEPS))) * np.where(np.arange(SERIES) == 2, 5, 1)[:, None]


def test_a_level_that_is_noisier_than_before_is_found_more_often_than_one_noisy_series() -> None:
    """Its steps wander together (AR(1), 0.4), as those of a starved rank do: 43 % and less without what the noise tells."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y, red = rng.standard_normal((SERIES, STEPS)), rng.standard_normal(STEPS)
        for t in range(1, STEPS):
            red[t] = 0.4 * red[t - 1] + np.sqrt(1 - 0.4**2) * red[t]
        y[3, 9:] = 15 + 8 * red[9:]
        spans = levels(1e6 * (100 + y))
        assert {span.series for span in spans} <= {3}
        found += bool(spans)
    assert found >= 55
    noisy = [levels(1e6 * (100 + one_noisy(np.random.default_rng(seed)))) for seed in range(RUNS)]
    assert sum(map(bool, noisy)) <= 0.01 * RUNS * 1.5


def test_stops_that_last_and_that_all_series_have_are_a_level_far_less_often() -> None:
    """A quarter of the steps of each of four series, five in a row on the mean: 58 of 60 runs had a level once."""
    false = found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        on = np.zeros((4, 100), dtype=bool)
        for series in range(4):
            state = rng.random() < 0.25
            for step in range(100):
                state = rng.random() >= 0.2 if state else rng.random() < 0.25 / 0.75 * 0.2
                on[series, step] = state
        y = 100 + 5 * rng.standard_normal(on.shape)
        false += bool(levels(1e6 * (y + on * rng.uniform(100, 200, on.shape))))
        y[1, 60:] += 150
        y[:, :60] += 150 * on[:, :60] * (rng.random((4, 60)) < 0.2)
        found += [s.series for s in levels(1e6 * y)] == [1]
    assert false <= 30
    assert found >= 57


def test_a_long_series_has_its_spans_from_where_they_begin_to_where_they_end() -> None:
    """Long series are searched on a grid of places; a burst of 14 steps is told to the step all the same."""
    y = 100 + np.random.default_rng(3).standard_normal((SERIES, 300))
    y[5, 181:195] += 30
    (found,) = levels(1e6 * y)
    assert (found.series, found.first, found.last) == (5, 181, 194)
