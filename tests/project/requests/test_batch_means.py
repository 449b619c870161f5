"""Intervals from the parts of a window."""

from __future__ import annotations

import numpy as np
import pytest

from taut.project.requests.batch_means import Blocks
from taut.project.workload import Estimate


def test_intervals_hold_the_mean_in_about_95_of_100_draws() -> None:
    rng = np.random.default_rng(1)
    came = np.linspace(0, 10, 800, endpoint=False)
    held = 0
    for _ in range(400):
        found = Blocks((0.0, 10.0), came).mean(rng.standard_normal(800) + 5)
        held += found.lo <= 5 <= found.hi
    assert held / 400 == pytest.approx(0.95, abs=0.03)


def test_what_is_unknown_has_no_mean_and_few_parts_no_interval() -> None:
    blocks = Blocks((0.0, 1.0), np.array([0.1, 0.2]))
    assert blocks.mean(np.array([np.nan, np.nan])) is None
    assert blocks.mean(np.array([1.0, 3.0])) == Estimate(2.0)
    assert blocks.estimate(None, lambda some: 1.0) is None
