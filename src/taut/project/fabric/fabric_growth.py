"""Questions of money about a fabric, as plain rows: which one, how it grows, what moving data takes, and what the next
generation of devices would need of it.

Times are those of a step without noise: a fabric changes transfers and what is late in them (``Tier.jitter_us``), not how
work varies. Money is what devices cost by the hour plus what the network costs over its life; null where no price is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import log

from msgspec import Struct
from msgspec.structs import asdict, replace

from taut.project.fabric import equipment as network
from taut.project.figures import times as priced_at
from taut.project.training.forecast import UNIT_TOKENS, at
from taut.project.training.scenario import Device, Fabric, Scenario
from taut.project.training.step_time import step_ns
from taut.result.types import FabricCost, Growth, NextGeneration

# Times as much bandwidth as today, beyond which a fabric is taken not to help.
MOST = 1e4


class Priced(Struct, frozen=True, kw_only=True):
    """A step on a fabric, and what a unit of work costs there."""

    ranks: int
    step_ns: float
    units_per_s: float
    device_cost_per_unit: float | None
    network_price: float | None
    network_w: float | None
    network_cost_per_unit: float | None
    cost_per_unit: float | None


def priced(s: Scenario) -> Priced:
    """A scenario's step, and what a unit of work costs on its devices and its network."""
    took = step_ns(s)
    seconds = took * 1e-9 / (s.job.global_batch * s.model.sequence / UNIT_TOKENS)
    price, watts = network.whole(s)
    device = priced_at(s.job.world * seconds / 3600, s.device.price_per_hour)
    wires = priced_at(seconds, network.per_s(s, s.job.world))
    return Priced(
        ranks=s.job.world,
        step_ns=took,
        units_per_s=1 / seconds,
        device_cost_per_unit=device,
        network_price=price,
        network_w=watts,
        network_cost_per_unit=wires,
        cost_per_unit=None if device is None or wires is None else device + wires,
    )


