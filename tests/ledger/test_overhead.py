"""Control overhead: a pause after an action, and what others wait for it; nothing that would have been there anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import table
from build import MS, Do, analyze, job, play
from jobs import jobs, nonsense
from taut.core.tables import Action, Attempt, Kind, Trace, Verb
from taut.ledger.charge import FATES
from taut.run import Analysis

STEP = 22
"""Milliseconds of a step of the job below."""

CONTROL = FATES.index("control overhead")


def paused(rank: int = 2, step: int = 3, ms: int = 40, steps: int = 6, **about: Any) -> Trace:
    """Four ranks that meet at the end of each step; one of them stands still once, after its forward pass."""

    def scripts(at: int) -> dict[int, str]:
        return {r: f"fwd 10 | {f'. {ms} | ' if (r, at) == (rank, step) else ''}bwd 10 | AR 2" for r in range(4)}

    return job(scripts, steps=steps, **about)


def acted(built: Trace, *rows: dict[str, Any]) -> Analysis:
    """The job with actions, times in ms of the trace."""
    actions = [{"knob": "allocation", **row, "time_ns": round(row["time_ns"] * MS)} for row in rows]
    return analyze(replace(built, actions=table(Action, actions)))


def act(ms: float, target: str = "rank 2", controller: str = "scheduler", way: int = -1, **more: Any) -> dict[str, Any]:
    return {"time_ns": ms, "controller": controller, "target": target, "direction": way, **more}


def overhead(done: Analysis) -> dict[int, float]:
    """Milliseconds of control overhead by rank."""
    assert done.ledger.closes
    cells = done.ledger.cells
    mine = cells.fate == CONTROL
    return {int(r): float(cells.rank_ns[mine & (cells.rank == r)].sum() / MS) for r in np.unique(cells.rank[mine])}


PREEMPT, RESCUE = act(3 * STEP + 15), act(3 * STEP + 35, controller="rescuer", way=1)


def test_a_pause_after_an_action_is_control_overhead_and_so_is_what_others_wait_for_it() -> None:
    """The rank stood still for 40 ms, 5 of them before anybody acted: 35 on each of the four ranks, by whoever began it."""
    done = acted(paused(), PREEMPT, RESCUE)
    assert overhead(done) == {0: 35, 1: 35, 2: 35, 3: 35}
    assert done.ledger.by_fate["gap"] == 4 * 5 * MS
    cells = done.ledger.cells
    assert set(cells.action[cells.fate == CONTROL].tolist()) == {0}
    assert set(cells.action[cells.fate != CONTROL].tolist()) == {-1}


@pytest.mark.parametrize("target", ["rank 2", "2", "rank2", "vm-2.cluster", "vm-2", "nodes/vm-2", "job", "stage 2"])
def test_a_target_is_whatever_the_trace_calls_its_ranks(target: str) -> None:
    hosts = {rank: f"vm-{rank}.cluster" for rank in range(4)}
    built = paused(hosts=hosts, stage={rank: rank for rank in range(4)})
    assert overhead(acted(built, act(3 * STEP + 15, target)))[2] == 35


def test_a_job_id_is_the_job_and_not_the_rank_of_that_number() -> None:
    built = paused()
    one = table(Attempt, [{"job": "0", "attempt": 1}])
    two = table(Attempt, [{"job": "0", "attempt": 1}, {"job": "1", "attempt": 1}])
    assert overhead(acted(replace(built, attempts=one), act(3 * STEP + 15, "0")))[2] == 35
    other = acted(replace(built, attempts=two), act(3 * STEP + 15, "0"))
    assert overhead(other) == {}, "which of two jobs was traced is not known"
    assert any("'0'" in line for line in other.result["job"]["partial"])


def test_an_action_on_what_the_trace_does_not_know_is_partial_and_costs_nothing() -> None:
    done = acted(paused(), act(3 * STEP + 15, "web-tier"), act(3 * STEP + 16, "rank 9"), act(1))
    assert overhead(done) == {}
    (note,) = [line for line in done.result["job"]["partial"] if "web-tier" in line]
    assert note.startswith("2 of 3 actions")


def test_an_action_without_a_pause_costs_nothing() -> None:
    assert overhead(acted(paused(), act(STEP + 5), act(2 * STEP, "job"), act(5 * STEP + 21))) == {}


def test_an_action_in_an_ordinary_gap_does_not_swallow_it() -> None:
    """Every step of every rank waits 8 ms for input; somebody acts in the middle of one."""
    built = job(dict.fromkeys(range(4), ". 8 | fwd 10 | AR 2"), steps=5)
    assert overhead(acted(built, act(2 * 20 + 4), act(3 * 20 + 1, "job"))) == {}


def test_of_a_longer_gap_only_what_is_above_the_usual_one() -> None:
    """The loader's 8 ms are usual; once they are 48, and the action came 10 ms after they began."""
    slow = dict.fromkeys(range(4), ". 8 | fwd 10 | AR 2")
    built = job(lambda step: {**slow, 2: ". 48 | fwd 10 | AR 2"} if step == 3 else slow, steps=6)
    assert overhead(acted(built, act(3 * 20 + 10)))[2] == 38
    assert overhead(acted(built, act(3 * 20 + 2)))[2] == 40


