"""A run folder whose tables fit its manifest, but whose ``run.json`` was edited: one line says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from build import job
from taut.compare.comparison import compare
from taut.core.errors import RunError
from taut.run import analyze_trace, open_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return analyze_trace(job({0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2"}, steps=3)).save(tmp_path / "run")


def edited(run: Path, part: str, **change: Any) -> Path:
    meta = json.loads((run / "run.json").read_text())
    meta[part].update(change)
    (run / "run.json").write_text(json.dumps(meta))
    return run


def test_an_unchanged_run_opens(run: Path) -> None:
    assert len(open_run(run).graph) == 12


def test_a_result_that_is_no_text_is_refused_in_a_line(run: Path) -> None:
    text = (run / "run.json").read_bytes()
    (run / "run.json").write_bytes(
        text.replace(b'"because": "', b'"because": "\xff', 1).replace(b'"text": "', b'"text": "\xff', 1)
    )
    with pytest.raises(RunError, match="damaged run folder"):
        open_run(run)


def test_numbers_beyond_those_of_arrays_are_refused(run: Path) -> None:
    meta = json.loads((run / "run.json").read_text())
    meta["result"]["indices"]["effective_throughput_ratio"]["value"] = 10**400
    (run / "run.json").write_text(json.dumps(meta))
    with pytest.raises(RunError, match="damaged run folder"):
        open_run(run)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("graph", {"segment": [4 * 10**18]}, "segment"),
        ("graph", {"steps": [2**63]}, "steps"),
        ("graph", {"relative": True, "zero_ns": [5]}, "steps points outside"),
        ("result", {"windows": []}, "windows"),
        ("result", {"recoverable_wall_ns": None}, "recoverable_wall_ns"),
        ("result", {"ledger": {"total_rank_ns": 5, "currency": None, "entries": [{"joules": None, "money": "many"}]}}, "money"),
        ("result", {"findings": [{"id": 7}]}, "findings"),
    ],
)
def test_what_other_verbs_take_from_it_has_its_type(run: Path, part: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=rf"damaged run folder \(.*{message}.*analyze the traces again") as refused:
        compare([edited(run, part, **change), "other"])
    assert "\n" not in str(refused.value)
