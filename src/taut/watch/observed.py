"""What a rank notices of itself: calls to its gates, and the stages of its steps; nothing of it may disturb the job.

Every place at which the job is watched is a function of torch that is called anyway: hooks of process groups (torch 2.14 on),
of optimizers, and, replaced by functions that call them, ``torch.autograd.backward`` and the iterator of loaders; below 2.14
also the collectives of ``torch.distributed``. A fault of ours is counted, and ends the watching, never the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from taut.watch.ring import Ring
from taut.watch.wire import GATE, STAGE, STEP

if TYPE_CHECKING:
    import torch
    from torch.distributed import P2POp, ProcessGroup

P = ParamSpec("P")
R = TypeVar("R")
HOOK = 7_412_014
"""Our number among the hooks of a process group."""
BACKWARD = "backward"
"""The gate at the end of a backward pass, whose reductions nobody else sees: DDP's below torch 2.14."""
COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_single", "all_to_all", "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip
"""Functions of ``torch.distributed`` in which ranks of a group meet."""
HOPS = {"send": 1, "recv": 0}
"""Functions of ``torch.distributed`` that meet one other rank, and whether they send. ``isend`` and ``irecv`` stay as they are:
torch compares them with what a job imported, and refuses others. They are seen in ``batch_isend_irecv``."""
FUTURES = ("ALLREDUCE", "BROADCAST", "ALLGATHER", "BARRIER")
"""Calls whose work has a future on every backend: asking others for one raises, which takes milliseconds."""
ENDS_EVERY = 16
"""Of so many gates of a group one has its end recorded: a future takes 50 µs."""
FAULTS = 8
"""So many faults of ours end the watching."""
SEND, RECEIVE, ROOTED = 1, 2, 4
"""Flags of a gate: a hop that sends, or receives; a collective with a root."""


class HookArgs(Protocol):
    """What a hook of a process group gets."""

    name: HookName
    op_id: int
    root: int
    work: Work


class HookName(Protocol):
    """The verb of a call."""

    name: str


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


