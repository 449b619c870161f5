"""Full graphs of scenarios: they replay exactly, give the grid's numbers, and everything else of taut works on them."""

from __future__ import annotations

import io
from dataclasses import replace
from math import sqrt
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.errors import UsageError
from taut.core.tables import Verb
from taut.diagnose.detectors import Evidence, diagnose
from taut.export import perfetto
from taut.graph import Graph, link
from taut.ledger import charge
from taut.project.noise import table
from taut.project.training import full_graph
from taut.project.training.grid import Grid, Sync, steps
from taut.project.training.scenario import Device, Fabric, Job, Model, Noise, Scenario, Tier
from taut.project.training.step_plan import Plan, plan
from taut.project.training.step_time import step_ns, without_noise
from taut.replay.blame import blame
from taut.replay.timeline import Change, batch, replay

ROUNDED = 3e-6
"""Works of a graph are whole nanoseconds, steps here some ten million, with up to a hundred ops one after the other."""

JOBS = [
    {"schedule": "1f1b", "pp": 4, "dp": 2, "tp": 2},
    {"schedule": "1f1b", "pp": 4},
    {"schedule": "1f1b", "dp": 4, "tp": 2, "steps_between_syncs": 3},
    {"schedule": "1f1b", "pp": 2, "dp": 3, "tp": 2, "cp": 2, "steps_between_syncs": 2},
    {"schedule": "gpipe", "pp": 4, "dp": 2},
    {"schedule": "gpipe", "pp": 2, "dp": 2, "cp": 2, "recompute": "full"},
    {"schedule": "interleaved", "pp": 4, "virtual_pp": 2, "dp": 2, "tp": 2},
    {"schedule": "interleaved", "pp": 2, "virtual_pp": 3, "dp": 3, "steps_between_syncs": 2},
    {"schedule": "interleaved", "virtual_pp": 2, "dp": 2, "sharding": "zero3"},
    {"schedule": "1f1b", "pp": 3, "dp": 2, "tp": 2, "first_stage_layers": 1, "last_stage_layers": 1},
    {"schedule": "interleaved", "pp": 2, "virtual_pp": 2, "dp": 2, "pipeline_overlap_share": 0.7},
]


def scenario(noise: Noise | None = None, **job: Any) -> Scenario:
    """Two layers in every chunk, eight micro-batches."""
    layers = 2 * job.get("pp", 1) * job.get("virtual_pp", 1)
    tiers = (
        Tier(name="island", devices=8, gb_per_s=300, latency_us=2),
        Tier(name="net", devices=1 << 20, gb_per_s=25, latency_us=10),
    )
    return Scenario(
        model=Model(layers=layers, hidden=1024, heads=16, sequence=1024), fabric=Fabric(name="fabric", tiers=tiers),
        device=Device(name="device", peak_tflops=312, memory_gb=80, memory_gb_per_s=2039, host_layer_us=0.0),
        job=Job(global_batch=8 * job.get("dp", 1), **job), noise=noise or Noise(distribution="none"),
    )  # fmt: skip


def with_noise(s: Scenario, p: Plan) -> Grid:
    """Every replica; what is computed strays, what is transferred does not."""
    sure = without_noise(s, p)
    computed = np.stack([p.forward_ns, p.backward_ns]) - p.transfer_ns
    tables = np.stack([table(s.noise, s.job.tp * s.job.cp, max(gates, 1)) for gates in p.gates])
    return replace(sure, fixed_ns=sure.fixed_ns - computed, drawn_ns=computed, tables=tables, replicas=s.job.dp)


def played(s: Scenario, p: Plan, grid: Grid, count: int, seed: int) -> Any:
    every = s.job.steps_between_syncs
    return steps(grid, count, seed, sync=Sync(every=every, sync_ns=p.sync_ns * every, after_ns=p.optimiser_ns))


