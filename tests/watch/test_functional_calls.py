"""Functional collectives are gates, with their ends where the host waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.wire import EVENT, GATE

torch = pytest.importorskip("torch")


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of one rank."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_functional_collective_is_a_gate_that_ends_when_it_was_waited_for() -> None:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    observer = Observer(Ring(64))
    before = functional.all_reduce
    if observer.attach() == "hooks":
        observer.detach()
        pytest.skip("hooks of torch 2.14 see them")
    assert dist.group.WORLD is not None
    functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD) + 1
    data = observer.ring.take(64)
    observer.detach()
    events = [EVENT.unpack_from(data, at) for at in range(0, len(data), EVENT.size)]
    assert [(one[0], observer.places[one[2]]["verb"], one[5] >= one[4] > 0) for one in events] == [(GATE, "all_reduce", True)]
    assert observer.faults == 0
    assert functional.all_reduce is before
