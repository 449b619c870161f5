"""A scenario of agents: tasks that plan, call tools, are verified and answered, on a pool of model replicas; one TOML file."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from taut.core.strict_toml import Contradiction, Count, NotNegative, Positive, Share, Some, Strict
from taut.project.requests.replica_pool import PoolScenario, ReplicaPool, pool_contradictions

MOST_TOOLS, MOST_ATTEMPTS = 64, 1000


class Call(Strict, frozen=True):
    """A call of the model: tokens of its prompt and of its answer; nothing generated: no such call."""

    prompt: Some = 0
    """Tokens of its prompt."""
    generated: Some = 0
    """Tokens of its answer; 0: there is no such call."""


class Agents(ReplicaPool, frozen=True, kw_only=True):
    """The chain, its limits, and the pool it shares."""

    per_s: Positive
    """Tasks a second, all replicas together."""
    max_batch: Count = 32
    """Calls that a replica works on at once."""
    stray: NotNegative = 1.0
    """Distance of arrivals from even spacing, over that of a Poisson process; 0: evenly spaced."""
    turns: Some = 3
    """Rounds of tool calls, each followed by a call of the model."""
    context_per_turn: Some = 0
    """Tokens that every turn adds to the prompts after it."""
    redos: Some = 2
    """Times that a draft which was not accepted, or whose tools failed, is done again."""
    call_failure: Share = 0.0
    """Chance that a call of the model ends in an error."""
    call_timeout_s: NotNegative = 0.0
    """Time after which a call is given up; 0: never."""
    retries: tuple[Some, ...] = (2,)
    """Retries of a call, layer by layer (agent, framework, client library): the layers' attempts multiply."""
    backoff_s: NotNegative = 0.0
    """Pause before a retry, doubled with each up to 64 times."""
    deadline_s: NotNegative = 0.0
    """Time after which a task is worth nothing; 0: never."""
    deadline_propagates: bool = False
    """Whether the chain stops at the deadline; else it goes on for nothing."""
    token_budget: Some = 0
    """Tokens after which a task is given up; 0: none."""
    concurrency: Some = 0
    """Most calls at once in all of the pool; 0: as many as replicas × max_batch."""
    fallback_after: Some = 0
    """Attempts of a call after which a smaller model is asked; 0: never."""
    fallback_share: Share = 0.2
    """Time of the smaller model's calls, as a share."""


class Tools(Strict, frozen=True):
    """Tools that a turn calls in parallel."""

    count: Some = 1
    """Tools that a turn calls at once."""
    p50_s: Positive = 1.0
    """Median time of a tool."""
    p99_s: Positive = 10.0
    """Time that one of a hundred exceeds."""
    tail: Literal["lognormal", "pareto"] = "lognormal"
    """Distribution that has these two quantiles."""
    failure: Share = 0.0
    """Chance that a tool ends in an error."""
    timeout_s: NotNegative = 0.0
    """Time after which a tool is given up; 0: never."""
    retries: tuple[Some, ...] = (2,)
    """Layer by layer, as those of calls."""
    cache_share: Share = 0.0
    """Share of the calls whose result is known already."""
    hedge_s: NotNegative | None = None
    """Time after which the tool is called a second time; the first answer counts."""
    speculation_share: Share = 0.0
    """Share of the turns whose tools were guessed rightly and called while the model was still planning."""
    price: NotNegative = 0.0
    """Of a call."""


class Quality(Strict, frozen=True):
    """How often drafts are right, and how well the verifier recognises it."""

    right: Share = 1.0
    """Chance that a draft is right …"""
    fallback_right: Share = 0.8
    """… and that one is which a smaller model had a part in."""
    separation: NotNegative = 2.0
    """Standard deviations between the scores that the verifier gives right and wrong drafts."""
    threshold: float = 1.0
    """Score from which on a draft is accepted, in standard deviations above the mean of wrong ones."""


class TokenPrice(Strict, frozen=True):
    """What a provider charges for a million tokens."""

    prompt: NotNegative | None = None
    """Money for a million tokens of prompts; none: unpriced."""
    generated: NotNegative | None = None
    """Money for a million generated tokens; none: unpriced."""


class AgentScenario(PoolScenario, frozen=True, kw_only=True):
    """One file."""

    agents: Agents
    plan: Call = Call(1000, 200)
    act: Call = Call(1500, 200)
    verify: Call = Call()
    answer: Call = Call()
    tools: Tools = Tools()
    quality: Quality = Quality()
    tokens: TokenPrice = TokenPrice()

    @property
    def pool(self) -> ReplicaPool:
        """The table that has the replicas."""
        return self.agents

    @property
    def per_s(self) -> float:
        """Tasks a second, all replicas together."""
        return self.agents.per_s

    @property
    def attempts(self) -> int:
        """Attempts of a call, all layers of retries together."""
        return prod(1 + r for r in self.agents.retries)

    @property
    def tool_attempts(self) -> int:
        """Attempts of a tool call."""
        return prod(1 + r for r in self.tools.retries)

    def contradictions(self) -> Sequence[Contradiction]:
        """What is wrong with it, key by key."""
        m, a, t, attempts = self.model, self.agents, self.tools, max(self.attempts, self.tool_attempts)
        calls = (self.plan, self.act, self.verify, self.answer)
        longest = max(call.prompt + call.generated for call in calls) + a.context_per_turn * a.turns
        return (
            *pool_contradictions(self, "agents", "agents.deadline_s"),
            (longest > m.sequence, "model.sequence", f"a call has up to {longest:,} tokens", "raise it, or shorten the calls"),
            (not self.plan.generated, "plan.generated", "a task begins with a plan", "give the tokens that it has"),
            (a.turns > 0 and not self.act.generated, "act.generated", "a turn ends with a call", "give its tokens"),
            (t.count > MOST_TOOLS, "tools.count", f"{t.count} tools at once", f"give up to {MOST_TOOLS}"),
            (t.p99_s <= t.p50_s, "tools.p99_s", "not above the median", "give more"),
            (attempts > MOST_ATTEMPTS, "agents.retries", f"{attempts} attempts",
             f"give layers that multiply to {MOST_ATTEMPTS} or less"),
            (a.deadline_propagates and a.deadline_s == 0, "agents.deadline_propagates", "there is no deadline",
             "give deadline_s"),
            (self.noise.drift_share > 0, "noise.drift_share", "agents have no drift", "leave it out"),
        )  # fmt: skip
