"""What can be changed about how requests are served, each a function of the scenario."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.requests.serving.iteration_time import pace
from taut.project.requests.serving.scenario import ServingScenario, mean_lengths
from taut.project.workload import Policy


def _sets(**values: Callable[[ServingScenario, float], Any]) -> Callable[[ServingScenario, float], ServingScenario]:
    """A change of ``[serving]``: each key by what is made of the scenario and the value."""
    return lambda s, value: replace(s, serving=replace(s.serving, **{key: make(s, value) for key, make in values.items()}))


def _policy(
    name: str, default: float, low: float, high: float, says: str, costs: str,
    change: Callable[[ServingScenario, float], ServingScenario],
) -> Policy[ServingScenario]:  # fmt: skip
    """A policy whose value lies in a range; whole numbers where it counts things."""

    def apply(s: ServingScenario, value: float | None) -> ServingScenario:
        found = default if value is None else value
        if not low <= found <= high:
            raise UsageError(f"--policy {name}={found:g}: give {low:g} to {high:g}")
        return change(s, found)

    return Policy(name, says, apply, costs)


def _disaggregate(s: ServingScenario, share: float) -> ServingScenario:
    if s.servers < 2:
        raise UsageError("--policy disaggregate: one server cannot be split")
    return replace(s, serving=replace(s.serving, prefill_share=share or _reading(s), chunk_tokens=0))


def _reading(s: ServingScenario) -> float:
    """Share of the work of a mean request that is reading its prompt, with batches full: decoding gives way."""
    p, batch = pace(s), s.serving.max_batch
    prompt, generated = mean_lengths(s.arrivals)
    read = float(p.prefill_ns(prompt * (1 - s.serving.prefix_cache_share)))
    made = generated * float(p.iteration_ns(batch) / batch + p.kv_ns * (prompt + generated / 2))
    return min(max(read / (read + made), 0.01), 0.99)


def _hedge_leaves(s: ServingScenario, value: float) -> ServingScenario:
    if not s.leaves.count:
        raise UsageError("--policy hedge-leaves: the scenario has no [leaves]")
    return replace(s, leaves=replace(s.leaves, hedge_ms=value))


def _drop(s: ServingScenario, value: float) -> ServingScenario:
    promise = s.promise if s.promise.ttft_ms is not None else replace(s.promise, ttft_ms=value)
    return replace(s, promise=promise, serving=replace(s.serving, drop_late=True))


def _spares(s: ServingScenario, value: float) -> ServingScenario:
    return replace(s, serving=replace(s.serving, replicas=s.serving.replicas + int(value)))


MOST = 1e9
_ALL = (
    _policy("hedge", 0.95, 0, 1, "ask another server if there is no first token at this quantile",
            "prompts read twice: a share of one minus the quantile more prefill", _sets(hedge_quantile=lambda s, v: v)),
    _policy("clones", 2, 2, 2, "ask two servers at once and take the first",
            "every prompt is read twice", _sets(hedge_quantile=lambda s, v: 0.0)),
    _policy("retry-budget", 0.1, 0, MOST, "retries at most this share of the requests",
            "requests over the budget fail at once", _sets(retry_budget=lambda s, v: v)),
    _policy("retries", 0, 0, 7, "so many attempts after the first", "requests that time out fail sooner", _sets(
        retries=lambda s, v: int(v))),
    _policy("timeout", 30_000, 1, MOST, "give an attempt up after so many ms", "work on it is lost", _sets(
        timeout_ms=lambda s, v: v)),
    _policy("cancel", 1, 0, 1, "servers drop attempts that were given up", "", _sets(cancels=lambda s, v: v > 0)),
    _policy("chunked-prefill", 512, 16, MOST, "prompts ride with decoding in chunks of so many tokens",
            "prompts take longer: first tokens come later", _sets(
                chunk_tokens=lambda s, v: int(v), prefill_share=lambda s, v: 0.0)),
    _policy("disaggregate", 0, 0, 0.99, "this share of the replicas only reads prompts; 0: as the work is divided",
            "keys and values cross the fabric; a split that does not fit the load leaves one side idle", _disaggregate),
    _policy("batch", 32, 1, 4096, "at most so many requests in a batch", "others wait longer", _sets(
        max_batch=lambda s, v: int(v))),
    _policy("prefix-cache", 0.5, 0, 1, "this share of prompt tokens is cached everywhere",
            "memory that keys and values of requests would have", _sets(prefix_cache_share=lambda s, v: v)),
    _policy("session-routing", 0.5, 0, 1, "conversations return to their server, which has this share of the prompt cached",
            "busy servers stay busy while others idle", _sets(
                routing=lambda s, v: "session", session_cache_share=lambda s, v: v)),
    _policy("shortest-queue", 1, 1, 1, "requests go to the server with the least to do", "a view of all servers", _sets(
        routing=lambda s, v: "shortest")),
    _policy("admission", 64, 1, MOST, "turn requests away where so many wait", "they fail at once, or are tried again", _sets(
        queue_limit=lambda s, v: int(v))),
    _policy("drop-late", 1000, 1, MOST, "drop what waited longer than its promise of a first token (ms, if none is given)",
            "they fail", _drop),
    _policy("spares", 1, 1, 4096, "so many replicas more for the same requests", "their price and their power", _spares),
    _policy("hedge-leaves", 10, 0, MOST, "ask another copy of a leaf after so many ms", "more asked of leaves", _hedge_leaves),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
