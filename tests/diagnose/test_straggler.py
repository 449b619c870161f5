"""Who is blamed, for how much, and who is not: jobs whose truth is known because they were built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as edited
from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, job, play, ring_all_reduce
from taut.core.tables import Kind, Trace, Verb
from taut.run import Analysis


def gaussian(rng: Any, steps: int, ranks: int, sigma: float = 0.05) -> Any:
    """Relative work, steps × ranks."""
    return 1 + sigma * rng.standard_normal((steps, ranks))


def lognormal(rng: Any, steps: int, ranks: int, sigma: float = 0.1) -> Any:
    return np.exp(sigma * rng.standard_normal((steps, ranks)))


BASE, TRANSFER = 100 * MS, 5 * MS


def culprits(done: Analysis) -> list[tuple[int, ...]]:
    return [f.ranks for f in done.findings]


# Healthy jobs


@pytest.mark.parametrize("ranks", [2, 8])
def test_two_healthy_branches_at_five_percent_have_no_fault(ranks: int) -> None:
    """Jitter has no culprit: over 60 seeds no finding, and no more fault than the stated false-alarm rate allows."""
    blamed = fault = wait = 0
    for seed in range(60):
        done = analyze(barriers(BASE * gaussian(np.random.default_rng(seed), 30, ranks), TRANSFER))
        totals = done.blame.totals
        assert done.findings == []
        assert totals.fault_ns + totals.jitter_ns + totals.structural_ns == totals.wait_ns
        blamed += totals.fault_ns > 0
        fault, wait = fault + totals.fault_ns, wait + totals.wait_ns
    assert fault < 0.01 * wait
    assert blamed <= 3, "at 1 % a run, four of sixty have a chance below 0.5 %"


def test_a_hiccup_is_nobodys_fault_in_however_few_steps() -> None:
    """One step of one rank takes three times as long, which may happen to any rank: the verdict says what would tell."""
    for steps in (2, 3, 4):
        work = BASE * gaussian(np.random.default_rng(steps), steps, 8)
        work[1, 3] *= 3
        done = analyze(barriers(work, TRANSFER))
        assert culprits(done) == []
        assert "rank 3" in done.verdict
        assert f"{20 - steps} more steps would" in done.verdict


def test_three_hiccups_of_forty_steps_are_no_habit_if_others_have_them_too() -> None:
    work = BASE * gaussian(np.random.default_rng(5), 40, 8)
    for step, rank in ((4, 3), (17, 3), (30, 3), (9, 1), (22, 6)):
        work[step, rank] *= 3
    assert culprits(analyze(barriers(work, TRANSFER))) == []


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_a_rank_that_is_twice_as_slow_is_found_in_a_few_steps(steps: int) -> None:
    work = BASE * gaussian(np.random.default_rng(steps), steps, 8, 0.03)
    work[:, 3] *= 2
    assert culprits(analyze(barriers(work, TRANSFER))) == [(3,)]


@pytest.mark.parametrize("noise", [gaussian, lognormal])
@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_a_healthy_job_has_no_finding(ranks: int, noise: Any) -> None:
    """False alarms: none in 40 seeds."""
    found = []
    for seed in range(40):
        done = analyze(barriers(BASE * noise(np.random.default_rng(1000 + seed), 20, ranks), TRANSFER))
        found += [(seed, f.ranks, f.because) for f in done.findings]
    assert found == []


def test_unequal_but_stable_workers_are_no_finding() -> None:
    """±10 % between workers, the same in every step, is heterogeneity and not a fault."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        speed = rng.uniform(0.9, 1.1, size=8)
        done = analyze(barriers(BASE * speed * gaussian(rng, 20, 8, 0.02), TRANSFER))
        assert done.findings == [], f"seed {seed}: speeds {np.round(speed, 3)}"


