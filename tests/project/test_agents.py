"""Agents: chains, fan-out, verification and retries on a shared pool against their closed forms; scales and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace

from taut.core.errors import InputRefused, UsageError
from taut.project.projection import Asked, project_table
from taut.project.requests.agents.scenario import AgentScenario
from taut.project.requests.agents.task_kernels import IN_CALL, IN_QUEUE, IN_TOOLS, IN_VAIN, OUTCOMES, PLAN
from taut.project.requests.agents.tasks import AgentOutcome, alone_ns, call_ns, simulate, without_jitter
from taut.project.requests.agents.workload import WORKLOAD, expected_attempts
from taut.project.requests.pool_workload import PoolForecast
from taut.project.workload import INDICES, Sampling
from taut.result.types import Forecast

DEVICE = {"name": "some", "peak_tflops": 1000.0, "memory_gb": 80.0, "memory_gb_per_s": 3000.0, "price_per_hour": 3.0}
FABRIC = {"name": "one", "tiers": [{"name": "node", "devices": 8, "gb_per_s": 450.0}]}
MODEL = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "gated": True,
    "sequence": 16384,
    "vocab": 32000,
}
QUIET = {"distribution": "none", "step_spread": 0.0, "ranks_spread": 0.0}
EXPONENTIAL = {"distribution": "exponential", "spread": 1.0, "step_spread": 0.0, "ranks_spread": 0.0}
ALONE = {"replicas": 1, "max_batch": 1, "turns": 0, "retries": []}
"""One call at a time, one call a task."""


def table(**tables: Any) -> dict[str, Any]:
    agents = {"per_s": 0.01, "replicas": 4, **tables.pop("agents", {})}
    return {"agents": agents, "model": MODEL, "device": DEVICE, "fabric": FABRIC, "noise": QUIET, **tables}


def scenario(**tables: Any) -> AgentScenario:
    return AgentScenario.parse(table(**tables), "test")[0]


def loaded(busy: float, **tables: Any) -> tuple[AgentScenario, float]:
    """A pool of one place that is busy for this share of the time, and what a call takes, ns."""
    s = scenario(**{**tables, "agents": {**ALONE, **tables.get("agents", {})}})
    took = call_ns(s, PLAN)
    return replace(s, agents=replace(s.agents, per_s=busy / took * 1e9)), took


def forecast(s: AgentScenario) -> PoolForecast:
    return WORKLOAD.forecast(s, Sampling())


def rate(s: AgentScenario) -> float:
    return WORKLOAD.rate(s, Sampling(seed=1))


def share(p: AgentOutcome, outcome: str) -> float:
    return float((p.outcome == OUTCOMES.index(outcome)).mean())


@pytest.mark.parametrize("busy", [0.4, 0.7])
def test_calls_wait_for_a_pool_of_one_as_in_m_m_1(busy: float) -> None:
    s, took = loaded(busy, noise=EXPONENTIAL)
    p = simulate(s, 100_000, 3)
    assert p.sums[:, IN_QUEUE].mean() == pytest.approx(busy / (1 - busy) * took, rel=0.06)
    assert p.busy == pytest.approx(busy, rel=0.02)


def test_a_quiet_chain_takes_the_sum_of_its_parts() -> None:
    s = scenario(agents={"turns": 2, "context_per_turn": 500}, verify={"prompt": 900, "generated": 10})
    p = simulate(without_jitter(s), 1000, 1)
    assert p.took_ns == pytest.approx(np.full(len(p.took_ns), alone_ns(s)), rel=1e-4)
    assert (p.calls == 4).all()


@pytest.mark.parametrize("tools", [2, 8, 32])
def test_a_turn_lasts_as_long_as_its_slowest_tool(tools: int) -> None:
    """Medians of the slowest of n: the tool's own quantile at 0.5^(1/n)."""
    s = scenario(agents={"turns": 1}, tools={"count": tools, "p50_s": 1.0, "p99_s": 10.0})
    p = simulate(s, 20_000, 2)
    from scipy.special import ndtri

    score = ndtri(0.5 ** (1 / tools)) / ndtri(0.99)
    assert np.median(p.sums[:, IN_TOOLS]) == pytest.approx(1e9 * 10.0**score, rel=0.03)


def test_failing_calls_are_tried_as_often_as_the_geometric_sum_says() -> None:
    s, _ = loaded(0.001, agents={"call_failure": 0.3, "retries": [3, 2]})
    p = simulate(s, 40_000, 4)
    assert p.calls.mean() == pytest.approx((1 - 0.3**12) / 0.7, rel=0.02)
    always = simulate(replace(s, agents=replace(s.agents, call_failure=1.0)), 2000, 4)
    assert (always.calls == 12).all()
    assert share(always, "retries") == 1


@given(st.floats(0, 0.99), st.integers(1, 20))
def test_expected_attempts_are_a_geometric_sum(failure: float, attempts: int) -> None:
    assert expected_attempts(failure, attempts) == pytest.approx(sum(failure**k for k in range(attempts)))
    assert expected_attempts(1.0, attempts) == attempts


