"""How the run went: shares by step, cost so far, attempts."""

from __future__ import annotations

from briefs import blocks, briefed_bill, briefed_run, briefing, table, words
from taut.render.brief.document import Areas, Picture
from taut.render.brief.sections.course import course
from taut.result.brief_types import Course
from taut.result.types import CostOverTime

HOUR_NS = 3_600_000_000_000
FOUND = Course(
    step=[3, 4], end_s=[1.0, 2.0], shares={"compute": [0.9, 0.5], "waiting": [0.1, 0.5]},
    money={"compute": [1.0, 2.0], "waiting": [0.1, 2.0]}, currency="EUR",
)  # fmt: skip
JOB = {"name": "toy", "ranks": 4, "steps": 2, "unit": "step"}
ATTEMPTS = {
    "jobs": 1, "restarted_jobs": 1, "attempts": 2, "outcomes": {"failed": 1, "completed": 1}, "total_rank_ns": 10 * HOUR_NS,
    "down_ns": HOUR_NS,
    "entries": [
        {"fate": "kept", "rank_ns": 7 * HOUR_NS, "held": True, "held_rank_ns": 7 * HOUR_NS},
        {"fate": "down", "rank_ns": 3 * HOUR_NS, "held": False, "held_rank_ns": 0},
    ],
    "list": [{"job": "j", "attempt": 1, "outcome": "failed", "reason": "SIGKILL", "ran_ns": HOUR_NS, "first_step": 1,
              "last_step": 28}],
}  # fmt: skip


def test_shares_by_step_and_cost_so_far() -> None:
    made = course(briefing(runs=[briefed_run(course=FOUND, job=JOB)]))
    shares, cost = (one.chart for one in blocks(made, Picture))
    assert isinstance(shares, Areas)
    assert isinstance(cost, Areas)
    assert (list(shares.x), shares.shares) == ([3, 4], True)
    assert (list(cost.x), cost.y_axis) == ([0.0, 1.0, 2.0], "EUR so far")
    assert "Waiting for others: 10 % to 50 % of the rank time of a step, most in step 4." in words(made)
    assert "4.00 EUR in all: compute 2.00 EUR (50 %), waiting 2.00 EUR (50 %)." in words(made)


def test_without_a_price_it_says_how_to_give_one_unless_a_bill_tells() -> None:
    run = briefed_run(course=Course(step=[0], end_s=[1.0], shares={"compute": [1.0]}, money=None, currency=None), job=JOB)
    assert "--gpu-hour" in words(course(briefing(runs=[run])))
    over = CostOverTime(time_ns=[0, 5 * HOUR_NS], money={"compute": [0.0, 7.0]}, undated=1.5)
    made = course(briefing(runs=[run], bills=[briefed_bill({"currency": "EUR"}, over_time=over)]))
    assert "--gpu-hour" not in words(made)
    assert "7.00 EUR in all: compute 7.00 EUR (100 %)." in words(made)
    assert "1.50 EUR more have no date" in words(made)
    chart = blocks(made, Picture)[-1].chart
    assert isinstance(chart, Areas)
    assert (list(chart.x), chart.x_axis) == ([0.0, 5.0], "hours since the bill begins")


def test_the_largest_loss_is_told_where_nobody_waited() -> None:
    gaps = Course(step=[0, 1], end_s=[1.0, 2.0], shares={"compute": [0.9, 0.5], "gaps": [0.1, 0.5]}, money=None, currency=None)
    said = words(course(briefing(runs=[briefed_run(course=gaps, job=JOB | {"gates": 3})])))
    assert "Gaps (host, input, launch): 10 % to 50 % of the rank time of a step, most in step 1. No rank waited" in said
    said = words(course(briefing(runs=[briefed_run(course=gaps, job=JOB | {"gates": 0})])))
    assert "who waits for whom is not known" in said


def test_job_logs_without_traces_tell_attempts() -> None:
    made = course(briefing(runs=[briefed_run(attempts=ATTEMPTS)]))
    assert "Steps were not traced." in words(made)
    assert "2 attempts of 1 job; 1 job restarted; 60.0 min between attempts. How they ended: 1 failed, 1 completed." in words(
        made
    )
    assert "work that was kept 70 %, 7.00 h, between attempts 30 %, 3.00 h, nothing held." in words(made)
    assert table(made, "Attempts")[0] == ["j", "1", "failed", "60.0 min", "1–28", "SIGKILL"]


def test_of_many_jobs_those_that_lost_most_are_listed() -> None:
    worst = {"job": "j7", "attempts": 3, "held_rank_ns": 4 * HOUR_NS, "discarded_rank_ns": 3 * HOUR_NS, "at_most": True}
    made = course(briefing(runs=[briefed_run(attempts=ATTEMPTS | {"jobs": 9, "worst": [worst | {"down_ns": 0}]})]))
    assert table(made, "Jobs that lost most")[0] == ["j7", "3", "4.00 h", "at most 3.00 h", "0 ns"]


def test_nothing_measured_is_said() -> None:
    assert "was not measured" in words(course(briefing()))


def test_steps_that_log_and_traces_count_apart_are_told() -> None:
    row = {"job": "j", "attempt": 2, "first_step": 29, "last_step": 108}
    apart = ATTEMPTS | {"list": [row], "traced_attempt": 2, "held_rank_ns": 14 * HOUR_NS}
    said = words(course(briefing(runs=[briefed_run(course=FOUND, job=JOB, attempts=apart)])))
    assert "step 3 is the first that was traced of attempt 2." in said
    assert "Of the time in which attempts ran, 50 % was kept." in said
    alike = apart | {"list": [row | {"first_step": 1}]}
    assert "count as the traces" not in words(course(briefing(runs=[briefed_run(course=FOUND, job=JOB, attempts=alike)])))