def choices(
    s: Scenario, topologies: Sequence[str], oversubscriptions: Sequence[float] = (1.0,), latency_times: Sequence[float] = (1.0,)
) -> list[FabricCost]:
    """The scenario on every combination of topology, oversubscription and latency beyond the node (see ``shaped``); the
    cheapest first where prices are known, else the quickest. What the fabric has too few tiers for is left out."""
    rows = []
    for topology, over, times in product(topologies, oversubscriptions, latency_times):
        made = shaped(s.fabric, topology, -(-s.job.world // s.fabric.node), over)
        if made is not None:
            beyond = (replace(tier, latency_us=tier.latency_us * times) for tier in made.tiers[1:])
            done = priced(replace(s, fabric=replace(made, tiers=(made.tiers[0], *beyond))))
            rows.append(FabricCost(topology=topology, oversubscription=over, latency_times=times, **asdict(done)))
    return sorted(rows, key=lambda row: (row.cost_per_unit or 0.0, row.step_ns))


def shaped(fabric: Fabric, topology: str, nodes: int, over: float = 1.0) -> Fabric | None:
    """The same tiers in another topology, with this oversubscription above the switches that nodes are plugged into.

    A torus is as near to a cube as so many nodes allow, and cannot be oversubscribed; the routers of a dragonfly's group
    are joined by what their devices can send. None: too few tiers, or no such thing.
    """
    if len(fabric.tiers) < (3 if topology == "dragonfly" else 2) or (topology == "torus" and over != 1):
        return None
    if topology == "torus":
        return replace(fabric, topology=topology, torus=_cube(nodes))
    first, leaf, *above = fabric.tiers
    if topology == "dragonfly":
        routers = -(-min(above[0].devices, nodes * first.devices) // leaf.devices)
        joined = leaf.devices * leaf.gb_per_s / over / max(routers - 1, 1)
        above[0] = replace(above[0], gb_per_s=joined, oversubscription=over)
    else:
        leaf = replace(leaf, oversubscription=over)
    return replace(fabric, topology=topology, torus=(), tiers=(first, leaf, *above))


def _cube(nodes: int) -> tuple[int, ...]:
    """Three sides that hold so many nodes, as alike as its divisors allow."""
    divisors = [d for d in range(1, nodes + 1) if nodes % d == 0]
    return min(((a, b, nodes // a // b) for a in divisors for b in divisors if nodes // a % b == 0), key=lambda c: (sum(c), c))


def growth(s: Scenario, ranks: Sequence[int]) -> list[Growth]:
    """Growth from size to size: what each expansion adds to the network's price (ports bought before are kept), what it
    reaches, which tiers it needs for the first time, and what a further unit a second costs in network."""
    rows: list[Growth] = []
    for n in ranks:
        tiers = [part.tier for part in network.parts(s.fabric, -(-n // s.fabric.node) * s.fabric.node) if part.cables]
        done, before = priced(at(s, n)), rows[-1] if rows else None
        added = done.network_price
        if before and added is not None:
            added -= before.network_price or 0.0
        row = Growth(
            **asdict(done),
            tiers=tiers,
            new_tiers=tiers[len(before.tiers) if before else 0 :],
            added_price=added,
            scaling=done.units_per_s / before.units_per_s / (n / before.ranks) if before else None,
            in_range=n <= s.fabric.tiers[-1].devices,
        )
        rows.append(row)
    return rows


def faster(device: Device, times: float) -> Device:
    """A device that does everything so many times as fast; its host keeps up."""
    return replace(
        device,
        peak_tflops=device.peak_tflops * times,
        fp8_tflops=None if device.fp8_tflops is None else device.fp8_tflops * times,
        memory_gb_per_s=device.memory_gb_per_s * times,
        kernel_us=device.kernel_us / times,
        host_layer_us=device.host_layer_us / times,
    )


def wider(fabric: Fabric, node: float, beyond: float) -> Fabric:
    """So many times the bandwidth inside a node and beyond it."""
    first, *others = fabric.tiers
    tiers = (replace(first, gb_per_s=first.gb_per_s * node), *(replace(t, gb_per_s=t.gb_per_s * beyond) for t in others))
    return replace(fabric, tiers=tiers)


def exposed(s: Scenario) -> float:
    """Share of a step that would be gone if transfers took no time."""
    free = replace(s, fabric=_free(s.fabric))
    return 1 - step_ns(free) / step_ns(s)


def _free(fabric: Fabric) -> Fabric:
    tiers = tuple(
        replace(tier, gb_per_s=1e12, latency_us=0.0, jitter_us=0.0, oversubscription=1.0, protocols=()) for tier in fabric.tiers
    )
    return replace(fabric, tiers=tiers)


def bandwidth_needed(s: Scenario, ranks: Sequence[int], generations: Sequence[float] = (2.0, 4.0)) -> Iterator[NextGeneration]:
    """Devices so many times as fast, node and all, on today's network: what of a step transfers then are, and how many
    times the network's bandwidth keeps that share where it is today. None: latency alone takes more, no bandwidth will."""
    for n, times in product(ranks, generations):
        today = at(s, n)
        before = exposed(today)
        later = replace(today, device=faster(s.device, times), fabric=wider(s.fabric, times, 1.0))
        needed = _bandwidth_for(later, before)
        beyond = s.fabric.tiers[min(1, len(s.fabric.tiers) - 1)].gb_per_s
        yield NextGeneration(
            ranks=n,
            generation=times,
            exposed_today=before,
            exposed_on_todays_network=exposed(later),
            step_ns_today=step_ns(today),
            step_ns=step_ns(later),
            bandwidth_times=needed,
            gb_per_s_per_tflops_today=beyond / s.device.peak_tflops,
            gb_per_s_per_tflops=None if needed is None else beyond * needed / (s.device.peak_tflops * times),
        )


def _bandwidth_for(s: Scenario, share: float) -> float | None:
    """Bandwidth beyond the node, as a multiple, at which transfers are this share of a step."""

    def more(times: float) -> bool:
        return exposed(replace(s, fabric=wider(s.fabric, 1.0, times))) > share * (1 + 1e-9)

    low, high = 1.0, MOST
    if not more(low):
        return 1.0
    if more(high):
        return None
    while log(high / low) > 1e-3:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if more(middle) else (low, middle)
    return high
