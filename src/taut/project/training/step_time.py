"""How long a step of a scenario takes, noise left out: its program, swept once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from taut.core.array_types import Floats
from taut.project.noise import POINTS
from taut.project.pauses import Law, laws
from taut.project.training.grid import Grid
from taut.project.training.pipeline import program
from taut.project.training.scenario import Scenario
from taut.project.training.step_plan import Plan, plan


def without_noise(s: Scenario, p: Plan) -> Grid:
    """One replica whose work does not stray; whoever sends to another stage is busy until it is sent."""
    j = s.job
    fixed = np.stack([p.forward_ns, p.backward_ns])
    return Grid(
        program(j.schedule, j.pp, j.virtual_pp, j.micro_batches),
        fixed + sending(p),
        np.zeros_like(fixed),
        np.ones((2, POINTS)),
        p.late_ns,
        1,
    )


def sending(p: Plan) -> Floats:
    """Time every op spends on passing its result on: all but the last chunk forward, all but the first back."""
    hop = np.full((2, len(p.forward_ns)), p.hop_ns)
    hop[0, -1] = hop[1, 0] = 0.0
    return hop


def split_work(p: Plan) -> tuple[Floats, Floats]:
    """Per direction and chunk: time that does not stray (transfers, sending), and the mean of that which does."""
    whole = np.stack([p.forward_ns, p.backward_ns])
    return np.minimum(p.transfer_ns, whole) + sending(p), np.maximum(whole - p.transfer_ns, 0.0)


def step_ns(s: Scenario, p: Plan | None = None) -> float:
    """A step: the pipeline, the data-parallel synchronisation, the optimiser."""
    p = p or plan(s)
    return pipeline_ns(s, p) + p.sync_ns + p.optimiser_ns


def pause_laws(s: Scenario, p: Plan) -> tuple[Law, ...]:
    """The kinds of pauses of a scenario; how many regular ones fall into a step follows from the step without noise."""
    host = s.fabric.node
    return laws(s.noise, host, host * s.failure.nodes_per_rack, step_ns(s, p))


def pipeline_ns(s: Scenario, p: Plan) -> float:
    """The same without synchronisation and optimiser."""
    j, each = s.job, np.stack([p.forward_ns, p.backward_ns]) + sending(p)
    return _cached_pipeline_ns(j.schedule, j.pp, j.virtual_pp, j.micro_batches, each.tobytes(), p.late_ns)


@lru_cache(maxsize=256)
def _cached_pipeline_ns(schedule: str, pp: int, virtual_pp: int, micro_batches: int, each: bytes, late: float) -> float:
    fixed = np.frombuffer(each).reshape(2, -1)
    grid = Grid(program(schedule, pp, virtual_pp, micro_batches), fixed, np.zeros_like(fixed), np.ones((2, POINTS)), late, 1)
    return float(grid.step(np.zeros(1), 0, 0).max())
