"""Job logs at the shell: alone they give a screen and a run folder, beside traces a section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import taut
from taut.cli import main
from taut.core.errors import RunError

SACCT = """JobID|JobName|State|Submit|Start|End|AllocTRES
9|train\x1b[2J|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:00:00|gres/gpu=8
9|train|COMPLETED|2026-01-01T01:00:00|2026-01-01T02:00:00|2026-01-01T03:00:00|gres/gpu=8
"""
STEPS = """[2026-01-01 00:20:00] iteration 1/100 | loss 1
[2026-01-01 00:30:00] successfully saved checkpoint at iteration 11
[2026-01-01 00:40:00] iteration 21/100 | loss 1
[2026-01-01 02:01:00] loading checkpoint at iteration 11
[2026-01-01 02:12:00] iteration 12/100 | loss 1
[2026-01-01 02:50:00] iteration 50/100 | loss 1
"""
START = 1_767_225_600


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "100"}).invoke(main, [str(arg) for arg in args], prog_name="taut")


def asked(*args: object) -> dict[str, Any]:
    done = run("analyze", *args, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "sacct.txt").write_text(SACCT)
    return folder


def ops(path: Path) -> None:
    """Two ranks, four steps, in the second attempt's time."""
    at = START + 2.5 * 3600
    rows = [
        f"{r},{s},{n},{at + s + o:.3f},{d}"
        for s in range(4)
        for r in range(2)
        for n, o, d in (("fwd", 0, 0.4), ("all-reduce", 0.4, 0.1))
    ]
    path.write_text("rank,step,class,start_s,duration_s\n" + "\n".join(rows) + "\n")


def test_job_logs_alone_give_a_screen(logs: Path, tmp_path: Path) -> None:
    done = run("analyze", logs, "-o", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("2 attempts (1 node failed), the last completed. At most 45.5 % of 15 accelerator-hours")
    assert "down" in done.stdout
    assert "600 s queued" in done.stdout or "10.0 min queued" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr.splitlines()[-1].startswith("next: ")


def test_the_result_has_every_key_and_null_where_only_traces_tell(logs: Path, tmp_path: Path) -> None:
    alone = asked(logs, "-o", tmp_path / "run")
    ops(logs / "ops.csv")
    beside = asked(logs, "-o", tmp_path / "run2")
    assert set(alone) == set(beside)
    assert alone["ledger"] is None
    assert alone["attempts"]["closes"]
    assert alone["attempts"]["held_rank_ns"] == beside["attempts"]["held_rank_ns"] == 8 * 110 * 60 * 10**9


def test_beside_traces_the_attempts_are_a_section_and_the_traced_one_is_named(logs: Path, tmp_path: Path) -> None:
    ops(logs / "ops.csv")
    (logs / "train.log").write_text(STEPS)
    result = asked(logs, "-o", tmp_path / "run")
    assert result["attempts"]["traced_attempt"] == 2
    assert result["attempts"]["steps"] == {
        "executed": 21 + 39, "discarded": 10, "resumed_by_guess": 0,
        "replay_probability": result["indices"]["replay_probability"],
    }  # fmt: skip
    assert result["indices"]["replay_probability"]["value"] == pytest.approx(10 / 60)
    screen = run("analyze", logs, "-o", tmp_path / "run").stdout
    assert "2 traced" in screen
    assert "Fidelity" in screen


def test_without_job_logs_nothing_is_reported_of_attempts(tmp_path: Path) -> None:
    ops(tmp_path / "ops.csv")
    result = asked(tmp_path / "ops.csv", "-o", tmp_path / "run")
    assert result["attempts"] is None
    assert result["indices"]["replay_probability"] is None


def test_a_price_is_paid_for_what_was_held(logs: Path, tmp_path: Path) -> None:
    found = asked(logs, "-o", tmp_path / "run", "--gpu-hour", "3EUR")["attempts"]
    assert sum(float(e["money"]) for e in found["entries"]) == pytest.approx(3 * 8 * 110 / 60)
    assert found["currency"] == "EUR"


def test_what_was_discarded_is_told_by_how_the_attempt_ended(tmp_path: Path) -> None:
    rows = "".join(
        f"5|{state}|2026-01-01T0{i}:00:00|2026-01-01T0{i}:00:00|2026-01-01T0{i}:{10 * (i + 1)}:00|gres/gpu=8\n"
        for i, state in enumerate(["PREEMPTED", "NODE_FAIL", "PREEMPTED", "COMPLETED"])
    )
    (tmp_path / "sacct.txt").write_text(f"JobID|State|Submit|Start|End|AllocTRES\n{rows}")
    found = asked(tmp_path, "-o", tmp_path / "run")["attempts"]
    minute = 8 * 60 * 10**9
    assert found["discarded_by"] == {"preempted": 40 * minute, "node failed": 20 * minute}
    assert sum(e["rank_ns"] for e in found["entries"] if e["fate"].startswith("discarded")) == 60 * minute
    assert (
        "Discarded: 5.33 h preempted · 2.67 h node failed"
        in run("analyze", tmp_path / "sacct.txt", "-o", tmp_path / "r").stdout
    )


def test_a_run_of_job_logs_has_no_graph_and_says_so(logs: Path, tmp_path: Path) -> None:
    asked(logs, "-o", tmp_path / "run")
    done = run("whatif", tmp_path / "run", "--fix", "rank=1")
    assert done.exit_code == 1
    assert "made of logs alone" in done.stderr
    with pytest.raises(RunError):
        taut.open_run(tmp_path / "run")


def test_the_same_logs_give_the_same_bytes(logs: Path) -> None:
    assert taut.analyze([logs]).to_json() == taut.analyze([logs]).to_json()
    assert "2 attempts" in taut.analyze([logs]).verdict


def test_a_launcher_out_of_restarts_is_reported(shared: Path, tmp_path: Path) -> None:
    result = asked(shared / "control" / "torchrun-c10d-timeout.err", "-o", tmp_path / "run")
    assert "all 3 restarts burned" in result["verdict"]["text"]
    assert result["attempts"]["out_of_restarts"] == ["torchrun-c10d-timeout"]


def test_many_jobs_are_summed_and_the_worst_are_listed(shared: Path, tmp_path: Path) -> None:
    result = asked(shared / "philly-restarts" / "jobs.json", "-o", tmp_path / "run")
    assert result["verdict"]["text"].startswith("816 of 3,034 jobs restarted. At most 20.7 % of 772,361 accelerator-hours")
    worst = [row["discarded_rank_ns"] for row in result["attempts"]["worst"]]
    assert worst == sorted(worst, reverse=True)
    assert len(worst) == 20


def test_jobs_that_were_not_restarted_are_told_by_how_they_ended(tmp_path: Path) -> None:
    table, rows = tmp_path / "jobs.csv", (("a", 1, "completed"), ("b", 1, "failed"), ("c", 2, "failed"))
    lines = [f"{job},1,{START},{START + 36000},{gpus},{outcome}" for job, gpus, outcome in rows]
    table.write_text("\n".join(["job,attempt,start,end,gpus,outcome", *lines]))
    text = asked(table, "-o", tmp_path / "run")["verdict"]["text"]
    assert text == "3 jobs, none restarted: 2 failed, 1 completed. 75.0 % of 40 accelerator-hours was left unfinished."
