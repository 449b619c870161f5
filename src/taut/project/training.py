"""Training: replicas of a model, synchronised once a step."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from taut.project.forecast import at, forecast
from taut.project.policy import POLICIES
from taut.project.scenario import Scenario, parse
from taut.project.workload import Workload


def louder(s: Scenario, times: float) -> Scenario:
    """Everything that strays, straying so many times as far."""
    n = s.noise
    kind: Any = "none" if times == 0 else n.distribution
    spreads = {name: getattr(n, name) * times for name in ("spread", "step_spread", "ranks_spread", "drift_share")}
    tiers = tuple(replace(tier, jitter_us=tier.jitter_us * times) for tier in s.fabric.tiers)
    return replace(s, noise=replace(n, distribution=kind, **spreads), fabric=replace(s.fabric, tiers=tiers))


def rate(s: Scenario, seed: int) -> float:
    """Tokens a second that count."""
    return forecast(s, seed=seed).tokens_per_s


WORKLOAD = Workload("training", parse, lambda s: s.job.world, at, forecast, louder, rate, POLICIES)
