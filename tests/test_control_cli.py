"""``taut control``: reads logs, relates, prints, keeps a run. The relations themselves are tested in their own room."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from action_rows import written
from taut.cli import main
from taut.core.tables import Trace
from taut.result.types import ControlRegime, ControlResult

LOG = "2026-01-01T00:00:01Z hpa replicas=3 web\n2026-01-01T00:00:02Z ops replicas=1 web\n"
SACCT = {"jobs": [{"job_id": 7, "state": {"current": "FAILED"}, "time": {"submission": 4, "start": 5, "end": 9, "elapsed": 4}}]}


@pytest.fixture(autouse=True)
def relations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A room that finds nothing, in the keys of the contract."""
    room = ModuleType("taut.control.relations")

    def control(trace: Trace, *, seed: int = 0) -> ControlResult:
        names = sorted(set(trace.actions.controller.tolist()))
        return ControlResult(
            actions=len(trace.actions), controllers=names, relations=[], indices={}, regime=ControlRegime(kind="coherent"),
            partial=list(trace.partial),
        )  # fmt: skip

    room.control = control  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "taut.control.relations", room)


def run(*args: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["control", *map(str, args)], input=stdin)


def test_the_screen(tmp_path: Path) -> None:
    result = run(*written(tmp_path, a__log=LOG))
    assert result.exit_code == 0
    assert result.stdout.startswith("Control is coherent: no relation among 2 controllers.\na · 2 actions · hpa, ops\n")


def test_json_on_stdout_and_nothing_else(tmp_path: Path) -> None:
    result = run(*written(tmp_path, a__log=LOG), "--json")
    found = json.loads(result.stdout)
    assert {"actions", "controllers", "relations", "indices", "regime", "partial"} <= set(found)
    assert (found["actions"], found["counts"]["actions"]) == (2, 2)
    assert result.stderr == ""


def test_standard_input() -> None:
    result = run("-", "--json", stdin=json.dumps(SACCT).encode())
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["controllers"] == ["slurmctld", "user"]


def test_a_run_folder(tmp_path: Path) -> None:
    paths = written(tmp_path, a__log=LOG)
    result = run(*paths, "-o", tmp_path / "run")
    assert result.stderr == f"written: {tmp_path / 'run'}\n"
    assert pq.read_table(tmp_path / "run" / "actions.parquet")["controller"].to_pylist() == ["hpa", "ops"]
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["result"]["actions"] == 2
    assert kept["graph"] is None
    first = (tmp_path / "run" / "run.json").read_bytes()
    assert run(*paths, "-o", tmp_path / "run", "-q").stderr == ""
    assert (tmp_path / "run" / "run.json").read_bytes() == first


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [("a.log", "nothing of interest", "not a trace"), ("b.csv", "time,controller,target\nx,a,t\n", "no row has a time")],
)
def test_refusals_are_one_line(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content)
    result = run(tmp_path / name)
    assert result.exit_code == 4
    assert why in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_traces_in_which_nobody_decides_anything_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("rank,step,class,start,duration\n0,0,fwd,0,5\n1,0,fwd,0,5\n")
    result = run(tmp_path)
    assert result.exit_code == 4
    assert "nobody decides anything here" in result.stderr


def test_analyze_says_which_verb_reads_control_logs(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["analyze", *map(str, written(tmp_path, a__log=LOG))])
    assert result.exit_code == 4
    assert "taut control" in result.stderr
