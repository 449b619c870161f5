"""What mending is expected to save, and what runs saved: both with intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from taut.replay.saving_interval import replayed_saving
from taut.result.decided_saving import measured_saving
from taut.result.types import Estimate, Range


def steps(rng: np.random.Generator, level: float, between: float = 0.02) -> list[int]:
    return [int(x) for x in 1e6 * level * np.exp(rng.normal(0, between) + rng.normal(0, 0.1, 30))]


def test_an_expectation_is_as_wide_as_steps_and_replay_are_off_together() -> None:
    error = Range(lo=-0.16, hi=0.6)
    alone = replayed_saving(Estimate(value=0.2), error)
    assert (alone.lo, alone.hi) == (pytest.approx(0.2 * 0.84**1.1915, rel=1e-3), pytest.approx(0.2 * 1.6**1.1915, rel=1e-3))
    both = replayed_saving(Estimate(value=0.2, lo=0.17, hi=0.23), error)
    assert both.lo == pytest.approx(0.2 - np.hypot(0.03, 0.2 - alone.lo))
    assert replayed_saving(Estimate(value=0.9, lo=0.8, hi=0.95), error).hi == 1.0


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (2, 2)])
def test_intervals_hold_what_was_saved(before: int, after: int) -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        found = measured_saving([steps(rng, 1.0) for _ in range(before)], [steps(rng, 0.8) for _ in range(after)])
        assert found is not None
        lo, hi = found.saving.lo, found.saving.hi
        assert lo is not None
        assert hi is not None
        held += lo <= 0.2 <= hi
    assert held >= 0.92 * 200  # of 95 %, two standard errors of 200


def test_runs_that_differ_widen_the_interval_and_more_runs_narrow_it() -> None:
    rng = np.random.default_rng(2)
    before = [steps(rng, 1.0, between=0.0)]
    alike = measured_saving(before, [steps(rng, 0.8, between=0.0) for _ in range(3)])
    apart = measured_saving(before, [steps(rng, level, between=0.0) for level in (0.6, 0.8, 1.0)])
    one = measured_saving(before, [steps(rng, 0.8, between=0.0)])
    assert alike is not None
    assert apart is not None
    assert one is not None
    assert (one.run_spread, one.runs, alike.runs) == (pytest.approx(0.02), 0, 2)
    assert alike.run_spread < 0.02 < apart.run_spread


def test_too_few_steps_tell_nothing() -> None:
    assert measured_saving([[1, 2, 3]], [[1, 2, 3, 4, 5, 6]]) is None
    assert measured_saving([], [[1, 2, 3, 4, 5, 6]]) is None
