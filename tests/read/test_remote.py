"""Files at addresses, read where they lie: the same trace as from disk, and failures that are said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import taut
from stores import http_server, step_times
from taut.core.errors import InputRefused, NotATrace
from taut.read import remote

fsspec = pytest.importorskip("fsspec")
FOLDER = "memory://jobs/monday"


@pytest.fixture
def store() -> Iterator[None]:
    """A store in memory with a job of three workers."""
    system = fsspec.filesystem("memory")
    for rank in range(3):
        system.pipe(f"/jobs/monday/worker{rank}.csv", step_times(rank))
    system.pipe("/jobs/monday/.hidden/other.csv", b"x")
    yield
    system.rm("/jobs", recursive=True)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("address", [FOLDER, f"{FOLDER}/", f"{FOLDER}/worker*.csv"])
def test_a_folder_and_a_pattern_give_the_trace_that_files_on_disk_give(tmp_path: Path, address: str) -> None:
    for rank in range(3):
        (tmp_path / f"worker{rank}.csv").write_bytes(step_times(rank))
    here, there = taut.read(tmp_path), taut.read(address)
    assert there.ops.to_arrow().equals(here.ops.to_arrow())
    assert there.name == "monday"
    assert there.partial == here.partial


@pytest.mark.usefixtures("store")
def test_listed_files_know_their_sizes() -> None:
    assert [remote.size_of(one) for one in remote.expand(FOLDER, 10)] == [len(step_times(rank)) for rank in range(3)]


@pytest.mark.usefixtures("store")
def test_a_file_that_vanished_is_refused_by_name_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = remote.expand(FOLDER, 10)
    monkeypatch.setattr(remote, "expand", lambda address, most: listed)
    fsspec.filesystem("memory").rm("/jobs/monday/worker2.csv")
    found = taut.read(FOLDER)
    assert set(found.ops.rank.tolist()) == {0, 1}
    assert any("worker2.csv" in note for note in found.partial)


@pytest.mark.usefixtures("store")
def test_blocks_that_fail_are_asked_for_again_from_where_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFile

    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(remote, "BLOCK_BYTES", 16)
    fails, read = iter([True, True, False, True, *[False] * 1000]), MemoryFile.read

    def sometimes(self: MemoryFile, size: int = -1) -> bytes:
        if next(fails):
            raise ConnectionError("reset by peer")
        return bytes(read(self, size))

    monkeypatch.setattr(MemoryFile, "read", sometimes)
    with remote.opened(f"{FOLDER}/worker1.csv") as stream:
        assert stream.read() == step_times(1)


@pytest.mark.usefixtures("store")
def test_what_always_fails_is_said_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFile

    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.0)

    def never(self: MemoryFile, size: int = -1) -> bytes:
        raise ConnectionError("reset by peer")

    monkeypatch.setattr(MemoryFile, "read", never)
    with pytest.raises(InputRefused, match=r"worker1\.csv: cannot be read: reset by peer, asked 5 times"):
        taut.read(f"{FOLDER}/worker1.csv")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("memory://nowhere/", r"memory://nowhere/: no such file or folder; check the address"),
        ("memory://jobs/*.csv", r"no files there"),
        ("nonsense://a/b", r"nonsense://a/b: cannot be read: Protocol not known: nonsense"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(address: str, why: str) -> None:
    with pytest.raises((InputRefused, NotATrace), match=why) as refusal:
        taut.read(address)
    assert "\n" not in str(refusal.value)


def test_the_name_of_a_job_is_its_last_folder() -> None:
    assert remote.job_name("s3://bucket/jobs/monday/rank*.json") == "monday"
    assert remote.job_name("https://host/traces/rank0.json?signature=x") == "rank0.json"


def test_what_proves_who_may_read_is_never_shown() -> None:
    address = "https://me:secret@host/traces/rank0.json?X-Amz-Signature=secret"
    assert remote.shown(address) == "https://host/traces/rank0.json"
    with http_server(lambda method, path, headers: (403, {}, b"")) as host:
        given = f"{host}/rank0.json?X-Amz-Signature=secret"
        with pytest.raises(InputRefused, match="rank0") as refusal:
            taut.read(given)
    assert "secret" not in str(refusal.value)
