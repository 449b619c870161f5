"""Training: replicas of a model, synchronised once a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.core.errors import InputRefused
from taut.project.noise import RunNoise, scaled
from taut.project.training.failures import domains, kept_ratios, nodes_of, spare_ranks
from taut.project.training.forecast import UNIT_TOKENS, Forecast, at, forecast
from taut.project.training.policies import POLICIES
from taut.project.training.rank_memory import memory_gb, memory_parts_gb
from taut.project.training.sampled_replica import rate, sketch
from taut.project.training.scenario import Scenario, parse, place
from taut.project.workload import Sampling, Workload

# Residuals below which nothing is drawn from them.
FEWEST = 100
# Of what a device holds: above the first a job may not fit, since library and allocator take some; above the second it does
# not. Between them published jobs ran, which recompute or offload more than their configuration says.
NEAR_LIMIT, FAR_BEYOND = 0.9, 1.5


def scale_failures(s: Scenario, factor: float) -> Scenario:
    """The scenario with every failure rate scaled."""
    rates = {name: getattr(s.failure, name) * factor for name in s.failure.__struct_fields__ if "_per_1000_" in name}
    return replace(s, failure=replace(s.failure, **rates))


def scale_waits(s: Scenario, factor: float) -> Scenario:
    """The scenario with all that comes and goes from step to step scaled: compute, hiccups, drift, transfers."""
    scaled_all = WORKLOAD.scale_jitter(s, factor)
    lasting = {name: getattr(s.noise, name) for name in LASTING}
    return replace(scaled_all, noise=replace(scaled_all.noise, **lasting))


def scale_unequal(s: Scenario, factor: float) -> Scenario:
    """The scenario with what ranks differ by for good scaled."""
    n, f = s.noise, s.failure
    slow = 1 + (n.slow_factor - 1) * factor
    noise = replace(n, ranks_spread=n.ranks_spread * factor, slow_factor=max(slow, 1.0))
    return replace(s, noise=noise, failure=replace(f, placement_spread=f.placement_spread * factor))


def scale_growth(s: Scenario, factor: float) -> Scenario:
    """The scenario with what transfers take longer than in a replica alone scaled."""
    return replace(s, fabric=replace(s.fabric, growth=s.fabric.growth * factor))


def scale_heat(s: Scenario, factor: float) -> Scenario:
    """The scenario with the slowness of cold and hot machines scaled."""
    f = s.failure
    return replace(s, failure=replace(f, warmup_share=f.warmup_share * factor, heat_share=f.heat_share * factor))


# Keys of the noise that last: of ranks, not of steps.
LASTING = ("ranks_spread",)


class Training(Workload[Scenario]):
    """Replicas of a model that synchronise once a step."""

    name = "training"
    policies = POLICIES
    places_each_policy = True

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[Scenario, list[str]]:
        """The scenario in a table."""
        return parse(table, label, text)

    def ranks(self, s: Scenario) -> int:
        """Ranks of the job."""
        return s.job.world

    def at(self, s: Scenario, ranks: int) -> Scenario:
        """More ranks are more replicas."""
        return at(s, ranks)

    def forecast(self, s: Scenario, how: Sampling) -> Forecast:
        """Drawn steps."""
        return forecast(s, count=how.count, seed=how.seed, cores=how.cores, measured=how.residuals)

    def scale_jitter(self, s: Scenario, factor: float) -> Scenario:
        """Jitter of compute and of transfers."""
        tiers = tuple(replace(tier, jitter_us=tier.jitter_us * factor) for tier in s.fabric.tiers)
        return replace(s, noise=scaled(s.noise, factor), fabric=replace(s.fabric, tiers=tiers))

    def mechanisms(self, s: Scenario) -> dict[str, Callable[[Scenario, float], Scenario]]:
        """Jitter, unequal ranks, failures with all that recovery takes, transfers that grow, cold and hot machines."""
        n, f = s.noise, s.failure
        fails = any(domain.per_s > 0 for domain in domains(f, nodes_of(s)))
        unequal = n.ranks_spread > 0 or (n.slow_share > 0 and n.slow_factor > 1) or (fails and f.placement_spread > 0)
        here: tuple[tuple[str, bool, Callable[[Scenario, float], Scenario]], ...] = (
            ("jitter", scale_waits(s, 0.0) != s, scale_waits),
            ("unequal ranks", unequal, scale_unequal),
            ("failures", fails, scale_failures),
            ("interconnect", True, scale_growth),
            ("warm-up and heat", fails and f.warmup_share + f.heat_share > 0, scale_heat),
        )
        return {name: scale for name, there, scale in here if there}

    def uncertain_rates(self, s: Scenario, how: Sampling) -> Floats | None:
        """What failures leave with each draw of the keys of ``[failure]`` that are ranges."""
        if not s.failure.ranges:
            return None
        step_s = float(self.sketch(s, how).step_ns.mean()) * 1e-9
        return kept_ratios(s.failure, nodes_of(s), step_s, how.seed).useful

    def rate(self, s: Scenario, how: Sampling) -> float:
        """Tokens a second that count."""
        return rate(s, how.seed, how.residuals)

    def ideal(self, s: Scenario) -> Scenario:
        """No jitter, no slow devices, no failures."""
        quiet = scale_failures(self.scale_jitter(s, 0.0), 0.0)
        return replace(quiet, noise=replace(quiet.noise, slow_share=0.0))

    def smallest(self, s: Scenario) -> int:
        """Ranks of the fewest replicas whose devices have the memory; sharded state needs several."""
        replica, dp = s.job.world // s.job.dp, 1
        while dp < s.job.dp and not (self.can_run_on(s, dp * replica) and memory_gb(at(s, dp * replica)) <= s.device.memory_gb):
            dp += 1
        return dp * replica

    def sketch(self, s: Scenario, how: Sampling) -> Forecast:
        """Expected steps instead of drawn ones."""
        return sketch(s, how.seed, how.residuals)

    def sketches_well(self, s: Scenario) -> bool:
        """Where no late work is copied: what copies take is counted in drawn steps only."""
        return s.policy.copy_after == 0

    def value_and_cost(self, s: Scenario) -> tuple[float | None, float | None]:
        """Of a token a second, and of a second of the job: its devices and spares, and the energy of nodes at load."""
        value, price, energy = s.price.value_per_unit, s.device.price_per_hour, s.price.kwh or 0.0
        if price is None:
            return None, None
        held = s.job.world + spare_ranks(s)
        joules = s.job.world * (s.device.load_w + s.price.host_w) * s.price.pue
        return None if value is None else value / UNIT_TOKENS, held * price / 3600 + joules / 3.6e6 * energy

    def check_memory(self, s: Scenario, label: str, text: str) -> str | None:
        """Warn of a job near what its devices hold, part by part; refuse what no allocator would bring in."""
        parts = memory_parts_gb(s)
        needs, has = sum(parts.values()), s.device.memory_gb
        why = f"a rank of {s.job.world:,} needs {needs:,.1f} GB, {s.device.name} has {has:g}"
        shown = f"{why} ({', '.join(f'{name} {gb:,.1f}' for name, gb in parts.items())})"
        if needs > FAR_BEYOND * has:
            remedy = "raise job.tp or job.pp, set job.sharding or job.recompute, or lower job.micro_batch"
            raise InputRefused(place(label, text, "device.memory_gb"), shown, remedy)
        return f"memory: {shown}" if needs > NEAR_LIMIT * has else None

    def noise_from_run(
        self, s: Scenario, measured: Callable[[str], RunNoise] | None, label: str, text: str
    ) -> tuple[Scenario, Floats | None]:
        """Residuals of the run in ``noise.run``, and its hiccups where the scenario gives none."""
        if s.noise.distribution != "measured":
            return s, None
        residuals, hiccups = measured(s.noise.run) if measured is not None else (np.empty(0), None)
        if len(residuals) < FEWEST:
            why = f"noise.run: {len(residuals)} ops with a reference are too few to draw from"
            raise InputRefused(place(label, text, "noise.run"), why, "name a run of several ranks and steps")
        if hiccups is not None and s.noise.hiccups_per_1000_steps == 0:
            keys = {name: getattr(hiccups, name) for name in hiccups.__struct_fields__ if name.startswith("hiccup")}
            s = replace(s, noise=replace(s.noise, **keys))
        return s, residuals


WORKLOAD = Training()
