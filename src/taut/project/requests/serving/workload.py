"""Serving: replicas of a model answer requests that arrive as they like. A step is a request; docs/serving.md has the words.

A forecast plays the scenario and its still twin (no jitter, even arrivals, no failed attempts): what the same accelerators
would deliver is what the twin does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.figures import over, quantiles, times
from taut.project.noise import scaled
from taut.project.requests.batch_means import Blocks
from taut.project.requests.serving.iteration_time import active_parameters
from taut.project.requests.serving.policies import POLICIES
from taut.project.requests.serving.request_indices import cascade, fan_out_delay, variance
from taut.project.requests.serving.scenario import ServingScenario, parse
from taut.project.requests.serving.servers import Played, hedge_ns_of, run, still
from taut.project.workload import INDICES, Estimate, Sampling, Workload, fewest

SEED = 0
REQUESTS, QUICK = 10_000, 1_000
"""Requests of a forecast, unless more are asked for, and of a rate."""
UNIT_TOKENS = 1e6
"""A unit of delivered work is a million tokens of answers as promised."""


@dataclass(frozen=True)
class ServingForecast:
    """What a scenario gives at a scale."""

    scenario: ServingScenario
    played: Played
    still: Played
    hedge_ns: float

    @property
    def ranks(self) -> int:
        """How many it was asked for."""
        return self.scenario.ranks

    @property
    def goodput_per_s(self) -> float:
        """Answers as promised, all replicas together."""
        return self.played.good_share * self.scenario.per_s

    @property
    def throughput_ratio(self) -> float:
        """Answers as promised over what the still twin answers."""
        return min(self.played.good_share / max(self.still.done_share, 1e-9), 1.0)

    @property
    def joules_per_s(self) -> float:
        """Power of all accelerators, cooling included."""
        return _watts(self.scenario, self.played)

    @cached_property
    def terms(self) -> dict[str, float]:
        """Where a mean answered request's time goes, ns; they sum to its latency. Sharing: others' tokens in the batch, and
        prompts that decoding stalls behind."""
        p = self.played
        there = np.isfinite(p.latency_ns)
        if not there.any():
            return {"compute": 0.0}
        out = {name: float(ns[there].mean()) for name, ns in p.spent_ns.items()}
        out = {"compute": float(p.alone_ns[there].mean()), **out}
        return {**out, "sharing": float(p.latency_ns[there].mean()) - sum(out.values())}

    @property
    def dominant(self) -> str:
        """The largest term that is not computing, where all of them together take more than that; else computing."""
        lost = {name: ns for name, ns in self.terms.items() if name != "compute"}
        return max(lost, key=lambda name: lost[name]) if self.terms["compute"] < sum(lost.values()) else "compute"

    @property
    def in_range(self) -> bool:
        """Whether the fabric is known to be that large."""
        return self.ranks <= self.scenario.fabric.tiers[-1].devices

    def entry(self) -> dict[str, Any]:
        """The forecast in the words of ``--json``."""
        s, p = self.scenario, self.played
        tokens = self._tokens_per_s()
        units_per_s = tokens / UNIT_TOKENS
        joules = over(self.joules_per_s, units_per_s)
        tflops = 2e-12 * active_parameters(s.model) * self._worked_per_s() / self.ranks
        latency = p.latency_ns[np.isfinite(p.latency_ns)]
        first = p.first_ns[np.isfinite(p.first_ns)]
        several = np.isfinite(p.latency_ns) & (p.output > 1)
        each = ((p.latency_ns - p.first_ns) / np.maximum(p.output - 1, 1))[several]
        estimated = Blocks(p.window_ns, p.came_ns).mean(p.latency_ns)
        mean = estimated["value"]
        price, missed = s.device.price_per_hour, 1 - p.attained
        return {
            "ranks": self.ranks, "step_ns": quantiles(latency, 1.0), "mean_step_ns": estimated,
            "tflops_per_device": tflops, "mfu": tflops / s.device.peak_tflops,
            "effective_throughput_ratio": self.throughput_ratio,
            "cost_per_unit": None if price is None else over(price / 3600 * self.ranks, units_per_s),
            "currency": s.price.currency or None, "energy_per_unit_j": joules,
            "energy_cost_per_unit": times(joules, s.price.kwh, 1 / 3.6e6),
            "kg_co2e_per_unit": times(joules, s.price.kg_co2e_per_kwh, 1 / 3.6e6), "late_share": missed,
            "penalty_per_unit": times(over(missed * s.per_s, units_per_s), s.price.penalty, 1.0), "tokens_per_s": tokens,
            "ttft_ms": quantiles(first, 1e-6), "tpot_ms": quantiles(each, 1e-6), "latency_ms": quantiles(latency, 1e-6),
            "requests_per_s": s.per_s, "goodput_per_s": self.goodput_per_s, "sla_attainment": p.attained,
            "utilisation": p.busy, "batch": p.batch, "saturated": p.saturated, "copies_per_request": self._copies(),
            "hedge_ms": self.hedge_ns * 1e-6 if self.hedge_ns >= 0 else None, "requests_cut": s.arrivals.cut,
            "terms": {name: ns / mean for name, ns in self.terms.items()} if mean else {},
            "dominant": self.dominant, "in_range": self.in_range,
        }  # fmt: skip

    def indices(self) -> dict[str, Estimate | None]:
        """The six, for requests."""
        p, parts = self.played, self.scenario.serving.fan_out
        blocks = Blocks(p.window_ns, p.came_ns)
        ideal = over(_watts(self.scenario, self.still), self.still.done_share * self.scenario.per_s)
        joules = over(self.joules_per_s, self.goodput_per_s)
        done = max(self.still.done_share, 1e-9)
        own = {
            "effective_throughput_ratio": blocks.estimate(
                self.throughput_ratio, lambda some: min(float(p.kept[p.here][some].mean()) / done, 1.0) if some.any() else None
            ),
            "energy_per_useful_step": None if joules is None or not ideal else Estimate(joules / ideal),
            "runtime_variance_index": blocks.estimate(variance(p), lambda some: variance(p, some)),
            "sync_delay_amplification": blocks.estimate(
                fan_out_delay(p), lambda some: fan_out_delay(p, some) if parts > 1 else None
            ),
            "replay_probability": Estimate(p.thrown),
            "straggler_cascade_rate": blocks.estimate(cascade(p), lambda some: cascade(p, some)),
        }
        return {name: own[name] for name in INDICES}

    def _tokens_per_s(self) -> float:
        """Tokens of answers as promised."""
        p = self.played
        good = p.inside & p.kept
        return float(p.tokens[good].mean()) * self.goodput_per_s if good.any() else 0.0

    def _worked_per_s(self) -> float:
        """Tokens read or made for answers, promised or not."""
        p = self.played
        return float((p.prompt + p.output).mean()) * p.done_share * self.scenario.per_s * self.scenario.serving.fan_out

    def _copies(self) -> float:
        return self.played.counts["copies"] / (len(self.played.kept) * self.scenario.serving.fan_out)


def _watts(s: ServingScenario, p: Played) -> float:
    """Of all accelerators, cooling included: under load while their server works, else stalled."""
    return (s.device.load_w * p.busy + s.device.stall_w * (1 - p.busy)) * s.ranks * s.price.pue


def at(s: ServingScenario, ranks: int) -> ServingScenario:
    """The scenario on so many ranks: more replicas, and as many more requests where the load is per replica."""
    v = s.serving
    each = v.tp * v.pp
    if ranks % each:
        raise UsageError(f"{ranks} ranks: a replica takes {each} (tp × pp); give a multiple of it")
    replicas = ranks // each
    if replicas * v.pp < max(v.fan_out, 2 if v.prefill_share else 1):
        raise UsageError(f"{ranks} ranks: {replicas} replicas are too few for {v.fan_out} parts of a request")
    per_s = s.per_s * (replicas / v.replicas if v.load == "per replica" else 1.0)
    return replace(s, serving=replace(v, replicas=replicas), arrivals=replace(s.arrivals, per_s=per_s))


def forecast(s: ServingScenario, *, count: int | None = None, seed: int = SEED) -> ServingForecast:
    """Play a scenario's requests, and those of its still twin."""
    many = max(count or 0, REQUESTS)
    hedge_ns = hedge_ns_of(s, many // 2, seed)
    return ServingForecast(s, run(s, many, seed, hedge_ns), run(still(s), QUICK, seed), hedge_ns)


def scale_jitter(s: ServingScenario, factor: float) -> ServingScenario:
    """The scenario with the jitter of iterations, servers and arrivals scaled."""
    return replace(s, noise=scaled(s.noise, factor), arrivals=replace(s.arrivals, stray=s.arrivals.stray * factor))


def rate(s: ServingScenario, seed: int) -> float:
    """Answers as promised a second."""
    return run(s, QUICK, seed, hedge_ns_of(s, QUICK // 2, seed)).good_share * s.per_s


class ServingWorkload(Workload[ServingScenario]):
    """Replicas of a model that answer requests."""

    name = "serving"
    policies = POLICIES
    seeds = 3

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[ServingScenario, list[str]]:
        """The scenario in a table."""
        return parse(table, label, text)

    def ranks(self, s: ServingScenario) -> int:
        """Accelerators of all replicas."""
        return s.ranks

    def at(self, s: ServingScenario, ranks: int) -> ServingScenario:
        """More ranks are more replicas."""
        return at(s, ranks)

    def forecast(self, s: ServingScenario, how: Sampling) -> ServingForecast:
        """The scenario's requests, and those of its twin without jitter."""
        return forecast(s, count=how.count, seed=how.seed)

    def scale_jitter(self, s: ServingScenario, factor: float) -> ServingScenario:
        """Jitter of iterations, servers and arrivals."""
        return scale_jitter(s, factor)

    def rate(self, s: ServingScenario, how: Sampling) -> float:
        """Answers as promised a second."""
        return rate(s, how.seed)

    def smallest(self, s: ServingScenario) -> int:
        """Accelerators of the fewest replicas."""
        return fewest(s.serving.replicas, s.serving.load) * s.serving.tp * s.serving.pp

    def sketch(self, s: ServingScenario, how: Sampling) -> ServingForecast:
        """A forecast of fewer requests."""
        hedge_ns = hedge_ns_of(s, QUICK // 2, how.seed)
        return ServingForecast(s, run(s, QUICK, how.seed, hedge_ns), run(still(s), QUICK, how.seed), hedge_ns)

    def has_fixed_demand(self, s: ServingScenario) -> bool:
        """Whether the replicas share the requests."""
        return s.serving.load == "fixed"


WORKLOAD = ServingWorkload()
