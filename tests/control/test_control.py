"""The whole verb: the contract, the correction, the regime."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from actions import act, attempt, trace
from taut.control.relations import control
from taut.core.trend import corrected

KINDS = {
    "conflict",
    "oscillation",
    "amplification",
    "feedback loop",
    "metastability",
    "redundant work",
    "starvation",
    "timeout mismatch",
}


def fight() -> list:
    return [row for k in range(8) for row in (act(6 * k, "slurmctld", -1, "12"), act(6 * k + 0.7, "rescuer", 1, "12"))]


def test_keys_are_those_of_the_contract() -> None:
    found = taut.control(trace(fight()))
    assert set(found) == {"schema", "actions", "controllers", "relations", "indices", "regime", "partial"}
    assert (found["actions"], found["controllers"]) == (16, ["rescuer", "slurmctld"])
    (one,) = found["relations"]
    assert set(one) == {
        "kind", "controllers", "target", "knob", "count", "statistic", "p", "q", "cost", "because", "zone", "advice",
    }  # fmt: skip
    assert one["zone"] is None, "without ops there is no graph to look at"
    assert one["advice"] is None
    assert set(one["cost"]) == {"rank_ns", "tokens"}
    assert one["kind"] in KINDS
    msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("rows", "regime"),
    [
        ([], None),
        ([act(k, "a", 1) for k in range(10)], "coherent"),
        (fight(), "incoherent"),
        ([attempt(k, n, f"w{k}") for k in range(50) for n in range(4)], "amplifying"),
    ],
)
def test_regimes(rows: list, regime: str | None) -> None:
    assert control(trace(rows)).regime.kind == regime


def test_reversals_without_demand_leave_the_regime_open() -> None:
    regime = control(trace([act(300 * k, "hpa", 1 if k % 2 == 0 else -1) for k in range(24)])).regime
    assert regime.kind is None
    assert "23 times; demand is not recorded, so whether that is oscillation is not known: add the metric" in str(
        regime.because
    )


def test_attempts_alone_are_no_decisions() -> None:
    jobs = [{"job": "a", "attempt": 1, "start_ns": 0, "end_ns": 10}]
    assert control(trace([], attempts=jobs)).regime.kind is None


def test_reversals_of_its_own_oscillate() -> None:
    rows = [act(4 * k, "hpa", 1 if k % 2 == 0 else -1) for k in range(15)]
    assert control(trace(rows, demand=([-1, 100], [1, 1]))).regime.kind == "oscillating"


def test_the_same_log_twice_gives_the_same_answer() -> None:
    rng = np.random.default_rng(0)
    rows = [act(float(t), str(w), int(d)) for t, w, d in zip(np.sort(rng.random(200)) * 3600, rng.choice(["a", "b"], 200),
                                                             rng.choice([-1, 1], 200), strict=True)]  # fmt: skip
    assert control(trace(rows), seed=3) == control(trace(rows), seed=3)
    assert control(trace(rows[::-1]), seed=3)["relations"] == control(trace(rows), seed=3)["relations"]


def test_false_discoveries_of_benjamini_and_hochberg() -> None:
    assert corrected([0.01, 0.02, 0.03, 0.5, None]) == pytest.approx([0.04, 0.04, 0.04, 0.5, None])


ROW = st.fixed_dictionaries(
    {
        "time_ns": st.integers(-(2**62), 2**62), "controller": st.sampled_from(["", "a", "b"]),
        "target": st.sampled_from(["", "x", "y"]), "knob": st.sampled_from(["", "attempt", "replicas"]),
        "direction": st.sampled_from([-1, 0, 1]), "attempt": st.integers(-1, 3), "parent": st.integers(-5, 50),
        "work": st.sampled_from(["", "v", "w"]), "busy_ns": st.integers(-1, 2**40), "deadline_ns": st.integers(-1, 2**62),
        "after": st.sampled_from(["", "3", "-1e999", "many"]), "outcome": st.sampled_from(["", "kept", "failed", "lost"]),
        "layer": st.sampled_from(["", "retry"]), "tokens_in": st.integers(-1, 10),
    }
)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(ROW, max_size=60))
def test_any_actions_give_an_answer(rows: list) -> None:
    json.loads(msgspec.json.encode(control(trace(rows))))
