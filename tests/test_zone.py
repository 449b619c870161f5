"""From traces and a log of actions on disk to the zone of a conflict: one section of the screen, one key, one picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taut.cli import DEMO, main
from taut.read.trace import read

MS = 1_000_000
CYCLES = 8
TRACES = sorted(DEMO.glob("rank*.json.gz"))


@pytest.fixture(scope="module")
def fought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in job with a governor that slows a rank down and a rescuer that undoes it, and its run."""
    folder = tmp_path_factory.mktemp("zone")
    ops = read(TRACES).ops
    first, last = int(ops.start_ns.min()), int(ops.end_ns.max())
    every = (last - first) // (CYCLES + 1)
    with (folder / "actions.jsonl").open("w") as log:
        for k in range(CYCLES):
            for who, way, after in (("governor", "down", 0), ("rescuer", "up", every // 50)):
                at = first + every // 2 + k * every + after
                row = {"time_ns": at, "controller": who, "target": "rank 1", "knob": "clock", "direction": way}
                log.write(json.dumps(row) + "\n")
    done = run("analyze", *TRACES, folder / "actions.jsonl", "-o", folder / "run", "--gpu-hour", "2.50EUR", "-q")
    assert done.exit_code == 0, done.output
    (folder / "screen.txt").write_text(done.stdout)
    return folder


def run(*args: object) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "run.json").read_text())["result"]
    return found


def test_the_conflict_has_a_zone_and_a_price(fought: Path) -> None:
    found = result(fought)
    (one,) = found["control"]["relations"]
    zone = one["zone"]
    assert (one["kind"], one["controllers"], zone["ranks"]) == ("conflict", ["governor", "rescuer"], [1])
    assert found["job"]["first_step"] <= zone["steps"][0] <= zone["steps"][1] <= found["job"]["last_step"]
    assert 0 < zone["ops"] <= found["job"]["ops"] / found["job"]["ranks"]
    assert one["cost"]["currency"] == "EUR"
    assert found["ledger"]["closes"]
    assert found["verdict"]["class"] == "component", "what they took is nothing beside the slow rank and the hiccups"


def test_the_screen_has_one_section_more(fought: Path) -> None:
    screen = (fought / "screen.txt").read_text()
    assert "Control is incoherent: relations between controllers" in screen
    assert "conflict: governor – rescuer" in screen


def test_without_actions_nothing_is_reported_of_control(tmp_path: Path) -> None:
    done = run("analyze", *TRACES, "-o", tmp_path / "run", "-q")
    assert "Control" not in done.stdout
    assert json.loads((tmp_path / "run" / "run.json").read_text())["result"]["control"] is None


def test_a_zone_is_exported_alone(fought: Path) -> None:
    pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    whole, part = fought / "whole.pftrace", fought / "run" / "perfetto-zone1.pftrace"
    assert run("export", fought / "run", "--to", "perfetto", "-o", whole).exit_code == 0
    done = run("export", fought / "run", "--to", "perfetto", "--zone", 1)
    assert done.exit_code == 0, done.output
    assert 0 < part.stat().st_size < whole.stat().st_size
    assert b"rank 1, ideal" in part.read_bytes()
    assert b"rank 2, ideal" not in part.read_bytes()


def test_a_zone_that_is_not_there_is_refused_in_a_line(fought: Path, tmp_path: Path) -> None:
    done = run("export", fought / "run", "--to", "perfetto", "--zone", 7, "-o", tmp_path / "x")
    assert done.exit_code == 2
    assert done.stderr.strip() == "taut: --zone 7: the run has 1"
    assert not (tmp_path / "x").exists()
