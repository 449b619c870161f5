"""Agents: tasks of many calls on a shared pool of model replicas. A step is a task; docs/agents.md has the words.

A forecast plays the scenario and its still twin (nothing strays, fails or is done twice).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.control.metastability import fixed_points
from taut.core.errors import UsageError
from taut.project.figures import over, quantiles, times, variance_index
from taut.project.noise import scaled
from taut.project.requests.agents import task_kernels as at_
from taut.project.requests.agents.policies import POLICIES
from taut.project.requests.agents.scenario import AgentScenario, parse
from taut.project.requests.agents.tasks import Tasks, batch_of, call_ns, calls_of, run, shares, still
from taut.project.requests.batch_means import Blocks
from taut.project.requests.retry_load import expected_attempts
from taut.project.requests.serving.iteration_time import active_parameters
from taut.project.workload import INDICES, Estimate, Sampling, Workload, fewest

SEED = 0
TASKS, QUICK = 10_000, 3_000
"""Tasks of a forecast, unless more are asked for, and of a rate."""


@dataclass(frozen=True)
class AgentForecast:
    """What a scenario gives at a scale."""

    scenario: AgentScenario
    played: Tasks
    still: Tasks

    @property
    def ranks(self) -> int:
        """How many it was asked for."""
        return self.scenario.ranks

    @property
    def goodput_per_s(self) -> float:
        """Tasks done rightly and in time, all replicas together."""
        return self.played.good_share * self.scenario.agents.per_s

    @property
    def throughput_ratio(self) -> float:
        """Tasks done rightly and in time over those that the still twin does."""
        return min(self.played.good_share / max(self.still.good_share, 1e-9), 1.0)

    @cached_property
    def terms(self) -> dict[str, float]:
        """Where the time of a task that was done goes, ns; they sum to it."""
        p = self.played
        if not p.done.any():
            return {"model calls": 0.0}
        names = {
            "model calls": at_.IN_CALL,
            "queue for the pool": at_.IN_QUEUE,
            "tools": at_.IN_TOOLS,
            "attempts in vain": at_.IN_VAIN,
        }
        return {name: float(p.sums[p.done, column].mean()) for name, column in names.items()}

    @property
    def dominant(self) -> str:
        """The largest term that is no call of the model, where all of them together take more than those."""
        lost = {name: ns for name, ns in self.terms.items() if name != "model calls"}
        return max(lost, key=lambda name: lost[name]) if self.terms["model calls"] < sum(lost.values()) else "model calls"

    @property
    def metastable(self) -> bool | None:
        """Whether the pool has a second load at which it would stay, kept busy by retries; None without timeouts."""
        a = self.scenario.agents
        if a.call_timeout_s == 0 or a.cancels:
            return None
        served = self.places / (self.mean_call_ns * 1e-9)
        # The budget is a share of all calls: of those made first it is more.
        share = np.inf if a.retry_budget is None else a.retry_budget
        budget = share / (1 - share) if share < 1 else np.inf
        points = fixed_points(a.per_s * calls_of(self.scenario), served, a.call_timeout_s, self.scenario.attempts - 1, budget)
        return sum(point.stable for point in points) > 1

    @property
    def places(self) -> float:
        """Calls that the pool works on at once."""
        a = self.scenario.agents
        return min(a.concurrency or np.inf, a.replicas * batch_of(self.scenario))

    @property
    def mean_call_ns(self) -> float:
        """A call in a full pool, without noise, on average over the phases."""
        s, full = self.scenario, int(self.places) - 1
        turns = range(s.agents.turns)
        each = [call_ns(s, at_.PLAN, full), *(call_ns(s, at_.ACT, full, turn) for turn in turns)]
        each += [call_ns(s, p, full) for p, c in ((at_.VERIFY, s.verify), (at_.ANSWER, s.answer)) if c.generated]
        return float(np.mean(each))

    def entry(self) -> dict[str, Any]:
        """The forecast in the words of ``--json``."""
        s, p = self.scenario, self.played
        took = p.took_ns[p.done]
        good = self.goodput_per_s
        joules = over(_watts(s, p), good)
        tflops = 2e-12 * active_parameters(s.model) * self._worked() * s.agents.per_s / self.ranks
        price, missed = s.device.price_per_hour, 1 - p.good_share
        estimated = Blocks(p.window_ns, p.came_ns).mean(np.where(p.done, p.took_ns, np.nan))
        mean = estimated["value"]
        return {
            "ranks": self.ranks, "step_ns": quantiles(took, 1.0), "mean_step_ns": estimated,
            "tflops_per_device": tflops, "mfu": tflops / s.device.peak_tflops,
            "effective_throughput_ratio": self.throughput_ratio,
            "cost_per_unit": None if price is None else over(price / 3600 * self.ranks, good),
            "currency": s.price.currency or None, "energy_per_unit_j": joules,
            "energy_cost_per_unit": times(joules, s.price.kwh, 1 / 3.6e6),
            "kg_co2e_per_unit": times(joules, s.price.kg_co2e_per_kwh, 1 / 3.6e6), "late_share": missed,
            "penalty_per_unit": times(over(missed * s.agents.per_s, good), s.price.penalty, 1.0),
            "token_cost_per_unit": over(self._token_price(), p.good_share), "tasks_per_s": s.agents.per_s,
            "goodput_per_s": good, "sla_attainment": p.good_share, "calls_per_unit": over(float(p.calls.mean()), p.good_share),
            "tool_calls_per_unit": over(float(p.tool_calls.mean()), p.good_share),
            "tokens_per_unit": over(float(p.sums[:, [at_.READ, at_.MADE]].sum(axis=1).mean()), p.good_share),
            "attempt_multiplier": over(p.counts["calls"], p.counts["calls"] - p.counts["thrown"]),
            "attempts_at_most": s.attempts, "expected_attempts": expected_attempts(s.agents.call_failure, s.attempts),
            "metastable": self.metastable, "outcomes": shares(p.outcome), "utilisation": p.busy, "saturated": p.saturated,
            "terms": {name: ns / mean for name, ns in self.terms.items()} if mean else {},
            "dominant": self.dominant, "in_range": self.ranks <= s.fabric.tiers[-1].devices,
        }  # fmt: skip

    def indices(self) -> dict[str, Estimate | None]:
        """The six, for tasks."""
        p, c = self.played, self.played.counts
        blocks, done = Blocks(p.window_ns, p.came_ns), max(self.still.good_share, 1e-9)
        ideal = over(_watts(self.scenario, self.still), self.still.good_share * self.scenario.agents.per_s)
        joules = over(_watts(self.scenario, p), self.goodput_per_s)
        own = {
            "effective_throughput_ratio": blocks.estimate(
                self.throughput_ratio, lambda some: min(float(p.good[some].mean()) / done, 1.0) if some.any() else None
            ),
            "energy_per_useful_step": None if joules is None or not ideal else Estimate(joules / ideal),
            "runtime_variance_index": blocks.estimate(
                variance_index(p.took_ns[p.done]), lambda some: variance_index(p.took_ns[p.done & some])
            ),
            "sync_delay_amplification": Estimate(c["max_over_ns"] / c["mean_over_ns"]) if c["mean_over_ns"] > 0 else None,
            "replay_probability": Estimate(p.thrown),
            "straggler_cascade_rate": Estimate(c["decided"] / c["fan_outs"]) if c["fan_outs"] > 0 else None,
        }
        return {name: own[name] for name in INDICES}

    def _worked(self) -> float:
        """Tokens read or made for a task that came; cached ones are not read."""
        read, made = (float(self.played.sums[:, column].mean()) for column in (at_.READ, at_.MADE))
        return read * (1 - self.scenario.agents.prefix_cache_share) + made

    def _token_price(self) -> float:
        """What a provider and the tools charge for a task that came, done or not."""
        s, p = self.scenario, self.played
        read, made = (float(p.sums[:, column].mean()) for column in (at_.READ, at_.MADE))
        tokens = read * (s.tokens.prompt or 0.0) + made * (s.tokens.generated or 0.0)
        return tokens / 1e6 + float(p.tool_calls.mean()) * s.tools.price


def _watts(s: AgentScenario, p: Tasks) -> float:
    """Of all accelerators, cooling included: under load while their replica works, else stalled."""
    return (s.device.load_w * p.busy + s.device.stall_w * (1 - p.busy)) * s.ranks * s.price.pue


def at(s: AgentScenario, ranks: int) -> AgentScenario:
    """The scenario on so many ranks: more replicas, and as many more tasks where the load is per replica."""
    a = s.agents
    if ranks % a.tp:
        raise UsageError(f"{ranks} ranks: a replica takes {a.tp} (tp); give a multiple of it")
    replicas = ranks // a.tp
    per_s = a.per_s * (replicas / a.replicas if a.load == "per replica" else 1.0)
    limit = max(round(a.concurrency * replicas / a.replicas), 1) if a.concurrency and a.load == "per replica" else a.concurrency
    return replace(s, agents=replace(a, replicas=replicas, per_s=per_s, concurrency=limit))


def forecast(s: AgentScenario, *, count: int | None = None, seed: int = SEED) -> AgentForecast:
    """Play a scenario's tasks, and those of its still twin."""
    return AgentForecast(s, run(s, max(count or 0, TASKS), seed), run(still(s), QUICK, seed))


