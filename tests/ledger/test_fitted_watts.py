"""Watts of states from joules of blocks: found where states vary, wide where there is little of one."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.array_types import Floats
from taut.ledger.fitted_watts import STATES, Drawn, Fit, fit_watts, wider

WATTS = np.array([610.0, 390.0, 120.0])
RATIOS = {"load": 690.0, "stall": 134.0, "idle": 132.0}


def drawn(share: Floats, spread: float, noise_j: float = 3.0, seed: int = 1) -> Drawn:
    """Eight ranks, 40 windows of about a second: states in these shares, which vary by so much, and joules that scatter."""
    draw = np.random.default_rng(seed)
    seconds = np.maximum(share * draw.normal(1.0, spread, (8, 40, 3)), 0.0)
    joules = seconds @ WATTS + draw.normal(0.0, noise_j, (8, 40))
    return Drawn(seconds, joules, np.ones((8, 40), dtype=np.bool_), 0.1)


def test_a_rare_state_is_wide_and_holds_the_truth() -> None:
    found = fit_watts(drawn(np.array([0.65, 0.29, 0.06]), 0.15, 12.0), RATIOS)
    assert found is not None
    assert abs(found.watts["load"] - 610) < 2 * found.error_w["load"] < 40
    assert abs(found.watts["idle"] - 120) < 2 * found.error_w["idle"]
    assert found.error_w["idle"] > 61  # more than a tenth of the largest: a state of more time would be refused


@pytest.mark.parametrize("seed", range(8))
def test_intervals_hold_the_truth_however_little_is_told(seed: int) -> None:
    """States that are not told apart share a factor, and then their intervals know it."""
    found = fit_watts(drawn(np.array([0.65, 0.29, 0.06]), 0.05, 20.0, seed), RATIOS)
    for state, watts in zip(STATES, WATTS.tolist(), strict=True) if found else ():
        low, high = found.interval(state)
        assert low <= watts <= high, state


def test_stall_and_idle_share_no_factor_where_the_blocks_contradict_it() -> None:
    unlike = drawn(np.array([0.4, 0.3, 0.3]), 0.2, 1.0)
    assert fit_watts(unlike, RATIOS) is not None
    few = Drawn(unlike.seconds[:2, :7], unlike.joules[:2, :7], unlike.known[:2, :7], 0.1)
    found = fit_watts(few, RATIOS)
    assert found is None or abs(found.watts["idle"] / found.watts["stall"] - 132 / 134) > 0.1


def test_errors_hold_what_other_fits_say() -> None:
    fit = Fit({"load": 600.0}, {"load": 3.0}, 20)
    assert wider(fit, [None, Fit({"load": 604.0}, {"load": 1.0}, 20)]).error_w == {"load": 5.0}
    assert wider(fit, [None]) == fit
