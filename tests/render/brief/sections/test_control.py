"""Control: the stack, decisions with and against each other, relations with price, and what separates loops."""

from __future__ import annotations

from typing import Any

from briefings import charts, control_log, empties, grid, run, scenario, texts, words
from briefs import briefing
from results import filled
from taut.render.brief.document import Bars, Network
from taut.render.brief.sections.control import control
from taut.result.brief_types import ControlStack
from taut.result.types import ControlResult, ReviewResult

RELATION = {
    "kind": "conflict", "controllers": ["saver", "scaler"], "target": "chat", "knob": "replicas", "count": 17, "q": 0.0016,
    "cost": {"rank_ns": 10**12, "money": "4.33", "currency": "USD"}, "because": "scaler undoes saver",
}  # fmt: skip
LOG = {
    "actions": 97, "controllers": ["scaler", "saver", "admission"], "relations": [RELATION],
    "indices": {"decision_conflict_rate": {"value": 0.31, "lo": 0.2, "hi": 0.4}, "planning_accuracy": None},
    "regime": {"class": "incoherent"},
}  # fmt: skip


def stack(**more: Any) -> ControlStack:
    rows = [("scaler", "autoscaler", 35), ("saver", "autoscaler", 36), ("admission", "policy", 24)]
    some = [{"name": name, "layer": layer, "decisions": many, "turned_back": 0} for name, layer, many in rows]
    pairs = [
        {"first": 1, "then": 0, "coherent": 7, "incoherent": 18}, {"first": 0, "then": 1, "coherent": 10, "incoherent": 7},
        {"first": 2, "then": 0, "coherent": 4, "incoherent": 0},
    ]  # fmt: skip
    found: ControlStack = filled(ControlStack, {"controllers": some, "pairs": pairs, **more})
    return found


def test_layers_stand_from_top_to_bottom_with_their_controllers() -> None:
    section = control(briefing(controls=[control_log(LOG, stack=stack())]))
    (drawn,) = charts(section, Network)
    labels = [node.label for node in drawn.nodes]
    # Those that have a relation stand one below the other, each with the name of its layer.
    assert labels == ["policy", "autoscaler", "autoscaler", "admission", "scaler", "saver"]
    assert [node.y for node in drawn.nodes] == [1 / 6, 0.5, 5 / 6, 1 / 6, 0.5, 5 / 6]
    edges = {(labels[edge.first], labels[edge.then]): (edge.label, edge.strong) for edge in drawn.edges}
    assert edges == {("scaler", "saver"): ("conflict, 4.33 USD", True), ("admission", "scaler"): ("0 of 4 against", False)}


def test_decisions_are_counted_and_relations_priced() -> None:
    section = control(briefing(controls=[control_log(LOG, stack=stack())]))
    assert texts(section)[0] == (
        "toy.log: incoherent. Controllers undo each other's decisions. 95 decisions of 3 controllers (2 more name no "
        "controller) on record; 1 relation between controllers."
    )
    assert texts(section)[1] == "Of 46 decisions that follow another controller's, 25 go against it: 54 %."
    bars = [(bar.group, bar.label, bar.value) for bar in charts(section, Bars)[0].bars]
    assert bars[:2] == [("saver → scaler", "incoherent", 18), ("saver → scaler", "coherent", 7)]
    row = words(grid(section, "Who works against whom"))[0]
    assert row == ["conflict", "saver, scaler: replicas of chat", "17", "0.0016", "4.33 USD", "scaler undoes saver"]


def test_a_run_with_controllers_shows_its_indices_too() -> None:
    section = control(briefing(runs=[run({"job": {"name": "job", "ranks": 8}, "control": LOG}, stack=stack())]))
    assert [row[2] for row in words(grid(section, "job: indices of control"))] == ["31 % (20–40)"]
    assert section.commands == ["taut show toy"]


def test_what_is_not_known_is_not_called_coherent() -> None:
    unknown = {**LOG, "relations": [], "regime": {"class": None, "because": "demand is not recorded"}}
    section = control(briefing(controls=[control_log(unknown)]))
    assert texts(section)[0].endswith("is not known, from 97 decisions of 3 controllers. Because: demand is not recorded.")


