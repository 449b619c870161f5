"""Clocks that run wrong are set right, and what is no clock is not taken for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from build import MS, one_f_one_b, play
from taut.core.tables import Trace, Verb
from taut.graph import link
from taut.lab.modelled import JOBS, modelled
from taut.replay.timeline import replay

RANKS = 32


def shifted(built: Trace, offset_ns: Any, ppm: Any) -> Trace:
    """The trace as clocks wrote it that are off by so much in the middle of the run, and run away."""
    middle = (int(built.ops.start_ns.min()) + int(built.ops.end_ns.max())) // 2

    def wrong(rank: Any, time: Any) -> Any:
        return time + np.rint(offset_ns[rank] + 1e-6 * ppm[rank] * (time - middle)).astype(np.int64)

    tables = {}
    for name in ("ops", "marks"):
        table = getattr(built, name)
        times = {key: wrong(table.rank, getattr(table, key)) for key in ("start_ns", "end_ns")}
        tables[name] = table.replace(**times)
    return replace(built, **tables)


def wrong_clocks(seed: int, most_ppm: float) -> tuple[Any, Any]:
    """Offsets of 1 to 20 ms and drifts for about half of the ranks; the first keeps the true time."""
    rng = np.random.default_rng(seed)
    chosen = (rng.random(RANKS) < 0.5) & (np.arange(RANKS) > 0)
    offset = chosen * rng.choice((-1, 1), RANKS) * rng.uniform(1e6, 20e6, RANKS)
    return offset, chosen * rng.uniform(-most_ppm, most_ppm, RANKS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("job", JOBS)
def test_offsets_and_drifts_come_back(job: str, seed: int) -> None:
    """To 20 µs and to what the standard error of a drift may be; the replay of the aligned times is exact."""
    offset, ppm = wrong_clocks(seed, most_ppm=80)
    graph = link(shifted(modelled(job, "none", RANKS, seed)[0], offset, ppm))
    clock = graph.clock
    assert np.abs(clock.offset_ns - offset).max() < 20_000
    assert ((clock.applied > 0) == (offset != 0)).all()
    assert np.nanmax(np.abs(clock.drift_ppm - ppm)) < 20
    assert (np.abs(ppm[clock.applied < 2]) < 60).all()
    assert (replay(graph).end_ns == graph.ops.end_ns).all()


def test_groups_that_share_a_rank_pass_the_time_on() -> None:
    """Without a gate that holds all ranks: sharded groups first, then the replicas, through whoever is in both."""
    built = modelled("hsdp", "none", RANKS, 0)[0]
    size = {i: len(built.group_ranks[name]) for i, name in enumerate(built.groups)}
    whole = np.array([size.get(int(g), 0) == RANKS for g in built.ops.group])
    offset, ppm = wrong_clocks(0, most_ppm=0)
    graph = link(shifted(replace(built, ops=built.ops.take(~whole)), offset, ppm))
    assert np.abs(graph.clock.offset_ns - offset).max() < 20_000


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", ["link", "link-one-way", "two"])
@pytest.mark.parametrize("job", ["ddp", "fsdp"])
def test_a_slow_link_is_no_clock(job: str, fault: str, seed: int) -> None:
    """Its receivers end late by the bytes, and only since it is slow: with true clocks nothing is moved."""
    graph = link(modelled(job, fault, RANKS, seed)[0])
    assert not graph.clock.applied.any()


@pytest.mark.parametrize("late_ns", [100_000, 400_000, 3_000_000])
@pytest.mark.parametrize("begins", [0.2, 0.5])
def test_lateness_that_begins_is_no_clock(late_ns: int, begins: float) -> None:
    """One rank ends every rendezvous late, but only from some step on, whatever the bytes."""
    built = modelled("ddp", "none", RANKS, 3)[0]
    ops = built.ops
    since = np.quantile(ops.step, begins)
    late = (ops.rank == 5) & (ops.verb == Verb.ALL_REDUCE) & (ops.step > since)
    graph = link(replace(built, ops=ops.replace(end_ns=ops.end_ns + late * late_ns)))
    assert not graph.clock.applied.any()


def test_hops_there_and_back_tell_a_clock_where_no_gate_holds_all_ranks() -> None:
    """A pipeline of four ranks on four hosts; rank 2's clock is 7 ms ahead."""
    ops = one_f_one_b(4, 6, 5, 8, 0.5, noise=0.02, steps=20)
    trace = play(ops, hosts={r: f"host {r}" for r in range(4)})
    ahead = 7 * MS * (trace.ops.rank == 2)
    wrong = replace(trace, ops=trace.ops.replace(start_ns=trace.ops.start_ns + ahead, end_ns=trace.ops.end_ns + ahead))
    offset = link(wrong).clock.offset_ns
    assert np.abs(offset - [0, 0, 7 * MS, 0]).max() < 0.2 * MS
    assert np.abs(link(trace).clock.offset_ns).max() == 0


@pytest.mark.parametrize("seed", range(5))
def test_nobody_leaves_before_everybody_came(seed: int) -> None:
    """Ends that scatter to one side by milliseconds: what starts forbid bounds the clock, and places it better."""
    rng = np.random.default_rng(seed)
    built = modelled("fsdp", "none", RANKS, seed)[0]
    late = (built.ops.group >= 0) & (built.ops.rank == 2)
    scatter = np.zeros(len(built.ops), dtype=np.int64)
    scatter[late] = (rng.exponential(3 * MS, late.sum()) * (rng.random(late.sum()) < 0.8)).astype(np.int64)
    offset = np.where(np.arange(RANKS) == 2, -9.0 * MS, 0.0)
    noisy = replace(built, ops=built.ops.replace(end_ns=built.ops.end_ns + scatter))
    clock = link(shifted(noisy, offset, np.zeros(RANKS))).clock
    assert clock.lo_ns[2] <= offset[2] <= clock.hi_ns[2]
    assert abs(clock.offset_ns[2] - offset[2]) < 0.02 * MS
