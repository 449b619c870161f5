"""Policies on measured graphs against closed forms, and against walks over the same draws that know no graph."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, Do, barriers, job, play
from jobs import jobs
from taut.core.tables import Kind, Verb
from taut.graph import link
from taut.lab.modelled import modelled
from taut.replay.after_meetings import bound_to_meetings
from taut.replay.data_parallel import data_parallel
from taut.replay.exact_policies import Measured, local_steps, measured, semi_synchronous
from taut.replay.timeline import Change, replay

GAUSSIAN = {8: 1.4236, 64: 2.3437}
"""Expected largest of so many standard normal draws."""


def drawn(steps: int, ranks: int, seed: int = 0, sigma: float = 0.05) -> Any:
    return 10 * MS * (1 + sigma * np.random.default_rng(seed).standard_normal((steps, ranks)))


def of(trace: Any) -> Measured:
    return measured(link(trace))


def mean_step(found: Any) -> float:
    return float(found.with_ns.sum() / len(found.with_ns) / found.steps / (10 * MS))


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("steps", [1, 4, 16])
def test_a_barrier_every_few_steps_costs_what_theory_says(ranks: int, steps: int) -> None:
    found = local_steps(of(barriers(drawn(400, ranks))), steps)
    assert mean_step(found) == pytest.approx(1 + 0.05 * GAUSSIAN[ranks] / np.sqrt(steps), abs=0.0045)  # three standard errors


def test_independent_hiccups_cost_the_expected_most_of_a_block() -> None:
    chance, ranks, steps, count = 0.01, 32, 4, 800
    hit = np.random.default_rng(1).random((count, ranks)) < chance
    found = local_steps(of(barriers(10 * MS * (1 + hit))), steps)
    upto = np.cumsum([comb(steps, k) * chance**k * (1 - chance) ** (steps - k) for k in range(steps)])
    assert mean_step(found) == pytest.approx(1 + (1 - upto**ranks).sum() / steps, abs=0.012)


def test_meeting_in_every_step_is_what_was_observed() -> None:
    graph = link(barriers(drawn(40, 8), transfer=MS))
    found = local_steps(measured(graph), 1)
    assert found.with_ns.sum() == found.without_ns.sum() == replay(graph).wall_ns
    assert found.saved is not None
    assert found.saved.value == 0.0


@given(ranks=st.integers(2, 5), count=st.integers(4, 13), steps=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_every_block_is_as_long_as_its_slowest_replica(ranks: int, count: int, steps: int, seed: int) -> None:
    work = np.rint(drawn(count, ranks, seed, 0.3)).astype(np.int64)
    found = local_steps(of(barriers(work, transfer=MS)), steps)
    first = np.arange(count - steps + 1)
    assert found.with_ns.tolist() == [work[k : k + steps].sum(axis=0).max() + MS for k in first]
    assert found.without_ns.tolist() == [work[k : k + steps].max(axis=1).sum() + MS * steps for k in first]
    assert found.blocks == count // steps


@given(ranks=st.integers(2, 5), count=st.integers(4, 12), ahead=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_nobody_is_more_than_so_many_steps_ahead(ranks: int, count: int, ahead: int, seed: int) -> None:
    work = np.rint(drawn(count, ranks, seed, 0.6)).clip(0).astype(np.int64)
    now, met = np.zeros(ranks, dtype=np.int64), list[Any]()
    for k in range(count):
        met.append(now + work[k])
        now = np.maximum(met[k], met[k - ahead].max() if k >= ahead else 0) + MS
    found = semi_synchronous(of(barriers(work, transfer=MS)), ahead)
    assert found.with_ns.sum() == (now.max() if count > ahead else 0)


def test_blocks_of_one_phase() -> None:
    work = np.rint(drawn(11, 3)).astype(np.int64)
    found = local_steps(of(barriers(work)), 4, phase=2)
    assert found.with_ns.tolist() == [work[k : k + 4].sum(axis=0).max() for k in (2, 6)]


def test_what_is_left_out_is_not_called() -> None:
    ops = []
    for step in range(4):
        for rank in range(2):
            ops.append(Do(rank, "fwd", 10 * MS, step=step))
            ops.append(Do(rank, "call", 2 * MS, step=step, kind=Kind.COORDINATE))
            ops.append(Do(rank, "reduce", 0, 1, step, verb=Verb.ALL_REDUCE, launch=len(ops) - 1))
    found = local_steps(of(play(ops)), 2)
    assert set(found.without_ns.tolist()) == {24 * MS}
    assert set(found.with_ns.tolist()) == {22 * MS}


@given(jobs())
@settings(max_examples=40)
def test_edges_after_meetings_leave_the_replay_as_it_was(trace: Any) -> None:
    graph = link(trace)
    bound = bound_to_meetings(graph, graph.gate >= 0)
    was = bound.was
    before, after = replay(graph), replay(bound.with_times(graph.work_ns, graph.gap_ns))
    assert sorted(was.tolist()) == list(range(len(graph)))
    assert after.arrival_ns.tolist() == before.arrival_ns[was].tolist()
    assert after.end_ns.tolist() == before.end_ns[was].tolist()


def test_who_came_last_attends_the_meeting_all_the_same() -> None:
    """The optimiser of rank 0 began when its reduction ended, but nothing tells that it waited for it."""

    def scripts(step: int) -> dict[int, list[str]]:
        slow = 20 if step % 2 == 0 else 10
        return {
            0: [f"fwd {slow} | . 1 | opt 1", f". {slow} | AR 1 | . 1"],
            1: [f"fwd 10 | . {slow - 9} | opt 1", f". 10 | AR 1 | . {slow - 9}"],
        }

    graph = link(job(scripts, 4))
    bound = bound_to_meetings(graph, graph.gate >= 0).with_times(graph.work_ns, graph.gap_ns)
    meets, first = bound.ops.verb == Verb.ALL_REDUCE, bound.window == 0
    later = replay(bound, [Change(meets & first, "work", "add", 5 * MS)])
    moved = (later.arrival_ns - replay(bound).arrival_ns)[first & (bound.ops.name == bound.names.index("opt"))]
    assert moved.tolist() == [5 * MS, 5 * MS]


def test_steps_in_another_order_would_save_more() -> None:
    rng = np.random.default_rng(3)
    work = np.full((240, 8), 10 * MS)
    for begin in range(0, 240, 12):  # one rank is slow for eight steps in a row
        work[begin : begin + 8, rng.integers(8)] *= 2
    shares = [local_steps(of(barriers(w)), 4).saved for w in (work, rng.permuted(work, axis=0))]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0].value < 0.08 < shares[1].value


def test_ranks_of_one_replica_move_together() -> None:
    """Two replicas of two ranks: a pair meets at its own gate in every step, replicas by all-reduce."""

    def scripts(step: int) -> dict[int, str]:
        slow = {0: 0, 1: 2, 2: 1, 3: 3}[step % 4]
        return {r: f"fwd {20 if r == slow else 10} | AR:8/tp{r // 2} 1 | bwd 5 | AR:64/dp{r % 2} 3" for r in range(4)}

    found = of(job(scripts, 8))
    assert found.met.units == 2
    assert found.met.unit.tolist() == [0, 0, 1, 1]
    # In two steps each replica is slow once: 36 + 26 − 2 · 0, and the transfer once.
    two = local_steps(found, 2)
    assert set(two.with_ns.tolist()) == {(20 + 10 + 2 * 6 + 3) * MS}
    assert set(two.without_ns.tolist()) == {2 * (20 + 6 + 3) * MS}


def test_steps_with_an_origin_of_their_own_follow_each_other() -> None:
    def scripts(step: int) -> dict[int, str]:
        return {r: f". {r} | fwd {20 if step % 3 == r else 10} | AR 1 | opt 2" for r in range(3)}

    alone, together = (local_steps(of(job(scripts, 9, relative=relative)), 3) for relative in (True, False))
    assert alone.with_ns.tolist() == together.with_ns.tolist()


def test_sampled_steps_make_no_block() -> None:
    def scripts(_: int) -> dict[int, str]:
        return {r: f"fwd {10 + r} | AR 1" for r in range(2)}

    built = job(scripts, 6, relative=True)
    apart = built.ops.replace(step=built.ops.step * 5)
    found = local_steps(of(replace(built, ops=apart)), 2)
    assert len(found.with_ns) == 0
    assert found.saved is None


def test_mended_work_may_be_asked_for() -> None:
    work = drawn(40, 8, sigma=0.0)
    work[:, 3] *= 2
    graph = link(barriers(work))
    assert local_steps(measured(graph), 4).without_ns.sum() > 0
    mended = np.minimum(graph.work_ns, 10 * MS)
    found = local_steps(measured(graph, mended, graph.gap_ns), 4)
    assert set(found.without_ns.tolist()) == {40 * MS} == set(found.with_ns.tolist())


REFUSED = {
    "FSDP": dict.fromkeys(range(4), "AG 1 | fwd 5 | AG 1 | fwd 5 | RS 1 | AR 1"),
    "pipeline": {0: "fwd 5 | SEND>1 1 | RECV<1 1", 1: "RECV<0 1 | fwd 5 | SEND>0 1"},
    "all-to-all": dict.fromkeys(range(4), "fwd 5 | A2A 1 | AR 1"),
    "tensor": dict.fromkeys(range(4), "fwd 5 | AR:8/tp 1"),
    "forward pass": {r: " | ".join(["fwd 5 | AR:64 1"] * 12) for r in range(4)},
    "one rank": {0: "fwd 5"},
    "nowhere": {0: "fwd 5", 1: "fwd 5"},
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_data_parallel_job_is_refused(kind: str) -> None:
    assert kind in data_parallel(link(job(REFUSED[kind], 3))).refused


@pytest.mark.parametrize(
    ("scripts", "units"),
    [
        (dict.fromkeys(range(4), "fwd 5 | AR 1 | AR 1 | BAR 1"), 4),
        (dict.fromkeys(range(4), "fwd 5 | RS 1 | opt 1 | AG 1"), 4),
        ({r: f"AG/shard{r // 2} 1 | AG/shard{r // 2} 1 | RS/shard{r // 2} 1 | AR/g{r % 2} 1" for r in range(4)}, 2),
        ({r: f"fwd 5 | AR/a{r // 2} 1 | AR/b{r % 2} 1" for r in range(4)}, 2),
        ({r: f"fwd 5 | AR/mesh_tp_{r // 2} 1 | AR/mesh_dp_{r % 2} 1 | AR 1" for r in range(4)}, 2),
    ],
)
def test_replicas_are_told_by_names_and_places(scripts: dict[int, str], units: int) -> None:
    found = data_parallel(link(job(scripts, 3)))
    assert (found.units, found.refused) == (units, "")


@pytest.mark.parametrize(("kind", "units"), [("ddp", 16), ("pipeline", 2), ("hsdp", 2), ("fsdp", None), ("tp-fsdp", None)])
def test_replicas_of_modelled_jobs(kind: str, units: int | None) -> None:
    found = data_parallel(link(modelled(kind, "none", 16, 1)[0]))
    assert (found.units if not found.refused else None) == units
