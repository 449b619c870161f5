"""Steps of a rank and their stages: optimizers of torch, its loader, its backward pass.

A step ends where the optimizer that stepped first steps, also if a scaler of gradients leaves that out: so a loop with several
optimizers, gradients that are accumulated, and loops of libraries on top of torch each have one step for one turn.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from taut.watch.observed_devices import sampling_arrivals
from taut.watch.wire import GATE, STAGE

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer

    from taut.watch.observed import Observer, Spot

P = ParamSpec("P")
R = TypeVar("R")
BACKWARD = "backward"
"""The gate at the end of a backward pass, whose reductions nobody else sees: DDP's below torch 2.14."""
ASKED_EVERY, NO_WAIT_NS = 8, 100_000
"""A pass that waits for less than this is asked again after so many steps: asking takes as long as all the rest."""
MOST_PASSES = 256
"""Passes of a step that are told apart."""
TAKES_OVER = 16
"""An optimizer that stepped so often since the one that ends steps did ends them from then on."""


def watch_steps(observer: Observer) -> None:
    """Watch steps, loads, saves and backward passes of this process."""
    import torch
    import torch.distributed as dist
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    steps = Steps(observer)
    handles = optimizer.register_optimizer_step_pre_hook(steps.before), optimizer.register_optimizer_step_post_hook(steps.after)
    for handle in handles:
        observer.at_detach(handle.remove)
    observer.replace(GradScaler, "step", steps.scaled(GradScaler.step))
    base = dataloader._BaseDataLoaderIter
    observer.replace(base, "__next__", staged(observer, base.__next__, "load"))
    observer.replace(torch, "save", staged(observer, torch.save, "save"))
    observer.replace(torch.autograd, "backward", passed(observer, torch.autograd.backward))
    if hasattr(dist, "_broadcast_coalesced"):  # of DDP's buffers, before a forward pass
        observer.replace(dist, "_broadcast_coalesced", sampling_arrivals(observer.device, dist._broadcast_coalesced))


class Steps:
    """Where steps end."""

    def __init__(self, observer: Observer) -> None:
        self.observer, self._place = observer, observer.place("optimizer")
        self._began: dict[int, int] = {}
        self._ends: weakref.ref[Optimizer] | None = None
        self._others: Counter[int] = Counter()

    def before(self, optimizer: Optimizer, *_: object) -> None:
        """An optimizer begins."""
        try:
            self._began[id(optimizer)] = self.observer.clock()
        except Exception:
            self.observer.fault()

    def after(self, optimizer: Optimizer, *_: object) -> None:
        """An optimizer has stepped. A pass that it made itself, given as a closure, is none of its work."""
        observer = self.observer
        if not observer.on:
            return
        try:
            now = observer.clock()
            observer.stage(self._place, max(self._began.pop(id(optimizer), now), observer.worked_ns), now)
            if self._ends is not None and self._ends() is optimizer and not observer.by_hand:
                if self._others:
                    self._others.clear()
                observer.end_step()
            else:
                self._stepped_too(optimizer)
        except Exception:
            observer.fault()

    def scaled(self, call: Callable[P, R]) -> Callable[P, R]:
        """``GradScaler.step``: where it leaves a step out, because gradients are infinite, the step ends all the same."""

        def scaled(*args: P.args, **kwargs: P.kwargs) -> R:
            before = self.observer.step
            out = call(*args, **kwargs)
            if self.observer.on and self.observer.step == before:
                with self.observer.quietly():
                    if self._is_last(args[1] if len(args) > 1 else kwargs.get("optimizer")):
                        self.observer.end_step()
            return out

        return scaled

    def _stepped_too(self, optimizer: Optimizer) -> None:
        """Another optimizer than the one that ends steps, if it does not do so from now on."""
        if self.observer.by_hand:
            return
        if self._ends is None or self._ends() is None or self._others[id(optimizer)] >= TAKES_OVER:
            self._ends = weakref.ref(optimizer)
            self._others.clear()
            self.observer.end_step()
        else:
            self._others[id(optimizer)] += 1

    def _is_last(self, optimizer: object) -> bool:
        return not self.observer.by_hand and self._ends is not None and self._ends() is optimizer


