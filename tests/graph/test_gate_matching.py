"""Who meets whom, and whom each waits for: one small job per rule."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace as edited
from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, job, play, trace
from taut.core.errors import InputRefused
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.graph import Graph, link
from taut.replay.timeline import replay


def meetings(graph: Graph) -> list[tuple[int, str, list[int]]]:
    """(step, class, ranks) of every gate, in order of opening."""
    gates = graph.gates
    rows = [
        (
            int(gates.step[i]),
            graph.names[gates.name[i]],
            sorted(int(r) for r in graph.ops.rank[graph.gate == gates.gate[i]]),
        )
        for i in range(len(gates))
    ]
    order = np.lexsort((gates.opens_ns, gates.step))
    return [rows[i] for i in order]


def waits_ms(built: Trace) -> dict[tuple[int, str], float]:
    """(rank, class) → wait in ms, zero waits left out."""
    graph = link(built)
    timeline = replay(graph)
    waited = np.flatnonzero(timeline.wait_ns)
    return {(int(graph.ops.rank[i]), graph.names[graph.ops.name[i]]): timeline.wait_ns[i] / MS for i in waited}


@pytest.mark.parametrize("verb", ["AR", "AG", "RS", "A2A", "BAR"])
def test_everybody_waits_for_the_last(verb: str) -> None:
    """All-reduce, all-gather, reduce-scatter, all-to-all, barrier: everybody waits."""
    waits = waits_ms(job({0: f"fwd 1 | {verb} 1", 1: f"fwd 4 | {verb} 1", 2: f"fwd 9 | {verb} 1"}))
    assert [ms for _, ms in sorted(waits.items())] == [8, 5]


@pytest.mark.parametrize("verb", ["BC", "SC"])
def test_receivers_wait_for_the_root(verb: str) -> None:
    """Broadcast, scatter from rank 1: rank 0 waits for it; rank 2 comes later and does not, nor does the root."""
    waits = waits_ms(job({0: f"fwd 1 | {verb}@1 1", 1: f"fwd 4 | {verb}@1 1", 2: f"fwd 9 | {verb}@1 1"}))
    assert {rank: ms for (rank, _), ms in waits.items()} == {0: 3}


@pytest.mark.parametrize("verb", ["RD", "GA"])
def test_only_the_root_waits(verb: str) -> None:
    """Reduce, gather to rank 1: it waits for the last, the others go on."""
    waits = waits_ms(job({0: f"fwd 1 | {verb}@1 1", 1: f"fwd 4 | {verb}@1 1", 2: f"fwd 9 | {verb}@1 1"}))
    assert {rank: ms for (rank, _), ms in waits.items()} == {1: 5}


def test_a_receive_waits_for_its_sender_and_an_eager_send_for_nobody() -> None:
    """Rank 1 waits 4 ms for the send of rank 0; in the other direction the send is over before the receive begins."""
    ops = [
        Do(0, "a", 5 * MS), Do(0, "hop", MS, verb=Verb.SEND, peer=1, eager=True), Do(0, "late", 20 * MS),
        Do(0, "back", MS, verb=Verb.RECV, peer=1),
        Do(1, "a", 1 * MS), Do(1, "hop", MS, verb=Verb.RECV, peer=0),
        Do(1, "back", MS, verb=Verb.SEND, peer=0, eager=True),
    ]  # fmt: skip
    built = play(ops)
    assert waits_ms(built) == {(1, "hop"): 4}
    assert link(built).dropped_edges == 0


def test_grouped_send_and_receive_are_one_op_with_two_partners() -> None:
    """Rank 1 exchanges with ranks 0 and 2 in one call; the next op follows both parts."""
    ops = [
        Do(0, "a", 2 * MS), Do(0, "hop", MS, verb=Verb.SEND, peer=1),
        Do(1, "a", 1 * MS), Do(1, "hop", MS, verb=Verb.RECV, peer=0),
        Do(1, "hop", MS, verb=Verb.SEND, peer=2, grouped=True), Do(1, "b", 3 * MS),
        Do(2, "a", 6 * MS), Do(2, "hop", MS, verb=Verb.RECV, peer=1),
    ]  # fmt: skip
    graph = link(play(ops))
    assert sorted(ranks for _, _, ranks in meetings(graph)) == [[0, 1], [1, 2]]
    after = np.flatnonzero(graph.ops.name == list(graph.names).index("b"))[0]
    preds = graph.pred[graph.pred_ptr[after] : graph.pred_ptr[after + 1]]
    assert [int(graph.ops.peer[i]) for i in sorted(preds, key=lambda i: graph.ops.peer[i])] == [0, 2]


def test_collectives_meet_by_sequence_number() -> None:
    """The window of rank 1 is cut: it lacks #1. Numbers match what order would not."""
    built = job({0: "AR#1 1 | AR#2 1 | AR#3 1", 1: "AR#1 1 | AR#2 1 | AR#3 1"})
    cut = edited(built, ops=built.ops.take(~((built.ops.rank == 1) & (built.ops.seq == 1))))
    graph = link(cut)
    pairs = {int(graph.ops.seq[graph.gate == g][0]) for g in range(len(graph.gates))}
    assert len(graph.gates) == 2
    assert pairs == {2, 3}
    assert graph.counts["unmatched"] == 1


