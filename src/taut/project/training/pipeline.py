"""Pipeline schedules: in which order a stage does what, and what each of these ops waits for.

An op is one chunk of layers, one micro-batch, one direction. Stages pass activations forward and gradients back; chunk c
lies on stage c modulo the number of stages. A program lists the ops of all stages of one replica so that a single sweep
can follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import UsageError
from taut.core.ids import occurrence
from taut.core.jit import kernel

FORWARD, BACKWARD = 0, 1
MOST_OPS = 50_000_000


@dataclass(frozen=True)
class Program:
    """Ops in an order that respects what they wait for; arrays of one row each."""

    chunk: Ints
    micro: Ints
    direction: Ints
    stage: Ints
    before: Ints
    """Row of the op before on the same stage; -1 for the first."""
    needs: Ints
    """Row of the op on another stage (or the own forward pass) whose result it needs; -1 for none."""
    stages: int
    chunks: int

    def __len__(self) -> int:
        return len(self.chunk)

    @cached_property
    def cell(self) -> Ints:
        """Of each op, direction and chunk in one number."""
        return self.direction * self.chunks + self.chunk

    @cached_property
    def turn(self) -> Ints:
        """Of each op, how many come before it on its stage."""
        return occurrence(self.stage)

    @cached_property
    def ops_of_stage(self) -> Ints:
        """Ops of each stage."""
        return np.bincount(self.stage, minlength=self.stages)

    @cached_property
    def takes(self) -> Mask:
        """Whether the input of each op comes from another stage."""
        found: Mask = (self.needs >= 0) & (self.stage[self.needs] != self.stage)
        return found

    @cached_property
    def gives(self) -> Mask:
        """Whether the result of each op goes to another stage."""
        out = np.zeros(len(self), dtype=bool)
        out[self.needs[self.takes]] = True
        return out


@lru_cache(maxsize=256)
def deal_layers(layers: int, stages: int, per_stage: int, ends: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    """Layers of every chunk, as even as can be; ``ends`` are those of the first and the last stage, 0 for as the others.

    What does not divide leaves the ends short, the last chunk first: embedding and logits lie there.
    """
    chunks = stages * per_stage
    out, rest = [0] * chunks, list(range(chunks))
    for stage, held, way in ((0, ends[0], 1), (stages - 1, ends[1], -1)):
        if held:
            own = list(range(stage, chunks, stages))[::way]
            _deal(out, held, own)
            layers -= held
            rest = [chunk for chunk in rest if chunk not in own]
    # From the ends inwards: the last, the first, the last but one …
    inwards = [rest[k // 2] if k % 2 else rest[-1 - k // 2] for k in range(len(rest))]
    _deal(out, layers, inwards)
    return tuple(out)


def _deal(out: list[int], layers: int, chunks: list[int]) -> None:
    """Deal layers to chunks as evenly as can be, the first of them short."""
    if chunks:
        each, more = divmod(layers, len(chunks))
        for k, chunk in enumerate(chunks):
            out[chunk] = each + (k >= len(chunks) - more)


@lru_cache(maxsize=256)
def deal_recomputed(dealt: tuple[int, ...], stages: int, per_stage_layers: int) -> tuple[int, ...]:
    """Of the layers of every chunk, those that are recomputed: so many of a stage, dealt to its chunks in turn."""
    out = [0] * len(dealt)
    for stage in range(stages):
        own = range(stage, len(dealt), stages)
        left = min(per_stage_layers, sum(dealt[chunk] for chunk in own))
        while left:
            for chunk in own:
                if left and out[chunk] < dealt[chunk]:
                    out[chunk] += 1
                    left -= 1
    return tuple(out)


@lru_cache(maxsize=256)
def program(schedule: str, stages: int, chunks_per_stage: int, micro_batches: int) -> Program:
    """The program of one replica."""
    chunks, ops = stages * chunks_per_stage, 2 * stages * chunks_per_stage * micro_batches
    if ops > MOST_OPS:
        raise UsageError(f"{ops:,} pipeline ops in a step are more than taut follows; raise micro_batch")
    rows = np.empty((ops, 6), dtype=np.int64)
    if follow(int(schedule == "gpipe"), stages, chunks_per_stage, micro_batches, rows) != ops:
        raise UsageError(
            f"schedule {schedule}: {stages} stages of {chunks_per_stage} chunks and {micro_batches} micro-batches lock up"
        )
    chunk, micro, direction, stage, before, needs = np.ascontiguousarray(rows.T)
    return Program(chunk, micro, direction, stage, before, needs, stages, chunks)


@kernel()
def follow(gpipe: int, stages: int, per_stage: int, m: int, rows: Ints) -> int:
    """Let every stage go on until it needs what is not there yet, in turn; returns how many ops were written into rows.

    A row is (chunk, micro-batch, direction, stage, op before, op needed).
    """
    chunks = stages * per_stage
    done = np.full((2 * chunks, m), -1, np.int64)
    at, last = np.zeros(stages, np.int64), np.full(stages, -1, np.int64)
    written, moved = 0, True
    while moved:
        moved = False
        for stage in range(stages):
            while at[stage] < 2 * per_stage * m:
                direction, turn, micro = turn_of(at[stage], gpipe, stage, stages, per_stage, m)
                chunk = turn * stages + stage
                needs = -1
                if direction == FORWARD:
                    if chunk > 0:
                        needs = done[chunk - 1, micro]
                elif chunk < chunks - 1:
                    needs = done[chunks + chunk + 1, micro]
                else:
                    needs = done[chunk, micro]
                if needs < 0 and (direction == BACKWARD or chunk > 0):
                    break
                rows[written, 0], rows[written, 1], rows[written, 2] = chunk, micro, direction
                rows[written, 3], rows[written, 4], rows[written, 5] = stage, last[stage], needs
                done[direction * chunks + chunk, micro] = last[stage] = written
                written += 1
                at[stage] += 1
                moved = True
    return written


@kernel()
def turn_of(k: int, gpipe: int, stage: int, stages: int, per_stage: int, m: int) -> tuple[int, int, int]:
    """(direction, which of its chunks, micro-batch) of the k-th op of a stage.

    All forward passes come first, or as many as keep the stages behind busy, and then one of either in turn. With several
    chunks a stage, ``stages`` micro-batches go through each chunk before the next comes.
    """
    each = per_stage * m
    # Warm-up of 1F1B: as many forwards as stages lie behind; interleaved ones (Narayanan et al. 2021) add a round per chunk.
    ahead = stages - 1 - stage if per_stage == 1 else 2 * (stages - 1 - stage) + (per_stage - 1) * stages
    ahead = each if gpipe else min(ahead, each)
    direction, nth = FORWARD, k
    if k >= ahead:
        paired = k - ahead
        if paired >= 2 * (each - ahead):
            direction, nth = BACKWARD, k - each
        else:
            direction, nth = paired % 2, paired // 2 + (0 if paired % 2 else ahead)
    if per_stage == 1:
        return direction, 0, nth
    group = nth // (stages * per_stage)
    rest, wide = nth - group * stages * per_stage, min(stages, m - group * stages)
    turn = rest // wide
    return direction, turn if direction == FORWARD else per_stage - 1 - turn, group * stages + rest % wide
