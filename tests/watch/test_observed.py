"""What a rank notices of itself, with the real torch in one process; and that the job never notices."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.watch.core_waits import QUEUED
from taut.watch.event_ring import Ring
from taut.watch.observed import LASTING_NS, Observer
from taut.watch.wire import COUNTED, EVENT, GATE, STAGE, STEP, WAIT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

from taut.watch.observed_calls import STILL_NS, Spots, called, watch_calls  # noqa: E402
from taut.watch.observed_steps import BACKWARD, watch_steps  # noqa: E402

KINDS = {GATE: "gate", STAGE: "stage", STEP: "step", WAIT: "wait"}


class Clock:
    """A microsecond goes by whenever somebody asks."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        self.now += 1000
        return self.now


@contextmanager
def watching(watch: Callable[[Observer], None], clock: Callable[[], int] | None = None) -> Iterator[Observer]:
    observer = Observer(Ring(), clock or Clock())
    watch(observer)
    try:
        yield observer
    finally:
        observer.detach()


def told(observer: Observer) -> list[tuple[str, str, int]]:
    """Kind, verb and number of the events so far; waits for a core, which a busy machine adds, are left out."""
    rows = EVENT.iter_unpack(observer.ring.take(1 << 16))
    found = [
        (KINDS[kind], "" if kind == STEP else str(observer.places[place]["verb"]), number)
        for kind, _, place, number, *_ in rows
    ]
    return [row for row in found if row[1] != QUEUED]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A job of one rank."""
    dist = torch.distributed
    store = Path(tmp_path_factory.mktemp("store")) / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


def one_step(optimizer: Any, weight: Any, closure: bool = False) -> None:
    def loss() -> Any:
        optimizer.zero_grad()
        value = (weight * 2).sum()
        value.backward()
        return value

    if closure:
        optimizer.step(loss)
    else:
        loss()
        optimizer.step()


def weights(count: int = 1) -> list[Any]:
    return [torch.ones(3, requires_grad=True) for _ in range(count)]


# -- calls ----------------------------------------------------------------------------------------------------------------


def test_a_call_is_a_gate_with_an_end_unless_it_is_waited_for_elsewhere(alone: Any) -> None:
    with watching(watch_calls) as observer:
        alone.all_reduce(torch.ones(2))
        alone.all_reduce(torch.ones(2), async_op=True).wait()
        rows = list(EVENT.iter_unpack(observer.ring.take(9)))
    assert [(kind, number, end > begin) for kind, _, _, number, begin, end, _ in rows] == [(GATE, 0, True), (GATE, 1, False)]
    assert (observer.places[0]["verb"], observer.places[0]["ranks"], observer.faults) == ("all_reduce", [0], 0)


def test_an_old_name_that_calls_the_new_one_is_seen_once(alone: Any) -> None:
    with watching(watch_calls) as observer:
        alone.all_gather_into_tensor(torch.empty(2), torch.ones(2))
        assert [kind for kind, _, _ in told(observer)] == ["gate"]


def test_a_group_without_this_rank_is_no_fault(alone: Any) -> None:
    with watching(watch_calls) as observer:
        call = called(observer, lambda group=None: None, "barrier")
        call(group=alone.GroupMember.NON_GROUP_MEMBER)
        assert (told(observer), observer.faults) == ([], 0)


def test_a_group_that_is_gone_leaves_no_place_to_another_at_its_address(alone: Any) -> None:
    class Group(alone.ProcessGroup):  # type: ignore[misc, name-defined]
        group_name = "of the test"

    group, spots = Group(0, 1), Spots(Observer(Ring()), "barrier")
    alone.distributed_c10d._world.pg_group_ranks[group] = {0: 0}
    assert spots.find(group, None) is spots.find(group, None) is not None
    del alone.distributed_c10d._world.pg_group_ranks[group], group
    gc.collect()
    assert spots.known == {}


def test_torch_is_left_as_it_was(alone: Any) -> None:
    before = alone.all_reduce, torch.autograd.backward, torch.amp.GradScaler.step
    with watching(watch_calls), watching(watch_steps):
        assert alone.all_reduce is not before[0]
    assert (alone.all_reduce, torch.autograd.backward, torch.amp.GradScaler.step) == before


def test_a_call_that_lasts_is_told_before_it_ends_once(alone: Any) -> None:
    clock = Clock()

    def barrier(group: object = None) -> None:
        observer.beat()
        clock.now += LASTING_NS
        observer.beat()
        observer.beat()

    with watching(watch_calls, clock) as observer:
        called(observer, barrier, "barrier")()
        observer.beat()
        assert told(observer) == [("wait", "barrier", 0), ("gate", "barrier", 0)]


def test_a_checkpoint_that_lasts_is_told_before_it_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def save() -> None:
        clock.now += LASTING_NS + 1
        observer.beat()

    monkeypatch.setattr(torch, "save", save)
    with watching(watch_steps, clock) as observer:
        torch.save()  # type: ignore[call-arg]
        observer.beat()
        assert told(observer) == [("wait", "save", 0), ("stage", "save", 0)]


def test_a_call_that_fails_lasts_no_longer_and_is_not_counted(alone: Any) -> None:
    def barrier(group: object = None) -> None:
        raise RuntimeError("of the job")

    with watching(watch_calls) as observer:
        with pytest.raises(RuntimeError, match="of the job"):
            called(observer, barrier, "barrier")()
        assert (told(observer), [spot.since_ns for spot in observer.spots]) == ([], [0])


def test_of_a_rank_that_stands_still_the_calls_are_counted_also_those_that_nobody_sees(alone: Any) -> None:
    clock = Clock()
    with watching(watch_calls, clock) as observer:
        before = alone.group.WORLD._get_sequence_number_for_group()
        alone.group.WORLD.allreduce([torch.ones(2)]).wait()
        observer.beat()
        clock.now += STILL_NS
        observer.beat()
        observer.beat()
        assert told(observer) == [("wait", COUNTED, before + 1)]
        observer.hopped.add(alone.group.WORLD.group_name)
        alone.group.WORLD.allreduce([torch.ones(2)]).wait()
        observer.beat()
        clock.now += STILL_NS
        observer.beat()
        assert told(observer) == []


def test_a_compiler_still_knows_the_function(alone: Any) -> None:
    def work(x: Any) -> Any:
        alone.all_reduce(x, op=alone.ReduceOp.SUM)
        return x + 1

    with watching(watch_calls):
        compiled = torch.compile(work, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    torch._dynamo.reset()


# -- steps ----------------------------------------------------------------------------------------------------------------


def steps_of(observer: Observer) -> list[int]:
    return [number for kind, _, number in told(observer) if kind == "step"]


def test_a_step_has_its_stages_and_the_gate_where_a_pass_ends() -> None:
    weight = weights()[0]
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with watching(watch_steps) as observer:
        for _ in torch.utils.data.DataLoader([1, 2]):
            one_step(optimizer, weight)
        rows = told(observer)
    turn = [("stage", "load"), ("stage", BACKWARD), ("gate", BACKWARD), ("stage", "optimizer"), ("step", "")]
    assert [row[:2] for row in rows] == [*turn, *turn]
    assert observer.faults == 0


@pytest.mark.parametrize("before", [True, False], ids=["hooked before", "hooked after"])
def test_hooks_that_the_job_has_on_a_loss_stay_its_own(before: bool) -> None:
    weight, seen = torch.ones(2, requires_grad=True), list[str]()
    with watching(watch_steps) as observer:
        loss = (weight * 2).sum()
        if before:
            loss.register_hook(lambda _: seen.append("first"))
        loss.backward(retain_graph=True)
        handle = loss.register_hook(lambda _: seen.append("second"))
        loss.backward(retain_graph=True)
        handle.remove()
        loss.backward()
        assert [verb for kind, verb, _ in told(observer) if kind == "gate"] == [BACKWARD] * 3
        assert observer.faults == 0
    assert seen == (["first", "first", "second", "first"] if before else ["second"])
    assert len(loss._backward_hooks) == before


def test_several_optimizers_and_accumulated_gradients_are_one_step() -> None:
    first, second = weights(2)
    one, two = torch.optim.SGD([first], lr=0.1), torch.optim.Adam([second], lr=0.1)
    with watching(watch_steps) as observer:
        for _ in range(3):
            (first * 2).sum().backward()
            one_step(one, first)
            one_step(two, second)
        assert steps_of(observer) == [0, 1, 2]


def test_an_optimizer_that_steps_no_more_ends_no_steps() -> None:
    first, second = weights(2)
    one, two = torch.optim.SGD([first], lr=0.1), torch.optim.Adam([second], lr=0.1)
    with watching(watch_steps) as observer:
        one_step(one, first)
        for _ in range(20):
            one_step(two, second)
        assert steps_of(observer) == [0, 1, 2, 3, 4]
        del one
        one_step(two, second)
        assert steps_of(observer) == [5]


def test_an_optimizer_that_makes_the_pass_itself_is_not_busy_with_it() -> None:
    weight = weights()[0]
    with watching(watch_steps) as observer:
        one_step(torch.optim.SGD([weight], lr=0.1), weight, closure=True)
        rows = list(EVENT.iter_unpack(observer.ring.take(99)))
    back, optimizer = (row for row in rows if row[0] == STAGE)
    assert optimizer[4] >= back[5]


def test_a_step_that_a_scaler_leaves_out_is_a_step() -> None:
    weight = weights()[0]
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    with watching(watch_steps) as observer:
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert steps_of(observer) == [0, 1, 2]
    assert weight.tolist() == pytest.approx([0.8] * 3)


def test_a_job_that_says_itself_where_steps_end_has_no_others() -> None:
    weight = weights()[0]
    with watching(watch_steps) as observer:
        observer.by_hand = True
        one_step(torch.optim.SGD([weight], lr=0.1), weight)
        assert steps_of(observer) == []


# -- the job never notices ------------------------------------------------------------------------------------------------


def trained(dist: Any) -> list[float]:
    weight = weights()[0]
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for batch in torch.utils.data.DataLoader([1.0, 2.0, 3.0]):
        optimizer.zero_grad()
        (weight * batch).sum().backward()
        dist.all_reduce(weight.grad)
        dist.barrier()
        optimizer.step()
    return [float(one) for one in weight]


class Fault(Exception):
    """Of ours."""


@pytest.mark.parametrize("what", ["clock", "ring.add", "spot", "stage", "end_step"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fails=st.lists(st.booleans(), min_size=60, max_size=60))
def test_a_fault_of_ours_never_reaches_the_job(alone: Any, what: str, fails: list[bool]) -> None:
    expected = trained(alone)
    turns = iter(fails)

    def watch(observer: Observer) -> None:
        owner = observer.ring if what == "ring.add" else observer
        name = what.rpartition(".")[2]
        works = getattr(owner, name)

        def sometimes(*args: Any, **kwargs: Any) -> Any:
            if next(turns, False):
                raise Fault
            return works(*args, **kwargs)

        if what == "spot":  # places of stages are made when the watching begins
            watch_steps(observer)
        setattr(owner, name, sometimes)
        if what != "spot":
            watch_steps(observer)
        watch_calls(observer)

    with watching(watch) as observer:
        assert trained(alone) == expected
        assert observer.on == (observer.faults < 8)
