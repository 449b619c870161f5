"""Serving: replicas of a model answer requests that arrive as they like. A step is a request; docs/serving.md has the words."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.figures import quantiles
from taut.project.noise import scaled
from taut.project.requests.pool_workload import PoolForecast, PoolWorkload
from taut.project.requests.replica_pool import replicas_on
from taut.project.requests.serving.policies import POLICIES
from taut.project.requests.serving.request_indices import cascade, fan_out_delay, variance
from taut.project.requests.serving.scenario import ServingScenario
from taut.project.requests.serving.servers import ServingOutcome, hedge_ns_of, simulate, without_jitter
from taut.project.training.model_shape import active_parameters
from taut.project.workload import Sampling
from taut.result.types import Quantiles

# Requests of a forecast, unless more are asked for, and of a rate.
REQUESTS, QUICK = 10_000, 1_000
# A unit of delivered work is a million tokens of answers as promised.
UNIT_TOKENS = 1e6


def forecast_of(s: ServingScenario, o: ServingOutcome, quiet: ServingOutcome, hedge_ns: float) -> PoolForecast:
    """The forecast that two simulations give."""
    active = 2e-12 * active_parameters(s.model)
    worked_per_s = float((o.prompt + o.output).mean()) * o.answered_share * s.per_s * s.serving.fan_out
    tokens_per_s = o.good_tokens * (o.good_share * s.per_s)
    figures = {
        "tflops_per_device": active * worked_per_s / s.ranks, "tokens_per_s": tokens_per_s,
        "ttft_ms": Quantiles(**quantiles(o.first_ns[np.isfinite(o.first_ns)], 1e-6)),
        "tpot_ms": Quantiles(**quantiles(o.token_ns[o.answered & (o.output > 1)], 1e-6)),
        "latency_ms": Quantiles(**quantiles(o.took_ns[o.answered], 1e-6)), "requests_per_s": s.per_s, "batch": o.batch,
        "copies_per_request": o.copies_per_request, "hedge_ms": hedge_ns * 1e-6 if hedge_ns >= 0 else None,
        "requests_cut": s.arrivals.cut,
    }  # fmt: skip
    parts = s.serving.fan_out
    indices = {
        "runtime_variance_index": o.blocks.estimate(variance(o), lambda some: variance(o, some)),
        "sync_delay_amplification": o.blocks.estimate(
            fan_out_delay(o), lambda some: fan_out_delay(o, some) if parts > 1 else None
        ),
        "straggler_cascade_rate": o.blocks.estimate(cascade(o), lambda some: cascade(o, some)),
    }
    return PoolForecast(s, o, quiet, tokens_per_s / UNIT_TOKENS, _terms(o), figures, indices)


def _terms(o: ServingOutcome) -> dict[str, float]:
    """Where a mean answered request's time goes, ns. Sharing: others' tokens in the batch, and prompts that decoding stalls
    behind."""
    if not o.answered.any():
        return {"compute": 0.0}
    spent = {"compute": o.alone_ns, **o.spent_ns}
    terms = {name: float(ns[o.answered].mean()) for name, ns in spent.items()}
    return {**terms, "sharing": float(o.took_ns[o.answered].mean()) - sum(terms.values())}


def forecast(s: ServingScenario, requests: int, seed: int) -> PoolForecast:
    """Simulate a number of requests, and fewer without jitter."""
    made, hedge_ns = _quick(s, seed) if requests == QUICK else _simulated(s, requests, seed)
    return forecast_of(s, made, _quick(without_jitter(s), seed)[0], hedge_ns)


# Searches ask for the same again, and policies have in common what they are without jitter.
@lru_cache(maxsize=64)
def _quick(s: ServingScenario, seed: int) -> tuple[ServingOutcome, float]:
    """A few requests, and when another server is asked."""
    return _simulated(s, QUICK, seed)


def _simulated(s: ServingScenario, requests: int, seed: int) -> tuple[ServingOutcome, float]:
    hedge_ns = hedge_ns_of(s, requests // 2, seed)
    return simulate(s, requests, seed, hedge_ns), hedge_ns


class ServingWorkload(PoolWorkload[ServingScenario]):
    """Replicas of a model that answer requests."""

    name = "serving"
    piece = "request"
    scenario = ServingScenario
    policies = POLICIES
    seeds = 3

    def at(self, s: ServingScenario, ranks: int) -> ServingScenario:
        """More ranks are more replicas, with as many more requests where the load is per replica."""
        v = s.serving
        replicas, load = replicas_on(v, ranks)
        if replicas * v.pp < max(v.fan_out, 2 if v.prefill_share else 1):
            raise UsageError(f"{ranks} accelerators: {replicas} replicas are too few for {v.fan_out} parts of a request")
        return replace(s, serving=replace(v, replicas=replicas), arrivals=replace(s.arrivals, per_s=s.per_s * load))

    def forecast(self, s: ServingScenario, how: Sampling) -> PoolForecast:
        """The scenario's requests, and those without jitter."""
        return forecast(s, max(how.count or 0, REQUESTS), how.seed)

    def sketch(self, s: ServingScenario, how: Sampling) -> PoolForecast:
        """A forecast of fewer requests."""
        return forecast(s, QUICK, how.seed)

    def scale_jitter(self, s: ServingScenario, factor: float) -> ServingScenario:
        """Jitter of iterations, servers and arrivals."""
        return replace(s, noise=scaled(s.noise, factor), arrivals=replace(s.arrivals, stray=s.arrivals.stray * factor))

    def rate(self, s: ServingScenario, how: Sampling) -> float:
        """Answers as promised a second."""
        return _quick(s, how.seed)[0].good_share * s.per_s


WORKLOAD = ServingWorkload()
