"""The same log with less in it: what remains is reported, what is gone is not guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from actions import act, attempt, trace
from taut.control.relations import control
from taut.core.tables import Trace


def fight() -> list[dict[str, Any]]:
    """A scheduler preempts job 12 every 6 s, a rescuer gives it back; 20 other jobs are left alone."""
    rows = [act(k / 10, "scheduler", 1, f"job {k + 100}", "allocation") for k in range(20)]
    for k in range(1, 13):
        rows.append(act(6 * k, "scheduler", -1, "job 12", "allocation", trigger="preempted"))
        rows.append(act(6 * k + 0.7, "rescuer", 1, "job 12", "allocation"))
    return rows


def layered() -> list[dict[str, Any]]:
    """A gateway that tries twice over a client that tries three times; only the last try is kept."""
    rows: list[dict[str, Any]] = []
    for k in range(30):
        parent, t, work = -1, 20.0 * k, f"w{k}"
        for outer in range(2):
            rows.append(attempt(t, outer, work, 0, "failed", controller="gateway", target="client", parent=parent))
            parent = last = len(rows) - 1
            for inner in range(3):
                outcome = "kept" if (outer, inner) == (1, 2) else "failed"
                took = 0.2 + 0.6 * (0.618 * len(rows) % 1)
                rows.append(attempt(t + inner + 0.1, inner, work, took, outcome, target="pool", parent=last))
                last = len(rows) - 1
            t += 5
    return rows


def without(made: Trace, **columns: object) -> Trace:
    """The trace with some columns of its actions unknown."""
    n = len(made.actions)
    gone = {name: np.full(n, value, dtype=object if isinstance(value, str) else np.int64) for name, value in columns.items()}
    return replace(made, actions=made.actions.replace(**gone))


def kinds(found: dict[str, Any]) -> dict[str, list[str]]:
    return {one["kind"]: one["controllers"] for one in found["relations"]}


def test_without_names_nobody_fights_but_a_job_still_starves() -> None:
    full, nameless = control(trace(fight())), control(without(trace(fight()), controller=""))
    assert kinds(full) == {"conflict": ["scheduler", "rescuer"], "starvation": ["scheduler"]}
    assert kinds(nameless) == {"starvation": []}
    assert nameless["controllers"] == []
    assert nameless["indices"]["compensatory_action_rate"] == full["indices"]["compensatory_action_rate"]
    for name in ("decision_conflict_rate", "control_oscillation_frequency"):
        assert full["indices"][name] is not None
        assert nameless["indices"][name] is None


@pytest.mark.parametrize("gone", [{"controller": ""}, {"controller": "", "layer": "", "trigger": "", "parent": -1}])
def test_layers_of_retries_are_told_apart_by_what_they_call(gone: dict[str, object]) -> None:
    full, less = control(trace(layered())), control(without(trace(layered()), **gone))
    assert kinds(full) == {"amplification": ["client"], "redundant work": ["client"]}
    expected = ["amplification", *([] if "parent" in gone else ["redundant work"])]
    assert kinds(less) == {kind: [] for kind in expected}, "which attempt replaced which must be recorded"
    assert [(one["count"], one["statistic"], one["cost"]) for one in less["relations"]] == [
        (one["count"], one["statistic"], one["cost"]) for one in full["relations"] if one["kind"] in expected
    ]
    assert "2 (calls of client) × 3 (calls of pool) = 6 attempts allowed" in less["relations"][0]["because"]
    assert less["indices"]["actual_attempt_multiplier"] == full["indices"]["actual_attempt_multiplier"]


def test_a_fallback_that_nobody_signs_is_no_layer_of_its_own() -> None:
    rows = [
        attempt(10 * k + n, n, f"w{k}", outcome="kept" if n == 3 else "failed", target="small" if n < 2 else "large")
        for k in range(30)
        for n in range(4)
    ]
    found = control(without(trace(rows), controller=""))["relations"]
    assert not [one for one in found if "retry the same requests" in one["because"]]


def test_a_swing_of_nobody_may_be_a_fight_and_says_so() -> None:
    times = np.arange(0, 400)
    rows = [act(10 * k + 0.5, ("up", "down")[k % 2], 1 - 2 * (k % 2)) for k in range(12)]
    (one,) = control(without(trace(rows, demand=(times, 5 + 0 * times)), controller=""))["relations"]
    assert (one["kind"], one["controllers"]) == ("oscillation", [])
    assert "one controller, or several against each other" in one["because"]


def test_whoever_took_a_job_s_place_starves_it_not_its_launcher() -> None:
    rows = []
    for k in range(12):
        rows.append(act(10 * k, "priority", -1, "trainer", "allocation"))
        rows.append(act(10 * k + 1, "launcher", 0, "trainer", "attempt", attempt=k, work="train", trigger="preempted"))
    rows += [act(k, "launcher", 0, f"t{k}", "attempt", attempt=0, work=f"other {k}") for k in range(20)]
    (one,) = control(trace(rows))["relations"]
    assert (one["kind"], one["controllers"], one["target"]) == ("starvation", ["priority"], "train")


def test_what_was_thrown_away_is_unknown_where_nothing_links_attempts() -> None:
    calls = without(trace(layered()), controller="", work="", parent=-1, attempt=0)
    assert control(trace(layered()))["indices"]["control_overhead_fraction"]["value"] > 0.5
    assert control(calls)["indices"]["control_overhead_fraction"] is None
    assert control(calls)["indices"]["actual_attempt_multiplier"] is None
