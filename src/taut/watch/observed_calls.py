"""Calls of a rank to its gates below torch 2.14: collectives of ``torch.distributed``, replaced by functions that call them.

Collectives that are called below these functions (by DDP, or as operators) are not seen. A group counts them all the same:
once a rank stands still, its counts are told, so that whoever made fewer calls than the others is known.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from taut.watch.observed import RECEIVE, SEND
from taut.watch.wire import COUNTED, WAIT

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
    observer.tell_counts = Counts(observer).tell


def called(observer: Observer, call: Callable[P, R], name: str) -> Callable[P, R]:
    """The same function, each call of it a gate."""
    clock, flags, waits = observer.clock, FLAGS.get(name, 0), name == "recv"
    spot_of = _spots(observer, name, list(inspect.signature(call).parameters))

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if not observer.on:
            return call(*args, **kwargs)
        begin, spot = 0, None
        try:
            begin, spot = clock(), spot_of(args, kwargs)
            if spot is not None:
                spot.number, spot.since_ns = spot.count, begin
        except Exception:
            observer.fault()
        try:
            out = call(*args, **kwargs)
        finally:
            if spot is not None:
                spot.since_ns = 0
        if spot is not None:
            try:
                # What gives something back that can be waited for has not waited; recv gives back who sent.
                observer.came(spot, flags, begin, clock() if out is None or waits else 0)
            except Exception:
                observer.fault()
        return out

    return called


def batched(observer: Observer, call: Callable[[list[P2POp]], R]) -> Callable[[list[P2POp]], R]:
    """The same function, each of its hops a gate."""
    spots = {name: _spots(observer, name, ["tensor", role, "group"]) for name, role in HOPS.items()}

    def batched(p2p_op_list: list[P2POp]) -> R:
        begin = 0
        try:
            begin = observer.clock()
        except Exception:
            observer.fault()
        out = call(p2p_op_list)
        if observer.on and begin:
            try:
                for one in p2p_op_list:
                    name = "send" if one.op.__name__ == "isend" else "recv"
                    spot = spots[name]((one.tensor, one.peer, one.group), {})
                    if spot is not None:
                        observer.came(spot, FLAGS[name], begin, 0)
            except Exception:
                observer.fault()
        return out

    return batched


def _spots(
    observer: Observer, name: str, parameters: list[str]
) -> Callable[[tuple[object, ...], dict[str, object]], Spot | None]:
    """What tells the place of a call by its arguments; None where this rank is not in the group."""
    import torch.distributed as dist

    at, role, members = parameters.index("group"), HOPS.get(name, ""), dist.GroupMember
    known: dict[tuple[int, object], tuple[weakref.ref[dist.ProcessGroup], Spot]] = {}
    """By the address of a group, which another one may have later."""

    def spot_of(args: tuple[object, ...], kwargs: dict[str, object]) -> Spot | None:
        group = args[at] if len(args) > at else kwargs.get("group")
        if group is None:
            group = members.WORLD
        peer = (args[1] if len(args) > 1 else kwargs.get(role)) if role else -1
        key = id(group), peer
        found = known.get(key)
        if found is not None and found[0]() is group:
            return found[1]
        if not isinstance(group, dist.ProcessGroup):
            return None
        other = peer if isinstance(peer, int) else -1
        spot = observer.spot(name, group.group_name, other, dist.get_process_group_ranks(group))
        known[key] = weakref.ref(group), spot
        return spot

    return spot_of


class Counts:
    """How many calls each group has made, as it counts itself; on gloo hops count too, so such groups are left out."""

    def __init__(self, observer: Observer) -> None:
        import torch.distributed.distributed_c10d as c10d

        self._observer, self._world = observer, c10d._world
        self._last: dict[str, int] = {}
        self._since, self._told = 0, False

    def tell(self, now: int) -> None:
        """Tell them once, when they have been the same for a while."""
        groups = {group.group_name: group for group in list(self._world.pg_map)}
        counts = {name: found for name, group in groups.items() if (found := _count(group)) >= 0}
        if counts != self._last:
            self._last, self._since, self._told = counts, now, False
        elif not self._told and now - self._since >= STILL_NS:
            self._told = True
            for name, number in counts.items():
                if name not in self._observer.hopped:
                    place = self._observer.place(COUNTED, name, ranks=list(self._world.pg_group_ranks[groups[name]]))
                    self._observer.ring.add(WAIT, 0, place, number, self._since, 0, 0)


def _count(group: object) -> int:
    """-1 where a backend does not count."""
    try:
        return int(cast("Callable[[], int]", getattr(group, "_get_sequence_number_for_group"))())  # noqa: B009
    except Exception:
        return -1
