"""The zone of a conflict: ranks, steps and ops that one can look at, what it took, and when it is the verdict."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from actions import table
from build import MS, Do, analyze, play
from taut.core.tables import Action, Trace, Verb
from taut.ledger import Prices
from taut.ledger.zones import ops_of
from taut.result.types import Zone
from taut.run import Analysis

CYCLES, STEP, PAUSE = 8, 22, 40


def preempted(held: bool = True) -> Trace:
    """Rank 2 of four stands still for 40 ms in every third step, between its two passes."""
    ops = []
    for step in range(3 * CYCLES):
        for rank in range(4):
            idle = PAUSE * MS if held and rank == 2 and step % 3 == 1 else 0
            ops += [Do(rank, "fwd", 10 * MS, step=step), Do(rank, "bwd", 10 * MS, step=step, idle=idle)]
            ops.append(Do(rank, "meet", 2 * MS, step=step, verb=Verb.ALL_REDUCE))
    return play(ops)


def fought(built: Trace, **options: Any) -> Analysis:
    """The same with a scheduler that takes the rank away at the end of its first pass, and a rescuer 4 ms later."""
    ops = built.ops
    mine = (ops.rank == 2) & (ops.name == 0) & (ops.step % 3 == 1)
    rows = []
    for end in ops.end_ns[mine].tolist():
        for who, way, at in (("scheduler", -1, end), ("rescuer", 1, end + 4 * MS)):
            rows.append({"time_ns": at, "controller": who, "target": "rank 2", "knob": "allocation", "direction": way})
    return analyze(replace(built, actions=table(Action, rows)), **options)


def test_a_conflict_that_holds_the_job_up_is_the_verdict() -> None:
    done = fought(preempted(), prices=Prices(Decimal("3.6"), "EUR"))
    (one,) = done.result["control"]["relations"]
    taken = CYCLES * 4 * PAUSE * MS
    first, last = STEP + 10, STEP * 3 * CYCLES + PAUSE * CYCLES - STEP - 2  # the second pass of the step before the last
    assert (one["kind"], one["controllers"]) == ("conflict", ["scheduler", "rescuer"])
    assert one.zone == Zone(
        ranks=[2], steps=(1, 3 * CYCLES - 2), ops=one.zone.ops, first_ns=first * MS, last_ns=last * MS, rank_ns=taken
    )
    assert one["cost"]["rank_ns"] == taken
    assert Decimal(one["cost"]["money"]) == Decimal(taken) / 10**12
    assert done.ledger.by_fate["control overhead"] == taken
    assert done.result["verdict"]["class"] == "control"
    assert "scheduler and rescuer on rank 2" in done.verdict


def test_the_ops_of_a_zone_are_those_of_its_ranks_and_its_time() -> None:
    done = fought(preempted())
    zone = done.result["control"]["relations"][0]["zone"]
    ops = ops_of(done.graph, zone)
    assert len(ops) == zone["ops"]
    assert set(done.graph.ops.rank[ops].tolist()) == {2}
    rest = np.setdiff1d(np.flatnonzero(done.graph.ops.rank == 2), ops)
    begin, end = done.graph.ops.start_ns + done.graph.origin_ns[0], done.graph.ops.end_ns + done.graph.origin_ns[0]
    assert ((end[rest] < zone["first_ns"]) | (begin[rest] > zone["last_ns"])).all()


def test_a_conflict_that_holds_nobody_up_is_listed_and_costs_nothing() -> None:
    done = fought(preempted(held=False))
    (one,) = done.result["control"]["relations"]
    assert (one["kind"], one["zone"]["rank_ns"]) == ("conflict", 0)
    assert done.result["verdict"]["class"] == "healthy"


def test_steps_with_times_of_their_own_have_no_zones() -> None:
    done = fought(replace(preempted(), relative=True))
    assert [one["zone"] for one in done.result["control"]["relations"]] == [None]
    assert done.result["control"]["partial"][-1].endswith("its steps have times of their own")