def test_collectives_without_numbers_meet_in_order() -> None:
    """Same counts, no numbers: the n-th of a group in a step meets the n-th."""
    graph = link(job(dict.fromkeys(range(3), "fwd 2 | AR:8/a 1 | AR:8/b 1 | AR:8/a 1"), steps=2))
    assert len(graph.gates) == 6
    assert all(ranks == [0, 1, 2] for _, _, ranks in meetings(graph))


def test_differing_counts_fall_back_to_the_longest_common_order() -> None:
    """Rank 1 lost its first two collectives: sizes say that its first is the others' third."""
    built = job(dict.fromkeys(range(3), "AR:1 1 | AR:2 1 | AR:3 1 | AR:4 1"))
    lost = (built.ops.rank == 1) & np.isin(built.ops.size, (1, 2))
    graph = link(edited(built, ops=built.ops.take(~lost)))
    met = {int(graph.gates.size[g]): int(graph.gates.members[g]) for g in range(len(graph.gates))}
    assert met == {1: 2, 2: 2, 3: 3, 4: 3}


def test_an_extra_collective_is_left_alone() -> None:
    """Rank 0 has one that nobody else has: it stays unmatched and the rest meet."""
    built = job(dict.fromkeys(range(3), "AR:1 1 | AR:2 1 | AR:3 1"))
    extra = {**{k: v[:1].copy() for k, v in built.ops.columns.items()}, "size": np.array([99])}
    extra["start_ns"], extra["end_ns"] = np.array([1_200_000]), np.array([1_300_000])
    columns = {k: np.concatenate([v, extra[k]]) for k, v in built.ops.columns.items()}
    graph = link(trace(columns, built.names, built.groups))
    assert sorted(int(s) for s in graph.gates.size) == [1, 2, 3]
    assert all(ranks == [0, 1, 2] for _, _, ranks in meetings(graph))
    assert graph.counts["unmatched"] == 1


def test_an_uneven_all_to_all_is_still_one_gate() -> None:
    """Every rank sends another number of bytes: that is what an all-to-all may do."""
    graph = link(job({r: f"fwd 2 | A2A:{100 + r} 1 | A2A:{7 * r + 1} 1" for r in range(4)}))
    assert [members for _, _, members in meetings(graph)] == [[0, 1, 2, 3]] * 2
    assert graph.counts["misaligned"] == 0


def test_steps_that_not_all_ranks_recorded_are_left_out() -> None:
    """Cut windows: rank 1 recorded steps 1–4 only, so step 0 is not judged, and that is reported."""
    built = job({0: "fwd 2 | AR 1", 1: "fwd 2 | AR 1"}, steps=5)
    graph = link(edited(built, ops=built.ops.take((built.ops.rank == 0) | (built.ops.step > 0))))
    assert graph.steps.tolist() == [1, 2, 3, 4]
    assert any("1 of 5 steps" in note for note in graph.partial)


def test_gates_in_a_circle_are_taken_apart_with_a_note() -> None:
    """Rank 0 meets in x then y, rank 1 in y then x: no order satisfies both; one gate goes, the replay stays exact."""
    columns = {
        "rank": [0, 0, 1, 1], "lane": [0] * 4, "step": [0] * 4, "kind": [Kind.COMMUNICATE] * 4, "name": [0] * 4,
        "verb": [Verb.ALL_REDUCE] * 4, "group": [0, 1, 1, 0],
        "start_ns": np.array([0, 10, 0, 10]) * MS, "end_ns": np.array([10, 20, 10, 20]) * MS,
    }  # fmt: skip
    graph = link(trace(columns, ["all-reduce"], ["x", "y"]))
    assert any("circle" in note for note in graph.partial)
    assert graph.counts["circular gates"] == 1
    assert (replay(graph).end_ns == graph.ops.end_ns).all()


