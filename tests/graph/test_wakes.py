"""What a lane waits for on another: held against modelled jobs, whose counterfactual is known, and against chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from build import MS, trace
from taut.core.tables import Kind, Table, Trace
from taut.graph import Graph, link
from taut.lab.modelled import JOBS, modelled
from taut.replay.timeline import Change, replay
from taut.run import analyze_trace

RANKS = 32


def in_program_order(ops: Table) -> Any:
    """Rows by rank, step, lane and place in it: the same for every run of a job."""
    return np.lexsort((ops.start_ns, ops.part, ops.name, ops.lane, ops.step, ops.rank))


def saved_ns(graph: Graph, healthy: Trace) -> int:
    """What a replay saves in which all own work takes as long as in the healthy run."""
    kept = healthy.ops.take(healthy.ops.step > 0)
    here, there = in_program_order(graph.ops), in_program_order(kept)
    own = graph.ops.kind[here] != Kind.COMMUNICATE
    work = (kept.end_ns - kept.start_ns)[there][own]
    return replay(graph).wall_ns - replay(graph, [Change(here[own], "work", "set", work)]).wall_ns


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fault", ["slow", "stall", "loader"])
@pytest.mark.parametrize("job", JOBS)
def test_mending_saves_what_it_would_have_saved(job: str, fault: str, seed: int) -> None:
    """Also where the fault kept lanes busy, which hides what their ops need, and the replay stays exact."""
    built, truth = modelled(job, fault, RANKS, seed)
    graph = link(built)
    assert (replay(graph).end_ns == graph.ops.end_ns).all()
    assert graph.dropped_edges == 0
    assert saved_ns(graph, modelled(job, "none", RANKS, seed)[0]) == pytest.approx(truth.saving_ns[0], rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_communication_that_waits_for_communication_passes_the_fault_on(seed: int) -> None:
    """Sharded and replicated: the slow rank is found, because its all-reduce follows its reduce-scatter."""
    built, truth = modelled("hsdp", "slow", RANKS, seed)
    first = analyze_trace(built).findings[0]
    assert first.ranks == truth.injected[0].ranks
    assert first.recoverable_wall_ns == pytest.approx(truth.saving_ns[0], rel=0.25)


def two_lanes(seed: int, steps: int, together: int) -> Trace:
    """Two lanes of communication that know nothing of each other; in some steps one begins, on all ranks, as the other ends."""
    rng, ranks = np.random.default_rng(seed), 8
    rank, step, lane = (axis.ravel() for axis in np.indices((ranks, steps, 2)))
    start = 100 * MS * step + rng.integers(5 * MS, 40 * MS, (steps, 2))[step, lane] + rng.integers(0, 10_000, len(rank))
    end = start + 10 * MS
    woken = np.flatnonzero((lane == 1) & (step < together))
    start[woken] = end[woken - 1] + 5_000
    columns: dict[str, Any] = {
        "rank": rank, "step": step, "lane": lane, "name": lane, "kind": np.full(len(rank), Kind.COMMUNICATE),
        "start_ns": start, "end_ns": np.maximum(end, start + 10 * MS),
    }  # fmt: skip
    return trace(columns, ["a", "b"])


def across(graph: Graph) -> int:
    """Edges between lanes, those that only anchor an op in time left out."""
    target = np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr))
    crosses = (graph.ops.lane[graph.pred] != graph.ops.lane[target]) & (graph.lag_ns > -MS)
    return int(crosses.sum())


@pytest.mark.parametrize("seed", range(5))
def test_lanes_of_one_kind_that_meet_by_chance_are_strangers(seed: int) -> None:
    """Twice in twelve steps on all ranks is chance; in all of them it is a cause, of every op."""
    assert across(link(two_lanes(seed, steps=12, together=2))) == 0
    assert across(link(two_lanes(seed, steps=12, together=12))) == 8 * 12
