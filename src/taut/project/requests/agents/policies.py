"""What can be changed about how agents work, each a function of the scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.requests.agents.scenario import AgentScenario
from taut.project.workload import Policy

Change = Callable[[AgentScenario, float], AgentScenario]


def _sets(table: str, **values: Callable[[float], Any]) -> Change:
    """A change of one table: each key by what is made of the value."""
    return lambda s, value: replace(s, **{table: replace(getattr(s, table), **{k: make(value) for k, make in values.items()})})


def _deadline(s: AgentScenario, value: float) -> AgentScenario:
    limit = value or s.agents.deadline_s
    if not limit:
        raise UsageError("--policy deadline: the scenario has no deadline; give its seconds, deadline=60")
    return replace(s, agents=replace(s.agents, deadline_s=limit, deadline_propagates=True, cancels=True))


def _policy(name: str, default: float, low: float, high: float, says: str, costs: str, change: Change) -> Policy[AgentScenario]:
    def apply(s: AgentScenario, value: float | None) -> AgentScenario:
        found = default if value is None else value
        if not low <= found <= high:
            raise UsageError(f"--policy {name}={found:g}: give {low:g} to {high:g}")
        return change(s, found)

    return Policy(name, says, apply, costs)


MOST = 1e9
_ALL = (
    _policy("retry-budget", 0.1, 0, MOST, "retries at most this share of the calls", "tasks over the budget fail", _sets(
        "agents", retry_budget=lambda v: v)),
    _policy("one-layer", 2, 0, 100, "one layer of so many retries instead of several", "tasks fail sooner", _sets(
        "agents", retries=lambda v: (int(v),))),
    _policy("cancel", 1, 0, 1, "the pool drops calls that were given up", "", _sets("agents", cancels=lambda v: v > 0)),
    _policy("deadline", 0, 0, MOST, "the whole chain stops at the task's deadline (s, if none is given)",
            "late answers are lost", _deadline),
    _policy("token-budget", 100_000, 1, MOST, "give a task up after so many tokens", "long tasks fail", _sets(
        "agents", token_budget=lambda v: int(v))),
    _policy("concurrency", 64, 1, MOST, "at most so many calls in the pool", "others wait for a place", _sets(
        "agents", concurrency=lambda v: int(v))),
    _policy("fallback", 1, 1, 100, "ask a smaller model after so many failed attempts", "more of its drafts are wrong", _sets(
        "agents", fallback_after=lambda v: int(v))),
    _policy("prefix-cache", 0.5, 0, 1, "this share of prompt tokens is cached", "memory", _sets(
        "agents", prefix_cache_share=lambda v: v)),
    _policy("tool-cache", 0.3, 0, 1, "this share of tool calls is answered from a cache", "results may be out of date", _sets(
        "tools", cache_share=lambda v: v)),
    _policy("speculative-tools", 0.5, 0, 1, "call tools while the model plans; right in this share of the turns",
            "tools called for nothing in the others", _sets("tools", speculation_share=lambda v: v)),
    _policy("tool-hedge", 5, 0, MOST, "call a tool a second time after so many seconds", "more tool calls", _sets(
        "tools", hedge_s=lambda v: v)),
    _policy("verification", 0, -5, 5, "accept drafts from this score on, in standard deviations above wrong ones",
            "a lower one lets wrong drafts pass, a higher one has right ones done again", _sets(
                "quality", threshold=lambda v: v)),
    _policy("redos", 1, 0, 100, "so many drafts more at most", "tasks fail that would have gone on", _sets(
        "agents", redos=lambda v: int(v))),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
