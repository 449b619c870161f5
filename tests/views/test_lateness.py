"""Who waited for whom: the rank at fault, not the one that passes the delay on; groups where ranks are many."""

from __future__ import annotations

import numpy as np
import pytest

from build import MS, analyze, barriers, job
from taut.core.tables import Trace
from taut.replay.blame import blame
from taut.replay.timeline import replay
from taut.result.brief_types import RankLateness
from taut.views.lateness import MOST, lateness


def late(ranks: int, slow: int, steps: int = 12, **about: object) -> Trace:
    work = np.full((steps, ranks), 10.0 * MS) * np.random.default_rng(1).normal(1, 0.005, (steps, ranks))
    work[:, slow] *= 1.5
    return barriers(work, MS, **about)


def found(trace: Trace, ops: int = 1_000_000) -> RankLateness:
    out = lateness(analyze(trace).graph, ops)
    assert out is not None
    return out


def by_cause(some: RankLateness) -> dict[str, float]:
    sums: dict[str, float] = {}
    for cause, share in zip(some.cause, some.share, strict=True):
        sums[some.labels[cause]] = sums.get(some.labels[cause], 0.0) + share
    return sums


def test_the_rank_at_fault_causes_all_waiting() -> None:
    out = found(late(4, slow=2))
    assert by_cause(out) == pytest.approx({"rank 2 (node)": 1.0}, abs=0.01)
    assert {out.labels[victim] for victim in out.victim} == {"rank 0 (node)", "rank 1 (node)", "rank 3 (node)"}
    assert out.first_steps is None


def test_what_has_a_cause_is_told_of_all_waiting() -> None:
    graph = analyze(late(4, slow=2)).graph
    out = lateness(graph)
    assert out is not None
    assert out.covered_share is not None
    observed = replay(graph)
    blamed = blame(graph, observed, replay(graph, gaps=False))
    assert out.covered_share * observed.wait_ns.sum() == pytest.approx(blamed.pairs.ns.sum())
    assert 0.9 < out.covered_share < 1.0  # the rest is jitter


def test_many_ranks_are_grouped_by_host() -> None:
    hosts = {rank: f"gpu-{rank // 8}.example" for rank in range(40)}
    assert by_cause(found(late(40, slow=11, hosts=hosts))) == pytest.approx({"gpu-1": 1.0}, abs=0.01)


def test_many_ranks_without_hosts_are_blocks_of_neighbours() -> None:
    out = found(late(70, slow=69))
    assert len(out.labels) <= MOST
    assert out.labels[:2] == ["ranks 0–2", "ranks 3–5"]
    assert by_cause(out) == pytest.approx({"rank 69": 1.0}, abs=0.01)


def test_of_a_large_job_the_first_steps_are_looked_at() -> None:
    trace = late(4, slow=2, steps=40)
    out = found(trace, ops=160)  # eight ops a step
    assert out.first_steps == 20
    assert by_cause(out) == pytest.approx({"rank 2 (node)": 1.0}, abs=0.02)


def test_nobody_waits_for_nobody() -> None:
    assert lateness(analyze(job({0: "fwd 5", 1: "fwd 5"}, steps=3)).graph) is None
