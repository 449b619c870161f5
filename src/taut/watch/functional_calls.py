"""Functional collectives, which tensor parallelism calls, as gates: below torch 2.14, whose hooks see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from taut.watch.observed_devices import around

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
        self._spots: dict[tuple[str, object], Spot] = {}
        """By verb, and the group as it was given where that is a name or a part of a mesh, else by its name."""
        self._begun: tuple[str, int, object, int] | None = None
        """Verb, begin, group and memory of the result of the call whose end is still to come; the result itself is not kept."""

    def attach(self) -> None:
        """From now on."""
        import torch.distributed._functional_collectives as functional

        for name, (verb, at) in CALLS.items():
            if hasattr(functional, name):
                self.observer.replace(functional, name, self._counted(getattr(functional, name), verb, at))
        self.observer.replace(functional, "wait_tensor", self._waited(around(self.observer.device, functional.wait_tensor)))

    def _counted(self, call: Callable[P, R], verb: str, at: int) -> Callable[P, R]:
        """The same function, each call of it a gate."""
        import torch

        def counted(*args: P.args, **kwargs: P.kwargs) -> R:
            if torch.compiler.is_compiling() or not self.observer.on or self._inside:
                return call(*args, **kwargs)
            begin, self._inside = self.observer.clock(), True
            try:
                out = call(*args, **kwargs)
            finally:
                self._inside = False
            if self.observer.device.samples:
                self.observer.device.recount()
            try:
                if self._begun is not None:
                    self._ended(0)
                group = kwargs.get("group", args[at] if len(args) > at else None)
                result = getattr(out, "elem", None)
                self._begun = verb, begin, group, _memory(result)
                if result is None:  # waited for already, or nobody does
                    self._ended(0 if getattr(out, "is_cuda", True) else self.observer.clock())
            except Exception:
                self.observer.fault()
            return out

        return counted

    def _waited(self, call: Callable[[torch.Tensor], R]) -> Callable[[torch.Tensor], R]:
        """The same function, the end of the call whose result it waits for."""
        import torch

        def waited(tensor: torch.Tensor) -> R:
            out = call(tensor)
            if not torch.compiler.is_compiling() and self._begun is not None:
                try:
                    if self._begun[3] == _memory(tensor):
                        # On an accelerator the host goes on before the call has ended.
                        self._ended(0 if tensor.is_cuda else self.observer.clock())
                except Exception:
                    self.observer.fault()
            return out

        return waited

    def _ended(self, end_ns: int) -> None:
        if self._begun is not None:
            verb, begin, group, _ = self._begun
            self._begun = None
            # Names of groups are asked for once: that takes longer than all the rest.
            known = self._spots.get((verb, group)) if isinstance(group, (str, tuple)) else None
            self.observer.came(known or self._spot(verb, group), 0, begin, end_ns)

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
        if isinstance(group, tuple):
            self._spots[verb, group] = spot
        return spot


def _memory(tensor: torch.Tensor | None) -> int:
    """Address of a tensor's memory, which its views share; 0 for none."""
    return 0 if tensor is None else tensor.untyped_storage().data_ptr()
