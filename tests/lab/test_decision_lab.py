"""From a real fault to an outcome: what was decided is recorded, measured and verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.core.errors import RunError, UsageError
from taut.lab.case import Spec
from taut.lab.decision_lab import chains
from taut.lab.run_case import missing

ABOUT = Spec(job="ddp", fault="none", seed=1, steps=30, folder="")
ABSENT = missing()
real = pytest.mark.skipif(ABSENT is not None, reason=f"a real lab cannot run here: {ABSENT}")


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("TAUT_AUDIT", "on")
    monkeypatch.chdir(tmp_path)


@real
def test_a_fault_is_found_decided_on_mended_and_measured() -> None:
    for again in range(2):  # whatever else runs on the machine may hide the fault of one run
        words = [
            "lab",
            "decide",
            "--faults",
            "checkpoint",
            "--seed",
            "1",
            "--steps",
            "16",
            "--runs",
            "1",
            "-o",
            f"lab{again}",
            "--json",
        ]
        done = CliRunner().invoke(main, [*words, "-o", f"lab{again}"])
        assert done.exit_code == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        if row["record"] is not None:
            break
    assert row["says"] in ("kept", "missed", "unclear")
    assert row["expected"]["lo"] <= row["expected"]["value"] <= row["expected"]["hi"]
    assert row["measured"]["lo"] <= row["measured"]["value"] <= row["measured"]["hi"]
    assert row["verified"]
    log = f"lab{again}/taut-runs/audit.db"
    told = json.loads(CliRunner().invoke(main, ["audit", "why", str(row["record"]), "--json", "--audit", log]).stdout)
    kinds = [(link["depth"], link["record"]["kind"]) for link in told["chain"]]
    # The outcome; its decision, on a run that had a baseline; the mended run.
    assert kinds == [(0, "outcome"), (1, "decision"), (2, "verb"), (3, "verb"), (1, "verb")]


@pytest.mark.parametrize("fault", ["none", "hang", "hiccups", "no-such"])
def test_what_cannot_be_mended_is_refused_before_anything_runs(fault: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--faults? {fault}: no"):
        chains(tmp_path / "lab", ["slow", fault], ABOUT, 1)
    assert not (tmp_path / "lab").exists()


def test_decisions_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    (tmp_path / "lab" / "taut-runs").mkdir(parents=True)
    (tmp_path / "lab" / "taut-runs" / "audit.db").write_bytes(b"kept")
    with pytest.raises(RunError, match="give another -o"):
        chains(tmp_path / "lab", ["slow"], ABOUT, 1)


def test_without_records_there_is_nothing_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_AUDIT", "off")
    with pytest.raises(UsageError, match="unset it"):
        chains(tmp_path / "lab", ["slow"], ABOUT, 1)