def test_layers_of_retries_multiply() -> None:
    """Three retries over a library's two."""
    assert scenario(agents={"retries": [3, 2]}).attempts == 12
    assert scenario(agents={"retries": []}).attempts == 1


def test_tools_are_retried_within_their_own_layers() -> None:
    s = scenario(agents={"turns": 1, "redos": 0}, tools={"count": 1, "failure": 0.5, "retries": [1]})
    p = simulate(s, 20_000, 4)
    assert p.tool_calls.mean() == pytest.approx(1.5, rel=0.02)
    assert share(p, "retries") == pytest.approx(0.25, abs=0.01)


def test_drafts_are_accepted_as_often_as_their_scores_say() -> None:
    """Half of the drafts are right; scores two standard deviations apart, threshold at one: 84 % of right ones pass."""
    from scipy.special import ndtr

    s = scenario(agents={"turns": 0, "redos": 0}, verify={"prompt": 100, "generated": 10}, quality={"right": 0.5})
    p = simulate(s, 40_000, 5)
    assert share(p, "right") == pytest.approx(0.5 * ndtr(1), abs=0.01)
    assert share(p, "wrong") == pytest.approx(0.5 * ndtr(-1), abs=0.01)
    more = simulate(replace(s, agents=replace(s.agents, redos=20)), 20_000, 5)
    assert share(more, "right") == pytest.approx(float(ndtr(1)), abs=0.01)
    assert more.calls.mean() == pytest.approx(4, rel=0.03), "a plan and a verification, twice on average"


def test_a_stall_passes_without_retries_and_stays_with_three() -> None:
    """Patience of 25 calls, 60 % busy, a stall of 200 calls: four attempts each keep the pool busy for nothing ever after."""
    for retries, recovers in ((0, True), (3, False)):
        s, took = loaded(0.6, noise=EXPONENTIAL, agents={"cancels": False, "retries": [retries]})
        a = replace(s.agents, call_timeout_s=25 * took * 1e-9, stall_s=200 * took * 1e-9)
        p = simulate(replace(s, agents=a), 20_000, 6)
        late = p.came_ns > p.came_ns[0] + 0.7 * (p.came_ns[-1] - p.came_ns[0])
        assert (p.good[late].mean() > 0.9) == recovers
        f = forecast(replace(s, agents=a))
        assert f.entry()["metastable"] == (not recovers)
        if not recovers:
            assert f.outcome.good_share < 0.3
            budgeted = WORKLOAD.policies["retry-budget"].apply(replace(s, agents=a), 0.1)
            assert simulate(budgeted, 20_000, 6).good.mean() > 0.8
            assert forecast(budgeted).entry()["metastable"] is False


def test_a_deadline_that_propagates_saves_calls() -> None:
    s = scenario(agents={"turns": 4, "deadline_s": 12.0}, tools={"p50_s": 2.0, "p99_s": 20.0})
    on, stops = simulate(s, 5000, 1), simulate(WORKLOAD.policies["deadline"].apply(s, None), 5000, 1)
    assert stops.calls.mean() < 0.95 * on.calls.mean()
    assert stops.good.mean() == pytest.approx(on.good.mean(), abs=0.02)
    assert share(stops, "late") == pytest.approx(1 - stops.good.mean(), abs=0.02)


def test_tools_called_on_a_guess_save_time_and_cost_calls() -> None:
    s = scenario(agents={"turns": 2}, tools={"count": 2, "p50_s": 1.0, "p99_s": 3.0})
    half = simulate(WORKLOAD.policies["speculative-tools"].apply(s, 0.5), 10_000, 1)
    assert half.tool_calls.mean() == pytest.approx(2 * 2 * 1.5, rel=0.02)
    assert half.took_ns.mean() < simulate(s, 10_000, 1).took_ns.mean()
    assert half.discarded == pytest.approx(2 / (6 + 3), rel=0.05), "two tools a task of six, beside three calls"


def test_a_token_budget_ends_long_tasks() -> None:
    s = scenario(agents={"turns": 3, "token_budget": 4000})
    assert share(simulate(s, 1000, 1), "tokens") == 1


def test_terms_sum_to_the_time_of_a_task() -> None:
    s = scenario(
        agents={"per_s": 2.0, "call_failure": 0.1, "backoff_s": 0.5}, tools={"count": 4, "failure": 0.05}, noise={},
        answer={"prompt": 2000, "generated": 300}, tokens={"prompt": 1.0, "generated": 3.0}, price={"currency": "EUR"},
    )  # fmt: skip
    f = forecast(s)
    entry = f.entry()
    assert sum(entry["terms"].values()) == pytest.approx(1, abs=1e-6)
    p = f.outcome
    parts = p.sums[p.answered][:, [IN_CALL, IN_QUEUE, IN_TOOLS, IN_VAIN]].sum(axis=1)
    assert parts == pytest.approx(p.took_ns[p.answered], rel=1e-9)
    assert decode(encode(entry), type=Forecast) == entry
    assert entry["token_cost_per_unit"] > 0
    assert set(f.indices()) == set(INDICES)
    assert sum(entry["outcomes"].values()) == pytest.approx(1)


