"""One engine: whatever the job, a generated graph that is replayed and the grid give the same timeline, and the same spread.

The sweep of the grid (``simulate_step`` and the gates behind it) is a replay that has no edges in memory. Random jobs hold it
to that: schedules, uneven stages, chunks, replicas, tensor and context parallelism, sharding, local steps, gates, pauses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as change
from scipy.stats import ks_2samp

from taut.project.noise import Slowness, table
from taut.project.pauses import ALL, Law, Pauses
from taut.project.training import forecast as forecasting
from taut.project.training import full_graph
from taut.project.training import policy_effects as effects
from taut.project.training.forecast import forecast, is_replayed, with_noise
from taut.project.training.grid import Grid, Sync, follow_gates, steps
from taut.project.training.scenario import Device, Fabric, Job, Model, Noise, Policies, Scenario, Tier
from taut.project.training.step_plan import Plan, plan
from taut.project.training.step_time import split_work, without_noise
from taut.replay.timeline import replay

STEPS = 7
JOBS = 60
SIZE = 0.001
"""Chance that any of the comparisons of spreads fails by chance."""


def random_job(rng: np.random.Generator) -> Scenario:
    """Any job that a scenario can describe and a graph can hold."""
    schedule = str(rng.choice(["1f1b", "gpipe", "interleaved"]))
    pp, dp, tp, cp = int(rng.integers(1, 5)), int(rng.integers(1, 7)), int(rng.choice([1, 2])), int(rng.choice([1, 1, 2]))
    chunks = int(rng.integers(2, 4)) if schedule == "interleaved" else 1
    gate = str(rng.choice(["barrier", "barrier", "ring", "stale", "hierarchical", "none"])) if dp > 1 else "barrier"
    slack = 0 if gate in ("barrier", "none") else int(rng.integers(1, 4))
    layers = int(rng.integers(2 * pp * chunks, 3 * pp * chunks))
    groups = [n for n in range(1, dp + 1) if dp % n == 0]
    job = Job(
        global_batch=dp * pp * int(rng.integers(1, 4)), dp=dp, tp=tp, pp=pp, cp=cp, virtual_pp=chunks, schedule=schedule,
        sharding=str(rng.choice(["none", "zero1", "zero2", "zero3", "hsdp"])), recompute=str(rng.choice(["none", "full"])),
        sequence_parallel=bool(rng.random() < 0.5), steps_between_syncs=int(rng.choice([1, 1, 2, 3])),
        pipeline_overlap_share=float(rng.choice([0.0, 0.0, 0.5, 1.0])), tensor_overlap_share=float(rng.choice([0.0, 0.5])),
    )  # fmt: skip
    tiers = (
        Tier(name="island", devices=8, gb_per_s=300, latency_us=2),
        Tier(name="net", devices=1 << 20, gb_per_s=25, latency_us=10),
    )
    return Scenario(
        model=Model(layers=layers, hidden=1024, heads=16, sequence=1024), fabric=Fabric(name="fabric", tiers=tiers),
        device=Device(name="device", peak_tflops=312, memory_gb=80, memory_gb_per_s=2039, host_layer_us=0.0), job=job,
        noise=Noise(distribution="none", step_spread=0.0, ranks_spread=0.0),
        policy=Policies(
            gate=gate, slack=slack, group_replicas=int(rng.choice(groups)) if gate == "hierarchical" else 0
        ),
    )  # fmt: skip


def whole(p: Plan) -> Plan:
    """The plan in whole nanoseconds, as a graph has them."""
    return replace(
        p, forward_ns=np.rint(p.forward_ns), backward_ns=np.rint(p.backward_ns), hop_ns=float(round(p.hop_ns)),
        transfer_ns=np.rint(p.transfer_ns), sync_ns=float(round(p.sync_ns)), optimiser_ns=float(round(p.optimiser_ns)),
        late_ns=float(round(p.late_ns)),
    )  # fmt: skip


def on_grid(s: Scenario, p: Plan, grid: Grid, seed: int = 0) -> Any:
    """Steps × replicas: when each replica has ended a step."""
    every = s.job.steps_between_syncs
    sync = Sync(effects.gate(s), every, p.sync_ns * every, p.optimiser_ns)
    zero = np.zeros(grid.replicas)
    ends = (grid.simulate(zero, k, seed, grid.delays(k)).ends for k in range(STEPS))
    return np.stack([begin[:, 0] for _, begin in follow_gates(ends, sync)])


@pytest.mark.parametrize("seed", range(JOBS))
def test_without_noise_both_give_the_same_timeline_to_the_nanosecond(seed: int) -> None:
    s = random_job(np.random.default_rng(seed))
    p = whole(plan(s))
    grid = replace(without_noise(s, p), replicas=s.job.dp)
    assert (full_graph.replica_ends(s, full_graph.graph(s, grid, STEPS, p=p)) == on_grid(s, p, grid)).all()


@pytest.mark.parametrize("seed", range(JOBS // 2))
def test_with_the_same_draws_both_give_the_same_timeline(seed: int) -> None:
    """Draws, slow devices and pauses; an op of the graph is rounded to a whole nanosecond, some hundred follow each other."""
    rng = np.random.default_rng((seed, 1))
    s = random_job(rng)
    p, shape = whole(plan(s)), (s.job.dp, s.job.pp, s.job.tp * s.job.cp)
    fixed, drawn = split_work(p)
    noise = Noise(distribution=str(rng.choice(["lognormal", "exponential"])), spread=0.2, step_spread=0.1, ranks_spread=0.1)
    laws = (Law(int(rng.choice([1, 2, 8, ALL])), 0.2, 2e7, 0.5, 2.0), Law(1, 0.3, 1e6, regular=True))
    tables = np.stack([table(noise, 2, 4)] * 2)

    def grid() -> Grid:
        return Grid(
            without_noise(s, p).program, fixed, drawn, tables, p.late_ns, s.job.dp, Slowness(noise, shape, seed),
            pauses=Pauses(laws, shape, seed),
        )  # fmt: skip

    made = full_graph.graph(s, grid(), STEPS, seed, p=p)
    late = full_graph.replica_ends(s, made) - on_grid(s, p, grid(), seed)
    assert abs(late).max() < STEPS * (len(grid().program) + 4)


@pytest.mark.parametrize("seed", range(8))
def test_with_its_own_draws_for_every_rank_and_layer_a_graph_has_the_same_spread(seed: int) -> None:
    """The grid draws a chunk of a whole group at once. Two-sample Kolmogorov-Smirnov over 240 steps of each; power: a shift of
    a quarter of the standard deviation is seen with a chance of about one half."""
    rng = np.random.default_rng((seed, 2))
    s = change(random_job(rng), policy=Policies())
    noise = Noise(distribution=str(rng.choice(["lognormal", "gaussian"])), spread=0.2, step_spread=0.0, ranks_spread=0.0)
    s = change(s, noise=noise, job=change(s.job, steps_between_syncs=1))
    p, count = plan(s), 240
    grid = with_noise(s, p, seed)
    parts = [max(n, 1) for n in p.gates]
    # As many parts as the graph has: a stage without meetings inside does its layers in one.
    tables = np.stack([table(noise, s.job.tp * s.job.cp, n, seed) for n in parts])
    grid = replace(grid, tables=tables)
    together = steps(grid, count, seed + 100, Sync(sync_ns=p.sync_ns, after_ns=p.optimiser_ns))
    apart = replay(full_graph.graph(s, grid, count, seed, by="layer", p=p)).window_ns
    assert ks_2samp(together, apart).pvalue > SIZE / 8


def test_a_small_forecast_is_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    s = change(random_job(np.random.default_rng(3)), noise=Noise(hiccups_per_1000_steps=50.0, hiccup_ms=5.0))
    s = change(s, job=change(s.job, dp=2, global_batch=2 * s.job.pp))
    assert is_replayed(s, 20)
    replayed = forecast(s, count=20).step_ns
    monkeypatch.setattr(forecasting, "MOST_REPLAYED", 0)
    assert replayed == pytest.approx(forecast(s, count=20).step_ns, abs=1000)
    assert not is_replayed(change(s, policy=Policies(clones=2)), 1)
