"""Inputs read by workers: the same result as here, and what a worker cannot read in one line."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import taut
from stores import step_times
from taut.core.errors import InputRefused, TautError
from taut.read import load_inputs


class There(Executor):
    """A worker that does a task at once, and sees other inputs than those it is asked for."""

    def __init__(self, change: Callable[[load_inputs.Wanted], load_inputs.Wanted]) -> None:
        self.change = change

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn([self.change(one) for one in args[0]], **kwargs))
        return done


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the step times of three workers, named from where the test runs; the last cannot be read."""
    (tmp_path / "job").mkdir()
    for rank in range(3):
        (tmp_path / "job" / f"worker{rank}.csv").write_bytes(step_times(rank))
    (tmp_path / "job" / "worker3.csv").write_bytes(b"\x1f\x8bcut")
    monkeypatch.chdir(tmp_path)
    return "job"


@pytest.mark.parametrize("many", [1, 1000])
def test_workers_give_the_same_bytes_as_here(job: str, monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(load_inputs, "BATCHES", many)
    here = taut.analyze(job)
    seen: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        there = taut.analyze(job, on=pool, progress=seen.append)
    assert there.to_json() == here.to_json()
    assert there.digest == here.digest
    assert "reading 4/4" in seen


def test_a_file_that_a_worker_does_not_see_is_refused_by_name(job: str) -> None:
    blind = There(lambda wanted: replace(wanted, path=f"/nowhere{wanted.path}"))
    with pytest.raises(InputRefused, match=r"job/worker\d\.csv: worker .* cannot read it: no such file there; put it where"):
        taut.read(job, on=blind)


def test_another_file_of_the_same_name_is_refused(job: str) -> None:
    other = There(lambda wanted: replace(wanted, size_bytes=1))
    with pytest.raises(InputRefused, match="cannot read it: another file there, of"):
        taut.read(job, on=other)


def test_a_file_that_vanished_everywhere_is_a_missing_rank(job: str) -> None:
    def vanish(wanted: load_inputs.Wanted) -> load_inputs.Wanted:
        if wanted.path.endswith("worker2.csv"):
            os.unlink(wanted.path)
        return wanted

    found = taut.read(job, on=There(vanish))
    assert set(found.ops.rank.tolist()) == {0, 1}
    assert any("worker2.csv" in note for note in found.partial)


def test_an_address_that_only_a_worker_cannot_read_is_refused(job: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/there/worker0.csv", step_times(0))
    blind = There(lambda wanted: replace(wanted, path=wanted.path.replace("there", "nowhere")))
    with pytest.raises(InputRefused, match=r"memory://there/worker0\.csv: worker .* cannot read it: .*no such file"):
        taut.read("memory://there/worker0.csv", on=blind)


def test_a_worker_of_another_version_refuses() -> None:
    with pytest.raises(TautError, match=r"worker .* has taut .*, this is 9\.9; install the same version there"):
        load_inputs.load_batch([], "", "9.9")


def test_pipes_are_read_here(tmp_path: Path) -> None:
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(step_times(0)))
    writer.start()
    nobody = There(lambda wanted: pytest.fail("a worker was asked"))
    assert set(taut.read(tmp_path / "pipe", on=nobody).ops.rank.tolist()) == {0}
    writer.join()
