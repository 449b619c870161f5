"""``--redact``: no name of the user's is left, and nothing else is changed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from briefs import briefing, source
from results import filled
from taut.briefing.redaction import redacted
from taut.result.brief_types import BriefedControl, BriefedScenario, ControlStack
from taut.result.types import ControlResult, ProjectResult

STACK = {
    "controllers": [{"name": "autoscaler", "layer": "autoscaler", "decisions": 3, "turned_back": 0}],
    "pairs": [], "targets": ["shop/api", "12"],
}  # fmt: skip


def test_names_of_a_scenario_of_the_users_own_are_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "zorg.toml"
    path.write_text('name = "zorg-prod"\n[loops]\n[pool]\nname = "flumph"\n[[autoscaler]]\nname = "snorf"\n', encoding="utf-8")
    advice = {
        "kind": "conflict", "target": "flumph", "tried": 1, "separation": "hold",
        "sets": [{"key": "autoscaler.snorf.hysteresis", "before": 0, "after": 1}],
    }  # fmt: skip
    given = {"scenario": "zorg-prod", "workload": "loops", "advice": [advice]}
    one = BriefedScenario(
        source=source(str(path), "scenario"), result=filled(ProjectResult, given), grown=None, review=None, declared={}
    )  # fmt: skip
    found = redacted(briefing(scenarios=[one], inputs=[one.source]))
    text = msgspec.json.encode(found).decode()
    assert not [name for name in ("zorg", "flumph", "snorf", str(tmp_path)) if name in text]
    assert "hysteresis" in text


def test_a_scenario_that_ships_names_nobody() -> None:
    result = filled(ProjectResult, {"scenario": "control-stack", "workload": "loops"})
    one = BriefedScenario(source=source("control-stack", "scenario"), result=result, grown=None, review=None, declared={})
    assert redacted(briefing(scenarios=[one])).scenarios == [one]


def test_targets_go_though_no_relation_names_them_and_figures_and_layers_stay() -> None:
    because = "autoscaler reversed replicas of shop/api 12 times, 3 of 12 at 0.12 s; job 12 waits"
    result = filled(ControlResult, {"controllers": ["autoscaler"], "regime": {"class": None, "because": because}})
    one = BriefedControl(source=source("toy", "control log"), result=result, stack=filled(ControlStack, STACK))
    (found,) = redacted(briefing(controls=[one])).controls
    assert found.result.regime.because == (
        "controller-1 reversed replicas of target-1 12 times, 3 of 12 at 0.12 s; job target-2 waits"
    )  # fmt: skip
    assert found.stack is not None
    assert found.stack.controllers[0].layer == "autoscaler"
    assert found.stack.targets == ["target-1", "target-2"]
