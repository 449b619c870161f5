"""Agents: tasks of many calls on a shared pool of model replicas. A step is a task; docs/agents.md has the words."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from taut.control.metastability import System
from taut.project.figures import over, variance_index
from taut.project.noise import scaled
from taut.project.requests.agents import task_kernels as at
from taut.project.requests.agents.policies import POLICIES
from taut.project.requests.agents.retry_layers import as_configured
from taut.project.requests.agents.scenario import AgentScenario
from taut.project.requests.agents.tasks import AgentOutcome, batch_of, call_ns, phases, simulate, without_jitter
from taut.project.requests.pool_workload import PoolForecast, PoolWorkload
from taut.project.requests.replica_pool import replicas_on
from taut.project.training.model_shape import active_parameters
from taut.project.workload import Estimate, Sampling
from taut.read.actions.loops_config import Loop

# Tasks of a forecast, unless more are asked for, and of a rate.
TASKS, QUICK = 10_000, 2_000
TERMS = {
    "model calls": at.IN_CALL, "queue for the pool": at.IN_QUEUE, "tools": at.IN_TOOLS, "attempts in vain": at.IN_VAIN,
}  # fmt: skip


def forecast_of(s: AgentScenario, o: AgentOutcome, quiet: AgentOutcome) -> PoolForecast:
    """The forecast that two simulations give."""
    c, read, made = o.counts, float(o.sums[:, at.READ].mean()), float(o.sums[:, at.MADE].mean())
    worked = read * (1 - s.agents.prefix_cache_share) + made
    charged = (read * (s.tokens.prompt or 0.0) + made * (s.tokens.generated or 0.0)) / 1e6
    calls, tool_calls = float(o.calls.mean()), float(o.tool_calls.mean())
    figures = {
        "tflops_per_device": 2e-12 * active_parameters(s.model) * worked * s.per_s / s.ranks,
        "token_cost_per_unit": over(charged + tool_calls * s.tools.price, o.good_share), "tasks_per_s": s.per_s,
        "calls_per_unit": over(calls, o.good_share), "tool_calls_per_unit": over(tool_calls, o.good_share),
        "tokens_per_unit": over(float(o.sums[:, [at.READ, at.MADE]].sum(axis=1).mean()), o.good_share),
        "attempt_multiplier": over(c["calls"], c["calls"] - c["discarded"]), "attempts_at_most": s.attempts,
        "expected_attempts": expected_attempts(s.agents.call_failure, s.attempts), "metastable": metastable(s),
        "outcomes": {name: float((o.outcome == k).mean()) if len(o.outcome) else 0.0 for k, name in enumerate(at.OUTCOMES)},
    }  # fmt: skip
    indices = {
        "runtime_variance_index": o.blocks.estimate(
            variance_index(o.took_ns[o.answered]), lambda some: variance_index(o.took_ns[o.answered & some])
        ),
        "sync_delay_amplification": Estimate(c["max_over_ns"] / c["mean_over_ns"]) if c["mean_over_ns"] > 0 else None,
        "straggler_cascade_rate": Estimate(c["decided"] / c["fan_outs"]) if c["fan_outs"] > 0 else None,
    }
    names = TERMS if o.answered.any() else {}
    terms = {name: float(o.sums[o.answered, column].mean()) for name, column in names.items()}
    return PoolForecast(s, o, quiet, o.good_share * s.per_s, terms or {"model calls": 0.0}, figures, indices)


def metastable(s: AgentScenario) -> bool | None:
    """Whether the pool has a second load at which it would stay, kept busy by retries; None without timeouts."""
    a, calls = s.agents, phases(s)
    if a.call_timeout_s == 0 or a.cancels:
        return None
    places = min(a.concurrency or np.inf, a.replicas * batch_of(s))
    call_s = float(np.mean([call_ns(s, phase, int(places) - 1, turn) for phase, turn in calls])) * 1e-9
    # The budget is a share of all calls: of those made first it is more.
    share = np.inf if a.retry_budget is None else a.retry_budget
    budget = share / (1 - share) if share < 1 else np.inf
    return System(s.per_s * len(calls), places / call_s, a.call_timeout_s, s.attempts - 1, budget).stable() > 1


def expected_attempts(failure: float, attempts: int) -> float:
    """Mean attempts if each fails with this chance and their number is limited: a geometric sum."""
    return float(attempts) if failure >= 1 else (1 - failure**attempts) / (1 - failure)


# Searches ask for the same again, and policies have in common what they are without jitter.
@lru_cache(maxsize=64)
def _quick(s: AgentScenario, seed: int) -> AgentOutcome:
    """A few tasks."""
    return simulate(s, QUICK, seed)


class AgentWorkload(PoolWorkload[AgentScenario]):
    """Tasks of many calls on a shared pool of model replicas."""

    name = "agents"
    piece = "task"
    scenario = AgentScenario
    policies = POLICIES

    def at(self, s: AgentScenario, ranks: int) -> AgentScenario:
        """More ranks are more replicas, with as many more tasks and calls at once where the load is per replica."""
        a = s.agents
        replicas, load = replicas_on(a, ranks)
        limit = a.concurrency
        if limit and not a.shares_load:
            limit = max(round(limit * replicas / a.replicas), 1)
        return replace(s, agents=replace(a, replicas=replicas, per_s=a.per_s * load, concurrency=limit))

    def loops(self, s: AgentScenario) -> tuple[Loop, ...]:
        """The layers that try again."""
        return as_configured(s)

    def forecast(self, s: AgentScenario, how: Sampling) -> PoolForecast:
        """The scenario's tasks, and those without jitter."""
        many = max(how.count or 0, TASKS)
        return forecast_of(s, simulate(s, many, how.seed), _quick(without_jitter(s), how.seed))

    def sketch(self, s: AgentScenario, how: Sampling) -> PoolForecast:
        """A forecast of fewer tasks."""
        return forecast_of(s, _quick(s, how.seed), _quick(without_jitter(s), how.seed))

    def scale_jitter(self, s: AgentScenario, factor: float) -> AgentScenario:
        """Jitter of calls, tools and arrivals."""
        t = s.tools
        tools = replace(t, p99_s=t.p50_s * (t.p99_s / t.p50_s) ** factor)
        return replace(s, noise=scaled(s.noise, factor), tools=tools, agents=replace(s.agents, stray=s.agents.stray * factor))

    def rate(self, s: AgentScenario, how: Sampling) -> float:
        """Tasks done rightly and in time a second."""
        return _quick(s, how.seed).good_share * s.per_s


WORKLOAD = AgentWorkload()
