"""Debug servers of workers: who they are, and what becomes of answers that are none."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from taut.core.errors import UsageError
from taut.watch.torch_workers import Worker, ask, slurm_places, workers
from torch_workers import FR, FakeWorker, serving

ASKED = f"/handler/{FR}"


def one(place: str) -> Worker:
    return workers([place])[0]


def test_ranks_follow_one_another_unless_they_are_given() -> None:
    found = workers(["a:10-11", "[::1]:5", "7=b.c:12", "d:13"])
    assert [(w.rank, w.place) for w in found] == [(0, "a:10"), (1, "a:11"), (2, "[::1]:5"), (7, "b.c:12"), (8, "d:13")]


@pytest.mark.parametrize(
    "places",
    [["a"], ["a:0"], ["a:9-3"], ["a:70000"], ["http://a:1"], ["u@a:1"], ["a:1", "a:1"], ["1=a:1", "1=b:2"], ["a:1-65535"]],
)
def test_what_is_no_worker_is_refused(places: list[str]) -> None:
    with pytest.raises(UsageError):
        workers(places)


def test_an_answer_that_is_whole() -> None:
    with serving(FakeWorker({FR: b"{}"})) as (place,):
        answer = ask(one(place), ASKED)
    assert (answer.body, answer.status, answer.failed) == (b"{}", 200, "")
    assert answer.took_s > 0


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (FakeWorker({}), "answers 404"),
        (FakeWorker({FR: b"x"}, status=500), "answers 500"),
        (FakeWorker({FR: b"x"}, status=302, headers={"Location": "/other"}), "sends on elsewhere, which is not followed"),
        (FakeWorker({FR: b"x" * 2000}), "answers more than 0 MiB"),
        (FakeWorker({FR: b"x"}, headers={"Content-Length": "50"}), "its answer breaks off"),
        (FakeWorker({FR: b"x"}, late_s=0.6), "no whole answer within 0.3 s"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none(worker: FakeWorker, why: str) -> None:
    with serving(worker) as (place,):
        answer = ask(one(place), ASKED, seconds=0.3, most_bytes=1000)
    assert (answer.body if answer.status == 0 else b"", answer.failed) == (b"", why)


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = ask(one(f"127.0.0.1:{port}"), ASKED)
    assert (answer.failed, answer.took_s) == ("Connection refused", 0.0)


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving(FakeWorker({FR: b"{}"})) as (place,):
        assert ask(one(place), ASKED).status == 200


SCONTROL = """#!/bin/sh
case "$2" in
  job) echo "JobId=$4 JobState=$STATE ReqNodeList=(null) ExcNodeList=(null) NodeList=gpu[1-2] NumNodes=2" ;;
  hostnames) echo gpu1; echo gpu2 ;;
esac
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", "RUNNING")


@pytest.mark.usefixtures("scontrol")
def test_nodes_of_a_slurm_job() -> None:
    assert slurm_places("4711", "10-11") == ["gpu1:10-11", "gpu2:10-11"]


@pytest.mark.usefixtures("scontrol")
@pytest.mark.parametrize(
    ("job", "state", "says"), [("4711", "PENDING", "it is PENDING"), ("-x", "RUNNING", "no number of a job")]
)
def test_a_slurm_job_that_does_not_run(job: str, state: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE", state)
    with pytest.raises(UsageError, match=says):
        slurm_places(job, "10")


def test_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="scontrol is not installed"):
        slurm_places("1", "10")
