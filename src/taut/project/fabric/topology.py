"""Links of a fabric, and the way a flow takes through them.

A node holds the devices of the innermost tier; they reach each other through a switch, each over its port. Beyond the node
a topology says which links a flow crosses. Cables that carry alike are one link: a trunk is what all cables from one
switch upwards carry together (``Tier.uplinks`` hashes flows onto single cables instead). Where flows are striped over the
ports of a node, its rails carry alike too, and are one link.

A new topology is a subclass with ``lay()`` (make the links) and ``across()`` (those between two nodes), and its name in
TOPOLOGIES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.project.training.scenario import Fabric

# Links of flows, one array for each place on the way; -1 where a flow has none there.
Columns = list[Ints]


@dataclass(frozen=True)
class Routes:
    """The ways of flows."""

    start: Ints
    link: Ints
    """Flow f crosses link[start[f] : start[f + 1]]."""
    level: Ints
    """Outermost tier that a flow crosses."""
    latency_us: Floats


@dataclass(frozen=True)
class Ways:
    """The same, column by column."""

    near: Columns
    """Links that all flows cross …"""
    far: Ints
    """… the flows that leave their node …"""
    beyond: Columns
    """… and what those cross after that."""
    level: Ints
    latency_us: Floats

    def crossings(self, links: int) -> Ints:
        """How often flows cross each of so many links; that of the first is dropped, which stands for none."""
        crossed = np.concatenate([*self.near, *self.beyond])
        crossed += 1
        return np.bincount(crossed, minlength=links + 1)[1:]

    def routes(self) -> Routes:
        """The same, flow by flow."""
        table = np.full((len(self.level), len(self.near) + len(self.beyond)), -1)
        table[:, : len(self.near)] = np.stack(self.near, axis=1)
        if self.beyond:
            table[self.far, len(self.near) :] = np.stack(self.beyond, axis=1)
        used = table >= 0
        start = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        return Routes(start, table[used], self.level, self.latency_us)


class Topology(ABC):
    """Links with their capacity, and routes between devices; this one joins no nodes."""

    def __init__(self, fabric: Fabric, devices: int) -> None:
        tiers = self.tiers = fabric.tiers
        self.fabric, self.depth = fabric, len(tiers)
        self.node = fabric.node if self.depth > 1 else max(fabric.node, devices)
        self.nodes = prod(fabric.torus) if fabric.topology == "torus" and self.depth > 1 else -(-devices // self.node)
        self.striped = self.depth > 1 and tiers[1].striped
        self._made: list[Floats] = []
        self._links = 0
        self.inner = self.pair(self.nodes * self.node, tiers[0].gb_per_s)
        self.ports: list[tuple[int, int, int]] = []
        if self.depth > 1:
            gate = min(tiers[0].gb_per_s / tiers[0].oversubscription, tiers[1].gb_per_s)
            self.exits = self.pair(self.nodes, self.node * gate)
            self._lay_ports()
            self.lay()
        self.capacity = np.concatenate(self._made)
        """GB/s of every link."""

    def links(self, count: int, gb_per_s: float) -> int:
        """Make links; the number of the first."""
        self._made.append(np.full(count, gb_per_s))
        self._links += count
        return self._links - count

    def _weaken(self, link: int, share: float) -> None:
        """Let one link carry only a share of what it did."""
        for made in self._made:
            if 0 <= link < len(made):
                made[link] *= share
            link -= len(made)

    def pair(self, count: int, gb_per_s: float) -> tuple[int, int]:
        """Make links that go up (out) and as many that come down (in)."""
        return self.links(count, gb_per_s), self.links(count, gb_per_s)

    def _lay_ports(self) -> None:
        """What one device (or, striped, one node) can send through a tier, where no inner tier says less."""
        unit, least = self.node if self.striped else 1, float("inf")
        for level, tier in enumerate(self.tiers[1:], 1):
            if tier.gb_per_s < least and not (level == 1 and self.striped):
                self.ports.append((level, *self.pair(self.nodes * self.node // unit, unit * tier.gb_per_s)))
            least = min(least, tier.gb_per_s)

    def route(self, src: Ints, dst: Ints) -> Routes:
        """The ways from devices to as many others."""
        return self.ways(src, dst).routes()

    def ways(self, src: Ints, dst: Ints) -> Ways:
        """The same, column by column: enough to count who crosses what."""
        src, dst = np.atleast_1d(np.asarray(src, np.int64)), np.atleast_1d(np.asarray(dst, np.int64))
        away = src // self.node != dst // self.node
        level, latency = np.zeros(len(src), np.int64), np.full(len(src), self.tiers[0].latency_us)
        columns = [self.inner[0] + src, self.inner[1] + dst]
        if not self.striped:
            columns = [_where(~away, link) for link in columns]
        far = np.flatnonzero(away)
        beyond: Columns = []
        if len(far):
            beyond, level[far], latency[far] = self._beyond(src[far], dst[far])
        return Ways(columns, far, beyond, level, latency)

    def _beyond(self, src: Ints, dst: Ints) -> tuple[Columns, Ints, Floats]:
        """What a flow crosses between leaving its node and entering the receiver's."""
        via = self.via(src, dst)
        more, level, latency = self.across(via, dst)
        columns = [self.exits[0] + via // self.node, self.exits[1] + dst // self.node, *more]
        forwarded = None if via is src else via != src
        if forwarded is not None and forwarded.any():
            columns += [_where(forwarded, self.inner[0] + src), _where(forwarded, self.inner[1] + via)]
            latency = latency + np.where(forwarded, self.tiers[0].latency_us, 0.0)
        unit = self.node if self.striped else 1
        for reach, out, into in self.ports:
            columns += [_where(level >= reach, out + via // unit), _where(level >= reach, into + dst // unit)]
        return columns, level, latency

    @abstractmethod
    def lay(self) -> None:
        """Make the links between nodes."""

    def via(self, src: Ints, dst: Ints) -> Ints:
        """The device of the sender's node from which a flow leaves, if it does not stripe."""
        return src

    @abstractmethod
    def across(self, src: Ints, dst: Ints) -> tuple[Columns, Ints, Floats]:
        """(links between two nodes, outermost tier crossed, latency in µs)."""

    def latency(self, level: Ints) -> Floats:
        """Latency of messages whose outermost tier is this: beyond the outermost as in it, and never less than further in."""
        return np.maximum.accumulate([tier.latency_us for tier in self.tiers])[np.minimum(level, self.depth - 1)]


class FatTree(Topology):
    """Switches in a tree whose trunks carry what their oversubscription leaves; all ports of a node on one switch."""

    def lay(self) -> None:
        """A trunk above every switch."""
        self.split = [self._split(level) for level in range(self.depth)]
        self.trunks = [self._trunk(level) for level in range(1, self.depth)]
        for level, links in enumerate(self.trunks, 1):
            for first in links:
                self._weaken(first, self.tiers[level].weak_share)

    def _split(self, level: int) -> int:
        """Switches that an island of a tier consists of."""
        return 1

    def _trunk(self, level: int) -> tuple[int, int]:
        tier, above = self.tiers[level], self.tiers[min(level + 1, self.depth - 1)]
        islands = -(-self.nodes * self.node // tier.devices)
        carried = tier.devices * min(tier.gb_per_s / tier.oversubscription, above.gb_per_s) / self.split[level]
        # A hashed flow enters once for each of its stripes, which carries but a part of it.
        stripes = self.node if self.striped else 1
        cables = tier.uplinks or 1
        return self.pair(islands * self.split[level] * cables, carried / cables * (stripes if tier.uplinks else 1))

    def switch(self, device: Ints, level: int) -> Ints:
        """Number of the switch of a tier above a device."""
        island, split = device // self.tiers[level].devices, self.split[level]
        return island if split == 1 else island * split + device % self.node % split

    def across(self, src: Ints, dst: Ints) -> tuple[Columns, Ints, Floats]:
        """Up to the first switch above both, and down."""
        columns: Columns = []
        reach = np.ones(len(src), np.int64)
        for level, (up, down) in enumerate(self.trunks, 1):
            a, b = self.switch(src, level), self.switch(dst, level)
            apart, cables = a != b, self.tiers[level].uplinks
            reach += apart
            if not apart.any():
                continue
            for stripe in range(self.node if self.striped and cables else 1):
                # Without single cables there is nothing to choose.
                cable = self._cable(_hash(src, dst, stripe, level), a, b, level) if cables else 0
                columns += [_where(apart, link + switch * max(cables, 1) + cable) for link, switch in ((up, a), (down, b))]
        return columns, reach, self.latency(reach)

    def _cable(self, drawn: Ints, a: Ints, b: Ints, level: int) -> Ints:
        """Which cable a flow between two switches takes; a weak one that was taken out leaves its flows to the others."""
        cables = max(self.tiers[level].uplinks, 1)
        cable = drawn % cables
        if not self.fabric.reroute or self.tiers[level].weak_share == 1:
            return cable
        return np.where((cable == 0) & ((a == 0) | (b == 0)), 1 + drawn // cables % (cables - 1), cable)


class RailOptimised(FatTree):
    """Device i of every node on leaf switch i of its island; between rails a flow goes over the tier above."""

    def _split(self, level: int) -> int:
        return self.node if level == 1 and not self.striped else 1


class RailOnly(FatTree):
    """Every rail a tree of its own, and nothing between rails: a flow to another rail first goes to it inside its node."""

    def _split(self, level: int) -> int:
        return self.node if level >= 1 and not self.striped else 1

    def via(self, src: Ints, dst: Ints) -> Ints:
        """The device of the sender's node that is on the receiver's rail."""
        return src if self.striped else src - src % self.node + dst % self.node


class Dragonfly(Topology):
    """Routers (second tier) of a group (third) are all joined, and so are the groups; a flow takes the shortest way.

    Each pair of groups has the same part of what leaves a group; its cables end at routers dealt out in turn.
    """

    def lay(self) -> None:
        """A link between every two routers of a group, and between every two groups."""
        router, group = self.tiers[1], self.tiers[2]
        self.routers = group.devices // router.devices
        self.groups = -(-self.nodes * self.node // group.devices)
        self.local = self.links(self.groups * self.routers**2, group.gb_per_s)
        leaving = group.devices * router.gb_per_s / group.oversubscription
        self.globe = self.links(self.groups**2, leaving / max(self.groups - 1, 1))

    def across(self, src: Ints, dst: Ints) -> tuple[Columns, Ints, Floats]:
        """To the router that leads to the other group, over, and on to the receiver's router."""
        (g, r), (h, s) = (divmod(device // self.tiers[1].devices, self.routers) for device in (src, dst))
        far = g != h
        leave = np.where(far, self._gateway(g, h, r), s)
        enter = np.where(far, self._gateway(h, g, r), s)
        columns = [
            _where(r != leave, self.local + (g * self.routers + r) * self.routers + leave),
            _where(far, self.globe + g * self.groups + h),
            _where(far & (enter != s), self.local + (h * self.routers + enter) * self.routers + s),
        ]
        level = 1 + ((g != h) | (r != s)) + far
        return columns, level, self.latency(level)

    def _gateway(self, group: Ints, other: Ints, turn: Ints) -> Ints:
        """Router of a group with a cable to another group; where there are several, by turns."""
        others = max(self.groups - 1, 1)
        place = (other - group - 1) % max(self.groups, 1)
        low = place * self.routers // others
        many = np.maximum((place + 1) * self.routers // others - low, 1)
        return low + turn % many


class Torus(Topology):
    """Nodes on a grid that closes on itself; a flow goes along one dimension after the other, the shorter way round.

    What a node can send (second tier) is divided among its links, two for each dimension.
    """

    def lay(self) -> None:
        """A link to either side of every node in every dimension."""
        self.sides = self.fabric.torus
        ways = 2 * len(self.sides)
        self.hop = self.links(self.nodes * ways, self.node * self.tiers[1].gb_per_s / max(ways, 1))

    def across(self, src: Ints, dst: Ints) -> tuple[Columns, Ints, Floats]:
        """Hop by hop."""
        at, goal = (list(np.unravel_index(device // self.node, self.sides)) for device in (src, dst))
        columns: Columns = []
        hops = np.zeros(len(src), np.int64)
        for dimension, side in enumerate(self.sides):
            ahead = (goal[dimension] - at[dimension]) % side
            # Half way round both directions are as long: nodes take them in turn.
            back = (2 * ahead > side) | ((2 * ahead == side) & (at[dimension] % 2 == 1))
            left = np.where(back, side - ahead, ahead)
            hops += left
            for step in range(int(left.max(initial=0))):
                node = np.ravel_multi_index(at, self.sides)
                columns.append(_where(step < left, self.hop + (node * len(self.sides) + dimension) * 2 + back))
                at[dimension] = (at[dimension] + np.where(step < left, 1 - 2 * back, 0)) % side
        return columns, np.ones(len(src), np.int64), hops.astype(np.float64) * self.tiers[1].latency_us


TOPOLOGIES: dict[str, type[Topology]] = {
    "fat-tree": FatTree, "rail-optimised": RailOptimised, "rail-only": RailOnly, "dragonfly": Dragonfly, "torus": Torus,
}  # fmt: skip


def lay(fabric: Fabric, devices: int) -> Topology:
    """The links of a fabric with so many devices."""
    return TOPOLOGIES[fabric.topology](fabric, devices)


def _where(there: Mask, link: Ints) -> Ints:
    return np.where(there, link, -1)


def _hash(src: Ints, dst: Ints, stripe: int, level: int) -> Ints:
    """What a switch makes of a flow's addresses: the same every time, and as good as drawn."""
    # Odd constants spread each address over all bits before the finaliser mixes them (as in ECMP hashing).
    x = (src * 0x9E3779B1 + dst * 0x85EBCA77 + stripe * 0xC2B2AE3D + level * 0x27D4EB2F) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
