"""``taut audit why --again``: the recorded command gives the same bytes, or it is said what differs; nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taut.cli import main

ROWS = "".join(f"{rank},{step},compute,{step * 20},{10 + rank}\n" for step in range(3) for rank in range(2))


def taut_(*args: object) -> Result:
    return CliRunner(env={"TAUT_AUDIT": "on", "COLUMNS": "120"}).invoke(main, [str(arg) for arg in args], prog_name="taut")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work" / "traces").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    Path("traces/ops.csv").write_text(f"rank,step,class,start_ms,duration_ms\n{ROWS}")
    return Path.cwd()


@pytest.mark.parametrize("words", [["traces/ops.csv"], ["../work/traces"], ["HERE/traces", "-o", "HERE/run"]])
def test_a_command_gives_the_same_bytes_again_and_nothing_here_changes(here: Path, words: list[str]) -> None:
    words = [word.replace("HERE", str(here)) for word in words]
    assert taut_("analyze", *words, "--json", "-q").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in here.parent.rglob("*")}
    done = taut_("audit", "why", "1", "--again", "--json")
    assert done.exit_code == 0, done.stderr
    again = json.loads(done.stdout)["again"]
    assert (again["same"], again["differs"]) == (True, [])
    assert "standard output" in again["compared"]
    assert any(name.endswith("/run.json") for name in again["compared"])
    assert {path: path.stat().st_mtime_ns for path in here.parent.rglob("*")} == before


@pytest.mark.parametrize("place", ["traces/ops.csv", "traces"])
def test_an_input_that_changed_is_named_and_nothing_is_run(here: Path, place: str) -> None:
    assert taut_("analyze", place, "-q").exit_code == 0
    with Path("traces/ops.csv").open("a") as out:
        out.write("0,3,compute,60,10\n")
    done = taut_("audit", "why", "1", "--again")
    assert done.exit_code == 2
    assert "ops.csv: is not what was read then" in done.stderr


def test_other_bytes_are_exit_5_and_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr("taut.result.schema.stored_schema", lambda: b"{}")
        assert taut_("export", "--to", "schema", "-o", "schema.json").exit_code == 0
    done = taut_("audit", "why", "1", "--again")
    assert done.exit_code == 5
    assert "differs in 1 file: schema.json" in done.stdout


def test_what_was_only_shown_is_not_run_again(here: Path) -> None:
    assert taut_("analyze", "traces", "--no-save").exit_code == 0
    done = taut_("audit", "why", "1", "--again")
    assert (done.exit_code, "holds no digest" in done.stderr) == (2, True)
