"""Simulated logs with a known truth: the relation that was planted is found, and a calm system has none."""

from __future__ import annotations

import pytest

from taut.control import control
from taut.project.loop.advice import advise, shown, sweep
from taut.project.loop.plants import CALM, PLANTED
from taut.project.loop.policies import POLICIES
from taut.project.loop.run import play


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_relation_is_found(kind: str) -> None:
    found = control(play(PLANTED[kind], 0).trace)
    assert kind in {one["kind"] for one in found["relations"]}


@pytest.mark.parametrize("seed", range(5))
def test_a_calm_system_has_no_relations(seed: int) -> None:
    found = control(play(CALM, seed).trace)
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
    relations = [one for one in control(play(s, 0).trace)["relations"] if one["kind"] == kind][:1]
    (advice,) = advise(s, relations, runs=2)
    assert (advice["separation"], advice["value"]) == (separation, value)
    assert advice["effect"]
    key = (kind, relations[0]["target"], relations[0]["p"] is None)
    assert all(key not in found for found in shown(POLICIES[separation].apply(s, value), (7, 8)))


def test_what_nothing_removes_is_said_to_be_so() -> None:
    (advice,) = advise(CALM, [{"kind": "conflict", "target": "elsewhere", "p": None}], runs=1)
    assert advice == {"kind": "conflict", "target": "elsewhere", "separation": None, "value": None, "tried": 0, "effect": {}}


def test_a_sweep_says_what_more_capacity_made_worse() -> None:
    """Replicas that nobody needs: each further one is paid for and does nothing."""
    rows = sweep(CALM, (8, 4, 6), runs=3)
    assert [row["ranks"] for row in rows] == [4, 6, 8]
    assert rows[0]["worse"] == []
    assert all(row["worse"] == ["effective_capacity"] for row in rows[1:])
