"""The law of shares: wherever columns are cut, and whoever works on them, results and run folders are the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import job
from jobs import jobs, nonsense
from taut.core import scratch
from taut.core.row_shares import side_by_side
from taut.core.tables import Trace
from taut.lab.modelled import modelled
from taut.run import analyze, analyze_trace
from test_on_disk import hashes


@settings(max_examples=25, deadline=None)
@given(built=jobs() | nonsense(), threads=st.integers(1, 4), rows=st.integers(1, 50))
def test_results_are_the_same_in_any_shares(built: Trace, threads: int, rows: int) -> None:
    alone = analyze_trace(built).to_json()
    with side_by_side(threads, rows):
        assert analyze_trace(built).to_json() == alone


@pytest.mark.parametrize(("shape", "fault"), [("ddp", "slow"), ("pipeline", "link"), ("fsdp", "none")])
@pytest.mark.parametrize("rows", [97, 4096])
def test_results_of_jobs_that_compiled_code_analyzes_are_the_same_in_shares(shape: str, fault: str, rows: int) -> None:
    trace, _ = modelled(shape, fault, 32, 5, steps=30)
    alone = analyze_trace(trace).to_json()
    with side_by_side(3, rows):
        assert analyze_trace(trace).to_json() == alone


def test_run_folders_are_the_same_in_shares_and_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LEAST_BYTES", 1)
    trace = job({0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2"}, steps=12, noise=0.05)
    alone = analyze_trace(trace, "name").save(tmp_path / "alone")
    with side_by_side(2, 7):
        shared = analyze_trace(trace, "name").save(tmp_path / "shared")
        with scratch.columns_on_disk(tmp_path):
            on_disk = analyze_trace(trace, "name").save(tmp_path / "disk")
    assert hashes(alone) == hashes(shared) == hashes(on_disk)


def test_all_cores_work_on_what_meets_here_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Path(str(analyze.__code__.co_filename)).parent / "demo"
    asked: list[int] = []
    real = side_by_side
    monkeypatch.setattr("taut.core.executors.cores", lambda: 2)
    monkeypatch.setattr("taut.run.side_by_side", lambda threads: (asked.append(threads), real(threads, 1000))[1])
    alone = analyze(demo).to_json()
    assert not asked
    assert analyze(demo, on="local").to_json() == alone
    assert asked == [2]
