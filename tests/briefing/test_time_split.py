"""The parts of the accelerator time sum to the whole, and each says which cause answers it."""

from __future__ import annotations

import pytest

from results import FINDING, RESULT, filled
from taut.briefing.time_split import split_of_run
from taut.result.types import AnalysisResult, BriefCause, Estimate

LEDGER = {
    "total_rank_ns": 1000, "entries": [
        {"fate": "productive", "rank_ns": 600}, {"fate": "fault wait", "rank_ns": 250}, {"fate": "gap", "rank_ns": 120},
        {"fate": "unexplained", "rank_ns": 30},
    ],
}  # fmt: skip


def test_parts_sum_to_one_and_name_their_cause() -> None:
    result = filled(AnalysisResult, RESULT | {"ledger": LEDGER, "findings": [FINDING | {"id": "f-1", "ranks": [3]}]})
    cause = BriefCause(
        what="rank 3", share=Estimate(value=0.2), share_is="recoverable", money_per_month=None, currency=None,
        source="measured", confidence=1.0, do="test it", command=None, finding="f-1",
    )  # fmt: skip
    parts = split_of_run(result, [cause])
    assert sum(one.share for one in parts) == pytest.approx(1)
    assert [(one.what, one.do) for one in parts] == [
        ("useful work", None),
        ("waiting for whoever is at fault", "cause 1 below"),
        ("gaps: accelerators that wait for their host", "look at input, launches and checkpoints on the hosts"),
        ("everything else", "below 3 % nothing is looked for"),
    ]


def test_without_a_ledger_there_are_none() -> None:
    assert split_of_run(filled(AnalysisResult, RESULT | {"ledger": None}), []) == []
