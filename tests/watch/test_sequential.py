"""Sequential tests of many series: when a series rises they say so, when none does they are silent."""

from __future__ import annotations

import numpy as np
import pytest

from taut.watch.running_sums import exponent
from taut.watch.sequential import FIRST, SKIPPED, Panel

STEP_S = 0.5
LEARNED = FIRST + SKIPPED


def noise(steps: int, series: int, seed: int = 1) -> np.ndarray:
    return 0.01 * np.random.default_rng(seed).standard_normal((steps, series))


def test_a_series_that_rises_crosses_its_limit_within_a_few_steps_and_no_other_does() -> None:
    panel, rows = Panel(np.zeros(8, np.int64)), noise(200, 8)
    rows[120:, 3] += 0.1
    crossed = panel.feed(rows, STEP_S)
    assert {series for _, series in crossed} == {3}
    assert 120 <= crossed[0][0] < 132


@pytest.mark.parametrize("pieces", [1, 3, 7, 50])
def test_steps_may_come_in_any_pieces(pieces: int) -> None:
    rows = noise(180, 4)
    rows[130:, 1] += 0.05
    whole, parts = Panel(np.zeros(4, np.int64)), Panel(np.zeros(4, np.int64))
    whole.feed(rows, STEP_S)
    for first in range(0, len(rows), pieces):
        parts.feed(rows[first : first + pieces], STEP_S)
    assert np.allclose(whole.sum, parts.sum)
    assert [one.series for one in whole.suspects()] == [one.series for one in parts.suspects()] == [1]


@pytest.mark.parametrize("law", ["white", "red", "heavy", "skewed", "hiccups", "every fourth step"])
def test_healthy_series_of_any_law_stay_silent(law: str) -> None:
    rng = np.random.default_rng(7)
    rows = noise(3000, 12, seed=2)
    match law:
        case "red":
            for i in range(1, len(rows)):
                rows[i] += 0.8 * rows[i - 1]
        case "heavy":
            rows = 0.01 * rng.standard_t(3, rows.shape)
        case "skewed":
            rows = 0.02 * np.exp(rng.standard_normal(rows.shape))
        case "hiccups":
            rows[rng.random(rows.shape) < 0.005] += 0.5
        case "every fourth step":
            rows[::4, 0] += 0.2
    assert Panel(np.zeros(12, np.int64)).feed(rows, STEP_S) == []


def test_a_rise_that_does_not_matter_is_left_alone() -> None:
    panel, rows = Panel(np.zeros(4, np.int64)), noise(400, 4) / 20
    rows[200:, 2] += 0.008  # sixteen spreads, but less than two hundredths of a step
    assert panel.feed(rows, STEP_S) == []


def test_a_lone_outlier_is_no_rise_and_frequent_ones_are_suspected_as_such() -> None:
    panel, rows = Panel(np.zeros(4, np.int64)), noise(300, 4)
    rows[150, 0] += 5.0
    rows[150::4, 2] += 0.2
    panel.feed(rows, STEP_S)
    assert [(one.series, one.spikes) for one in panel.suspects()] == [(2, True)]


def test_what_is_accepted_is_the_new_level() -> None:
    panel, rows = Panel(np.zeros(2, np.int64)), noise(400, 2)
    rows[100:, 0] += 0.1
    panel.feed(rows[:130], STEP_S)
    assert [one.series for one in panel.suspects()] == [0]
    panel.accept(np.array([0]))
    assert panel.feed(rows[130:], STEP_S) == []


def test_series_without_values_have_no_level_and_raise_nothing() -> None:
    panel, rows = Panel(np.array([0, 0, 1])), noise(200, 3)
    rows[:, 2] = np.nan
    assert panel.feed(rows, STEP_S) == []
    assert panel.n[2] == 0


def test_the_exponent_solves_lundbergs_equation() -> None:
    k, clip = np.array([0.5, 1.0, 3.0]), np.array([3.0, 4.0, 10.0])
    theta = exponent(k, clip)
    assert np.allclose(np.log1p((np.expm1(theta * clip) - theta * clip) / clip**2), theta * k)


def test_limits_grow_with_the_number_of_series_and_with_steps_an_hour() -> None:
    def limit(series: int, step_s: float) -> float:
        panel = Panel(np.zeros(series, np.int64))
        panel.feed(noise(LEARNED, series) * step_s / STEP_S, step_s)
        return float(panel._limit.mean())

    assert limit(4, 0.5) < limit(400, 0.5)
    assert limit(40, 0.5) < limit(40, 0.05)


def test_what_waits_for_a_core_explain_is_no_rise() -> None:
    rng, rows = np.random.default_rng(3), noise(400, 6)
    waits = np.where(rng.random(rows.shape) < 0.3, 0.05, 0.0) * rng.random(rows.shape)
    waits[200:, 2] += 0.1
    held_up = rows + waits
    assert {series for _, series in Panel(np.zeros(6, np.int64)).feed(held_up, STEP_S)} == {2}
    assert Panel(np.zeros(6, np.int64)).feed(held_up, STEP_S, waits) == []


def test_a_rise_beside_waits_for_a_core_is_found() -> None:
    rng, rows = np.random.default_rng(3), noise(400, 6)
    waits = 0.1 * rng.random(rows.shape)
    rows[200:, 4] += 0.1
    crossed = Panel(np.zeros(6, np.int64)).feed(rows + waits, STEP_S, waits)
    assert {series for _, series in crossed} == {4}
    assert crossed[0][0] < 215
