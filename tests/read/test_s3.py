"""A real S3 server behind one that is slow, fails and lets objects vanish."""

from __future__ import annotations

import gzip
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import taut
from stores import Answer, http_server, step_times
from taut.core.errors import InputRefused
from taut.read import fetched_ahead, load_inputs, remote

s3fs = pytest.importorskip("s3fs", exc_type=ImportError)
server = pytest.importorskip("moto.server", exc_type=ImportError)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
Fault = Callable[[str, str], Answer | None]


class Store:
    """An S3 server, and what stands before it: ``fault`` may answer in its place."""

    put: Callable[[str, bytes], object]
    """Writes an object, past whatever stands before the server."""

    def __init__(self, behind: str) -> None:
        self.behind, self.asked = behind, list[tuple[str, str]]()
        self.fault: Fault = lambda method, path: None

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        self.asked.append((method, path))
        found = self.fault(method, path)
        if found is not None:
            return found
        request = urllib.request.Request(self.behind + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, {k: v for k, v in reply.headers.items() if k != "Transfer-Encoding"}, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, {}, error.read()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    moto = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    made = Store(f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.behind)
    urllib.request.urlopen(urllib.request.Request(f"{made.behind}/moto-api/reset", method="POST")).close()
    direct = s3fs.S3FileSystem(skip_instance_cache=True)
    direct.mkdir("bucket")
    made.put = direct.pipe
    with http_server(made.answer) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front)
        s3fs.S3FileSystem.clear_instance_cache()
        yield made
    s3fs.S3FileSystem.clear_instance_cache()
    moto.stop()


def put_job(store: Store, workers: int) -> None:
    for rank in range(workers):
        store.put(f"bucket/job/worker{rank}.csv.gz", gzip.compress(step_times(rank)))


def test_a_job_of_compressed_objects(store: Store, tmp_path: Path) -> None:
    put_job(store, 4)
    for rank in range(4):
        (tmp_path / f"worker{rank}.csv").write_bytes(step_times(rank))
    there = taut.read("s3://bucket/job/*.csv.gz")
    assert there.ops.to_arrow().equals(taut.read(tmp_path).ops.to_arrow())
    assert there.name == "job"


def test_objects_that_fail_now_and_then_and_are_slow(store: Store) -> None:
    put_job(store, 4)
    times = {"failed": 0}

    def fault(method: str, path: str) -> Answer | None:
        if method == "GET" and "worker" in path:
            time.sleep(0.05)
            times["failed"] += 1
            if times["failed"] % 3 == 1:
                return 503, {}, b"<Error><Code>SlowDown</Code></Error>"
        return None

    store.fault = fault
    found = taut.read("s3://bucket/job")
    assert set(found.ops.rank.tolist()) == {0, 1, 2, 3}
    assert times["failed"] > 4


def test_small_objects_are_asked_for_side_by_side_and_once(store: Store) -> None:
    put_job(store, 8)
    under_way, most = [0], [0]

    def fault(method: str, path: str) -> Answer | None:
        if "worker" in path:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            time.sleep(0.1)
            under_way[0] -= 1
        return None

    store.fault = fault
    assert set(taut.read("s3://bucket/job").ops.rank.tolist()) == set(range(8))
    assert most[0] > 1
    assert [method for method, path in store.asked if "worker" in path] == ["GET"] * 8


def test_an_object_that_grew_since_it_was_listed_is_read_to_its_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put_job(store, 2)
    listed = remote.expand("s3://bucket/job", 10)
    monkeypatch.setattr(remote, "expand", lambda address, most: listed)
    monkeypatch.setattr(fetched_ahead, "SMALL_BYTES", 200)
    store.put("bucket/job/worker1.csv.gz", gzip.compress(step_times(1, steps=600)))
    found = taut.read("s3://bucket/job").ops
    assert len(set(found.step[found.rank == 1].tolist())) == 600


def test_an_object_that_vanishes_is_a_missing_rank(store: Store) -> None:
    put_job(store, 4)
    store.fault = lambda method, path: (404, {}, b"") if "worker2" in path and "list-type" not in path else None
    found = taut.read("s3://bucket/job")
    assert set(found.ops.rank.tolist()) == {0, 1, 3}
    assert any("worker2" in note for note in found.partial)


def test_a_bucket_that_nobody_may_read(store: Store) -> None:
    store.fault = lambda method, path: (403, {}, b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
    with pytest.raises(InputRefused, match=r"s3://bucket/job: cannot be read: .*; check the address") as refusal:
        taut.read("s3://bucket/job")
    assert "\n" not in str(refusal.value)


def test_large_objects_are_read_in_processes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put_job(store, 4)
    monkeypatch.setattr(load_inputs, "PARALLEL_BYTES", 1)
    monkeypatch.setattr("taut.core.executors.cores", lambda: 2)
    assert set(taut.read("s3://bucket/job").ops.rank.tolist()) == {0, 1, 2, 3}


def test_the_whole_way_from_the_command_line(store: Store, tmp_path: Path) -> None:
    import subprocess
    import sys

    put_job(store, 4)
    done = subprocess.run(
        [sys.executable, "-m", "taut", "analyze", "s3://bucket/job", "--json", "--no-save"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "TAUT_AUDIT": "off"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["name"] == "job"
