"""Indices of modelled jobs: what is known of simple ones, and what a full graph of the same job measures."""

from __future__ import annotations

import dataclasses
from math import pi, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from taut.diagnose import job_indices as measured
from taut.project.training import full_graph
from taut.project.training.forecast import Forecast, forecast
from taut.project.training.grid import Grid
from taut.project.training.scenario import Device, Fabric, Failure, Job, Model, Noise, Scenario, Tier
from taut.project.training.step_plan import plan
from taut.project.workload import INDICES, Estimate
from taut.replay.blame import blame
from taut.replay.timeline import replay
from taut.replay.whatif import decompose

QUIET = Noise(distribution="none", spread=0.0, step_spread=0.0, ranks_spread=0.0)
FAILS = Failure(device_per_1000_node_days=50.0, checkpoint_s=30.0, spares=4)


def scenario(noise: Noise = QUIET, failure: Failure | None = None, **job: Any) -> Scenario:
    """Two layers a stage, eight micro-batches, a head and transfers that take next to nothing."""
    tiers = (Tier(name="island", devices=8, gb_per_s=1e6), Tier(name="net", devices=1 << 20, gb_per_s=1e6))
    return Scenario(
        model=Model(layers=2 * job.get("pp", 1), hidden=1024, heads=16, sequence=1024, vocab=1),
        device=Device(name="device", peak_tflops=312, memory_gb=80, memory_gb_per_s=2039, kernel_us=0.0, host_layer_us=0.0),
        job=Job(global_batch=8 * job.get("dp", 1), **job), fabric=Fabric(name="fabric", tiers=tiers), noise=noise,
        failure=failure or Failure(),
    )  # fmt: skip


class Found(NamedTuple):
    """An estimate that has an interval."""

    value: float
    lo: float
    hi: float


def index(made: Forecast, name: str) -> Found:
    return checked(made.indices()[name])


def checked(found: Estimate | dict[str, float | None] | None) -> Found:
    assert found is not None
    value, lo, hi = found.values() if isinstance(found, dict) else found
    assert value is not None
    assert lo is not None
    assert hi is not None
    assert lo <= value <= hi
    return Found(value, lo, hi)


def test_all_six_are_there_and_say_so_where_they_are_not_known() -> None:
    indices = forecast(scenario(dp=4), count=20).indices()
    assert tuple(indices) == INDICES
    assert indices["replay_probability"] is None, "nothing fails here"
    assert indices["sync_delay_amplification"] is None, "nobody was late"
    known = ("effective_throughput_ratio", "energy_per_useful_step", "runtime_variance_index", "straggler_cascade_rate")
    assert [checked(indices[name]).value for name in known] == pytest.approx([1.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("noise", "job"),
    [
        (Noise(distribution="gaussian", spread=0.1, step_spread=0.0, ranks_spread=0.0), {"dp": 8}),
        (Noise(distribution="lognormal", spread=0.05, step_spread=0.05, ranks_spread=0.0), {"dp": 4, "pp": 2}),
    ],
)
def test_a_full_graph_of_the_job_measures_the_same(noise: Noise, job: dict[str, Any]) -> None:
    s, count = scenario(noise, **job), 150
    made = forecast(s, count=count, seed=4)
    graph = full_graph.graph(s, made.record.grid, count, seed=4, p=plan(s))
    observed = replay(graph)
    theirs = measured.indices(observed, observed, blame(graph, observed, observed), decompose(graph))
    for name in ("effective_throughput_ratio", "runtime_variance_index"):
        ours, other = index(made, name), checked(to_builtins(theirs[name]))
        assert max(ours.lo, other.lo) <= min(ours.hi, other.hi), name
        assert ours.value == pytest.approx(other.value, rel=0.004), name


def test_one_slow_replica_delays_everybody() -> None:
    """One of eight takes 1.5 times as long and all wait for it: the delay is eight times the mean excess."""
    made = forecast(scenario(Noise(distribution="gaussian", spread=0.005, step_spread=0.0, ranks_spread=0.0), dp=8), count=40)
    slow = np.ones((8, 1))
    slow[3] = 1.5
    again = played_on(dataclasses.replace(made.record.grid, slow=lambda step: slow), made, 40)
    assert index(again, "sync_delay_amplification").value == pytest.approx(8, rel=0.05)
    assert index(again, "straggler_cascade_rate").value == 1.0


def played_on(grid: Grid, made: Forecast, count: int) -> Forecast:
    """The steps of a forecast played again on another grid."""
    record = dataclasses.replace(made.record, grid=grid, kept=[])
    drawn = record.simulate(count)
    return dataclasses.replace(made, record=record, step_ns=drawn)


def test_gaussian_jitter_is_amplified_by_the_largest_of_all_ranks() -> None:
    """Delay σ · a₆₄, mean positive excess σ ÷ √(2π)."""
    noise = Noise(distribution="none", spread=0.0, step_spread=0.02, ranks_spread=0.0)
    found = index(forecast(scenario(noise, dp=64), count=400), "sync_delay_amplification")
    assert 0.98 * found.lo <= 2.3437 * sqrt(2 * pi) <= 1.02 * found.hi


def test_failures_discard_steps_and_every_kept_one_pays_for_them() -> None:
    s = scenario(QUIET, FAILS, dp=64)
    rare = replace(s, failure=replace(FAILS, device_per_1000_node_days=5.0))
    often, seldom = forecast(s, count=20), forecast(rare, count=20)
    for name in ("replay_probability", "energy_per_useful_step"):
        assert index(often, name).lo > index(seldom, name).hi
    lost = index(often, "replay_probability")
    assert often.histories is not None
    us = often.histories.rank_s
    assert lost.value == pytest.approx(us["discarded"] / (us["discarded"] + us["productive"]))
    assert index(often, "effective_throughput_ratio").value == pytest.approx(often.histories.kept.mean)
    waits = sum(us[fate] for fate in ("checkpoint save", "restore", "detect+recover", "hold/init"))
    most = (us["productive"] + us["discarded"] + waits) / us["productive"]
    assert 1 / (1 - lost.value) < index(often, "energy_per_useful_step").value < most


def test_intervals_cover_other_devices() -> None:
    """Ranks that differ for good by more than steps do: other seeds are other devices."""
    s = scenario(Noise(distribution="none", spread=0.0, step_spread=0.01, ranks_spread=0.05), dp=16)
    for name in ("effective_throughput_ratio", "energy_per_useful_step", "sync_delay_amplification"):
        found = [index(forecast(s, count=30, seed=seed), name) for seed in range(20)]
        truth = float(np.mean([e.value for e in found]))
        assert sum(e.lo <= truth <= e.hi for e in found) >= 15, name


def test_the_same_seed_gives_the_same_indices_and_intervals_cover_other_seeds() -> None:
    s = scenario(Noise(distribution="lognormal", spread=0.1, step_spread=0.02, ranks_spread=0.0), dp=8)
    assert forecast(s, count=60, seed=1).indices() == forecast(s, count=60, seed=1, cores=2).indices()
    long = forecast(s, count=3000, seed=99)
    for name in ("effective_throughput_ratio", "runtime_variance_index", "sync_delay_amplification"):
        truth = index(long, name).value
        found = [index(forecast(s, count=100, seed=seed), name) for seed in range(20)]
        assert sum(e.lo <= truth <= e.hi for e in found) >= 14, name
