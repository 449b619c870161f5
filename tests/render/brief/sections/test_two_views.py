"""Component view beside operator view."""

from __future__ import annotations

from typing import Any

from briefs import blocks, briefed_run, briefing, table, words
from results import FINDING
from taut.render.brief.document import Empty, Network, Picture
from taut.render.brief.sections.two_views import two_views
from taut.result.brief_types import OperatorEdge, OperatorNode, OperatorView


def node(name: str, place: float, **keys: Any) -> OperatorNode:
    given: dict[str, Any] = {"kind": "compute", "gate": False, "rank_share": 0.4, "wait_share": 0.0, "critical_share": 0.6}
    return OperatorNode(name=name, ops=10, place=place, **given | keys)


VIEW = OperatorView(
    nodes=[
        node("fwd", 0.1),
        node("all-reduce", 0.6, kind="communicate", gate=True, rank_share=0.05, wait_share=0.3, critical_share=0.04),
    ],
    edges=[
        OperatorEdge(first=0, then=1, count=10, critical_share=1.0),
        OperatorEdge(first=1, then=0, count=9, critical_share=0.0),
    ],
    left_out=0,
)
LIMITED = {
    "component": "rank 0", "metric": "power_w", "value": 612.0, "value_is": "p99", "limit": 700.0, "limit_is": "at most",
    "inside": True, "samples": 9,
}  # fmt: skip
HOT = LIMITED | {"component": "rank 1", "metric": "temperature_c", "value": 96.0, "limit": 90.0, "inside": False}


def test_parts_inside_their_limits_beside_ops_that_wait() -> None:
    verdict = {"text": "", "class": "component", "nominal_share": 0.96, "effective_share": 0.55, "nominal_is": "measured"}
    made = two_views(briefing(runs=[briefed_run(view=VIEW, components=[LIMITED], verdict=verdict)]))
    said = words(made)
    assert "Every part that has a limit is inside it (the one metric has one). 55 % of the time was useful work." in said
    assert "By this view alone nothing is wrong" in said
    assert "30 % of all rank time is spent waiting for the last to arrive, all of it at all-reduce." in said
    assert "Nominal 96 %" in said
    assert table(made, "Parts")[0] == ["power", "1", "612 W", "at most 700 W", "good: all"]
    assert table(made, "Where rank time goes")[0] == ["fwd", "40 %", "", "60 %"]
    assert table(made, "Where rank time goes")[1] == ["all-reduce (gate)", "5 %", "bad: 30 %", "4 %"]


def test_what_breaks_its_limit_is_named_and_comes_first() -> None:
    made = two_views(briefing(runs=[briefed_run(view=VIEW, components=[LIMITED, HOT])]))
    assert table(made, "Parts")[0] == ["temperature", "1", "96.0 °C", "at most 90.0 °C", "bad: not rank 1"]
    assert "1 of 2 measurements of parts are outside their limits" in words(made)


def test_the_picture_has_gates_and_a_strong_critical_path() -> None:
    (picture,) = blocks(two_views(briefing(runs=[briefed_run(view=VIEW)])), Picture)
    chart = picture.chart
    assert isinstance(chart, Network)
    assert [(one.label, one.shape, one.strong) for one in chart.nodes] == [("fwd", "work", True), ("all-reduce", "gate", False)]
    assert chart.nodes[0].y < chart.nodes[1].y
    assert [(one.first, one.then, one.strong) for one in chart.edges] == [(0, 1, True), (1, 0, False)]
    assert "critical path runs mostly through fwd (60 % of the time)" in picture.alt


def test_without_metrics_or_traces_it_says_what_to_record() -> None:
    made = two_views(briefing(runs=[briefed_run()]))
    assert [one.says for one in blocks(made, Empty)] == ["No part was measured.", "No operation was traced."]
    assert "No run was given" in words(two_views(briefing()))


def test_communication_that_was_not_matched_may_be_waiting() -> None:
    calls = OperatorView(nodes=[node("send", 0.5, kind="communicate", rank_share=0.3)], edges=[], left_out=0)
    job = {"name": "toy", "ranks": 4, "steps": 1, "gates": 0}
    made = two_views(briefing(runs=[briefed_run(view=calls, job=job)]))
    assert "who waits for whom is not known. 30 % of the rank time is communication that may be waiting." in words(made)
    assert table(made, "Where rank time goes")[0] == ["send", "30 %", "–", "60 %"]
    assert "No rank waited" not in words(made)


def test_parts_without_limits_are_not_called_healthy() -> None:
    free = LIMITED | {"limit": None, "limit_is": None, "inside": None}
    said = words(two_views(briefing(runs=[briefed_run(view=VIEW, components=[free])])))
    assert "nobody named their limits" in said
    assert "nothing is wrong" not in said


def test_what_has_no_limit_and_what_failed_is_no_part_inside_its_limits() -> None:
    free = LIMITED | {"metric": "clock_mhz", "limit": None, "limit_is": None, "inside": None}
    attempts = {"attempts": 2, "jobs": 1, "outcomes": {"failed": 1, "completed": 1}}
    said = words(two_views(briefing(runs=[briefed_run(view=VIEW, components=[LIMITED, free], attempts=attempts)])))
    assert "Every part that has a limit is inside it (1 of 2 metrics has one)." in said
    assert "That 1 attempt of the job failed shows in the job's log, and in no metric of a part." in said


def test_rank_time_and_wall_are_told_apart() -> None:
    finding = FINDING | {"loss_share": {"value": 0.25, "lo": 0.21, "hi": 0.29}}
    said = words(two_views(briefing(runs=[briefed_run(view=VIEW, findings=[finding])])))
    assert "Of the wall, waiting for whoever happens to be late costs 25 % (21–29)." in said
