"""Frames of the timeline against a naive painter, ops one by one, and the gates of a view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from build import Do, Scripts, job, play
from taut.core.jit import Kernel
from taut.core.tables import Kind, Trace
from taut.replay.exposed import exposed
from taut.replay.timeline import replay
from taut.result.view_types import STATES, TimelineFrame
from taut.views.frames import Frames
from timelines import condensed, naive, timeline_of


def tiny(scripts: Scripts | Callable[[int], Scripts], **about: object) -> Trace:
    """A job whose scripts count nanoseconds."""
    trace = job(scripts, **about)
    ops = trace.ops
    return replace(trace, ops=ops.replace(start_ns=ops.start_ns // 1_000_000, end_ns=ops.end_ns // 1_000_000))


def lanes(step: int) -> dict[int, list[str]]:
    return {r: [f"fwd {4 + r + step} | . 3 | AR 2 | bwd 5", f". {2 + r} | copy 6 | . 4 | AG/b 3"] for r in range(3)}


JOBS: dict[str, Callable[[], Trace]] = {
    "one lane": lambda: tiny({r: f"fwd {5 + r} | AR 2 | . 3 | bwd 4 | AR 1" for r in range(4)}, steps=3),
    "two lanes": lambda: tiny(lanes, steps=3),
    "one slow": lambda: tiny(lambda step: {r: f"fwd {10 + 9 * (r == 2) + step % 2} | AR 2" for r in range(4)}, steps=6),
    "relative": lambda: tiny(lambda step: {r: f". {r} | fwd {4 + step} | AR 2" for r in range(3)}, steps=3, relative=True),
    "one op": lambda: tiny({0: "fwd 5"}),
    "host": lambda: play([Do(r, name, 4 + r, lane, idle=2, kind=kind) for r in range(2)
                          for lane, (name, kind) in enumerate([("load", Kind.COORDINATE), ("fwd", Kind.COMPUTE)])]),
}  # fmt: skip


@pytest.fixture(params=["plain", "compiled"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels as small jobs have them run by Python, and as large ones have them compiled."""
    if request.param == "compiled":
        monkeypatch.setattr(Kernel, "_pays", lambda self, args: True)


@pytest.fixture(params=JOBS)
def frames(request: pytest.FixtureRequest) -> Frames:
    return timeline_of(JOBS[request.param]())


def cells(frame: TimelineFrame) -> list[list[int]]:
    assert frame.cells is not None
    return np.frombuffer(frame.cells, dtype=np.uint8).reshape(frame.lines, frame.columns).tolist()


def coarse(frames: Frames, *asked: int) -> TimelineFrame:
    """A frame in which no op is shown by itself."""
    with patch.object(frames, "ops_between", return_value=None):
        return frames.frame(*asked)


@pytest.mark.usefixtures("ways")
def test_a_column_a_nanosecond_is_what_a_naive_painter_paints(frames: Frames) -> None:
    wall, rows = frames.axis.wall_ns, len(frames.graph.ranks)
    assert cells(coarse(frames, 0, wall, 0, rows, wall, rows)) == naive(frames)


@pytest.mark.usefixtures("ways")
def test_frames_at_any_zoom_agree_with_the_naive_painter(frames: Frames) -> None:
    painted, rng = naive(frames), np.random.default_rng(1)
    wall, count = frames.axis.wall_ns, len(frames.graph.ranks)
    for _ in range(60):
        begin, row = int(rng.integers(wall)), int(rng.integers(count))
        end, rows = int(rng.integers(begin, wall)) + 1, int(rng.integers(count - row)) + 1
        columns, lines = int(rng.integers(1, 40)), int(rng.integers(1, rows + 1))
        shown = cells(coarse(frames, begin, end, row, rows, columns, lines))
        assert shown == condensed(painted, begin, end, range(row, row + rows), columns, lines)


def test_time_by_state_is_that_of_the_ledger(frames: Frames) -> None:
    """Work, waiting and idle time of all rows, as the ledger takes lanes together."""
    graph, wall, rows = frames.graph, frames.axis.wall_ns, len(frames.graph.ranks)
    held = np.bincount(frames.cells(0, wall, 0, rows, wall, rows).ravel(), minlength=256)
    shown = exposed(graph, replay(graph))
    assert held[[0, 1, 2, 3, 9]].sum() == shown.working.sum()
    assert held[4:9].sum() == shown.waiting.sum()
    assert held[10] == shown.idle.sum() + shown.tail.sum()
    assert held[255] == 0


