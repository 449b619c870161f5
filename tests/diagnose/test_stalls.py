"""Checkpoints that come every so many steps: no level of any step tells them, their name does."""

from __future__ import annotations

import numpy as np
import pytest

from build import MS, Do, analyze, play
from taut.core.tables import Kind, Verb
from taut.result.types import AnalysisResult

STEPS, RANKS = 24, 4


def saving(rank_ms: dict[int, float], name: str = "checkpoint", kind: Kind = Kind.COORDINATE) -> AnalysisResult:
    """Every rank computes 50 ms, saves in every fourth step as long as given (1 ms if not), and meets the others."""
    rng, ops = np.random.default_rng(4), []
    for step in range(STEPS):
        for rank in range(RANKS):
            ops.append(Do(rank, "forward", int(MS * rng.normal(50, 1)), step=step))
            took = rank_ms.get(rank, 1.0) if step % 4 == 3 else 1.0
            ops.append(Do(rank, name, int(MS * took), step=step, kind=kind))
        ops += [Do(rank, "all-reduce", 2 * MS, step=step, verb=Verb.ALL_REDUCE) for rank in range(RANKS)]
    return analyze(play(ops)).result


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_saves_longer_than_the_others_is_named(rank: int) -> None:
    (one,) = saving({rank: 80.0}).findings
    assert (one.mode, one.ranks, one.classes[0]) == ("checkpoint stall", [rank], "checkpoint")
    assert one.recoverable_wall_ns == pytest.approx(STEPS // 4 * 79 * MS, rel=0.05)


def test_checkpoints_that_are_alike_are_a_schedule() -> None:
    assert saving(dict.fromkeys(range(RANKS), 80.0)).findings == []


def test_short_checkpoints_are_nothing() -> None:
    assert saving(dict.fromkeys(range(RANKS), 2.0)).findings == []


def test_activation_checkpoints_are_work() -> None:
    assert saving(dict.fromkeys(range(RANKS), 80.0), "CheckpointFunction", Kind.COMPUTE).findings == []
