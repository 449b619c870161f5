"""A serving scenario: a model behind replicas, requests that arrive, what was promised them; one strict TOML file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from taut.core.strict_toml import Contradiction, Count, NotNegative, Positive, Share, Some, Strict, Times
from taut.project.requests.replica_pool import PoolScenario, ReplicaPool, pool_contradictions


class Serving(ReplicaPool, frozen=True, kw_only=True):
    """How the model is cut and its replicas are driven."""

    pp: Count = 1
    """Pipeline stages; each works on a batch of its own, so that a replica has as many batches in flight."""
    max_batch: Count = 64
    """Most requests that a server works on at once."""
    prefill_tokens: Count = 8192
    """Most prompt tokens of one iteration, unless a single prompt has more."""
    chunk_tokens: Some = 0
    """Tokens of an iteration in which chunks of prompts ride with decoding; 0: decoding stalls while prompts are read."""
    prefill_share: Share = 0.0
    """Share of the replicas that only read prompts and send keys and values to the others; 0: each does both."""
    fan_out: Count = 1
    """Parts of a request, on as many servers; it has its answer when all have."""
    routing: Literal["random", "round-robin", "shortest", "session"] = "shortest"
    """Session: to the server that has the conversation's keys and values, however busy."""
    session_cache_share: Share = 0.0
    """Share of prompt tokens that only the server of the conversation has cached."""
    timeout_ms: NotNegative = 0.0
    """Time after which an attempt is given up; 0: never."""
    retries: Some = 0
    """Attempts after the first one."""
    backoff_ms: NotNegative = 0.0
    """Pause before a retry, doubled with each."""
    hedge_quantile: Share | None = None
    """If an attempt has no first token when this share of the requests would, another server is asked as well; 0: at once."""
    queue_limit: Some = 0
    """Requests that may wait at a server; more are turned away. 0: no limit."""
    drop_late: bool = False
    """Whether a request that waited longer than its promise of a first token is dropped before it is worked on."""

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica."""
        return self.pp


class Arrivals(Strict, frozen=True):
    """When requests come, and how long they are."""

    per_s: NotNegative = 0.0
    """Requests a second, all replicas together; 0: as recorded in the file."""
    process: Literal["poisson", "modulated", "recorded"] = "poisson"
    """When requests come: independently; at a rate that changes; or as recorded."""
    dispersion: Times = 1.0
    """Index of dispersion of modulated arrivals: variance over mean of their number in a long time."""
    burst_s: Positive = 30.0
    """Mean time between two changes of the rate of modulated arrivals."""
    stray: NotNegative = 1.0
    """Factor of the distance of arrivals from even spacing; 0: evenly spaced."""
    prompt_tokens: Positive = 1024.0
    """Mean tokens of a prompt."""
    prompt_spread: NotNegative = 0.0
    """Standard deviation over mean; lengths are lognormal."""
    generated_tokens: Positive = 256.0
    """Mean tokens of an answer."""
    generated_spread: NotNegative = 0.0
    """Standard deviation over mean of the tokens of answers; lengths are lognormal."""
    file: str = ""
    """Where recorded requests were read from."""
    time_s: tuple[NotNegative, ...] = ()
    """Recorded requests: when they came …"""
    prompts: tuple[Count, ...] = ()
    """… the tokens of their prompts …"""
    generated: tuple[Count, ...] = ()
    """… and of their answers."""
    cut: bool = False
    """Whether the file has more requests than were read."""


class Leaves(Strict, frozen=True):
    """Services that a request asks before the model (retrieval, features); it goes on when all have answered."""

    count: Some = 0
    """Services that each request asks; 0: none."""
    p50_ms: Positive = 1.0
    """Median time of a service."""
    p99_ms: Positive = 10.0
    """Time that one of a hundred exceeds."""
    tail: Literal["lognormal", "pareto"] = "lognormal"
    """Distribution that has these two quantiles."""
    hedge_ms: NotNegative | None = None
    """Time after which another copy of a leaf is asked as well."""


class Promise(Strict, frozen=True):
    """What was promised; what is not given is not promised."""

    ttft_ms: Positive | None = None
    """Time to the first token."""
    tpot_ms: Positive | None = None
    """Time of each token after it, on average over a request."""
    latency_ms: Positive | None = None
    """Time to the last token."""


class ServingScenario(PoolScenario, frozen=True, kw_only=True):
    """One file."""

    serving: Serving
    arrivals: Arrivals
    leaves: Leaves = Leaves()
    promise: Promise = Promise()

    @property
    def pool(self) -> ReplicaPool:
        """The table that has the replicas."""
        return self.serving

    @property
    def servers(self) -> int:
        """Batches in flight at once: one for each stage of each replica."""
        return self.serving.replicas * self.serving.pp

    @property
    def per_s(self) -> float:
        """Requests a second, all replicas together."""
        a = self.arrivals
        return a.per_s or len(a.time_s) / max(a.time_s[-1] - a.time_s[0], 1e-9)

    def contradictions(self) -> Sequence[Contradiction]:
        """What is wrong with it, key by key."""
        m, v, a = self.model, self.serving, self.arrivals
        recorded = a.process == "recorded"
        lengths = {len(a.time_s), len(a.prompts), len(a.generated)}
        return (
            *pool_contradictions(self, "serving", "promise.latency_ms"),
            (m.layers % v.pp != 0, "serving.pp", f"pp {v.pp} does not divide {m.layers} layers", "choose a divisor"),
            (recorded and (len(lengths) > 1 or len(a.time_s) < 2), "arrivals.file", "recorded arrivals need a file of requests",
             "name a CSV with arrival times, prompt and generated tokens"),
            (not recorded and a.per_s == 0, "arrivals.per_s", "no requests arrive", "give the requests a second"),
            (not recorded and bool(a.file), "arrivals.process", f"{a.process} arrivals are not read from a file",
             'set process = "recorded", or take the file out'),
            (recorded and tuple(sorted(a.time_s)) != a.time_s, "arrivals.time_s", "the times are not in order", "sort them"),
            (a.process != "modulated" and a.dispersion > 1, "arrivals.dispersion", f"{a.process} arrivals have none to set",
             'set process = "modulated"'),
            (v.fan_out > self.servers, "serving.fan_out", f"{v.fan_out} parts for {self.servers} servers",
             "give more replicas or fewer parts"),
            (v.prefill_share > 0 and self.servers < 2, "serving.prefill_share", "one server cannot be split", "give more"),
            (v.prefill_share > 0 and v.chunk_tokens > 0, "serving.chunk_tokens",
             "replicas that only read prompts need no chunks", "set chunk_tokens = 0 or prefill_share = 0"),
            (v.retries > 7, "serving.retries", f"{v.retries} retries are more than are simulated", "give up to 7"),
            (v.retries > 0 and v.timeout_ms == 0 and v.queue_limit == 0, "serving.retries", "nothing makes an attempt fail",
             "give timeout_ms or queue_limit"),
            (v.drop_late and self.promise.ttft_ms is None, "serving.drop_late", "no time to a first token is promised",
             "give promise.ttft_ms"),
            (self.leaves.count > 0 and self.leaves.p99_ms <= self.leaves.p50_ms, "leaves.p99_ms", "not above the median",
             "give more"),
        )  # fmt: skip


def mean_lengths(a: Arrivals) -> tuple[float, float]:
    """Mean tokens of a prompt and of an answer."""
    if not a.time_s:
        return a.prompt_tokens, a.generated_tokens
    return sum(a.prompts) / len(a.prompts), sum(a.generated) / len(a.generated)
