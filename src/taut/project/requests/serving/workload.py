"""Serving: replicas of a model answer requests that arrive as they like. A step is a request; docs/serving.md has the words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.figures import quantiles
from taut.project.noise import scaled
from taut.project.requests.iteration_time import active_parameters
from taut.project.requests.pool_workload import PoolForecast, PoolWorkload
from taut.project.requests.replica_pool import replicas_on
from taut.project.requests.serving.policies import POLICIES
from taut.project.requests.serving.request_indices import cascade, fan_out_delay, variance
from taut.project.requests.serving.scenario import ServingScenario, parse
from taut.project.requests.serving.servers import ServingOutcome, hedge_ns_of, simulate, without_jitter
from taut.project.workload import Estimate, Sampling

REQUESTS, QUICK = 10_000, 1_000
"""Requests of a forecast, unless more are asked for, and of a rate."""
UNIT_TOKENS = 1e6
"""A unit of delivered work is a million tokens of answers as promised."""


@dataclass(frozen=True)
class ServingForecast(PoolForecast[ServingScenario, ServingOutcome]):
    """What a serving scenario gives at a scale."""

    hedge_ns: float

    WORK = "compute"

    @property
    def attained(self) -> float:
        """Share of the requests that were answered as promised, whenever that was."""
        return self.outcome.attained

    @property
    def tokens_per_s(self) -> float:
        """Tokens of answers as promised."""
        return self.outcome.good_tokens * self.goodput_per_s

    @property
    def units_per_s(self) -> float:
        """Millions of these tokens."""
        return self.tokens_per_s / UNIT_TOKENS

    @property
    def tflops_per_device(self) -> float:
        """Of tokens read or made for answers, as promised or not."""
        s, o = self.scenario, self.outcome
        tokens_per_s = float((o.prompt + o.output).mean()) * o.answered_share * s.per_s * s.serving.fan_out
        return 2e-12 * active_parameters(s.model) * tokens_per_s / self.ranks

    @cached_property
    def terms(self) -> dict[str, float]:
        """Where a mean answered request's time goes, ns; they sum to its latency. Sharing: others' tokens in the batch, and
        prompts that decoding stalls behind."""
        o = self.outcome
        there = o.answered
        if not there.any():
            return {"compute": 0.0}
        out = {name: float(ns[there].mean()) for name, ns in o.spent_ns.items()}
        out = {"compute": float(o.alone_ns[there].mean()), **out}
        return {**out, "sharing": float(o.took_ns[there].mean()) - sum(out.values())}

    def own_entries(self) -> dict[str, Any]:
        """Latencies of tokens, requests and their copies."""
        o = self.outcome
        return {
            "tokens_per_s": self.tokens_per_s, "ttft_ms": quantiles(o.first_ns[np.isfinite(o.first_ns)], 1e-6),
            "tpot_ms": quantiles(o.token_ns[o.answered & (o.output > 1)], 1e-6),
            "latency_ms": quantiles(o.took_ns[o.answered], 1e-6), "requests_per_s": self.scenario.per_s, "batch": o.batch,
            "copies_per_request": o.copies_per_request, "hedge_ms": self.hedge_ns * 1e-6 if self.hedge_ns >= 0 else None,
            "requests_cut": self.scenario.arrivals.cut,
        }  # fmt: skip

    def own_indices(self) -> dict[str, Estimate | None]:
        """Those of latency, and of the parts of a request."""
        o, parts = self.outcome, self.scenario.serving.fan_out
        return {
            "runtime_variance_index": o.blocks.estimate(variance(o), lambda some: variance(o, some)),
            "sync_delay_amplification": o.blocks.estimate(
                fan_out_delay(o), lambda some: fan_out_delay(o, some) if parts > 1 else None
            ),
            "straggler_cascade_rate": o.blocks.estimate(cascade(o), lambda some: cascade(o, some)),
        }


def forecast(s: ServingScenario, requests: int, seed: int) -> ServingForecast:
    """Simulate so many requests, and fewer without jitter."""
    hedge_ns = hedge_ns_of(s, requests // 2, seed)
    return ServingForecast(s, simulate(s, requests, seed, hedge_ns), simulate(without_jitter(s), QUICK, seed), hedge_ns)


class ServingWorkload(PoolWorkload[ServingScenario]):
    """Replicas of a model that answer requests."""

    name = "serving"
    policies = POLICIES
    seeds = 3

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[ServingScenario, list[str]]:
        """The scenario in a table."""
        return parse(table, label, text)

    def at(self, s: ServingScenario, ranks: int) -> ServingScenario:
        """More ranks are more replicas, with as many more requests where the load is per replica."""
        v = s.serving
        replicas, load = replicas_on(v, ranks)
        if replicas * v.pp < max(v.fan_out, 2 if v.prefill_share else 1):
            raise UsageError(f"{ranks} ranks: {replicas} replicas are too few for {v.fan_out} parts of a request")
        return replace(s, serving=replace(v, replicas=replicas), arrivals=replace(s.arrivals, per_s=s.per_s * load))

    def forecast(self, s: ServingScenario, how: Sampling) -> ServingForecast:
        """The scenario's requests, and those without jitter."""
        return forecast(s, max(how.count or 0, REQUESTS), how.seed)

    def sketch(self, s: ServingScenario, how: Sampling) -> ServingForecast:
        """A forecast of fewer requests."""
        return forecast(s, QUICK, how.seed)

    def scale_jitter(self, s: ServingScenario, factor: float) -> ServingScenario:
        """Jitter of iterations, servers and arrivals."""
        return replace(s, noise=scaled(s.noise, factor), arrivals=replace(s.arrivals, stray=s.arrivals.stray * factor))

    def rate(self, s: ServingScenario, how: Sampling) -> float:
        """Answers as promised a second."""
        return simulate(s, QUICK, how.seed, hedge_ns_of(s, QUICK // 2, how.seed)).good_share * s.per_s


WORKLOAD = ServingWorkload()
