"""What to do, the most money first; decisions already taken and their outcomes."""

from __future__ import annotations

from typing import Any

from briefs import blocks, briefed_bill, briefed_control, briefed_run, briefed_scenario, briefing, table, words
from results import FINDING, filled
from taut.render.brief.document import Text
from taut.render.brief.sections.recommendations import recommendations
from taut.result.brief_types import BriefedDecision
from taut.result.types import AuditOutcome, AuditRecord, BriefCosts

HOUR_NS = 3_600_000_000_000
POLICY = FINDING | {
    "id": "f-2", "mode": "structural instability", "ranks": [], "loss_share": {"value": 0.25},
    "policy": {"name": "local-steps=4", "saved_wall_ns": 9}, "confidence": 0.95,
}  # fmt: skip
REMEDY = {"do": "let no new job start on node2, and test it", "ticket": ""}


def recovery(cause: str, month: float, half: float) -> dict[str, Any]:
    share = {"value": 0.07, "lo": 0.06, "hi": 0.08}
    return {"cause": cause, "remedy": f"repair {cause}", "saved_share": share,
            "per_month": {"value": month, "lo": month - half, "hi": month + half}}  # fmt: skip


def bill(*recoveries: dict[str, Any]) -> Any:
    return briefed_bill({"currency": "EUR", "recoverable": list(recoveries)})


def test_a_repair_comes_before_a_policy_that_money_does_not_tell_from_it() -> None:
    run = briefed_run(findings=[FINDING | {"remedy": REMEDY, "confidence": 1.0}, POLICY])
    made = recommendations(briefing(runs=[run], bills=[bill(recovery("f-1", 868, 100), recovery("f-2", 884, 100))]))
    rows = table(made, "Recommendations")
    assert rows[1][0] == "structural instability: all wait for whoever happens to be late"
    assert rows[1][1:] == [
        "let ranks meet every 4 steps only (policy local-steps=4); first check that the model still converges",
        "7 % (6–8)", "884 (784–984)", "95 %",
    ]  # fmt: skip
    assert rows[0] == [
        "straggler cascade: rank 2",
        "let no new job start on node2, and test it; then mend or replace it",
        "7 % (6–8)",
        "868 (768–968)",
        "over 99.9 %",
    ]
    assert "Worth, EUR a month" in words(made)
    assert words(made).index("The repair comes first") < words(made).index("Recommendations, a repair first")


def test_money_decides_the_order() -> None:
    run = briefed_run(findings=[FINDING, POLICY])
    made = recommendations(briefing(runs=[run], bills=[bill(recovery("f-1", 200, 50), recovery("f-2", 884, 100))]))
    assert [row[3] for row in table(made, "Recommendations")] == ["884 (784–984)", "200 (150–250)"]
    assert "The repair comes first" not in words(made)


def test_without_a_bill_findings_are_ordered_by_what_they_bring_back() -> None:
    large = FINDING | {"id": "f-3", "mode": "input stall", "ranks": [], "recoverable_wall_ns": 45_000_000}
    rows = table(recommendations(briefing(runs=[briefed_run(findings=[FINDING, large])])), "Recommendations")
    assert [(row[0], row[2], row[3]) for row in rows] == [
        ("input stall: stage 1", "50 %", "not priced"),
        ("straggler cascade: rank 2", "10 %", "not priced"),
    ]
    assert rows[1][1] == "test and replace rank 2; until then take it out of the job"


def test_a_hang_comes_first_whatever_the_trace_could_save() -> None:
    hang = FINDING | {"id": "f-4", "mode": "hang", "ranks": [9, 14], "recoverable_wall_ns": 0}
    rows = table(recommendations(briefing(runs=[briefed_run(findings=[FINDING, hang])])), "Recommendations")
    assert (rows[0][0], rows[0][2]) == ("hang: ranks 9, 14", "the job runs again")


