"""Ranges that people named on the host: what they are called together, and which are kept."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.tables import Mark, Table
from taut.read import host_ranges as module
from taut.read.host_ranges import host_ranges, range_name


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("## forward ##", "forward"), ("Optimizer.step#AdamW.step", "Optimizer.step"), ("micro_batch_12", "micro_batch_…"),
        ("all2all fp16", "all2all fp16"), ("layer 3 of 40", "layer … of …"), ("", "a range without a name"),
        ("x" * 300, "x" * 80),
    ],
)  # fmt: skip
def test_ranges_of_one_kind_have_one_name(name: str, called: str) -> None:
    assert range_name(name) == called


def test_steps_and_empty_ranges_are_left_out() -> None:
    marks = Table(Mark, {"rank": [0], "step": [1], "start_ns": [100], "end_ns": [200]}, 1)
    start, end = np.array([100, 110, 120]), np.array([200, 150, 120])
    found = host_ranges(["step", "forward", "empty"], np.array([0, 1, 2]), start, end, marks)
    assert list(zip(found.name, found.start_ns, found.end_ns, strict=True)) == [("forward", 110, 150)]


def test_of_too_many_ranges_the_longest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RANGES", 2)
    end = np.array([5, 9, 7])
    found = host_ranges(["a", "b", "c"], np.arange(3), np.zeros(3, np.int64), end, Table(Mark, {}, 0))
    assert list(found.name) == ["b", "c"]
