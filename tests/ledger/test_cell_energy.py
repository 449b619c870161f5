"""Joules of the ledger: measured where sensors lay beside the run, so that sums are theirs; by watts that were given else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from build import MS, analyze, barriers
from taut.core.prices import Prices
from taut.core.tables import Member, Metric, Table, Trace
from taut.run import Analysis

STEPS, RANKS = 20, 2


def job() -> Trace:
    """Rank 1 waits half of every step for rank 0: steps of 100 ms and 1 ms of transfer."""
    return barriers(np.tile([100 * MS, 50 * MS], (STEPS, 1)), MS)


def sampled(trace: Trace, **power_w: dict[int, float]) -> Trace:
    """The trace with ten samples a second of each metric, of each rank; energy counts up from 1 J on."""
    first, last = int(trace.ops.start_ns.min()), int(trace.ops.end_ns.max())
    time_ns = np.arange(first - 10**8, last + 2 * 10**8, 10**8)
    rows: dict[str, list[object]] = {"time_ns": [], "component": [], "rank": [], "metric": [], "value": []}
    for metric, of_rank in power_w.items():
        for rank, power in of_rank.items():
            steady = np.full(len(time_ns), power)
            value = 1 + np.cumsum(steady) * 0.1 if metric == "energy_j" else steady
            rows["time_ns"] += time_ns.tolist()
            rows["value"] += value.tolist()
            for key, word in (("component", f"rank {rank}"), ("rank", rank), ("metric", metric)):
                rows[key] += [word] * len(time_ns)
    return replace(trace, metrics=Table(Metric, rows))


def joules(done: Analysis) -> dict[str, float]:
    return {one.fate: one.joules for one in done.ledger.entries() if one.joules}


def test_measured_power_is_used_and_sums_are_the_measured_ones() -> None:
    done = analyze(sampled(job(), power_w={0: 400.0, 1: 200.0}))
    told = done.result.ledger.energy
    seconds = done.ledger.total_rank_ns / RANKS / 1e9
    assert told.joules.value == pytest.approx(600 * seconds, rel=1e-6)
    assert sum(joules(done).values()) == pytest.approx(told.joules.value)
    assert (told.source, told.coverage, told.divided_by) == ("samples", pytest.approx(1), "default")
    assert done.result.indices.energy_per_useful_step is not None


def test_a_step_is_divided_by_watts_of_states_times_time() -> None:
    watts = Prices(load_w=600, stall_w=200)
    done = analyze(sampled(job(), power_w={0: 400.0, 1: 200.0}), prices=watts)
    cells = done.ledger.cells
    mine = (cells.rank == 1) & (cells.step == int(cells.step.max()) // 2)
    power = np.array([600 if done.ledger.categories[code].power == "load" else 200 for code in cells.fate[mine]])
    share = power * cells.rank_ns[mine]
    assert cells.joules[mine] / cells.joules[mine].sum() == pytest.approx(share / share.sum())
    assert done.result.ledger.energy.divided_by == "given"


def test_the_counter_counts_before_samples_and_both_make_the_interval() -> None:
    done = analyze(sampled(job(), energy_j={0: 400.0, 1: 400.0}, power_w={0: 300.0, 1: 300.0}), prices=Prices(load_w=700))
    told, seconds = done.result.ledger.energy, done.ledger.total_rank_ns / 1e9
    assert told.source == "counter"
    assert [one.name for one in told.sources] == ["counter", "samples", "states"]
    assert (told.joules.lo, told.joules.value, told.joules.hi) == pytest.approx((300 * seconds, 400 * seconds, 400 * seconds))
    assert told.sources[2].joules == pytest.approx(700 * seconds)


def test_ranks_that_nobody_measured_take_the_watts_that_were_given() -> None:
    done = analyze(sampled(job(), power_w={0: 400.0}), prices=Prices(load_w=500, stall_w=500))
    told, seconds = done.result.ledger.energy, done.ledger.total_rank_ns / RANKS / 1e9
    assert told.joules.value == pytest.approx((400 + 500) * seconds, rel=1e-6)
    assert told.joules.lo == pytest.approx((400 + 400) * seconds, rel=1e-6)  # the model may be off as much as on rank 0
    assert told.coverage == pytest.approx(0.5)


def test_a_node_that_was_measured_whole_is_shared_by_its_ranks() -> None:
    trace = sampled(job(), node_power_w={-1: 1000.0})
    named = {"rank": [0, 1], "host": np.array(["n7.site", "n7.site"], object)}
    node = trace.metrics.replace(component=np.full(len(trace.metrics), "n7", object))
    trace = replace(trace, members=Table(Member, named), metrics=node)
    whole = analyze(trace)
    seconds = whole.ledger.total_rank_ns / RANKS / 1e9
    assert whole.result.ledger.energy.joules.value == pytest.approx(1000 * seconds, rel=1e-6)
    assert whole.result.ledger.energy.source == "node samples"
    less = analyze(trace, prices=Prices(host_w=100.0)).result.ledger.energy
    assert less.joules.value == pytest.approx(800 * seconds, rel=1e-6)


def test_half_of_the_ranks_tell_nothing_of_the_others() -> None:
    done = analyze(sampled(job(), power_w={0: 400.0}))
    told = done.result.ledger.energy
    assert told.joules is None
    assert told.sources[0].coverage == pytest.approx(0.5)
    assert joules(done) == {}
    assert done.result.indices.energy_per_useful_step is None


def test_without_sensors_watts_that_were_given_count_as_before() -> None:
    done = analyze(job(), prices=Prices(load_w=500, stall_w=100))
    by_fate = done.ledger.by_fate
    assert joules(done)["productive"] == by_fate["productive"] * 1e-9 * 500
    assert done.result.ledger.energy.source == "states"
    assert done.ledger.cells.joules.sum() == pytest.approx(sum(joules(done).values()))
    assert analyze(job()).result.ledger.energy is None
