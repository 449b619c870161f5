"""What all loops of a simulation share: the clock, the draws, and the log that a control plane would have written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from taut.core.tables import NULL, Action, Member, Metric, Op, Table, Trace
from taut.project.loops.scenario import Scenario

if TYPE_CHECKING:
    import simpy

NS = 1e9
TEXT = ("layer", "controller", "target", "knob", "before", "after", "trigger", "work", "outcome")
COLUMNS = (*TEXT, "time_ns", "direction", "parent", "attempt", "deadline_ns", "busy_ns", "accelerators")
OUTCOME, BUSY = COLUMNS.index("outcome"), COLUMNS.index("busy_ns")
STILL = 1e-6
"""A smaller spread is none."""
BLOCK = 1024
"""Draws made at once."""


def engine() -> Any:
    """SimPy, imported when it is first needed."""
    import simpy

    return simpy


class Log:
    """Actions and metrics as they happen."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.rows: list[list[Any]] = []
        self.samples: dict[tuple[str, str], list[tuple[float, float, float]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def act(
        self, layer: str, controller: str, target: str, knob: str, before: object = "", after: object = "", direction: int = 0,
        trigger: str = "", work: str = "", parent: int = NULL, attempt: int = NULL, deadline_s: float | None = None,
        outcome: str = "", busy_s: float = 0.0, accelerators: int = NULL,
    ) -> int:  # fmt: skip
        """Enter an action that is taken now; its row, for what becomes known later."""
        self.rows.append([
            layer, controller, target, knob, str(before), str(after), trigger, work, outcome, round(self.env.now * NS),
            direction, parent, attempt, NULL if deadline_s is None else round(deadline_s * NS), round(busy_s * NS),
            accelerators,
        ])  # fmt: skip
        return len(self.rows) - 1

    def settle(self, row: int, outcome: str, busy_s: float = 0.0) -> None:
        """What became of an action."""
        self.rows[row][OUTCOME] = outcome
        self.rows[row][BUSY] += round(busy_s * NS)

    def sample(self, component: str, metric: str, value: float, limit: float = np.nan) -> None:
        """One sample of a metric, taken now."""
        self.samples.setdefault((component, metric), []).append((self.env.now, value, limit))

    def trace(self, name: str) -> Trace:
        """The log as readers make it of a real one."""
        across = list(zip(*self.rows, strict=True)) or [()] * len(COLUMNS)
        columns = {k: np.array(v, dtype=object if k in TEXT else np.int64) for k, v in zip(COLUMNS, across, strict=True)}
        rows = [(t, c, m, v, limit) for (c, m), some in self.samples.items() for t, v, limit in some]
        time, component, metric, value, limit = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [], [])
        metrics = {
            "time_ns": np.round(np.array(time) * NS).astype(np.int64), "component": np.array(component, dtype=object),
            "metric": np.array(metric, dtype=object), "value": np.array(value, dtype=float),
            "limit": np.array(limit, dtype=float),
            "limit_source": np.array(["" if np.isnan(x) else "scenario" for x in limit], dtype=object),
        }  # fmt: skip
        return Trace(
            ops=Table(Op, {}, 0), names=[], lanes=[], groups=[], members=Table(Member, {}, 0), name=name, source=name,
            actions=Table(Action, columns, len(self)), metrics=Table(Metric, metrics, len(rows)),
        )  # fmt: skip


class World:
    """One run of a scenario: everything that happens in it follows from the seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed
        self.env: simpy.Environment = engine().Environment()
        self.log = Log(self.env)

    def random(self, name: str) -> np.random.Generator:
        """Draws of one part of the system, the same whatever the other parts do: policies meet the same demand."""
        return np.random.default_rng(np.random.SeedSequence((self.seed, crc32(name.encode()))))

    def draws(self, name: str, spread: float) -> Iterator[float]:
        """Numbers of mean 1 and this standard deviation, never negative: gamma, exponential at 1."""
        random = self.random(name)
        while True:
            yield from (np.ones(BLOCK) if spread < STILL else random.gamma(spread**-2, spread**2, BLOCK)).tolist()
