"""What lies around a training scenario, gathered for ``taut project --envelope``: regimes, elasticities, capacity in excess,
fabrics as purchases, growth, bytes moved, and the gap that the next generation of devices opens."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from taut.core.errors import UsageError
from taut.project.fabric.fabric_growth import bandwidth_needed, choices, growth
from taut.project.fabric.traffic import traffic
from taut.project.mechanisms import split
from taut.project.policy import Described
from taut.project.training.loss_regions import elasticities, excess_capacity, regimes
from taut.project.training.scenario import Scenario
from taut.project.training.workload import WORKLOAD
from taut.project.workload import DEFAULT, Sampling
from taut.result.types import Regime, Surroundings, Threshold

TOPOLOGIES, OVERSUBSCRIPTIONS = ("fat-tree", "rail-optimised", "rail-only"), (1.0, 2.0, 4.0)
# Times its own ranks that a scenario grows to.
SIZES = (1, 2, 4, 8)
NOTHING: Mapping[int, Regime] = MappingProxyType({})


def sensitivity(
    s: Described, how: Sampling = DEFAULT, known: Mapping[int, Regime] = NOTHING, far: Threshold | None = None
) -> Surroundings:
    """Regimes, elasticities, spare capacity, fabrics, growth, traffic and the next generation of devices.

    ``known`` are the regimes of the scales that were asked for; where these are several, growth and the next generation are
    given at each of them. Losses are split on its own ranks and around the threshold, ``far``.
    """
    if not isinstance(s, Scenario):
        raise UsageError("--envelope maps what lies around training jobs; this scenario is none")
    ranks = sorted(known) if len(known) > 1 else [s.job.world * times for times in SIZES]
    return Surroundings(
        regimes=regimes(s, how, known=known),
        elasticities=elasticities(s, how),
        losses=split(WORKLOAD, s, _scales(s, far), how),
        spare_capacity=excess_capacity(s, how),
        fabrics=choices(s, TOPOLOGIES, OVERSUBSCRIPTIONS),
        growth=growth(s, ranks),
        traffic=traffic(s),
        next_generation=list(bandwidth_needed(s, ranks)),
    )


def _scales(s: Scenario, far: Threshold | None) -> list[int]:
    """Its own ranks; half of the threshold, the threshold and twice it, in whole replicas that are tried nearby."""
    own, ranks = s.job.world, far.ranks if far else None
    if ranks is None:
        return [own]
    replica = own // s.job.dp
    return [own, *(max(round(ranks * times / replica), 1) * replica for times in (0.5, 1.0, 2.0))]
