"""What more accelerators bring: lines, the limit, and what makes it."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from briefings import charts, empties, grid, run, scenario, texts, words
from briefs import briefing
from results import filled
from taut.render.brief.document import Lines, Section
from taut.render.brief.sections.growth import growth
from taut.result.types import BriefCosts, Estimate, ProjectResult


def row(ranks: int, kept: float, cost: float | None = None, **more: Any) -> dict[str, Any]:
    step = {"p10": 1.0, "p50": 1.0, "p90": 1.0}
    return {
        "ranks": ranks, "step_ns": step, "effective_throughput_ratio": kept, "cost_per_unit": cost, "currency": "EUR",
        "tokens_per_s": 100.0 * ranks * kept, "in_range": ranks <= 64, "bound": "compute",
        "regime": {"class": "stable" if ranks < 64 else "unstable"}, **more,
    }  # fmt: skip


LIMIT = {
    "ranks": 40, "lo": 20, "hi": 50, "rule": "one more pays while it adds half", "tried": 256, "in_range": True,
    "without": {"jitter": 44, "failures": None}, "made_by": "failures",
    "elasticity": {"jitter": {"value": -0.1, "lo": -0.2, "hi": -0.05}, "failures": None},
}  # fmt: skip
ROWS = [row(16, 0.9, 2.0), row(32, 0.8, 2.2), row(64, 0.5, 3.5)]
OWN = {"ranks": 32, "forecasts": [ROWS[1]], "threshold": LIMIT}


def test_the_limit_in_a_sentence_and_as_a_line_in_every_picture() -> None:
    section = growth(briefing(scenarios=[scenario(OWN, {"ranks": 64, "forecasts": ROWS})]))
    assert texts(section)[0] == (
        "toy: one more accelerator stops paying at 40 by the best estimate (20–50 in 80 of 100); the job has 32 and may be at "
        "it already, or still have room. What makes this limit is failures; without, it lies beyond 256."
    )
    drawn = charts(section, Lines)
    assert [chart.y_axis for chart in drawn] == ["effective share", "tokens/s", "cost of 1M tokens, EUR"]
    assert all([rule.at for rule in chart.rules] == [40, 20] for chart in drawn)
    assert drawn[0].points == [(32.0, 0.8, "this job")]
    assert drawn[1].lines[1].y == [1440.0, 2880.0, 5760.0]


def test_scales_are_a_table_with_the_job_marked() -> None:
    section = growth(briefing(scenarios=[scenario(OWN, {"ranks": 64, "forecasts": ROWS})]))
    cells = words(grid(section, "at other scales"))
    assert [line[0] for line in cells] == ["16", "32 (this job)", "64"]
    assert cells[2] == ["64", "3,200", "50 %", "3.50", "compute", "unstable", "a known fabric"]
    makers = words(grid(section, "What makes the limit"))
    assert makers[0] == ["failures", "more than 256", "–"]
    assert makers[1] == ["jitter", "44", "-0.10 % (-0.20 to -0.05)"]


def test_scales_far_too_dear_are_not_drawn() -> None:
    rows = [*ROWS, row(128, 0.01, 200.0)]
    drawn = charts(growth(briefing(scenarios=[scenario(OWN, {"ranks": 128, "forecasts": rows})])), Lines)
    assert drawn[2].lines[0].x == [16.0, 32.0, 64.0]
    assert drawn[0].lines[0].x == [16.0, 32.0, 64.0, 128.0]


def test_published_figures_stand_beside_computed_ones() -> None:
    own = {**OWN, "forecasts": [row(32, 0.8, 2.2, mfu=0.4, availability=UNSET)]}
    declared = {
        "mfu": Estimate(value=0.41),
        "interruptions_per_day": Estimate(value=8),
        "replay_probability": Estimate(value=0.1),
    }
    given = scenario(own, {"ranks": 64, "forecasts": ROWS}, declared=declared, declared_by={"mfu": "a paper, table 4"})
    table = grid(growth(briefing(scenarios=[given])), "published beside computed")
    assert words(table) == [["Arithmetic, of what accelerators can do", "41 %", "40 %", "a paper, table 4"]]


def test_no_limit_is_said_and_not_drawn() -> None:
    free = {**OWN, "threshold": {**LIMIT, "ranks": None, "lo": None, "hi": None}}
    section = growth(briefing(scenarios=[scenario(free, {"ranks": 64, "forecasts": ROWS})]))
    assert texts(section)[0] == "toy: one more accelerator pays at every scale that was tried, up to 256."
    assert charts(section, Lines)[0].rules == []


def test_more_accelerators_for_loops() -> None:
    sweep = [
        {"ranks": 8, "worse": [], "indices": {"effective_capacity": 0.6}},
        {"ranks": 16, "worse": ["effective_capacity"], "indices": {"effective_capacity": 0.4}},
    ]
    loops = {"workload": "loops", "ranks": 8, "forecasts": [row(8, 0.5)], "sweep": sweep}
    section = growth(briefing(scenarios=[scenario(loops)]))
    assert texts(section) == ["toy: more accelerators, from 16 on, make this worse: effective capacity."]
    assert charts(section, Lines)[0].lines[0].y == [0.6, 0.4]


def test_a_measured_run_tells_its_reserve_and_how_its_loss_grows() -> None:
    grown = [{"ranks": n, "loss_share": {"value": v, "lo": v - 0.05, "hi": v + 0.1}} for n, v in ((8, 0.2), (16, 0.3))]
    given = {
        "job": {"name": "job", "ranks": 8}, "regime": {"class": "unstable", "reserve": {"value": 0.9, "lo": 0.8, "hi": 0.95}},
        "findings": [{"mode": "structural instability", "growth": grown}],
    }  # fmt: skip
    section = growth(briefing(runs=[run(given)]))
    assert texts(section) == [
        "job, 8 ranks: unstable. One more rank does not pay: variation between ranks would have to shrink to 0.90 × "
        "(0.80–0.95) of what it is."
    ]
    assert [line[:2] for line in words(grid(section, "what waiting for whoever is late"))] == [
        ["8", "20 % (15–30)"], ["16", "30 % (25–40)"],
    ]  # fmt: skip
    assert not charts(section, Lines)  # two points are no picture


MEASURED = {
    "scenario": "job", "workload": "measured", "threshold": {**LIMIT, "ranks": 8, "lo": 8, "hi": 15},
    "assumed": ["weak scaling: a rank keeps its work", "mended first: straggler cascade, rank 3"],
    "forecasts": [
        {
            "ranks": n, "mean_step_ns": {"value": v * 1e6, "lo": v * 9e5, "hi": v * 1.1e6}, "in_range": n < 32,
            "effective_throughput_ratio": 100 / v, "beyond": ["arrivals lie beyond those seen"] if n > 16 else [],
        }
        for n, v in ((8, 125.0), (16, 150.0), (32, 200.0))
    ],
}  # fmt: skip


def measured() -> Section:
    grown = filled(ProjectResult, MEASURED)
    return growth(briefing(runs=[run({"job": {"name": "job", "ranks": 8}}, grown=grown)]))


def test_a_projection_of_a_run_says_what_it_mends_and_why_its_limit_is_no_lower() -> None:
    lead, note, *_ = texts(measured())
    assert lead.startswith(
        "job, projected: one more accelerator stops paying at 8 by the best estimate (8–15 in 90 of 100); the job has 8 and may"
    )
    assert note.endswith("after this is mended: straggler cascade, rank 3. No limit below the 8 that ran can be told.")


def test_only_the_scale_that_ran_rests_on_the_run() -> None:
    table = grid(measured(), "at other scales")
    assert [line[-1] for line in words(table)] == ["the run", "the run, widened", "extrapolation"]
    assert [line[3] for line in words(table)] == ["1.00 ×", "1.20 ×", "1.60 ×"]
    assert table.note.startswith("In parentheses: intervals that hold 90 of 100.")
    assert table.note.endswith("Extrapolated from 32 on: arrivals lie beyond those seen.")


def test_a_missing_price_is_told_only_where_the_briefing_has_none() -> None:
    free = scenario({"ranks": 16, "forecasts": [row(16, 0.9)]})
    costs = filled(BriefCosts, {"per_month": {"value": 5.0}, "currency": "EUR"})
    assert "No price is given" in grid(growth(briefing(scenarios=[free])), "at other scales").note
    assert "No price is given" not in grid(growth(briefing(scenarios=[free], costs=costs)), "at other scales").note


def test_nothing_measured_says_what_to_give() -> None:
    (empty,) = empties(growth(briefing()))
    assert "was not measured" in empty.says
    assert empty.command is not None
