"""Page one: what a cause costs and gives back, what is sure and what was not tested, and the question that belongs to it."""

from __future__ import annotations

from typing import Any

from briefs import briefed_run, briefing, table, words
from results import RESULT
from taut.render.brief.sections.page_one import page_one
from taut.result.brief_types import Briefing
from taut.result.types import BriefCause, BriefCosts, Demand, Estimate

SOURCE: dict[str, Any] = {"currency": "EUR", "source": "measured", "command": None}
REPAIR = BriefCause(
    what="rank 3 (node3): slower than the others", share=Estimate(value=0.07, lo=0.04, hi=0.14), share_is="recoverable",
    costs=Estimate(value=0.07, lo=0.04, hi=0.14), money_per_month=Estimate(value=800.0, lo=400.0, hi=1600.0), confidence=1.0,
    sure_of="it is late", untested="whether node3 is the reason: run rank 3 elsewhere", do="test node3", repair=True,
    finding="f-1", steps=[21, 79], evidence="it spends 26 ms more", **SOURCE,
)  # fmt: skip
NOBODY = BriefCause(
    what="waiting for whoever happens to be late", share=Estimate(value=0.074), share_is="recoverable", finding="f-2",
    costs=Estimate(value=0.25, lo=0.21, hi=0.29), stays="the rest stays", money_per_month=None, confidence=0.95,
    sure_of="nobody causes it alone", do="meet less often", **SOURCE,
)  # fmt: skip
MOVING = BriefCause(
    what="moving data", share=Estimate(value=0.081), costs=Estimate(value=0.081), share_is="lost",
    money_per_month=Estimate(value=966.0), confidence=None, do="overlap it", **SOURCE,
)  # fmt: skip
COST = BriefCosts(
    per_month=11_923.2, useful_per_month=6530.0, currency="EUR", basis="the bill", accelerators=8, per_accelerator_hour=2.07
)


def demand(what: str, finding: str | None) -> Demand:
    return Demand(
        what=what, worth="", money_per_year=None, currency=None, test="a test", reach="a number", command="", finding=finding
    )  # fmt: skip


def told(**more: Any) -> Briefing:
    job = RESULT["job"] | {"ranks": 8, "steps": 79, "first_step": 1, "wall_ns": 11_700_000_000}
    run = briefed_run(job=job, findings=[{"id": "f-1"}, {"id": "f-2"}], recoverable_wall_ns=1_719_900_000)
    return briefing(runs=[run], causes=[REPAIR, NOBODY, MOVING], costs=COST, verdict="It waits.", **more)


def test_what_it_costs_and_what_comes_back_are_columns_of_their_own() -> None:
    rows = table(page_one(told()), "The causes that matter most")
    assert [row[1:2] + row[3:5] for row in rows] == [
        ["7 % (4–14)", "7 % (4–14)", "800 (400–1,600)"],
        ["25 % (21–29)", "7.4 %", "not priced"],
        ["8.1 %", "0 to 8.1 %", "0 to 966"],
    ]
    assert [row[5] for row in rows] == [
        "over 99.9 %: it is late", "95 %: nobody causes it alone", "measured; how much comes back is not known",
    ]  # fmt: skip


def test_a_month_can_be_checked_and_says_what_it_rests_on() -> None:
    said = words(page_one(told()))
    assert "8 accelerators × 720 hours × 2.07 EUR" in said
    assert "11.7 s of one run" in said
    assert "the 20 steps before cause 1 began included" in said
    assert "Causes 1 and 2 together, the one replayed after the other, give back 15 %; cause 3 is not in it." in said


def test_the_decision_says_what_was_not_tested_and_what_is_left_out() -> None:
    said = words(page_one(told(left_out=["Restarts are not in it."])))
    assert "Not tested: whether node3 is the reason" in said
    assert said.index("The decision to take") < said.index("Restarts are not in it.")


def test_the_question_to_the_vendor_is_that_of_the_decision() -> None:
    said = words(page_one(told(demands=[demand("pauses", "f-2"), demand("equal parts", "f-1")])))
    assert "what do you guarantee on equal parts?" in said
    assert "Then ask about pauses" in said
