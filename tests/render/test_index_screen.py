"""Indices and risk profile on the screen: value, interval, meaning; old beside new; what is missing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rich.cells import cell_len

from results import RESULT, filled
from taut.render.analysis_screen import render
from taut.render.terminal import Screen
from taut.result.types import AnalysisResult

INDICES = {
    "effective_throughput_ratio": {"value": 0.768, "lo": 0.759, "hi": 0.777},
    "sync_delay_amplification": {"value": 3.82, "lo": 3.59, "hi": 4.0},
    "straggler_cascade_rate": {"value": 1.0, "lo": 0.701, "hi": 1.0},
}
NEEDS = {"energy_per_useful_step": "needs power", "replay_probability": "needs a progress log"}
OLD = {
    "run": "runs/before",
    "digest": "",
    "step_ns": {"before": 1.0, "after": 2.0},
    "indices": {**INDICES, "effective_throughput_ratio": {"value": 0.961}, "straggler_cascade_rate": {"value": 0.0}},
    "turnover": 0.814,
}


def answer(question: str, said: str | None, says: str = "", needs: str | None = None) -> dict[str, Any]:
    return {"question": question, "answer": said, "says": says, "evidence": [], "needs": needs}


RISK: dict[str, Any] = {
    "class": "soft degradation",
    "says": "slower",
    "answers": [
        answer("longer without errors", "yes", "step 97 → 132 ms, without an error"),
        answer("re-runs without a reproducible bug", None, needs="a job log"),
        answer("utilisation falls though allocated", "no", "84 → 84 %"),
        answer("energy out of proportion", None, needs="power"),
    ],
}


def screen_of(screen: Screen | None = None, **keys: Any) -> str:
    result = copy.deepcopy(RESULT) | {"indices": INDICES, "index_needs": NEEDS} | keys
    return render(filled(AnalysisResult, result), screen or Screen(80))


def test_indices_have_value_interval_and_meaning() -> None:
    shown = screen_of()
    assert "effective throughput      76.8 % (75.9–77.7)    ideal over actual time" in shown
    assert "sync delay amplification  3.82 × (3.59–4.00)    job's delay over ranks'" in shown
    assert "straggler cascade rate    100.0 % (70.1–100.0)  steps one rank holds up" in shown
    wide = screen_of(Screen(120))
    assert "of steps in which one late rank holds up half of the others" in wide


def test_an_index_without_a_value_says_what_it_needs() -> None:
    shown = " ".join(screen_of().split())
    assert "no value: energy per useful step (needs power); replay probability (needs a progress log)" in shown
    alone = dict.fromkeys(("sync_delay_amplification", "straggler_cascade_rate"), "needs several ranks")
    shown = " ".join(screen_of(index_needs=alone).split())
    assert "no value: sync delay amplification, straggler cascade rate (needs several ranks)" in shown


def test_against_a_baseline_the_old_value_is_struck_through() -> None:
    coupling = {"response": None, "turnover": {"value": 0.465, "p": 0.05, "expected": 0.84, "windows": 9, "tested_windows": 9}}
    plain = screen_of(baseline=OLD, coupling=coupling)
    assert "effective throughput      96.1 → 76.8 % (75.9–77.7)" in plain
    assert "critical path turnover    81.4 → 46.5 %" in plain
    assert "held; chance 84 %" in plain
    assert "…" not in plain
    styled = screen_of(Screen(80, styled=True), baseline=OLD)
    assert "\x1b[2;9m96.1\x1b[0m → " in styled


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_fits(width: int, unicode: bool) -> None:
    shown = screen_of(Screen(width, unicode=unicode), baseline=OLD, risk=RISK)
    assert max(map(cell_len, shown.splitlines())) <= width
    assert unicode or shown.isascii()
    assert "…" not in shown
    assert "\\u" not in shown


def test_the_risk_is_a_line_unless_there_is_more_than_traces() -> None:
    line = " ".join(screen_of(risk=RISK).split())
    said = "Risk: soft degradation · slower, and no error is logged · 1 of 2 measured signs show, --envelope lists all 4"
    assert said in line
    assert "re-runs without a bug" not in line
    assert "re-runs without a bug" in render(filled(AnalysisResult, RESULT | {"risk": RISK}), Screen(80), all_signs=True)
    block = " ".join(screen_of(risk=RISK, baseline=OLD).split())
    assert "Risk: soft degradation · slower, and no error is logged" in block
    assert "longer without errors yes step 97 → 132 ms, without an error" in block
    assert "re-runs without a bug – not measured, needs a job log" in block


def test_nothing_measured_is_no_line() -> None:
    unknown = [answer(one["question"], None, needs="power") for one in RISK["answers"]]
    assert "Risk" not in screen_of(risk={"class": None, "says": "", "answers": unknown})


def test_utilised_stands_beside_productive() -> None:
    verdict = RESULT["verdict"] | {"nominal_share": 0.982, "nominal_is": "derived from kernels", "effective_share": 0.607}
    assert screen_of(verdict=verdict).splitlines()[1] == "98 % utilised, 61 % productive (by time under any kernel)"
    assert "utilised" not in screen_of(verdict=verdict | {"nominal_share": None})
    old = OLD | {"nominal_share": 0.99, "effective_share": 0.84}
    assert screen_of(verdict=verdict, baseline=old).splitlines()[1].startswith("99 → 98 % utilised, 84 → 61 % productive")
