"""The coupling map, and how far a delay travels."""

from __future__ import annotations

from typing import Any

from briefs import blocks, briefed_run, briefing, words
from taut.render.brief.document import Heat, Lines, Picture
from taut.render.brief.sections.coupling import coupling
from taut.result.brief_types import RankLateness

LATE = RankLateness(labels=["rank 0 (a)", "rank 1 (b)"], cause=[0, 1], victim=[1, 0], share=[0.8, 0.2])
JOB = {"name": "toy", "ranks": 2, "steps": 4, "gates": 4}
RESPONSE: dict[str, Any] = {
    "rank": 0, "delay_ns": 5_000_000, "left_by_step": [1.0, 0.5], "reached_ranks": 2, "within_steps": 1,
    "median_rank": {"rank": 1, "delay_ns": 5_000_000, "left_by_step": [0.0, 0.0], "reached_ranks": 0},
}  # fmt: skip


def test_who_waited_for_whom() -> None:
    made = coupling(briefing(runs=[briefed_run(lateness=LATE, job=JOB, coupling={"amplification": 8.0, "turnover": {}})]))
    assert (
        "Rank 0 (a) caused 80 % of the waiting that is traced to a rank; if all were alike, it would be 1 in 2 (50 %)."
        in words(made)
    )
    assert "Waiting per second of delay 8.00 s" in words(made)
    (picture,) = blocks(made, Picture)
    assert isinstance(picture.chart, Heat)
    assert (list(picture.chart.rows), list(picture.chart.columns)) == (["rank 0 (a)", "rank 1 (b)"], ["0", "1"])
    assert list(picture.chart.values) == [(0, 1, 0.8, "80 %"), (1, 0, 0.2, "20 %")]


def test_how_far_a_delay_travels() -> None:
    made = coupling(briefing(runs=[briefed_run(lateness=LATE, job=JOB, coupling={"response": RESPONSE, "turnover": {}})]))
    assert "A delay put on rank 0 reaches all ranks within 1 step; 1 step later 50 % of it is left." in words(made)
    assert "A delay put on rank 1 reaches nobody: slack absorbs it." in words(made)
    chart = blocks(made, Picture)[-1].chart
    assert isinstance(chart, Lines)
    assert [list(line.y) for line in chart.lines] == [[1.0, 0.5], [0.0, 0.0]]


def test_a_map_of_the_first_steps_says_so() -> None:
    some = RankLateness(labels=["a", "b"], cause=[0], victim=[1], share=[1.0], first_steps=10)
    assert "the first 10 steps" in words(
        coupling(briefing(runs=[briefed_run(lateness=some, job=JOB, coupling={"turnover": {}})]))
    )


def test_what_was_not_measured_is_said() -> None:
    assert "traces of all ranks" in words(coupling(briefing()))
    assert "job logs tell no operations" in words(coupling(briefing(runs=[briefed_run(coupling=None)])))
    assert "One rank waits for nobody" in words(
        coupling(briefing(runs=[briefed_run(coupling={"turnover": {}}, job=JOB | {"ranks": 1})]))
    )
    assert "No meeting of ranks" in words(
        coupling(briefing(runs=[briefed_run(coupling={"turnover": {}}, job=JOB | {"gates": 0})]))
    )


def test_a_delay_that_comes_back_is_explained() -> None:
    own = RankLateness(labels=["a", "b"], cause=[0, 0], victim=[1, 0], share=[0.9, 0.1])
    one, other = (
        words(coupling(briefing(runs=[briefed_run(lateness=some, job=JOB, coupling={"turnover": {}})]))) for some in (own, LATE)
    )
    assert "came back by way of others" in one
    assert "came back by way of others" not in other
