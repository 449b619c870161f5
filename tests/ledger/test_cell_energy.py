"""Joules of the ledger: measured where sensors lay beside the run, so that sums are theirs; by watts that were given else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from build import MS, analyze, barriers
from taut.core.prices import Prices
from taut.core.tables import Kind, Member, Metric, Table, Trace
from taut.ledger.charge import FATES
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


def test_sources_that_agree_leave_no_interval() -> None:
    told = analyze(sampled(job(), energy_j={0: 400.0, 1: 400.0}, power_w={0: 400.0, 1: 400.0})).result.ledger.energy
    assert (len(told.sources), told.joules.lo, told.joules.hi) == (2, None, None)


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


def drawn_by_state(watts: dict[str, float], waits: int) -> Analysis:
    """A job whose ranks wait for one another, each rank in turn longer, sampled exactly."""
    draw = np.random.default_rng(3)
    took = (100 * MS * np.clip(draw.normal(1.0, 0.1, (400, 4)), 0.5, 2)).astype(np.int64)
    took[:, 1] //= waits
    took[200:, 2] //= waits
    trace = barriers(took, MS)
    ledger = analyze(trace).ledger
    cells = ledger.cells
    power = np.array([watts[one.power] for one in ledger.categories])[cells.fate]
    steps = np.unique(cells.step)
    rows: dict[str, list[object]] = {"time_ns": [], "component": [], "rank": [], "metric": [], "value": []}
    first = np.array([trace.ops.start_ns[trace.ops.step == step].min() for step in steps.tolist()])
    edges = np.append(first, trace.ops.end_ns.max())
    for rank in range(4):
        mine = cells.rank == rank
        joules = np.bincount(np.searchsorted(steps, cells.step[mine]), (power * cells.rank_ns)[mine] * 1e-9, len(steps))
        rows["time_ns"] += edges.tolist()
        rows["value"] += (1 + np.append(0.0, np.cumsum(joules))).tolist()
        for key, word in (("component", f"rank {rank}"), ("rank", rank), ("metric", "energy_j")):
            rows[key] += [word] * len(edges)
    return analyze(replace(trace, metrics=Table(Metric, rows)))


def test_watts_of_states_are_found_in_what_was_measured() -> None:
    done = drawn_by_state({"load": 610.0, "stall": 390.0, "idle": 120.0}, 2)
    told = done.result.ledger.energy
    assert told.divided_by == "measured"
    assert told.watts.load.value == pytest.approx(610, rel=0.05)
    assert told.watts.stall.value == pytest.approx(390, rel=0.05)
    assert told.watts.blocks > 100
    spent = {one.fate: one.joules / (one.rank_ns * 1e-9) for one in done.ledger.entries() if one.joules}
    assert spent["productive"] == pytest.approx(610, rel=0.05)
    waits = [power for fate, power in spent.items() if fate.endswith(" wait")]
    assert waits == [pytest.approx(390, rel=0.05)] * len(waits)
    assert waits


def test_a_rank_inside_a_gate_stalls_also_where_it_waits_for_a_gap() -> None:
    """In one step rank 0 does nothing for 100 ms before it computes; rank 1 waits for that inside the gate."""
    trace = barriers(np.tile([100 * MS, 100 * MS], (STEPS, 1)), MS)
    ops = trace.ops
    behind = (ops.step > 10) | ((ops.step == 10) & (ops.rank == 0))
    start = ops.start_ns + np.where(behind, 100 * MS, 0)
    end = ops.end_ns + np.where(behind | ((ops.step == 10) & (ops.kind == Kind.COMMUNICATE)), 100 * MS, 0)
    measured = sampled(replace(trace, ops=ops.replace(start_ns=start, end_ns=end)), power_w={0: 300.0, 1: 300.0})
    done = analyze(measured, prices=Prices(load_w=500, stall_w=300, idle_w=100))
    gaps = done.ledger.cells.take((done.ledger.cells.fate == FATES.index("gap")) & (done.ledger.cells.step == 10))
    assert gaps.rank.tolist() == [0, 1]
    assert gaps.joules[0] == pytest.approx(0.3 * 201 * 100 / (500 + 3 + 100), rel=0.01)
    assert gaps.joules[1] == pytest.approx(0.3 * 201 * 300 / (500 + 3 + 300), rel=0.01)


def test_watts_that_are_not_told_apart_stay_the_default() -> None:
    """Every block of every rank spends the same share of its time waiting, so that any watts would do."""
    trace = barriers(np.tile([100 * MS, 100 * MS], (400, 1)), 50 * MS)
    told = analyze(sampled(trace, power_w={0: 400.0, 1: 400.0})).result.ledger.energy
    assert (told.divided_by, told.watts.blocks, told.watts.load.value) == ("default", None, 690)