def test_every_rank_twice_as_slow_in_one_role_is_structure() -> None:
    """Two stages of unequal length: the shorter waits, for structure and jitter, not for a fault; the longer is too long."""
    work = BASE * gaussian(np.random.default_rng(0), 30, 8) * np.repeat([1.0, 2.0], 4)
    done = analyze(barriers(work, TRANSFER, stage={r: r // 4 for r in range(8)}))
    assert [(f.mode, f.ranks, f.stages) for f in done.findings] == [("work imbalance", (), (1,))]
    assert done.blame.totals.structural_ns > 0.7 * done.blame.totals.wait_ns


# One culprit


@pytest.mark.parametrize("ranks", [4, 8, 32])
@pytest.mark.parametrize("seed", range(5))
def test_a_slow_rank_is_named_alone_and_its_gain_is_true(ranks: int, seed: int) -> None:
    """+30 % on one rank: fault on it alone; recoverable within 3 % of the wall of what that job gives without it."""
    noise = gaussian(np.random.default_rng(seed), 30, ranks, 0.02)
    slow = np.where(np.arange(ranks) == 1, 1.3, 1.0)
    done = analyze(barriers(BASE * noise * slow, TRANSFER))
    healthy = analyze(barriers(BASE * noise, TRANSFER))
    assert culprits(done) == [(1,)]
    blamed = np.bincount(done.graph.rank_index, weights=done.blame.fault_ns, minlength=ranks)
    assert blamed.argmax() == 1
    assert np.delete(blamed, 1).sum() == 0
    truth = done.observed.wall_ns - healthy.observed.wall_ns
    assert abs(done.findings[0].recoverable_wall_ns - truth) < 0.03 * done.observed.wall_ns
    assert done.findings[0].steps[0] <= 2
    assert done.findings[0].steps[1] >= 27
    assert done.findings[0].confidence > 0.99


def test_fixing_the_slowest_exposes_the_second_slowest() -> None:
    """Blame is not saving: rank 0 at +50 % is charged more a step and victim than fixing it alone would bring."""
    work = BASE * gaussian(np.random.default_rng(1), 30, 8, 0.01) * np.array([1.5, 1.4, 1, 1, 1, 1, 1, 1])
    done = analyze(barriers(work, TRANSFER))
    first = next(cause for cause in done.result["blame"] if cause["cause"]["rank"] == 0)
    per_victim = first["wait_rank_ns"] / 7
    assert first["recoverable_wall_ns"] == pytest.approx(0.1 * 30 * BASE, rel=0.2)
    assert per_victim > 3 * first["recoverable_wall_ns"]


def test_a_culprit_that_changes_is_seen_to_change() -> None:
    """Rank 1 is slow in steps 0–29, rank 5 in steps 30–59: two findings, each with its own steps."""
    work = BASE * gaussian(np.random.default_rng(2), 60, 8, 0.02)
    work[:30, 1] *= 1.3
    work[30:, 5] *= 1.3
    found = {f.ranks: f.steps for f in analyze(barriers(work, TRANSFER)).findings}
    assert set(found) == {(1,), (5,)}
    assert found[1,][1] < 30 <= found[5,][0]
    assert found[1,][0] <= 1
    assert found[5,][1] >= 58


def test_a_burst_is_bounded_by_its_steps() -> None:
    """Rank 3 twice as slow in steps 20–27 of 60: the finding ends when the burst does."""
    work = BASE * gaussian(np.random.default_rng(3), 60, 8, 0.02)
    work[20:28, 3] *= 2
    found = analyze(barriers(work, TRANSFER)).findings
    assert [(f.ranks, f.steps) for f in found] == [((3,), (20, 27))]


@pytest.mark.parametrize("seed", range(3))
def test_one_accident_among_small_delays_is_no_habit(seed: int) -> None:
    """A rank that was late by a little now and then, and once by much: without its two worst steps it costs next to nothing."""
    work = BASE * gaussian(np.random.default_rng(seed), 30, 4, 0.005)
    work[[20, 23, 26], 1] *= 1.06
    work[29, 1] *= 2.6
    assert analyze(barriers(work, TRANSFER)).findings == []


def meetings(own_ms: Any, transfer_ms: Any) -> Analysis:
    """Ranks that do their own work in every step (steps × ranks) and then meet, for as long as given of the step."""
    ops, (steps, ranks) = [], own_ms.shape
    for step in range(steps):
        ops += [Do(rank, "forward", int(MS * own_ms[step, rank]), step=step) for rank in range(ranks)]
        took = int(MS * transfer_ms[step])
        ops += [Do(rank, "all-reduce", took, step=step, verb=Verb.ALL_REDUCE) for rank in range(ranks)]
    return analyze(play(ops))


def test_an_accident_in_a_transfer_is_not_mended_with_the_slow_rank_that_holds_up_the_others() -> None:
    rng = np.random.default_rng(2)
    own, transfer = rng.normal(90, 1, (29, 4)), rng.normal(5, 0.05, 29)
    own[15:, 2] += 20
    transfer[15:] += 1
    transfer[22] += 220
    (found,) = meetings(own, transfer).findings
    assert found.ranks == (2,)
    assert found.recoverable_wall_ns == pytest.approx(14 * 20 * MS, rel=0.1)


def test_stops_that_fall_into_a_transfer_are_mended_with_those_that_do_not() -> None:
    rng = np.random.default_rng(3)
    own, transfer = rng.normal(90, 1, (29, 4)), rng.normal(5, 0.05, 29)
    stops = np.arange(9, 29)
    own[stops, 1] += 80
    for step in (13, 20):
        own[step, 1] -= 80
        transfer[step] += 80
    (found,) = meetings(own, transfer).findings
    assert found.ranks == (1,)
    assert found.recoverable_wall_ns == pytest.approx(20 * 80 * MS, rel=0.05)


@pytest.mark.parametrize("since", [0, 12])
def test_a_slow_rank_keeps_its_ordinary_stops_when_it_is_mended(since: int) -> None:
    """All ranks stop in a tenth of their steps, the slow one too: no repair takes that away."""
    predicted = saved = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        healthy = BASE * lognormal(rng, 30, 8)
        healthy += MS * rng.uniform(60, 180, (30, 8)) * (rng.random((30, 8)) < 0.1)
        slow = healthy.copy()
        slow[since:, 3] += 60 * MS
        for found in (f for f in analyze(barriers(slow, TRANSFER)).findings if f.ranks == (3,)):
            predicted += found.recoverable_wall_ns
            saved += int(slow.max(axis=1).sum() - healthy.max(axis=1).sum())
    assert predicted == pytest.approx(saved, rel=0.15)


def test_what_is_longer_than_the_stops_of_a_rank_is_not_mended_with_them() -> None:
    """A rank stops for 80 ms now and then, in its work and in transfers; one of these transfers was held up for 150 ms more."""
    rng = np.random.default_rng(4)
    own, transfer = rng.normal(90, 1, (29, 4)), rng.normal(5, 0.05, 29)
    own[[9, 11, 13, 16, 18, 20, 23, 25, 27], 1] += 80
    transfer[[10, 15, 22]] += 80
    transfer[15] += 150
    (found,) = meetings(own, transfer).findings
    assert found.ranks == (1,)
    assert found.recoverable_wall_ns == pytest.approx(12 * 80 * MS, rel=0.05)


def test_what_grows_is_mended_to_its_end() -> None:
    """The last steps of a rank that gets ever slower stand far above its middle, and are no stops."""
    work = BASE * gaussian(np.random.default_rng(0), 29, 3, 0.02)
    healthy = work.max(axis=1).sum()
    work[12:, 1] += 0.01 * MS * np.arange(1, 18) ** 3
    (found,) = analyze(barriers(work, TRANSFER)).findings
    assert found.ranks == (1,)
    assert found.recoverable_wall_ns == pytest.approx(work.max(axis=1).sum() - healthy, rel=0.1)


def test_the_cause_may_lie_gates_away() -> None:
    """Chain of pairs: rank 3 is late for 2, which is late for 1, which is late for 0: rank 3 is blamed."""

    def step(k: int) -> dict[int, str]:
        return {
            0: "a 10 | AR/x 1 | end 1",
            1: "a 10 | AR/y 1 | AR/x 1 | end 1",
            2: "a 10 | AR/z 1 | AR/y 1 | end 1",
            3: "a 10 | AR/z 1 | end 1" if k % 8 else "a 40 | AR/z 1 | end 1",
        }

    done = analyze(job(step, steps=40, noise=0.01))
    by_rank = np.bincount(done.graph.rank_index, weights=done.blame.fault_ns, minlength=4)
    assert by_rank.argmax() == 3
    assert by_rank[:3].sum() < 0.01 * by_rank[3]
    assert done.blame.matrix[3, 0] > 0, "rank 0 never meets rank 3, and yet waits for it"


def test_who_is_faster_than_a_spoilt_reference_makes_nobody_guilty() -> None:
    """Pairs (0,3), (1,4), (2,5); rank 1 is slow, which spoils the reference of its peers 0 and 2.

    Ranks 3 and 5 are a little longer by role: ranks 0 and 2 wait for structure, and fault lies on rank 1 alone.
    """
    a = {0: 10, 1: 15, 2: 10}
    scripts = {r: f"a {ms} | AR/p{r} 1 | AR 1" for r, ms in a.items()} | {r + 3: f"b 11 | AR/p{r} 1 | AR 1" for r in a}
    done = analyze(job(scripts, steps=20, noise=0.005, stage={r: r // 3 for r in range(6)}))
    by_rank = np.bincount(done.graph.rank_index, weights=done.blame.fault_ns, minlength=6)
    assert by_rank.argmax() == 1
    assert np.delete(by_rank, 1).sum() < 0.005 * by_rank[1], by_rank.tolist()


# Links


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_slow_ring_link_is_named_and_nobody_s_compute(ranks: int) -> None:
    """One direction 2→3 at five times the time: the link, not the rank; recoverable near the truth."""
    work = BASE * gaussian(np.random.default_rng(4), 20, ranks, 0.02)
    done = analyze(ring_all_reduce(work, MS, {(2, 3): 5 * MS}))
    healthy = analyze(ring_all_reduce(work, MS, {}))
    assert [(f.links, f.ranks) for f in done.findings] == [(("2:3",), ())]
    truth = done.observed.wall_ns - healthy.observed.wall_ns
    assert done.findings[0].recoverable_wall_ns == pytest.approx(truth, rel=0.1)
    assert "in that direction only" in done.findings[0].because


def test_a_link_slow_both_ways_names_the_interface() -> None:
    """Links into and out of rank 2 are slow: the endpoint they share is its NIC."""
    work = BASE * gaussian(np.random.default_rng(5), 20, 6, 0.02)
    done = analyze(ring_all_reduce(work, MS, {(1, 2): 5 * MS, (2, 3): 5 * MS}))
    assert [(f.links, f.ranks) for f in done.findings] == [(("1:2", "2:3"), (2,))]
    assert "rank 2 (node): its network interface" in done.findings[0].because


@pytest.mark.parametrize("ranks", [8, 16])
@pytest.mark.parametrize("chunk", [2, 4])
def test_a_ring_that_was_always_slow_is_told_from_eight_ranks_on(ranks: int, chunk: int) -> None:
    """Twice and four times as slow from the first of three steps on, under habits of ending."""
    work = BASE * gaussian(np.random.default_rng(ranks), 3, ranks, 0.02)
    built = ring_all_reduce(work, MS, {(5, 6): chunk * MS})
    habit = np.where(built.ops.group >= 0, np.random.default_rng(1).integers(0, MS // 3, ranks)[built.ops.rank], 0)
    done = analyze(edited(built, ops=built.ops.replace(end_ns=built.ops.end_ns + habit)))
    assert [f.links for f in done.findings] == [("5:6",)]


@pytest.mark.parametrize("ranks", [8, 16])
def test_habits_of_ending_name_no_link(ranks: int) -> None:
    """Ranks of one host end late by a chunk, or ranks end late by what is theirs: no staircase."""
    rng = np.random.default_rng(ranks)
    work = BASE * gaussian(rng, 20, ranks, 0.02)
    built = ring_all_reduce(work, MS, {})
    for habit in (rng.uniform(0, 3, ranks), 2.0 * (np.arange(ranks) < ranks // 2), 2.0 * (np.arange(ranks) % 2)):
        more = np.where(built.ops.group >= 0, np.rint(habit * MS).astype(np.int64)[built.ops.rank], 0)
        done = analyze(edited(built, ops=built.ops.replace(end_ns=built.ops.end_ns + more)))
        assert [f.links for f in done.findings if f.links] == []


@pytest.mark.parametrize("late", [(2, 3), (3,), (0, 1)])
def test_habits_of_ending_name_no_link_of_a_small_ring(late: tuple[int, ...]) -> None:
    """Some of four ranks end late by one round of a transfer of one size, as behind a slow link or interface."""
    work = BASE * gaussian(np.random.default_rng(2), 20, 4, 0.02)
    built = ring_all_reduce(work, 6 * MS, {})
    habit = np.where((built.ops.group >= 0) & np.isin(built.ops.rank, late), 6 * MS, 0)
    done = analyze(edited(built, ops=built.ops.replace(end_ns=built.ops.end_ns + habit)))
    assert [f.links for f in done.findings if f.links] == []


def of_two_sizes(small: float, slow: Callable[[int], float], every: int = 2) -> Trace:
    """Four ranks compute and reduce, by turns chunks of 6 ms and small ones; ``slow``: what a chunk takes from 2 to 3, ns."""
    chunk = np.where(np.arange(40) % every, small, 6) * MS
    work = BASE / 2 * gaussian(np.random.default_rng(2), 40, 4, 0.02)
    built = ring_all_reduce(work, chunk[:, None], {(2, 3): np.array([slow(int(c)) for c in chunk])})
    size = np.where((built.ops.group >= 0) & (built.ops.step % every > 0), 1024, built.ops.size)
    return edited(built, ops=built.ops.replace(size=size, step=built.ops.step // every))


def ending_late(built: Trace, ms: list[int]) -> Trace:
    """Ranks that end their collectives late by a habit of their own."""
    late = np.where(built.ops.group >= 0, np.array(ms)[built.ops.rank] * MS, 0)
    return edited(built, ops=built.ops.replace(end_ns=built.ops.end_ns + late))


@pytest.mark.parametrize("habit", [[0, 0, 0, 0], [2, 0, 1, 2]])
def test_collectives_of_two_sizes_tell_a_slow_link_of_a_small_ring(habit: list[int]) -> None:
    """A link slower by a factor, or one that delays chunks alike; habits that hide in the large ones show in the small."""
    for slow in (lambda ns: 3 * ns, lambda ns: 6 * MS + ns):
        assert [f.links for f in analyze(ending_late(of_two_sizes(1, slow), habit)).findings] == [("2:3",)]


@pytest.mark.parametrize("habit", [[0, 0, 4, 4], [4, 0, 2, 5], [0, 0, 8, 4]])
def test_who_ends_late_by_as_much_in_collectives_of_any_size_has_no_slow_link(habit: list[int]) -> None:
    done = analyze(ending_late(of_two_sizes(3, lambda ns: ns), habit))
    assert [f.links for f in done.findings if f.links] == []


def test_tiny_collectives_of_another_kind_do_not_hide_a_slow_link() -> None:
    """Three times something small is gathered after each gradient is reduced, and is the largest of its kind."""
    built = of_two_sizes(0.25, lambda ns: 3 * ns, every=4)
    tiny = (built.ops.group >= 0) & (built.ops.size == 1024)
    gathers = edited(built, ops=built.ops.replace(verb=np.where(tiny, Verb.ALL_GATHER, built.ops.verb)))
    assert [f.links for f in analyze(gathers).findings] == [("2:3",)]


def test_clocks_that_are_too_noisy_to_fit_name_no_link_of_a_small_ring() -> None:
    """They are off by more than a small collective takes, and so by as much in all: its ends are what clocks say, too."""
    built, rng = of_two_sizes(1, lambda ns: ns), np.random.default_rng(5)
    meets = np.flatnonzero(built.ops.group >= 0)
    late = np.zeros(len(built.ops.rank), dtype=np.int64)
    late[meets] = rng.integers(0, 2 * MS, len(meets))
    off = np.array([0, 5, 10, 5])[built.ops.rank] * MS
    ops = built.ops.replace(start_ns=built.ops.start_ns + off, end_ns=built.ops.end_ns + off + late)
    done = analyze(edited(built, ops=ops, members=built.members.replace(host=np.array(list("abcd")))))
    assert not done.graph.clock.applied.any()
    assert [f.links for f in done.findings if f.links] == []


def test_a_small_ring_with_members_that_were_not_traced_names_no_link() -> None:
    """Of six members the three that were traced are no neighbours: behind 4→5 rank 5 ends last, and 2→5 is no link."""
    work = BASE * gaussian(np.random.default_rng(1), 20, 6, 0.02)
    built = ring_all_reduce(work, 2 * MS, {(4, 5): 10 * MS})
    traced = built.ops.take(np.isin(built.ops.rank, (1, 2, 5)))
    some = edited(built, ops=traced, group_ranks={"all": list(range(6))}, world_size=6)
    assert [f.links for f in analyze(some).findings if f.links] == []


@pytest.mark.parametrize("other", [5.0, 4.85])
def test_two_links_of_a_ring_that_are_slow_nearly_alike_are_both_named(other: float) -> None:
    work = BASE * gaussian(np.random.default_rng(4), 8, 16, 0.01)
    slow = {(2, 3): 5 * MS, (9, 10): round(other * MS)}
    done, healthy = (
        analyze(ring_all_reduce(work, MS, links, hosts=dict(enumerate("abcdefghijklmnop")))) for links in (slow, {})
    )
    (found,) = done.findings
    assert (found.links, found.ranks, found.reference) == (("2:3", "9:10"), (), "peers")
    assert found.recoverable_wall_ns == pytest.approx(done.observed.wall_ns - healthy.observed.wall_ns, rel=0.1)


@pytest.mark.parametrize("hosts", [{rank: "ab"[rank // 8] for rank in range(16)}, dict.fromkeys(range(16), "")])
def test_the_two_links_between_two_hosts_are_slower_by_design(hosts: dict[int, str]) -> None:
    work = BASE * gaussian(np.random.default_rng(4), 8, 16, 0.01)
    assert analyze(ring_all_reduce(work, MS, {(7, 8): 5 * MS, (15, 0): 5 * MS}, hosts=hosts)).findings == []


def test_mending_a_link_leaves_what_slower_links_between_hosts_take() -> None:
    work, between = BASE * gaussian(np.random.default_rng(6), 8, 16, 0.01), {(7, 8): 3 * MS, (15, 0): 3 * MS}
    hosts = {rank: "ab"[rank // 8] for rank in range(16)}
    done, healthy = (analyze(ring_all_reduce(work, MS, {**between, **slow}, hosts=hosts)) for slow in ({(3, 4): 6 * MS}, {}))
    (found,) = done.findings
    assert found.links == ("3:4",)
    assert found.recoverable_wall_ns == pytest.approx(done.observed.wall_ns - healthy.observed.wall_ns, rel=0.1)


def ring_while_some_are_late(work: Any, into: Any) -> Trace:
    """Compute and a ring all-reduce, whose chunks (in two pieces) go on as soon as both ends of a link have come."""
    steps, ranks = work.shape
    moved, now = np.zeros_like(work), np.zeros(ranks)
    for step in range(steps):
        arrival = now + work[step]
        got = np.repeat(arrival[None], 4 * (ranks - 1) + 2, axis=0)
        for i in range(2, len(got)):
            got[i] = np.maximum(np.maximum(np.roll(got[i - 2], 1), got[i - 1]), arrival) + into / 2
        now = got[-1]
        moved[step] = now - arrival.max()
    return barriers(work, np.rint(moved).astype(np.int64), backend="nccl")


@pytest.mark.parametrize("rank", [4, 5, 10, 12])
def test_what_a_slow_rank_and_a_slow_link_cost_together_counts_chunks_that_crossed_before_it_came(rank: int) -> None:
    base = BASE * gaussian(np.random.default_rng(7), 12, 16, 0.005)
    late, into = base.copy(), np.full(16, 1.0 * MS)
    late[:, rank] += 60 * MS
    healthy = ring_while_some_are_late(base, into)
    into[3] = 5 * MS
    done = analyze(ring_while_some_are_late(late, into))
    assert {(f.links, f.ranks) for f in done.findings} == {(("2:3",), ()), ((), (rank,))}
    truth = done.observed.wall_ns - analyze(healthy).observed.wall_ns
    assert done.result.recoverable_wall_ns == pytest.approx(truth, rel=0.1)


def test_two_links_of_a_ring_that_became_slow_are_both_named() -> None:
    work = BASE * gaussian(np.random.default_rng(5), 20, 8, 0.01)
    (found,) = analyze(ring_all_reduce(work, MS, {(1, 2): 4 * MS, (5, 6): 4 * MS}, since=10)).findings
    assert (found.links, found.steps, found.reference) == (("1:2", "5:6"), (10, 19), "past")


def test_a_finding_that_rests_on_one_step_says_so() -> None:
    work = BASE * gaussian(np.random.default_rng(3), 1, 8, 0.001)
    (found,) = analyze(ring_all_reduce(work, 5 * MS, {(5, 6): 20 * MS})).findings
    assert (found.links, "rests on one step" in found.because) == (("5:6",), True)


def test_a_healthy_ring_names_no_link() -> None:
    """Ordinary differences between the ends of a ring are no finding."""
    for seed in range(30):
        work = BASE * gaussian(np.random.default_rng(seed), 20, 8)
        assert analyze(ring_all_reduce(work, MS, {}, noise=0.1, seed=seed)).findings == []


# Clocks


def skewed(built: Trace, rank: int, offset_ns: int) -> Trace:
    """The same trace with one rank's clock off."""
    shift = np.where(built.ops.rank == rank, offset_ns, 0)
    return edited(built, ops=built.ops.replace(start_ns=built.ops.start_ns + shift, end_ns=built.ops.end_ns + shift))


HOSTS = {r: f"node {r // 2}" for r in range(6)}


@pytest.mark.parametrize("offset_ms", [-20, 5, 30])
def test_a_skewed_clock_is_estimated_and_not_blamed(offset_ms: int) -> None:
    """One host's clock is off: its offset lies in the interval, and nobody is late."""
    rng = np.random.default_rng(6)
    work = BASE * gaussian(rng, 30, 6, 0.02)
    transfer = TRANSFER + np.rint(rng.normal(0, 20_000, size=work.shape))
    done = analyze(skewed(skewed(barriers(work, transfer, hosts=HOSTS), 4, offset_ms * MS), 5, offset_ms * MS))
    clock = done.graph.clock
    for rank, truth in enumerate([0, 0, 0, 0, offset_ms * MS, offset_ms * MS]):
        assert clock.lo_ns[rank] <= truth <= clock.hi_ns[rank]
        assert abs(clock.offset_ns[rank] - truth) < 50_000
    assert done.findings == []
    assert done.blame.totals.fault_ns == 0


def test_a_lone_rank_on_another_host_may_be_skewed() -> None:
    """+5 ms on rank 3 alone, on a host of its own."""
    work = BASE * gaussian(np.random.default_rng(7), 30, 4, 0.02)
    hosts = {0: "a", 1: "a", 2: "a", 3: "b"}
    done = analyze(skewed(barriers(work, TRANSFER, hosts=hosts), 3, 5 * MS))
    clock = done.graph.clock
    assert clock.lo_ns[3] <= 5 * MS <= clock.hi_ns[3]
    assert clock.offset_ns.tolist() == [0, 0, 0, 5 * MS]
    assert done.findings == []


def test_one_host_needs_no_fitting() -> None:
    """Same host: offset 0 whatever the ends of the gates say."""
    work = BASE * gaussian(np.random.default_rng(8), 30, 4, 0.02)
    graph = analyze(skewed(barriers(work, TRANSFER), 3, 5 * MS)).graph
    assert graph.clock.offset_ns.tolist() == [0, 0, 0, 0]
    assert graph.clock.applied.tolist() == [0, 0, 0, 0]
    assert graph.clock_residual_ns == 0


def test_a_slow_link_is_not_absorbed_as_skew() -> None:
    """Ranks on different hosts, link 2→3 slow: no offset near a chunk is invented, the link is named."""
    rng = np.random.default_rng(9)
    work = BASE * gaussian(rng, 30, 4, 0.02)
    done = analyze(ring_all_reduce(work, MS, {(2, 3): 8 * MS}, noise=0.2, hosts={r: f"node {r}" for r in range(4)}))
    assert np.abs(done.graph.clock.offset_ns).max() < MS
    assert [f.links for f in done.findings] == [("2:3",)]


@pytest.mark.parametrize("ranks", [4, 5, 6])
def test_clocks_of_a_small_ring_are_all_off_by_the_same_in_all_gates_or_a_link_is_slow(ranks: int) -> None:
    """Behind a steady slow link some members end apart by nearly the same, and others do not: no clock is set by these."""
    work = BASE * gaussian(np.random.default_rng(0), 20, ranks, 0.02)
    hosts = {r: f"node {r}" for r in range(ranks)}
    done = analyze(ring_all_reduce(work, 4 * MS, {(2, 3): 12 * MS}, noise=0.05, hosts=hosts))
    assert [f.links for f in done.findings] == [("2:3",)]


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_backward_straggler_that_all_reduce_hides(ranks: int) -> None:
    """Every step ends for all ranks together, whoever was slow inside it: wall times differ by less than 0.3 %."""
    rng = np.random.default_rng(ranks)
    ops = []
    for step in range(30):
        for rank in range(ranks):
            for part in range(4):
                slow = 1.3 if rank == 1 and step >= 10 else 1.0
                work = 10 * MS * slow * (1 + 0.02 * rng.standard_normal())
                ops.append(Do(rank, f"backward {part}", round(work), step=step))
                ops.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE, size=4096 + part))
    done = analyze(play(ops))
    last = [int(done.observed.end_ns[done.graph.ops.rank == r].max()) for r in range(ranks)]
    assert max(last) - min(last) < 0.003 * done.observed.wall_ns
    assert (done.findings[0].mode, done.findings[0].ranks) == ("straggler cascade", (1,))
    assert abs(done.findings[0].steps[0] - 10) <= 1


def test_a_rank_whose_copies_are_slow_is_found() -> None:
    """A slow link to its host holds the job up like slow compute does."""
    rng, ops = np.random.default_rng(1), []
    for step in range(12):
        for rank in range(4):
            took = [int(ms * MS * rng.normal(1, 0.01)) for ms in (4 if rank == 2 else 1.5, 5)]
            ops.append(Do(rank, "copy h2d", took[0], step=step, kind=Kind.COMMUNICATE, size=1 << 20))
            ops.append(Do(rank, "fwd", took[1], step=step))
            ops.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE))
    (found,) = analyze(play(ops)).result.findings
    assert (found.ranks, found.classes[0]) == ([2], "copy h2d")
