"""Names and values of policies on a run: those of scenarios, refused where only a scenario can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from build import job
from taut.core.errors import UsageError
from taut.graph import link
from taut.project.training.policies import POLICIES
from taut.project.training.scenario import MOST_STEPS
from taut.replay.exact_policies import Measured, measured
from taut.replay.policy_names import ELSEWHERE, KNOWN, MOST, Asked, asked, outcome


def few(steps: int = 6, apart: int = 1) -> Measured:
    built = job({r: f"fwd {10 + r} | AR 1" for r in range(4)}, steps, relative=apart > 1)
    return measured(link(replace(built, ops=built.ops.replace(step=built.ops.step * apart))))


def test_every_policy_of_a_scenario_is_known_or_refused() -> None:
    assert set(KNOWN) | set(ELSEWHERE) == set(POLICIES)
    assert not set(KNOWN) & set(ELSEWHERE)
    assert min(MOST, MOST_STEPS) > 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("local-steps", 8), ("local-steps=4", 4), ("semi-synchronous", 2), ("backup-workers", 4), ("overlap", 0.9),
        ("overlap=0.5", 0.5), ("deal-by-speed", None),
    ],
)  # fmt: skip
def test_values_are_as_in_scenarios(text: str, value: float | None) -> None:
    assert asked(text, 100) == Asked(text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("packed", "other nodes or cables; a scenario can be asked: taut project SCENARIO --policy packed"),
        ("spares=2", "taut project SCENARIO --policy spares=2"),
        ("faster", "no such policy; a run can be asked about local-steps"),
        ("local-steps=0", "a whole number from 1"),
        ("local-steps=2.5", "a whole number from 1"),
        ("overlap=2", "a number from 0 to 1"),
        ("overlap=nan", "a number from 0 to 1"),
        ("local-steps=few", "'few' is no number"),
        ("deal-by-speed=1", "takes no value"),
        ("local-steps=2,overlap", "again for each"),
    ],
)
def test_what_cannot_be_asked_says_what_can(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("'", ".")):
        asked(text, 8)


@pytest.mark.parametrize(
    ("given", "text", "why"),
    [
        (few(), "local-steps=7", "6 steps in a row hold no block of 7"),
        (few(), "semi-synchronous=6", "6 steps in a row"),
        (few(), "backup-workers=4", "of 4 replicas one at least"),
        (few(3), "deal-by-speed", "3 steps tell no speeds"),
        (few(6, 5), "local-steps=2", r"sampled \(0, 5, 10 …\): record consecutive ones, or ask a scenario: taut project"),
    ],
)
def test_jobs_that_do_not_tell_are_refused(given: Measured, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        outcome(given, asked(text, given.met.units))


def test_staleness_is_what_scenarios_call_it() -> None:
    assert [asked(text, 8).staleness for text in ("local-steps=4", "semi-synchronous=3", "backup-workers", "overlap")] == [
        3,
        3,
        0,
        0,
    ]