def test_scales_share_or_multiply_the_tasks() -> None:
    s = scenario(agents={"per_s": 2.0})
    assert WORKLOAD.at(s, 8).agents.per_s == 4.0
    assert rate(WORKLOAD.at(s, 512)) == pytest.approx(128 * rate(s), rel=0.05)
    fixed = replace(s, agents=replace(s.agents, load="fixed"))
    assert WORKLOAD.at(fixed, 8).agents.per_s == 2.0
    with pytest.raises(UsageError):
        WORKLOAD.at(scenario(agents={"tp": 4}), 6)


def test_tools_with_more_jitter_miss_deadlines() -> None:
    s = scenario(agents={"turns": 3, "deadline_s": 20.0}, tools={"count": 4, "p50_s": 1.0, "p99_s": 6.0}, noise={})
    assert rate(WORKLOAD.scale_jitter(s, 0.0)) > rate(s) > rate(WORKLOAD.scale_jitter(s, 2.0))


@pytest.mark.parametrize("name", sorted(WORKLOAD.policies))
def test_every_policy_changes_the_scenario_and_can_be_simulated(name: str) -> None:
    s = scenario(
        agents={"per_s": 4.0, "call_failure": 0.2, "retries": [3, 2], "cancels": False, "deadline_s": 30.0},
        tools={"count": 3, "failure": 0.1}, quality={"right": 0.7}, verify={"prompt": 500, "generated": 50}, noise={},
    )  # fmt: skip
    changed = WORKLOAD.policies[name].apply(s, None)
    assert changed != s
    assert 0 <= rate(changed) <= changed.agents.per_s


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"agents": {"turn": 3}}, "no such key: agents.turn"),
        ({"plan": {"prompt": 10}}, "begins with a plan"),
        ({"plan": {"prompt": 20_000, "generated": 1}}, "up to 2"),
        ({"agents": {"retries": [10, 10, 10]}}, "1331 attempts"),
        ({"agents": {"deadline_propagates": True}}, "no deadline"),
        ({"tools": {"p50_s": 2.0, "p99_s": 1.0}}, "not above"),
        ({"model": {**MODEL, "heads": 8192}}, "8192 heads do not divide hidden 4096"),
        ({"noise": {"drift_share": 0.1}}, "no drift"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InputRefused, match=why):
        scenario(**change)


def test_the_same_seed_gives_the_same_forecast_through_the_front_door() -> None:
    once, again = (project_table(table(noise={}), "test", asked=Asked(ranks=[4, 8])) for _ in range(2))
    assert once == again
    assert [entry["ranks"] for entry in once["forecasts"]] == [4, 8]


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {
            "per_s": st.floats(0.1, 100),
            "replicas": st.integers(1, 12),
            "max_batch": st.sampled_from([1, 8]),
            "turns": st.integers(0, 3),
            "redos": st.integers(0, 3),
            "call_failure": st.sampled_from([0.0, 0.3, 1.0]),
            "call_timeout_s": st.sampled_from([0.0, 0.5, 20.0]),
            "retries": st.sampled_from([[], [1], [3, 2]]),
            "backoff_s": st.sampled_from([0.0, 1.0]),
            "retry_budget": st.sampled_from([None, 0.1]),
            "cancels": st.booleans(),
            "token_budget": st.sampled_from([0, 5000]),
            "concurrency": st.sampled_from([0, 3]),
            "fallback_after": st.integers(0, 2),
        }
    ),
    st.sampled_from([{}, {"deadline_s": 10.0}, {"deadline_s": 10.0, "deadline_propagates": True}]),
    st.sampled_from(
        [{}, {"count": 0}, {"count": 5, "failure": 0.3, "timeout_s": 2.0, "hedge_s": 1.0, "speculation_share": 0.5}]
    ),
    st.integers(0, 1000),
)
def test_whatever_is_asked_tasks_are_accounted_for(
    agents: dict[str, Any], deadline: dict[str, Any], tools: dict[str, Any], seed: int
) -> None:
    s = scenario(
        agents={**agents, **deadline}, tools=tools, quality={"right": 0.6}, verify={"prompt": 50, "generated": 5}, noise={}
    )
    p = simulate(s, 200, seed)
    assert (p.took_ns[p.answered] > 0).all()
    assert 0 <= p.discarded <= 1
    assert 0 <= p.busy <= 1
    assert (p.calls <= s.attempts * (2 + (1 + s.agents.turns) * (1 + s.agents.redos) * 2)).all()
    parts = p.sums[p.answered][:, [IN_CALL, IN_QUEUE, IN_TOOLS, IN_VAIN]].sum(axis=1)
    assert parts == pytest.approx(p.took_ns[p.answered], rel=1e-6)
