"""A real job while it runs: read from outside, and captured, by its collector and through torch's debug servers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from collecting import SECRET, Running, collecting
from taut.cli import main
from taut.run import analyze
from taut.stored import open_run
from taut.watch.event_ring import Ring
from taut.watch.kept import Kept
from taut.watch.observed import Observer
from taut.watch.profile_on_request import Profiles
from taut.watch.pull import NOW, Puller
from taut.watch.torch_workers import workers
from taut.watch.wire import job_secret

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.debug")

SCRIPT = Path(__file__).with_name("running_job.py")
SLOW = 1
MOST_S = 120.0


@contextmanager
def running(folder: Path, world: int = 2, stops_at: int = -1, env: dict[str, str] | None = None) -> Iterator[list[str]]:
    """Addresses of the debug servers of a job that runs."""
    folder.mkdir()
    path = os.pathsep.join(sys.path)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder), str(rank), str(world), str(stops_at)],
            env={**os.environ, "PYTHONPATH": path, "JOB_NAME": "small", **(env or {})}, stderr=subprocess.DEVNULL,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        ports = [folder / f"rank{rank}.port" for rank in range(world)]
        until(lambda: all(port.exists() for port in ports))
        yield [f"127.0.0.1:{port.read_text()}" for port in ports]
    finally:
        (folder / "end").touch()
        for rank in ranks:
            try:
                rank.wait(20)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()


def until(true: object) -> None:
    end = time.monotonic() + MOST_S
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def pulled(folder: Path, places: list[str], apart_s: float, calls: int = 0) -> Puller:
    """Two readings of all ranks, some time apart, when they have made so many calls at least."""
    puller = Puller(workers(places), folder)
    until(lambda: puller.round().missing == {} and min(made(file) for file in (folder / NOW).iterdir()) >= calls)
    time.sleep(apart_s)
    assert puller.round().missing == {}
    return puller


def made(dump: Path) -> int:
    return len(json.loads(dump.read_bytes())["entries"])


def test_who_is_late_is_read_from_outside(tmp_path: Path) -> None:
    with running(tmp_path / "job") as places:
        pulled(tmp_path / "pulled", places, 2, calls=60)
    found = analyze([tmp_path / "pulled"]).result
    assert found.findings[0].ranks == [SLOW]


def test_who_stopped_is_read_from_outside(tmp_path: Path) -> None:
    with running(tmp_path / "job", stops_at=30) as places:
        time.sleep(5)
        pulled(tmp_path / "pulled", places, 2)
    found = analyze([tmp_path / "pulled"]).result
    assert [(finding.mode, finding.ranks) for finding in found.findings] == [("hang", [SLOW])]


def test_a_profile_through_debug_servers(tmp_path: Path) -> None:
    with running(tmp_path / "job") as places:
        command = ["watch", "capture", *places, "--seconds", "1", "--traces", str(tmp_path), "-o", str(tmp_path / "run")]
        result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.stderr
    assert open_run(tmp_path / "run").result.job.ranks == 2


@contextmanager
def watched(tmp_path: Path) -> Iterator[tuple[Running, dict[str, str]]]:
    kept = Kept(tmp_path / "kept")
    with collecting(kept=kept) as collector:
        address = {"TAUT_WATCH": f"127.0.0.1:{collector.port}", "TAUT_WATCH_SECRET": job_secret(SECRET, "small").decode()}
        yield collector, {**address, "TAUT_WATCH_PROFILE": "1", "TAUT_WATCH_TRACES": str(tmp_path / "traces")}
    kept.close()


def captured(tmp_path: Path) -> str:
    command = ["watch", "capture", "--seconds", "0.5", "--keep", str(tmp_path / "kept"), "--traces", str(tmp_path / "traces")]
    result = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "run")])
    assert result.exit_code == 0, result.stderr
    return result.stderr


def test_all_ranks_profile_the_same_steps(tmp_path: Path) -> None:
    with watched(tmp_path) as (collector, env), running(tmp_path / "job", env=env):
        until(lambda: "small" in collector.collector.windows and len(collector.window("small").steps.last(100)) >= 20)
        said = captured(tmp_path)
    first, last = map(int, re.findall(r"steps (\d+) to (\d+) are profiled", said)[0])
    (folder,) = (tmp_path / "traces").iterdir()
    assert folder.name == f"small-step-{first}"
    for rank in range(2):
        data = subprocess.run(["gzip", "-dc", folder / f"rank{rank}.json.gz"], capture_output=True, check=True).stdout
        steps = {event["name"] for event in json.loads(data)["traceEvents"] if event["name"].startswith("ProfilerStep#")}
        assert steps == {f"ProfilerStep#{step}" for step in range(first, last + 1)}
    assert open_run(tmp_path / "run").result.job.ranks == 2


class Rank:
    """A rank in this process that is asked for a profile of its next step; its clock is the test's."""

    def __init__(self, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TAUT_WATCH_TRACES", str(traces))
        self.now_s = 1000.0
        self.observer = Observer(Ring())
        self.profiles = Profiles(self.observer, lambda: 0, "small", clock=lambda: self.now_s)
        self.profiles.ask(1, 4, 2000)
        self.step()

    def step(self) -> None:
        torch.ones(8).sum()
        self.observer.end_step()

    def told(self) -> list[str]:
        until(lambda: len(self.profiles.answers) == 2)
        return [str(answer["state"]) for answer in self.profiles.answers]


def test_a_profile_ends_though_its_step_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(tmp_path, monkeypatch)
    rank.now_s += 60  # an evaluation
    beside = threading.Thread(target=rank.profiles.look)
    beside.start()
    beside.join()
    assert rank.told() == ["armed", "written"]
    assert not torch._C._autograd._profiler_enabled()
    rank.step()  # and the job goes on
    assert (tmp_path / "small-step-1" / "rank0.json.gz").is_file()
    assert not list(tmp_path.glob("*/.part*"))


def test_a_job_goes_on_if_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    rank = Rank(tmp_path / "file", monkeypatch)
    for _ in range(5):
        rank.step()
    assert rank.told() == ["armed", "refused"]
    assert rank.observer.faults == 0


def test_a_job_that_profiles_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.profiler.profile() as own:
        rank = Rank(tmp_path, monkeypatch)
        rank.step()
    assert rank.told() == ["armed", "refused"]
    assert "the job profiles itself" in str(rank.profiles.answers[1]["text"])
    assert own.key_averages()


def test_watching_that_ends_ends_the_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(tmp_path, monkeypatch)
    rank.profiles.close()
    assert not torch._C._autograd._profiler_enabled()
