"""Steps of a rank and their stages: optimizers of torch, its loader, its backward pass.

A step ends where the optimizer that stepped first steps, also if a scaler of gradients leaves that out: so a loop with several
optimizers, gradients that are accumulated, and loops of libraries on top of torch each have one step for one turn.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import torch
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from taut.watch.observed import Observer

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
    """Watch steps, loads and backward passes of this process."""
    import torch
    from torch.amp.grad_scaler import GradScaler
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    steps = Steps(observer)
    handles = optimizer.register_optimizer_step_pre_hook(steps.before), optimizer.register_optimizer_step_post_hook(steps.after)
    for handle in handles:
        observer.at_detach(handle.remove)
    observer.replace(GradScaler, "step", steps.scaled(GradScaler.step))
    base = dataloader._BaseDataLoaderIter
    observer.replace(base, "__next__", loaded(observer, base.__next__))
    observer.replace(torch.autograd, "backward", passed(observer, torch.autograd.backward))


class Steps:
    """Where steps end."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
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
            observer.stage("optimizer", max(self._began.pop(id(optimizer), now), observer.worked_ns), now)
            self._stepped(optimizer)
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

    def _stepped(self, optimizer: Optimizer) -> None:
        if self.observer.by_hand:
            return
        if self._ends is None or self._ends() is None or self._others[id(optimizer)] >= TAKES_OVER:
            self._ends = weakref.ref(optimizer)
        if self._is_last(optimizer):
            self._others.clear()
            self.observer.end_step()
        else:
            self._others[id(optimizer)] += 1

    def _is_last(self, optimizer: object) -> bool:
        return not self.observer.by_hand and self._ends is not None and self._ends() is optimizer


def loaded(observer: Observer, call: Callable[P, R]) -> Callable[P, R]:
    """The loader's function, its time kept as a stage."""

    def loaded(*args: P.args, **kwargs: P.kwargs) -> R:
        begin = 0
        try:
            begin = observer.clock()
        except Exception:
            observer.fault()
        out = call(*args, **kwargs)
        if observer.on and begin:
            try:
                observer.stage("load", begin, observer.clock())
            except Exception:
                observer.fault()
        return out

    return loaded


def passed(observer: Observer, call: Callable[P, None]) -> Callable[P, None]:
    """The backward pass: how long its own work took, and when it went on after its reductions."""
    import torch

    passes, engine = Passes(observer), torch.autograd.Variable._execution_engine

    def passed(*args: P.args, **kwargs: P.kwargs) -> None:
        if not observer.on:
            call(*args, **kwargs)
            return
        one = Pass(observer, passes)
        one.ask(args[0] if args else kwargs.get("tensors"), engine.queue_callback)
        try:
            call(*args, **kwargs)
        finally:
            one.over()
        one.tell()

    return passed


class Passes:
    """Which passes of a step wait for something after their work: the others are asked now and then only."""

    def __init__(self, observer: Observer) -> None:
        self.place = observer.place(BACKWARD)
        self._observer = observer
        self._step, self._turn = -1, 0
        self._until: dict[int, int] = {}
        """Pass of a step → the step at which it is asked again."""

    def next(self) -> tuple[int, bool]:
        """(which pass of its step the next one is, whether it is asked)."""
        step = self._observer.step
        self._turn = min(self._turn + 1, MOST_PASSES) if step == self._step else 0
        self._step = step
        return self._turn, self._until.get(self._turn, 0) <= step

    def waited(self, turn: int, wait_ns: int) -> None:
        """So long a pass that was asked waited."""
        self._until[turn] = self._observer.step + (ASKED_EVERY if wait_ns < NO_WAIT_NS else 0)


class Pass:
    """One backward pass."""

    __slots__ = ("_begin", "_call", "_end", "_handle", "_later", "_observer", "_passes", "_turn", "_worked")

    def __init__(self, observer: Observer, passes: Passes) -> None:
        self._observer, self._passes = observer, passes
        self._begin, self._worked, self._end, self._turn = 0, 0, 0, 0
        self._call = passes.place, 0

    def ask(self, roots: object, later: Callable[[Callable[[], None]], None]) -> None:
        """It begins. Be told when its work is done: before DDP's callback, which waits for its reductions."""
        observer = self._observer
        try:
            self._begin, place = observer.clock(), self._passes.place
            self._call, self._later = (place, observer.next_number(place)), later
            self._turn, asked = self._passes.next()
            if asked:
                first = roots[0] if isinstance(roots, (list, tuple)) and roots else roots
                self._handle: RemovableHandle = first.register_hook(self.at_begin)  # type: ignore[attr-defined]
        except Exception:
            observer.fault()

    def at_begin(self, _: torch.Tensor) -> None:
        """The pass begins. Its callbacks run in the order in which they came, and this one comes first."""
        try:
            self._later(self.at_work_done)
            self._handle.remove()
        except Exception:
            self._observer.fault()

    def at_work_done(self) -> None:
        """The work is done; from now on the rank waits for its reductions."""
        try:
            self._worked = self._observer.lasting[self._call] = self._observer.clock()
        except Exception:
            self._observer.fault()

    def over(self) -> None:
        """The pass is over, or has failed."""
        try:
            self._end = self._observer.worked_ns = self._observer.clock()
        except Exception:
            self._observer.fault()
        self._observer.lasting.pop(self._call, None)

    def tell(self) -> None:
        """Tell a pass that did not fail."""
        observer, worked = self._observer, self._worked or self._end
        try:
            if self._begin and self._end:
                observer.stage(BACKWARD, self._begin, worked)
                observer.came(self._passes.place, 0, worked, self._end)
                if self._worked:
                    self._passes.waited(self._turn, self._end - worked)
        except Exception:
            observer.fault()
