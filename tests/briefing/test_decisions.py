"""Decisions and outcomes of the audit log that concern the inputs, and a root that later records do not move."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from build import analyze, job
from taut.audit.log import open_log
from taut.audit.merkle import root_of
from taut.audit.record import DECISION, OUTCOME, VERB, Detail, Text
from taut.briefing.decisions import Trail, trail_of
from taut.core.folder import RUN, sealed


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs of one job."""
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder, work in zip(folders, (9, 5), strict=True):
        analyze(job({0: "fwd 5 | AR 1", 1: f"fwd {work} | AR 1"}, steps=3)).save(folder)
    return folders


def written(log: Path, *records: tuple[str, dict[str, Detail]]) -> None:
    with open_log(log, "1", create=True) as opened:
        for kind, details in records:
            opened.append(kind, details)


def made(run: Path) -> tuple[str, dict[str, Detail]]:
    return VERB, {"verb": "analyze", "outputs": [{"name": Text(str(run)), "files": dict(sealed(run))}]}


def decided(run: Path) -> tuple[str, dict[str, Detail]]:
    return DECISION, {
        "run": sealed(run)[RUN], "finding": "f-1", "do": Text("drain node3"), "by": Text("on-call"),
        "expected": {"value": 0.28, "lo": 0.2, "hi": 0.3}, "expected_from": "given",
    }  # fmt: skip


def came(decision: int, run: Path, says: str = "kept") -> tuple[str, dict[str, Detail]]:
    return OUTCOME, {
        "decision": decision, "run": sealed(run)[RUN], "says": says, "measured": {"value": 0.25, "lo": 0.21, "hi": 0.29},
        "expected": {"value": 0.28, "lo": 0.2, "hi": 0.3},
    }  # fmt: skip


OTHER = (VERB, {"verb": "project", "outputs": []})


def test_a_decision_comes_with_its_last_outcome(tmp_path: Path, runs: list[Path]) -> None:
    log = tmp_path / "audit.db"
    written(log, made(runs[0]), decided(runs[0]), made(runs[1]), came(2, runs[1], "unclear"), came(2, runs[1]))
    (one,) = trail_of(log, [runs[0]]).decisions
    assert one.record.details["do"] == "drain node3"
    assert one.outcome is not None
    assert (one.outcome.says, one.outcome.record, one.outcome.expected_from) == ("kept", 5, "given")
    assert one.outcome.measured_saving is not None
    assert one.outcome.measured_saving.value == 0.25


def test_a_decision_concerns_the_run_that_measured_it_too(tmp_path: Path, runs: list[Path]) -> None:
    log = tmp_path / "audit.db"
    written(log, made(runs[0]), decided(runs[0]), made(runs[1]), came(2, runs[1]))
    assert [one.record.index for one in trail_of(log, [runs[1]]).decisions] == [2]


def test_the_root_is_that_of_the_last_record_that_is_cited(tmp_path: Path, runs: list[Path]) -> None:
    log = tmp_path / "audit.db"
    written(log, OTHER, made(runs[0]), decided(runs[0]), OTHER)
    before = trail_of(log, [runs[0]])
    with open_log(log) as opened:
        leaves = [row.leaf for row in opened.raw()]
        assert before.log == opened.origin()
    assert before.records == 4
    assert before.root == b64encode(root_of(leaves[:4])).decode()
    written(log, OTHER, made(runs[0]))  # the same run, made again
    assert trail_of(log, [runs[0]]) == before


@pytest.mark.parametrize("places", [["gpt-175b"], []])
def test_what_has_no_records_has_no_root(tmp_path: Path, runs: list[Path], places: list[str]) -> None:
    log = tmp_path / "audit.db"
    written(log, made(runs[0]))
    assert trail_of(log, places) == Trail()
    assert trail_of(log, [runs[1]]) == Trail()
    assert trail_of(tmp_path / "none.db", [runs[0]]) == Trail()


def test_a_damaged_log_is_told(tmp_path: Path, runs: list[Path]) -> None:
    log = tmp_path / "audit.db"
    log.write_bytes(b"no database at all" * 100)
    found = trail_of(log, [runs[0]])
    assert found.root is None
    assert found.fault is not None
    assert "audit.db" in found.fault
