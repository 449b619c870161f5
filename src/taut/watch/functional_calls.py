"""Functional collectives, which tensor parallelism calls, as gates: below torch 2.14, whose hooks see them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import torch

    from taut.watch.observed import Observer, Spot

P = ParamSpec("P")
R = TypeVar("R")
CALLS = {
    "all_reduce": ("all_reduce", 2), "broadcast": ("broadcast", 2), "all_to_all_single": ("all_to_all_single", 3),
    "all_gather_single": ("all_gather_into_tensor", 2), "all_gather_tensor": ("all_gather_into_tensor", 2),
    "reduce_scatter_single": ("reduce_scatter_tensor", 3), "reduce_scatter_tensor": ("reduce_scatter_tensor", 3),
}  # fmt: skip
"""Functions of torch, of old and new versions: verb, and which argument is the group."""


class FunctionalCalls:
    """Watches them for an observer; compilers get the functions as they were."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._inside = False  # functions of old names call those of new names
        self._spots: dict[tuple[str, str], Spot] = {}
        self._parts: dict[tuple[str, int, object], tuple[weakref.ref[object], Spot]] = {}
        """By verb, the address of a mesh, as long as there is one, and its dimension."""
        self._begun: tuple[Spot, int, int] | None = None
        """Place, begin and memory of the result of the call whose end is still to come; the result itself is not kept."""

    def attach(self) -> None:
        """From now on."""
        import torch.distributed._functional_collectives as functional

        for name, (verb, at) in CALLS.items():
            if hasattr(functional, name):
                self.observer.replace(functional, name, self._counted(getattr(functional, name), verb, at))
        self.observer.replace(functional, "wait_tensor", self._waited(functional.wait_tensor))

    def _counted(self, call: Callable[P, R], verb: str, at: int) -> Callable[P, R]:
        """The same function, each call of it a gate."""
        import torch

        observer, device, is_compiling = self.observer, self.observer.device, torch.compiler.is_compiling

        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            if is_compiling() or not observer.on or self._inside:
                return call(*args, **kwargs)
            begin, self._inside = observer.clock(), True
            try:
                out = call(*args, **kwargs)
            finally:
                self._inside = False
            if device.samples:
                device.recount()
            try:
                if self._begun is not None:
                    self._ended(self._begun, 0)
                group = kwargs.get("group", args[at] if len(args) > at else None)
                spot = self._of_part(verb, group) if isinstance(group, tuple) else self._spot(verb, group)
                result = getattr(out, "elem", None)
                self._begun = spot, begin, 0 if result is None else result.data_ptr()
                if result is None:  # waited for already, or nobody does
                    self._ended(self._begun, 0 if getattr(out, "is_cuda", True) else observer.clock())
            except Exception:
                observer.fault()
            return out

        return counted

    def _waited(self, call: Callable[[torch.Tensor], R]) -> Callable[[torch.Tensor], R]:
        """The same function, the end of the call whose result it waits for; streams wait there, too."""
        import torch

        observer, device, is_compiling = self.observer, self.observer.device, torch.compiler.is_compiling

        def waited(tensor: torch.Tensor) -> R:
            if is_compiling():
                return call(tensor)
            sampled = device.samples
            if sampled:
                device.arrive()
            out = call(tensor)
            if sampled:
                device.leave()
            begun = self._begun
            if begun is not None:
                try:
                    if begun[2] == tensor.data_ptr():
                        # On an accelerator the host goes on before the call has ended.
                        self._ended(begun, 0 if tensor.is_cuda else observer.clock())
                except Exception:
                    observer.fault()
            return out

        return waited

    def _ended(self, begun: tuple[Spot, int, int], end_ns: int) -> None:
        self._begun = None
        self.observer.came(begun[0], 0, begun[1], end_ns)

    def _of_part(self, verb: str, group: tuple[object, ...]) -> Spot:
        """The place of the calls of a part of a mesh, whose name is asked for once: that takes longer than all the rest."""
        part = verb, id(group[0]), group[1]
        known = self._parts.get(part)
        if known is None:
            forget = weakref.ref(group[0], lambda _: self._parts.pop(part, None))
            known = self._parts[part] = forget, self._spot(verb, group)
        return known[1]

    def _spot(self, verb: str, group: object) -> Spot:
        """The place of the calls of a group, which may be given by its name, or as a part of a mesh."""
        import torch.distributed as dist
        import torch.distributed._functional_collectives as functional
        from torch._C._distributed_c10d import _resolve_process_group

        name = functional._resolve_group_name(group)  # type: ignore[arg-type]
        spot = self._spots.get((verb, name))
        if spot is None:
            ranks = dist.get_process_group_ranks(_resolve_process_group(name))
            spot = self._spots[verb, name] = self.observer.spot(verb, name, ranks=ranks)
        return spot
