"""What was read of inputs is kept until an analysis is done, and taken up by the next one after a kill."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

import taut
from stores import step_times
from taut.core.executors import ExecutorLost
from taut.read import kept_reading, load_inputs
from taut.read.kept_reading import KeptReading
from taut.read.load import load_file

RANKS = 4


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the step times of some workers."""
    (tmp_path / "job").mkdir()
    for rank in range(RANKS):
        (tmp_path / "job" / f"worker{rank}.csv").write_bytes(step_times(rank))
    monkeypatch.chdir(tmp_path)
    return Path("job")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that are read."""
    seen: list[str] = []

    def load(path: str, columns: str, data: bytes | None = None) -> load_inputs.Loaded:
        seen.append(os.path.basename(path))
        return load_file(path, columns, data=data)

    monkeypatch.setattr(load_inputs, "load_file", load)
    return seen


def killed(job: Path, folder: Path, after: int = 2) -> None:
    """An analysis that loses its workers when so many files are read."""

    def progress(stage: str) -> None:
        if stage == f"reading {after}/{RANKS}":
            raise ExecutorLost("gone")

    with pytest.raises(ExecutorLost):
        taut.analyze(job, reading=folder, progress=progress)


def test_only_what_is_missing_is_read_and_the_result_has_the_same_bytes(job: Path, asked: list[str], tmp_path: Path) -> None:
    whole = taut.analyze(job).to_json()
    killed(job, tmp_path / "kept")
    asked.clear()
    again = taut.analyze(job, reading=tmp_path / "kept", resume=True)
    assert asked == ["worker2.csv", "worker3.csv"]
    assert again.to_json() == whole
    assert not (tmp_path / "kept").exists()


def test_without_resume_everything_is_read(job: Path, asked: list[str], tmp_path: Path) -> None:
    killed(job, tmp_path / "kept")
    asked.clear()
    taut.analyze(job, reading=tmp_path / "kept")
    assert len(asked) == RANKS


def test_a_file_that_changed_is_read_again(job: Path, asked: list[str], tmp_path: Path) -> None:
    killed(job, tmp_path / "kept")
    (job / "worker0.csv").write_bytes(step_times(0, steps=5))
    asked.clear()
    taut.analyze(job, reading=tmp_path / "kept", resume=True)
    assert asked[0] == "worker0.csv"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


class Harm:
    """Runs a command when it is loaded without care."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch harmed",)


def forge(path: Path) -> None:
    data = path.read_bytes()[32:]
    head = data[: 8 + int.from_bytes(data[:8], "little")]
    forged = head + pickle.dumps(Harm())
    path.write_bytes(hashlib.sha256(forged).digest() + forged)


@pytest.mark.parametrize("damage", [cut, flip, empty, forge, Path.unlink])
def test_what_is_damaged_is_read_again(job: Path, asked: list[str], tmp_path: Path, damage: Callable[[Path], None]) -> None:
    whole = taut.analyze(job).to_json()
    killed(job, tmp_path / "kept")
    for path in (tmp_path / "kept").iterdir():
        damage(path)
    asked.clear()
    assert taut.analyze(job, reading=tmp_path / "kept", resume=True).to_json() == whole
    assert len(asked) == RANKS
    assert not (tmp_path / "harmed").exists()


def test_a_folder_that_others_can_write_is_not_trusted(job: Path, asked: list[str], tmp_path: Path) -> None:
    killed(job, tmp_path / "kept")
    (tmp_path / "kept").chmod(0o777)
    asked.clear()
    taut.analyze(job, reading=tmp_path / "kept", resume=True)
    assert len(asked) == RANKS
    assert (tmp_path / "kept").exists()


def test_inputs_that_are_refused_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no trace")
    with pytest.raises(taut.InputRefused):
        taut.analyze(tmp_path / "x", reading=tmp_path / "out" / "kept")
    assert not (tmp_path / "out").exists()


def test_no_more_is_kept_than_there_is_room_for(job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_reading, "SHARE", 1e-12)
    killed(job, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_where_nothing_can_be_kept_everything_is_read(job: Path) -> None:
    assert taut.analyze(job, reading="/dev/null/kept", resume=True).to_json() == taut.analyze(job).to_json()


def test_objects_are_known_by_the_tag_of_their_store(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/kept/worker0.csv", step_times(0))
    address = "memory://kept/worker0.csv"
    with KeptReading(tmp_path / "kept", resume=True) as kept:
        assert kept.get(address) is None
        kept.put(address, load_file(address))
        assert kept.get(address) is not None