@pytest.mark.parametrize("by", ["chunk", "layer"])
@pytest.mark.parametrize("job", JOBS, ids=str)
def test_without_noise_a_graph_takes_what_the_sweep_says(job: dict[str, Any], by: Literal["chunk", "layer"]) -> None:
    s, count = scenario(**job), 6
    made = full_graph.graph(s, without_noise(s, plan(s)), count, by=by)
    replayed = replay(made)
    assert (replayed.arrival_ns == made.ops.start_ns).all()
    assert (replayed.end_ns == made.ops.end_ns).all()
    assert replayed.window_ns.mean() == pytest.approx(step_ns(s), rel=ROUNDED)
    assert made.ranks.tolist() == list(range(s.job.world))


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_with_the_draws_of_the_grid_a_graph_has_its_step_times(job: dict[str, Any]) -> None:
    s = scenario(Noise(distribution="lognormal", spread=0.1), **job)
    p = plan(s)
    slow = np.random.default_rng(1).uniform(1, 1.3, (s.job.dp, s.job.pp))
    grid = replace(with_noise(s, p), slow=lambda step: slow)
    made = full_graph.graph(s, grid, 12, seed=5, p=p)
    assert replay(made).window_ns == pytest.approx(played(s, p, grid, 12, 5), rel=ROUNDED)


def test_a_hop_that_nobody_waits_to_send() -> None:
    s = scenario(Noise(spread=0.1), pp=4, dp=2)
    p = plan(s)
    grid = with_noise(s, p)
    eager = replace(grid, fixed_ns=np.zeros_like(grid.fixed_ns), hop_ns=p.hop_ns)
    made = full_graph.graph(s, eager, 6, seed=2, p=p)
    assert replay(made).window_ns == pytest.approx(played(s, p, eager, 6, 2), rel=ROUNDED)


@pytest.mark.parametrize(
    "noise",
    [
        Noise(distribution="gaussian", spread=0.1),
        Noise(distribution="lognormal", spread=0.3),
        Noise(distribution="pareto", tail=3.0),
    ],
    ids=lambda noise: noise.distribution,
)
def test_layers_drawn_apart_are_as_late_as_chunks_drawn_from_the_table(noise: Noise) -> None:
    s, count = scenario(noise, pp=2, dp=2, tp=4), 300
    p = plan(s)
    grid = with_noise(s, p)
    apart = replay(full_graph.graph(s, grid, count, seed=1, by="layer", p=p)).window_ns
    together = played(s, p, grid, 10 * count, 2)
    error = sqrt(apart.var() / count + together.var() / (10 * count))
    assert apart.mean() == pytest.approx(together.mean(), abs=4 * error)
    assert together.mean() > step_ns(s) * 1.02, "noise costs something here"


def linked(made: Graph) -> Graph:
    return link(full_graph.recorded(made))


@pytest.mark.parametrize("job", [job for job in JOBS if job.get("virtual_pp") != 3], ids=str)
def test_linked_again_from_its_trace_a_graph_is_the_same(job: dict[str, Any]) -> None:
    s = scenario(Noise(spread=0.1), **job)
    made = full_graph.graph(s, with_noise(s, plan(s)), 4, seed=3)
    again = linked(made)
    assert (replay(again).window_ns == replay(made).window_ns).all()
    assert len(again) == len(made)
    assert {name: again.counts[name] for name in made.counts} == dict(made.counts)
    columns = ("verb", "members", "expected", "opens_ns", "last_rank", "size")
    for name in columns:
        mine, theirs = (np.sort(getattr(g.gates, name)) for g in (made, again))
        assert (mine == theirs).all(), name


@pytest.mark.parametrize(("tp", "culprits"), [(1, {6}), (2, {12, 13})])
def test_slow_ranks_are_found_with_all_that_taut_has(tp: int, culprits: set[int]) -> None:
    s = scenario(Noise(spread=0.02), pp=2, dp=4, tp=tp)
    p = plan(s)
    slow = np.ones((4, 2))
    slow[2, 1] = 1.4
    made = full_graph.graph(s, replace(with_noise(s, p), slow=lambda step: slow), 24, seed=7, by="layer", p=p)
    observed = replay(made)
    blamed = blame(made, observed, observed)
    by_rank = blamed.matrix.sum(axis=1)
    assert by_rank[sorted(culprits)].sum() > 0.99 * by_rank.sum() > 0
    found = diagnose(Evidence(made, observed, blamed, batch(made)))
    assert found
    assert {rank for finding in found for rank in finding.ranks} <= culprits
    assert {stage for finding in found for stage in finding.stages} == {1}
    ledger = charge(made, observed, blamed, None)
    assert int(ledger.cells.rank_ns.sum()) == s.job.world * observed.wall_ns
    out = io.BytesIO()
    perfetto(made, blamed.waits, [], out)
    assert len(out.getvalue()) > len(made)


