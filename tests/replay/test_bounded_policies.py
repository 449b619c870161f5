"""Policies of which a measured graph tells a range, against the same walked through without a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, barriers, job
from jobs import jobs, nonsense
from taut.graph import link
from taut.replay.bounded_policies import backup_workers, deal_by_speed, overlap, own_times
from taut.replay.exact_policies import Measured, measured
from taut.replay.policy_names import asked, outcome, refusal


def of(trace: Any) -> Measured:
    return measured(link(trace))


def exponential(steps: int, ranks: int, seed: int) -> Any:
    return np.rint(10 * MS * np.random.default_rng(seed).exponential(size=(steps, ranks))).astype(np.int64)


@given(ranks=st.integers(2, 6), seed=st.integers(0, 99), data=st.data())
@settings(max_examples=20)
def test_backups_that_abandon_and_backups_that_finish(ranks: int, seed: int, data: st.DataObject) -> None:
    backups = data.draw(st.integers(1, ranks - 1))
    work, price = exponential(8, ranks, seed), ranks / (ranks - backups)
    found = backup_workers(of(barriers(work, transfer=MS)), backups)
    assert found.most_ns is not None
    assert found.most_ns.sum() == pytest.approx((np.sort(work, axis=1)[:, -backups - 1].sum() + 8 * MS) * price)
    now, opened = np.zeros(ranks), 0.0
    for row in work:
        now = now + row
        opened = float(np.sort(now)[-backups - 1])
        now = np.where(now <= opened, opened, now) + MS
    assert found.with_ns.sum() == pytest.approx(max((opened + MS) * price, found.most_ns.sum()), rel=1e-6)


def test_backups_are_paid_by_the_sample() -> None:
    """Sixteen of mean 1: the last of 15 takes H₁₆ − H₁, and a sixteenth of the batch is lost."""
    found = backup_workers(of(barriers(exponential(1500, 16, 0))), 1)
    harmonic = (1 / np.arange(1, 17)).sum()
    assert found.most_ns is not None
    assert 1 - found.most_ns.sum() / found.without_ns.sum() == pytest.approx(1 - (harmonic - 1) / harmonic * 16 / 15, abs=0.03)


def test_equal_replicas_lose_by_backups() -> None:
    saved = backup_workers(of(barriers(np.full((20, 8), 10 * MS))), 1).saved
    assert saved is not None
    assert saved.value == pytest.approx(-1 / 7)


def test_of_sampled_steps_backups_may_save_no_time() -> None:
    built = job({r: f"fwd {10 + 10 * r} | AR 1" for r in range(2)}, 6, relative=True)
    saved = backup_workers(of(replace(built, ops=built.ops.replace(step=built.ops.step * 3))), 1).saved
    assert saved is not None
    assert saved.value == pytest.approx(-1.0)
    assert saved.hi == pytest.approx(1 - 2 * 11 / 21)


def test_transfers_hide_under_compute_at_most() -> None:
    built = of(job(dict.fromkeys(range(4), "fwd 10 | AR 4"), 6))
    for share, left in ((1.0, 10), (0.2, 12)):
        found = overlap(built, share)
        assert found.saved is not None
        assert found.saved.value == 0.0
        assert found.saved.hi == pytest.approx(1 - left / 14)


def test_work_by_speed_ends_together() -> None:
    work = np.full((20, 4), 10 * MS)
    work[:, 3] *= 2
    saved = deal_by_speed(of(barriers(work))).saved
    assert saved is not None
    assert saved.value == 0.0  # no micro-batches are known
    assert saved.hi == pytest.approx(1 - 4 / 3.5 / 2, abs=1e-6)


def test_chance_is_not_dealt_with() -> None:
    found = deal_by_speed(of(barriers(10 * MS * (1 + 0.05 * np.random.default_rng(0).standard_normal((40, 8))))))
    assert found.most_ns is not None
    assert abs(found.most_ns.sum() / found.without_ns.sum() - 1) < 0.01


def test_own_times_are_without_the_others() -> None:
    work = exponential(6, 3, 0)
    assert own_times(of(barriers(work, transfer=MS))).tolist() == work.tolist()


@given(jobs() | nonsense())
@settings(max_examples=60)
def test_any_job_is_answered_or_refused(trace: Any) -> None:
    given = of(trace)
    for text in ("local-steps=2", "semi-synchronous=1", "backup-workers=1", "overlap", "deal-by-speed"):
        one = asked(text, given.met.units)
        if refusal(given, one):
            continue
        found = outcome(given, one)
        assert found.without_ns.sum() >= 0
        assert found.saved is None or found.saved.value <= 1
