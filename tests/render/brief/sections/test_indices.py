"""Indices with meaning: old struck through, new highlighted; declared beside computed; what is missing."""

from __future__ import annotations

from typing import Any

from briefs import briefed_control, briefed_run, briefed_scenario, briefing, source, table, words
from results import filled
from taut.render.brief.sections.indices import indices
from taut.result.brief_types import BriefedComparison
from taut.result.types import CompareResult, Estimate

NOW = {
    "effective_throughput_ratio": {"value": 0.768, "lo": 0.759, "hi": 0.777},
    "replay_probability": {"value": 0.0, "lo": 0.0, "hi": 0.034},
}
OLD = {
    "run": "a",
    "digest": "",
    "step_ns": {"before": 1.0, "after": 2.0},
    "indices": NOW | {"effective_throughput_ratio": {"value": 0.96}},
}


def test_value_interval_meaning_and_needs() -> None:
    rows = table(
        indices(briefing(runs=[briefed_run(indices=NOW, index_needs={"energy_per_useful_step": "needs power"})])), "Indices"
    )
    meaning = "Share of what the accelerators could do that is delivered; 100 % loses nothing."
    assert rows[0] == ["effective throughput", meaning, "77 % (76–78)"]
    assert rows[1][2] == "not measured: needs power"
    assert rows[4][2] == "at most 3.4 %"


def test_beside_a_baseline_the_old_value_is_struck_through() -> None:
    rows = table(indices(briefing(runs=[briefed_run(indices=NOW, baseline=OLD)])), "Indices")
    assert rows[0][2:] == ["old: 96 %", "new: 77 % (76–78)"]
    assert rows[4][2:] == ["at most 3.4 %", "at most 3.4 %"]  # nothing changed


def test_a_comparison_shows_first_and_last_run() -> None:
    def run(name: str, ratio: float, wait: float | None) -> dict[str, Any]:
        return {"run": name, "effective_throughput_ratio": {"value": ratio}, "waiting_share": wait, "step_ns": 1e6}

    result = filled(
        CompareResult, {"verdict": {"text": "Slower."}, "runs": [run("a", 0.9, 0.1), run("b", 0.7, None)], "order": "time"}
    )
    compared = BriefedComparison(source=source("a b", "comparison"), result=result)
    rows = table(indices(briefing(comparisons=[compared])), "First and last")
    assert rows[0][2:] == ["old: 90 %", "new: 70 %"]
    assert rows[2][2:] == ["10 %", "–"]  # not known afterwards is no change
    assert rows[3][2:] == ["1.00 ms", "1.00 ms"]


SCENARIO: dict[str, Any] = {
    "indices": {
        "effective_throughput_ratio": {"value": 0.9},
        "cost_per_completion": {"value": 1.3},
        "margin_erosion_rate": None,
    },
    "workload": "loops",
}


def test_declared_stands_beside_computed() -> None:
    declared = {"effective_throughput_ratio": Estimate(value=0.7, lo=0.6, hi=0.8)}
    with_it = {"effective_throughput_ratio": Estimate(value=0.85)}
    scenario = briefed_scenario(SCENARIO, declared=declared, declared_with=with_it)
    rows = table(indices(briefing(scenarios=[scenario])), "Indices")
    assert rows[0][2:] == ["70 % (60–80) → 85 %", "90 %"]
    assert rows[1][2:] == ["–", "1.30 ×"]
    assert rows[2][2:] == ["–", "not modelled"]


def test_with_policies_the_value_without_is_struck_through() -> None:
    policy = {
        "name": "p", "ranks": 64, "policies": [{"name": "work-ids", "says": ""}],
        "indices": {"with": {"effective_throughput_ratio": {"value": 0.95}}, "without": {}, "ratio": {}},
        "forecast": {"without": {}, "with": {}},
    }  # fmt: skip
    made = indices(briefing(scenarios=[briefed_scenario(SCENARIO | {"policies": [policy]})]))
    assert table(made, "Indices")[0][2:] == ["old: 90 %", "new: 95 %"]
    assert "With work-ids" in words(made)


def test_an_interval_of_everything_is_no_answer() -> None:
    control = {
        "indices": {"decision_conflict_rate": {"value": 0.5, "lo": 0.0, "hi": 1.0}, "planning_accuracy": None},
        "regime": {},
    }
    made = indices(briefing(controls=[briefed_control(control)]))
    assert table(made, "Indices of control")[0][2] == "not decided: 0–100 %"
    assert "Not measured: planning accuracy." in words(made)


def test_an_interval_of_nearly_everything_says_that_too_few_were_seen() -> None:
    rates = {"retry_cascade_frequency": {"value": 0.0, "lo": 0.0, "hi": 0.793}}
    made = indices(briefing(controls=[briefed_control({"indices": rates, "regime": {}})]))
    assert table(made, "Indices of control")[0][2] == "too few to tell: 0–79 %"


def test_nothing_measured_is_said() -> None:
    assert "No index was measured." in words(indices(briefing()))
    assert "not measured" in words(indices(briefing(runs=[briefed_run(indices=None)])))


def test_two_amplifications_are_told_apart() -> None:
    found = NOW | {"sync_delay_amplification": {"value": 4.0}}
    run = briefed_run(indices=found, coupling={"amplification": 8.0, "turnover": {}})
    assert "adds up what all others wait" in words(indices(briefing(runs=[run])))
