"""Modelled jobs, watched: a fault from some step on is told with its place, a healthy job is not accused of anything."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import numpy as np
import pytest

from taut.lab.live_jobs import LiveJob, Played
from taut.result.types import LiveFinding
from taut.watch.core_waits import QUEUED
from taut.watch.live_findings import Live
from taut.watch.seen import Events, Meeting, Seen, joined

SINCE = 90


def watched(job: LiveJob, steps: int = 150, gpu_hour: Decimal | None = None) -> tuple[Live, list[LiveFinding]]:
    """What is told of a job."""
    played = Played(job, 4)
    live = Live(played.new, price=(gpu_hour, "EUR") if gpu_hour else None, minute_s=float("inf"), clock=lambda: 7)
    told = []
    while job.step < steps:
        told += live.look(played.now_ns)
    return live, told


@pytest.mark.parametrize("sees", ["calls", "hooks"])
@pytest.mark.parametrize(
    ("fault", "mode"), [("slow", "straggler cascade"), ("loader", "input stall"), ("host", "straggler cascade")]
)
def test_a_fault_is_told_with_its_place(sees: str, fault: str, mode: str) -> None:
    job = LiveJob(16, 3, sees=sees, gates=4, hiccups=0.0, fault=fault, since=SINCE, strength=0.3, a_host=4)
    _, told = watched(job)
    assert [(one.mode, tuple(one.ranks), one.links, one.state) for one in told] == [(mode, job.place, [], "open")]
    assert abs((told[0].since_step or 0) - SINCE) <= 2
    assert (told[0].delay_steps or 99) <= 20
    assert set(told[0].hosts) == {f"node{job.rank // 4}"}


def test_a_slow_link_is_told_by_who_ends_last() -> None:
    job = LiveJob(16, 4, hiccups=0.0, fault="link", since=SINCE, strength=0.3)
    _, told = watched(job)
    assert told[0].links == [f"{(job.rank - 1) % 16}:{job.rank}"]


def test_where_few_ends_are_recorded_a_slow_link_is_told_later_and_what_is_missing_is_said() -> None:
    job = LiveJob(16, 4, sees="hooks", gates=8, hiccups=0.0, fault="link", since=SINCE, strength=0.4)
    _, told = watched(job, steps=170)
    assert told[0].links == [f"{(job.rank - 1) % 16}:{job.rank}"]
    assert any("no recorded end" in line for line in told[0].cannot_see)


def test_a_job_of_two_ranks() -> None:
    job = LiveJob(2, 5, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    _, told = watched(job)
    assert [(one.mode, tuple(one.ranks)) for one in told] == [("straggler cascade", job.place)]


@pytest.mark.parametrize("sees", ["calls", "hooks"])
def test_a_healthy_job_is_not_accused(sees: str) -> None:
    job = LiveJob(8, 6, sees=sees, gates=3, memory=0.6, unequal=0.04, tails=True, save_every=50, evaluate_every=100)
    live, told = watched(job, steps=600)
    assert told == []
    assert live.counts["steps"] >= 590


def test_a_finding_closes_when_it_is_gone_and_keeps_its_id() -> None:
    job = LiveJob(8, 7, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    played = Played(job, 4)
    live = Live(played.new, minute_s=float("inf"))
    told: list[LiveFinding] = []
    while job.step < 240:
        if job.step >= 140:
            job.fault = "none"
        told += live.look(played.now_ns)
    assert [one.state for one in told] == ["open", "closed"]
    assert len({one.id for one in told}) == 1


def test_what_it_costs_an_hour_is_at_most_the_job() -> None:
    job = LiveJob(8, 7, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    _, told = watched(job, gpu_hour=Decimal("2.50"))
    assert 0 < Decimal(told[0].money_per_hour or 0) < 8 * Decimal("2.50")
    assert told[0].currency == "EUR"
    assert 0 < told[0].false_alarms_per_hour < 1


def test_a_rank_that_falls_silent_does_not_stop_the_others_from_being_looked_at() -> None:
    job = LiveJob(8, 8, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    gone = (job.rank + 3) % 8
    played = Played(job, 4)

    def new(now: int) -> Seen:
        seen = played.new(now)
        if job.step < 20:
            return seen
        parts = (part.take(part.rank != gone) for part in (seen.gates, seen.stages, seen.steps))
        return Seen(*parts, seen.classes, seen.seats)

    live = Live(new, minute_s=float("inf"))
    told: list[LiveFinding] = []
    while job.step < 220:
        told += live.look(played.now_ns)
    assert live.series is not None
    assert live.series.done > 180
    assert [tuple(one.ranks) for one in told if one.mode != "hang"] == [job.place]


def test_what_is_there_from_the_first_step_on_is_told_by_the_looks_of_every_minute() -> None:
    job = LiveJob(8, 9, hiccups=0.0, fault="slow", since=0, strength=0.5)
    played = Played(job, 4)
    live = Live(played.new, minute_s=20.0)
    told: list[LiveFinding] = []
    while job.step < 260:
        told += live.look(played.now_ns)
    assert [(one.mode, tuple(one.ranks)) for one in told] == [("straggler cascade", job.place)]
    assert (told[0].since_step, told[0].delay_steps) == (None, None)
    assert "may have begun before" in told[0].cannot_see[-1]
    assert live.regime is not None
    assert live.regime.reserve is not None


@pytest.mark.parametrize("busy", [True, False])
def test_who_waits_for_a_core_is_not_accused(busy: bool) -> None:
    job = LiveJob(8, 5, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    played = Played(job, 4)

    def new(now: int) -> Seen:
        seen = played.new(now)
        late = seen.steps.take((seen.steps.rank == job.rank) & (seen.steps.number >= SINCE))
        waited = int(0.4 * job.step_s * 1e9)
        queued = Events(late.rank, np.full(len(late), len(seen.classes)), late.number, late.flags, late.end - waited, late.end)
        stages = joined([seen.stages, queued]) if busy else seen.stages
        return Seen(seen.gates, stages, seen.steps, [*seen.classes, Meeting(QUEUED)], seen.seats)

    live = Live(new, minute_s=20.0)
    told: list[LiveFinding] = []
    while job.step < 240:
        told += live.look(played.now_ns)
    assert [one.ranks for one in told] == ([] if busy else [[job.rank]])


def test_hiccups_that_nobody_carries_are_told_as_structural_instability_with_the_reserve() -> None:
    job = LiveJob(8, 11, hiccups=0.04, hiccup_s=0.3)
    played = Played(job, 4)
    live = Live(played.new, minute_s=30.0)
    told: list[LiveFinding] = []
    while job.step < 400 and not told:
        told += live.look(played.now_ns)
    assert [(one.mode, one.ranks, one.links) for one in told] == [("structural instability", [], [])]
    assert live.regime is not None
    assert live.regime.reserve is not None


def test_ranks_of_containers_on_one_machine_are_named_with_their_own_host() -> None:
    job = LiveJob(8, 3, hiccups=0.0, fault="slow", since=SINCE, strength=0.4, a_host=4)
    played = Played(job, 4)

    def new(now: int) -> Seen:
        seen = played.new(now)
        return msgspec.structs.replace(
            seen, seats={rank: msgspec.structs.replace(seat, boot="one machine") for rank, seat in seen.seats.items()}
        )

    live = Live(new, minute_s=float("inf"))
    job.rank = 6
    told: list[LiveFinding] = []
    while job.step < 150:
        told += live.look(played.now_ns)
    assert told[0].hosts == ["node1"]
    assert "rank 6 (node1, GPU 2)" in told[0].text


def test_a_fault_that_moves_closes_where_it_was() -> None:
    job = LiveJob(8, 5, hiccups=0.0, fault="slow", since=SINCE, strength=0.3)
    played = Played(job, 4)
    live = Live(played.new, minute_s=float("inf"))
    job.rank = 1
    told: list[LiveFinding] = []
    while job.step < 220:
        if job.step >= 150:
            job.rank = 6
        told += live.look(played.now_ns)
    assert sorted((one.ranks[0], one.state) for one in told) == [(1, "closed"), (1, "open"), (6, "open")]
    assert [one.told.ranks for one in live.open.values()] == [[6]]


def test_a_job_that_is_started_anew_is_learned_anew() -> None:
    turns = [LiveJob(8, 5, hiccups=0.0, fault="slow", since=SINCE, strength=0.4) for _ in range(2)]
    for rank, job in enumerate(turns, 1):
        job.rank = rank
    told: list[LiveFinding] = []
    restarted = frozenset[int]()
    played = Played(turns[0], 4)
    live = Live(lambda now: msgspec.structs.replace(played.new(now), restarted=restarted), minute_s=float("inf"))
    while turns[0].step < 150:
        told += live.look(played.now_ns)
    turns[1].time = played.now_ns + 30e9
    played, restarted = Played(turns[1], 4), frozenset(range(8))
    while turns[1].step < 150:
        told += live.look(played.now_ns)
        restarted = frozenset()
    assert [(one.ranks, one.state) for one in told] == [([1], "open"), ([1], "closed"), ([2], "open")]
    assert abs((told[2].since_step or 0) - SINCE) <= 2


def test_what_is_open_when_a_job_ends_is_closed() -> None:
    job = LiveJob(8, 7, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    played, ended = Played(job, 4), set[int]()
    live = Live(lambda now: msgspec.structs.replace(played.new(now), ended=frozenset(ended)), minute_s=float("inf"))
    while job.step < 150:
        live.look(played.now_ns)
    ended.update(range(8))
    assert [one.state for one in live.look(played.now_ns)] == ["closed"]
    assert live.look(played.now_ns) == []


def test_what_all_ranks_do_more_slowly_has_no_place_to_keep_jobs_from() -> None:
    job = LiveJob(8, 5, hiccups=0.0, fault="all", since=SINCE, strength=0.4)
    _, told = watched(job)
    assert told[0].ranks == told[0].links == []
    assert "if batches did not become longer" in told[0].text


def test_where_some_ranks_are_not_heard_a_finding_says_so() -> None:
    job = LiveJob(8, 7, hiccups=0.0, fault="slow", since=SINCE, strength=0.4)
    played = Played(job, 4)
    live = Live(lambda now: msgspec.structs.replace(played.new(now), world=16), minute_s=float("inf"))
    told: list[LiveFinding] = []
    while job.step < 150:
        told += live.look(played.now_ns)
    assert told[0].cannot_see[-1].startswith("8 of 16 ranks are heard")