@pytest.mark.parametrize(
    ("job", "starts"),
    [
        ({"dp": 2}, []),
        ({"dp": 2, "overlap_share": 0.5}, ["data-parallel transfers that hide"]),
        ({"dp": 2, "sharding": "zero3"}, ["the gathering of sharded parameters"]),
    ],
)
def test_what_a_graph_leaves_out_is_reported(job: dict[str, Any], starts: list[str]) -> None:
    s = scenario(**job)
    made = full_graph.graph(s, without_noise(s, plan(s)), 2)
    assert len(made.partial) == len(starts)
    assert all(line.startswith(start) for line, start in zip(made.partial, starts, strict=True))


def test_hops_and_meetings_name_their_ranks() -> None:
    s = scenario(pp=2, dp=2, tp=2)
    made = full_graph.graph(s, without_noise(s, plan(s)), 1)
    ops, names = made.ops, np.array(made.names)[made.ops.name]
    sends = names == "forward-send"
    assert set(zip(ops.rank[sends].tolist(), ops.peer[sends].tolist(), strict=True)) == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert made.trace.group_ranks == {
        "tensor 0": [0, 1], "tensor 1": [2, 3], "tensor 2": [4, 5], "tensor 3": [6, 7],
        "data 0": [0, 2], "data 1": [1, 3], "data 2": [4, 6], "data 3": [5, 7],
        "replica 0": [0, 1, 4, 5], "replica 1": [2, 3, 6, 7],
    }  # fmt: skip
    met = ops.verb == Verb.ALL_REDUCE
    assert {made.trace.groups[g].split(" ")[0] for g in ops.group[met]} == {"tensor", "data", "replica"}


@settings(max_examples=25)
@given(st.sampled_from(JOBS), st.integers(0, 1 << 30), st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=20))
def test_criticality_over_any_cut_is_one(job: dict[str, Any], seed: int, moments: list[float]) -> None:
    """Whatever was going on at a moment cuts the graph; one critical op was among it, and nothing but work is on its path."""
    s = scenario(Noise(distribution="lognormal", spread=0.3), **job)
    p = plan(s)
    made = full_graph.graph(s, with_noise(s, p), 3, seed)
    played = replay(made)
    begin, end = played.end_ns - played.work_ns, played.end_ns
    wall = int(end.max())
    assert played.work_ns[played.critical].sum() == wall
    for moment in moments:
        at = int(moment * wall)
        assert (played.critical & (begin <= at) & (at < end)).sum() == 1


@settings(max_examples=10)
@given(st.sampled_from(JOBS), st.integers(0, 1 << 30), st.floats(0.0, 1.0, exclude_max=True))
def test_the_step_moves_with_an_op_as_often_as_that_is_critical(job: dict[str, Any], seed: int, which: float) -> None:
    """∂E[T]/∂w = P(critical): the wall is convex in the work of an op, so the quotient lies between both ends' criticality."""
    s = scenario(Noise(distribution="lognormal", spread=0.3), **job)
    made = full_graph.graph(s, with_noise(s, plan(s)), 4, seed)
    op, extra = int(which * len(made.ops)), 100_000
    before, after = replay(made), replay(made, [Change([op], "work", "add", extra)])
    gained = (after.end_ns.max() - before.end_ns.max()) / extra
    assert before.critical[op] <= gained <= after.critical[op]


def test_a_job_too_large_for_a_graph_is_refused() -> None:
    s = scenario(pp=4, dp=512, tp=8)
    with pytest.raises(UsageError, match="more than a full graph may have"):
        full_graph.graph(s, without_noise(s, plan(s)), 100)
