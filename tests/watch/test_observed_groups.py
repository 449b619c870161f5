"""Calls that process groups tell of themselves: torch 2.14 on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taut.watch.event_ring import Ring
from taut.watch.observed import LASTING_NS, Observer
from taut.watch.wire import EVENT, GATE, STAGE, STEP, WAIT

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
    pytest.mark.skipif(
        not hasattr(torch.distributed.ProcessGroup, "register_pre_hook"), reason="needs hooks of process groups (torch 2.14)"
    ),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A job of one rank."""
    dist = torch.distributed
    store = Path(tmp_path_factory.mktemp("store")) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


@pytest.fixture
def observer(alone: Any) -> Iterator[Observer]:
    observer = Observer(Ring())
    assert observer.attach() == "hooks"
    yield observer
    observer.detach()
    assert observer.faults == 0


def told(observer: Observer, *kinds: int) -> list[tuple[str, int, bool]]:
    """Verb and number of events, and whether they have an end."""
    rows = EVENT.iter_unpack(observer.ring.take(1 << 16))
    return [
        (str(observer.places[place]["verb"]), number, end > 0) for kind, _, place, number, _, end, _ in rows if kind in kinds
    ]


def test_every_call_is_told_one_in_sixteen_with_its_end(alone: Any, observer: Observer) -> None:
    for _ in range(17):
        alone.all_reduce(torch.ones(2))
    rows = sorted(told(observer, GATE))
    assert rows == [("allreduce", number, number % 16 == 0) for number in range(17)]


def test_calls_below_the_functions_of_torch_are_told_too(alone: Any, observer: Observer) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    told(observer)
    model(torch.ones(2)).sum().backward()
    assert ("allreduce", 0, True) in told(observer, GATE)


def test_numbers_count_by_place_whatever_else_the_group_does(alone: Any, observer: Observer) -> None:
    alone.all_reduce(torch.ones(2))
    alone.barrier()
    alone.all_reduce(torch.ones(2))
    numbers = sorted((verb, number) for verb, number, _ in told(observer, GATE))
    assert numbers == [("allreduce", 0), ("allreduce", 1), ("barrier", 0)]


def test_a_group_that_is_made_later_is_watched(alone: Any, observer: Observer) -> None:
    group = alone.new_group([0])
    told(observer)
    alone.all_reduce(torch.ones(2), group=group)
    assert [verb for verb, _, _ in told(observer, GATE)] == ["allreduce"]
    alone.destroy_process_group(group)


def test_a_call_whose_end_is_asked_for_is_told_while_it_lasts(alone: Any, observer: Observer) -> None:
    began, spot = observer.clock(), observer.spot("allreduce")
    spot.number, spot.since_ns = 16, began
    observer.clock = lambda: began + LASTING_NS + 1
    observer.beat()
    assert told(observer, WAIT) == [("allreduce", 16, False)]


def test_torch_is_left_as_it_was(alone: Any) -> None:
    observer = Observer(Ring())
    observer.attach()
    observer.detach()
    alone.all_reduce(torch.ones(2))
    assert told(observer, GATE, STAGE, STEP) == []


def test_a_fault_of_ours_never_reaches_the_job(alone: Any) -> None:
    observer = Observer(Ring())
    observer.attach()

    def fails(*_: object) -> None:
        raise ValueError("of ours")

    observer.ring.add = fails  # type: ignore[method-assign]
    x = torch.ones(2)
    for _ in range(20):
        alone.all_reduce(x)
    assert (x.tolist(), observer.on) == ([1, 1], False)
    observer.detach()


def test_calls_of_several_threads(alone: Any, observer: Observer) -> None:
    group = alone.new_group([0])
    told(observer)
    threads = [
        threading.Thread(target=lambda which=which: [alone.all_reduce(torch.ones(2), group=which) for _ in range(50)])
        for which in (None, group)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for _, number, _ in told(observer, GATE)) == sorted([*range(50), *range(50)])
    alone.destroy_process_group(group)
