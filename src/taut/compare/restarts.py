"""Restarts: where a run of a job goes on from another, step time and its spread before and after.

Null hypothesis: a restart changes neither. Steps near the restart are compared, NEAR on each side, as ratios of means
that allow for red steps (``core/differences.py``); the spread is the mean distance from the median of a side. Over
several restarts the ratios are pooled. A spread that falls says that restarts reset instability, one that grows that they
amplify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from msgspec import UNSET, UnsetType, convert

from taut.core.array_types import Floats
from taut.core.differences import Ratio, pooled, ratio
from taut.core.trend import corrected
from taut.diagnose.repeats import Repeat
from taut.result.types import Change, ComparedRun, Estimate, Restart, Restarts

NEAR = 32
"""Steps on either side of a restart that tell what it did."""
MISSED = 1.0
"""A run that begins later than this many lengths of the run before it after its end is another sample, not its restart."""
FALSE_ALARMS = 0.05
"""Chance that restarts which change nothing are said to."""


def restarts(rows: Sequence[ComparedRun], repeats: Sequence[Repeat], jobs: Sequence[str]) -> Restarts:
    """Every restart with its ratios, and what all of them say together."""
    at = list(_follow(rows, jobs))
    sides = [_sides(repeats[i], repeats[j]) for i, j in at]
    level = [ratio(before, after) for before, after in sides]
    # Nothing is trimmed off distances from a median: of skewed steps that would take one side only.
    spread = [ratio(_distances(before), _distances(after), trimmed=0.0) for before, after in sides]
    level_q, spread_q = (corrected([None if r is None else r.p for r in many]) for many in (level, spread))
    pooled_spread = _pooled(spread)
    found = [
        Restart(
            job=rows[i].job,
            before=rows[i].run,
            after=rows[j].run,
            step=rows[j].first_step,
            rerun_steps=max(0, min(rows[i].last_step, rows[j].last_step) - rows[j].first_step + 1),
            before_ns=float(np.median(sides[k][0])),
            after_ns=float(np.median(sides[k][1])),
            step_time=_change(level[k], level_q[k]),
            spread=_change(spread[k], spread_q[k]),
        )
        for k, (i, j) in enumerate(at)
    ]
    return Restarts(at=found, step_time=_pooled(level), spread=pooled_spread, effect=_effect(pooled_spread))


def step_time(before: Repeat, after: Repeat) -> Change | None:
    """Time of a step, after over before, of whole runs; None where too few steps tell."""
    return _change(ratio(before.step_ns, after.step_ns), UNSET)


def _follow(rows: Sequence[ComparedRun], jobs: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of runs of which the second restarts the first: it begins after the first began, and not far beyond its end."""
    latest: dict[str, int] = {}
    for j, job in enumerate(jobs):
        if job in latest:
            before, begin = rows[latest[job]], rows[j].first_step
            length = before.last_step - before.first_step + 1
            if before.first_step < begin <= before.last_step + 1 + MISSED * length:
                yield latest[job], j
        latest[job] = j


def _sides(before: Repeat, after: Repeat) -> tuple[Floats, Floats]:
    """Step times just before and just after."""
    return before.step_ns[-NEAR:].astype(np.float64), after.step_ns[:NEAR].astype(np.float64)


def _distances(times: Floats) -> Floats:
    """Distances from the median."""
    return np.abs(times - np.median(times))


def _pooled(ratios: Sequence[Ratio | None]) -> Change | None:
    found = pooled([one for one in ratios if one is not None])
    return None if found is None else Change(ratio=convert(found.estimate, Estimate), p=found.p)


def _change(found: Ratio | None, q: float | UnsetType | None) -> Change | None:
    return None if found is None else Change(ratio=convert(found.estimate, Estimate), p=found.p, q=q)


def _effect(spread: Change | None) -> Literal["reset", "amplify", "none shown"] | None:
    """What restarts do to instability; None where no restart tells."""
    if spread is None:
        return None
    if spread.p > FALSE_ALARMS:
        return "none shown"
    return "reset" if spread.ratio.value < 1 else "amplify"
