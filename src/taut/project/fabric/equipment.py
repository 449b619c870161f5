"""What a fabric consists of at a scale, what that costs once, and what power it draws.

A cable has two ends, and each is a port: of a device (its share of the adapter), or of a switch (its share of that). The
cables of a tier are those that lead up to its switches; how many there are follows from what its trunks carry, in cables as
fast as a device's port, so that oversubscription saves cables. Tiers that nobody needs at that scale are not built; what
reaches beyond the outermost tier is joined by a core whose ports cost what those of the outermost do.
"""

from __future__ import annotations

from math import ceil, prod
from typing import NamedTuple, Protocol

from taut.project.figures import times
from taut.project.training.scenario import Device, Fabric, Price, Scenario, Tier

YEAR_S = 365 * 86400.0


class Part(NamedTuple):
    """A tier of a fabric as it is built."""

    tier: str
    cables: int
    ports: int
    """Ends of these cables."""
    spare_ports: int
    """Ports of its switches that nothing is plugged into; none where the radix is not given."""
    switches: int | None
    """None where the radix is not given."""
    price: float | None
    """Of all its ports; None where none is given."""
    watts: float | None
    """Of those in use."""


def parts(fabric: Fabric, devices: int) -> list[Part]:
    """The tiers of a fabric of so many devices, from the inside out."""
    if fabric.topology == "torus":
        return _torus(fabric, devices)
    return _dragonfly(fabric, devices) if fabric.topology == "dragonfly" else _tree(fabric, devices)


def _part(tier: Tier, cables: int, above: int = 0, units: int = 0, name: str = "") -> Part:
    """A tier with ``units`` places for switches, each with its share of the cables from below and of those above."""
    used, switches, spare = cables + above, None, 0
    if tier.radix and units:
        switches = units * ceil(used / units / tier.radix)
        spare = switches * tier.radix - used
    price = None if tier.port_price is None else tier.port_price * (2 * cables + spare)
    return Part(name or tier.name, cables, 2 * cables, spare, switches, price, times(2 * cables, tier.port_w))


def _inside(fabric: Fabric, devices: int) -> int:
    return devices if fabric.node > 1 else 0


def _adapters(fabric: Fabric, devices: int) -> int:
    """Cables that leave the nodes: one for each device, fewer if the node is oversubscribed."""
    inner, outer = fabric.tiers[0], fabric.tiers[1]
    return ceil(devices * min(1.0, inner.gb_per_s / inner.oversubscription / outer.gb_per_s))


def _tree(fabric: Fabric, devices: int) -> list[Part]:
    """Trees: fat, or of rails (which have a switch for each device of a node side by side)."""
    tiers = fabric.tiers
    needed = 1 + sum(devices > tier.devices for tier in tiers)
    cables = [_inside(fabric, devices)]
    if needed > 1 and len(tiers) > 1:
        cables += [_adapters(fabric, devices), *(_trunks(fabric, devices, level) for level in range(1, needed - 1))]
    out = []
    for level, count in enumerate(cables):
        tier = tiers[min(level, len(tiers) - 1)]
        islands = ceil(devices / tier.devices) * _rails(fabric, level) if level < len(tiers) else 1
        above = cables[level + 1] if level + 1 < len(cables) and level else 0
        out.append(_part(tier, count, above, islands, "" if level < len(tiers) else "core"))
    return out


def _trunks(fabric: Fabric, devices: int, level: int) -> int:
    """Cables above the switches of a tier."""
    tiers = fabric.tiers
    tier, above = tiers[level], tiers[min(level + 1, len(tiers) - 1)]
    if tier.uplinks:
        return ceil(devices / tier.devices) * _rails(fabric, level) * tier.uplinks
    return ceil(devices * min(tier.gb_per_s / tier.oversubscription, above.gb_per_s) / tiers[1].gb_per_s)


def _rails(fabric: Fabric, level: int) -> int:
    """Switches that an island of a tier consists of, side by side."""
    railed = level >= 1 and (fabric.topology == "rail-only" or (fabric.topology == "rail-optimised" and level == 1))
    return fabric.node if railed else 1


def _dragonfly(fabric: Fabric, devices: int) -> list[Part]:
    """Routers of a group all joined, groups all joined; cables between groups are those of the tier above, if there is one."""
    node, router, group = fabric.tiers[:3]
    out = [_part(node, _inside(fabric, devices), 0, ceil(devices / node.devices))]
    if devices <= node.devices:
        return out
    routers, full, rest = ceil(devices / router.devices), *divmod(devices, group.devices)
    each, last = group.devices // router.devices, ceil(rest / router.devices)
    # A clique of r routers has r(r - 1)/2 cables; the last group may be smaller.
    pairs = full * each * (each - 1) // 2 + last * (last - 1) // 2
    local = pairs * ceil(group.gb_per_s / router.gb_per_s)
    globe = ceil(devices / group.oversubscription / 2) if devices > group.devices else 0
    out.append(_part(router, _adapters(fabric, devices), 2 * (local + globe), routers))
    out.append(_part(group, local))
    return [*out, _part(fabric.tiers[min(3, len(fabric.tiers) - 1)], globe, name="between groups")]


def _torus(fabric: Fabric, devices: int) -> list[Part]:
    """A cable, or several, from every node to the next one in every dimension; no switch beyond the node."""
    node, link = fabric.tiers[:2]
    sides = [side for side in fabric.torus if side > 1]
    each = ceil(_adapters(fabric, node.devices) / (2 * max(len(sides), 1)))
    inside = _part(node, _inside(fabric, devices), 0, ceil(devices / node.devices))
    return [inside, _part(link, prod(fabric.torus) * len(sides) * each)]


class Site(Protocol):
    """A scenario, as far as its network is concerned."""

    @property
    def fabric(self) -> Fabric:
        """What joins its devices."""

    @property
    def device(self) -> Device:
        """What they are."""

    @property
    def price(self) -> Price:
        """Its rates."""


def currency(s: Site) -> str | None:
    """The currency of all that a scenario prices; that of its network where it prices nothing else."""
    unpriced = s.device.price_per_hour is None and s.price.kwh is None
    return s.price.currency or (s.fabric.currency if unpriced else "") or None


def whole(s: Scenario) -> tuple[float | None, float | None]:
    """(price, watts) of what the job has of the network: all of it, or its share of a larger machine's; None if unknown."""
    return share_of(s, s.job.world)


def share_of(s: Site, ranks: int) -> tuple[float | None, float | None]:
    """The same of so many ranks. A price in another currency than the scenario's is none that could be added to others."""
    nodes = max(-(-ranks // s.fabric.node), s.fabric.nodes)
    built, share = parts(s.fabric, nodes * s.fabric.node), ranks / (nodes * s.fabric.node)
    price, watts = ([x for x in column if x is not None] for column in zip(*((p.price, p.watts) for p in built), strict=True))
    told = price and (not s.fabric.currency or s.fabric.currency == currency(s))
    return (share * sum(price) if told else None), (share * sum(watts) if watts else None)


def per_s(s: Site, ranks: int) -> float | None:
    """What the ranks' share of the network costs in a second of its life."""
    price = share_of(s, ranks)[0]
    return None if price is None else price / (s.price.amortisation_years * YEAR_S)
