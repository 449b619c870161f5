"""What mending a cause is worth where it stays as it was since it began: steps before that are in its share of the run."""

from __future__ import annotations

from collections.abc import Sequence

from taut.result.brief_types import BriefedRun, Course, SinceBegun
from taut.result.types import BriefCause, Estimate


def since_begun(runs: Sequence[BriefedRun], causes: Sequence[BriefCause]) -> SinceBegun | None:
    """Of the first repair that began after the first step of the only run; None where there is none."""
    for number, cause in enumerate(causes, 1):
        if len(runs) == 1 and cause.repair and cause.steps and cause.share is not None and runs[0].course is not None:
            first = runs[0].result.job.first_step
            before = 0 if first is None else cause.steps[0] - first
            part = _part(runs[0].course, cause.steps[0])
            if before > 0 and 0 < part < 1:
                return SinceBegun(
                    cause=number,
                    steps_before=before,
                    share=_over(cause.share, part, 1.0),
                    money_per_month=None if cause.money_per_month is None else _over(cause.money_per_month, part, None),
                )
    return None


def _part(course: Course, step: int) -> float:
    """Share of the clock from a step on; where steps are drawn together, from the row that holds it on."""
    row = max((k for k, first in enumerate(course.step) if first <= step), default=0)
    return 1.0 if not row or not course.end_s[-1] else 1 - course.end_s[row - 1] / course.end_s[-1]


def _over(estimate: Estimate, part: float, most: float | None) -> Estimate:
    ends = (None if end is None else float(end) / part for end in (estimate.value, estimate.lo, estimate.hi))
    value, lo, hi = (end if end is None or most is None else min(end, most) for end in ends)
    return Estimate(value=value or 0.0, lo=lo, hi=hi)