def test_what_reversals_count_is_told_where_demand_is_not_known() -> None:
    rates = {"indices": {"control_oscillation_frequency": {"value": 1.0, "lo": 0.8, "hi": 1.0}}, "relations": []}
    unknown = {**LOG, **rates, "regime": {"class": None, "because": "demand is not recorded"}}
    job = {"name": "job", "ranks": 8}
    table = grid(control(briefing(runs=[run({"job": job, "control": unknown})])), "indices of control")
    assert table.note.endswith("count every reversal, also such as demand may have asked for.")
    known = {**LOG, **rates, "regime": {"class": "coherent"}}
    table = grid(control(briefing(runs=[run({"job": job, "control": known})])), "indices of control")
    assert table.note == "Intervals, and bounds (at least, at most), hold the value in 95 of 100 repetitions."


def test_two_controllers_without_a_relation_are_no_picture() -> None:
    alone = {**LOG, "relations": []}
    two = stack(controllers=[{"name": name, "layer": None, "decisions": 3, "turned_back": 0} for name in "ab"], pairs=[])
    assert not charts(control(briefing(controls=[control_log(alone, stack=two)])), Network)


def test_a_scenario_shows_what_it_loses_implies_and_how_to_separate_it() -> None:
    loss = {"term": "idle", "accelerators": 3.86, "money_per_hour": "11.57", "currency": "USD"}
    advice = [
        {
            "kind": "conflict", "target": "chat", "tried": 4, "separation": "hysteresis", "value": 0.4, "costs": "stays away",
            "sets": [{"key": "scaler.hysteresis", "before": 0.1, "after": 0.4}],
            "effect": {
                "decision_conflict_rate": {"before": 0.3, "after": 0.2, "change": {"value": -0.1, "lo": -0.15, "hi": -0.05}},
                "planning_accuracy": {"before": 0.7, "after": 0.8, "change": {"value": 0.1, "lo": -0.1, "hi": 0.3}},
            },
        },
        {"kind": "starvation", "target": None, "tried": 3, "separation": None},
    ]  # fmt: skip
    given = {"workload": "loops", "ranks": 8, "forecasts": [{"ranks": 8, "losses": [loss]}], "advice": advice}
    implied = {"kind": "conflict", "controllers": ["scaler", "saver"], "because": "both set it", "remedy": "let one"}
    review = filled(ReviewResult, {"added": ["scaler", "saver"], "relations": [implied]})
    section = control(
        briefing(scenarios=[scenario(given, review=review, control=filled(ControlResult, LOG), stack=stack())])
    )  # fmt: skip
    assert charts(section, Bars)[-1].bars[0].shown == "3.86, 11.57 USD an hour"
    assert words(grid(section, "configuration implies")) == [["conflict", "scaler, saver", "both set it", "let one"]]
    rows = words(grid(section, "Which loops to separate"))
    assert rows[0] == [
        "conflict on chat", "hysteresis = 0.4", "scaler hysteresis: 0.1 → 0.4", "decision conflict rate 0.30 → 0.20",
        "stays away",
    ]  # fmt: skip
    assert rows[1][1] == "none of 3 separations tried removes it"
    assert section.commands == ["taut show toy", "taut control review toy"]


def test_a_scenario_that_was_not_simulated_shows_its_configuration() -> None:
    relation = {"kind": "amplification", "controllers": ["saver", "scaler"], "because": "12 attempts", "remedy": "one layer"}
    review = filled(ReviewResult, {"added": ["saver", "scaler"], "relations": [relation]})
    given = {"workload": "agents", "ranks": 8, "forecasts": [{"ranks": 8, "metastable": True}]}
    section = control(briefing(scenarios=[scenario(given, review=review, stack=stack(pairs=[]))]))
    assert texts(section)[0] == "toy: 1 relation between its 2 loops follows from their configuration alone."
    assert "metastable" in texts(section)[-1]
    (drawn,) = charts(section, Network)
    assert [edge.label for edge in drawn.edges] == ["amplification"]


def test_nobody_decides_anything() -> None:
    (empty,) = empties(control(briefing(scenarios=[scenario({"forecasts": [{"ranks": 8}]})])))
    assert "was not measured" in empty.says
