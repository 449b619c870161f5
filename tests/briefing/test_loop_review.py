"""Control loops by name: of a file of loops, of a scenario file, of a scenario that ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from taut.briefing.loop_review import loops_of, review_of
from taut.cli import main
from taut.control.review import review
from taut.core.errors import InputRefused
from taut.project.loops.as_configured import as_configured
from taut.project.loops.policies import POLICIES
from taut.project.loops.scenario import Scenario, parse
from taut.read.scenario_file import load, names

WITH_LOOPS = {"agent-chain", "control-stack", "retry-heavy", "sla-adjacent"}


def shipped(name: str) -> Scenario:
    table, text = load(name)
    return parse(table, name, text)[0]


def fights(scenario: Scenario) -> set[tuple[str, tuple[str, ...]]]:
    return {(one.kind, tuple(one.controllers)) for one in review((), as_configured(scenario)).relations}


def test_every_shipped_scenario_with_loops_is_reviewed_and_no_other() -> None:
    assert {name for name in names("") if review_of(name) is not None} == WITH_LOOPS


def test_layers_of_retries_multiply_and_outlive_the_layer_above() -> None:
    found = review_of("retry-heavy")
    assert found is not None
    kinds = {(one.kind, tuple(one.controllers)): one for one in found.relations}
    assert kinds["amplification", ("gateway", "sdk")].statistic == 12
    # 3 × 5 s and pauses of 0.5 and 1 s, in 8 s.
    assert "3 × 5 s + 2 × 0.75 s = 16.5 s; within the 8 s of gateway" in kinds["timeout mismatch", ("gateway", "sdk")].because


def test_agents_are_layers_over_layers() -> None:
    found = review_of("agent-chain")
    assert found is not None
    kinds = {one.kind: one for one in found.relations}
    assert kinds["amplification"].statistic == 12
    assert "within the 180 s of task" in kinds["timeout mismatch"].because


@pytest.mark.parametrize(
    ("name", "policy", "gone"),
    [
        ("control-stack", "one-owner", ("conflict", ("scaler", "saver"))),
        ("control-stack", "own-machines", ("conflict", ("batch", "service"))),
        ("control-stack", "own-accelerators", ("conflict", ("priority", "launcher"))),
        ("control-stack", "deadline-propagation", ("timeout mismatch", ("sdk",))),
        ("sla-adjacent", "aligned-periods", ("oscillation", ("scaler",))),
        ("retry-heavy", "one-retry-layer", ("amplification", ("gateway", "sdk"))),
        ("retry-heavy", "longer-timeout", ("timeout mismatch", ("gateway", "sdk"))),
        ("retry-heavy", "deadline-propagation", ("timeout mismatch", ("gateway", "sdk"))),
    ],
)
def test_a_separation_of_the_simulator_resolves_what_the_review_finds(
    name: str, policy: str, gone: tuple[str, tuple[str, ...]]
) -> None:
    before = shipped(name)
    after = POLICIES[policy].apply(before, None)
    assert gone in fights(before)
    assert gone not in fights(after)


def test_a_pool_that_serves_in_vain_can_be_metastable_and_one_that_cancels_cannot() -> None:
    scenario = shipped("retry-heavy")
    tight = replace(scenario, pool=replace(scenario.pool, queue=0, most=12))
    assert "metastability" in {kind for kind, _ in fights(tight)}
    assert "metastability" not in {kind for kind, _ in fights(replace(tight, pool=replace(tight.pool, cancels=True)))}


def test_a_restore_slower_than_the_launcher_waits_is_told() -> None:
    scenario = shipped("control-stack")
    assert scenario.trainer is not None
    slow = replace(scenario, trainer=replace(scenario.trainer, restore_s=50))
    assert ("timeout mismatch", ("launcher", "restore")) in fights(slow)
    assert ("timeout mismatch", ("launcher", "restore")) not in fights(scenario)


def test_one_configuration_alone_is_all_new() -> None:
    done = CliRunner().invoke(main, ["control", "review", "retry-heavy", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert found["added"] == ["gateway", "sdk", "planner"]
    assert all(one["new"] for one in found["relations"])


def test_a_file_of_loops_and_a_scenario_can_be_compared(tmp_path: Path) -> None:
    file = tmp_path / "loops.toml"
    file.write_text('[[loop]]\nname = "gateway"\nlayer = "retry"\nretries = 3\n', encoding="utf-8")
    assert [one.name for one in loops_of(file)] == ["gateway"]
    done = CliRunner().invoke(main, ["control", "review", str(file), "retry-heavy", "--json"])
    assert json.loads(done.stdout)["added"] == ["sdk", "planner"]


def test_what_has_no_loops_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"gpt-175b: a scenario of training has no control loops that could fight; give one"):
        loops_of("gpt-175b")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[[lop]]\nname = "a"\n', encoding="utf-8")
    with pytest.raises(InputRefused, match=r"no such key: lop; known here: loop"):
        loops_of(wrong)
    done = CliRunner().invoke(main, ["control", "review", "retry-heavy", "retry-heavy", "retry-heavy"])
    assert done.exit_code == 2
    assert "3 configurations: give one, or the old one and the new one" in done.stderr
