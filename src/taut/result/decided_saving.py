"""What mending a finding is expected to save of the step time, and what runs from after it saved, each with its interval.

What is expected is the truth about the job: how well its steps agree, and how wrong the replay may be. How much one run
differs from the next belongs to what is measured, so that it counts once. Size and power of holding one against the other
(``audit/outcome.py``): ``bench/audit_outcomes.py``, docs/audit.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats
from taut.core.differences import LEAST_STEPS, SURE, levels
from taut.diagnose.against_baseline import WHOLE_RUNS
from taut.replay.saving_interval import lab_error, replayed_saving
from taut.result.types import AnalysisResult, Estimate, Finding

ASSUMED_FREEDOM = 2
"""What the assumed spread between runs is worth, in further runs that would have told it."""


def expected_saving(result: AnalysisResult, finding: Finding) -> Estimate | None:
    """What mending a finding saves; None without a wall, and without ends where nobody knows how wrong it may be."""
    share, error = finding.recoverable_share, lab_error(finding)
    if not result.job.wall_ns:
        return None
    if share is None or error is None:
        return Estimate(value=finding.recoverable_wall_ns / result.job.wall_ns)
    return replayed_saving(share, error)


class Measured(Struct, frozen=True):
    """What was saved, and by how much runs were taken to differ."""

    saving: Estimate
    run_spread: float
    """Of the mean step from run to run, as a share."""
    runs: int
    """That told of it, beyond one before and one after; with none, it is assumed."""


def measured_saving(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> Measured | None:
    """Share of the mean step that runs after save against runs before (step times of each); None where steps are too few.

    Mean steps, because what is expected is a share of the wall: a trimmed mean would not see what comes in every fourth
    step only. Each run has an error of its own steps; runs differ by a spread that is assumed (WHOLE_RUNS, worth
    ASSUMED_FREEDOM runs) and corrected by what the runs of either side differ by.
    """
    runs = [np.asarray(steps, dtype=np.float64)[None, :] for steps in (*before, *after)]
    if not before or not after or min(run.shape[1] for run in runs) < LEAST_STEPS:
        return None
    found = levels(runs, trimmed=0.0)
    mean = np.array([level.mean[0] for level in found])
    if (mean <= 0).any():
        return None
    error = np.array([level.error[0] for level in found]) / mean**2
    freedom = np.array([level.freedom[0] for level in found])
    side = np.repeat([0, 1], [len(before), len(after)])
    return _measured(np.log(mean), error, freedom, side)


def _measured(log: Floats, error: Floats, freedom: Floats, side: Floats) -> Measured:
    from scipy.special import stdtrit

    count = np.bincount(side)
    centre = np.bincount(side, log) / count
    between = ((log - centre[side]) ** 2 - error * (1 - 1 / count[side])).sum()
    runs = len(log) - 2
    spread = (ASSUMED_FREEDOM * WHOLE_RUNS**2 + max(float(between), 0.0)) / (ASSUMED_FREEDOM + runs)
    # Variance of the difference of the two sides' means, its parts, and by Satterthwaite what it is worth.
    parts = np.append(error / count[side] ** 2, spread * (1 / count).sum())
    worth = parts.sum() ** 2 / (parts**2 / np.append(freedom, ASSUMED_FREEDOM + runs)).sum()
    change, reach = float(centre[1] - centre[0]), float(stdtrit(worth, (1 + SURE) / 2) * np.sqrt(parts.sum()))
    value, hi, lo = (-expm1(change + one * reach) for one in (0, -1, 1))
    return Measured(Estimate(value=value, lo=lo, hi=hi), float(np.sqrt(spread)), runs)
