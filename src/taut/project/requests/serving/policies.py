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
           "the slowest requests' prompts are read twice", sets("serving", hedge_quantile=float)),
    number("clones", 2, 2, 2, "ask two servers at once and take the first",
           "every prompt is read twice", sets("serving", hedge_quantile=lambda v: 0.0)),
    number("retry-budget", 0.1, 0, MOST, "allow at most this many retries per request, on average",
           "requests over the budget fail at once", sets("serving", retry_budget=float)),
    number("retries", 0, 0, 7, "try again this many times", "requests that time out fail sooner", sets("serving", retries=int)),
    number("timeout", 30_000, 1, MOST, "give up an attempt after this many ms",
           "the work done for it is lost", sets("serving", timeout_ms=float)),
    number("cancel", 1, 0, 1, "servers drop attempts that were given up", "", sets("serving", cancels=bool)),
    number("chunked-prefill", 512, 16, MOST, "read prompts in chunks of this many tokens, beside decoding",
           "reading a prompt takes longer, so first tokens come later",
           sets("serving", chunk_tokens=int, prefill_share=lambda v: 0.0)),
    number("disaggregate", 0, 0, 0.99, "let this share of the replicas only read prompts; 0: as much as the work asks for",
           "keys and values cross the fabric; a split that does not fit the load leaves one side idle", _disaggregate),
    number("batch", 32, 1, 4096, "put at most this many requests into a batch",
           "others wait longer", sets("serving", max_batch=int)),
    number("prefix-cache", 0.5, 0, 1, "cache this share of prompt tokens on every server",
           "memory that requests' keys and values could use", sets("serving", prefix_cache_share=float)),
    number("session-routing", 0.5, 0, 1, "send conversations back to their server, which has cached this share of the prompt",
           "some servers stay busy while others are idle",
           sets("serving", routing=lambda v: "session", session_cache_share=float)),
    number("shortest-queue", 1, 1, 1, "send requests to the server with the fewest requests",
           "the balancer must see all servers", sets("serving", routing=lambda v: "shortest")),
    number("admission", 64, 1, MOST, "turn requests away where this many wait",
           "they fail at once, or are tried again", sets("serving", queue_limit=int)),
    number("drop-late", 1000, 1, MOST, "drop requests that waited longer than promised for a first token (ms, if none is)",
           "these requests fail", _drop),
    number("spares", 1, 1, 4096, "add this many replicas for the same requests", "their price and their power", _spares),
    number("hedge-leaves", 10, 0, MOST, "ask a second copy of a leaf after this many ms", "more load on leaves", _hedge_leaves),
)  # fmt: skip
POLICIES = {one.name: one for one in _ALL}
