"""What to do about a finding on known hosts: commands that name these hosts and nothing else, and text for a ticket."""

from __future__ import annotations

import csv
import shlex
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import taut
from taut.cli import main
from taut.ledger import Prices


def job(path: Path, hosts: list[str], slow: int = 3) -> Path:
    """Four ranks, eight steps: computes of 10 ms and a collective of 1 ms; one rank takes 30 ms longer."""
    with path.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["rank", "step", "class", "start_ms", "duration_ms", "host"])
        for step in range(8):
            for rank in range(4):
                work, start = 10 + 0.01 * ((rank * 7 + step * 3) % 5) + 30 * (rank == slow), step * 41.1
                rows.writerow([rank, step, "compute", f"{start:.3f}", f"{work:.3f}", hosts[rank]])
                rows.writerow([rank, step, "all-reduce", f"{start + work:.3f}", f"{41.1 - work:.3f}", hosts[rank]])
    return path


def analysed(path: Path, *more: str) -> Result:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["analyze", str(path), "-o", str(path.parent / "run"), *more])
    assert done.exit_code == 0, done.stderr
    return done


def commands(stderr: str) -> list[list[str]]:
    """The words of the lines that say what to do now, as a shell takes them."""
    lines = [line.partition(":")[2] for line in stderr.splitlines() if line.startswith(("now:", "or:"))]
    return [shlex.split(line, comments=True) for line in lines]


def test_the_host_of_a_finding_is_drained_by_its_short_name_in_slurm_and_by_its_full_one_in_kubernetes(tmp_path: Path) -> None:
    done = analysed(job(tmp_path / "ops.csv", [f"gpu-{k}.example.org" for k in range(4)]))
    slurm, kubernetes = commands(done.stderr)
    assert slurm[:4] == ["scontrol", "update", "nodename=gpu-3", "state=drain"]
    assert slurm[4].startswith("reason=taut f-")
    assert kubernetes == ["kubectl", "cordon", "gpu-3.example.org"]
    assert "now: let no new job start on gpu-3.example.org, and test it" in done.stdout


def test_the_decision_that_is_offered_is_taken(tmp_path: Path) -> None:
    done = analysed(job(tmp_path / "ops.csv", ["a", "b", "c", "d"]))
    (offered,) = [line for line in done.stderr.splitlines() if line.startswith("next: taut audit decide ")]
    words = [*shlex.split(offered)[2:], "--audit", str(tmp_path / "audit.db")]
    decided = CliRunner().invoke(main, words)
    assert decided.exit_code == 0, decided.stderr


@pytest.mark.parametrize("name", ["ALL", "gpu[0-99]", "a,b", "--all", "-l x", "$(reboot)", "x; reboot", "a\x1b[2Jb", "x y"])
def test_a_name_that_may_mean_more_than_a_host_is_in_no_command(tmp_path: Path, name: str) -> None:
    done = analysed(job(tmp_path / "ops.csv", ["a", "b", "c", name]))
    assert "scontrol" not in done.stderr
    assert "kubectl" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "now: text for a ticket: findings[0].remedy in run.json" in done.stderr


def test_nothing_is_offered_where_no_host_is_known(tmp_path: Path) -> None:
    done = analysed(job(tmp_path / "ops.csv", [""] * 4))
    assert "now:" not in done.stdout + done.stderr
    assert "audit decide" not in done.stderr


def test_a_ticket_says_what_where_when_how_sure_and_at_what_cost(tmp_path: Path) -> None:
    path = job(tmp_path / "ops.csv", ["a", "b", "c", "d"])
    remedy = taut.analyze(path, prices=Prices(Decimal("2.50"), "EUR")).result.findings[0].remedy
    assert remedy is not None
    lines = remedy.ticket.splitlines()
    assert lines[0] == "straggler cascade on d"
    assert lines[1].startswith("Ranks 3, steps 0 to 7, confidence ")
    assert lines[2].startswith("Because ")
    assert lines[3].startswith("Mending it would have saved 0.24")
    assert lines[4].endswith(" EUR a day while it lasts.")
    assert lines[-1].startswith("Found by taut as f-")
