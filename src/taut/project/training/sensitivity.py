"""What lies around a training scenario, gathered for ``taut project --envelope``: regimes, elasticities, capacity in excess,
fabrics as purchases, growth, bytes moved, and the gap that the next generation of devices opens."""

from __future__ import annotations

from typing import Any

from taut.core.errors import UsageError
from taut.project.fabric.fabric_growth import bandwidth_needed, choices, growth
from taut.project.fabric.traffic import traffic
from taut.project.policy import Described
from taut.project.training.loss_regions import elasticities, excess_capacity, regimes
from taut.project.training.scenario import Scenario
from taut.project.workload import DEFAULT, Sampling

TOPOLOGIES, OVERSUBSCRIPTIONS = ("fat-tree", "rail-optimised", "rail-only"), (1.0, 2.0, 4.0)
SIZES = (1, 2, 4, 8)
"""Times its own ranks that a scenario grows to."""


def sensitivity(s: Described, how: Sampling = DEFAULT) -> dict[str, list[dict[str, Any]]]:
    """Rows by what they are about."""
    if not isinstance(s, Scenario):
        raise UsageError("--envelope maps what lies around training jobs; this scenario is none")
    ranks = [s.job.world * times for times in SIZES]
    return {
        "regimes": regimes(s, how),
        "elasticities": elasticities(s, how),
        "capacity in excess": excess_capacity(s, how),
        "fabrics": choices(s, TOPOLOGIES, OVERSUBSCRIPTIONS),
        "growth": growth(s, ranks),
        "bytes moved": traffic(s),
        "next generation on this fabric": list(bandwidth_needed(s, ranks)),
    }
