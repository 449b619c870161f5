"""Restarts that page one does not count are said, with what is charged meanwhile."""

from __future__ import annotations

from briefs import briefed_bill
from results import RESULT, filled
from taut.briefing.uncounted_restarts import left_out
from taut.result.types import AnalysisResult

ATTEMPTS = {
    "jobs": 1, "attempts": 2, "restarted_jobs": 1, "outcomes": {"failed": 1, "not told": 1}, "total_rank_ns": 100,
    "held_rank_ns": 49, "down_ns": 16_700_000_000,
    "entries": [{"fate": "kept", "rank_ns": 49}, {"fate": "down", "rank_ns": 51}],
    "list": [{"outcome": "failed", "reason": "exit code -9"}],
}  # fmt: skip


def test_one_restart_is_no_rate() -> None:
    result = filled(AnalysisResult, RESULT | {"attempts": ATTEMPTS, "whatif": {"slowdown": 1.4}})
    (said,) = left_out([result], [briefed_bill({"categories": [{"name": "downtime after failures", "share": 0.38}]})])
    assert said.startswith("Not in the figures above: restarts. 1 of 2 attempts of")
    assert "(exit code -9)" in said
    assert "16.7 s, 51 % of the time" in said
    assert "38 % of this bill" in said
    assert "One event: no monthly figure." in said


def test_without_restarts_nothing_is_left_out() -> None:
    assert list(left_out([filled(AnalysisResult, RESULT)], [])) == []