def test_every_op_is_shown_where_there_are_few(frames: Frames) -> None:
    graph = frames.graph
    frame = frames.frame(0, frames.axis.wall_ns, 0, len(graph.ranks), 10, 5)
    assert frame.cells is None
    ops = frame.ops
    assert ops is not None
    assert sorted(ops.op) == list(range(len(graph)))
    assert [graph.ranks[row] for row in ops.row] == graph.ops.rank[ops.op].tolist()
    assert [frame.names[name] for name in ops.name] == [graph.names[one] for one in graph.ops.name[ops.op]]
    assert (np.array(ops.end_ns) - ops.opening_ns).tolist() == graph.work_ns[ops.op].tolist()
    assert [(wait >= 0) for wait in ops.wait] == [a < b for a, b in zip(ops.begin_ns, ops.opening_ns, strict=True)]


def test_ops_of_a_view_are_those_that_overlap_it(frames: Frames) -> None:
    every, wall = np.arange(len(frames.graph)), frames.axis.wall_ns
    begins, ends, rows = frames.begins_ns(every), frames.ends_ns(every), frames.graph.rank_index
    for begin, end in ((0, 1), (wall // 3, wall // 2 + 1), (wall - 1, wall)):
        for row in range(len(frames.graph.ranks)):
            found = frames.ops_between(begin, end, row, 1)
            assert found is not None
            assert sorted(found.tolist()) == np.flatnonzero((begins < end) & (ends > begin) & (rows == row)).tolist()


def test_of_too_many_ops_cells_are_shown() -> None:
    frames = timeline_of(JOBS["one lane"]())
    assert frames.ops_between(0, frames.axis.wall_ns, 0, 4, most=48) is not None
    assert frames.ops_between(0, frames.axis.wall_ns, 0, 4, most=47) is None


def test_an_op_that_began_long_before_is_found() -> None:
    long = [Do(0, "long", 1000, lane=1), *(Do(0, "short", 2, idle=1) for _ in range(200))]
    frames = timeline_of(play(long))
    found = frames.ops_between(500, 501, 0, 1)
    assert found is not None
    assert sorted(frames.graph.names[one] for one in frames.graph.ops.name[found]) == ["long", "short"]


def test_gates_of_a_view() -> None:
    """Ranks 0 and 1 meet, 2 and 3 meet, then all do."""
    frames = timeline_of(tiny({r: f"fwd {5 + r} | AR/pair{r // 2} 1 | fwd 5 | BAR/all 1" for r in range(4)}))
    whole = frames.frame(0, frames.axis.wall_ns, 0, 4, 10, 4).gates
    assert sorted(map(tuple, whole.rows)) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    times = zip(whole.first_ns, whole.opens_ns, whole.last_row, strict=True)
    table = {tuple(rows): one for rows, one in zip(whole.rows, times, strict=True)}
    assert table == {(0, 1): (5, 6, 1), (2, 3): (7, 8, 3), (0, 1, 2, 3): (12, 14, table[0, 1, 2, 3][2])}
    assert table[0, 1, 2, 3][2] in (2, 3)  # both come at once
    early = frames.frame(0, 6, 0, 4, 10, 4).gates
    assert early.rows == [[0, 1]]
    lower = frames.frame(0, frames.axis.wall_ns, 2, 2, 10, 4).gates
    assert sorted(lower.rows) == [[2, 3], [2, 3]]
    assert frames.frame(0, 5, 0, 4, 10, 4).gates.rows == []


def test_of_many_gates_those_are_shown_that_most_is_waited_at() -> None:
    frames = timeline_of(tiny(lambda step: {0: "fwd 3 | AR 1", 1: f"fwd {4 + step} | AR 1"}, steps=9))
    whole = frames.frame(0, frames.axis.wall_ns, 0, 2, 10, 2)
    assert (len(whole.gates.gate), whole.left_out_gates) == (9, 0)
    with patch("taut.views.frames.GATES", 2):
        fewer = frames.frame(0, frames.axis.wall_ns, 0, 2, 10, 2)
    assert (fewer.gates.gate, fewer.left_out_gates) == (whole.gates.gate[-2:], 7)


def test_a_slow_rank_is_told_from_the_others() -> None:
    frames = timeline_of(JOBS["one slow"]())
    slow = frames.state == STATES.index("slow compute")
    assert set(frames.graph.ops.rank[slow].tolist()) == {2}
    waits = {STATES[code] for code in frames.wait[frames.wait >= 0]}
    assert waits == {"fault wait"}
