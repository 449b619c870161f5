"""Pipeline schedules: in which order a stage does what, and what each of these ops waits for.

An op is one chunk of layers, one micro-batch, one direction. Stages pass activations forward and gradients back; chunk c
lies on stage c modulo the number of stages. A program lists the ops of all stages of one replica so that a single sweep
can follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from taut.errors import UsageError

FORWARD, BACKWARD = 0, 1
MOST_OPS = 50_000_000


@dataclass(frozen=True)
class Program:
    """Ops in an order that respects what they wait for; arrays of one row each."""

    chunk: Any
    micro: Any
    direction: Any
    stage: Any
    before: Any
    """Row of the op before on the same stage; -1 for the first."""
    needs: Any
    """Row of the op on another stage (or the own forward pass) whose result it needs; -1 for none."""
    stages: int
    chunks: int

    def __len__(self) -> int:
        return len(self.chunk)


@lru_cache(maxsize=256)
def program(schedule: str, stages: int, chunks_per_stage: int, micro_batches: int) -> Program:
    """The program of one replica."""
    chunks, m = stages * chunks_per_stage, micro_batches
    if 2 * chunks * m > MOST_OPS:
        raise UsageError(f"{2 * chunks * m:,} pipeline ops in a step are more than taut follows; raise micro_batch")
    orders = [list(_order(schedule, stage, stages, chunks_per_stage, m)) for stage in range(stages)]
    row: dict[tuple[int, int, int], int] = {}
    at, last = [0] * stages, [-1] * stages
    rows: list[tuple[int, int, int, int, int, int]] = []
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            while at[stage] < len(orders[stage]):
                direction, chunk, micro = orders[stage][at[stage]]
                source = _source(direction, chunk, chunks)
                needs = -1 if source is None else row.get((*source, micro), -2)
                if needs == -2:
                    break
                row[direction, chunk, micro] = len(rows)
                rows.append((chunk, micro, direction, stage, last[stage], needs))
                last[stage], at[stage], moved = len(rows) - 1, at[stage] + 1, True
    if len(rows) != 2 * chunks * m:
        raise UsageError(f"schedule {schedule}: {stages} stages of {chunks_per_stage} chunks and {m} micro-batches lock up")
    chunk, micro, direction, stage, before, needed = np.ascontiguousarray(np.array(rows, dtype=np.int64).T)
    return Program(chunk, micro, direction, stage, before, needed, stages, chunks)


def _source(direction: int, chunk: int, chunks: int) -> tuple[int, int] | None:
    """(direction, chunk) whose result an op needs."""
    if direction == FORWARD:
        return (FORWARD, chunk - 1) if chunk else None
    return (BACKWARD, chunk + 1) if chunk < chunks - 1 else (FORWARD, chunk)


def _order(schedule: str, stage: int, stages: int, per_stage: int, m: int) -> Iterator[tuple[int, int, int]]:
    """(direction, chunk, micro-batch) in the order of one stage."""
    forward, backward = ([(d, *one) for one in _turns(d, stage, stages, per_stage, m)] for d in (FORWARD, BACKWARD))
    if schedule == "gpipe":
        yield from forward
        yield from backward
        return
    ahead = stages - 1 - stage if per_stage == 1 else 2 * (stages - 1 - stage) + (per_stage - 1) * stages
    ahead = min(ahead, len(forward))
    yield from forward[:ahead]
    for k in range(len(forward) - ahead):
        yield forward[ahead + k]
        yield backward[k]
    yield from backward[len(forward) - ahead :]


def _turns(direction: int, stage: int, stages: int, per_stage: int, m: int) -> Iterator[tuple[int, int]]:
    """(chunk, micro-batch) of one direction: with several chunks a stage, ``stages`` micro-batches go through each in turn."""
    if per_stage == 1:
        yield from ((stage, micro) for micro in range(m))
        return
    for group in range(0, m, stages):
        turns = range(per_stage) if direction == FORWARD else reversed(range(per_stage))
        for turn in turns:
            yield from ((turn * stages + stage, micro) for micro in range(group, min(group + stages, m)))