def test_actions_that_have_nothing_to_do_with_gaps_take_hardly_any() -> None:
    """Gaps of every length, actions at any time: what is taken by chance is a few per cent of the gaps."""
    taken = gaps = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        idle = rng.exponential(5, (20, 6)) * MS
        ops = [
            one
            for step, rank in np.ndindex(20, 6)
            for one in (
                Do(rank, "fwd", 10 * MS, step=step, idle=int(idle[step, rank])),
                Do(rank, "meet", MS, step=step, verb=Verb.ALL_REDUCE),
            )
        ]
        done = acted(play(ops), *(act(float(ms), f"rank {rng.integers(6)}") for ms in np.sort(rng.uniform(0, 400, 20))))
        taken += done.ledger.by_fate["control overhead"]
        gaps += done.ledger.by_fate["control overhead"] + done.ledger.by_fate["gap"]
    assert taken < 0.05 * gaps


def test_outside_the_traced_time_an_action_takes_nothing() -> None:
    built = job({r: f". {10 * r} | fwd 10 | AR 2" for r in range(4)}, steps=2)
    done = acted(built, act(-1, "job"), act(10_000, "job"))
    assert overhead(done) == {}
    assert "no place on the graph" in done.result["control"]["partial"][-1]


def test_the_start_of_a_job_is_no_overhead() -> None:
    first = act(3 * STEP + 15, "job", attempt=0)
    assert overhead(acted(paused(), first)) == {}
    assert overhead(acted(paused(), {**first, "attempt": 1, "time_ns": 3 * STEP + 16}))[2] == 34


def test_host_work_while_a_controller_is_at_work_is_its_own() -> None:
    ops = [
        Do(0, "fwd", 5 * MS), Do(0, "move", 4 * MS, kind=Kind.COORDINATE), Do(0, "fwd", 5 * MS),
        Do(0, "load", 4 * MS, kind=Kind.COORDINATE), Do(0, "fwd", 5 * MS),
    ]  # fmt: skip
    assert overhead(acted(play(ops), act(4, "rank 0", busy_ns=6 * MS))) == {0: 4}


@st.composite
def with_actions(draw: st.DrawFn, built: Trace) -> Trace:
    """A trace with actions anywhere around it, on anything."""
    first, last = int(built.ops.start_ns.min()), int(built.ops.end_ns.max())
    times = st.integers(first - 10, last + 10) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
    lengths = st.integers(-1, max(last - first, 1)) | st.just((1 << 63) - 1)
    one = st.fixed_dictionaries({
        "time_ns": times, "busy_ns": lengths, "controller": st.sampled_from(["a", "b", ""]),
        "target": st.sampled_from(["rank 0", "1", "job", "node", "nobody", ""]), "direction": st.integers(-1, 1),
        "attempt": st.integers(-1, 2), "rank": st.integers(-1, 3), "parent": st.integers(-1, 4), "step": st.integers(-1, 2),
        "knob": st.sampled_from(["allocation", "attempt"]),
    })  # fmt: skip
    rows = draw(st.lists(one, min_size=1, max_size=8))
    zero = [0] * (int(built.ops.step.max()) + 1) if built.relative and draw(st.booleans()) else None
    return replace(built, actions=table(Action, rows), zero_ns=zero)


@settings(max_examples=60)
@given(st.one_of(jobs(), nonsense()).flatmap(with_actions))
def test_the_ledger_closes_whatever_controllers_did(built: Trace) -> None:
    """Conservation law: nothing is counted twice, and nothing but control overhead grows."""
    done, without = analyze(built), analyze(replace(built, actions=table(Action, [])))
    cells = done.ledger.cells
    assert (cells.rank_ns >= 0).all()
    assert int(cells.rank_ns.sum()) == done.ledger.total_rank_ns == len(done.graph.ranks) * done.observed.wall_ns
    for fate, ns in without.ledger.by_fate.items():
        assert done.ledger.by_fate[fate] <= ns or fate == "control overhead"
    per_rank = np.bincount(np.searchsorted(done.graph.ranks, cells.rank), weights=cells.rank_ns)
    assert (per_rank == done.observed.wall_ns).all()
    assert sum(done.result["control"]["overhead"]["by"].values()) == done.ledger.by_fate["control overhead"]
