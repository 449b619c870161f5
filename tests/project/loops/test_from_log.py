"""Advice for logs: what a log tells goes into the plant, the rest is named as a default, and nothing is invented."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from actions import act, queue, trace
from taut.cli import main
from taut.control.relation import Relation
from taut.control.relations import control
from taut.project.loops import from_log
from taut.project.loops.from_log import FITS, advise_log
from taut.project.loops.planted_scenarios import PLANTED
from taut.project.loops.simulated_run import simulate


@cache
def advised_plant(kind: str) -> tuple[dict[str, Any] | None, list[str]]:
    """What is advised for the log of a simulated plant."""
    return advised(simulate(PLANTED[kind], 5).trace, kind)


def advised(made: Any, kind: str) -> tuple[dict[str, Any] | None, list[str]]:
    relations = [one for one in control(made)["relations"] if one["kind"] == kind][:1]
    assert relations
    assert relations[0]["advice"] is None
    (found,), notes = advise_log(made, relations)
    return found, notes


@pytest.mark.parametrize(
    ("kind", "separation", "from_log"),
    [
        ("conflict", "one-owner", {"decides_every_s": {"saver": 45.0}}),
        ("amplification", "one-retry-layer", {"attempts": {"gateway": 4, "sdk": 3}}),
        ("metastability", "retry-budget", {"timeout_s": 0.5, "retries": 3, "at_once": 1}),
        ("starvation", "hold", {"preempted_every_s": 120.0}),
        ("timeout mismatch", "deadline-propagation", {"deadline_s": 4.0, "timeout_s": 3.0, "retries": 3, "back_off_s": 0.5}),
    ],
)
def test_a_simulated_log_leads_back_to_its_plant(kind: str, separation: str, from_log: dict[str, Any]) -> None:
    found, notes = advised_plant(kind)
    assert notes == []
    assert found is not None
    assert found["separation"] == separation
    assert {key: found["from_log"][key] for key in from_log} == from_log
    assert found["default"]
    assert not set(found["default"]) & set(found["from_log"])
    assert all({"before", "after", "change"} == set(one) for one in found["effect"].values())


def test_times_are_those_of_the_log_and_not_of_the_plant() -> None:
    """The planted job, preempted 20 times as often: the pause that helps is 20 times shorter."""
    quick = simulate(PLANTED["starvation"], 5).trace
    quick.actions.columns["time_ns"] = quick.actions.columns["time_ns"] // 20
    (one, _), (other, _) = advised_plant("starvation"), advised(quick, "starvation")
    assert one is not None
    assert other is not None
    assert (other["separation"], other["value"]) == (one["separation"], pytest.approx(one["value"] / 20))
    assert other["sets"][0]["after"] == pytest.approx(one["sets"][0]["after"] / 20)


def test_a_knob_without_numbers_has_no_plant() -> None:
    rows = [act(6 * k, "scheduler", -1, "job 12", "allocation") for k in range(8)]
    rows += [act(6 * k + 0.7, "rescuer", 1, "job 12", "allocation") for k in range(8)]
    found, (note,) = advised(trace(rows), "conflict")
    assert found is None
    assert note.startswith("conflict on job 12: no advice could be checked")


def test_what_the_plant_does_not_show_is_not_advised_on() -> None:
    """The log says that nearly everything was redone, but of the recorded attempts nothing failed."""
    rows = queue(np.random.default_rng(1), 30, 50, 0.5, 3, 60, (20, 24))
    relation = Relation("redundant work", ("client",), "call", "attempt", 3, None, None, "").entry()
    (found,), (note,) = advise_log(trace([{**row, "outcome": "kept"} for row in rows]), [relation])
    assert found is None
    assert "does not show it" in note
    (nothing,), (why,) = advise_log(trace(rows), [replace(relation, kind="feedback loop")])
    assert nothing is None
    assert "no scenario of this kind" in why


def test_on_the_screen_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice: list[Any] = []

    def once(*args: Any, **options: Any) -> Any:
        """The same advice is shown in two ways, and tried in the simulator once."""
        advice[:] = advice or [advise_log(*args, **options)]
        return advice[0]

    monkeypatch.setattr(from_log, "advise_log", once)
    rows = queue(np.random.default_rng(1), 30, 50, 0.5, 3, 100, (40, 44))
    file = tmp_path / "attempts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = json.loads(CliRunner().invoke(main, ["control", str(file), "--json"]).stdout)
    assert [one["advice"] for one in plain["relations"]] == [None] * len(plain["relations"])
    found = json.loads(CliRunner().invoke(main, ["control", str(file), "--json", "--advice"]).stdout)
    (one,) = [one["advice"] for one in found["relations"] if one["kind"] == "metastability"]
    assert one["separation"] == "retry-budget"
    assert one["from_log"]["serves_per_s"] == pytest.approx(50, rel=0.2)
    assert one["default"]["stall_s"] == 4.0
    screen = CliRunner().invoke(main, ["control", str(file), "--advice"]).stdout
    assert "Separations, tried in the simulator" in screen
    assert "metastability on call, in 3 of 3 runs: retry-budget" in screen
    assert "by default: stall 4 s" in " ".join(screen.split())


ROW = st.fixed_dictionaries(
    {
        "time_ns": st.integers(0, 10**15), "controller": st.sampled_from(["a", "b", "", "(["]),
        "target": st.sampled_from(["t", ""]),
        "knob": st.sampled_from(["replicas", "attempt", "preemption"]), "direction": st.sampled_from([-1, 0, 1]),
        "attempt": st.integers(-1, 30), "work": st.sampled_from(["w", "x", ""]), "busy_ns": st.integers(-1, 10**14),
        "deadline_ns": st.integers(-1, 10**15), "outcome": st.sampled_from(["kept", "failed", "preempted", ""]),
        "after": st.sampled_from(["", "1", "2e300"]), "layer": st.sampled_from(["retry", "autoscaler"]),
    }
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=120), kind=st.sampled_from(sorted(FITS)), many=st.integers(1, 3))
def test_no_log_is_too_strange(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], kind: str, many: int) -> None:
    monkeypatch.setattr(from_log, "advise", lambda *_, **__: [])
    names = ["a", "b", "(["][:many]
    one = Relation(kind, tuple(names), "t", "replicas", 3, None, None, "").entry()
    (found,), (note,) = advise_log(trace(rows * many), [one])
    assert found is None
    assert "no advice could be checked" in note
