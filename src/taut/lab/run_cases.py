"""The runs of a matrix, side by side where there are cores: every rank that computes has a core of its own, if it can."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from queue import SimpleQueue

from msgspec.structs import replace

from taut.core.errors import TautError
from taut.lab.case import CARRIED, PLAIN_JOB, Spec
from taut.lab.run_case import Runner

Ended = tuple[Spec, TautError | None]
"""A run that has come to its end, and why it failed."""


def run_all(specs: Sequence[Spec]) -> Iterator[Ended]:
    """Run all into their folders, each on cores that no other run uses meanwhile; they come as they end.

    Among those that are left the first goes on which the free cores are enough for; on few cores one follows the other.
    """
    cores = sorted(os.sched_getaffinity(0))
    slots = max(len(cores) // max(min((_wanted(spec, len(cores)) for spec in specs), default=1), 1), 1)
    turns = _Turns(specs, cores)
    with ExitStack() as labs:
        labs.callback(turns.stop)
        for _ in range(min(slots, len(specs))):
            runner = labs.enter_context(Runner(specs[0].device))
            threading.Thread(target=turns.work_off, args=(runner,), daemon=True).start()
        for _ in specs:
            yield turns.ended.get()


def _wanted(spec: Spec, cores: int) -> int:
    """Cores of a run: emulated work is as much longer as ranks are more than ``CARRIED``, so that these cores do.

    Plain processes and ranks that share a GPU have the machine for themselves.
    """
    return cores if spec.job == PLAIN_JOB or spec.device != "cpu" else min(spec.ranks, CARRIED, cores)


class _Turns:
    """Which run goes next, and on which cores."""

    def __init__(self, specs: Sequence[Spec], cores: Sequence[int]) -> None:
        self.left, self.free, self.cores = list(specs), list(cores), len(cores)
        self.changed = threading.Condition()
        self.ended: SimpleQueue[Ended] = SimpleQueue()

    def work_off(self, runner: Runner) -> None:
        """Called in a thread: one run after the other, until none is left."""
        while (spec := self._taken()) is not None:
            error: TautError | None = None
            try:
                runner.run(spec)
            except TautError as why:
                error = why
            with self.changed:
                self.free = sorted([*self.free, *spec.cores])
                self.changed.notify_all()
            self.ended.put((spec, error))

    def _taken(self) -> Spec | None:
        with self.changed:
            while self.left:
                fits = next((spec for spec in self.left if _wanted(spec, self.cores) <= len(self.free)), None)
                if fits is not None:
                    self.left.remove(fits)
                    count = _wanted(fits, self.cores)
                    mine, self.free = self.free[:count], self.free[count:]
                    return replace(fits, cores=tuple(mine))
                self.changed.wait()
        return None

    def stop(self) -> None:
        """No run is begun any more."""
        with self.changed:
            self.left.clear()
            self.changed.notify_all()


__all__ = ["run_all"]
