"""Policies on a run: what they save, the regime without and with them, and the frontier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from build import MS, barriers, job
from taut.core.errors import UsageError
from taut.graph import link
from taut.project.measured.run_policies import PoliciesOfRun, candidates, of_run, shared_of
from taut.replay.timeline import Change


def hiccups(ranks: int, steps: int = 200, chance: float = 0.003) -> Any:
    rng = np.random.default_rng(0)
    return 100 * MS * (1 + 0.01 * rng.standard_normal((steps, ranks)) + 1.5 * (rng.random((steps, ranks)) < chance))


@pytest.fixture(scope="module")
def unstable() -> PoliciesOfRun:
    return of_run(link(barriers(hiccups(128), transfer=MS)))


def test_policies_buy_back_what_hiccups_cost(unstable: PoliciesOfRun) -> None:
    one, several = unstable.named(["local-steps=1", "local-steps=8"])
    assert one.saved_share.value == 0.0
    assert one.regime.without == one.regime.with_ == "unstable"
    assert several.saved_share.lo is not None
    assert several.saved_share.lo > 0.05
    assert several.regime.with_ in ("marginal", "stable")
    assert several.reserve.without is not None
    assert several.reserve.with_ is not None
    assert several.reserve.with_.value > several.reserve.without.value


def test_meeting_in_every_step_leaves_the_regime_as_it_is(unstable: PoliciesOfRun) -> None:
    assert unstable.named(["local-steps=1"])[0].reserve.with_ == unstable.without.reserve


def test_slack_leaves_more_reserve(unstable: PoliciesOfRun) -> None:
    reserves = [one.reserve.with_ for one in unstable.named(["semi-synchronous=1", "semi-synchronous=4"])]
    assert reserves[0] is not None
    assert reserves[1] is not None
    assert unstable.without.reserve
    assert unstable.without.reserve.value < reserves[0].value < reserves[1].value


def test_the_frontier_saves_more_for_more_staleness(unstable: PoliciesOfRun) -> None:
    found = unstable.advised(4)
    assert max(one.staleness_steps for one in found) <= 4
    frontier = [(one.staleness_steps, one.saved_share.value) for one in found if one.on_frontier]
    assert frontier == sorted(frontier)
    assert len({staleness for staleness, _ in frontier}) == len(frontier) > 1
    assert all(one.kind == "exact" for one in found if one.on_frontier)


def test_what_convergence_costs_is_unknown_or_given() -> None:
    graph = link(barriers(hiccups(16, 40), transfer=10 * MS))
    unknown, given = (of_run(graph, more_steps=more).named(["local-steps=4"])[0] for more in (None, 0.5))
    assert (unknown.more_steps_share, unknown.net_saved_share) == (None, None)
    assert given.net_saved_share is not None
    assert given.net_saved_share.value == pytest.approx(1 - (1 - given.saved_share.value) * 1.5)
    assert unknown.break_even_steps_share is not None
    assert (1 - unknown.saved_share.value) * (1 + unknown.break_even_steps_share) == pytest.approx(1.0)


@pytest.mark.parametrize("relative", [False, True])
def test_questions_that_share_what_they_rest_on_are_answered_as_if_asked_alone(relative: bool) -> None:
    work = np.random.default_rng(1).normal(10, 1, (12, 4)) * MS
    trace = barriers(work, MS)
    graph = link(replace(trace, relative=relative) if relative else trace)
    names = ["local-steps=2", "local-steps=3", "semi-synchronous=1", "backup-workers=1", "overlap=0.5", "deal-by-speed"]
    shared = shared_of(graph)
    for changes in ([], [Change(np.arange(0, len(graph), 3), "work", "scale", 0.5)]):
        assert of_run(graph, changes, shared=shared).named(names) == of_run(graph, changes).named(names)


def test_other_changes_come_first() -> None:
    work = np.full((12, 4), 10 * MS)
    work[:, 3] = 20 * MS
    work[::4, 2] = 30 * MS
    graph = link(barriers(work))
    slow = np.flatnonzero(graph.work_ns == 20 * MS)
    kept, mended = (
        of_run(graph, changes).named(["local-steps=4"])[0].saved_share.value
        for changes in ([], [Change(slow, "work", "set", 10 * MS)])
    )
    assert kept == pytest.approx(1 - 80 / 90)
    assert mended == pytest.approx(0.0)


def test_a_job_that_cannot_be_relaxed_is_told_so() -> None:
    sharded = of_run(link(job(dict.fromkeys(range(4), "AG 1 | fwd 5 | AG 1 | fwd 5 | RS 1"), 6)))
    with pytest.raises(UsageError, match=r"FSDP.*taut project SCENARIO"):
        sharded.advised(8)
    with pytest.raises(UsageError, match=r"--policy overlap=0.9: no data-parallel"):
        sharded.named(["overlap"])


def test_candidates_stay_within_the_budget() -> None:
    for budget in (0, 1, 5, 8):
        assert all(one.staleness <= budget for one in candidates(budget, 8))
    assert {str(one) for one in candidates(2, 8)} >= {"local-steps=2", "local-steps=3", "semi-synchronous=2"}
