"""Simulated logs with a known truth: the relation that was planted is found, and a calm system has none."""

from __future__ import annotations

import pytest

from taut.control.relation import Relation
from taut.control.relations import control
from taut.project.loops.advice import Runs, advise, sweep
from taut.project.loops.planted_scenarios import CALM, PLANTED
from taut.project.loops.policies import POLICIES
from taut.project.loops.simulated_run import simulate
from taut.result.types import ChangedKey


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_relation_is_found(kind: str) -> None:
    found = control(simulate(PLANTED[kind], 0).trace)
    assert kind in {one["kind"] for one in found["relations"]}


@pytest.mark.parametrize("seed", range(5))
def test_a_calm_system_has_no_relations(seed: int) -> None:
    found = control(simulate(CALM, seed).trace)
    assert found["relations"] == []
    assert found["regime"]["class"] == "coherent"


@pytest.mark.parametrize(
    ("kind", "separation", "value"),
    [
        ("conflict", "one-owner", None),
        ("metastability", "retry-budget", 0.2),
        ("timeout mismatch", "deadline-propagation", None),
    ],
)
def test_advice_removes_the_relation_when_it_is_tried_on_other_seeds(kind: str, separation: str, value: float | None) -> None:
    s = PLANTED[kind]
    relations = [one for one in control(simulate(s, 0).trace)["relations"] if one["kind"] == kind][:1]
    (advice,) = advise(s, relations, runs=2)
    assert (advice["separation"], advice["value"]) == (separation, value)
    assert advice["effect"]
    assert advice["sets"]
    key = (kind, relations[0]["target"], relations[0]["p"] is None)
    assert all(key not in found for found in Runs(POLICIES[separation].apply(s, value), (7, 8)).shown())


def test_for_what_no_run_shows_nothing_is_advised() -> None:
    (advice,) = advise(CALM, [Relation("conflict", (), "elsewhere", "", 3, None, None, "").entry()], runs=1)
    assert (advice["shows"], advice["tried"], advice["separation"], advice["effect"]) == (0, 0, None, {})


def test_without_relations_given_those_that_the_runs_show_are_advised_on() -> None:
    assert advise(CALM, runs=1) == []
    found = advise(PLANTED["timeout mismatch"], runs=1)
    assert [(one["kind"], one["separation"]) for one in found if one["kind"] == "timeout mismatch"] == [
        ("timeout mismatch", "deadline-propagation")
    ]


def test_advice_names_the_keys_it_sets_and_the_change_with_its_interval() -> None:
    relation = Relation("redundant work", (), "pool", "", 3, None, None, "").entry()
    (advice,) = advise(PLANTED["redundant work"], [relation], runs=2)
    assert advice.sets == [ChangedKey(key="client.sdk.budget_share", before=None, after=0.02)]
    moved = advice["effect"]["actual_attempt_multiplier"]
    assert moved["after"] < moved["before"]
    assert moved["change"]["lo"] <= moved["after"] - moved["before"] <= moved["change"]["hi"]


def test_a_sweep_says_what_more_capacity_made_worse() -> None:
    """Replicas that nobody needs: each further one is paid for and does nothing."""
    rows = sweep(CALM, (8, 4, 6), runs=3)
    assert [row["ranks"] for row in rows] == [4, 6, 8]
    assert rows[0]["worse"] == []
    assert all(row["worse"] == ["effective_capacity"] for row in rows[1:])
