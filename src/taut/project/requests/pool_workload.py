"""What forecasts of serving and of agents have in common: goodput, prices, energy and indices of a pool of replicas.

A forecast simulates the scenario and the same without jitter (no noise, even arrivals, nothing that fails): what the same
accelerators would deliver is what they deliver there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from taut.core.array_types import Mask
from taut.project.fabric import equipment as network
from taut.project.figures import over, power_at_load, quantiles, times
from taut.project.requests.queue_simulation import Outcome
from taut.project.requests.replica_pool import PoolScenario
from taut.project.time_groups import bound_by, grouped, largest_term
from taut.project.workload import INDICES, Estimate, Workload, fewest
from taut.result.types import Forecast, Quantiles

S = TypeVar("S", bound=PoolScenario)
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class PoolForecast:
    """What a scenario gives at a scale."""

    scenario: PoolScenario
    outcome: Outcome
    quiet: Outcome
    """The same without jitter."""
    units_per_s: float
    """Units of delivered work."""
    terms: Mapping[str, float]
    """Where the time of what was answered goes on average, ns; they sum to it. The first is the work, the others are losses."""
    own_figures: Mapping[str, Any]
    """Fields of the result that only this kind of workload has, and ``tflops_per_device``."""
    own_indices: Mapping[str, Estimate | None]
    """Runtime variance, sync delay and straggler cascade, which each kind of workload defines for itself."""
    best_share: float | None = None
    """What throughput is measured by; None for what is answered without jitter."""

    def measured_by(self, best: float) -> PoolForecast:
        """The same, its throughput measured by another share."""
        return replace(self, best_share=best)

    @property
    def best(self) -> float:
        """Share of what is asked that could be answered at best."""
        return max(self.quiet.answered_share if self.best_share is None else self.best_share, 1e-9)

    @property
    def ranks(self) -> int:
        """How many it was asked for."""
        return self.scenario.ranks

    @property
    def throughput_ratio(self) -> float:
        """What ends rightly and as promised over what is answered without jitter; 1 at most."""
        return min(self.outcome.good_share / self.best, 1.0)

    @property
    def dominant(self) -> str:
        """The largest term of the group that the scale is bound by."""
        return largest_term(self.terms, grouped(self.terms))

    def watts(self, outcome: Outcome) -> float:
        """Power of all nodes, cooling included: accelerators under load while their server works, else stalled."""
        s, busy = self.scenario, outcome.busy
        devices = s.device.load_w * busy + s.device.stall_w * (1 - busy)
        return ((devices + s.price.host_w) * s.ranks + (network.share_of(s, s.ranks)[1] or 0.0)) * s.price.pue

    def entry(self) -> Forecast:
        """Its part of the result."""
        s, o, units = self.scenario, self.outcome, self.units_per_s
        joules = over(self.watts(o), units)
        held, wires = network.per_s(s, s.ranks), network.share_of(s, s.ranks)[1]
        price, missed = s.device.price_per_hour, 1 - o.attained
        mean = o.blocks.mean(np.where(o.answered, o.took_ns, np.nan))
        return Forecast(
            ranks=self.ranks,
            step_ns=Quantiles(**quantiles(o.took_ns[o.answered])),
            mean_step_ns=None if mean is None else mean.as_result(),
            mfu=self.own_figures["tflops_per_device"] / s.device.peak_tflops,
            effective_throughput_ratio=self.throughput_ratio,
            cost_per_unit=None if price is None else over(price / 3600 * self.ranks, units),
            currency=network.currency(s),
            energy_per_unit_j=joules,
            network_cost_per_unit=over(held, units) if held is not None else None,
            network_w=wires,
            energy_cost_per_unit=times(joules, s.price.kwh, 1 / JOULES_PER_KWH),
            kg_co2e_per_unit=times(joules, s.price.kg_co2e_per_kwh, 1 / JOULES_PER_KWH),
            late_share=missed,
            penalty_per_unit=times(over(missed * s.per_s, units), s.price.penalty),
            goodput_per_s=o.good_share * s.per_s,
            sla_attainment=o.attained,
            utilisation=o.busy,
            saturated=o.saturated,
            terms={name: ns / mean.value for name, ns in self.terms.items()} if mean and mean.value else {},
            dominant=self.dominant,
            in_range=self.ranks <= s.fabric.tiers[-1].devices,
            groups=grouped(self.terms),
            bound=bound_by(grouped(self.terms)),
            power_at_load=power_at_load(self.ranks, s.device.load_w, wires, s.price),
            **self.own_figures,
        )

    def indices(self) -> dict[str, Estimate | None]:
        """The six, for requests or tasks."""
        o, quiet, per_s = self.outcome, self.quiet, self.scenario.per_s
        ideal = over(self.watts(quiet), quiet.answered_share * per_s)
        joules = over(self.watts(o), o.good_share * per_s)

        def ratio(some: Mask) -> float | None:
            return min(float(o.good[some].mean()) / self.best, 1.0) if some.any() else None

        found = {
            "effective_throughput_ratio": o.blocks.estimate(self.throughput_ratio, ratio),
            "energy_per_useful_step": None if joules is None or not ideal else Estimate(joules / ideal),
            "replay_probability": Estimate(o.discarded),
            **self.own_indices,
        }
        return {name: found[name] for name in INDICES}


class PoolWorkload(Workload[S]):
    """Requests or tasks on a pool of replicas."""

    long_rates = True
    scenario: type[S]
    noun = "accelerator"

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[S, list[str]]:
        """The scenario in a table."""
        return self.scenario.parse(table, label, text)

    def ranks(self, s: S) -> int:
        """Accelerators of the pool."""
        return s.ranks

    def smallest(self, s: S) -> int:
        """Accelerators of the fewest replicas."""
        return fewest(s.pool.replicas, s.pool.load) * s.pool.devices

    def has_fixed_demand(self, s: S) -> bool:
        """Whether the replicas share the load."""
        return s.pool.shares_load
