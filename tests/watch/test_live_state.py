"""What a collector sees now: of modelled jobs, and as the file that others read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from collecting import collecting, event
from taut.lab.live_jobs import LiveJob, Played
from taut.result.types import Regime, WatchedJob
from taut.watch.core_waits import QUEUED
from taut.watch.event_rows import Room
from taut.watch.kept import Kept, live_state
from taut.watch.live_findings import Live
from taut.watch.live_state import job_state
from taut.watch.seen import Events, Meeting, Seen, joined, no_events
from taut.watch.window import Hello, Names, Place, Window


def state(job: LiveJob, steps: int, minute_s: float = float("inf"), world: int = 16, lost: int = 0) -> WatchedJob:
    """A modelled job as it is seen after so many steps."""
    played = Played(job, 4)
    live = Live(played.new, minute_s=minute_s)
    while job.step < steps:
        live.look(played.now_ns)
    window = Window("job", Room(1 << 20))
    for rank in range(16):
        window.join(Hello(rank, world, f"node{rank // 4}", rank % 4, "job", 1, f"p{rank}"), 1)
        window.ranks[rank].lost = rank < lost
    return live.state(window)


def test_the_latest_rank_comes_first_and_its_finding_is_the_verdict() -> None:
    job = LiveJob(16, 3, gates=4, hiccups=0.0, fault="slow", since=90, strength=0.3, a_host=4)
    found = state(job, 150)
    assert (found.heard, found.lost, found.world, found.kind) == (16, 0, 16, "component")
    since = found.findings[0].since_step
    assert found.verdict == f"rank {job.rank} on node{job.rank // 4}: straggler cascade since step {since}"
    first = found.ranks[0]
    assert (first.rank, first.host, first.gpu) == (job.rank, f"node{job.rank // 4}", job.rank % 4)
    assert first.late_ns is not None
    assert found.step_ns is not None
    assert first.late_ns > 0.1 * found.step_ns
    assert len(found.steps_ns) == 120


def test_a_job_of_few_steps_is_unknown_and_not_healthy() -> None:
    found = state(LiveJob(16, 3), 12)
    assert (found.kind, found.findings) == ("unknown", [])
    assert "too few steps" in found.verdict


def test_a_job_is_healthy_if_all_its_ranks_are_heard_and_an_analysis_says_so() -> None:
    healthy = LiveJob(16, 3, hiccups=0.0)
    assert state(healthy, 120, minute_s=20.0).kind == "healthy"
    assert state(LiveJob(16, 3, hiccups=0.0), 120).verdict.startswith("nothing found yet")


def test_a_job_of_which_some_ranks_are_not_heard_is_unknown_and_not_healthy() -> None:
    found = state(LiveJob(16, 3, hiccups=0.0), 120, minute_s=20.0, world=32)
    assert (found.kind, found.findings) == ("unknown", [])
    assert "only 16 of 32 ranks are heard" in found.verdict
    assert state(LiveJob(16, 3, hiccups=0.0), 120, minute_s=20.0, lost=2).kind == "unknown"


def test_a_job_that_has_ended_is_neither_healthy_nor_short_of_steps() -> None:
    window = Window("job", Room(1 << 20))
    window.join(Hello(0, 1, "node", 0, "job", 1, "p"), 1)[0].ended = True
    found = job_state(window, None)
    assert (found.verdict, found.kind) == ("the job has ended", "unknown")


def test_a_job_in_which_nothing_is_done_any_more_is_not_healthy_before_it_is_called_a_hang() -> None:
    job = LiveJob(2, 3, hiccups=0.0)
    played = Played(job, 4)
    live = Live(lambda now: played.new(now) if job.step < 120 else nothing, minute_s=20.0)
    nothing = msgspec.structs.replace(played.new(0), **dict.fromkeys(("gates", "stages", "steps"), no_events()))
    while job.step < 120:
        live.look(played.now_ns)
    window = Window("job", Room(1 << 20))
    for rank in range(2):
        window.join(Hello(rank, 2, "node", rank, "job", 1, f"p{rank}"), 1)
    assert live.state(window).kind == "healthy"
    assert live.look(played.now_ns + 60 * 10**9) == []
    found = live.state(window)
    assert (found.kind, found.verdict[:24]) == ("unknown", "nothing was done for 60 ")


def test_what_was_seen_once_and_is_not_told_yet_is_no_healthy_job() -> None:
    job = LiveJob(16, 3, hiccups=0.0, fault="slow", since=0, strength=0.5)
    found = state(job, 120, minute_s=25.0)
    assert (found.kind, found.findings) == ("unknown", [])
    assert f"straggler cascade (rank {job.rank})" in found.verdict


def test_ranks_that_wait_for_a_core_are_told_and_no_healthy_job() -> None:
    job = LiveJob(8, 5, hiccups=0.0)
    played = Played(job, 4)

    def new(now: int) -> Seen:
        seen = played.new(now)
        late = seen.steps.take(seen.steps.rank == 3)
        queued = Events(late.rank, np.full(len(late), len(seen.classes)), late.number, late.flags, late.end - 10**8, late.end)
        return Seen(seen.gates, joined([seen.stages, queued]), seen.steps, [*seen.classes, Meeting(QUEUED)], seen.seats)

    live = Live(new, minute_s=20.0)
    while job.step < 120:
        live.look(played.now_ns)
    window = Window("job", Room(1 << 20))
    for rank in range(8):
        window.join(Hello(rank, 8, "node", rank, "job", 1, f"p{rank}"), 1)
    found = live.state(window)
    assert (found.kind, found.findings) == ("unknown", [])
    assert "wait for a core" in found.verdict
    assert "rank 3 on node most" in found.verdict


def test_how_late_ranks_are_is_unknown_where_nobody_is_seen_to_wait() -> None:
    job = LiveJob(8, 5, hiccups=0.0)
    played = Played(job, 4)

    def new(now: int) -> Seen:
        seen = played.new(now)  # rank 0 leaves before the others have come
        end = np.where(seen.gates.rank == 0, np.maximum(seen.gates.end - 10**8, seen.gates.begin), seen.gates.end)
        return msgspec.structs.replace(seen, gates=msgspec.structs.replace(seen.gates, end=end))

    live = Live(new, minute_s=float("inf"))
    while job.step < 60:
        live.look(played.now_ns)
    window = Window("job", Room(1 << 20))
    window.join(Hello(0, 1, "node", 0, "job", 1, "p"), 1)
    (first,) = live.state(window).ranks
    assert first.late_ns is None
    assert first.busy_ns is not None


def test_a_job_whose_steps_nobody_ends_is_told_to_end_them() -> None:
    window = Window("job", Room(1 << 20))
    member, _ = window.join(Hello(0, 2, "node", 0, "job", 1, "p"), 1)
    window.name(member, Names(0, [Place("barrier", "0", -1, (0, 1, 1))]))
    window.add(member, b"".join(event(begin=1 + at, number=at) for at in range(64)), 1)
    window.fold(1)
    assert "taut.watch.step()" in job_state(window, None).verdict


def test_what_is_seen_is_written_for_others_to_read(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with collecting(kept=kept) as running:
        line = running.line()
        line.name()
        line.events(event())
        running.until(lambda: bool((found := live_state(tmp_path)) and found.jobs and found.jobs[0].received))
    kept.close()
    found = live_state(tmp_path)
    assert found is not None
    assert found.at_ns > found.since_ns
    assert (found.jobs[0].kind, found.jobs[0].last_step) == ("unknown", None)


def test_no_collector_is_no_state(tmp_path: Path) -> None:
    assert live_state(tmp_path) is None
    (tmp_path / "live.json").write_text("{")
    assert live_state(tmp_path) is None


def test_a_job_whose_rank_is_late_from_the_start_is_unknown_and_not_healthy() -> None:
    job = LiveJob(16, 3, gates=4, hiccups=0.0, fault="slow", since=0, strength=0.3, a_host=4)
    played = Played(job, 4)
    live = Live(played.new, minute_s=1e9)
    while job.step < 150:
        live.look(played.now_ns)
    window = Window("job", Room(1 << 20))
    for rank in range(16):
        window.join(Hello(rank, 16, "node", rank, "job", 1, f"p{rank}"), 1)
    live.regime = Regime(kind="stable")
    found = live.state(window)
    assert (found.kind, found.findings) == ("unknown", [])
    assert f"rank {job.rank} comes" in found.verdict
