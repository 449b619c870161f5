"""``taut audit why --again``: the recorded command gives the same bytes, or it is said what differs; nothing is touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner, Result

from taut.cli import main

ROWS = "".join(f"{rank},{step},compute,{step * 20},{10 + rank}\n" for step in range(3) for rank in range(2))
OPS = f"rank,step,class,start_ms,duration_ms\n{ROWS}"


def taut_(*args: object, given: bytes | None = None) -> Result:
    runner = CliRunner(env={"TAUT_AUDIT": "on", "COLUMNS": "120"})
    return runner.invoke(main, [str(arg) for arg in args], prog_name="taut", input=given)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run again is run here: starting Python anew takes a second."""

    def ran(words: list[str], here: Path, env: Mapping[str, str], given: bytes) -> CompletedProcess[bytes]:
        with monkeypatch.context() as there:
            there.chdir(here)
            done = CliRunner(env=env).invoke(main, words, prog_name="taut", input=given)
        return CompletedProcess(words, done.exit_code, done.stdout_bytes, done.stderr_bytes)

    monkeypatch.setattr("taut.cli.again.ran", ran)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site" / "traces").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "site")
    Path("traces/ops.csv").write_text(OPS)
    return Path.cwd()


def test_a_command_is_run_again_in_a_process_of_its_own(here: Path) -> None:
    assert taut_("export", "--to", "schema", "-o", "schema.json").exit_code == 0
    assert json.loads(taut_("audit", "why", "1", "--again", "--yes", "--json").stdout)["again"]["same"]


@pytest.mark.parametrize("words", [["traces/ops.csv"], ["../site/traces"], ["HERE/traces", "-o", "HERE/run"]])
@pytest.mark.usefixtures("in_process")
def test_a_command_gives_the_same_bytes_again_and_nothing_here_changes(here: Path, words: list[str]) -> None:
    words = [word.replace("HERE", str(here)) for word in words]
    assert taut_("analyze", *words, "--json", "-q").exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in here.parent.rglob("*")}
    done = taut_("audit", "why", "1", "--again", "--yes", "--json")
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
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert done.exit_code == 2
    assert "ops.csv: is not what was read then" in done.stderr


@pytest.mark.usefixtures("in_process")
def test_other_bytes_are_exit_5_and_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr("taut.result.schema.stored_schema", lambda: b"{}")
        assert taut_("export", "--to", "schema", "-o", "schema.json").exit_code == 0
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert done.exit_code == 5
    assert "differs in 1 file: schema.json" in done.stdout


def test_what_was_only_shown_is_not_run_again(here: Path) -> None:
    assert taut_("analyze", "traces", "--no-save").exit_code == 0
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert (done.exit_code, "holds no digest" in done.stderr) == (2, True)


@pytest.mark.usefixtures("in_process")
def test_standard_input_is_given_once_more(here: Path) -> None:
    assert taut_("analyze", "-", "--json", "-q", "-o", "run", given=OPS.encode()).exit_code == 0
    told = json.loads(taut_("audit", "why", "1", "--json").stdout)["chain"][0]["record"]["details"]
    assert [one["name"] for one in told["read"]] == ["standard input"]
    assert taut_("audit", "why", "1", "--again", "--yes", given=OPS.encode()).exit_code == 0
    done = taut_("audit", "why", "1", "--again", "--yes", given=b"something else")
    assert (done.exit_code, "standard input is not what was read then; give it once more" in done.stderr) == (2, True)


@pytest.mark.usefixtures("in_process")
def test_very_many_files_are_held_against_the_digest_of_all(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.cli.recording.MOST_FILES", 1)
    monkeypatch.setattr("taut.cli.again.MOST_FILES", 1)
    Path("traces/more.csv").write_text(OPS.replace("\n0,", "\n2,").replace("\n1,", "\n3,"))
    assert taut_("analyze", "traces", "--json", "-q").exit_code == 0
    assert json.loads(taut_("audit", "log", "--json").stdout)["records"][1]["details"]["read"][0]["name"] == "2 files"
    assert taut_("audit", "why", "1", "--again", "--yes").exit_code == 0
    Path("traces/more.csv").write_text(OPS.replace("\n0,", "\n2,").replace("\n1,", "\n4,"))
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert (done.exit_code, "is not what was read then (2 files were read then, 2 now)" in done.stderr) == (2, True)


@pytest.mark.usefixtures("in_process")
def test_what_is_run_again_leaves_no_record_in_any_log(here: Path) -> None:
    log = here / "elsewhere.db"
    assert taut_("analyze", "traces", "--json", "-q", "--audit", log).exit_code == 0
    before = log.read_bytes()
    assert taut_("audit", "why", "1", "--again", "--yes", "--audit", log).exit_code == 0
    assert log.read_bytes() == before
