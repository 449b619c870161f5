"""The law of jobs larger than memory: wherever their columns lie, results and run folders are the same bytes."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings

from build import job
from jobs import jobs, nonsense
from taut.compare.comparison import compare
from taut.core import memory, scratch
from taut.core.json_text import json_text
from taut.core.tables import Trace
from taut.lab.modelled import modelled
from taut.run import Analysis, analyze, analyze_trace
from taut.stored import open_run


def _told(trace: Trace, folder: str) -> str:
    least, scratch.LEAST_BYTES = scratch.LEAST_BYTES, 1
    try:
        with scratch.columns_on_disk(folder):
            return analyze_trace(trace).to_json()
    finally:
        scratch.LEAST_BYTES = least


@settings(max_examples=25, deadline=None)
@given(built=jobs() | nonsense())
def test_results_are_the_same_on_disk(built: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert _told(built, str(tmp_path_factory.getbasetemp())) == analyze_trace(built).to_json()


@pytest.mark.parametrize(("shape", "fault"), [("ddp", "slow"), ("pipeline", "link"), ("fsdp", "none")])
def test_results_of_jobs_that_compiled_code_analyzes_are_the_same_on_disk(shape: str, fault: str, tmp_path: Path) -> None:
    trace, _ = modelled(shape, fault, 32, 5, steps=30)
    assert _told(trace, str(tmp_path)) == analyze_trace(trace).to_json()


def test_run_folders_are_the_same_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "LEAST_BYTES", 1)
    trace = job({0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2"}, steps=12, noise=0.05)
    in_memory = analyze_trace(trace, "name").save(tmp_path / "memory")
    with scratch.columns_on_disk(tmp_path):
        on_disk = analyze_trace(trace, "name").save(tmp_path / "disk")
    assert hashes(in_memory) == hashes(on_disk)


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_inputs_larger_than_the_memory_that_is_given_go_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = Path(os.fspath(Path(analyze.__code__.co_filename).parent / "demo"))
    entered: list[int] = []
    real = scratch.columns_on_disk
    monkeypatch.setattr("taut.run.columns_on_disk", lambda: (entered.append(1), real(tmp_path))[1])
    plenty = analyze(demo, memory_bytes=1 << 40)
    assert not entered
    little = analyze(demo, memory_bytes=1)
    assert entered
    assert isinstance(little, Analysis)
    assert little.to_json() == plenty.to_json()


def test_answers_from_a_stored_run_are_the_same_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = job({0: "fwd 5 | AR 2", 1: "fwd 9 | AR 2"}, steps=12, noise=0.05)
    runs = [analyze_trace(trace, name).save(tmp_path / name) for name in ("first", "second")]
    plenty = json_text(compare([open_run(run) for run in runs]))
    monkeypatch.setattr(scratch, "LEAST_BYTES", 1)
    monkeypatch.setattr(scratch, "_folder", [])
    monkeypatch.setattr(memory, "available_bytes", lambda: 1)
    little = [open_run(run) for run in runs]
    assert not scratch.is_on_disk()  # only a process of taut's own is changed for good
    monkeypatch.setattr(memory.OWN, "is_set", lambda: True)
    little = [open_run(run) for run in runs]
    assert scratch.is_on_disk()
    assert json_text(compare(little)) == plenty
