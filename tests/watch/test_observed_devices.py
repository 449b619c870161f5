"""What a rank measures of its device, with events that a model of a stream records: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.observed_devices import (
    CHECKED_EVERY,
    DEVICE,
    EVERY,
    GIVES_UP,
    LAG,
    MOST_EVENTS,
    MOST_SHARE,
    RARELY,
    SELDOM,
    Cuda,
    DeviceTimes,
)
from taut.watch.wire import EVENT


class Stream:
    """A device whose time goes on as it is told to."""

    def __init__(self) -> None:
        self.now_ms, self.done_ms, self.calls, self.recorded, self.made = 1000.0, float("inf"), 0, 0, 0
        self.which, self.captures, self.initialized = (0, 7), False, True


class FakeEvent:
    def __init__(self, stream: Stream) -> None:
        self.stream, self.at_ms = stream, 0.0
        stream.made += 1

    def record(self, stream: object) -> None:
        assert not self.stream.captures
        self.stream.recorded += 1
        self.at_ms = self.stream.now_ms

    def query(self) -> bool:
        return self.at_ms <= self.stream.done_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert end.query()
        return end.at_ms - self.at_ms


class FakeCuda(Cuda):
    def __init__(self, stream: Stream) -> None:
        self.of = stream

    def started(self) -> bool:
        return self.of.initialized

    def stream(self) -> tuple[int, int] | None:
        assert self.of.initialized
        return None if self.of.captures else self.of.which

    def handle(self) -> object:
        return self.of.which

    def event(self) -> FakeEvent:
        return FakeEvent(self.of)

    def counted(self) -> int:
        return self.of.calls


class Rank:
    """Its host takes half as long as its device."""

    def __init__(self, *, longer: float = 1.0, host: float = 0.5) -> None:
        self.stream, self.longer = Stream(), longer
        self.observer = Observer(Ring(), lambda: int(1e6 * host * self.stream.now_ms))
        self.observer.device = self.device = DeviceTimes(self.observer, FakeCuda(self.stream))

    def waits(self, ms: float, *, counts: bool = True) -> None:
        """A synchronous call."""
        if self.device.samples:
            self.device.arrive()
        self.stream.now_ms += ms
        self.stream.calls += counts
        if self.device.samples:
            self.device.leave()

    def goes_back(self, ms: float, *, waits_ms: float) -> None:
        """A backward pass of DDP: its reductions are seen by nobody."""
        if self.device.samples:
            self.device.begin_pass()
        self.stream.now_ms += ms
        self.stream.calls += 2
        if self.device.samples:
            self.device.arrive()
        self.stream.now_ms += waits_ms
        if self.device.samples:
            self.device.end_pass(True)

    def step(self, waits_ms: float = 50.0) -> None:
        """30 ms of own work, and a wait."""
        self.stream.now_ms += 10 * self.longer
        self.goes_back(15 * self.longer, waits_ms=waits_ms * self.longer)
        self.stream.now_ms += 5 * self.longer
        self.observer.end_step()

    def told(self) -> dict[int, float]:
        """Step → what its device took, ms."""
        return {step: took_ms for step, took_ms, _ in self.samples()}

    def samples(self) -> list[tuple[int, float, int]]:
        """Step, what its device took, ms, and the part of it that may be the host's, of MOST_SHARE."""
        events = EVENT.iter_unpack(self.observer.ring.take(1 << 16))
        verbs = [str(one["verb"]) for one in self.observer.places]
        return [
            (number, round((end - begin) / 1e6, 3), flags)
            for kind, flags, place, number, begin, end, _ in events if kind == 1 and verbs[place] == DEVICE
        ]  # fmt: skip


def test_what_a_device_takes_is_without_what_it_waits_for_others() -> None:
    rank = Rank()
    for step in range(160):
        rank.step(waits_ms=50.0 + step)
    told = rank.told()
    assert len(told) > 5
    assert set(told.values()) == {30.0}


@pytest.mark.parametrize(("longer", "every"), [(1.0, RARELY), (20.0, EVERY)])
def test_of_short_steps_fewer_are_sampled_and_events_are_used_again(longer: float, every: int) -> None:
    rank = Rank(longer=longer)
    for _ in range(400):
        rank.step()
    assert len(rank.told()) == pytest.approx(400 / every, abs=3)
    assert rank.stream.recorded <= 4 * (400 / every + 4)
    assert rank.stream.made <= 8