def test_restarts_that_throw_work_away_are_worth_a_row() -> None:
    entries = [
        {"fate": "kept", "held_rank_ns": 80 * HOUR_NS, "rank_ns": 80 * HOUR_NS},
        {"fate": "discarded at most", "held_rank_ns": 20 * HOUR_NS, "rank_ns": 20 * HOUR_NS},
    ]
    attempts = {"entries": entries, "held_rank_ns": 100 * HOUR_NS, "discarded_by": {"preempted": 20 * HOUR_NS}}
    rows = table(recommendations(briefing(runs=[briefed_run(findings=[], attempts=attempts)])), "Recommendations")
    assert rows[0][0].endswith("most of it where an attempt ended as preempted")
    assert rows[0][2] == "at most 20 % of the held time"


def test_control_loops_and_policies_of_scenarios() -> None:
    relation = {"kind": "conflict", "controllers": ["hpa", "vpa"], "target": "web", "q": 0.001, "cost": {},
                "advice": {"says": "let only hpa scale web", "separation": "x", "runs": 5, "shows": 5}}  # fmt: skip
    gain = {"name": "overlap", "together": False, "ranks": 64, "rate_change": 0.05, "cost_per_unit_change": -0.04}
    made = recommendations(briefing(
        controls=[briefed_control({"relations": [relation], "regime": {"class": "incoherent"}})],
        scenarios=[briefed_scenario({"gains": [gain]})],
    ))  # fmt: skip
    shown = {
        "gains": [gain],
        "policies": [{"ranks": 1, "policies": [{"name": "overlap", "says": "transfers hide"}], "forecast": {}}],
    }
    cost = BriefCosts(per_month=1000.0, useful_per_month=None, currency="USD", basis="")
    priced = recommendations(briefing(scenarios=[briefed_scenario(shown)], costs=cost))
    assert table(priced, "Recommendations")[0][1] == "transfers hide (policy overlap)"
    assert table(priced, "Recommendations")[0][3] == "40.00"
    assert table(made, "Recommendations") == [
        [
            "gpt-175b at 64 ranks",
            "policy overlap",
            "5 % more work a second, a unit of work 4 % cheaper",
            "not priced",
            "modelled",
        ],
        ["conflict: hpa and vpa on web", "let only hpa scale web", "removes it in 5 simulated runs", "not priced", "99.9 %"],
    ]


def record(**details: Any) -> AuditRecord:
    return AuditRecord(index=7, kind="decision", at="2026-11-01T10:00:00.0Z", version="1", details=details, sha256="00")


def test_decisions_already_taken_and_their_outcomes() -> None:
    outcome = filled(
        AuditOutcome,
        {"expected_saving": {"value": 0.28}, "measured_saving": {"value": 0.25, "lo": 0.21, "hi": 0.29}, "says": "kept"},
    )
    decisions = [
        BriefedDecision(record=record(do="drain node3", by="on-call"), outcome=outcome),
        BriefedDecision(record=record(do="wait", by=None, expected={"value": 0.1, "lo": 0.05, "hi": 0.15}), outcome=None),
    ]
    rows = table(recommendations(briefing(decisions=decisions)), "Decisions already taken")
    assert rows[0] == ["2026-11-01", "on-call", "drain node3", "28 %", "25 % (21–29)", "good: kept: at least what was expected"]
    assert rows[1] == ["2026-11-01", "taken out", "wait", "10 % (5–15)", "–", "not measured yet"]


def test_nothing_found_is_healthy_only_where_it_was_measured() -> None:
    well = briefed_run(findings=[], verdict={"text": "", "class": "healthy"})
    assert any("Nothing is recommended" in one.text for one in blocks(recommendations(briefing(runs=[well])), Text))
    unknown = briefed_run(findings=[], verdict={"text": "", "class": "unknown"})
    assert "Nothing can be recommended" in words(recommendations(briefing(runs=[unknown])))
    silent = briefed_control({"regime": {"because": "demand is not recorded"}})
    assert "demand is not recorded" in words(recommendations(briefing(controls=[silent])))
