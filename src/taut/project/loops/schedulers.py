"""Schedulers that place tasks on shared machines, each from its own picture; a commit fails where the machine changed since.

The picture is optimistic, as in shared-state schedulers and in API servers that compare versions on write: nobody is locked
out, and whoever comes second decides again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from taut.core.tables import NULL
from taut.project.loops.scenario import Scheduler
from taut.project.loops.simulation import Decision, Simulation

if TYPE_CHECKING:
    from taut.project.loops.simulation import Process


class SharedMachines:
    """Slots taken of every machine, and a version that every commit raises."""

    def __init__(self, sim: Simulation) -> None:
        self.spec = sim.scenario.machines
        self.taken, self.version = [0] * self.spec.count, [0] * self.spec.count
        self.conflicts = 0

    def best(self, mine: Sequence[int]) -> int:
        """The fullest machine with a free slot, -1 where there is none: tasks are packed."""
        taken, slots = self.taken, self.spec.slots
        return max((m for m in mine if taken[m] < slots), key=taken.__getitem__, default=-1)


def place(sim: Simulation, s: Scheduler, machines: SharedMachines) -> Process:
    """Tasks one by one: look, decide, commit; decide again where somebody was quicker."""
    env, spec = sim.env, machines.spec
    every = [x.name for x in sim.scenario.scheduler]
    mine = range(every.index(s.name), spec.count, len(every)) if spec.owned else range(spec.count)
    gaps = sim.draws(f"tasks {s.name}", 1.0)
    due, number = 0.0, 0
    while True:
        due += next(gaps) / s.tasks_per_s
        if due > env.now:
            yield env.timeout(due - env.now)
        number += 1
        decision, parent, won = None, NULL, False
        while not won:
            machine = machines.best(mine)
            version = machines.version[machine]
            yield env.timeout(s.decision_s)
            if machine < 0:
                continue
            taken = machines.taken[machine]
            # Optimistic: the commit fails where anybody else has changed the machine since it was looked at.
            won = machines.version[machine] == version and taken < spec.slots
            attempt, why = (0, "") if decision is None else (decision.attempt + 1, "commit refused")
            decision = Decision("scheduler", s.name, f"machine {machine}", "slot", taken, taken + won, 0, why)
            decision.work, decision.parent, decision.attempt = f"{s.name} task {number}", parent, attempt
            decision.outcome, decision.busy_s = "kept" if won else "failed", s.decision_s
            parent = sim.log.act(decision)
            machines.conflicts += not won
        machines.version[machine] += 1
        machines.taken[machine] += 1
        env.process(_task(sim, s, machines, machine))


def _task(sim: Simulation, s: Scheduler, machines: SharedMachines, machine: int) -> Process:
    yield sim.env.timeout(s.task_s)
    machines.taken[machine] -= 1
