"""The axis of the timeline: where steps begin and end, and which rows and lanes it has."""

from __future__ import annotations

import pytest

from build import MS, job
from taut.core.errors import UsageError
from taut.result.view_types import TimelineAxis
from timelines import timeline_of

HOSTS = {0: "a", 1: "b"}


def steps_of(axis: TimelineAxis) -> list[tuple[int, float, float]]:
    return [(one.step, one.begin_ns / MS, one.end_ns / MS) for one in axis.steps]


def test_steps_tile_the_axis() -> None:
    axis = timeline_of(job({0: "fwd 3 | AR 1", 1: "fwd 5 | AR 1"}, steps=3, hosts=HOSTS)).axis.described()
    assert steps_of(axis) == [(0, 0, 6), (1, 6, 12), (2, 12, 18)]
    assert (axis.wall_ns, axis.ops) == (18 * MS, 12)
    assert [one.label for one in axis.rows] == ["rank 0 (a)", "rank 1 (b)"]


def test_steps_without_a_time_in_common_follow_each_other() -> None:
    scripts = {0: "fwd 3 | AR 1", 1: "fwd 5 | AR 1"}
    axis = timeline_of(job(lambda step: {0: f"fwd {3 + step} | AR 1", 1: scripts[1]}, steps=4, relative=True)).axis.described()
    assert steps_of(axis) == [(0, 0, 6), (1, 6, 12), (2, 12, 18), (3, 18, 25)]
    assert axis.zero_ns is None


def test_lanes_of_a_row_are_those_of_its_ops() -> None:
    axis = timeline_of(job({0: ["fwd 3 | AR 1", "copy 2"], 1: "fwd 5 | AR 1"}, steps=2)).axis.described()
    assert [one.lanes for one in axis.rows] == [["lane 0", "lane 1"], ["lane 0"]]


def test_the_clock_of_the_traces_is_told() -> None:
    trace = job({0: "fwd 3 | AR 1", 1: "fwd 5 | AR 1"}, steps=2)
    ops = trace.ops.replace(start_ns=trace.ops.start_ns + 7 * MS, end_ns=trace.ops.end_ns + 7 * MS)
    from dataclasses import replace

    axis = timeline_of(replace(trace, ops=ops)).axis.described()
    assert (axis.zero_ns, axis.wall_ns) == (7 * MS, 12 * MS)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ((0, 0, 0, 1, 10, 1), "no such time"),
        ((-1, 5, 0, 1, 10, 1), "no such time"),
        ((5, 6 * MS + 1, 0, 1, 10, 1), "no such time"),
        ((0, 5, 0, 0, 10, 1), "no such rows"),
        ((0, 5, 1, 2, 10, 1), "no such rows"),
        ((0, 5, -1, 1, 10, 1), "no such rows"),
        ((0, 5, 0, 1, 0, 1), "no such frame"),
        ((0, 5, 0, 1, 5000, 1), "no such frame"),
        ((0, 5, 0, 1, 10, 0), "no such frame"),
        ((0, 5, 0, 1, 10, 10**9), "no such frame"),
    ],
)
def test_what_is_no_part_of_the_timeline_is_refused_in_one_line(asked: tuple[int, ...], said: str) -> None:
    frames = timeline_of(job({0: "fwd 3 | AR 1", 1: "fwd 5 | AR 1"}))
    with pytest.raises(UsageError, match=said) as refused:
        frames.frame(*asked)
    assert "\n" not in str(refused.value)