def staged(observer: Observer, call: Callable[P, R], verb: str) -> Callable[P, R]:
    """The same function, its time kept as a stage; while it lasts long, that is told."""
    spot = observer.spot(verb)

    @wraps(call)
    def staged(*args: P.args, **kwargs: P.kwargs) -> R:
        begin = 0
        try:
            begin = observer.clock()
            spot.number, spot.since_ns = observer.step, begin
        except Exception:
            observer.fault()
        try:
            out = call(*args, **kwargs)
        finally:
            spot.since_ns = 0
        if observer.on and begin:
            try:
                observer.stage(spot.code, begin, observer.clock())
            except Exception:
                observer.fault()
        return out

    return staged


def passed(observer: Observer, call: Callable[P, None]) -> Callable[P, None]:
    """The backward pass: how long its own work took, and when it went on after its reductions.

    Passes of a step that wait for nothing after their work are asked for that now and then only.
    """
    import torch

    spot, clock, add, device = observer.spot(BACKWARD), observer.clock, observer.ring.add, observer.device
    later, until = torch.autograd.Variable._execution_engine.queue_callback, dict[int, int]()
    plain, last_step, last_turn = torch.Tensor, -1, 0

    def passed(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal last_step, last_turn
        if not observer.on:
            call(*args, **kwargs)
            return
        begin, step, turn, one, sampled = 0, 0, 0, None, device.samples
        try:
            begin, step = clock(), observer.step
            last_turn = turn = min(last_turn + 1, MOST_PASSES) if step == last_step else 0
            last_step = step
            if until.get(turn, 0) <= step or sampled:
                one = Pass(observer, spot)
                one.ask(args[0] if args else kwargs.get("tensors"), plain, later)
        except Exception:
            observer.fault()
        if sampled:
            device.begin_pass()
        try:
            call(*args, **kwargs)
        finally:
            spot.since_ns = 0
        if sampled:
            device.end_pass(one is not None and one.worked_ns > 0)
        try:
            end = worked = observer.worked_ns = clock()
            if one is not None and one.worked_ns:
                worked = one.worked_ns
                until[turn] = step + (ASKED_EVERY if end - worked < NO_WAIT_NS else 0)
            if begin:
                add((STAGE, 0, spot.code, step, begin, worked, 0))
                number = spot.count
                spot.count = number + 1
                add((GATE, 0, spot.code, number, worked, end, 0))
        except Exception:
            observer.fault()

    return passed


class Pass:
    """One backward pass that is asked when its work is done: before DDP's callback, which waits for its reductions."""

    __slots__ = ("_forget", "_later", "_observer", "_spot", "worked_ns")

    def __init__(self, observer: Observer, spot: Spot) -> None:
        self._observer, self._spot, self.worked_ns = observer, spot, 0

    def ask(self, roots: object, plain: type[torch.Tensor], later: Callable[[Callable[[], None]], None]) -> None:
        """It begins; ``plain``: the type of tensors that are nothing more."""
        self._later = later
        first = cast("torch.Tensor", roots[0] if isinstance(roots, (list, tuple)) and roots else roots)
        register = getattr(first.grad_fn, "_register_hook_dict", None)
        if type(first) is plain and register is not None and first._backward_hooks is None:
            # What register_hook does for a first hook, without its handle, which takes most of the time.
            hooks: OrderedDict[int, Callable[[torch.Tensor], torch.Tensor | None]] = OrderedDict(((-1, self.at_begin),))
            self._forget: Callable[[], None] = hooks.clear
            first._backward_hooks = hooks
            register(first)
        else:
            self._forget = first.register_hook(self.at_begin).remove  # type: ignore[no-untyped-call]

    def at_begin(self, _: torch.Tensor) -> None:
        """Its first function runs. Callbacks of a pass run in the order in which they came, and this one comes first."""
        try:
            self._later(self.at_work_done)
            self._forget()
        except Exception:
            self._observer.fault()

    def at_work_done(self) -> None:
        """The work is done; from now on the rank waits for its reductions."""
        spot, observer = self._spot, self._observer
        try:
            self.worked_ns = observer.clock()
            spot.number, spot.since_ns = spot.count, self.worked_ns
            if observer.device.samples:
                observer.device.arrive()
        except Exception:
            observer.fault()
