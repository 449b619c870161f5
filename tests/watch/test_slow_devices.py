"""Jobs whose ranks tell what their devices take: a slow device is named, and nobody else is."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.array_types import Floats
from taut.result.types import LiveFinding
from taut.watch.live_findings import Live
from taut.watch.observed_devices import DEVICE, EVERY, MOST_SHARE, RARELY
from taut.watch.seen import BACKWARD, Events, Meeting, Seat, Seen, no_events

MS, RANKS, SINCE, STEPS, A_LOOK = 1_000_000, 4, 120, 200, 4
TOLD_LATER = 3
"""Steps after which a device's time arrives."""
Row = tuple[int, int, int, int, int, int]


def rows(klass: int, number: int, begin: Floats, end: Floats, flags: int = 0) -> list[Row]:
    return [(rank, klass, number, flags, int(begin[rank] * MS), int(end[rank] * MS)) for rank in range(RANKS)]


def events(some: list[Row]) -> Events:
    return Events(*np.array(some, np.int64).T) if some else no_events()


class Job:
    """150 ms a step: hosts launch for 50 and wait for devices that work for 140; rank 2's device or rank 1's host is slower."""

    def __init__(
        self, *, device_ms: float = 0, host_ms: float = 0, since: int = SINCE, waits: bool = True, hosts: int = 0,
        every: int = EVERY,
    ) -> None:  # fmt: skip
        self.every, self.device_ms, self.host_ms, self.since, self.waits, self.hosts = (
            every,
            device_ms,
            host_ms,
            since,
            waits,
            hosts,
        )
        self.rng, self.at, self.first = np.random.default_rng(3), 1e6, 0
        self.seats = {rank: Seat("node", rank, "b", "calls") for rank in range(RANKS)}
        self.places = [Meeting(BACKWARD), Meeting(DEVICE)]

    def seen(self, tells: bool = True) -> Seen:
        gates, steps, stages = [], [], []
        for step in range(self.first, self.first + A_LOOK):
            slow, who = step >= self.since, np.arange(RANKS)
            came = self.at + 50 + self.rng.normal(0, 0.5, RANKS) + np.where(who == 1, slow * self.host_ms, 0.0)
            took = 140 + self.rng.normal(0, 1.0, RANKS) + np.where(who == 2, slow * self.device_ms, 0.0)
            opens = max(self.at + took.max() + 10, came.max())
            left = opens + np.abs(self.rng.normal(0, 0.05, RANKS))
            gates += rows(0, step, came, left if self.waits else came)
            steps += rows(-1, step, np.full(RANKS, self.at), left + 0.1)
            self.at = left.max() + 0.1
            told = step - TOLD_LATER
            if tells and told >= 0 and told % self.every == 0:
                slow = told >= self.since
                took = 140 + self.rng.normal(0, 1.0, RANKS) + np.where(who == 2, slow * self.device_ms, 0.0)
                stages += rows(1, told, self.at - took, np.full(RANKS, self.at), self.hosts if slow else 0)
        self.first += A_LOOK
        return Seen(events(gates), events(stages), events(steps), self.places if tells else self.places[:1], self.seats)


def told(job: Job, *, tells: bool = True, minute_s: float = float("inf")) -> list[LiveFinding]:
    live, found = Live(lambda now: job.seen(tells), minute_s=minute_s, clock=lambda: 7), list[LiveFinding]()
    for _ in range(0, STEPS, A_LOOK):
        found += live.look(int(job.at * MS))
    return found


@pytest.mark.parametrize("every", [EVERY, RARELY])
@pytest.mark.parametrize("waits", [True, False], ids=["hosts wait", "hosts never wait"])
def test_a_device_that_became_slow_is_named(waits: bool, every: int) -> None:
    [one] = told(Job(device_ms=60, waits=waits, every=every))
    assert (one.mode, one.ranks, one.links) == ("straggler cascade", [2], [])
    assert abs((one.since_step or 0) - SINCE) <= every
    assert (one.delay_steps or 0) <= 30 + 5 * every
    assert "the device of rank 2 takes 60" in one.text or "the device of rank 2 takes 59" in one.text
    assert "costs 28 % of the time" in one.text
    assert "test that device" in one.text
    assert not any("a late device shows where its host waits" in word for word in one.cannot_see)


@pytest.mark.parametrize("host_ms", [0, 60], ids=["healthy", "a host late behind its device"])
def test_nobody_is_accused_where_steps_take_as_long_as_before(host_ms: float) -> None:
    assert told(Job(host_ms=host_ms), minute_s=5.0) == []


def test_a_host_that_holds_its_device_up_is_named_as_a_host() -> None:
    [one] = told(Job(host_ms=160))
    assert one.ranks == [1]
    assert "device of rank" not in one.text


def test_a_device_that_waits_for_its_host_where_no_gate_shows_it_is_told_as_that() -> None:
    [one] = told(Job(device_ms=60, hosts=MOST_SHARE))
    assert one.ranks == [2]
    assert "waits for its host to give work" in one.text
    assert "test that device" not in one.text


def test_a_device_that_is_slow_from_the_start_is_named_by_the_looks_of_every_minute() -> None:
    [one] = told(Job(device_ms=60, since=0), minute_s=5.0)
    assert (one.mode, one.ranks, one.since_step) == ("straggler cascade", [2], None)
    assert "longer than any other's" in one.text


def test_ranks_that_tell_nothing_of_their_devices_are_told_of_as_before() -> None:
    [one] = told(Job(device_ms=60), tells=False)
    assert (one.ranks, one.links) == ([], [])
    assert "no host is late: a device is, or a link" in one.text
