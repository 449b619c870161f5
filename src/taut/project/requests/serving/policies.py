"""What can be changed about how requests are served, each a function of the scenario."""

from __future__ import annotations

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.policy import Policy, number, sets
from taut.project.requests.iteration_time import pace
from taut.project.requests.serving.scenario import ServingScenario, mean_lengths


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
_ALL: tuple[Policy[ServingScenario], ...] = (
    number("hedge", 0.95, 0, 1, "ask another server if there is no first token at this quantile",
           "prompts read twice: a share of one minus the quantile more prefill", sets("serving", hedge_quantile=lambda v: v)),
    number("clones", 2, 2, 2, "ask two servers at once and take the first",
           "every prompt is read twice", sets("serving", hedge_quantile=lambda v: 0.0)),
    number("retry-budget", 0.1, 0, MOST, "retries at most this share of the requests",
           "requests over the budget fail at once", sets("serving", retry_budget=lambda v: v)),
    number("retries", 0, 0, 7, "so many attempts after the first", "requests that time out fail sooner",
           sets("serving", retries=lambda v: int(v))),
    number("timeout", 30_000, 1, MOST, "give an attempt up after so many ms", "work on it is lost",
           sets("serving", timeout_ms=lambda v: v)),
    number("cancel", 1, 0, 1, "servers drop attempts that were given up", "", sets("serving", cancels=lambda v: v > 0)),
    number("chunked-prefill", 512, 16, MOST, "prompts ride with decoding in chunks of so many tokens",
           "prompts take longer: first tokens come later",
           sets("serving", chunk_tokens=lambda v: int(v), prefill_share=lambda v: 0.0)),
    number("disaggregate", 0, 0, 0.99, "this share of the replicas only reads prompts; 0: as the work is divided",
           "keys and values cross the fabric; a split that does not fit the load leaves one side idle", _disaggregate),
    number("batch", 32, 1, 4096, "at most so many requests in a batch", "others wait longer",
           sets("serving", max_batch=lambda v: int(v))),
    number("prefix-cache", 0.5, 0, 1, "this share of prompt tokens is cached everywhere",
           "memory that keys and values of requests would have", sets("serving", prefix_cache_share=lambda v: v)),
    number("session-routing", 0.5, 0, 1, "conversations return to their server, which has this share of the prompt cached",
           "busy servers stay busy while others idle",
           sets("serving", routing=lambda v: "session", session_cache_share=lambda v: v)),
    number("shortest-queue", 1, 1, 1, "requests go to the server with the least to do", "a view of all servers",
           sets("serving", routing=lambda v: "shortest")),
    number("admission", 64, 1, MOST, "turn requests away where so many wait", "they fail at once, or are tried again",
           sets("serving", queue_limit=lambda v: int(v))),
    number("drop-late", 1000, 1, MOST, "drop what waited longer than its promise of a first token (ms, if none is given)",
           "they fail", _drop),
    number("spares", 1, 1, 4096, "so many replicas more for the same requests", "their price and their power", _spares),
    number("hedge-leaves", 10, 0, MOST, "ask another copy of a leaf after so many ms", "more asked of leaves", _hedge_leaves),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
