"""What-if: the batched decomposition against brute force, one replay per question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, job, one_f_one_b, play
from taut.core.errors import UsageError
from taut.core.tables import Trace
from taut.graph import Graph, link
from taut.replay.blame import blame
from taut.replay.reference import across
from taut.replay.timeline import Change, replay
from taut.replay.whatif import decompose, delay, dimensions, fix

STAGES, DP = 4, 2


def pipeline(seed: int = 0, slow: float = 1.4) -> Trace:
    """4 stages × 2 data-parallel ranks, 3 steps; stage 1 of data-parallel rank 1 is slow, the last stage long."""

    def scale(stage: int, dp_rank: int) -> float:
        return slow if (stage, dp_rank) == (1, 1) else 1.2 if stage == STAGES - 1 else 1.0

    ops = one_f_one_b(STAGES, 6, 10, 20, 1, dp=DP, steps=3, scale=scale, noise=0.05, seed=seed)
    ranks = range(STAGES * DP)
    return play(ops, relative=True, stage={r: r % STAGES for r in ranks}, dp_rank={r: r // STAGES for r in ranks})


def wall(graph: Graph, work: Any, gaps: bool = False) -> int:
    """Wall of one replay with this work."""
    return replay(graph, [Change(np.arange(len(graph)), "work", "set", work)], gaps=gaps).wall_ns


@pytest.fixture(scope="module")
def graph() -> Graph:
    return link(pipeline())


def test_actual_and_ideal_are_gap_free(graph: Graph) -> None:
    """S = observed without gaps ÷ everything at its reference without gaps."""
    whatif = decompose(graph)
    assert whatif.actual_wall_ns == replay(graph, gaps=False).wall_ns
    assert whatif.ideal_wall_ns == wall(graph, across(graph))
    assert whatif.slowdown == whatif.actual_wall_ns / whatif.ideal_wall_ns


def test_the_reference_is_the_mean_of_computes_and_the_median_of_transfers(graph: Graph) -> None:
    """Over ranks, stages and steps of a class."""
    reference = across(graph)
    for name in ("forward-compute", "optimizer"):
        mine = graph.ops.name == list(graph.names).index(name)
        assert (reference[mine] == round(graph.work_ns[mine].mean())).all()
    hops = graph.ops.name == list(graph.names).index("forward")
    assert np.abs(reference[hops] - np.median(graph.work_ns[hops])).max() <= 1


@pytest.mark.parametrize("dimension", ["rank", "stage", "dp_rank", "class", "link", "gate"])
def test_by_equals_one_replay_per_key(graph: Graph, dimension: str) -> None:
    """By X: everything ideal except X, ÷ ideal; each key against a replay of its own."""
    by = decompose(graph).by[dimension]
    cut = next(d for d in dimensions(graph) if d.name == dimension)
    ideal_work = across(graph)
    ideal = wall(graph, ideal_work)
    assert list(by) == cut.labels
    for k, label in enumerate(cut.labels):
        alone = wall(graph, np.where(cut.key == k, graph.work_ns, ideal_work))
        assert by[label] == pytest.approx(alone / ideal, rel=1e-12), label


def test_worst_ranks_is_the_share_that_idealising_them_recovers(graph: Graph) -> None:
    """M_W: the worst 3 % of the workers (at least one), by the smaller of their dp-rank and stage slowdown."""
    whatif = decompose(graph)
    ideal_work, members = across(graph), graph.members
    score = [
        min(whatif.by["dp_rank"][str(d)], whatif.by["stage"][str(s)])
        for d, s in zip(members.dp_rank, members.stage, strict=True)
    ]
    worst = members.rank[int(np.argmax(score))]
    fixed = wall(graph, np.where(graph.ops.rank == worst, ideal_work, graph.work_ns))
    expected = (whatif.actual_wall_ns - fixed) / (whatif.actual_wall_ns - whatif.ideal_wall_ns)
    assert worst == STAGES + 1
    assert whatif.worst_ranks == pytest.approx(expected, rel=1e-12)


def test_last_stage_is_the_share_that_idealising_it_recovers(graph: Graph) -> None:
    """M_S: the same for the last stage."""
    whatif = decompose(graph)
    last = np.isin(graph.ops.rank, graph.members.rank[graph.members.stage == STAGES - 1])
    fixed = wall(graph, np.where(last, across(graph), graph.work_ns))
    expected = (whatif.actual_wall_ns - fixed) / (whatif.actual_wall_ns - whatif.ideal_wall_ns)
    assert whatif.last_stage == pytest.approx(expected, rel=1e-12)


def test_a_job_that_is_ideal_has_slowdown_one_and_nothing_to_explain() -> None:
    """No noise, no fault: S = 1, every by is 1, M_W and M_S are null."""
    whatif = decompose(link(job(dict.fromkeys(range(4), "fwd 5 | AR 1"), steps=3)))
    assert whatif.slowdown == 1
    assert all(value == 1 for keys in whatif.by.values() for value in keys.values())
    assert whatif.worst_ranks is None
    assert whatif.last_stage is None


def test_fixing_a_rank_sets_its_work_to_its_peers_and_keeps_gaps() -> None:
    """Rank 1 computes 14 ms where its peers take 10: fixed, the step is 4 ms shorter; the idle 3 ms stay."""
    trace = job({r: f"fwd {14 if r == 1 else 10} | . 3 | AR 1" for r in range(4)}, steps=5)
    graph = link(trace)
    observed = replay(graph)
    reference = blame(graph, observed, replay(graph, gaps=False)).peers.value_ns
    assert observed.wall_ns - replay(graph, [fix(graph, reference, "rank", "1")]).wall_ns == 5 * 4 * MS
    assert replay(graph, [fix(graph, reference, "rank", "2")]).wall_ns == observed.wall_ns


@pytest.mark.parametrize(("dimension", "label"), [("rank", "9"), ("planet", "1"), ("stage", "0")])
def test_a_question_that_does_not_fit_is_refused_by_name(dimension: str, label: str) -> None:
    """The message names what was asked and what there is."""
    graph = link(job({0: "fwd 5 | AR 1", 1: "fwd 5 | AR 1"}))
    with pytest.raises(UsageError, match=f"{dimension}={label}"):
        fix(graph, graph.work_ns.astype(float), dimension, label)


def test_a_delay_is_absorbed_by_slack_or_passed_on() -> None:
    """Rank 0 has 4 ms of slack at the gate: a delay of 3 moves nothing, one of 6 moves the wall by 2."""
    graph = link(job({0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}, steps=3))
    before = replay(graph).wall_ns
    assert replay(graph, [delay(graph, 0, 1, 3 * MS)]).wall_ns == before
    assert replay(graph, [delay(graph, 0, 1, 6 * MS)]).wall_ns == before + 2 * MS
    assert replay(graph, [delay(graph, 1, 1, 6 * MS)]).wall_ns == before + 6 * MS


def test_removing_a_gate_lets_everybody_run_free() -> None:
    """Without its all-reduces the job takes as long as its slowest rank alone."""
    work = np.random.default_rng(0).integers(1, 100, size=(20, 4)) * MS
    graph = link(barriers(work))
    free = replay(graph, [Change(np.flatnonzero(graph.gate >= 0), "gate", "remove")])
    assert free.wall_ns == work.sum(axis=0).max()


def test_recoverable_is_a_replay_and_not_the_blame() -> None:
    """Two ranks equally slow: each is blamed, fixing either alone recovers nothing."""
    done = analyze(job({r: f"fwd {20 if r < 2 else 10} | AR 1" for r in range(8)}, steps=6))
    for cause in done.result["blame"]:
        assert cause["recoverable_wall_ns"] == 0


def test_a_launch_that_outlasts_its_kernel_still_ends_the_step() -> None:
    """The last op to end may have a successor: a batch must see it like a single replay does."""
    graph = link(play([Do(0, "call", 10 * MS), Do(0, "kernel", MS, lane=1, launch=0, idle=MS)]))
    assert decompose(graph).actual_wall_ns == replay(graph, gaps=False).wall_ns == 10 * MS
