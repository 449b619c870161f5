"""The lab of control: real loops, real logs, and what ``taut control`` makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.lab.control_lab import Row, run
from taut.lab.control_launch import Plan as Launch
from taut.lab.control_launch import predict as predict_launch
from taut.lab.control_pair import Plan, predict
from taut.lab.control_slurm import missing as no_slurm
from taut.lab.control_slurm import plans as slurm_plans
from taut.lab.control_slurm import predict as predict_slurm


def _cases(rows: list[Row | str]) -> dict[str, Row]:
    return {row.case: row for row in rows if isinstance(row, Row)}


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return found


@pytest.mark.parametrize(
    ("plan", "outcome", "attempts_per_s"),
    [
        (Plan(retries=0), "recovers", 30.0),
        (Plan(retries=3), "stays down", 120.0),
        (Plan(retries=3, stall_s=0.2), "recovers", 30.0),  # what is queued then is served in time
        (Plan(retries=3, serve=200.0), "recovers", 30.0),  # all retries together can be served
    ],
)
def test_the_fixed_points_say_beforehand_how_a_stall_ends(plan: Plan, outcome: str, attempts_per_s: float) -> None:
    predicted = predict(plan)
    assert predicted["outcome"] == outcome
    assert predicted["attempts_per_s"] == pytest.approx(attempts_per_s, rel=1e-3)


def test_restarts_are_burned_if_the_stall_outlasts_the_timeout() -> None:
    assert predict_launch(Launch(stall_s=8, timeout_s=5)) == {"outcome": "burns all restarts", "attempts": 4}
    assert predict_launch(Launch(stall_s=8, timeout_s=20)) == {"outcome": "completes", "attempts": 1}


def test_a_stall_passes_without_retries_and_stays_with_three(tmp_path: Path) -> None:
    cases = _cases(list(run(["pair"], tmp_path, 1, short=True)))
    calm, storm = cases["0 retries, 250 served/s"], cases["3 retries, 250 served/s"]
    assert (calm.truth, storm.truth) == ("recovers", "stays down")
    assert calm.as_predicted
    assert storm.as_predicted
    named = {"metastability", "amplification"}
    assert not named & set(calm.found)
    assert named & set(storm.found)
    truth = _read(tmp_path / "pair/retries-3-served-250/truth.json")
    assert truth["measured"]["goodput_per_s"] <= 0.05 * truth["measured"]["works_per_s"]
    assert truth["measured"]["attempts_per_s"] >= 3 * truth["measured"]["works_per_s"]
    assert _read(tmp_path / "pair/retries-3-served-250/result.json")["regime"]["class"] == "amplifying"
    lines = (tmp_path / "pair/retries-0-served-250/attempts.jsonl").read_bytes().splitlines()
    assert {msgspec.json.decode(line)["attempt"] for line in lines} == {0}


def test_a_launcher_burns_its_restarts_against_a_stall(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = list(run(["torchrun"], tmp_path, 0, short=True))
    cases = _cases(rows)
    assert {case: (row.truth, row.as_predicted, row.verdict) for case, row in cases.items()} == {
        "2 s stall, 1 s timeout": ("burns all restarts", True, "right"),
        "2 s stall, 20 s timeout": ("completes", True, "right"),
    }
    assert "timeout of 1 s" in (tmp_path / "torchrun/timeout-1s/result.json").read_text()


@pytest.mark.parametrize("short", [True, False])
def test_only_a_rescuer_that_does_not_wait_its_turn_makes_a_fight(short: bool) -> None:
    plans = {plan.name: plan for plan in slurm_plans(short)}
    urgent = plans["left alone"].arrivals
    predicted = {name: predict_slurm(plan) for name, plan in plans.items()}
    assert {name: tuple(one.values()) for name, one in predicted.items()} == {
        "rescued at once": ("fought over", urgent, urgent, urgent - 1),
        "left alone": ("no fight", 1, 0, 0),
        "rescued when quiet": ("no fight", 1, 1, 0),
        "room for both": ("no fight", 0, urgent, 0),
    }


def test_a_rescuer_fights_preemption_for_a_job(tmp_path: Path) -> None:
    why = no_slurm()
    if why:
        pytest.skip(f"a Slurm cluster cannot run here: {why}")
    cases = _cases(list(run(["slurm"], tmp_path, 1, short=True)))
    assert {name: (row.truth, row.as_predicted, row.verdict) for name, row in cases.items()} == {
        "rescued at once": ("fought over", True, "right"),
        "left alone": ("no fight", True, "right"),
        "rescued when quiet": ("no fight", True, "right"),
        "room for both": ("no fight", True, "right"),
    }
    fight, alone = tmp_path / "slurm/rescued-at-once", tmp_path / "slurm/left-alone"
    truth = _read(fight / "truth.json")
    (conflict,) = (one for one in _read(fight / "result.json")["relations"] if one["kind"] == "conflict")
    assert (sorted(conflict["controllers"]), conflict["target"]) == (["rescuer", "slurmctld"], truth["target"])
    assert conflict["count"] == truth["measured"]["preempted"]
    assert truth["measured"]["work_thrown_away_s"] > _read(alone / "truth.json")["measured"]["work_thrown_away_s"]
    assert sorted(path.name for path in (fight / "logs").iterdir()) == ["jobcomp.txt", "rescuer.log", "slurmctld.log"]


def test_without_slurm_it_is_left_out_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name.startswith("slurm") else f"/usr/bin/{name}")
    (line,) = run(["slurm"], tmp_path, 0, short=True)
    assert line == "slurm: left out, slurmctld, slurmd not installed; apt-get install slurm-wlm munge"
    assert not list(tmp_path.iterdir())


def test_the_score_of_training_runs_refuses_a_control_experiment(tmp_path: Path) -> None:
    (tmp_path / "truth.json").write_text('{"experiment": "pair"}')
    result = CliRunner().invoke(main, ["lab", "score", str(tmp_path)])
    assert result.exit_code == 1
    assert "a control experiment, scored by taut lab control" in result.output


def test_an_experiment_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert list(run(["torchrun"], tmp_path, 0, short=True)) == [
        "torchrun: left out, torch is not installed; pip install 'taut[lab]'"
    ]
    assert not list(tmp_path.iterdir())


def test_an_unknown_experiment_is_refused_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["lab", "control", "--experiment", "sawmill", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "no experiment sawmill; there are: pair, torchrun, slurm" in result.output
