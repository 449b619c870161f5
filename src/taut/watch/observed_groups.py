"""Calls of a rank to its gates, torch 2.14 on: process groups tell of every call before it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from taut.watch.observed import RECEIVE, ROOTED, SEND
from taut.watch.wire import GATE

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from taut.watch.observed import Observer, Spot

P = ParamSpec("P")
R = TypeVar("R")
HOOK = 7_412_014
"""Our number among the hooks of a process group."""
FUTURES = ("ALLREDUCE", "BROADCAST", "ALLGATHER", "BARRIER")
"""Calls whose work has a future on every backend: asking others for one raises, which takes milliseconds."""
HOPS = {"SEND": SEND, "RECV": RECEIVE}
ENDS_EVERY = 16
"""Of so many calls at a place one has its end recorded: a future takes 50 µs."""


class HookArgs(Protocol):
    """What a hook of a process group gets."""

    name: HookName
    op_id: int
    root: int
    work: Work


class HookName(Protocol):
    """The verb of a call."""

    name: str
    value: int


class Work(Protocol):
    """A call that goes on."""

    def get_future(self) -> Future: ...  # noqa: D102


class Future(Protocol):
    """Its end, to come."""

    def add_done_callback(self, done: Callable[[Future], None]) -> None: ...  # noqa: D102


class Hooked(Protocol):
    """A process group of torch 2.14 on."""

    group_name: str

    def register_pre_hook(self, number: int, hook: Callable[[HookArgs], None]) -> None: ...  # noqa: D102
    def register_post_hook(self, number: int, hook: Callable[[HookArgs], None]) -> None: ...  # noqa: D102
    def unregister_pre_hook(self, number: int) -> None: ...  # noqa: D102
    def unregister_post_hook(self, number: int) -> None: ...  # noqa: D102


def watch_groups(observer: Observer) -> None:
    """Watch the calls of all groups of this process, and of those that will be made."""
    import torch.distributed.distributed_c10d as c10d

    names = set[str]()

    def catch() -> None:
        for group in list(c10d._world.pg_map):
            if group.group_name not in names:
                names.add(group.group_name)
                GroupCalls(observer, group).attach()

    observer.replace(c10d, "_new_process_group_helper", _making(observer, c10d._new_process_group_helper, catch))
    catch()


def _making(observer: Observer, call: Callable[P, R], catch: Callable[[], None]) -> Callable[P, R]:
    """The same function, after which groups that are new are hooked."""

    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        out = call(*args, **kwargs)
        if observer.on:
            with observer.quietly():
                catch()
        return out

    return made


class GroupCalls:
    """The calls of one group."""

    def __init__(self, observer: Observer, group: ProcessGroup) -> None:
        self._observer, self._group = observer, group
        self._spots: dict[tuple[int, int], tuple[Spot, int, bool]] = {}
        """Verb and root of a call → place, flags, whether its ends are told."""
        self._asked: dict[int, tuple[Spot, int, int, int]] = {}
        """Calls whose ends are asked for: place, flags, number and begin."""

    def attach(self) -> None:
        """Be told of every call."""
        group = cast(Hooked, self._group)
        group.register_pre_hook(HOOK, self.before)
        group.register_post_hook(HOOK, self.after)
        self._observer.at_detach(lambda: group.unregister_pre_hook(HOOK))
        self._observer.at_detach(lambda: group.unregister_post_hook(HOOK))

    def before(self, args: HookArgs) -> None:
        """A call is about to be made."""
        observer = self._observer
        if not observer.on:
            return
        if observer.device.samples:
            observer.device.called()
        try:
            now, key = observer.clock(), (args.name.value, args.root)
            spot, flags, ends = self._spots.get(key) or self._spot(key, args.name.name, args.root)
            number = spot.count
            if ends and number % ENDS_EVERY == 0:
                spot.count = number + 1
                self._asked[args.op_id] = spot, flags, number, now
                spot.number, spot.since_ns = number, now
            else:
                observer.came(spot, flags, now, 0)
        except Exception:
            observer.fault()

    def after(self, args: HookArgs) -> None:
        """A call was made."""
        if not self._asked:
            return
        try:
            call = self._asked.pop(args.op_id, None)
            if call is not None:
                args.work.get_future().add_done_callback(lambda _: self.ended(call))
        except Exception:
            self._observer.fault()

    def ended(self, call: tuple[Spot, int, int, int]) -> None:
        """A call whose end was asked for has ended."""
        observer, (spot, flags, number, began) = self._observer, call
        try:
            if spot.number == number:
                spot.since_ns = 0
            observer.ring.add((GATE, flags, spot.code, number, began, observer.clock(), 0))
        except Exception:
            observer.fault()

    def _spot(self, key: tuple[int, int], verb: str, root: int) -> tuple[Spot, int, bool]:
        import torch.distributed as dist

        ranks = dist.get_process_group_ranks(self._group)
        hop = verb in HOPS and 0 <= root < len(ranks)
        spot = self._observer.spot(verb.lower(), self._group.group_name, ranks[root] if hop else -1, ranks)
        flags = HOPS[verb] if hop else ROOTED if root >= 0 else 0
        self._spots[key] = spot, flags, verb in FUTURES
        return self._spots[key]