class Observer:
    """Watches one rank and puts what it sees into a ring."""

    def __init__(self, ring: Ring, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.ring, self.clock = ring, clock
        self.places: list[dict[str, str | int | list[int]]] = []
        """What the codes of places stand for: verb, group, its ranks, peer."""
        self.faults, self.step, self.on = 0, 0, True
        self.after_step: Callable[[int], None] | None = None
        """Called with the number of the step that begins: a profile that was asked for."""
        self._place: dict[tuple[str, str, int], int] = {}
        self._count: dict[int, int] = {}
        self._groups: set[str] = set()
        self._undo: list[Callable[[], None]] = []
        self._step_began_ns = clock()

    # -- places and events ----------------------------------------------------------------------------------------------

    def place(self, verb: str, group: str = "", peer: int = -1, ranks: list[int] | None = None) -> int:
        """The code of a place, made when it is first seen."""
        key = verb, group, peer
        code = self._place.get(key)
        if code is None:
            code = self._place[key] = len(self.places)
            self.places.append({"verb": verb, "group": group, "peer": peer, "ranks": ranks or []})
        return code

    def number(self, place: int) -> int:
        """How often a place was come to before."""
        count = self._count.get(place, 0)
        self._count[place] = count + 1
        return count

    def stage(self, verb: str, begin_ns: int, end_ns: int) -> None:
        """A stage of the present step is over."""
        self.ring.add(STAGE, 0, self.place(verb), self.step, begin_ns, end_ns, 0)

    def end_step(self) -> None:
        """A step is over."""
        now = self.clock()
        self.ring.add(STEP, 0, 0, self.step, self._step_began_ns, now, 0)
        self.step, self._step_began_ns = self.step + 1, now
        if self.after_step is not None:
            self.after_step(self.step)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """A block whose faults are ours, not the job's."""
        try:
            yield
        except Exception:
            self.faults += 1
            if self.faults >= FAULTS:
                self.on = False

    # -- torch --------------------------------------------------------------------------------------------------------

    def attach(self) -> str:
        """Watch the process from now on; returns what can be seen: ``hooks`` or ``calls``."""
        import torch.distributed as dist

        self._watch_steps()
        self._watch_loader()
        self._watch_backward()
        if hasattr(dist.ProcessGroup, "register_pre_hook"):
            self._watch_groups()
            return "hooks"
        self._watch_calls()
        return "calls"

    def detach(self) -> None:
        """Leave everything as it was."""
        self.on = False
        while self._undo:
            with self.quietly():
                self._undo.pop()()

    def _replace(self, owner: object, name: str, by: Callable[..., object]) -> None:
        old = getattr(owner, name)
        setattr(owner, name, by)
        self._undo.append(lambda: setattr(owner, name, old))

    def _watch_steps(self) -> None:
        from torch.optim import optimizer

        began = [0]

        def before(*_: object) -> None:
            began[0] = self.clock()

        def after(*_: object) -> None:
            if self.on:
                with self.quietly():
                    self.stage("optimizer", began[0], self.clock())
                    self.end_step()
                    self._catch_groups()

        handles = optimizer.register_optimizer_step_pre_hook(before), optimizer.register_optimizer_step_post_hook(after)
        self._undo += [handle.remove for handle in handles]

    def _watch_loader(self) -> None:
        from torch.utils.data import dataloader

        base = dataloader._BaseDataLoaderIter
        self._replace(base, "__next__", self._staged(base.__next__, "load"))

    def _staged(self, call: Callable[P, R], verb: str) -> Callable[P, R]:
        """The same function, its time kept as a stage."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            begin = self.clock()
            out = call(*args, **kwargs)
            if self.on:
                with self.quietly():
                    self.stage(verb, begin, self.clock())
            return out

        return timed

    def _watch_backward(self) -> None:
        import torch

        self._replace(torch.autograd, "backward", self._passed(torch.autograd.backward))

    def _passed(self, call: Callable[P, None]) -> Callable[P, None]:
        """The backward pass: how long its own work took, and when it went on after its reductions."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> None:
            if not self.on:
                call(*args, **kwargs)
                return
            begin, worked = self.clock(), [0]
            with self.quietly():
                self._at_end_of_work(args[0] if args else kwargs.get("tensors"), worked)
            call(*args, **kwargs)
            end = self.clock()
            with self.quietly():
                self.stage(BACKWARD, begin, worked[0] or end)
                place = self.place(BACKWARD)
                self.ring.add(GATE, 0, place, self.number(place), worked[0] or end, end, 0)

        return timed

    def _at_end_of_work(self, roots: object, worked: list[int]) -> None:
        """Note when the work of a pass is done: before that of DDP, which waits for its reductions."""
        import torch

        engine = torch.autograd.Variable._execution_engine
        first = roots[0] if isinstance(roots, (list, tuple)) and roots else roots
        if not isinstance(first, torch.Tensor):
            return

        def at_end() -> None:
            worked[0] = self.clock()

        def at_begin(_: torch.Tensor) -> None:
            with self.quietly():
                # Callbacks of a pass run in the order in which they came; this one comes first. DDP's waits.
                engine.queue_callback(at_end)
                handle.remove()

        handle = first.register_hook(at_begin)  # type: ignore[no-untyped-call]

    # -- calls: torch 2.14 on ---------------------------------------------------------------------------------------------

    def _watch_groups(self) -> None:
        import torch.distributed.distributed_c10d as c10d

        self._replace(c10d, "_new_process_group_helper", self._making(c10d._new_process_group_helper))
        self._catch_groups()

    def _making(self, call: Callable[P, R]) -> Callable[P, R]:
        """The same function, after which groups that are new are hooked."""

        def made(*args: P.args, **kwargs: P.kwargs) -> R:
            out = call(*args, **kwargs)
            with self.quietly():
                self._catch_groups()
            return out

        return made

    def _catch_groups(self) -> None:
        """Hook every group that is new."""
        import torch.distributed.distributed_c10d as c10d

        if not hasattr(c10d.ProcessGroup, "register_pre_hook") or len(c10d._world.pg_map) == len(self._groups):
            return
        for group in list(c10d._world.pg_map):
            if group.group_name not in self._groups:
                self._groups.add(group.group_name)
                self._hook(group)

    def _hook(self, group: ProcessGroup) -> None:
        """Watch the calls of one group."""
        import torch.distributed as dist

        hooked, name, ranks = cast(Hooked, group), group.group_name, list[int]()
        asked: dict[int, tuple[int, int, int]] = {}

        def before(args: HookArgs) -> None:
            if not self.on:
                return
            now = self.clock()
            with self.quietly():
                if not ranks:  # not told yet while a group is made
                    ranks.extend(dist.get_process_group_ranks(group))
                verb = args.name.name
                peer = ranks[args.root] if verb in ("SEND", "RECV") and 0 <= args.root < len(ranks) else -1
                flags = SEND if verb == "SEND" else RECEIVE if verb == "RECV" else ROOTED if args.root >= 0 else 0
                place = self.place(verb.lower(), name, peer, ranks)
                number = self.number(place) if peer >= 0 else args.op_id
                if verb in FUTURES and number % ENDS_EVERY == 0:
                    asked[args.op_id] = place, number, now
                else:
                    self.ring.add(GATE, flags, place, number, now, 0, 0)

        def after(args: HookArgs) -> None:
            found = asked.pop(args.op_id, None)
            if found is None:
                return
            with self.quietly():
                place, number, began = found

                def done(_: Future) -> None:
                    with self.quietly():
                        self.ring.add(GATE, 0, place, number, began, self.clock(), 0)

                args.work.get_future().add_done_callback(done)

        hooked.register_pre_hook(HOOK, before)
        hooked.register_post_hook(HOOK, after)
        self._undo += [lambda: hooked.unregister_pre_hook(HOOK), lambda: hooked.unregister_post_hook(HOOK)]

    # -- calls: below torch 2.14 ------------------------------------------------------------------------------------------

    def _watch_calls(self) -> None:
        import torch.distributed as dist
        import torch.distributed.distributed_c10d as c10d

        for name in (*COLLECTIVES, *HOPS):
            if hasattr(c10d, name):
                watched = self._called(getattr(c10d, name), name)
                self._replace(c10d, name, watched)
                self._replace(dist, name, watched)
        batch = self._batched(c10d.batch_isend_irecv)
        self._replace(c10d, "batch_isend_irecv", batch)
        self._replace(dist, "batch_isend_irecv", batch)

    def _batched(self, call: Callable[[list[P2POp]], R]) -> Callable[[list[P2POp]], R]:
        """The same function, each of its hops a gate."""

        def counted(p2p_op_list: list[P2POp]) -> R:
            begin = self.clock()
            out = call(p2p_op_list)
            if self.on:
                with self.quietly():
                    for one in p2p_op_list:
                        sends = one.op.__name__ == "isend"
                        self._gate(
                            "send" if sends else "recv", int(sends), begin, 0, (one.tensor, one.peer), {"group": one.group}
                        )
            return out

        return counted

    def _called(self, call: Callable[P, R], name: str) -> Callable[P, R]:
        """The same function, each call of it a gate."""
        hop = HOPS.get(name)

        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            begin = self.clock()
            out = call(*args, **kwargs)
            if self.on:
                with self.quietly():
                    self._gate(name, hop, begin, 0 if out is not None and name not in ("recv",) else self.clock(), args, kwargs)
            return out

        return counted

    def _gate(
        self, name: str, hop: int | None, begin: int, end: int, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        import torch.distributed as dist

        given = (one for one in (kwargs.get("group"), *args) if isinstance(one, dist.ProcessGroup))
        group = next(given, None) or dist.group.WORLD
        if group is None:
            return
        ranks = dist.get_process_group_ranks(group)
        peer = -1
        if hop is not None:
            other = kwargs.get("dst" if hop else "src", args[1] if len(args) > 1 else -1)
            peer = other if isinstance(other, int) else -1
        place = self.place(name, group.group_name, peer, ranks)
        flags = 0 if hop is None else SEND if hop else RECEIVE
        self.ring.add(GATE, flags, place, self.number(place), begin, end, 0)