def scale_jitter(s: AgentScenario, factor: float) -> AgentScenario:
    """The scenario with the jitter of calls, tools and arrivals scaled."""
    t = s.tools
    tools = replace(t, p99_s=t.p50_s * (t.p99_s / t.p50_s) ** factor)
    return replace(s, noise=scaled(s.noise, factor), tools=tools, agents=replace(s.agents, stray=s.agents.stray * factor))


def rate(s: AgentScenario, seed: int) -> float:
    """Tasks done rightly and in time a second."""
    return run(s, QUICK, seed).good_share * s.agents.per_s


class AgentWorkload(Workload[AgentScenario]):
    """Tasks of many calls on a shared pool of model replicas."""

    name = "agents"
    policies = POLICIES

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[AgentScenario, list[str]]:
        """The scenario in a table."""
        return parse(table, label, text)

    def ranks(self, s: AgentScenario) -> int:
        """Accelerators of the pool."""
        return s.ranks

    def at(self, s: AgentScenario, ranks: int) -> AgentScenario:
        """More ranks are more replicas."""
        return at(s, ranks)

    def forecast(self, s: AgentScenario, how: Sampling) -> AgentForecast:
        """The scenario's tasks, and those of its twin without jitter."""
        return forecast(s, count=how.count, seed=how.seed)

    def scale_jitter(self, s: AgentScenario, factor: float) -> AgentScenario:
        """Jitter of calls, tools and arrivals."""
        return scale_jitter(s, factor)

    def rate(self, s: AgentScenario, how: Sampling) -> float:
        """Tasks done rightly and in time a second."""
        return rate(s, how.seed)

    def smallest(self, s: AgentScenario) -> int:
        """Accelerators of the fewest replicas."""
        return fewest(s.agents.replicas, s.agents.load) * s.agents.tp

    def has_fixed_demand(self, s: AgentScenario) -> bool:
        """Whether the replicas share the tasks."""
        return s.agents.load == "fixed"


WORKLOAD = AgentWorkload()
