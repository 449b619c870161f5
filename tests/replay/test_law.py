"""The replay law: without changes, a replay gives back every start and every end to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, analyze, job
from jobs import jobs, nonsense
from taut.core.tables import Trace
from taut.graph import Graph, link
from taut.replay.timeline import Change, Timeline, batch, replay
from taut.run import open_run


def assert_reproduced(built: Trace, graph: Graph, timeline: Timeline) -> None:
    """Every kept op of the trace is back at its place, in absolute time, clocks aligned."""
    ops = built.ops.take(np.isin(built.ops.step, graph.steps))
    shift = graph.clock.offset_ns[np.searchsorted(graph.clock.rank, ops.rank)]
    origin = graph.origin_ns[graph.segment[graph.window]]
    seen = sorted(zip(ops.rank, ops.step, ops.name, ops.start_ns - shift, ops.end_ns - shift, strict=True))
    g = graph.ops
    again = sorted(zip(g.rank, g.step, g.name, timeline.arrival_ns + origin, timeline.end_ns + origin, strict=True))
    assert again == seen
    assert (graph.gap_ns >= 0).all()
    assert (graph.work_ns >= 0).all()


@settings(max_examples=150)
@given(jobs())
def test_a_replay_reproduces_a_job_to_the_nanosecond(built: Trace) -> None:
    """Replay law, on jobs with every verb, several lanes, launches, skewed and shivering clocks."""
    graph = link(built)
    assert_reproduced(built, graph, replay(graph))


@settings(max_examples=300)
@given(nonsense())
def test_a_replay_reproduces_nonsense_to_the_nanosecond(built: Trace) -> None:
    """Replay law, on traces that contradict themselves: gaps, lags and dropped edges must absorb everything."""
    graph = link(built)
    assert_reproduced(built, graph, replay(graph))


@settings(max_examples=60)
@given(jobs(), st.integers(0, 1 << 32))
def test_a_batch_is_single_replays_side_by_side(built: Trace, seed: int) -> None:
    """Column k of a batch equals the replay in which only the ops of key k take the other work and gap."""
    graph = link(built)
    rng = np.random.default_rng(seed)
    key = rng.integers(-1, 40, size=len(graph))
    other, other_gap = rng.integers(0, 10 * MS, size=(2, len(graph)))
    walls = batch(graph).walls(graph.work_ns, other, key, 40, graph.gap_ns, other_gap)
    for k in range(40):
        mine = np.flatnonzero(key == k)
        changes = [Change(mine, "work", "set", other[mine]), Change(mine, "gap", "set", other_gap[mine])]
        assert walls[:, k].tolist() == replay(graph, changes).window_ns.tolist()


@settings(max_examples=60)
@given(jobs(), st.integers(0, 1 << 32))
def test_a_batch_over_ranks_lanes_and_gates_is_single_replays(built: Trace, seed: int) -> None:
    """The cuts that what-ifs make (along chains, blind to them, or neither), asked together, with gaps or without."""
    graph = link(built)
    other = np.random.default_rng(seed).integers(0, 10 * MS, size=len(graph))
    cuts = [graph.rank_index, graph.ops.lane, np.where(graph.gate >= 0, graph.ops.rank, -1), graph.window]
    for gap in (graph.gap_ns, np.zeros_like(graph.gap_ns)):
        asked = [(np.asarray(key, dtype=np.int64), int(key.max()) + 1) for key in cuts if key.max() >= 0]
        for (key, keys), walls in zip(asked, batch(graph).many(graph.work_ns, other, asked, gap), strict=True):
            for k in range(keys):
                mine = np.flatnonzero(key == k)
                single = replay(graph, [Change(mine, "work", "set", other[mine])], gaps=bool(gap.any()))
                assert walls[:, k].tolist() == single.window_ns.tolist()


@settings(max_examples=60)
@given(jobs(), st.integers(0, 1 << 32))
def test_changes_compose(built: Trace, seed: int) -> None:
    """Two changes of different ops in one replay, in any order, equal one change of both; and undoing restores."""
    graph = link(built)
    rng = np.random.default_rng(seed)
    half = rng.random(len(graph)) < 0.5
    a, b = np.flatnonzero(half), np.flatnonzero(~half)
    work = rng.integers(0, 10 * MS, size=len(graph))
    one, other = Change(a, "work", "set", work[a]), Change(b, "work", "set", work[b])
    together = replay(graph, [Change(np.arange(len(graph)), "work", "set", work)]).end_ns
    assert (replay(graph, [one, other]).end_ns == together).all()
    assert (replay(graph, [other, one]).end_ns == together).all()
    undo = Change(a, "work", "set", graph.work_ns[a])
    assert (replay(graph, [one, undo]).end_ns == graph.ops.end_ns).all()


@settings(max_examples=60)
@given(jobs(), st.integers(0, 1 << 32))
def test_a_replay_is_monotone_and_never_faster_than_its_delay(built: Trace, seed: int) -> None:
    """Max-plus: a delay of d at one op makes nothing earlier, and nothing later by more than d."""
    graph = link(built)
    op = seed % len(graph)
    later = replay(graph, [Change([op], "gap", "add", MS)]).end_ns - graph.ops.end_ns
    assert later[op] == MS or graph.wait[op] >= 0
    assert later.min() >= 0
    assert later.max() <= MS


def test_fidelity_counts_what_the_replay_had_to_absorb() -> None:
    """Fidelity: exact replay, the gap-free error is the idle time, starts are explained by edges."""
    done = analyze(job({0: "fwd 10 | . 2 | bwd 10 | AR 1", 1: "fwd 10 | . 2 | bwd 10 | AR 1"}, steps=4))
    fidelity = done.result["fidelity"]
    assert fidelity["replay_error"] == 0.0
    assert fidelity["gapfree_error"] == pytest.approx(21 / 23 - 1)
    assert fidelity["dropped_edges"] == 0
    # All starts but the very first of each rank follow an op; the 2 ms gap before bwd is more than a tenth of it.
    assert fidelity["explained_share"] == pytest.approx((3 * 8 - 2 - 8) / (3 * 8))


@settings(max_examples=8)
@given(built=jobs())
def test_a_run_folder_replays_like_the_run(tmp_path_factory: pytest.TempPathFactory, built: Trace) -> None:
    """Saving and opening a run keeps the replay, the references and the printed result."""
    done = analyze(built)
    folder = done.save(tmp_path_factory.mktemp("run") / "run")
    again = open_run(folder)
    assert (replay(again.graph).end_ns == done.observed.end_ns).all()
    assert (replay(again.graph, gaps=False).end_ns == done.gap_free.end_ns).all()
    np.testing.assert_array_equal(again.reference_ns, done.blame.peers.value_ns)
    delay = [Change(np.arange(len(done.graph)), "work", "scale", 1.5)]
    assert replay(again.graph, delay).wall_ns == replay(done.graph, delay).wall_ns
    assert sorted(p.name for p in Path(folder).iterdir())[-1] == "waits.parquet"
