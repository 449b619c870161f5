"""Small figures that several workloads print."""

from __future__ import annotations

from typing import Protocol, TypedDict

import numpy as np

from taut.core.array_types import Floats
from taut.core.interval import NORMAL_WIDTH
from taut.result.types import PowerAtLoad

AT = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99}


def over(amount: float, per: float) -> float | None:
    """An amount for each; None where there is none to share it."""
    return amount / per if per > 0 else None


def times(amount: float | None, rate: float | None, unit: float = 1.0) -> float | None:
    """An amount at a rate; None where either is not known."""
    return None if rate is None or amount is None else amount * rate * unit


def quantiles(values: Floats, unit: float = 1.0) -> dict[str, float | None]:
    """Quantiles by name; None of nothing."""
    if not len(values):
        return dict.fromkeys(AT)
    return {name: float(value) * unit for name, value in zip(AT, np.quantile(values, list(AT.values())), strict=True)}


def variance_index(took: Floats) -> float | None:
    """(q95 − q05) ÷ (3.29 q50) of times, as docs/indices.md defines it; None of fewer than eight."""
    took = took[np.isfinite(took)]
    if len(took) < 8:
        return None
    low, middle, high = np.quantile(took, (0.05, 0.5, 0.95))
    return float((high - low) / (NORMAL_WIDTH * middle))


class NetworkEnergy(TypedDict):
    """What the network takes of a unit of work."""

    network_energy_per_unit_j: float | None
    movement_share: float | None


def network_energy(all_j: float | None, ports_j: float | None, moved_j: float | None, pue: float) -> NetworkEnergy:
    """Energy of ports and of bytes moved, cooling included, and its share of all: the tax on moving data.

    What bytes take lies inside the power of devices and hosts, so it is a part of all energy and not added to it.
    """
    if ports_j is None or moved_j is None:
        return NetworkEnergy(network_energy_per_unit_j=None, movement_share=None)
    found = (ports_j + moved_j) * pue
    return NetworkEnergy(network_energy_per_unit_j=found, movement_share=None if not all_j else min(found / all_j, 1.0))


class Site(Protocol):
    """What a scenario says of the place where its accelerators stand."""

    @property
    def pue(self) -> float:
        """All power over that of the equipment."""

    @property
    def host_w(self) -> float:
        """Power of a node without its accelerators, for each of them."""


def power_at_load(ranks: int, load_w: float, network_w: float | None, site: Site) -> PowerAtLoad:
    """What a site supplies while all accelerators work, hosts and cooling included."""
    devices, hosts = ranks * load_w, ranks * site.host_w
    equipment = devices + hosts + (network_w or 0.0)
    cooling = equipment * (site.pue - 1)
    return PowerAtLoad(devices_w=devices, hosts_w=hosts, network_w=network_w, cooling_w=cooling, total_w=equipment + cooling)
