"""Training: replicas of a model, synchronised once a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from taut.core.errors import InputRefused, UsageError
from taut.project.noise import scaled
from taut.project.training.device_work import memory_gb
from taut.project.training.forecast import UNIT_TOKENS, at, forecast
from taut.project.training.policies import POLICIES
from taut.project.training.sampled_replica import rate, sketch
from taut.project.training.scenario import Scenario, parse, place
from taut.project.workload import Workload

FEWEST = 100
"""Measured strays below which nothing is drawn from them."""


def louder(s: Scenario, times: float) -> Scenario:
    """Everything that strays, straying so many times as far."""
    tiers = tuple(replace(tier, jitter_us=tier.jitter_us * times) for tier in s.fabric.tiers)
    return replace(s, noise=scaled(s.noise, times), fabric=replace(s.fabric, tiers=tiers))


def failing(s: Scenario, times: float) -> Scenario:
    """Everything fails so many times as often."""
    rates = {name: getattr(s.failure, name) * times for name in s.failure.__struct_fields__ if "_per_1000_" in name}
    return replace(s, failure=replace(s.failure, **rates))


def ideal(s: Scenario) -> Scenario:
    """Nothing strays, no device is slow, and nothing fails."""
    quiet = failing(louder(s, 0.0), 0.0)
    return replace(quiet, noise=replace(quiet.noise, slow_share=0.0))


def money(s: Scenario) -> tuple[float | None, float | None]:
    """What a token a second is worth, and what the job costs a second: its devices and spares, and their energy at load."""
    value, price, energy = s.price.value_per_unit, s.device.price_per_hour, s.price.kwh or 0.0
    if price is None:
        return None, None
    held = s.job.world + s.failure.spares * s.fabric.node
    joules = s.job.world * s.device.load_w * s.price.pue
    return None if value is None else value / UNIT_TOKENS, held * price / 3600 + joules / 3.6e6 * energy


def smallest(s: Scenario) -> int:
    """Ranks of the fewest replicas that their devices hold; sharded state needs several."""
    replica, dp = s.job.world // s.job.dp, 1
    while dp < s.job.dp and not _fits(s, dp * replica):
        dp += 1
    return dp * replica


def fits(s: Scenario, label: str, text: str) -> None:
    """Refuse a job that its devices cannot hold."""
    needs = memory_gb(s)
    if needs > s.device.memory_gb:
        why = f"a rank of {s.job.world:,} needs {needs:,.1f} GB, {s.device.name} has {s.device.memory_gb:g}"
        remedy = "raise job.tp or job.pp, set job.sharding or job.recompute, or lower job.micro_batch"
        raise InputRefused(place(label, text, "device.memory_gb"), why, remedy)


def given(s: Scenario, measured: Callable[[str], Any] | None, label: str, text: str) -> dict[str, Any]:
    """Strays of the run that noise is drawn from."""
    if s.noise.distribution != "measured":
        return {}
    strays = measured(s.noise.run) if measured is not None else ()
    if len(strays) < FEWEST:
        why = f"noise.run: {len(strays)} ops with a reference are too few to draw from"
        raise InputRefused(place(label, text, "noise.run"), why, "name a run of several ranks and steps")
    return {"measured": strays}


def _fits(s: Scenario, ranks: int) -> bool:
    try:
        return memory_gb(at(s, ranks)) <= s.device.memory_gb
    except UsageError:
        return False


WORKLOAD = Workload(
    "training", parse, lambda s: s.job.world, at, forecast, louder, rate, POLICIES, ideal, smallest, sketch, money,
    fits, given,
)  # fmt: skip