def test_of_steps_with_many_calls_the_first_ones_are_measured() -> None:
    rank = Rank()
    for _ in range(400):
        for _ in range(100):
            rank.stream.now_ms += 1
            rank.waits(3)
        rank.observer.end_step()
    told = rank.told()
    assert set(told.values()) == {MOST_EVENTS / 2}
    assert rank.stream.recorded <= MOST_EVENTS * (400 / RARELY + 4)


def test_a_device_that_is_not_through_in_time_is_not_waited_for() -> None:
    rank = Rank()
    rank.stream.done_ms = 0.0
    for _ in range(40):
        rank.step()
    assert rank.told() == {}
    assert rank.device.late > 0
    assert rank.observer.faults == 0


def test_a_sample_is_told_before_the_steps_of_its_lag_are_over() -> None:
    rank, told = Rank(), dict[int, int]()
    for step in range(60):
        rank.stream.done_ms = rank.stream.now_ms - 80 * (LAG - 4)
        rank.step()
        told |= dict.fromkeys(rank.told(), step)
    assert told
    assert all(at - number < LAG for number, at in told.items())


@pytest.mark.parametrize(("behind_ms", "hosts"), [(0, MOST_SHARE), (200, 0)], ids=["waits for its host", "far behind it"])
def test_what_may_be_the_hosts_is_told_with_it(behind_ms: float, hosts: int) -> None:
    rank = Rank(host=1.0)
    told = set[int]()
    for _ in range(80):
        rank.stream.done_ms = rank.stream.now_ms + (1e9 if not behind_ms else -behind_ms)
        rank.step()
        told |= {part for *_, part in rank.samples()}
    assert told == {hosts}


def elsewhere(rank: Rank) -> None:
    rank.stream.which = (0, 8)
    rank.waits(5)
    rank.stream.which = (0, 7)


def async_call(rank: Rank) -> None:
    rank.waits(0)
    if rank.device.samples:
        rank.device.lack()


def unseen_call(rank: Rank) -> None:
    rank.stream.now_ms += 5
    rank.stream.calls += 1


def captured(rank: Rank) -> None:
    rank.stream.captures = True
    rank.waits(5)
    rank.stream.captures = False


def call_of_a_hook(rank: Rank) -> None:
    if rank.device.samples:
        rank.device.called()


@pytest.mark.parametrize("what", [elsewhere, async_call, unseen_call, captured, call_of_a_hook], ids=lambda one: one.__name__)
def test_steps_in_which_the_stream_may_wait_unseen_are_left_out_and_then_seldom_tried(what: Callable[[Rank], None]) -> None:
    rank = Rank()
    for _ in range(RARELY * CHECKED_EVERY * 2):
        what(rank)
        rank.step()
    assert rank.told() == {}
    assert rank.observer.faults == 0
    assert rank.stream.recorded <= 4 * (GIVES_UP + RARELY * CHECKED_EVERY * 2 / SELDOM + 2)


def test_a_step_that_is_left_out_is_looked_at_no_further() -> None:
    rank = Rank()
    while not rank.device.samples:
        rank.step()
    async_call(rank)
    recorded = rank.stream.recorded
    assert not rank.device.samples
    rank.step()
    assert rank.stream.recorded == recorded


def test_a_job_without_a_device_or_without_calls_tells_nothing() -> None:
    without, alone = Rank(), Rank()
    without.stream.initialized = False
    for _ in range(20):
        without.step()
        alone.stream.now_ms += 30
        alone.observer.end_step()
    assert without.told() == alone.told() == {}
    assert without.stream.recorded == 0


def test_a_fault_ends_the_measuring_of_devices_alone() -> None:
    rank = Rank()
    for _ in range(4):
        rank.step()

    def fails() -> bool:
        raise RuntimeError("CUDA error")

    rank.device._cuda.stream = fails  # type: ignore[assignment, method-assign]
    for _ in range(20):
        rank.step()
    assert rank.observer.faults == 1
    assert rank.observer.on
