"""Runs that differ by more than their jitter: oracle, size under several nulls, power, and near-misses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from taut.core.differences import differ, pooled, ratio, shifted

SERIES = 1000


def draw(null: str, rng: Any, steps: int, series: int = SERIES) -> Any:
    """Series × steps around 100."""
    if null == "white":
        return 100 + rng.standard_normal((series, steps))
    if null == "heavy tails":
        return 100 + rng.standard_t(2, (series, steps))
    if null == "hiccups":
        return 100 + rng.standard_normal((series, steps)) + 30 * (rng.random((series, steps)) < 0.03)
    noise = rng.standard_normal((series, steps + 30))
    for i in range(1, steps + 30):
        noise[:, i] += 0.5 * noise[:, i - 1]
    return 100 + noise[:, 30:]


def alone(tables: list[Any]) -> Any:
    """Chance of every series when it is the only one that was measured."""
    found = [differ([table[i : i + 1] for table in tables]) for i in range(len(tables[0]))]
    return np.array([float(one.p[0]) for one in found if one is not None])


@pytest.mark.parametrize("null", ["white", "heavy tails", "hiccups", "red"])
@pytest.mark.parametrize(("runs", "steps"), [(2, 10), (2, 32), (6, 16)])
def test_false_alarms_stay_near_their_rate(null: str, runs: int, steps: int) -> None:
    """Nominal size: 5 %, together with the other series and alone."""
    rng = np.random.default_rng([runs, steps])
    tables = [draw(null, rng, steps) for _ in range(runs)]
    found = differ(tables)
    assert found is not None
    assert (found.p <= 0.05).mean() <= 0.05 * 1.5
    assert (alone([table[:300] for table in tables]) <= 0.05).mean() <= 0.05 * 1.5


def test_two_runs_are_no_surer_than_yuens_test_and_close_to_it() -> None:
    """The correction for red steps can only raise the chance."""
    rng = np.random.default_rng(1)
    a, b = draw("white", rng, 40, 200), draw("white", rng, 40, 200) + 0.5
    found = differ([a, b])
    assert found is not None
    plain = stats.ttest_ind(a, b, axis=1, equal_var=False, trim=0.2).pvalue
    assert (found.p >= plain - 1e-9).all()
    assert np.corrcoef(np.log(found.p), np.log(plain))[0, 1] > 0.95


def test_a_shift_is_found_where_it_is() -> None:
    rng = np.random.default_rng(2)
    a, b = draw("red", rng, 30), draw("red", rng, 30)
    b[:100] += 4
    found = differ([a, b])
    assert found is not None
    assert (found.p[:100] <= 0.01).mean() >= 0.8  # measured: 0.89
    assert (found.p[100:] <= 0.01).mean() <= 0.015


@pytest.mark.parametrize("null", ["white", "heavy tails", "red"])
@pytest.mark.parametrize("steps", [10, 24, 40])
def test_two_runs_of_one_process_have_changed_at_the_stated_rate(null: str, steps: int) -> None:
    rng = np.random.default_rng([7, steps])
    a, b = draw(null, rng, steps), draw(null, rng, steps)
    p = shifted(a, b)
    assert (p <= 0.05).mean() <= 0.05 * 1.5
    one_by_one = np.array([shifted(a[i : i + 1], b[i : i + 1])[0] for i in range(300)])
    assert (one_by_one <= 0.05).mean() <= 0.05 * 1.5


def test_a_shift_that_begins_inside_a_run_is_found() -> None:
    """It makes the run look so red and wide that the jitter of both together would hide it."""
    rng = np.random.default_rng(8)
    a, b = draw("white", rng, 31, 40), draw("white", rng, 31, 40)
    b[:, 10:] += 10
    together = differ([a, b])
    assert together is not None
    assert (shifted(a, b) <= 0.01).mean() >= 0.95
    assert (shifted(b, a) <= 0.01).mean() >= 0.95
    assert (together.p <= 0.01).mean() <= 0.5


def test_nothing_is_listed_where_a_hundred_skewed_series_are_unchanged() -> None:
    """Near miss: skewed steps look quiet by chance, and the correction over all series looks at the far tail."""
    listed = 0
    for seed in range(100):
        rng = np.random.default_rng([9, seed])
        p = shifted(*(100 + rng.lognormal(0, 1, (100, 24)) for _ in range(2)))
        listed += bool((p * 100 <= 0.05).any())
    assert listed <= 5


def test_a_run_that_only_varies_more_has_not_shifted() -> None:
    rng = np.random.default_rng(10)
    a, b = draw("white", rng, 30), draw("white", rng, 30)
    assert (shifted(a, 100 + 4 * (b - 100)) <= 0.05).mean() <= 0.075


def test_one_hiccup_is_no_shift() -> None:
    rng = np.random.default_rng(3)
    a, b = draw("white", rng, 12, 50), draw("white", rng, 12, 50)
    b[:, 5] += 500
    found = differ([a, b])
    assert found is not None
    assert (found.p <= 0.05).mean() <= 0.075


def test_the_spread_between_runs_is_inside_its_interval() -> None:
    """Six runs whose levels have a standard deviation of 3, in steps that have one of 1."""
    rng = np.random.default_rng(4)
    found = differ([draw("white", rng, 20, 400) + 3 * rng.standard_normal((400, 1)) for _ in range(6)])
    assert found is not None
    assert np.mean((found.lo <= 3) & (found.hi >= 3)) >= 0.92
    assert np.median(found.between) == pytest.approx(3, rel=0.15)


def test_runs_of_a_few_steps_are_not_judged() -> None:
    assert differ([np.ones((1, 4)), np.ones((1, 30))]) is None
    assert ratio(np.ones(4), np.ones(30)) is None


def test_series_without_any_spread_are_judged_by_the_clock() -> None:
    found = differ([np.full((2, 8), 100.0), np.array([[100.0], [101.0]]) * np.ones(8)])
    assert found is not None
    assert found.p[0] == pytest.approx(1)
    assert found.p[1] < 0.01


@pytest.mark.parametrize("null", ["white", "heavy tails", "red"])
def test_ratios_err_at_their_rate_alone_and_pooled(null: str) -> None:
    rng = np.random.default_rng(5)
    sides = [(draw(null, rng, 24, 300), draw(null, rng, 24, 300)) for _ in range(4)]
    found = [[ratio(a[i], b[i]) for a, b in sides] for i in range(300)]
    single = [one[0].p for one in found if one[0] is not None]
    together = [whole.p for one in found if (whole := pooled([r for r in one if r is not None])) is not None]
    assert np.mean(np.array(single) <= 0.05) <= 0.075
    assert np.mean(np.array(together) <= 0.05) <= 0.075


def test_a_ratio_has_an_interval_and_pooling_narrows_it() -> None:
    rng = np.random.default_rng(6)
    many = [ratio(rng.normal(100, 3, 30), rng.normal(120, 3, 30)) for _ in range(5)]
    known = [one for one in many if one is not None]
    whole = pooled(known)
    assert whole is not None
    one, all_of_them = known[0].estimate, whole.estimate
    assert one["lo"] < 1.2 < one["hi"]
    assert all_of_them["hi"] - all_of_them["lo"] < 0.7 * (one["hi"] - one["lo"])
