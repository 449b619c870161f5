"""Steps by the numbers of the job's log, where that tells them."""

from __future__ import annotations

from typing import Any

import pytest

from results import RESULT, filled
from taut.briefing.log_steps import log_offset, steps_words
from taut.render.brief.evidence_words import by_log
from taut.result.types import AnalysisResult


def analysed(first: int, last: int, **attempts: Any) -> AnalysisResult:
    rows = [{"attempt": 1, "first_step": 1, "last_step": 28}, {"attempt": 2, "first_step": first, "last_step": last}]
    told = {"jobs": 1, "traced_attempt": 2, "list": rows} | attempts
    return filled(AnalysisResult, RESULT | {"attempts": told, "job": RESULT["job"] | {"first_step": 1, "last_step": 79}})


@pytest.mark.parametrize(
    ("first", "last", "offset"),
    [
        (29, 108, 29),  # the profiler's first step is not kept
        (30, 108, 29),
        (1, 79, None),  # the same numbers
        (29, 200, None),  # the attempt went on after the trace: which step is which is not told
    ],
)
def test_the_log_tells_it_where_both_ends_agree(first: int, last: int, offset: int | None) -> None:
    assert log_offset(analysed(first, last)) == offset


def test_several_jobs_tell_nothing() -> None:
    assert log_offset(analysed(29, 108, jobs=2)) is None


def test_both_numbers_are_written() -> None:
    assert steps_words(21, 79, "step", 29) == "steps 50–108 of its log (traced steps 21–79)"
    assert steps_words(21, 79, "step", None) == "steps 21–79"
    assert by_log("from step 21 on, it waits", [21, 79], 29) == "from log step 50 (traced step 21) on, it waits"
    assert by_log("it waits from step 21 on", [21, 79], 29) == "it waits from step 21 on"
