"""Columns of a grid are replays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from build import barriers
from jobs import jobs
from kernel_calls import in_machine_code
from taut.graph import link
from taut.replay.mixtures import grid, mix, mix_plain
from taut.replay.timeline import Change, batch, replay


@given(built=jobs(), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_each_column_is_the_replay_of_its_mixture(built: Any, seed: int) -> None:
    graph = link(built)
    other = np.random.default_rng(seed).integers(0, 1 << 20, size=len(graph))
    prepared = grid(batch(graph), [None, graph.gap_ns, None], [graph.work_ns, None, other])
    walls = prepared.walls(np.array([[1, 1, 0, 3], [1, 0, 0, 3], [0, 1, 1, 0]]))
    gap_free = replay(graph, [Change(slice(None), "work", "add", other)], gaps=False)
    swapped = replay(graph, [Change(slice(None), "work", "set", other)], gaps=False)
    larger = replay(graph, [Change(slice(None), what, "scale", 3) for what in ("work", "gap")])  # type: ignore[arg-type]
    for column, timeline in zip(walls.T, (replay(graph), gap_free, swapped, larger), strict=True):
        assert (column == timeline.window_ns).all()


def test_compiled_and_plain_give_the_same_numbers() -> None:
    work = 1e6 * (1 + 0.1 * np.random.default_rng(0).standard_normal((12, 6)))
    graph = link(barriers(work, 1000))
    prepared = grid(batch(graph), [None, graph.gap_ns], [graph.work_ns, graph.work_ns // 7])
    assert mix.plain is mix_plain
    p, share = prepared.batch.short, np.array([[1.0, 1.0, 0.5], [0.0, 2.0, -9.0]])
    args = (*p.arrays, len(graph.steps), prepared.before, prepared.after, share, len(p.ops))
    for plain, compiled in zip(mix.plain(*args), in_machine_code(mix, *args), strict=True):
        np.testing.assert_allclose(plain, compiled)
