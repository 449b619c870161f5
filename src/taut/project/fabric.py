"""What joins the ranks: where each lies, which tier a group crosses, and the rate at which its members send.

Ranks are numbered with tensor parallelism innermost, then context, data and pipeline parallelism, and placed in that order.
"""

from __future__ import annotations

from typing import Any

from taut.project.collective import time_ns
from taut.project.scenario import Scenario


class Net:
    """The groups of a scenario on its fabric."""

    def __init__(self, s: Scenario) -> None:
        self.scenario = s
        j, node = s.job, s.fabric.node
        shard = min(j.shard or max(1, node // (j.tp * j.cp)), j.dp)
        inner = j.tp * j.cp
        self.groups: dict[str, tuple[int, int]] = {
            "tp": (j.tp, 1), "cp": (j.cp, j.tp), "dp": (j.dp, inner), "ep": (j.ep, inner), "pp": (j.pp, inner * j.dp),
            "shard": (shard, inner), "replica": (j.dp // shard, inner * shard),
        }  # fmt: skip
        """Of each axis: members of a group, and how far apart their numbers are."""

    def members(self, axis: str) -> int:
        """Ranks of one group."""
        return self.groups[axis][0]

    def ns(self, verb: str, axis: str, size: float) -> float:
        """Time of a collective of all groups of an axis at once, each over ``size`` bytes."""
        members, _ = self.groups[axis]
        tier, rate = self.rate(axis)
        return time_ns(verb, tier.algorithm, members, size, rate, tier.latency_us) if members > 1 else 0.0

    def rate(self, axis: str) -> tuple[Any, float]:
        """(outermost tier that a group crosses, GB/s at which a member sends while all groups do)."""
        members, apart = self.groups[axis]
        fabric = self.scenario.fabric
        inside = fabric.node
        here = max(1, min(members, inside // apart))
        tier, rate = fabric.tiers[0], fabric.tiers[0].gb_per_s
        for outer in fabric.tiers[1:]:
            if members * apart <= inside:
                break
            share = outer.gb_per_s * (here if outer.striped else 1) / outer.oversubscription
            tier, rate = outer, min(rate, share)
            inside = outer.devices
        return tier, rate
