"""Checkpoints that come every so many steps: no level of any step tells them, their name does."""

from __future__ import annotations

import numpy as np
import pytest

from build import MS, Do, analyze, play
from taut.core.tables import Kind, Verb
from taut.result.types import AnalysisResult

STEPS, RANKS = 24, 4


def saving(
    rank_ms: dict[int, float], name: str = "checkpoint", kind: Kind = Kind.COORDINATE, since: int = 0, wild_ms: float = 0.0
) -> AnalysisResult:
    """Every rank computes 50 ms, saves in every fourth step (as long as given since a step, or 1 ms), and meets the others.

    Some saves of all ranks take longer than that, by an exponential law.
    """
    rng, ops = np.random.default_rng(4), []
    for step in range(STEPS):
        for rank in range(RANKS):
            ops.append(Do(rank, "forward", int(MS * rng.normal(50, 1)), step=step))
            if step % 4 == 3:
                took = rank_ms.get(rank, 1.0) if step >= since else 1.0
                took += rng.exponential(wild_ms) if wild_ms and rng.random() < 0.4 else 0.0
                ops.append(Do(rank, name, int(MS * took), step=step, kind=kind))
        ops += [Do(rank, "all-reduce", 2 * MS, step=step, verb=Verb.ALL_REDUCE) for rank in range(RANKS)]
    return analyze(play(ops)).result


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_saves_longer_than_the_others_is_named(rank: int) -> None:
    (one,) = saving({rank: 80.0}).findings
    assert (one.mode, one.ranks, one.classes[0]) == ("checkpoint stall", [rank], "checkpoint")
    assert one.recoverable_wall_ns == pytest.approx(STEPS // 4 * 79 * MS, rel=0.05)


def test_long_checkpoints_of_one_rank_are_told_though_few_steps_have_one() -> None:
    (one,) = saving({1: 21.0}, since=8).findings
    assert (one.mode, one.ranks) == ("checkpoint stall", [1])
    assert one.recoverable_wall_ns == pytest.approx(4 * 20 * MS, rel=0.05)


def test_checkpoints_that_are_long_on_any_rank_are_nobodys() -> None:
    assert not [f for f in saving({}, wild_ms=100.0).findings if f.mode == "checkpoint stall"]


def test_checkpoints_that_are_alike_are_a_schedule() -> None:
    assert saving(dict.fromkeys(range(RANKS), 80.0)).findings == []


def test_short_checkpoints_are_nothing() -> None:
    assert saving(dict.fromkeys(range(RANKS), 2.0)).findings == []


def test_activation_checkpoints_are_work() -> None:
    assert saving(dict.fromkeys(range(RANKS), 80.0), "CheckpointFunction", Kind.COMPUTE).findings == []
