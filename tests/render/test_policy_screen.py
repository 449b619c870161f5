"""Policies on the screen."""

from __future__ import annotations

from msgspec.structs import replace

from taut.render.policy_screen import render_whatif
from taut.render.terminal import Screen
from taut.result.types import Estimate, MeasuredPolicy, Regimes, Reserves, StalenessBudget, WhatIfResult

LOCAL = MeasuredPolicy(
    name="local-steps=4", kind="exact", saved_share=Estimate(value=0.05, lo=0.03, hi=0.07), staleness_steps=3,
    regime=Regimes(without="marginal", with_="stable"), reserve=Reserves(without=None, with_=None), more_steps_share=None,
    net_saved_share=None, break_even_steps_share=0.0526, costs="replicas drift apart", on_frontier=True,
)  # fmt: skip
BACKUP = replace(
    LOCAL, name="backup-workers=1", kind="bounded", saved_share=Estimate(value=-0.08, lo=-0.1, hi=-0.03), staleness_steps=0,
    regime=Regimes(without="marginal", with_=None), break_even_steps_share=None, on_frontier=False,
)  # fmt: skip
RESULT = WhatIfResult(
    actual_wall_ns=100, changed_wall_ns=100, saved_wall_ns=0, saved_share=0.0, error=None, changes=[],
    policies=[LOCAL, BACKUP], replicas="8 replicas, which meet by all-reduce of 8 ranks",
    staleness=StalenessBudget(steps=8, default=True),
)  # fmt: skip


def test_exact_is_a_figure_and_bounded_a_range() -> None:
    exact, bounded = (" ".join(line.split()) for line in render_whatif(RESULT, Screen(100)).splitlines()[1:3])
    assert exact == "local-steps=4 * stable 5.0 % 3.0 % to 7.0 % 3 +5.3 %"
    assert bounded == "backup-workers=1 – -10.0 % to -3.0 % 0 –"


def test_what_is_assumed_or_unknown_is_said() -> None:
    said = " ".join(render_whatif(RESULT, Screen(100)).split())
    assert "8 replicas, which meet by all-reduce" in said
    assert "at most 8 steps behind (default; --staleness N)" in said
    assert "what convergence costs is unknown" in said
    given = replace(LOCAL, more_steps_share=0.03, net_saved_share=Estimate(value=0.0215, lo=None, hi=None))
    said = " ".join(render_whatif(replace(RESULT, policies=[given]), Screen(100)).split())
    assert "2.1 %" in said
    assert "net: with 3.0 % more steps, as given" in said
    assert "unknown" not in said


def test_nothing_worth_showing_is_said() -> None:
    assert "no policy within this budget" in render_whatif(replace(RESULT, policies=[]), Screen(100))
