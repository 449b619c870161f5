"""Calls of a rank to its gates below torch 2.14: collectives of ``torch.distributed``, replaced by functions that call them.

Collectives that are called below these functions (by DDP, or as operators) are not seen. A group counts them all the same:
once a rank stands still, its counts are told, so that whoever made fewer calls than the others is known.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from taut.watch.functional_calls import FunctionalCalls
from taut.watch.observed import RECEIVE, SEND
from taut.watch.observed_devices import calls_of
from taut.watch.wire import COUNTED, GATE, WAIT

if TYPE_CHECKING:
    from torch.distributed import P2POp

    from taut.watch.observed import Observer, Spot

P = ParamSpec("P")
R = TypeVar("R")
COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_scatter_single", "all_to_all", "all_to_all_single", "broadcast", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip
"""Functions of ``torch.distributed`` in which ranks of a group meet."""
CALLS_NEW = {"all_gather_into_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}
"""Old names of some of them, which call the new one where there is one: one call is seen once."""
HOPS = {"send": "dst", "recv": "src"}
"""Functions of ``torch.distributed`` that meet one other rank, and what they call it. ``isend`` and ``irecv`` stay as they are:
torch compares them with what a job imported, and refuses others. They are seen in ``batch_isend_irecv``."""
STILL_NS = 4_000_000_000
"""A rank whose groups count no call for so long stands still."""
FLAGS = {"send": SEND, "recv": RECEIVE}


def watch_calls(observer: Observer) -> None:
    """Watch the calls of this process."""
    import torch.distributed as dist
    import torch.distributed._functional_collectives as compiled  # before it could take our functions for torch's
    import torch.distributed.distributed_c10d as c10d

    remaps: dict[Callable[..., object], object] = getattr(compiled, "traceable_collective_remaps", {})
    for name in (*COLLECTIVES, *HOPS):
        if hasattr(c10d, name) and not hasattr(c10d, CALLS_NEW.get(name, "")):
            call = getattr(c10d, name)
            watched = called(observer, call, name)
            observer.replace(c10d, name, watched)
            observer.replace(dist, name, watched)
            if call in remaps:  # torch.compile takes our function for the one that it knows
                remaps[watched] = remaps[call]
                observer.at_detach(partial(remaps.__delitem__, watched))
    batch = batched(observer, c10d.batch_isend_irecv)
    observer.replace(c10d, "batch_isend_irecv", batch)
    observer.replace(dist, "batch_isend_irecv", batch)
    FunctionalCalls(observer).attach()
    observer.tell_counts = Counts(observer).tell


def called(observer: Observer, call: Callable[P, R], name: str) -> Callable[P, R]:
    """The same function, each call of it a gate."""
    spots = Spots(observer, name)
    at, role, known, world = list(inspect.signature(call).parameters).index("group"), spots.role, spots.known, spots.world
    clock, add, flags, waits = observer.clock, observer.ring.add, FLAGS.get(name, 0), name == "recv"
    device = observer.device

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        # Written out, not in functions of its own: between two calls of a job caches forget, and each function costs anew.
        if not observer.on:
            return call(*args, **kwargs)
        begin, spot, sampled = 0, None, device.samples
        if sampled:
            device.arrive()
        try:
            begin = clock()
            group = args[at] if len(args) > at else kwargs.get("group")
            if group is None:
                group = world.default_pg
            peer = (args[1] if len(args) > 1 else kwargs.get(role)) if role else None
            spot = known.get((id(group), peer) if role else id(group)) or spots.find(group, peer)
            if spot is not None:
                spot.number, spot.since_ns = spot.count, begin
        except Exception:
            observer.fault()
        try:
            out = call(*args, **kwargs)
        finally:
            if spot is not None:
                spot.since_ns = 0
        if sampled:
            device.leave()
            if out is not None and not waits:
                device.lack()
        if spot is not None:
            try:
                number = spot.count
                spot.count = number + 1
                # What gives something back that can be waited for has not waited; recv gives back who sent.
                add((GATE, flags, spot.code, number, begin, clock() if out is None or waits else 0, 0))
            except Exception:
                observer.fault()
        return out

    return called


def batched(observer: Observer, call: Callable[[list[P2POp]], R]) -> Callable[[list[P2POp]], R]:
    """The same function, each of its hops a gate."""
    spots = {name: Spots(observer, name) for name in HOPS}

    def batched(p2p_op_list: list[P2POp]) -> R:
        begin = 0
        try:
            begin = observer.clock()
        except Exception:
            observer.fault()
        out = call(p2p_op_list)
        if observer.device.samples:
            observer.device.lack()
        if observer.on and begin:
            try:
                for one in p2p_op_list:
                    name = "send" if one.op.__name__ == "isend" else "recv"
                    spot = spots[name].find(one.group or spots[name].world.default_pg, one.peer)
                    if spot is not None:
                        observer.came(spot, FLAGS[name], begin, 0)
            except Exception:
                observer.fault()
        return out

    return batched


class Spots:
    """Places of the calls of one function."""

    def __init__(self, observer: Observer, name: str) -> None:
        import torch.distributed.distributed_c10d as c10d

        self._observer, self._name, self.role, self.world = observer, name, HOPS.get(name, ""), c10d._world
        self.known: dict[int | tuple[int, object], Spot] = {}
        """By the address of a group, as long as there is one, and the other rank."""
        self._groups: dict[int | tuple[int, object], weakref.ref[object]] = {}

    def find(self, group: object, peer: object) -> Spot | None:
        """A place, which may not be known yet; None where this rank is not in the group."""
        import torch.distributed as dist

        key = (id(group), peer) if self.role else id(group)
        if key in self.known or not isinstance(group, dist.ProcessGroup):
            return self.known.get(key)
        other = peer if isinstance(peer, int) else -1
        spot = self._observer.spot(self._name, group.group_name, other, dist.get_process_group_ranks(group))
        self._groups[key] = weakref.ref(group, lambda _: self.known.pop(key, None))  # another one may have its address later
        self.known[key] = spot
        return spot


class Counts:
    """How many calls each group has made, as it counts itself; on gloo hops count too, so such groups are left out."""

    def __init__(self, observer: Observer) -> None:
        import torch.distributed.distributed_c10d as c10d

        self._observer, self._world = observer, c10d._world
        self._last: dict[str, int] = {}
        self._since, self._told, self._step = 0, False, 0

    def tell(self, now: int) -> None:
        """Tell them once, when they have been the same for a while."""
        if self._observer.step != self._step:  # whoever ends steps does not stand still
            self._step, self._last = self._observer.step, {}
            return
        groups = {str(group.group_name): group for group in list(self._world.pg_map)}
        counts: dict[str, int] = {name: found for name, group in groups.items() if (found := calls_of(group)) >= 0}
        if counts != self._last:
            self._last, self._since, self._told = counts, now, False
        elif not self._told and now - self._since >= STILL_NS:
            self._told = True
            for name, number in counts.items():
                if name not in self._observer.hopped:
                    place = self._observer.place(COUNTED, name, ranks=list(self._world.pg_group_ranks[groups[name]]))
                    self._observer.ring.add((WAIT, 0, place, number, self._since, 0, 0))
