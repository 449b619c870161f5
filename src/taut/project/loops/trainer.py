"""A training job of lower priority on the same accelerators: pre-empted, launched again, and sent back to its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.core.tables import NULL
from taut.project.loops.pool import Pool
from taut.project.loops.simulation import Decision, Simulation

if TYPE_CHECKING:
    from taut.project.loops.simulation import Process

POLL_S = 1.0
"""How often the launcher looks for free accelerators."""
TARGET = "trainer"


class Trainer:
    """The job, its launcher, and the scheduler that takes its accelerators away."""

    def __init__(self, sim: Simulation, pool: Pool) -> None:
        spec = sim.scenario.trainer
        assert spec is not None
        self.sim, self.env, self.pool, self.spec = sim, sim.env, pool, spec
        self.held = False
        self.kept_s = self.lost_s = self.saving_s = self.restarting_s = 0.0
        self._restore = sim.draws("restore", spec.spread)
        self._life = sim.draws("life", 1.0)
        self._fresh_s = 0.0
        """Trained since the last checkpoint."""
        self.launches = 0
        self._launch = self._last = NULL
        self._why = ""
        self._began = self._done_s = 0.0
        self.process = self.env.process(self._run())
        pool.room = self.room

    def room(self, replicas: int) -> int:
        """Replicas more that the accelerators allow; the job makes way for them."""
        each = self.pool.spec.accelerators
        free = self.sim.scenario.accelerators - self.pool.paid * each
        if self.held and free - self.spec.accelerators < replicas * each:
            self._log_allocation("scheduler", "priority", -1, "replicas wanted")
            self.held = False
            self.process.interrupt()
        return max(min(replicas, (free - self.spec.accelerators * self.held) // each), 0)

    def _log_allocation(self, layer: str, who: str, direction: int, why: str) -> None:
        """Log that the job gets all of its accelerators, or loses them."""
        before, after = (0, self.spec.accelerators) if direction > 0 else (self.spec.accelerators, 0)
        self.sim.log.act(Decision(layer, who, TARGET, "allocation", before, after, direction, why))

    def _run(self) -> Process:
        """Wait for accelerators, take them, train until they are gone."""
        from simpy import Interrupt

        while True:
            try:
                yield from self._wait()
                self.held = True
                if self.launches:
                    self._log_allocation("orchestrator", "launcher", 1, "accelerators free")
                yield from self._launches()
            except Interrupt:
                self.lose("lost", "preempted")
                continue
            # Every launch failed: give the accelerators back for a while.
            self.held = False
            self._log_allocation("orchestrator", "launcher", -1, "launches failed")
            yield self.env.timeout(self.spec.pause_s)

    def _wait(self) -> Process:
        since = None
        while True:
            free = self.sim.scenario.accelerators - self.pool.paid * self.pool.spec.accelerators
            if free < self.spec.accelerators:
                since = None
            elif since is None:
                since = self.env.now
            if since is not None and self.env.now - since >= self.spec.hold_s:
                return
            yield self.env.timeout(POLL_S)

    def _launches(self) -> Process:
        """Launch, train, fail, launch again; ends when the launcher has no launch left."""
        left = self.spec.restarts + 1
        while left:
            left -= 1
            self._began, self._done_s = self.env.now, self._trained_s
            n = self.launches
            launch = Decision("orchestrator", "launcher", TARGET, "attempt", n - 1 if n else "", n, 0, self._why, "train")
            launch.parent, launch.attempt, launch.outcome = self._last, n, "failed"
            launch.accelerators = self.spec.accelerators
            self._launch = self._last = self.sim.log.act(launch)
            self.launches += 1
            takes = self.spec.restore_s * next(self._restore)
            if takes > self.spec.launcher_timeout_s:
                yield self.env.timeout(self.spec.launcher_timeout_s)
                self.lose("failed", "launch timed out")
            else:
                yield self.env.timeout(takes)
                left = self.spec.restarts + 1
                yield from self._train()
                self.lose("failed", "failure")
            yield self.env.timeout(self.spec.retry_s)

    def _train(self) -> Process:
        """Steps and checkpoints, until a failure of its own."""
        ends = self.env.now + self.spec.mtbf_s * next(self._life) if self.spec.mtbf_s else float("inf")
        while True:
            for _ in range(max(round(self.spec.checkpoint_every_s / self.spec.step_s), 1)):
                yield self.env.timeout(self.spec.step_s)
                self._fresh_s += self.spec.step_s
                if self.env.now > ends:
                    return
            yield self.env.timeout(self.spec.checkpoint_s)
            self.saving_s += self.spec.checkpoint_s
            self.kept_s, self._fresh_s = self.kept_s + self._fresh_s, 0.0

    @property
    def _trained_s(self) -> float:
        return self.kept_s + self.lost_s + self._fresh_s + self.saving_s

    def lose(self, outcome: str, why: str) -> None:
        """A launch ends: what was trained since the last checkpoint is lost, what was not trained at all was restarting."""
        if self._launch == NULL:
            return
        # What of this launch was neither trained, saved nor lost was spent on coming up.
        restarting = self.env.now - self._began - (self._trained_s - self._done_s)
        self.restarting_s += restarting
        self.sim.log.settle(self._launch, outcome, restarting + self._fresh_s)
        self.lost_s, self._fresh_s = self.lost_s + self._fresh_s, 0.0
        self._launch, self._why = NULL, why

    def end(self) -> None:
        """The horizon is reached: what was trained so far stays."""
        self.kept_s, self._fresh_s = self.kept_s + self._fresh_s, 0.0
        self.lose("kept", "")
