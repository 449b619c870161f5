"""Time under ops of many groups: kernels and their numpy twins agree."""

from __future__ import annotations

import numpy as np

from kernel_calls import in_machine_code
from taut.core.span_kernels import begin_at, union_of_groups


def test_unions_and_beginnings_of_groups_are_those_of_numpy() -> None:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 5, 400)
    start = rng.integers(0, 3000, 400)
    end = start + rng.integers(0, 9, 400)
    zero, chosen = np.arange(5) * 10_000 + 7, rng.random(400) < 0.7
    for compiled, plain in zip(
        in_machine_code(union_of_groups, group, zero, chosen, start, end),
        union_of_groups.plain(group, zero, chosen, start, end),
        strict=True,
    ):
        assert np.array_equal(compiled, plain)
    times = union_of_groups.plain(group, zero, chosen, start, end)[0][::2]
    found = begin_at.plain(group, zero, chosen, start, times)
    assert np.array_equal(in_machine_code(begin_at, group, zero, chosen, start, times), found)
    assert (start + zero[group])[found].tolist() == times.tolist()
    assert begin_at.plain(group, zero, chosen, start, times + 20_000_000).tolist() == [-1] * len(times)
