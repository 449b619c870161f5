"""Structural instability: loss at gates that nobody carries, on hiccup jobs, their variants and near misses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from build import MS, Do, analyze, barriers, play
from taut.core.array_types import Floats
from taut.core.tables import Verb
from taut.diagnose.instability import MODE, upper_bound
from taut.result.types import AnalysisResult, Finding

STEPS = 200


def hiccups(ranks: int, rate: float, seed: int = 0, lasting: int = 1, steps: int = STEPS, noise: float = 0.01) -> Floats:
    """Steps × ranks: 100 ms of work, and 150 ms more in some steps of every rank alike."""
    rng = np.random.default_rng(seed)
    begins = rng.random((steps + lasting, ranks)) < rate / lasting
    late = np.zeros((steps, ranks), dtype=bool)
    for k in range(lasting):
        late |= begins[k : k + steps]
    return MS * (100 * (1 + noise * rng.normal(size=(steps, ranks))) + 150 * late)


def told(work: Floats, **about: Any) -> AnalysisResult:
    return analyze(barriers(work, 5 * MS, **about)).result


def nobodys(result: AnalysisResult) -> list[Finding]:
    return [finding for finding in result.findings if finding.mode == MODE]


def test_hiccups_of_everybody_are_a_finding_without_a_culprit() -> None:
    """19 % of the time goes to waiting for whoever is late; no rank is named, and all of it is jitter in the ledger."""
    result = told(hiccups(64, 0.003))
    (one,) = result.findings
    assert (one.mode, one.ranks, one.links) == (MODE, [], [])
    assert result.verdict.kind == "structural"
    assert result.regime.kind != "stable"
    fates = {entry.fate: entry.rank_ns / result.ledger.total_rank_ns for entry in result.ledger.entries}
    assert fates["fault wait"] == 0
    assert one.loss_share is not None
    assert fates["jitter wait"] == pytest.approx(one.loss_share.value, abs=0.01)
    assert one.origins is not None
    assert one.origins.rate_per_step == pytest.approx(0.003, rel=0.3)
    assert one.origins.duration_ns == pytest.approx(150 * MS, rel=0.05)
    assert one.policy is not None
    assert one.recoverable_wall_ns == result.recoverable_wall_ns == one.policy.saved_wall_ns > 0


def test_few_ranks_with_the_same_hiccups_are_healthy() -> None:
    result = told(hiccups(8, 0.003))
    assert (result.findings, result.verdict.kind, result.regime.kind) == ([], "healthy", "stable")


def test_ordinary_variation_is_no_instability() -> None:
    """Normal variation of 3 % costs 64 ranks 7 % at their gates, and the regime is stable."""
    result = told(hiccups(64, 0.0, noise=0.03))
    assert (result.findings, result.verdict.kind) == ([], "healthy")


@pytest.mark.parametrize("times", [2, 4])
def test_growth_holds_what_more_ranks_lose(times: int) -> None:
    (one,) = nobodys(told(hiccups(64, 0.003, seed=1)))
    assert one.growth is not None
    grown = next(row for row in one.growth if row.ranks == 64 * times)
    work = hiccups(64 * times, 0.003, seed=2)
    wall = work.max(axis=1) + 5 * MS
    loss = float((work.max(axis=1) - work.mean(axis=1)).sum() / wall.sum())
    assert grown.loss_share.lo is not None
    assert grown.loss_share.hi is not None
    assert grown.loss_share.lo <= loss <= grown.loss_share.hi


def test_hiccups_that_last_are_one_episode_each() -> None:
    """Each would be a straggler by itself; many of them, each on another rank, are nobody's."""
    (one,) = told(hiccups(64, 0.012, lasting=4)).findings
    assert one.mode == MODE
    assert one.origins is not None
    assert "lasting 3.8 steps" in one.origins.shape


def test_hosts_that_hiccup_as_one_are_the_units() -> None:
    work = np.repeat(hiccups(16, 0.02), 8, axis=1)
    (one,) = nobodys(told(work, hosts={rank: f"host-{rank // 8}" for rank in range(128)}))
    assert one.origins is not None
    assert one.origins.units == "hosts"


def test_periodic_hiccups_are_said_to_be() -> None:
    rng = np.random.default_rng(5)
    late = (np.arange(STEPS)[:, None] + rng.integers(0, 60, 16)) % 60 == 0
    (one,) = nobodys(told(MS * (100 * (1 + 0.01 * rng.normal(size=(STEPS, 16))) + 150 * late)))
    assert one.origins is not None
    assert "periodic" in one.origins.shape


