"""Where the accelerator time goes: parts that add up, and shares that sound alike and say what they are of."""

from __future__ import annotations

from briefs import briefed_bill, briefed_run, briefing, table, words
from taut.render.brief.sections.accelerator_time import accelerator_time
from taut.result.brief_types import TimePart
from taut.result.types import BriefCosts

SPLIT = [
    TimePart(what="useful work", share=0.55, useful=True),
    TimePart(what="waiting for whoever happens to be late", share=0.45, do="cause 1 below"),
]
INDEX = {"effective_throughput_ratio": {"value": 0.768, "lo": 0.759, "hi": 0.777}}


def test_parts_have_their_money_and_what_is_done_about_them() -> None:
    cost = BriefCosts(per_month=1000.0, useful_per_month=550.0, currency="EUR", basis="a price")
    made = accelerator_time(briefing(runs=[briefed_run()], split=SPLIT, costs=cost))
    assert table(made, "The 45 % that is no useful work") == [
        ["good: useful work", "55 %", "550", ""],
        ["waiting for whoever happens to be late", "45 %", "450", "cause 1 below"],
    ]


def test_shares_that_sound_alike_say_what_they_are_of() -> None:
    verdict = {"text": "", "class": "component", "effective_share": 0.55}
    attempts = {"total_rank_ns": 100, "entries": [{"fate": "kept", "rank_ns": 49}]}
    bill = briefed_bill({"categories": [{"name": "useful work", "share": 0.2}]})
    run = briefed_run(verdict=verdict, attempts=attempts, indices=INDEX)
    rows = table(accelerator_time(briefing(runs=[run], bills=[bill])), "Useful, effective, kept")
    assert [row[:2] for row in rows] == [
        ["effective, or useful work (page one)", "55 %"], ["kept (attempts)", "49 %"], ["useful work (bill)", "20 %"],
        ["effective throughput (index)", "77 % (76–78)"],
    ]  # fmt: skip


def test_without_a_run_there_is_no_such_section() -> None:
    assert accelerator_time(briefing()) is None
    assert "page one" in words(accelerator_time(briefing(runs=[briefed_run()], split=SPLIT)))
