"""Pipeline schedules: every op once, after what it needs, in the time that the closed forms give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.training.pipeline import BACKWARD, Program, program


def ends(p: Program, forward: float, backward: float) -> Any:
    end = np.zeros(len(p))
    for i in range(len(p)):
        ready = max([0.0, *(end[j] for j in (p.before[i], p.needs[i]) if j >= 0)])
        end[i] = ready + (backward if p.direction[i] == BACKWARD else forward)
    return end


@pytest.mark.parametrize(
    ("schedule", "stages", "chunks", "micro"),
    [
        ("gpipe", 4, 1, 8),
        ("1f1b", 4, 1, 8),
        ("1f1b", 8, 1, 3),
        ("interleaved", 4, 2, 8),
        ("interleaved", 4, 3, 16),
        ("1f1b", 1, 1, 5),
    ],
)
def test_a_balanced_pipeline_takes_what_its_bubble_says(schedule: str, stages: int, chunks: int, micro: int) -> None:
    took = ends(program(schedule, stages, chunks, micro), 1 / chunks, 2 / chunks).max()
    assert took == pytest.approx(micro * 3 + (stages - 1) * 3 / chunks)


@given(st.sampled_from(["gpipe", "1f1b", "interleaved"]), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4))
def test_every_op_comes_once_and_after_what_it_needs(schedule: str, stages: int, chunks: int, groups: int) -> None:
    chunks = chunks if schedule == "interleaved" else 1
    p = program(schedule, stages, chunks, stages * groups)
    assert (
        len({(d, c, m) for d, c, m in zip(p.direction, p.chunk, p.micro, strict=True)})
        == len(p)
        == 2 * stages**2 * chunks * groups
    )
    rows = np.arange(len(p))
    assert (p.before < rows).all()
    assert (p.needs < rows).all()
    assert (p.stage == p.chunk % stages).all()
