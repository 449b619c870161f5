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
    number("retry-budget", 0.1, 0, MOST, "retries at most this share of the calls", "tasks over the budget fail", sets(
        "agents", retry_budget=lambda v: v)),
    number("one-layer", 2, 0, 100, "one layer of so many retries instead of several", "tasks fail sooner", sets(
        "agents", retries=lambda v: (int(v),))),
    number("cancel", 1, 0, 1, "the pool drops calls that were given up", "", sets("agents", cancels=lambda v: v > 0)),
    number("deadline", 0, 0, MOST, "the whole chain stops at the task's deadline (s, if none is given)",
           "late answers are lost", _deadline),
    number("token-budget", 100_000, 1, MOST, "give a task up after so many tokens", "long tasks fail", sets(
        "agents", token_budget=lambda v: int(v))),
    number("concurrency", 64, 1, MOST, "at most so many calls in the pool", "others wait for a place", sets(
        "agents", concurrency=lambda v: int(v))),
    number("fallback", 1, 1, 100, "ask a smaller model after so many failed attempts", "more of its drafts are wrong", sets(
        "agents", fallback_after=lambda v: int(v))),
    number("prefix-cache", 0.5, 0, 1, "this share of prompt tokens is cached", "memory", sets(
        "agents", prefix_cache_share=lambda v: v)),
    number("tool-cache", 0.3, 0, 1, "this share of tool calls is answered from a cache", "results may be out of date", sets(
        "tools", cache_share=lambda v: v)),
    number("speculative-tools", 0.5, 0, 1, "call tools while the model plans; right in this share of the turns",
           "tools called for nothing in the others", sets("tools", speculation_share=lambda v: v)),
    number("tool-hedge", 5, 0, MOST, "call a tool a second time after so many seconds", "more tool calls", sets(
        "tools", hedge_s=lambda v: v)),
    number("verification", 0, -5, 5, "accept drafts from this score on, in standard deviations above wrong ones",
           "a lower one lets wrong drafts pass, a higher one has right ones done again", sets(
                "quality", threshold=lambda v: v)),
    number("redos", 1, 0, 100, "so many drafts more at most", "tasks fail that would have gone on", sets(
        "agents", redos=lambda v: int(v))),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
