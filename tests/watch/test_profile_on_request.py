"""Requests for a profile in the job: who is believed, and what is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.profile_on_request import MOST_AHEAD, PAUSE_S, Profiles, Requests, capture_name, traces_folder
from taut.watch.wire import CLOCK, PROFILE, REQUEST, WireError, packed, request_key, session_key

SECRET, NONCE, HELLO = b"a secret of sixteen and more", b"n" * 16, b'{"rank":0}'
KEY = request_key(SECRET, NONCE, HELLO)
BODY = REQUEST.pack(50, 8, 4000)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.settimeout(2)
    with one, other:
        yield one, other


def request(number: int = 0, key: bytes = KEY, kind: int = PROFILE, body: bytes = BODY) -> bytes:
    return packed(key, number, kind, body)


def test_requests_come_whole_in_pieces_or_not_at_all(ends: tuple[socket.socket, socket.socket]) -> None:
    line, collector = ends
    requests = Requests(KEY)
    assert requests.read(line) == []
    collector.sendall(request()[:20])
    assert requests.read(line) == []
    collector.sendall(request()[20:] + request(1))
    assert requests.read(line) == [(50, 8, 4000)] * 2
    assert line.gettimeout() == 2


@pytest.mark.parametrize(
    "sent",
    [
        request(key=request_key(b"another secret, also long", NONCE, HELLO)),
        request(key=request_key(SECRET, b"m" * 16, HELLO)),  # of another connection
        request(key=session_key(SECRET, NONCE, HELLO)),  # what a rank itself sends, sent back
        request() + request(),  # said twice
        request(1),  # the first was left out
        request(kind=CLOCK),
        request(body=BODY + b"/etc"),
        request()[:-1] + b"\x01",
        b"HTTP/1.1 200 OK\r\n\r\n" * 8,
    ],
)
def test_what_the_collector_did_not_ask_is_refused(ends: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    line, other = ends
    other.sendall(sent)
    with pytest.raises(WireError):
        Requests(KEY).read(line)


def test_an_end_is_an_end(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    with pytest.raises(OSError, match="closed"):
        Requests(KEY).read(ends[0])


class Job:
    """A rank at some step, with a clock that the test sets."""

    def __init__(self, step: int = 40) -> None:
        self.now_s = 1000.0
        self.observer = Observer(Ring())
        self.observer.step = step
        self.profiles = Profiles(self.observer, lambda: 3, "a/../job", clock=lambda: self.now_s)

    def ask(self, *about: int) -> dict[str, Any]:
        self.profiles.ask(*about)
        return dict(self.profiles.answers.pop())


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAUT_WATCH_TRACES", str(tmp_path / "traces"))
    return tmp_path / "traces"


@pytest.mark.parametrize("step", [0, 39, 40, 41 + MOST_AHEAD])
def test_a_step_that_is_over_or_far_away_is_refused(step: int) -> None:
    job = Job(step=40)
    assert job.ask(step, 8, 2000)["state"] == "refused"
    assert job.observer.after_step is None


@pytest.mark.usefixtures("traces")
def test_one_profile_at_a_time_and_not_too_often() -> None:
    job = Job()
    assert job.ask(50, 8, 2000)["state"] == "armed"
    job.now_s += PAUSE_S - 1
    assert job.ask(60, 8, 2000) == {"step": 60, "state": "refused", "text": "another profile within 60 s"}
    job.now_s += 10_000  # the step never came
    job.profiles.look()
    assert job.observer.after_step is None
    assert job.ask(60, 8, 2000)["state"] == "armed"


def test_what_an_earlier_attempt_wrote_is_removed(traces: Path) -> None:
    folder = traces / "a_.._job-step-50"
    (folder / "before").mkdir(parents=True)
    for name in ("rank3.json.gz", "rank4.json.gz"):
        (folder / name).touch()
    Job().ask(50, 8, 2000)
    assert [path.name for path in folder.glob("rank*")] == ["rank4.json.gz"]


def test_a_job_cannot_name_a_folder_outside() -> None:
    assert capture_name("a/../job", 5) == "a_.._job-step-5"
    assert capture_name("../..", 5) == "_..-step-5"
    assert capture_name("", 5) == "job-step-5"


def test_a_temporary_folder_that_others_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAUT_WATCH_TRACES", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    traces_folder().chmod(0o777)
    with pytest.raises(OSError, match="not this user's alone"):
        traces_folder()
