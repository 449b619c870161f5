"""A cause that began within the run is worth more if it stays."""

from __future__ import annotations

from msgspec.structs import replace

from briefs import briefed_run
from results import RESULT
from taut.briefing.since_begun import since_begun
from taut.result.brief_types import BriefedRun, Course
from taut.result.types import BriefCause, Estimate

COURSE = Course(step=[1, 2, 3, 4], end_s=[1.0, 2.0, 4.0, 5.0], shares={}, money=None, currency=None)


def run() -> BriefedRun:
    return replace(briefed_run(job=RESULT["job"] | {"first_step": 1, "last_step": 4, "steps": 4}), course=COURSE)


def cause(first: int) -> BriefCause:
    return BriefCause(
        what="rank 3", share=Estimate(value=0.3, lo=0.15, hi=0.9), share_is="recoverable", currency="EUR", source="measured",
        money_per_month=Estimate(value=30.0), confidence=1.0, do="mend it", repair=True, steps=[first, 4], command=None,
    )  # fmt: skip


def test_its_share_is_of_the_clock_since_then() -> None:
    found = since_begun([run()], [cause(3)])
    assert found is not None
    assert (found.cause, found.steps_before) == (1, 2)
    assert found.share == Estimate(value=0.3 / 0.6, lo=0.15 / 0.6, hi=1.0)
    assert found.money_per_month == Estimate(value=50.0)


def test_a_cause_from_the_first_step_on_is_in_all_of_it() -> None:
    assert since_begun([run()], [cause(1)]) is None
