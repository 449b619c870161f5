"""Captures: the collector asks ranks for the same steps when its folder is asked, and tells what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from collecting import JOB_SECRET, Line, Running, collecting, event
from taut.cli import main
from taut.cli.watch_capture import CaptureOnFinding
from taut.result.types import LiveFinding
from taut.watch.captures import Capture, ask_in, standing, written
from taut.watch.kept import Kept
from taut.watch.wire import HEAD, PROFILE, PROFILED, PROOF_BYTES, REQUEST, STEP, check, encoded, request_key

STEP_NS = 500_000_000


@contextmanager
def watching(folder: Path) -> Iterator[Running]:
    kept = Kept(folder)
    with collecting(kept=kept) as running:
        yield running
    kept.close()


class Rank(Line):
    """A rank that has made some steps, and reads what it is asked."""

    def __init__(self, running: Running, rank: int, profiles: bool = True, last: int = 20) -> None:
        super().__init__(running.port)
        self.hello_body = b""
        self.hello(rank=rank, process=f"p{rank}", profiles=profiles)
        now = time.monotonic_ns()
        ends = [(i, now - (last - i) * STEP_NS) for i in range(last + 1)]
        self.events(*(event(STEP, number=i, begin=end - STEP_NS, end=end) for i, end in ends))
        running.until(lambda: "job" in running.collector.windows and rank in running.collector.windows["job"].ranks)
        running.until(lambda: rank in running.collector.windows["job"].steps.last(1000)["rank"])

    def hello_bytes(self, secret: bytes | None = None, **about: object) -> bytes:
        data = super().hello_bytes(secret, **about)
        self.hello_body = data[36:]
        return data

    def asked(self) -> tuple[int, int, int]:
        """The request that the collector sends next; checked as a rank does."""
        head, proof = self._exactly(HEAD.size), self._exactly(PROOF_BYTES)
        body = self._exactly(HEAD.unpack(head)[0])
        check(request_key(JOB_SECRET, self.nonce, self.hello_body), 0, head, proof, body)
        assert HEAD.unpack(head)[1] == PROFILE
        step, steps, most_ms = REQUEST.unpack(body)
        return step, steps, most_ms

    def tell(self, step: int, state: str, text: str = "") -> None:
        self.send(PROFILED, encoded({"step": step, "state": state, "text": text}))


def state_of(running: Running, path: Path, state: str) -> Capture:
    running.until(lambda: (found := standing(path)) is not None and found.state == state)
    found = standing(path)
    assert found is not None
    return found


def test_a_host_that_runs_ahead_of_its_device_is_asked_for_a_step_that_comes_soon(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        rank, now = Rank(running, 0, last=0), time.monotonic_ns()
        ends = [now - (19 - i // 10) * STEP_NS + i % 10 for i in range(200)]  # nine of ten take no time
        begins = [ends[0] - STEP_NS, *ends]
        rank.events(*(event(STEP, number=1 + i, begin=begins[i], end=ends[i]) for i in range(200)))
        running.until(lambda: len(running.collector.windows["job"].steps.last(1000)) == 201)
        ask_in(tmp_path, "", 2.0)
        step, steps, _ = rank.asked()
        assert 200 + 2 + 70 <= step <= 200 + 2 + 90  # four seconds of steps of 50 ms
        assert 36 <= steps <= 44


def test_all_ranks_are_asked_for_the_same_steps(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        ranks = [Rank(running, number, last=20 + number) for number in range(16)]
        path = ask_in(tmp_path, "", 2.0)
        (asked,) = {rank.asked() for rank in ranks}
        step, steps, most_ms = asked
        assert (step, steps, most_ms) == (35 + 2 + 8, 4, 4000)  # 4 s after the last step that anybody has made, and two
        for rank in ranks:
            rank.tell(step, "armed")
            rank.tell(step, "written", f"/shared/rank{rank.number}.json.gz")
        done = state_of(running, path, "done")
        assert running.collector.captures is not None
        during, later = (running.collector.captures.marked(finding("job", "open", since)) for since in (step + 1, step + 50))
    assert done.ranks == dict.fromkeys(range(16), "written")
    assert (during.cannot_see, later.cannot_see) == ([f"what a capture slowed from step {step} on"], [])
    assert running.said[-1] == "job: 16 of 16 profiles were written"


def test_who_does_not_allow_it_is_not_asked(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        one, other = Rank(running, 0), Rank(running, 1, profiles=False)
        path = ask_in(tmp_path, "job", 2.0)
        step, _, _ = one.asked()
        assert not other.is_closed(0.2)  # and nothing came
        one.tell(step, "refused", "RuntimeError: the job profiles itself")
        done = state_of(running, path, "done")
    assert done.ranks == {0: "refused: RuntimeError: the job profiles itself", 1: "does not allow it"}


@pytest.mark.parametrize(
    ("job", "says"), [("other", "no job other is heard"), ("job", "no rank of job allows profiles"), ("", "no rank of job")]
)
def test_what_cannot_be_captured_is_refused(tmp_path: Path, job: str, says: str) -> None:
    with watching(tmp_path) as running:
        Rank(running, 0, profiles=False)
        assert state_of(running, ask_in(tmp_path, job, 2.0), "refused").text.startswith(says)


def test_a_request_that_is_none_is_refused_and_goes(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        for body in (b"{", b'{"seconds":1e9}', b"x" * 5000):
            path = ask_in(tmp_path, "", 2.0)
            path.with_suffix(".ask").write_bytes(body)
            assert state_of(running, path, "refused").text.startswith(("not a request", "no job is heard"))
            assert not path.with_suffix(".ask").exists()
        running.works()


def test_answers_to_what_nobody_asked_change_nothing(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        rank, stranger = Rank(running, 0), Rank(running, 1)
        stranger.tell(7, "written", "/etc/passwd")
        path = ask_in(tmp_path, "", 2.0)
        step, _, _ = rank.asked()
        stranger.tell(step + 1, "written")
        rank.tell(step, "written")
        stranger.tell(step, "refused")
        done = state_of(running, path, "done")
    assert (done.ranks, done.wrote) == ({0: "written", 1: "refused: "}, "rank 0 wrote ")


def test_a_rank_that_sends_requests_itself_is_refused(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        rank = Rank(running, 0)
        rank.send(PROFILE, REQUEST.pack(1, 1, 1))
        assert rank.is_closed()
        running.works()


def test_a_job_that_ends_meanwhile_ends_its_capture(tmp_path: Path) -> None:
    with watching(tmp_path) as running:
        rank = Rank(running, 0)
        path = ask_in(tmp_path, "", 2.0)
        step, _, _ = rank.asked()
        rank.tell(step, "armed")
        rank.bye()
        done = state_of(running, path, "done")
    assert done.ranks == {0: "ended before that step"}


def test_only_files_of_ranks_that_were_asked_are_taken_and_none_that_a_rank_names(tmp_path: Path) -> None:
    folder = tmp_path / "a_b-step-9"
    folder.mkdir()
    for rank in range(4):
        (folder / f"rank{rank}.json.gz").touch()
    states = {0: "written", 1: "does not allow it", 2: "never answered", 3: "refused: disk full"}
    found = written(Capture("done", "", "a/b", 9, 4, states, "rank 0 wrote /etc/passwd"), tmp_path)
    assert [path.name for path in found] == ["rank0.json.gz", "rank3.json.gz"]
    (folder / "rank1.json.gz").unlink()
    (folder / "rank2.json.gz").unlink()
    assert written(Capture("done", "", "a/b", 9, 4, states), tmp_path) == [folder]


def test_without_a_collector_it_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.cli.watch_capture.TAKEN_S", 0.1)
    result = CliRunner().invoke(main, ["watch", "capture", "--keep", str(tmp_path)])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "no collector answers there" in result.stderr
    assert list(tmp_path.iterdir()) == []  # the request was taken back


def test_a_finding_starts_one_capture_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def poll(self) -> int:
            return 0

    monkeypatch.setattr("subprocess.Popen", Process)
    escalates = CaptureOnFinding("kept", every_s=600)
    for state, job in (("closed", "a"), ("open", "a"), ("open", "a"), ("open", "-b")):
        escalates.on_finding(finding(job, state))
    assert [command[-2:] for command in started] == [["--job=a", "--keep=kept"], ["--job=-b", "--keep=kept"]]


def finding(job: str, state: str, since: int | None = None) -> LiveFinding:
    about = {"at_ns": 1, "id": "f", "job": job, "mode": "hang", "state": state, "ranks": [3], "hosts": [None], "links": []}
    rest = {"since_step": since, "delay_steps": None, "money_per_hour": None, "currency": None, "false_alarms_per_hour": 0.01}
    return LiveFinding(**json.loads(json.dumps({**about, **rest, "cannot_see": []})))
