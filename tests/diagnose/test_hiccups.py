"""Transfers that take far longer now and then: on which link, told by who ends late, also where only the recorder saw it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, play
from taut.core.tables import Call, Table, Trace, Verb
from taut.diagnose.recorded_hiccups import recorded_hiccups
from taut.diagnose.slowdowns import Slowdowns
from taut.graph import link

STEPS, RANKS = 40, 8
WORK, TRANSFER, DELAY = 100 * MS, 8 * MS, 30 * MS


def held_up(arcs: dict[int, tuple[int, int]], steps: int = STEPS) -> Trace:
    """A ring of eight that sends r → r+1; in some steps so many ranks from a first one on end late."""
    rng = np.random.default_rng(len(arcs))
    transfer = TRANSFER * (1 + 0.02 * rng.standard_normal((steps, RANKS)))
    for step, (first, many) in arcs.items():
        transfer[step, (first + np.arange(many)) % RANKS] += DELAY
    work = WORK * (1 + 0.01 * rng.standard_normal((steps, RANKS)))
    return barriers(work, np.rint(transfer).astype(np.int64), backend="nccl")


def spiky(built: Trace) -> list[tuple[str, ...]]:
    return [place.link_names for place in Slowdowns(link(built)).links if place.spikes]


def test_of_those_that_end_late_the_one_furthest_upstream_receives() -> None:
    """Link 2→3 loses packets in six steps of forty, in whatever round: three to six ranks from 3 on end late."""
    built = held_up({step: (3, 1 + step % 4) for step in (4, 11, 17, 22, 30, 37)})
    assert spiky(built) == [("2:3",)]
    assert analyze(built).findings[0].links == ("2:3",)


def test_who_sends_over_a_lossy_link_may_end_late_as_well() -> None:
    """Late ranks begin with the receiver, or with the sender before it; where all end late, the same link is behind it."""
    arcs = {step: (2 + step % 2, 3) for step in (4, 11, 17, 22, 30, 37)}
    assert spiky(held_up(arcs)) == [("2:3",)]
    (found,) = analyze(held_up(arcs | dict.fromkeys((13, 25), (0, RANKS)))).findings
    assert (found.links, found.steps) == (("2:3",), (4, 37))
    assert found.recoverable_wall_ns == pytest.approx(8 * DELAY, rel=0.1)


def chain(late: dict[tuple[int, int, int], int], ranks: int = 4, steps: int = 30) -> Trace:
    """Ranks that hand on to the next and back; a hop takes 1 ms, in some steps from one to another so many ms longer."""
    ops = []
    for step in range(steps):
        for one, other in [*((r, r + 1) for r in range(ranks - 1)), *((r + 1, r) for r in reversed(range(ranks - 1)))]:
            took = (1 + late.get((step, one, other), 0)) * MS
            ops += [
                Do(one, "fwd" if one < other else "bwd", 20 * MS + 1000 * (7 * step + one), step=step),
                Do(one, "hop", 100_000, step=step, verb=Verb.SEND, peer=other, eager=True),
                Do(other, "hop", took, step=step, verb=Verb.RECV, peer=one),
            ]
    return play(ops)


def test_an_interface_that_loses_packets_both_ways_is_named_beside_small_delays_elsewhere() -> None:
    """Packets of the last rank of a chain are lost eight times; what a busy machine delays by 15 ms says nothing of that."""
    lost: dict[tuple[int, int, int], int] = {(step, 2, 3): 200 for step in (12, 16, 24)}
    lost |= {(step, 3, 2): 205 for step in (12, 19, 24, 25, 27)}
    small = {(step, 0, 1): 15 for step in (11, 20, 25)} | {(14, 1, 0): 15, (17, 2, 1): 15}
    assert [set(links) for links in spiky(chain(lost | small))] == [{"2:3", "3:2"}]


def test_a_delay_that_all_end_late_by_has_no_place() -> None:
    assert spiky(held_up(dict.fromkeys((4, 11, 17, 22, 30, 37), (3, RANKS)))) == []


def test_delays_that_begin_anywhere_are_nobodys() -> None:
    arcs = {4: (0, 3), 9: (5, 2), 13: (2, 4), 17: (7, 1), 22: (1, 3), 27: (4, 2), 30: (6, 2), 37: (3, 3)}
    assert spiky(held_up(arcs)) == []


def test_a_delay_shorter_than_a_transfer_or_a_twentieth_of_a_step_is_none() -> None:
    built = held_up({})
    short = built.ops.end_ns + np.where((built.ops.rank == 3) & (built.ops.step % 6 == 1) & (built.ops.group >= 0), 4 * MS, 0)
    assert spiky(replace(built, ops=built.ops.replace(end_ns=short))) == []


def calls(arcs: dict[int, tuple[int, int]], steps: int, first_ns: int) -> Table:
    """A recorder of so many steps of one call each; the call after a delay is late where the ring ended late."""
    rng = np.random.default_rng(5)
    late = np.abs(rng.standard_normal((steps, RANKS))) * 0.2 * MS
    for step, (first, many) in arcs.items():
        late[step, (first + np.arange(many)) % RANKS] += DELAY
    created = first_ns + np.arange(steps)[:, None] * 110 * MS + late
    step, rank = (axis.ravel() for axis in np.indices(created.shape))
    columns: dict[str, Any] = {
        "rank": rank, "group": np.zeros(created.size), "name": np.ones(created.size), "seq": 1000 + step,
        "verb": np.full(created.size, Verb.ALL_REDUCE), "created_ns": np.rint(created).ravel(), "done": np.ones(created.size),
    }  # fmt: skip
    return Table(Call, columns)


@pytest.mark.parametrize(("many", "seen"), [(3, [[2, 3, 4]] * 3), (1, []), (RANKS, [])])
def test_the_recorder_tells_of_steps_that_were_not_traced(many: int, seen: list[list[int]]) -> None:
    """Three late ranks in a row tell a link; one may have stopped by itself, and all have no place."""
    built = held_up({}, steps=10)
    after = int(built.ops.end_ns.max()) + 500 * MS
    graph = link(replace(built, calls=calls(dict.fromkeys((5, 20, 33), (3, many)), 40, after)))
    assert recorded_hiccups(graph, 10 * MS).tolist() == seen


def test_recorded_steps_count_with_the_traced_ones() -> None:
    """Two delays in ten traced steps are too few; with four in the forty steps after them they are enough."""
    built = held_up({3: (3, 2), 7: (3, 4)}, steps=10)
    after = int(built.ops.end_ns.max()) + 500 * MS
    assert spiky(built) == []
    assert spiky(replace(built, calls=calls(dict.fromkeys((5, 12, 20, 33), (3, 3)), 40, after))) == [("2:3",)]


def test_a_link_that_only_the_recorder_saw_held_up_is_no_place_of_the_trace() -> None:
    """The traced delay begins at rank 5 and reaches 6; those of the recorder all begin at 6."""
    built = held_up({3: (5, 2)}, steps=10)
    after = int(built.ops.end_ns.max()) + 500 * MS
    many = calls(dict.fromkeys(range(3, 40, 3), (6, 3)), 40, after)
    assert spiky(replace(built, calls=many)) == []


def test_calls_of_traced_steps_are_left_to_the_trace() -> None:
    """A trace whose times are those of the day, and calls made inside it."""
    built, day = held_up({}, steps=10), 10**18
    ops = built.ops.replace(start_ns=built.ops.start_ns + day, end_ns=built.ops.end_ns + day)
    graph = link(replace(built, ops=ops, calls=calls({3: (3, 3)}, 8, int(ops.start_ns.min()) + MS)))
    assert recorded_hiccups(graph, 10 * MS).tolist() == []
