"""A delay on its way: who leaves which gate later, where slack takes it in, and books that close."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from build import MS, analyze, barriers, job
from taut.core.errors import UsageError
from taut.core.tables import Trace
from taut.replay.timeline import replay
from taut.replay.whatif import delay
from taut.result.view_types import DelayWave
from taut.stored import Run, open_run
from taut.views.delay_wave import delay_wave

UNEVEN = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}


def opened(folder: Path, trace: Trace) -> Run:
    return open_run(analyze(trace).save(folder / "run"))


def closes(wave: DelayWave) -> bool:
    return wave.delay_ns == -wave.saved_wall_ns + sum(one.ns for one in wave.absorbed)


def test_a_rank_that_is_last_delays_everybody(tmp_path: Path) -> None:
    wave = delay_wave(opened(tmp_path, job(UNEVEN, steps=4)), 1, 1, 3 * MS)
    assert (wave.saved_wall_ns, wave.reached_ranks, wave.absorbed) == (-3 * MS, 2, [])
    assert wave.late_ns == [[3 * MS] * 3] * 2
    assert (wave.gate_steps, wave.left_ns, wave.gate_names) == ([1, 2, 3], [3 * MS] * 3, ["all-reduce"] * 3)
    assert wave.command == f"taut whatif {tmp_path / 'run'} --delay rank=1,step=1,ms=3"


def test_slack_takes_in_what_a_rank_waits_anyway(tmp_path: Path) -> None:
    run = opened(tmp_path, job(UNEVEN, steps=4))
    small, large = delay_wave(run, 0, 1, 3 * MS), delay_wave(run, 0, 1, 6 * MS)
    assert (small.saved_wall_ns, small.late_ns, small.left_ns) == (0, [[0], [0]], [0])
    assert [(one.label, one.name, one.ns) for one in small.absorbed] == [("rank 0 (node)", "all-reduce", 3 * MS)]
    assert large.saved_wall_ns == -2 * MS
    assert sum(one.ns for one in large.absorbed) == 4 * MS


@pytest.mark.parametrize("seed", range(4))
def test_the_books_close_wherever_a_delay_is_put(tmp_path: Path, seed: int) -> None:
    work = np.random.default_rng(seed).lognormal(0, 0.3, (6, 5)) * 10 * MS
    run = opened(tmp_path, barriers(work, MS))
    graph = run.graph
    for op in range(0, len(graph), 7):
        rank, step = int(graph.ops.rank[op]), int(graph.steps[graph.window[op]])
        wave = delay_wave(run, rank, step, 4 * MS, op)
        assert closes(wave), (op, wave)
        assert wave.changed_wall_ns == replay(graph, [delay(graph, rank, step, 4 * MS, op)]).wall_ns
        assert wave.op == op


def test_a_pipeline_absorbs_along_the_way(tmp_path: Path) -> None:
    rows = {0: "fwd 5 | SEND>1 0 | opt 20 | BAR 1", 1: "RECV<0 0 | fwd 9 | opt 2 | BAR 1"}
    run = opened(tmp_path, job(rows, steps=3))
    for op in range(len(run.graph)):
        rank, step = int(run.graph.ops.rank[op]), int(run.graph.steps[run.graph.window[op]])
        assert closes(delay_wave(run, rank, step, 7 * MS, op))


def test_many_ranks_are_in_blocks_and_gates_are_few(tmp_path: Path) -> None:
    run = opened(tmp_path, barriers(np.full((210, 70), 10.0 * MS), MS))
    wave = delay_wave(run, 69, 2, 5 * MS)
    assert len(wave.labels) == len(wave.late_ns) == 35
    assert len(wave.gates) == 200
    assert wave.reached_ranks == 70


def test_an_op_of_another_rank_is_refused(tmp_path: Path) -> None:
    run = opened(tmp_path, job(UNEVEN, steps=2))
    other = int(np.flatnonzero(run.graph.ops.rank == 1)[0])
    with pytest.raises(UsageError, match=f"op {other} is of rank 1 in step 0"):
        delay_wave(run, 0, 0, MS, other)
    with pytest.raises(UsageError, match=r"no such op; rows of ops\.parquet go from 0 to 7"):
        delay_wave(run, 0, 0, MS, 99)
    with pytest.raises(UsageError, match="no op of that rank"):
        delay_wave(run, 5, 0, MS)


def test_a_delay_of_nothing_moves_nothing(tmp_path: Path) -> None:
    wave = delay_wave(opened(tmp_path, job(UNEVEN, steps=2)), 1, 0, 0)
    assert (wave.saved_wall_ns, wave.gates, wave.absorbed, wave.reached_ranks) == (0, [], [], 0)


def test_gates_come_as_they_open_whatever_their_groups(tmp_path: Path) -> None:
    rows = {rank: f"fwd 5 | AR/{'a' if rank < 2 else 'b'} 1 | bwd 6 | AR 2" for rank in range(4)}
    run = opened(tmp_path, job(rows, steps=3))
    wave = delay_wave(run, 0, 1, 5 * MS)
    assert wave.gate_steps == [1, 1, 2, 2, 2]
    assert wave.late_ns[0] == [5 * MS, 5 * MS, 5 * MS, None, 5 * MS]
    assert wave.late_ns[2] == [None, 5 * MS, None, 5 * MS, 5 * MS]
