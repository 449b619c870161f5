"""Failure modes beside stragglers: each found, and silent on the case that looks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, play
from taut.core.tables import Verb
from taut.run import Analysis

STEPS, ONSET, RANKS = 30, 10, 4


def modes(done: Analysis) -> list[tuple[str, tuple[int, ...]]]:
    return [(f.mode, f.ranks) for f in done.findings]


def noisy(seed: int, ranks: int = RANKS, steps: int = STEPS) -> Any:
    return 100 * MS * (1 + 0.02 * np.random.default_rng(seed).standard_normal((steps, ranks)))


def test_a_rank_that_gets_slower_with_every_step_degrades() -> None:
    work = noisy(1)
    work[ONSET:, 2] += 3 * MS * np.arange(1, STEPS - ONSET + 1)
    done = analyze(barriers(work, 5 * MS))
    assert modes(done) == [("silent degradation", (2,))]
    assert abs(done.findings[0].steps[0] - ONSET) <= 3


def test_a_rank_at_a_new_level_is_a_straggler() -> None:
    work = noisy(2)
    work[ONSET:, 2] += 30 * MS
    assert modes(analyze(barriers(work, 5 * MS))) == [("straggler cascade", (2,))]


def test_a_class_that_grows_on_all_ranks_degrades_without_a_culprit() -> None:
    work = noisy(3)
    work[ONSET:] += (2 * MS * np.arange(1, STEPS - ONSET + 1))[:, None]
    done = analyze(barriers(work, 5 * MS))
    assert modes(done) == [("silent degradation", ())]
    assert done.findings[0].classes == ("fwd",)


@pytest.mark.parametrize("last", [16, 24])
def test_what_passes_on_all_ranks_is_an_episode(last: int) -> None:
    work = noisy(4)
    work[ONSET:last] += 30 * MS
    assert analyze(barriers(work, 5 * MS)).findings == []


def test_what_slows_all_ranks_for_a_few_steps_may_pass() -> None:
    """The last five of twelve steps: demand that all ranks share lasts as long."""
    work = noisy(5, steps=12)
    work[7:] *= 1.3
    assert modes(analyze(barriers(work, 5 * MS))) == []


def in_groups(joint: Any, slow: float) -> list[Do]:
    """Two pairs of ranks that meet in every step, and all four in the steps of a mask; the second pair may be slower."""
    rng, ops = np.random.default_rng(5), []
    for step in range(STEPS):
        for rank in range(RANKS):
            work = 50 * MS * (1 + 0.02 * rng.standard_normal() + (slow if rank >= 2 and not joint[step] else 0))
            ops.append(Do(rank, "fwd", round(work), step=step))
            ops.append(Do(rank, "AG", MS, step=step, verb=Verb.ALL_GATHER, group=f"pair {rank // 2}", size=64))
            if joint[step]:
                ops.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE, group="all", size=64))
    return ops


def test_groups_that_no_longer_meet_and_come_apart() -> None:
    done = analyze(play(in_groups(np.arange(STEPS) < ONSET, 0.2)))
    assert modes(done)[0] == ("partial synchronisation loss", (2, 3))
    assert done.findings[0].steps[0] == ONSET


def test_local_steps_between_joint_ones_are_a_policy() -> None:
    done = analyze(play(in_groups(np.arange(STEPS) % 5 == 4, 0.0)))
    assert all(mode != "partial synchronisation loss" for mode, _ in modes(done))


def sharing(seed: int, slower: float, demand: float = 1.0) -> list[Do]:
    """A transfer of one group opens now and then while one of another group is under way at the same rank.

    Demand lengthens all transfers for eight steps, then for eight steps it does not.
    """
    rng, ops = np.random.default_rng(seed), []
    for step in range(48):
        met, busy = bool(rng.integers(2)), demand if step // 8 % 2 else 1.0
        took = round(20 * MS * busy * (slower if met else 1.0) * (1 + 0.05 * rng.standard_normal()))
        before = 15 * MS if met else 8 * MS if demand > 1 else 0  # without demand it ends before the other begins
        for rank in range(2):
            ops.append(Do(rank, "fwd", 30 * MS, step=step))
            ops.append(Do(rank, "load", before + MS, lane=1, step=step, launch=len(ops) - 1))
            ops.append(Do(rank, "AG", round(20 * MS * busy), lane=1, step=step, verb=Verb.ALL_GATHER, group="b", size=64))
            ops.append(Do(rank, "AR", took, step=step, verb=Verb.ALL_REDUCE, group="a", size=64))
    return ops


def test_transfers_that_suffer_from_company_contend() -> None:
    assert ("fabric contention", ()) in modes(analyze(play(sharing(6, 2.0))))


@pytest.mark.parametrize("seed", range(4))
def test_company_that_does_no_harm_is_no_contention(seed: int) -> None:
    assert all(mode != "fabric contention" for mode, _ in modes(analyze(play(sharing(seed, 1.0)))))


@pytest.mark.parametrize("seed", range(4))
def test_demand_that_lengthens_all_transfers_is_no_contention(seed: int) -> None:
    """They meet more often because they take longer, and not the other way round."""
    assert all(mode != "fabric contention" for mode, _ in modes(analyze(play(sharing(seed, 1.0, demand=2.0)))))


def fan_out(seed: int, inflated: float, demand: float = 1.0, sizes: bool = False) -> list[Do]:
    """Pairs, and all eight ranks: the wide gate takes as long as the longest of four pairs would, now and then longer.

    Demand lengthens all transfers of every second dozen of steps; wide gates may also be of two sizes, one in each step.
    """
    rng, ops = np.random.default_rng(seed), []
    for step in range(120):
        busy, large = demand if step // 12 % 2 else 1.0, sizes and step % 7 == 0
        pairs = busy * np.exp(0.3 * rng.standard_normal(4))
        wide = (
            busy * np.exp(0.3 * rng.standard_normal(4)).max() * (inflated if rng.random() < 0.15 else 1.0) * (5 if large else 1)
        )
        for rank in range(8):
            ops.append(Do(rank, "fwd", 5 * MS, step=step))
            pair = round(5 * MS * pairs[rank // 2])
            ops.append(Do(rank, "reduce", pair, step=step, verb=Verb.ALL_REDUCE, group=f"pair {rank // 2}", size=64))
            size = 320 if large else 64
            ops.append(Do(rank, "reduce", round(5 * MS * wide), step=step, verb=Verb.ALL_REDUCE, group="all", size=size))
    return ops


def test_a_tail_that_grows_with_fan_out_is_inflated() -> None:
    found = [f for f in analyze(play(fan_out(7, 6.0))).findings if f.mode == "tail latency inflation"]
    assert len(found) == 1
    assert "among 8 ranks" in found[0].because


@pytest.mark.parametrize("seed", range(3))
def test_the_longest_of_independent_tails_is_not(seed: int) -> None:
    assert all(mode != "tail latency inflation" for mode, _ in modes(analyze(play(fan_out(seed, 1.0)))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", [{"demand": 2.0}, {"sizes": True}])
def test_demand_and_sizes_make_no_tail(seed: int, what: dict[str, Any]) -> None:
    done = analyze(play(fan_out(seed, 1.0, **what)))
    assert all(mode != "tail latency inflation" for mode, _ in modes(done))


def micro_batches(seed: int, together: bool) -> list[Do]:
    """Eight micro-batches a step on four ranks: long ones are long both ways, or each way by itself."""
    rng, ops = np.random.default_rng(seed), []
    for step in range(20):
        for rank in range(RANKS):
            forward = np.exp(0.4 * rng.standard_normal(8))
            backward = forward * np.exp(0.05 * rng.standard_normal(8)) if together else np.exp(0.4 * rng.standard_normal(8))
            for name, lengths in (("forward", forward), ("backward", 2 * backward)):
                ops += [Do(rank, name, round(5 * MS * x), step=step, part=i) for i, x in enumerate(lengths)]
            ops.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE, size=64))
    return ops


def test_micro_batches_that_are_long_both_ways_are_unequal_work() -> None:
    assert modes(analyze(play(micro_batches(8, together=True)))) == [("work imbalance", ())]


def test_micro_batches_that_are_long_one_way_are_noise() -> None:
    assert analyze(play(micro_batches(9, together=False))).findings == []


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_while_is_no_unequal_work(seed: int) -> None:
    """Ops that follow each other are slow together: a micro-batch forward and backward, but also backward and the next."""
    rng, ops = np.random.default_rng(seed), []
    for rank in range(RANKS):
        busy = rng.standard_normal(20 * 16)
        for k in range(1, len(busy)):
            busy[k] = 0.9 * busy[k - 1] + np.sqrt(1 - 0.9**2) * busy[k]
        for step, length in enumerate(5 * MS * np.exp(0.4 * busy.reshape(20, 8, 2))):
            for part, both in enumerate(length):
                ops += [
                    Do(rank, name, round(x), step=step, part=part)
                    for name, x in zip(("forward", "backward"), both, strict=True)
                ]
            ops.append(Do(rank, "AR", MS, step=step, verb=Verb.ALL_REDUCE, size=64))
    assert all(mode != "work imbalance" for mode, _ in modes(analyze(play(ops))))


def reducing(seed: int, slow: tuple[int, ...]) -> list[Do]:
    """Four pairs that reduce, then all eight ranks; from the tenth step on the transfers of some pairs take twice as long."""
    rng, ops = np.random.default_rng(seed), []
    for step in range(STEPS):
        for pair in range(4):
            took = round(20 * MS * (2 if step >= ONSET and pair in slow else 1) * (1 + 0.03 * rng.standard_normal()))
            for rank in (2 * pair, 2 * pair + 1):
                ops.append(Do(rank, "fwd", round(30 * MS * (1 + 0.02 * rng.standard_normal())), step=step))
                ops.append(Do(rank, "AR", took, step=step, verb=Verb.ALL_REDUCE, group=f"pair {pair}", size=4096))
        ops += [Do(rank, "all", MS, step=step, verb=Verb.ALL_REDUCE, size=64) for rank in range(8)]
    return ops


def test_a_pair_whose_transfers_take_longer_has_a_slow_link() -> None:
    done = analyze(play(reducing(1, (1,))))
    assert [f.mode for f in done.findings] == ["straggler cascade"]
    assert set(done.findings[0].links) == {"2:3", "3:2"}


def test_pairs_that_all_take_longer_share_a_demand() -> None:
    assert all(not f.links for f in analyze(play(reducing(1, (0, 1, 2, 3)))).findings)
