"""What can be changed about how agents work, each a function of the scenario."""

from __future__ import annotations

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.policy import Policy, number, sets
from taut.project.requests.agents.scenario import AgentScenario


def _deadline(s: AgentScenario, value: float) -> AgentScenario:
    limit = value or s.agents.deadline_s
    if not limit:
        raise UsageError("--policy deadline: the scenario has no deadline; give its seconds, deadline=60")
    return replace(s, agents=replace(s.agents, deadline_s=limit, deadline_propagates=True, cancels=True))


MOST = 1e9
_ALL: tuple[Policy[AgentScenario], ...] = (
    number("retry-budget", 0.1, 0, MOST, "allow at most this many retries per call, on average",
           "tasks over the budget fail", sets("agents", retry_budget=float)),
    number("one-layer", 2, 0, 100, "one layer of this many retries instead of several",
           "tasks fail sooner", sets("agents", retries=lambda v: (int(v),))),
    number("cancel", 1, 0, 1, "drop calls that were given up from the pool", "", sets("agents", cancels=bool)),
    number("deadline", 0, 0, MOST, "stop the whole chain at the task's deadline (s, if the scenario has none)",
           "late answers are lost", _deadline),
    number("token-budget", 100_000, 1, MOST, "give up a task after this many tokens",
           "long tasks fail", sets("agents", token_budget=int)),
    number("concurrency", 64, 1, MOST, "allow at most this many calls in the pool at once",
           "other calls wait", sets("agents", concurrency=int)),
    number("fallback", 1, 1, 100, "ask a smaller model after this many failed attempts",
           "more of its drafts are wrong", sets("agents", fallback_after=int)),
    number("prefix-cache", 0.5, 0, 1, "cache this share of prompt tokens", "memory", sets("agents", prefix_cache_share=float)),
    number("tool-cache", 0.3, 0, 1, "answer this share of tool calls from a cache",
           "results may be out of date", sets("tools", cache_share=float)),
    number("speculative-tools", 0.5, 0, 1, "call tools while the model plans; the guess is right in this share of the turns",
           "in other turns tools are called for nothing", sets("tools", speculation_share=float)),
    number("tool-hedge", 5, 0, MOST, "call a tool a second time after this many seconds",
           "more tool calls", sets("tools", hedge_s=float)),
    number("verification", 0, -5, 5, "accept drafts from this score on, in standard deviations above wrong ones",
           "a lower one lets wrong drafts pass, a higher one has right ones done again", sets("quality", threshold=float)),
    number("redos", 1, 0, 100, "allow at most this many further drafts",
           "tasks fail that more drafts would have completed", sets("agents", redos=int)),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
