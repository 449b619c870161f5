"""The lab itself: real jobs in their own network, real faults, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taut.core.errors import RunError, TautError, UsageError
from taut.lab.case import JOBS, Spec, draw, neighbours
from taut.lab.matrix import judge
from taut.lab.run_case import Lab, missing
from taut.lab.truth import HEALTHY, MODES, TRACES, load
from taut.read.trace import read
from taut.run import analyze_trace

ABSENT = missing()
real = pytest.mark.skipif(ABSENT is not None, reason=f"a real lab cannot run here: {ABSENT}")
CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as place:
        yield place


@real
@pytest.mark.parametrize(
    ("job", "fault", "seed"), [("ddp", "slow", 1), ("ddp", "link", 1), ("fsdp", "loader", 1), ("ddp", "none", 1)]
)
def test_the_analysis_names_what_was_done(lab: Lab, job: str, fault: str, seed: int, tmp_path: Path) -> None:
    rows = []
    for again in range(2):  # whatever else runs on the machine may spoil one run: the matrix counts those, this test does not
        folder = tmp_path / f"run{again}"
        lab.run(Spec(job=job, fault=fault, seed=seed, folder=str(folder)))
        rows.append(judge(folder))
        if rows[-1].verdict in ("quiet", "right"):
            break
    assert rows[-1].verdict == ("quiet" if fault == "none" else "right"), [row.found for row in rows]
    assert rows[-1].closes


@real
def test_the_same_job_through_two_doors(lab: Lab, tmp_path: Path) -> None:
    """Profiler traces and flight-recorder dumps of one run, each alone, name the same rank first."""
    findings = []
    for again in range(2):  # as above
        folder = tmp_path / f"run{again}"
        lab.run(Spec(job="fsdp", fault="slow", seed=1, folder=str(folder)))
        doors = sorted((folder / TRACES).glob("rank*.json.gz")), sorted((folder / TRACES).glob("flight_rank*.json"))
        findings = [[(f.mode, f.ranks) for f in analyze_trace(read(door)).findings[:1]] for door in doors]
        if findings[0] == findings[1] == [("straggler cascade", load(folder).injected[0].ranks)]:
            return
    assert findings[0] == findings[1], findings
    assert findings[0] == [("straggler cascade", load(folder).injected[0].ranks)]


@real
def test_a_killed_rank_leaves_the_traces_of_the_others(lab: Lab, tmp_path: Path) -> None:
    lab.run(Spec(job="ddp", fault="kill", seed=3, steps=12, folder=str(tmp_path / "run")))
    truth = load(tmp_path / "run")
    (dead,) = truth.injected[0].ranks
    traced = {path.name for path in (tmp_path / "run" / TRACES).glob("rank*.json.gz")}
    assert traced == {f"rank{r}.json.gz" for r in range(4) if r != dead}
    assert len(truth.faulted_ns) < len(truth.healthy_ns[0])


@real
def test_labs_run_side_by_side_and_nothing_is_left_when_one_is_killed(tmp_path: Path) -> None:
    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "taut", "lab", "run", "--job", "ddp", "--ranks", "2", "--steps", "12"]
        return subprocess.Popen([*command, "-o", str(tmp_path / name)], stderr=subprocess.DEVNULL)

    before = _traces_of_labs()
    survivor, victim = start("a"), start("b")
    deadline = time.monotonic() + 60
    while not (tmp_path / "b.partial" / "healthy-0").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(victim.pid, signal.SIGKILL)
    assert survivor.wait(120) == 0
    victim.wait()
    assert (tmp_path / "a" / "truth.json").exists()
    assert not (tmp_path / "b").exists()
    while _traces_of_labs() - before:
        assert time.monotonic() < deadline + 60, f"left behind: {_traces_of_labs() - before}"
        time.sleep(0.1)


def _traces_of_labs() -> set[str]:
    """Host processes of labs and their control groups."""
    hosts = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"taut.lab.host" in path.read_bytes():
                hosts.add(path.parent.name)
        except OSError:
            continue  # it ended meanwhile
    return hosts | {str(path) for path in CGROUPS.glob("*/taut-lab-*")} | {str(path) for path in CGROUPS.glob("taut-lab-*")}


@real
def test_a_folder_that_is_no_lab_run_is_not_touched(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RunError, match="is no lab run"):
        lab.run(Spec(job="ddp", fault="none", folder=str(tmp_path)))
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_without_root_the_lab_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TautError, match="needs root"):
        Lab()


@pytest.mark.parametrize(
    ("job", "fault", "ranks", "word"),
    [
        ("dpp", "none", 4, "no such job"),
        ("ddp", "slw", 4, "no such fault"),
        ("ddp", "none", 1, "2 to 64"),
        ("hsdp", "none", 2, "even"),
        ("ddp", "out-of-step", 4, "hsdp"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(job: str, fault: str, ranks: int, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        Spec(job=job, fault=fault, ranks=ranks, folder="x").check()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", MODES)
def test_the_seed_draws_place_onset_and_strength(job: str, fault: str) -> None:
    drawn = [draw(Spec(job=job, fault=fault, seed=seed, folder="x")) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert (drawn[0] == ()) == (fault in HEALTHY)
    assert not drawn[0] or len(set(map(repr, drawn))) > 1
    for injected in (i for some in drawn for i in some):
        assert 0 < injected.first_step <= injected.last_step
        assert all(tuple(map(int, link.split(":"))) in neighbours(job, 4) for link in injected.links)
