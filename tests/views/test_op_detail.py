"""One op and its path: it ends where blame says, through gates to whoever came last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from build import MS, job
from taut.core.errors import UsageError
from taut.result.view_types import OpDetail
from taut.views.op_detail import LONGEST, OpDetails
from timelines import timeline_of

Scripts = dict[int, str]


def details(scripts: Callable[[int], Scripts] | Scripts, steps: int = 8, **about: object) -> OpDetails:
    return OpDetails(timeline_of(job(scripts, steps=steps, noise=0.002, **about)))


def cascade(step: int) -> Scripts:
    """Rank 0 is slow in step 4; rank 1 waits for it and passes the delay on to ranks 2 and 3."""
    slow = 40 if step == 4 else 10
    return {
        0: f"load {slow} | AR/left 1 | fwd 10", 1: "load 10 | AR/left 1 | fwd 10 | AR/right 1",
        2: "load 10 | fwd 10 | AR/right 1", 3: "load 10 | fwd 10 | AR/right 1",
    }  # fmt: skip


def waits_of(some: OpDetails, rank: int, step: int) -> list[OpDetail]:
    graph = some.graph
    mine = np.flatnonzero((graph.ops.rank == rank) & (graph.steps[graph.window] == step) & (some.frames.wait >= 0))
    return [some.by_number(int(op)) for op in mine]


@pytest.mark.parametrize("victim", [2, 3])
def test_the_path_of_a_passed_on_delay_leads_to_its_origin(victim: int) -> None:
    some = details(cascade)
    (one,) = waits_of(some, victim, 4)
    assert one.last_label == "rank 1 (node)"
    assert one.wait is not None
    assert one.wait.fault_ns > 25 * MS
    assert one.wait.wait_ns == sum(
        getattr(one.wait, f"{part}_ns") for part in ("fault", "jitter", "structural", "gap", "unexplained")
    )
    told = [(entry.rank, entry.name, entry.because) for entry in one.path[:6]]
    assert told == [
        (victim, "all-reduce", "asked"), (1, "all-reduce", "last at the gate"), (1, "fwd", "before it on its rank"),
        (1, "all-reduce", "before it on its rank"), (0, "all-reduce", "last at the gate"), (0, "load", "before it on its rank"),
    ]  # fmt: skip
    assert one.root is not None
    assert (one.path[one.root].rank, one.path[one.root].name) == (0, "load")
    assert one.path[one.root].excess_ns == pytest.approx(30 * MS, rel=0.02)


def test_roots_of_all_waits_add_up_to_what_blame_says() -> None:
    some = details(cascade)
    waits = some.frames.run.waits
    by_rank = np.zeros(4)
    for op, fault in zip(waits.op[waits.fault_ns > 0], waits.fault_ns[waits.fault_ns > 0], strict=True):
        one = some.by_number(int(op))
        assert one.root is not None
        by_rank[one.path[one.root].row] += fault
    assert by_rank[0] / by_rank.sum() > 0.99


def test_a_gap_is_the_root_where_it_made_the_wait() -> None:
    def paused(step: int) -> Scripts:
        return {r: f"fwd 10 | {'. 30 | ' if step == 4 and r == 1 else ''}bwd 10 | AR 1" for r in range(4)}

    some = details(paused)
    (one,) = waits_of(some, 2, 4)
    assert one.wait is not None
    assert one.wait.gap_ns > 25 * MS
    assert one.root is not None
    entry = one.path[one.root]
    assert (entry.rank, entry.name) == (1, "bwd")
    assert entry.gap_ns == 30 * MS


def test_who_did_not_wait_has_no_root_and_a_path_to_the_beginning_of_its_step() -> None:
    some = details({r: f"fwd {10 + r} | bwd 10 | AR 1" for r in range(3)})
    graph = some.graph
    op = int(np.flatnonzero((graph.ops.rank == 2) & (graph.window == 3) & (graph.gate >= 0))[0])
    one = some.by_number(op)
    assert (one.wait, one.root, one.last_label) == (None, None, None)
    assert [entry.name for entry in one.path] == ["all-reduce", "bwd", "fwd"]
    assert (one.kind, one.members, one.critical, one.slack_ns) == ("communicate", 3, True, 0)


def test_an_op_is_found_by_row_and_time() -> None:
    some = details({0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}, steps=1)
    assert [one and one.name for one in (some.at(0, MS), some.at(0, 8 * MS), some.at(1, 8 * MS))] == [
        "fwd",
        "all-reduce",
        "fwd",
    ]
    assert some.at(0, MS) == some.by_number(0)


def test_where_nothing_is_nothing_is_found() -> None:
    some = details({0: ". 4 | fwd 5", 1: "fwd 5"}, steps=1)
    assert some.at(1, 6 * MS) is None


def test_of_several_lanes_the_one_that_shows_is_found_unless_a_lane_is_named() -> None:
    some = OpDetails(timeline_of(job({0: ["AR/x 5", "fwd 5"], 1: ["AR/x 5", "fwd 5"]})))
    found = [some.at(0, MS), some.at(0, MS, lane=0), some.at(0, MS, lane=7)]
    assert [one and one.name for one in found] == ["fwd", "all-reduce", None]


def test_steps_of_their_own_time() -> None:
    some = details(cascade, relative=True)
    (one,) = waits_of(some, 2, 4)
    assert one.root is not None
    assert (one.path[one.root].rank, one.path[one.root].name) == (0, "load")
    assert len({entry.begin_ns // (60 * MS) for entry in one.path}) <= 2


def test_a_path_is_never_longer_than_can_be_shown() -> None:
    some = OpDetails(timeline_of(job({r: " | ".join(["fwd 1"] * (300 + r)) + " | AR 1" for r in range(2)})))
    assert max(len(some.by_number(op).path) for op in range(len(some.graph) - 4, len(some.graph))) == LONGEST


@pytest.mark.parametrize("op", [-1, 10**9])
def test_an_op_that_is_none_is_refused(op: int) -> None:
    with pytest.raises(UsageError, match=f"no op {op}"):
        details({0: "fwd 5"}, steps=1).by_number(op)
