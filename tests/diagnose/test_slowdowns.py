"""What becomes slower during a run is named with its onset: a rank, a stage's rank, a link, a network interface, a stall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, one_f_one_b, play, ring_all_reduce
from taut.core.tables import Kind, Trace, Verb
from taut.diagnose.as_before import as_before
from taut.replay.timeline import replay
from taut.run import Analysis

STEPS, ONSET = 30, 12


def jitter(seed: int, ranks: int, spread: float = 0.03) -> Any:
    return 100 * MS * (1 + spread * np.random.default_rng(seed).standard_normal((STEPS, ranks)))


def first(done: Analysis) -> tuple[Any, ...]:
    found = done.findings[0]
    return found.mode, found.ranks, found.links, found.steps[0]


def saved(done: Analysis) -> float:
    """Predicted saving per step since the onset, ms."""
    return done.recoverable_wall_ns / (STEPS - ONSET) / MS


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_slows_down_is_measured_against_itself(seed: int) -> None:
    work = jitter(seed, 4)
    work[ONSET:, 2] += 30 * MS
    done = analyze(barriers(work, 5 * MS))
    assert first(done)[:3] == ("straggler cascade", (2,), ())
    assert abs(first(done)[3] - ONSET) <= 1
    assert saved(done) == pytest.approx(30 - 0.03 * 100 * 1.03, rel=0.12), "the others' jitter remains"


@pytest.mark.parametrize("seed", range(5))
def test_transfers_that_a_slow_rank_holds_up_are_mended_with_it(seed: int) -> None:
    """Throttled hosts move bytes slowly too: 30 ms more work and 8 ms more in every all-reduce are one fault."""
    work = jitter(seed, 4)
    transfer = np.abs(np.random.default_rng(seed + 9).normal(20 * MS, 4 * MS, (STEPS, 1))) * np.ones((1, 4))
    work[ONSET:, 2] += 30 * MS
    transfer[ONSET:] += 8 * MS
    done = analyze(barriers(work, transfer))
    assert first(done)[:3] == ("straggler cascade", (2,), ())
    assert saved(done) == pytest.approx(30 - 0.03 * 100 * 1.03 + 8, rel=0.12)


def test_a_rank_that_was_always_slower_by_habit_is_no_change() -> None:
    work = jitter(0, 4) * np.array([1, 1, 1.04, 1])
    assert analyze(barriers(work, 5 * MS)).findings == []


def test_what_all_ranks_share_is_nobodys_fault() -> None:
    work = jitter(1, 8)
    work[ONSET:] += 40 * MS
    found = analyze(barriers(work, 5 * MS)).findings
    assert [(f.mode, f.ranks, f.classes, f.steps[0]) for f in found] == [("silent degradation", (), ("fwd",), ONSET)]


def test_a_stage_without_peers_is_measured_against_its_own_past() -> None:
    """A pipeline of four ranks: nobody does what rank 1 does, so only time tells."""
    ops = [
        op
        for step in range(STEPS)
        for op in one_f_one_b(
            4, 6, 5, 8, 0.5, noise=0.02, seed=step, scale=lambda s, d, step=step: 1.4 if s == 1 and step >= ONSET else 1.0
        )
        for op in [Do(**{**op.__dict__, "step": step})]
    ]
    done = analyze(play(ops))
    assert first(done)[:2] == ("straggler cascade", (1,))
    assert abs(first(done)[3] - ONSET) <= 1


@pytest.mark.parametrize(
    ("slow", "links", "ranks"), [({(1, 2): 9}, ("1:2",), ()), ({(1, 2): 9, (2, 3): 9}, ("1:2", "2:3"), (2,))]
)
def test_a_link_that_becomes_slow_is_named_by_who_ends_last(
    slow: dict[Any, int], links: tuple[str, ...], ranks: tuple[int, ...]
) -> None:
    before = ring_all_reduce(jitter(2, 5)[:ONSET], 2 * MS, {}, seed=1)
    after = ring_all_reduce(jitter(3, 5)[ONSET:], 2 * MS, {k: v * MS for k, v in slow.items()}, seed=2)
    done = analyze(_joined(before, after))
    assert first(done)[:3] == ("straggler cascade", ranks, links)
    assert abs(first(done)[3] - ONSET) <= 1
    assert saved(done) == pytest.approx(7 * 8, rel=0.08), "eight rounds, each 7 ms longer"
    asked = replay(done.graph, as_before(done.graph, done.blame.usual_ns, "link", links))
    assert done.observed.wall_ns - asked.wall_ns == done.findings[0].recoverable_wall_ns, "what-if and finding agree"
    assert as_before(done.graph, done.blame.usual_ns, "link", ["3:4"]) == []


def _joined(before: Trace, after: Trace) -> Trace:
    """Two traces of the same ranks, one after the other."""
    from taut.core.tables import Op, Table

    shift = int(before.ops.end_ns.max())
    columns = {name: np.concatenate([before.ops.columns[name], after.ops.columns[name]]) for name in before.ops.columns}
    n = len(before.ops)
    columns["start_ns"][n:] += shift
    columns["end_ns"][n:] += shift
    columns["step"][n:] += ONSET
    return Trace(
        ops=Table(Op, columns), names=before.names, lanes=before.lanes, groups=before.groups, members=before.members,
        backend=before.backend,
    )  # fmt: skip


def _grid(work: Any, transfer: Callable[[int, tuple[int, int]], float]) -> Trace:
    """Four ranks in a 2 × 2 mesh: every step an all-reduce in the row, then one in the column."""
    ops = []
    for step in range(STEPS):
        for rank in range(4):
            row, column = (rank - rank % 2, rank - rank % 2 + 1), (rank % 2, rank % 2 + 2)
            ops.append(Do(rank, "fwd", round(work[step, rank]), step=step))
            for name, pair in (("row", row), ("column", column)):
                ns = round(transfer(step, pair) * MS)
                ops.append(Do(rank, f"{name} all-reduce", ns, step=step, verb=Verb.ALL_REDUCE, group=str(pair)))
    return play(ops, backend="gloo")


def test_small_groups_that_slow_down_together_share_a_network_interface() -> None:
    """With two members nobody ends last: what the slow groups have in common is rank 1."""
    done = analyze(_grid(jitter(4, 4), lambda step, pair: 20 if step >= ONSET and 1 in pair else 4))
    assert done.findings[0].ranks == (1,)
    assert {end for link in done.findings[0].links for end in map(int, link.split(":"))} == {0, 1, 3}


def test_the_span_of_slow_groups_is_that_of_what_costs_most_in_all() -> None:
    """One pair at rank 1 is slow from the onset on, another, slower, for eight of these steps: the interface always is."""
    slow = {(0, 1): range(ONSET, STEPS), (1, 3): range(ONSET + 4, ONSET + 12)}
    done = analyze(_grid(jitter(4, 4), lambda step, pair: (26 if pair == (1, 3) else 20) if step in slow.get(pair, ()) else 4))
    assert done.findings[0].ranks == (1,)
    assert done.findings[0].steps == (ONSET, STEPS - 1)


def _stalling(name: str, every: int) -> Trace:
    ops = []
    rng = np.random.default_rng(0)
    for step in range(STEPS):
        for rank in range(4):
            slow = 60 * MS if rank == 3 and step >= ONSET else 0
            if step % every == every - 1:
                ops.append(Do(rank, name, 2 * MS + slow, step=step, kind=Kind.COORDINATE))
            ops.append(Do(rank, "fwd", round(100 * MS * (1 + 0.02 * rng.standard_normal())), step=step))
            ops.append(Do(rank, "all-reduce", 5 * MS, step=step, verb=Verb.ALL_REDUCE))
    return play(ops)


@pytest.mark.parametrize(("name", "every", "mode"), [("data_load", 1, "input stall"), ("checkpoint", 3, "checkpoint stall")])
def test_a_stall_is_told_by_the_class_that_holds_the_excess(name: str, every: int, mode: str) -> None:
    done = analyze(_stalling(name, every))
    assert [(f.mode, f.ranks) for f in done.findings] == [(mode, (3,))]


def test_a_culprit_that_moves_is_found_twice() -> None:
    work = jitter(6, 4)
    work[8:18, 0] += 40 * MS
    work[18:28, 3] += 40 * MS
    done = analyze(barriers(work, 5 * MS))
    assert {(f.ranks, f.steps) for f in done.findings} == {((0,), (8, 17)), ((3,), (18, 27))}


def test_the_second_place_of_a_fault_that_moves_is_listed_though_it_saves_little_alone() -> None:
    work = jitter(6, 4, 0.01)
    work[4:16, 0] += 15 * MS
    work[16:26, 3] += 5 * MS
    done = analyze(barriers(work, 5 * MS))
    assert [f.ranks for f in done.findings] == [(0,), (3,)]
    assert done.findings[1].recoverable_wall_ns < 0.03 * done.observed.wall_ns
    assert "once the other findings are mended" in done.findings[1].because


def test_a_stage_that_hides_behind_a_slower_one_is_named_with_it() -> None:
    def scale(step: int) -> Callable[[int, int], float]:
        return lambda stage, _: {3: 1.2, 4: 1.3}.get(stage, 1.0) if step >= ONSET else 1.0

    ops = [
        replace(op, step=step)
        for step in range(STEPS)
        for op in one_f_one_b(8, 2, 5, 8, 0.5, noise=0.01, seed=step, scale=scale(step))
    ]
    done = analyze(play(ops))
    assert [f.ranks for f in done.findings] == [(3, 4)]


@pytest.mark.parametrize("onset", [0, ONSET])
def test_equal_culprits_that_save_nothing_alone_are_one_finding(onset: int) -> None:
    work = jitter(7, 8, 0.01)
    work[onset:, :2] += 40 * MS
    done = analyze(barriers(work, 5 * MS))
    (found,) = done.findings
    assert (found.mode, found.ranks) == ("straggler cascade", (0, 1))
    assert found.steps[0] in range(onset, onset + 2)
    assert done.recoverable_wall_ns == found.recoverable_wall_ns > 0.1 * done.observed.wall_ns
    assert "they hide each other" in found.because


def test_two_spans_of_one_rank_are_two_findings_the_costliest_first() -> None:
    work = jitter(9, 4, 0.02)
    work[4:14, 1] += 15 * MS
    work[20:25, 1] += 200 * MS
    done = analyze(barriers(work, 5 * MS))
    assert [(f.ranks, f.steps) for f in done.findings] == [((1,), (20, 24)), ((1,), (4, 13))]


def test_stops_that_fall_into_other_classes_are_all_of_one_stall() -> None:
    """In mid-run the stops of a rank lie in its second class, before in its first: it has stopped since the first of them."""
    rng = np.random.default_rng(3)
    halves = 50 * MS * (1 + 0.01 * rng.standard_normal((STEPS, 4, 2)))
    stops = [11, 12, 13, 14, 17, 18, 19, 20, 23, 25, 26, 27]
    halves[stops, 3, [int(step >= 17) for step in stops]] += 90 * MS
    ops = [
        Do(rank, name, round(halves[step, rank, half]), step=step)
        if name != "all-reduce"
        else Do(rank, name, 5 * MS, step=step, verb=Verb.ALL_REDUCE)
        for step in range(STEPS)
        for rank in range(4)
        for half, name in enumerate(("fwd", "bwd", "all-reduce"))
    ]
    (found,) = analyze(play(ops)).findings
    assert (found.mode, found.ranks, found.steps) == ("straggler cascade", (3,), (11, 27))
    assert found.recoverable_wall_ns == pytest.approx(90 * MS * len(stops), rel=0.05)


def test_stops_that_fall_into_transfers_are_of_the_same_stall() -> None:
    """Some stops of a rank lie in its work, others hold up the transfer it is in; an accident long before is none of them."""
    work, transfer = jitter(16, 8, 0.01), np.full((STEPS, 8), 5 * MS)
    in_work, in_transfer = [11, 14, 16, 17, 18, 19, 21, 22, 23], [12, 13, 15, 24, 25, 26, 27, 28]
    work[[0, *in_work], 6] += 80 * MS
    transfer[in_transfer] += 80 * MS
    (found,) = analyze(barriers(work, transfer)).findings
    assert (found.mode, found.ranks, found.links, found.steps) == ("straggler cascade", (6,), (), (11, 28))
    assert found.recoverable_wall_ns == pytest.approx(17 * 80 * MS, rel=0.05)


def test_a_rank_that_stops_is_not_taken_for_a_link_whose_transfers_it_holds_up() -> None:
    """A pipeline whose second rank stops, in its work or as it receives from the third: no link of either is at fault."""
    rng = np.random.default_rng(17)
    in_work, in_transfer = [0, 8, 12, 13, 15, 18, 19, 22, 23, 26, 28], [9, 10, 11, 14, 16, 20, 21, 24, 25, 27]
    ops = []
    for step in range(STEPS):
        for stage in reversed(range(4)):
            stops, took = 70 * MS * (stage == 1), round(40 * MS * (1 + 0.01 * rng.standard_normal()))
            held = stops * (step in in_transfer) if stage < 3 else 0
            ops += [Do(stage, "hop", 2 * MS + held, step=step, verb=Verb.RECV, peer=stage + 1)] if stage < 3 else []
            ops.append(Do(stage, "bwd", took + stops * (step in in_work), step=step))
            ops += [Do(stage, "hop", MS, step=step, verb=Verb.SEND, peer=stage - 1, eager=True)] if stage else []
        ops += [Do(rank, "all-reduce", 5 * MS, step=step, verb=Verb.ALL_REDUCE) for rank in range(4)]
    (found,) = analyze(play(ops)).findings
    assert (found.mode, found.ranks, found.links, found.steps) == ("straggler cascade", (1,), (), (8, 28))
    assert found.recoverable_wall_ns == pytest.approx(20 * 70 * MS, rel=0.1)


def test_a_level_whose_cost_lies_in_two_steps_is_no_finding() -> None:
    """A rank 2 % slower for a while is not worth listing, whatever holds it up in two of these steps."""
    work = jitter(11, 8, 0.004)
    work[8:24, 5] += 2 * MS
    assert analyze(barriers(work, 5 * MS)).findings == []
    work[[12, 19], 5] += 150 * MS
    assert analyze(barriers(work, 5 * MS)).findings == []


def test_two_accidents_far_outside_do_not_stretch_a_level() -> None:
    work = jitter(7, 8, 0.01)
    work[14:22, 5] += 40 * MS
    work[[3, 27], 5] += 200 * MS
    (found,) = analyze(barriers(work, 5 * MS)).findings
    assert (found.ranks, found.steps) == ((5,), (14, 21))
    assert found.recoverable_wall_ns == pytest.approx(8 * 40 * MS, rel=0.1)


def test_stops_that_everybody_has_are_not_of_the_rank_that_is_slow() -> None:
    """Three stops of each rank: by chance a rank would have as many, whatever else is wrong with it."""
    work = jitter(8, 8, 0.01)
    work[18:, 2] += 30 * MS
    for rank in range(8):
        work[[rank, rank + 6, rank + 12], rank] += 120 * MS
    slow = [found for found in analyze(barriers(work, 5 * MS)).findings if found.ranks]
    assert [(found.ranks, found.steps) for found in slow] == [((2,), (18, 29))]


def test_ranks_of_a_host_that_stop_in_the_same_steps_are_one_finding() -> None:
    """Each of four ranks stops no more often than chance allows of 16, but they stop together; mending one saves nothing."""
    work = jitter(12, 16, 0.01)
    stops = [4, 9, 15, 19, 24, 28]
    work[np.ix_(stops, range(4, 8))] += 120 * MS
    (found,) = analyze(barriers(work, 5 * MS, hosts={rank: f"node{rank // 4}" for rank in range(16)})).findings
    assert (found.ranks, found.where, found.steps) == ((4, 5, 6, 7), "host node1", (4, 28))
    assert found.recoverable_wall_ns == pytest.approx(120 * MS * len(stops), rel=0.05)


def test_stops_before_a_level_of_the_same_rank_are_a_finding_of_their_own() -> None:
    """What a rank takes otherwise is told by steps in which it neither stops nor is slow."""
    work = jitter(13, 16, 0.01)
    work[[2, 6, 10], 2] += 150 * MS
    work[16:, 2] += 30 * MS
    done = analyze(barriers(work, 5 * MS))
    assert {(f.ranks, f.steps) for f in done.findings} == {((2,), (2, 10)), ((2,), (16, 29))}
    assert done.recoverable_wall_ns == pytest.approx(3 * 150 * MS + 14 * 30 * MS, rel=0.1)


def test_two_levels_of_a_rank_are_no_stops_whatever_happens_between_them() -> None:
    work = jitter(14, 16, 0.01)
    work[4:11, 2] += 50 * MS
    work[15, 2] += 500 * MS
    work[20:27, 2] += 50 * MS
    done = analyze(barriers(work, 5 * MS))
    assert {(f.ranks, f.steps) for f in done.findings} == {((2,), (4, 10)), ((2,), (20, 26))}
    assert done.recoverable_wall_ns == pytest.approx(14 * 50 * MS, rel=0.1), "the accident between them is nobody's"


def test_a_host_that_stops_between_operators_is_said_to_take_longer_by_its_gaps() -> None:
    stops = [4, 9, 15, 19, 24, 28]
    ops = [
        Do(rank, "fwd", round(work), step=step, idle=120 * MS if step in stops and rank in range(4, 8) else 10_000)
        if name == "fwd"
        else Do(rank, name, 5 * MS, step=step, verb=Verb.ALL_REDUCE)
        for step, row in enumerate(jitter(15, 16, 0.01))
        for rank, work in enumerate(row)
        for name in ("fwd", "all-reduce")
    ]
    (found,) = analyze(play(ops)).findings
    assert found.ranks == (4, 5, 6, 7)
    said = found.because.partition(" % longer in their own work and gaps than before")[0].rpartition(" ")[2]
    assert int(said) == pytest.approx(100 * 6 * 120 / (25 * 100), abs=1)


@pytest.mark.parametrize("ranks", [4, 8])
def test_stops_that_all_ranks_have_are_no_level_of_one_where_they_fall_together(ranks: int) -> None:
    """Busy cores stop whoever runs on them, in an eighth of the steps: some rank has four or five of them nearly in a row."""
    named = []
    for seed in range(20):
        rng = np.random.default_rng((seed, ranks))
        stops = (rng.random((STEPS, ranks)) < 0.12) * rng.uniform(100, 200, (STEPS, ranks)) * MS
        named += [f for f in analyze(barriers(jitter(seed, ranks, 0.02) + stops, 5 * MS)).findings if f.ranks or f.links]
    assert named == []


@pytest.mark.parametrize("ranks", [(0, 2, 3, 4, 6), (0, 1, 2, 3, 4, 6)])
@pytest.mark.parametrize("slow", [slice(0, ONSET), slice(ONSET, STEPS)])
def test_most_ranks_may_be_slower_than_they_were_while_the_others_are_as_ever(slow: slice, ranks: tuple[int, ...]) -> None:
    """What the others did is taken off, but not where they are the ones that changed: who did not tells."""
    work = jitter(7, 8, 0.01)
    work[slow][:, ranks] *= 1.4
    (found,) = analyze(barriers(work, 5 * MS)).findings
    assert found.ranks == ranks
    assert found.steps == (slow.start, slow.stop - 1)
