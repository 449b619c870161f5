"""A packed timeline answers for frames as the timeline does, as finely as it is packed, and stays within its budget."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from build import MS, Scripts, analyze, barriers, job
from packed_reader import Unpacked
from taut.core.tables import Trace
from taut.result.analysis_result import report
from taut.result.view_types import OpDetail, TimelineGates
from taut.views.frames import Frames
from taut.views.packed_timeline import chosen_cells, pack, pyramid
from timelines import Traced, timeline_of


def slow_rank(step: int) -> Scripts:
    return {r: f"fwd {10 + 6 * (r == 2) + (step == 5)} | AR 2 | . 1 | bwd 5 | AR 1" for r in range(4)}


@pytest.fixture(scope="module")
def frames() -> Frames:
    return timeline_of(job(slow_rank, steps=12, noise=0.01))


def tiny(trace: Trace) -> Trace:
    """The same in microseconds for milliseconds."""
    return replace(trace, ops=trace.ops.replace(start_ns=trace.ops.start_ns // 1000, end_ns=trace.ops.end_ns // 1000))


def test_cells_are_those_of_the_frame_where_a_level_is_as_fine(frames: Frames) -> None:
    packed, wall = Unpacked(pack(frames)), frames.axis.wall_ns
    for level in packed.header.levels:
        expected = frames.cells(0, wall, 0, 4, level.columns, 4)
        assert (packed.cells(0, wall, 0, 4, level.columns, 4) == expected).all()


def test_cells_of_a_part_are_nearly_those_of_the_frame(frames: Frames) -> None:
    packed, wall = Unpacked(pack(frames)), frames.axis.wall_ns
    asked = (wall // 5, wall // 5 + wall // 50, 1, 3, 200, 3)
    assert (packed.cells(*asked) == frames.cells(*asked)).mean() > 0.98


def test_levels_become_finer_within_the_budget() -> None:
    work = 10 * MS * np.random.default_rng(2).normal(1, 0.1, (600, 2))
    frames = timeline_of(barriers(work, MS))
    columns = [one.shape[1] for one in pyramid(frames, 100_000)]
    assert len(columns) == 3
    assert all(2 * a <= b for a, b in pairwise(columns))
    assert [one.shape for one in pyramid(frames, 0)] == [(2, columns[0])]


@pytest.mark.parametrize("budget", [3_000, 20_000, 200_000])
def test_what_is_packed_stays_about_within_its_budget(frames: Frames, budget: int) -> None:
    fixed = 4_000  # header, whole, gates
    assert len(pack(frames, budget_bytes=budget)) < budget + fixed


def test_all_ops_of_a_small_run_are_there(frames: Frames) -> None:
    packed, steps, wall = Unpacked(pack(frames)), frames.axis.steps(), frames.axis.wall_ns
    for asked in ((0, wall, 0, 4), (wall // 3, wall // 2, 1, 2), (7 * MS, 7 * MS + 1, 3, 1)):
        expected = frames.ops_between(*asked)
        found = packed.ops(*asked, steps)
        assert expected is not None
        assert found is not None
        assert found.tolist() == sorted(expected.tolist())


def test_ops_that_are_not_there_are_not_made_up(frames: Frames) -> None:
    packed = Unpacked(pack(frames, budget_bytes=1_000))
    assert packed.ops(0, frames.axis.wall_ns, 0, 4, frames.axis.steps()) is None


def test_columns_of_ops_are_those_of_a_frame(frames: Frames) -> None:
    packed, steps = Unpacked(pack(frames)), frames.axis.steps()
    block = next(one for one in packed.blocks if (one.row, one.step) == (2, 5))
    frame = frames.frame(steps[5].begin_ns, steps[5].end_ns, 2, 1, 10, 1)
    assert frame.ops is not None
    columns = {key: packed.numbers(section)[block.first : block.first + block.count].tolist()
               for key, section in packed.header.ops.items()}  # fmt: skip
    ops = frame.ops
    assert columns["op"] == ops.op
    assert columns["begin_ns"] == ops.begin_ns
    assert [sum(one) for one in zip(ops.begin_ns, columns["wait_ns"], strict=True)] == ops.opening_ns
    assert [sum(one) for one in zip(ops.opening_ns, columns["work_ns"], strict=True)] == ops.end_ns
    assert [columns["state"], columns["lane"]] == [ops.state, ops.lane]
    assert columns["wait"] == [one % 256 for one in ops.wait]
    assert [packed.header.names[one] for one in columns["name"]] == [frame.names[one] for one in ops.name]


def test_gates_and_details_are_what_the_app_answers(frames: Frames) -> None:
    packed = Unpacked(pack(frames))
    gates = msgspec.json.decode(packed.text(packed.header.gates), type=TimelineGates)
    whole = frames.frame(0, frames.axis.wall_ns, 0, 4, 10, 4)
    assert gates.opens_ns == whole.gates.opens_ns
    assert [packed.header.names[one] for one in gates.name] == [whole.names[one] for one in whole.gates.name]
    details = msgspec.json.decode(packed.text(packed.header.details), type=list[OpDetail])
    fault = [one for one in details if one.wait is not None and 2 * one.wait.fault_ns > one.wait.wait_ns]
    assert {one.path[one.root].rank for one in fault if one.root is not None} == {2}


def test_steps_of_findings_come_first(frames: Frames) -> None:
    done = analyze(job(slow_rank, steps=12, noise=0.01))
    found: Any = report(done).findings
    assert found
    traced = Frames(Traced(done.graph, done.blame.waits, done.blame.peers.value_ns))
    assert chosen_cells(traced, found)[0] == (2, 5)  # the slow rank, in its slowest step


def test_one_op_and_steps_of_their_own_time() -> None:
    for trace in (job({0: "fwd 5"}), job(slow_rank, steps=3, relative=True), tiny(job({0: "fwd 1"}))):
        some = timeline_of(trace)
        packed = Unpacked(pack(some))
        wall, rows = some.axis.wall_ns, len(some.graph.ranks)
        found = packed.ops(0, wall, 0, rows, some.axis.steps())
        assert found is not None
        assert found.tolist() == list(range(len(some.graph)))
        assert (packed.cells(0, wall, 0, rows, 50, rows) == some.cells(0, wall, 0, rows, 50, rows)).mean() > 0.9
        assert np.unique(packed.cells(0, wall, 0, rows, 50, rows)).max() < 11
