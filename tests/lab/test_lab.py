"""The lab itself: real jobs in their own network, real faults, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.core.errors import RunError, TautError, UsageError
from taut.lab.case import JOBS, LOCAL, TOUCHED, Spec, clocks, draw, neighbours
from taut.lab.matrix import ONLY, Chosen, judge, plan
from taut.lab.run_case import Lab, missing
from taut.lab.truth import BASELINE, HEALTHY, MODES, ON_ALL, TRACES, load
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
    assert 0 < len(truth.faulted_ns) < len(truth.healthy_ns[0]), "the survivors say how far they came"


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


@pytest.mark.parametrize(
    ("about", "word"),
    [
        ({"fault": "drift", "from_start": True}, "--from-start: not with drift"),
        ({"fault": "moving", "places": "2"}, "--places 2: not with moving"),
        ({"fault": "none", "places": "2"}, "--places 2: not with none"),
        ({"fault": "slow", "places": "4"}, "from 1 to 3"),
        ({"fault": "slow", "places": "rack"}, "host, or a number"),
        ({"fault": "slow", "places": "host", "device": "cuda"}, "needs --device cpu"),
        ({"fault": "set"}, "only modelled jobs"),
    ],
)
def test_places_that_cannot_be_are_refused(about: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        Spec(job="ddp", folder="x", **about).check()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", TOUCHED)
@pytest.mark.parametrize("places", ["2", "3", "host"])
def test_a_fault_in_several_places_has_one_strength_and_one_onset(job: str, fault: str, places: str) -> None:
    spec = Spec(job=job, fault=fault, ranks=8, seed=4, places=places, from_start=True, folder="x")
    spec.check()
    (one,) = draw(Spec(job=job, fault=fault, ranks=8, seed=4, folder="x"))
    drawn = draw(spec)
    assert {(i.first_step, i.last_step) for i in drawn} == {(0, 29)}
    assert all(i.strength == one.strength for i in drawn)
    ranks = {r for i in drawn for r in i.ranks} or {int(link.split(":")[0]) for i in drawn for link in i.links}
    if places == "host":
        assert len({spec.hosts[r] for r in ranks}) == 1
    else:
        assert len(ranks) == int(places)


def test_hosts_have_several_ranks_where_a_host_is_the_place() -> None:
    hosts = [Spec(job="ddp", fault="slow", ranks=n, places="host", folder="x").hosts for n in (4, 8, 16)]
    assert [len(set(some)) for some in hosts] == [2, 4, 4]
    assert Spec(job="ddp", fault="slow", folder="x").hosts == ("node0", "node1", "node2", "node3")


def test_ranks_of_a_host_have_its_clock() -> None:
    for places, ranks in (("host", 8), ("1", 4)):
        for seed in range(10):
            spec = Spec(job="hsdp", fault="skew", places=places, ranks=ranks, seed=seed, folder="x")
            off = clocks(spec)
            assert off
            assert 0 not in off
            assert len({(spec.hosts[rank], off.get(rank)) for rank in range(ranks)}) == len(set(spec.hosts))


def test_the_matrix_holds_what_must_be_shown(tmp_path: Path) -> None:
    kinds = {only: plan(5, tmp_path, Chosen(only=(only,))) for only in ONLY}
    assert {only: len(specs) for only, specs in kinds.items()} == {"past": 48, "start": 25, "healthy": 40, "structural": 20}
    every = plan(5, tmp_path)
    assert {spec.folder for spec in every} == {spec.folder for specs in kinds.values() for spec in specs}
    for spec in every:
        spec.check()
    assert all(spec.from_start for spec in kinds["start"])
    assert {spec.ranks for spec in kinds["start"]} == {4, 8, 16}
    assert {spec.fault for spec in kinds["healthy"]} == set(HEALTHY)
    few = plan(5, tmp_path, Chosen(jobs=("fsdp",), faults=("slow",), ranks=8, only=("past",)))
    assert {(spec.job, spec.fault, spec.ranks) for spec in few} == {("fsdp", "slow", 8)}


@real
def test_a_host_slow_from_the_start_is_recorded_with_its_baseline_and_nothing_else_before(lab: Lab, tmp_path: Path) -> None:
    about: dict[str, Any] = {"ranks": 4, "steps": 12, "places": "host", "from_start": True}
    lab.run(Spec(job="ddp", fault="slow", seed=2, folder=str(tmp_path / "run"), **about))
    truth = load(tmp_path / "run")
    assert (truth.from_start, truth.places, truth.onset) == (True, "host", 0)
    traces = [read([tmp_path / "run" / part]) for part in (BASELINE, TRACES)]
    assert all(tuple(trace.members.host) == truth.hosts for trace in traces)
    assert traces[1].calls.created_ns.min() > traces[0].ops.end_ns.max(), "the recorder must not know what was before"
    assert min(truth.faulted_ns) > max(np.median(healthy) for healthy in truth.healthy_ns)


@real
def test_the_recorder_of_a_lossy_link_goes_on_after_the_profiler(lab: Lab, tmp_path: Path) -> None:
    spec = Spec(job="ddp", fault="loss", ranks=2, steps=12, seed=2, folder=str(tmp_path / "run"))
    lab.run(spec)
    trace = read([tmp_path / "run" / TRACES])
    assert (load(tmp_path / "run").traced_steps, load(tmp_path / "run").untraced_steps) == (12, 48)
    after = trace.calls.created_ns[trace.calls.rank == 0] > trace.ops.end_ns.max()
    traced = np.count_nonzero((trace.ops.rank == 0) & (trace.ops.group >= 0))
    assert after.sum() == pytest.approx(4 * traced, rel=0.2)


@real
def test_hiccups_are_recorded_without_what_the_job_did_with_local_steps(lab: Lab, tmp_path: Path) -> None:
    spec = Spec(job="ddp", fault="hiccups", ranks=2, steps=12, seed=2, folder=str(tmp_path / "run"))
    assert spec.parts == (LOCAL, TRACES)
    lab.run(spec)
    truth, trace = load(tmp_path / "run"), read([tmp_path / "run" / TRACES])
    assert (truth.policy, len(truth.policy_ns), len(truth.faulted_ns), truth.healthy_ns) == ("local-steps=4", 11, 11, ())
    assert not any((tmp_path / "run" / LOCAL).glob("*.json*"))
    assert trace.calls.created_ns.min() > trace.marks.start_ns.min() - 10**9, "the recorder must not know the part before"


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("fault", MODES)
def test_the_seed_draws_place_onset_and_strength(job: str, fault: str) -> None:
    drawn = [draw(Spec(job=job, fault=fault, seed=seed, folder="x")) for seed in (1, 1, 20, 30)]  # laws are those of ten seeds
    assert drawn[0] == drawn[1]
    assert (drawn[0] == ()) == (fault in HEALTHY)
    assert not drawn[0] or len(set(map(repr, drawn))) > 1
    for injected in (i for some in drawn for i in some):
        assert (0 if injected.fault in ON_ALL else 1) <= injected.first_step <= injected.last_step
        assert all(tuple(map(int, link.split(":"))) in neighbours(job, 4) for link in injected.links)
