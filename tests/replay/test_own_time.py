"""Own time: what a rank takes for a step when everybody it meets is there; closed forms of small jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import taut
from taut.replay.own_time import OwnTime, median_of_others, own_time
from taut.replay.timeline import replay

Times = list[list[float]]
RANKS, STEPS, ON = 4, 6, 3
"""A job in which rank 1 takes 5 ms more from step 3 on, in ways that differ only by what the time is called."""


def ops(extra: Callable[[float], list[tuple[str, float, float]]]) -> str:
    """Computes of 10 ms, then a collective of 1 ms; ``extra``: what rank 1 does from step 3 on (name, gap before, length)."""
    lines = ["rank,step,class,start_ms,duration_ms"]
    begin = 0.0
    for step in range(STEPS):
        late = 5.0 if step >= ON else 0.0
        for rank in range(RANKS):
            at = begin
            for name, gap, length in extra(late) if rank == 1 and late else [("forward", 0.0, 10.0)]:
                lines.append(f"{rank},{step},{name},{at + gap:.3f},{length:.3f}")
                at += gap + length
            lines.append(f"{rank},{step},all-reduce,{at:.3f},{begin + 11 + late - at:.3f}")
        begin += 11 + late
    return "\n".join(lines) + "\n"


WAYS = {
    "longer": lambda late: [("forward", 0.0, 10.0 + late)],
    "other name": lambda late: [("forward", 0.0, 10.0), ("other", 0.0, late)],
    "one more": lambda late: [("forward", 0.0, 10.0), ("forward", 0.0, late)],
    "a gap": lambda late: [("forward", late, 10.0)],
}


def read(tmp_path: Path, table: str) -> OwnTime:
    (tmp_path / "ops.csv").write_text(table)
    graph = taut.link(taut.read([tmp_path / "ops.csv"]))
    return own_time(graph, replay(graph))


@pytest.mark.parametrize("way", WAYS)
def test_time_counts_whatever_it_is_called(tmp_path: Path, way: str) -> None:
    own = read(tmp_path, ops(WAYS[way]))
    expected = np.full((RANKS, STEPS), 10e6)
    expected[1, ON:] += 5e6
    assert own.is_known
    np.testing.assert_array_equal(own.ns, expected)
    np.testing.assert_array_equal(own.reference_ns, np.full((RANKS, STEPS), 10e6))


@pytest.mark.parametrize("way", WAYS)
def test_a_replay_with_shorter_own_times_saves_what_peers_do_not_need(tmp_path: Path, way: str) -> None:
    own = read(tmp_path, ops(WAYS[way]))
    fixed = replay(own.graph, own.shortened(own.ns - own.reference_ns))
    np.testing.assert_array_equal(fixed.window_ns, np.full(STEPS, 11e6))


def test_a_gap_over_several_steps_is_divided_among_them(tmp_path: Path) -> None:
    table = "rank,step,class,start_ms,duration_ms\n"
    table += "".join(f"0,{step},work,{10 * step},10\n" for step in range(2))
    table += "1,0,work,0,4\n1,1,work,15,3\n"  # idle from 4 to 15 ms: 6 ms of it in the first step, 5 in the second
    own = read(tmp_path, table)
    assert own.ns.tolist() == [[10e6, 10e6], [10e6, 8e6]]
    halved = replay(own.graph, own.shortened(own.ns / 2))
    assert halved.window_ns.tolist() == [5e6, 5e6]


def test_a_rank_alone_has_no_reference(tmp_path: Path) -> None:
    own = read(tmp_path, "rank,step,class,start_ms,duration_ms\n0,0,work,0,10\n0,1,work,10,10\n")
    assert (own.ns.tolist(), own.is_known, np.isnan(own.reference_ns).all()) == ([[10e6, 10e6]], True, True)


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.sampled_from([1.0, 2, 3, 5, np.nan]))
)
def test_the_median_of_others_leaves_one_out(values: np.ndarray) -> None:
    found = median_of_others(values, np.zeros(len(values), np.int64))
    for rank in range(len(values)):
        others = np.delete(values, rank, axis=0)
        for step in range(values.shape[1]):
            rest = others[:, step][~np.isnan(others[:, step])]
            assert found[rank, step] == np.median(rest) if len(rest) else np.isnan(found[rank, step])


def test_a_run_folder_keeps_own_times(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "ops.csv").write_text(ops(WAYS["a gap"]))
    table = pq.read_table(taut.analyze([tmp_path / "ops.csv"]).save(tmp_path / "run") / "own_time.parquet").to_pydict()
    assert list(table) == ["rank", "step", "own_ns", "reference_ns"]
    rows = list(zip(*table.values(), strict=True))
    assert rows[STEPS] == (1, 0, 10_000_000, 10_000_000)
    assert rows[2 * STEPS - 1] == (1, 5, 15_000_000, 10_000_000)