def test_a_rank_that_hiccups_most_is_a_culprit() -> None:
    """A third of the steps of one rank, and hardly any of the others: nothing structural."""
    work = hiccups(64, 0.0005)
    work[:, 9] += 150 * MS * (np.random.default_rng(3).random(STEPS) < 0.3)
    result = told(work)
    assert [(finding.mode, finding.ranks) for finding in result.findings] == [("straggler cascade", [9])]
    assert result.verdict.kind == "component"


def test_a_culprit_and_hiccups_are_both_found_and_booked_once() -> None:
    """Rank 9 is slow from step 60 on, and everybody hiccups: fault wait is what mending the rank ends, jitter the rest."""
    work = hiccups(64, 0.003)
    work[60:, 9] += 40 * MS
    result = told(work)
    assert {(finding.mode, tuple(finding.ranks)) for finding in result.findings} == {("straggler cascade", (9,)), (MODE, ())}
    fates = {entry.fate: entry.rank_ns for entry in result.ledger.entries}
    assert result.ledger.closes
    assert fates["fault wait"] > 0
    assert fates["jitter wait"] > 0
    assert "Also:" in result.verdict.text
    lone = next(finding for finding in result.findings if finding.ranks)
    assert result.recoverable_wall_ns > lone.recoverable_wall_ns


def test_few_episodes_are_not_enough_to_acquit_everybody() -> None:
    """Five hiccups cost 20 %: whether somebody in particular has them cannot be told yet."""
    work = hiccups(64, 0.0, steps=24)
    for step, rank in ((3, 5), (9, 50), (14, 33), (19, 7), (22, 60)):
        work[step, rank] += 150 * MS
    result = told(work)
    assert (result.findings, result.verdict.kind) == ([], "unknown")
    assert "more steps would tell" in result.verdict.text


def test_steps_that_everybody_takes_longer_for_cost_no_waiting() -> None:
    work = hiccups(64, 0.0)
    work[::10] += 150 * MS
    assert nobodys(told(work)) == []


def test_a_drift_of_all_ranks_does_not_hide_hiccups() -> None:
    work = hiccups(64, 0.003) + MS * np.linspace(0, 20, STEPS)[:, None]
    modes = {finding.mode for finding in told(work).findings}
    assert modes == {"silent degradation", MODE}


def test_more_episodes_bound_a_share_closer() -> None:
    """Clopper and Pearson: none of ten episodes may still be a quarter of all."""
    assert upper_bound(0.0, 10) == pytest.approx(0.2589, abs=1e-3)
    assert upper_bound(0.1, 10) > upper_bound(0.1, 100) > 0.1


def test_the_finding_survives_json() -> None:
    result = told(hiccups(64, 0.003))
    kept = json.loads(msgspec.json.encode(result))
    (one,) = kept["findings"]
    assert one["growth"][0]["ranks"] == 64
    assert set(one["origins"]) == {"episodes", "rate_per_step", "duration_ns", "shape", "units"}
    assert one["policy"]["name"] == "local-steps=4"


def test_a_host_that_stops_time_and_again_is_a_culprit() -> None:
    """Ranks 2 and 3 stop together in a third of the steps, all along: no level of theirs is higher, their episodes tell."""
    work = hiccups(8, 0.0)
    work[:, 2:4] += 150 * MS * (np.random.default_rng(3).random(STEPS) < 0.3)[:, None]
    result = told(work, hosts={rank: f"host-{rank // 2}" for rank in range(8)})
    assert [(finding.mode, finding.ranks) for finding in result.findings] == [("straggler cascade", [2, 3])]


def test_hiccups_that_show_as_gaps_count_as_well() -> None:
    """Ranks stop between two operators, and every operator takes as long as ever."""
    late = np.random.default_rng(11).random((60, 32)) < 0.012
    ops = [
        Do(rank, "fwd", int(MS * 100), step=step, idle=int(150 * MS * late[step, rank] + 10_000))
        if meets is None
        else Do(rank, "all-reduce", 5 * MS, step=step, verb=Verb.ALL_REDUCE)
        for step in range(60)
        for meets in (None, "all")
        for rank in range(32)
    ]
    result = analyze(play(ops)).result
    assert [finding.mode for finding in result.findings] == [MODE]
    assert (result.verdict.kind, result.regime.kind == "stable") == ("structural", False)


@pytest.mark.parametrize("seed", range(3))
def test_of_two_ranks_that_hiccup_alike_none_is_accused(seed: int) -> None:
    result = told(hiccups(2, 0.1, seed=seed))
    assert all(not finding.ranks for finding in result.findings)
