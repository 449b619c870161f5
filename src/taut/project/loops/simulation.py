"""What all loops of a simulation share: the clock, the draws, and the log that a control plane would have written.

Few events and many kinds of process: SimPy stays beside the queue kernels of requests because loops are to be extended, not
fast.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

import numpy as np

from taut.core.tables import NULL, Action, Member, Metric, Op, Table, Trace
from taut.project.loops.scenario import Scenario

if TYPE_CHECKING:
    import simpy

    Process: TypeAlias = Generator[simpy.Event, Any, None]
    """What one part of the system does, waiting for one event after the other."""

NS = 1e9
TEXT = ("layer", "controller", "target", "knob", "trigger", "work", "outcome")
NUMBERS = ("direction", "parent", "attempt", "accelerators")
NO_SPREAD = 1e-6
"""A smaller spread is none."""
BLOCK = 1024
"""Draws made at once."""


@dataclass(slots=True)
class Decision:
    """An action as a control plane logs it; the columns are those of ``core.tables.Action``, times in seconds."""

    layer: str
    controller: str
    target: str
    knob: str
    before: float | str = ""
    after: float | str = ""
    direction: int = 0
    trigger: str = ""
    work: str = ""
    parent: int = NULL
    attempt: int = NULL
    deadline_s: float | None = None
    outcome: str = ""
    busy_s: float = 0.0
    accelerators: int = NULL
    time_s: float = 0.0


class Log:
    """Actions and metrics as they happen."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self.rows: list[Decision] = []
        self.samples: dict[tuple[str, str], list[tuple[float, float, float]]] = {}

    def act(self, decision: Decision) -> int:
        """Enter an action that is taken now; its row, for what becomes known later."""
        decision.time_s = self.env.now
        self.rows.append(decision)
        return len(self.rows) - 1

    def settle(self, row: int, outcome: str, busy_s: float = 0.0) -> None:
        """What became of an action."""
        self.rows[row].outcome = outcome
        self.rows[row].busy_s += busy_s

    def sample(self, component: str, metric: str, value: float, limit: float = np.nan) -> None:
        """One sample of a metric, taken now."""
        self.samples.setdefault((component, metric), []).append((self.env.now, value, limit))

    def trace(self, name: str) -> Trace:
        """The log as readers make it of a real one."""
        rows = self.rows
        columns = {
            **{key: np.array([*map(attrgetter(key), rows)], dtype=object) for key in TEXT},
            "before": np.array([str(row.before) for row in rows], dtype=object),
            "after": np.array([str(row.after) for row in rows], dtype=object),
            **{key: np.array([*map(attrgetter(key), rows)], dtype=np.int64) for key in NUMBERS},
            "time_ns": np.array([round(row.time_s * NS) for row in rows], dtype=np.int64),
            "busy_ns": np.array([round(row.busy_s * NS) for row in rows], dtype=np.int64),
            "deadline_ns": np.array(
                [NULL if row.deadline_s is None else round(row.deadline_s * NS) for row in rows], dtype=np.int64
            ),
        }
        samples = [(c, m, *sample) for (c, m), some in self.samples.items() for sample in some]
        component, metric, time_s, value, limit = zip(*samples, strict=True) if samples else ((), (), (), (), ())
        metrics = {
            "time_ns": np.round(np.array(time_s) * NS).astype(np.int64),
            "component": np.array(component, dtype=object),
            "metric": np.array(metric, dtype=object),
            "value": np.array(value, dtype=float),
            "limit": np.array(limit, dtype=float),
            "limit_source": np.array(["" if np.isnan(x) else "scenario" for x in limit], dtype=object),
        }
        return Trace(
            ops=Table(Op, {}, 0),
            names=[],
            lanes=[],
            groups=[],
            members=Table(Member, {}, 0),
            name=name,
            source=name,
            actions=Table(Action, columns, len(rows)),
            metrics=Table(Metric, metrics, len(samples)),
        )


class Simulation:
    """One run of a scenario: everything that happens in it follows from the seed."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        import simpy

        self.scenario, self.seed = scenario, seed
        self.env = simpy.Environment()
        self.log = Log(self.env)

    def random(self, name: str) -> np.random.Generator:
        """Draws of one part of the system, the same whatever the other parts do: policies meet the same demand."""
        return np.random.default_rng(np.random.SeedSequence((self.seed, crc32(name.encode()))))

    def draws(self, name: str, spread: float) -> Iterator[float]:
        """Numbers of mean 1 and this standard deviation, never negative: gamma, exponential at 1."""
        random = self.random(name)
        while True:
            yield from (np.ones(BLOCK) if spread < NO_SPREAD else random.gamma(spread**-2, spread**2, BLOCK)).tolist()
