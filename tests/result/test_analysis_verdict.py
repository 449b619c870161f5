"""What the verdict says, and what the time is bound by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from build import MS, Do, analyze, barriers, play
from taut.core.device_words import NO_DEVICE
from taut.core.tables import Kind, Trace


def copying() -> Trace:
    """A rank that copies for nine tenths of the time."""
    ops = [Do(0, "copy h2d", 9 * MS, step=step, kind=Kind.COMMUNICATE) for step in range(4)]
    return play([op for copy in ops for op in (copy, Do(0, "fwd", MS, step=copy.step))])


def test_a_job_that_copies_is_bound_by_copies() -> None:
    verdict = analyze(copying()).result.verdict
    assert verdict.bound == "copy"
    assert "exposed copies" in verdict.text


def test_without_the_device_nothing_is_bound_by_compute() -> None:
    """Operators that put work onto a device are no compute of it."""
    hosted = play([Do(0, "aten::mm", 5 * MS, step=step) for step in range(4)])
    assert analyze(hosted).result.verdict.bound == "compute"
    verdict = analyze(replace(hosted, counts={NO_DEVICE: 7})).result.verdict
    assert verdict.bound is None
    assert "the device's side is not recorded" in verdict.text


def test_at_half_of_the_ranks_nobody_can_say_who_is_slow() -> None:
    """Two hosts, one 40 % slower from the start: no culprit, and not healthy either."""
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(4).standard_normal((20, 8)))
    work[:, 4:] *= 1.4
    hosts = {rank: "a" if rank < 4 else "b" for rank in range(8)}
    done = analyze(barriers(work, 5 * MS, hosts=hosts))
    assert done.findings == []
    verdict = done.result.verdict
    assert verdict.kind == "unknown"
    assert "Host b: 40 % slower than host a" in verdict.text
    assert "a baseline run would tell" in verdict.text


def test_a_host_whose_ranks_are_slow_together_is_named() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(5).standard_normal((20, 16)))
    work[:, 4:8] *= 1.4
    done = analyze(barriers(work, 5 * MS, hosts={rank: f"node{rank // 4}" for rank in range(16)}))
    (found,) = done.findings
    assert (found.ranks, found.where) == ((4, 5, 6, 7), "host node1")
    assert "host node1" in done.result.verdict.text
    assert done.result.verdict.kind == "component"


def test_a_run_without_a_finding_and_without_a_doubt_is_healthy() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(6).standard_normal((20, 8)))
    verdict = analyze(barriers(work, 5 * MS)).result.verdict
    assert verdict.kind == "healthy"
    assert "ordinary variation" in verdict.text


def test_ranks_unequal_for_good_are_structural_beyond_what_devices_differ_by() -> None:
    """Nobody is accused; what dealing work by speed would save is said, and beyond 4 % it is the class."""
    rng = np.random.default_rng(11)
    level, noise = rng.standard_normal(16), 0.01 * rng.standard_normal((40, 16))
    told = [analyze(barriers(100 * MS * (1 + noise + spread * level), 5 * MS)).result for spread in (0.04, 0.1)]
    assert [one.findings for one in told] == [[], []]
    assert [one.verdict.kind for one in told] == ["healthy", "structural"]
    assert "as devices of one model may be: work dealt by speed would save" in told[0].verdict.text
    assert "more than devices of one model are" in told[1].verdict.text


def test_a_run_that_only_transfers_is_not_called_healthy() -> None:
    work = 10 * MS * (1 + 0.01 * np.random.default_rng(7).standard_normal((20, 8)))
    verdict = analyze(barriers(work, 50 * MS)).result.verdict
    assert verdict.kind == "unknown"
    assert "exposed transfer" in verdict.text


def test_clocks_that_may_as_well_be_a_slow_link_are_a_doubt() -> None:
    """Four hosts end 0, 5, 9 and 5 ms apart, always; only if one leaves before another came are clocks off for sure."""
    work = 50 * MS * (1 + 0.01 * np.random.default_rng(4).standard_normal((20, 4)))
    apart = barriers(work, 15 * MS + np.array([[0, 5, 9, 5]]) * MS, hosts=dict(enumerate("abcd")))
    verdict = analyze(apart).result.verdict
    assert verdict.kind == "unknown"
    assert "Clocks were taken to be up to" in verdict.text
    shift = np.where(apart.ops.rank == 2, 30 * MS, 0)
    off = replace(apart, ops=apart.ops.replace(start_ns=apart.ops.start_ns + shift, end_ns=apart.ops.end_ns + shift))
    assert analyze(off).result.verdict.kind == "healthy"


def test_three_of_four_slower_ranks_are_not_called_healthy() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(8).standard_normal((20, 4)))
    work[:, 1:] *= 1.4
    verdict = analyze(barriers(work, 5 * MS)).result.verdict
    assert verdict.kind == "unknown"
    assert "slower than rank 0" in verdict.text


def test_transfers_that_now_and_then_take_far_longer_are_not_called_healthy() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(9).standard_normal((40, 8)))
    took = np.full(40, 5 * MS)
    took[[4, 11, 19, 30, 37]] = 95 * MS
    verdict = analyze(barriers(work, took[:, None])).result.verdict
    assert verdict.kind == "unknown"
    assert "Some transfers take far longer than usual" in verdict.text


def test_three_stops_of_a_rank_among_few_are_no_finding_and_no_health() -> None:
    """Of eight ranks one has all three stops by chance in one run of sixty: who knows? They cost 8 % of the run."""
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(8).standard_normal((30, 8)))
    work[[5, 15, 25], 2] += 100 * MS
    done = analyze(barriers(work, 5 * MS))
    assert done.findings == []
    assert done.result.verdict.kind == "unknown"
    assert "If rank 2" in done.result.verdict.text


def test_one_stop_of_a_rank_is_an_accident_and_the_run_healthy() -> None:
    work = 100 * MS * (1 + 0.01 * np.random.default_rng(9).standard_normal((30, 8)))
    work[5, 2] += 200 * MS
    verdict = analyze(barriers(work, 5 * MS)).result.verdict
    assert verdict.kind == "healthy"