def test_sends_that_cross_do_not_close_a_circle() -> None:
    """Each rank sends and then receives; both sends ended just before the other's receive began: nobody waited for anybody."""
    columns = {
        "rank": [0, 0, 1, 1], "lane": [0] * 4, "step": [0] * 4, "kind": [Kind.COMMUNICATE] * 4, "name": [0, 1, 0, 1],
        "verb": [Verb.SEND, Verb.RECV] * 2, "group": [0] * 4, "peer": [1, 1, 0, 0],
        "start_ns": np.array([0, 100, 5, 105]) * 1000, "end_ns": np.array([90, 200, 95, 205]) * 1000,
    }  # fmt: skip
    graph = link(trace(columns, ["send", "recv"], ["all"]))
    assert graph.counts["circular gates"] == 0
    assert graph.counts["gates"] == 2
    assert (replay(graph).end_ns == graph.ops.end_ns).all()


@pytest.mark.parametrize("seed", range(3))
def test_many_circles_lose_the_same_gates_whether_taken_apart_together_or_one_by_one(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Three ranks meet in the same gates, each in an order a little different from the others'."""
    n, rng = 120, np.random.default_rng(seed)
    group = np.concatenate([np.argsort(np.arange(n) + rng.uniform(0, 3, n)) for _ in range(3)])
    times = np.tile(np.arange(n + 1) * 10, (3, 1)) * MS
    columns = {
        "rank": np.repeat([0, 1, 2], n), "lane": [0] * 3 * n, "step": [0] * 3 * n, "kind": [Kind.COMMUNICATE] * 3 * n,
        "name": [0] * 3 * n, "verb": [Verb.ALL_REDUCE] * 3 * n, "group": group,
        "start_ns": times[:, :-1].ravel(), "end_ns": times[:, 1:].ravel() + 20 * MS,
    }  # fmt: skip
    built = trace(columns, ["all-reduce"], [f"g{i}" for i in range(n)])
    together = link(built)
    monkeypatch.setattr(sys.modules[link.__module__], "FEW_CIRCLES", 10**9)
    one_by_one = link(built)
    assert together.counts["circular gates"] == one_by_one.counts["circular gates"] > 20
    assert (together.gate == one_by_one.gate).all()
    assert (replay(together).end_ns == together.ops.end_ns).all()


def test_ops_that_overlap_in_a_lane_get_lanes_of_their_own() -> None:
    """Three ops of one lane overlap in part: none is dropped, the replay is exact, and lanes are serial."""
    columns = {
        "rank": [0] * 4, "lane": [0] * 4, "step": [0] * 4, "name": [0] * 4,
        "start_ns": np.array([0, 5, 8, 30]) * MS, "end_ns": np.array([10, 15, 25, 40]) * MS,
    }  # fmt: skip
    graph = link(trace(columns, ["a"]))
    assert (replay(graph).end_ns == graph.ops.end_ns).all()
    for lane in np.unique(graph.ops.lane):
        mine = np.argsort(graph.ops.start_ns[graph.ops.lane == lane])
        start, end = (c[graph.ops.lane == lane][mine] for c in (graph.ops.start_ns, graph.ops.end_ns))
        assert (start[1:] >= end[:-1]).all()


def independent(seed: int) -> Trace:
    """Ops on lanes of their own, no gates, no launches: nothing explains when they begin."""
    rng = np.random.default_rng(seed)
    n = 40
    start = rng.integers(0, 1000, n) * MS
    columns: dict[str, Any] = {
        "rank": np.arange(n) % 4, "lane": np.arange(n), "step": np.zeros(n), "name": np.zeros(n),
        "start_ns": start, "end_ns": start + 10 * MS,
    }  # fmt: skip
    return trace(columns, ["op"])


def test_a_graph_without_edges_says_that_it_explains_nothing() -> None:
    """Zero-edge graph: the replay law holds by gaps alone, so explained_share is 0 and the verdict says so."""
    done = analyze(independent(0))
    assert (replay(done.graph).end_ns == done.graph.ops.end_ns).all()
    assert done.result["fidelity"]["explained_share"] < 0.05
    assert "0 % of starts are explained" in done.verdict
    assert done.result["verdict"]["class"] == "unknown"
    assert done.findings == []


def without(built: Trace, rank: int, places: Sequence[int]) -> Graph:
    """The graph without these collectives (by their turn) of a rank."""
    mine = np.flatnonzero((built.ops.rank == rank) & (built.ops.verb != Verb.NONE))
    keep = np.ones(len(built.ops), dtype=bool)
    keep[mine[list(places)]] = False
    graph = link(edited(built, ops=built.ops.take(keep)))
    assert (replay(graph).end_ns == graph.ops.end_ns).all()
    return graph


def ends_ms(graph: Graph) -> list[tuple[int, ...]]:
    """When the members of every gate ended, to tell which collective each was."""
    end = graph.ops.end_ns
    return sorted(tuple(sorted(set((end[graph.gate == g] // MS).tolist()))) for g in range(len(graph.gates)))


ALIKE = "fwd 5 | AR:8 1 | " * 5 + "fwd 1"
"""Five collectives that nothing but their time tells apart; they end at 6, 12, 18, 24 and 30 ms."""


@pytest.mark.parametrize("lost", [[0], [4], [0, 1], [2], [0, 4]])
def test_a_cut_window_is_aligned_by_time(lost: list[int]) -> None:
    """Rank 1 lost collectives at the start, the end or in between: the others of the same kind still meet their own."""
    graph = without(job({0: ALIKE, 1: ALIKE, 2: ALIKE}), 1, lost)
    assert ends_ms(graph) == [(6,), (12,), (18,), (24,), (30,)]
    assert sorted(graph.gates.members.tolist()) == [2] * len(lost) + [3] * (5 - len(lost))


def test_two_windows_cut_at_opposite_ends() -> None:
    """Rank 0 lost its last, rank 1 its first: equal numbers, and yet the n-th is not the n-th."""
    built = job({0: ALIKE, 1: ALIKE})
    mine = np.flatnonzero((built.ops.rank == 0) & (built.ops.verb != Verb.NONE))
    built = edited(built, ops=built.ops.take(np.arange(len(built.ops)) != mine[-1]))
    graph = without(built, 1, [0])
    assert ends_ms(graph) == [(12,), (18,), (24,)]
    assert graph.counts["unmatched"] == 2


def test_what_could_be_either_is_neither() -> None:
    """Two collectives alike within the error of the clock: rank 1 has one of them, and nothing says which."""
    script = "fwd 5 | AR:8 0.02 | AR:8 0.02 | fwd 5 | AR:8 1"
    graph = without(job({0: script, 1: script}), 1, [0])
    assert ends_ms(graph) == [(11,)]
    assert (graph.counts["misaligned"], graph.counts["unmatched"]) == (1, 3)


def test_one_more_broadcast_on_a_rank() -> None:
    """Rank 0 broadcasts its configuration to nobody that was traced; sizes are not recorded."""
    built = job({0: "BC@0 1 | fwd 5 | AR 1 | fwd 5 | AR 1", 1: "BC@0 1 | fwd 5 | AR 1 | fwd 5 | AR 1"})
    graph = without(built, 1, [0])
    assert [name for _, name, _ in meetings(graph)] == ["all-reduce"] * 2
    assert graph.counts["unmatched"] == 1


def test_numbers_that_contradict_themselves_match_nothing() -> None:
    """Number 2 is a broadcast on one rank and an all-reduce on the other: one of them is wrong."""
    graph = link(job({0: "AR#1 1 | AR#2 1 | AR#3 1", 1: "AR#1 1 | BC#2@0 1 | AR#3 1"}))
    assert sorted(graph.ops.seq[graph.gate >= 0].tolist()) == [1, 1, 3, 3]
    assert graph.counts["misaligned"] == 2


def test_a_size_that_one_rank_does_not_record_is_no_difference() -> None:
    graph = link(job({0: "fwd 2 | AR:8 1 | AR:16 1", 1: "fwd 3 | AR 1 | AR 1"}))
    assert [members for _, _, members in meetings(graph)] == [[0, 1]] * 2


def test_ops_in_no_lane_are_refused() -> None:
    ops = Table(Op, {"rank": [0, 0], "step": [0, 0], "name": [0, 0], "start_ns": [0, 5], "end_ns": [4, 9]})
    with pytest.raises(InputRefused, match="an op lies in no lane"):
        link(Trace(ops=ops, names=["mm"], lanes=["main"], groups=[], members=Table(Member, {"rank": [0]})))
