"""Schedulers that place tasks on shared machines, each from its own picture; a commit fails where the machine changed since.

The picture is optimistic, as in shared-state schedulers and in API servers that compare versions on write: nobody is locked
out, and whoever comes second decides again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from taut.project.loops.scenario import Scheduler
from taut.project.loops.world import World


class Cell:
    """The machines: slots taken, and a version that every commit raises."""

    def __init__(self, world: World) -> None:
        self.spec = world.scenario.machines
        self.taken, self.version = [0] * self.spec.count, [0] * self.spec.count
        self.commits = self.conflicts = 0
        self.deciding_s = self.redeciding_s = 0.0

    def best(self, mine: Sequence[int]) -> int:
        """The fullest machine with a free slot, -1 where there is none: tasks are packed."""
        taken, slots = self.taken, self.spec.slots
        return max((m for m in mine if taken[m] < slots), key=taken.__getitem__, default=-1)


def place(world: World, s: Scheduler, cell: Cell) -> Generator[Any, Any, None]:
    """Tasks one by one: look, decide, commit; decide again where somebody was quicker."""
    env, log = world.env, world.log
    every = [x.name for x in world.scenario.scheduler]
    mine = range(every.index(s.name), cell.spec.count, len(every)) if cell.spec.owned else range(cell.spec.count)
    gaps = world.draws(f"tasks {s.name}", 1.0)
    due, number = 0.0, 0
    while True:
        due += next(gaps) / s.tasks_per_s
        if due > env.now:
            yield env.timeout(due - env.now)
        number += 1
        parent, attempt = -1, 0
        while True:
            machine = cell.best(mine)
            seen = cell.version[machine]
            yield env.timeout(s.decision_s)
            if machine < 0:
                continue
            cell.deciding_s += s.decision_s
            won = cell.version[machine] == seen and cell.taken[machine] < cell.spec.slots
            parent = log.act(
                "scheduler", s.name, f"machine {machine}", "slot", cell.taken[machine], cell.taken[machine] + won,
                0, "" if not attempt else "commit refused", f"{s.name} task {number}", parent, attempt, None,
                "kept" if won else "failed", s.decision_s,
            )  # fmt: skip
            attempt += 1
            if won:
                break
            cell.conflicts += 1
            cell.redeciding_s += s.decision_s
        cell.commits += 1
        cell.version[machine] += 1
        cell.taken[machine] += 1
        env.process(_task(world, s, cell, machine))


def _task(world: World, s: Scheduler, cell: Cell, machine: int) -> Generator[Any, Any, None]:
    yield world.env.timeout(s.task_s)
    cell.taken[machine] -= 1
