"""The grid on an array library: the same draws and the same steps as ``grid.py``, op by op over steps × replicas.

Written once against what numpy, torch and cupy have in common, so that it runs wherever one of them does, on a GPU too.
All stages of a replica begin a step together, so a step that begins at b ends b later than one that begins at 0: many
steps are played at once from 0, and put behind one another afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from types import ModuleType
from typing import Any

import numpy as np

from taut.project.noise import POINTS, REACH
from taut.project.training.grid import Gate, Grid, barrier, behind, op_key, replica_key, step_key

BLOCK = 1 << 21
"""Steps × replicas that are played at once: enough to keep a GPU busy, and 16 MiB an array."""


@dataclass(frozen=True)
class Library:
    """An array namespace (numpy, torch, cupy) and, for torch, the device that holds the arrays."""

    np: ModuleType = np
    device: str = ""

    def array(self, values: Any) -> Any:
        """The values on the device."""
        return self.np.asarray(values, device=self.device) if self.device else self.np.asarray(values)

    def cast(self, values: Any, kind: str) -> Any:
        """The values as another kind of number, named as numpy does."""
        dtype = getattr(self.np, kind)
        return values.to(dtype) if hasattr(values, "to") else values.astype(dtype)

    def back(self, values: Any) -> Any:
        """The values as a numpy array."""
        return values.get() if hasattr(values, "get") else np.asarray(values.cpu() if hasattr(values, "cpu") else values)


NUMPY = Library()


def replica_keys(replicas: int, steps: Any, seed: int, lib: Library = NUMPY) -> Any:
    """Where the draws of each step and replica begin: steps × replicas."""
    key = step_key.plain(seed, lib.array(np.asarray(steps, dtype=np.int64)))
    return replica_key.plain(key[:, None], lib.array(np.arange(replicas, dtype=np.int64))[None, :])


def look_up(bits: Any, row: Any, lib: Library = NUMPY) -> Any:
    """The quantiles of a table (one row of it) that draws of 32 bits stand for."""
    x = (lib.cast(bits, "float64") + 0.5) / 4294967296.0
    at = (lib.np.log(x / (1 - x)) + REACH) * ((POINTS - 1) / (2 * REACH))
    k = lib.cast(at, "int64")
    part = at - k
    return (1 - part) * row[k] + part * row[k + 1]


def work(grid: Grid, steps: Any, seed: int, lib: Library = NUMPY) -> Iterator[Any]:
    """What each op of the program takes in turn: a number, or steps × replicas where it is drawn."""
    p = grid.program
    fixed, drawn = grid.fixed_ns.ravel().tolist(), grid.drawn_ns.ravel().tolist()
    keys, tables = replica_keys(grid.replicas, steps, seed, lib), lib.array(grid.tables)
    slow = lib.array(grid.slowness(steps))
    for i, (cell, direction, stage) in enumerate(zip(p.cell.tolist(), p.direction.tolist(), p.stage.tolist(), strict=True)):
        if drawn[cell] > 0:
            strays = look_up(op_key.plain(keys, i), tables[direction], lib) * slow[:, :, stage]
            if grid.late < inf:
                again = look_up(op_key.plain(keys, len(p) + i), tables[direction], lib) * lib.np.roll(slow[:, :, stage], -1, 1)
                strays = lib.np.where(strays > grid.late, lib.np.minimum(strays, again + grid.late), strays)
            yield fixed[cell] + drawn[cell] * strays
        else:
            yield fixed[cell]


def play(grid: Grid, steps: Any, seed: int, lib: Library = NUMPY) -> Any:
    """When every stage of every replica ends its ops if it began at 0: steps × replicas × stages."""
    p, takes = grid.program, grid.program.takes.tolist()
    last_use = np.full(len(p), len(p))
    for source in (p.before, p.needs):
        last_use[source[source >= 0]] = -1
    for source in (p.before, p.needs):
        users = np.flatnonzero(source >= 0)
        np.maximum.at(last_use, source[users], users)
    zero = lib.array(np.zeros((len(steps), grid.replicas)))
    ends: dict[int, Any] = {}
    done: list[Any] = [zero] * p.stages
    for i, took in enumerate(work(grid, steps, seed, lib)):
        before, needs = int(p.before[i]), int(p.needs[i])
        t = ends[before] if before >= 0 else zero
        if needs >= 0:
            t = lib.np.maximum(t, ends[needs] + grid.hop_ns if takes[i] else ends[needs])
        ends[i] = done[p.stage[i]] = t + took
        for used in {before, needs}:
            if used >= 0 and last_use[used] == i:
                del ends[used]
    return lib.np.stack(done, 2)


def steps(
    grid: Grid, count: int, seed: int = 0, *, gate: Gate = barrier, every: int = 1, sync_ns: float = 0.0, after_ns: float = 0.0,
    lib: Library = NUMPY,
) -> Any:  # fmt: skip
    """``grid.steps`` on an array library."""
    block = max(1, BLOCK // grid.replicas)
    parts = (np.arange(first, min(first + block, count)) for first in range(0, count, block))
    played = (ends for numbers in parts for ends in lib.back(play(grid, numbers, seed, lib)))
    return behind(played, gate, every, sync_ns, after_ns)
