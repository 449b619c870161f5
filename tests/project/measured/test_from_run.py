"""A measured run is asked what a scenario file is asked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.project.marginal_gain import PAYS
from taut.project.measured.from_run import crossing
from taut.project.measured.scaled_run import Forecast


def forecast(ranks: int, step: float) -> Forecast:
    return Forecast(ranks, (step,) * 3, (step, step, step), 100.0, {"compute": step}, ())


def test_the_threshold_lies_where_the_ranks_added_bring_too_little() -> None:
    # A step of 100 + ranks: the rate is ranks ÷ (100 + ranks), what a rank more brings 100² ÷ (100 + ranks)², half at 41.4.
    made = [forecast(4 << k, 100.0 + (4 << k)) for k in range(8)]
    found = crossing(made, 0)
    assert found == pytest.approx(100 * ((1 / PAYS) ** 0.5 - 1), rel=0.1)


def test_a_job_that_scales_has_no_threshold_in_what_was_tried() -> None:
    assert crossing([forecast(4 << k, 100.0) for k in range(8)], 0) is None
    slower = [replace(forecast(4 << k, 100.0), mean_ns=(400.0, 300.0, 500.0)) for k in range(8)]
    assert crossing(slower, 0) == 4, "no accelerator ever paid"


def test_both_ways_in_answer_the_same_questions(demo_run: Path) -> None:
    runner = CliRunner()
    asked = []
    for args in (["--from", str(demo_run)], ["gpt-175b", "--steps", "10", "--policy", "overlap"]):
        done = runner.invoke(main, ["project", *args, "--json", "-q"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        asked.append(json.loads(done.stdout))
    assert [q["question"] for q in asked[0]["questions"]] == [q["question"] for q in asked[1]["questions"]]
    assert {"forecasts", "indices", "regime", "threshold", "questions"} <= set(asked[0]) & set(asked[1])
    for result in asked:
        assert all(q["answer"] is not None or q["says"] == "not measured" for q in result["questions"])
