"""What joins the ranks: where each lies, whom it meets on the way, and how long its group's transfers take.

Ranks are numbered with tensor parallelism innermost, then context, data and pipeline parallelism, and placed node by node
in that order. All groups of an axis transfer at once. Of every round that has another pattern (the next in a ring, a
partner at some distance, everybody's k-th neighbour, the next stage) all flows are routed and share the links max-min
fairly; the slowest sets the round. Of an all-to-all nobody waits for a round: all copies are under way at once, those that
stay in the node beside those that leave it, and the link that is busy longest sets the time. What is left of that is one
latency and one rate, which the closed forms take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.project.fabric import topology
from taut.project.fabric.collective_time import ALGORITHMS, last_of, rounds, time_ns
from taut.project.fabric.flow import rates, slowest
from taut.project.training.scenario import Algorithm, Fabric, Job, Protocol, Scenario, Tier, state_shards

# Packed groups repeat: those of so many ranks stand for all, if no group is larger.
SAMPLE = 8192
# Flows that are solved for one pattern: of more rounds than they suffice for, some stand for all …
MOST_FLOWS = 1 << 18
# … but never fewer than these.
FEWEST_ROUNDS = 3
# The same of scattered nodes, where one round with partners elsewhere is as good a draw as the next.
SCATTERED_FLOWS = 1 << 14
Way = Algorithm | Literal["hierarchical"]


@dataclass(frozen=True)
class Pace:
    """What the rounds of a transfer come to, all groups of an axis at it."""

    level: int
    """Outermost tier crossed; one more than there are tiers inside it, if it leaves the outermost."""
    gb_per_s: float
    """Rate at which a member sends: that of the slowest."""
    latency_us: float
    """Of a message, over all of them."""
    slowest: int
    """The round with the lowest rate."""


@dataclass(frozen=True)
class Round:
    """Flows that go at once: devices that send and those that receive, a row for each group."""

    share: float
    """Of the bytes that a member sends."""
    src: Ints
    dst: Ints
    times: int = 1
    """Rounds that it stands for."""


def net_of(s: Scenario) -> Net:
    """The groups of a scenario on its fabric; what a sweep asks for again and again is laid out once."""
    j = s.job
    cut = Job(
        global_batch=j.dp,
        dp=j.dp,
        tp=j.tp,
        cp=j.cp,
        ep=j.ep,
        pp=j.pp,
        shard=j.shard,
        virtual_pp=min(j.virtual_pp, 2),
    )
    return _cached_net(cut, s.fabric)


@lru_cache(maxsize=512)
def _cached_net(job: Job, fabric: Fabric) -> Net:
    net, still = Net(job, fabric), replace(fabric, tiers=tuple(replace(tier, jitter_us=0.0) for tier in fabric.tiers))
    # Jitter changes no route: what is solved for one amount of it is solved for all.
    return net if still == fabric else net.sharing_routes(_cached_net(job, still))


class Net:
    """The groups of a job on a fabric."""

    def __init__(self, job: Job, fabric: Fabric) -> None:
        self.job, self.fabric = job, fabric
        j, node = job, fabric.node
        nodes = max(-(-j.world // node), fabric.nodes)
        self.topology = topology.lay(fabric, nodes * node)
        self.seats = np.arange(nodes)
        if fabric.placement == "scattered":
            self.seats = np.random.default_rng(fabric.placement_seed).permutation(nodes)
        data, shard = j.dp * j.cp, state_shards(j, node)
        self.axes: dict[str, tuple[int, int]] = {
            "tp": (j.tp, 1), "cp": (j.cp, j.tp), "dp": (data, j.tp), "ep": (j.ep, j.tp), "pp": (j.pp, j.tp * data),
            "expert": (data // j.ep, j.tp * j.ep), "shard": (shard, j.tp), "replica": (data // shard, j.tp * shard),
        }  # fmt: skip
        """Of each axis: members of a group, and how far apart their numbers are. Ranks along dp and cp hold the same weights,
        so that gradients are summed over both; those of experts (``expert``) over the ranks that hold the same ones."""
        self._devices: dict[str, Ints] = {}
        self._here: dict[str, int] = {}
        self._paces: dict[tuple[str, str], Pace] = {}
        self._shares: dict[tuple[str, str], Floats] = {}

    def sharing_routes(self, other: Net) -> Net:
        """The same net, which keeps what it solves together with another one, of the same job and links."""
        self._devices, self._here = other._devices, other._here
        self._paces, self._shares = other._paces, other._shares
        return self

    def members(self, axis: str) -> int:
        """Ranks of one group."""
        return int(self.groups(axis).shape[1])

    def groups(self, axis: str) -> Ints:
        """Devices of every group of an axis, a row each, in the order of their ring.

        ``dp/inside`` are the parts of a dp group on one node, ``dp/across`` those that hold the same place on its nodes.
        """
        if axis not in self._devices:
            name, _, part = axis.partition("/")
            self._devices[axis] = self._cut(self.groups(name), name, part) if part else self._placed(name)
        return self._devices[axis]

    def _placed(self, axis: str) -> Ints:
        """Groups on their devices; ranks that fill no group are left out."""
        j, (members, apart) = self.job, self.axes[axis]
        outer = j.world if axis in ("tp", "cp", "pp") else j.dp * j.tp * j.cp
        spans = np.arange(j.world).reshape(-1, outer)[:, : outer // (members * apart) * members * apart]
        rank = spans.reshape(-1, members, apart).swapaxes(1, 2).reshape(-1, members)
        node = self.topology.node
        return self.seats[rank // node] * node + rank % node if self.topology.depth > 1 else rank

    def _cut(self, groups: Ints, axis: str, part: str) -> Ints:
        here, apart = self.members_per_node(axis), self.axes[axis][1]
        cut = groups.reshape(-1, apart, groups.shape[1] // here, here)
        if part == "inside":
            return cut.transpose(0, 2, 1, 3).reshape(-1, here)
        return cut.transpose(0, 3, 1, 2).reshape(-1, groups.shape[1] // here)

    def members_per_node(self, axis: str) -> int:
        """Members of a group on one node, if every node has as many of them, else 1."""
        if axis not in self._here:
            node = self.groups(axis) // self.topology.node
            here = int((node[0] == node[0, 0]).sum())
            cut = node[:, : node.shape[1] // here * here].reshape(len(node), -1, here)
            self._here[axis] = here if node.shape[1] % here == 0 and (cut == cut[:, :, :1]).all() else 1
        return self._here[axis]

    def _apart(self, axis: str) -> int:
        """Groups that lie side by side, member beside member."""
        name, _, part = axis.partition("/")
        return self.axes[name][1] * (self.members_per_node(name) if part == "across" else 1)

    def ns(self, verb: str, axis: str, size: float) -> float:
        """Time of a collective of all groups of an axis at once, each over ``size`` bytes."""
        return self._quickest(verb, axis, size)[0] if self.members(axis) > 1 else 0.0

    def _quickest(self, verb: str, axis: str, size: float) -> tuple[float, str]:
        """(time, algorithm) of the quickest that the tier has."""
        tier, _ = self.rate(axis)
        if tier.protocols:
            usable = [one for one in tier.protocols if _supports(one, verb)]
            return min((self._protocol_ns(verb, axis, size, one), one.algorithm) for one in usable)
        algorithms: tuple[Way, ...] = (*ALGORITHMS, "hierarchical") if tier.algorithm == "best" else (tier.algorithm,)
        return min((self._algorithm_ns(verb, axis, size, one), one) for one in algorithms)

    def bytes_per_tier(self, verb: str, axis: str, size: float) -> Floats:
        """Bytes that a collective of all groups of an axis sends, per tier: the outermost that they cross."""
        if self.members(axis) <= 1:
            return np.zeros(self.topology.depth)
        algorithm, here = self._quickest(verb, axis, size)[1], self.members_per_node(axis)
        if verb in ("send", "all-to-all"):
            algorithm = verb
        elif algorithm == "hierarchical" and 1 < here < self.members(axis):
            halves = ("reduce-scatter", "all-gather") if verb == "all-reduce" else (verb,)
            return self.bytes_per_tier(verb, f"{axis}/across", size / here) + sum(
                self.bytes_per_tier(h, f"{axis}/inside", size) for h in halves
            )
        kind = "ring" if algorithm in ("hierarchical", "in-switch") else algorithm
        # A tree moves what a ring does: a member sends all it has once, most of them to their neighbours.
        counted = "ring" if algorithm in ("hierarchical", "tree") else algorithm
        sent = rounds(verb, counted, self.members(axis), size)[1]
        senders = self.groups(axis).size
        if verb == "send" and self.job.virtual_pp == 1:
            senders -= len(self.groups(axis))
        return self._tier_shares(axis, kind) * senders * sent

    def _tier_shares(self, axis: str, kind: str) -> Floats:
        """Share of the bytes of an algorithm whose outermost tier is each, found once."""
        if (axis, kind) not in self._shares:
            out, whole = np.zeros(self.topology.depth), 0.0
            for k, one in enumerate(self._rounds(axis, kind)):
                share = 0.5 ** (k + 1) if kind == "tree" else one.share
                level = np.minimum(self._ways(one).level, self.topology.depth - 1)
                out += share * np.bincount(level, minlength=self.topology.depth) / len(level)
                whole += share
            self._shares[axis, kind] = out / whole
        return self._shares[axis, kind]

    def _algorithm_ns(self, verb: str, axis: str, size: float, algorithm: Way) -> float:
        if algorithm == "hierarchical" and verb not in ("send", "all-to-all"):
            here = self.members_per_node(axis)
            if 1 < here < self.members(axis):
                return self._hierarchical_ns(verb, axis, size, here)
        name = "ring" if algorithm == "hierarchical" else algorithm
        return self._protocol_ns(verb, axis, size, Protocol(name, name))

    def _protocol_ns(self, verb: str, axis: str, size: float, one: Protocol) -> float:
        pace = self.pace(axis, verb if verb in ("send", "all-to-all") else one.algorithm)
        rate, latency = pace.gb_per_s * one.bandwidth_share, pace.latency_us * one.latency_times
        rate *= 1.0 if verb == "send" else self.scale_share(axis, pace.level)
        took = time_ns(verb, one.algorithm, self.members(axis), size, rate, latency)
        return (one.start_us + self.late_us(verb, axis, pace.level)) * 1e3 + took

    def scale_share(self, axis: str, level: int) -> float:
        """Share of the rate that collectives of a group keep on as many nodes as it lies on."""
        tier = self.fabric.tiers[min(level, self.topology.depth - 1)]
        if not tier.scale_nodes:
            return 1.0
        nodes = self.members(axis) / self.members_per_node(axis)
        return float(np.interp(np.log(nodes), np.log(tier.scale_nodes), tier.scale_shares))

    def late_us(self, verb: str, axis: str, level: int) -> float:
        """How late the last of a group's members is; of a send there is but one."""
        jitter = self.fabric.tiers[min(level, self.topology.depth - 1)].jitter_us
        return jitter * last_of(1 if verb == "send" else self.members(axis)) if jitter else 0.0

    def _hierarchical_ns(self, verb: str, axis: str, size: float, here: int) -> float:
        """Scatter inside the node, go across with a part each, gather inside the node."""
        total = self.ns(verb, f"{axis}/across", size / here)
        for half in ("reduce-scatter", "all-gather") if verb == "all-reduce" else (verb,):
            total += self.ns(half, f"{axis}/inside", size)
        return total

    def rate(self, axis: str) -> tuple[Tier, float]:
        """(outermost tier that a group crosses, GB/s at which a member of a ring sends while all groups do)."""
        if self.members(axis) <= 1:
            return self.fabric.tiers[0], self.fabric.tiers[0].gb_per_s
        pace = self.pace(axis, "send" if axis == "pp" else "ring")
        return self.fabric.tiers[min(pace.level, self.topology.depth - 1)], pace.gb_per_s

    def pace(self, axis: str, kind: str) -> Pace:
        """Rate and latency of an algorithm (or of sends, or of an all-to-all), solved once."""
        kind = "ring" if kind == "in-switch" else kind
        if (axis, kind) not in self._paces:
            inside, island = self._inside(axis), self.fabric.tiers[0]
            # In a node every device has a port of its own: who sends to one and hears from one shares it with nobody.
            self._paces[axis, kind] = Pace(0, island.gb_per_s, island.latency_us, 0) if inside else self._solved(axis, kind)
        return self._paces[axis, kind]

    def _inside(self, axis: str) -> bool:
        """Whether every group of an axis lies on one node."""
        members, apart = self.axes.get(axis, (0, 0))
        return members > 1 and self.topology.depth > 1 and self.topology.node % (members * apart) == 0

    def shared(self, demands: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Rates of several (axis, verb) that go on at the same time, each with its slowest round against the others'."""
        active = [(axis, verb) for axis, verb in demands if self.members(axis) > 1]
        rounds = [self._slowest(axis, self._kind(axis, verb)) for axis, verb in active]
        if not rounds:
            return {}
        src, dst = (np.concatenate([getattr(one, side).ravel() for one in rounds]) for side in ("src", "dst"))
        routes = self.topology.route(src, dst)
        found = rates(routes.start, routes.link, self.topology.capacity)
        parts = np.split(found, np.cumsum([one.src.size for one in rounds])[:-1])
        return {demand: float(part.min()) for demand, part in zip(active, parts, strict=True)}

    def _kind(self, axis: str, verb: str) -> str:
        algorithm = self.rate(axis)[0].algorithm
        return verb if verb in ("send", "all-to-all") else algorithm if algorithm in ALGORITHMS else "ring"

    def _slowest(self, axis: str, kind: str) -> Round:
        at = self.pace(axis, kind).slowest
        return next(one for k, one in enumerate(self._rounds(axis, kind, whole=True)) if k == at)

    def _solved(self, axis: str, kind: str) -> Pace:
        level, rate, latency, shares, times = 0, [], [], [], []
        capacity = self.topology.capacity
        crossed = np.zeros(len(capacity), np.int64)
        for one in self._rounds(axis, kind):
            ways = self._ways(one)
            here = ways.crossings(len(capacity))
            # A chunk goes round a ring and so meets every one of its hops; other rounds wait for their last message.
            took = ways.latency_us.reshape(one.src.shape)
            latency.append(float((took.mean(axis=1) if kind == "ring" else took).max()))
            rate.append(slowest(here, capacity))
            shares.append(one.share)
            times.append(one.times)
            level = max(level, int(ways.level.max()))
            crossed += here
        share = np.array(shares) / sum(shares)
        # A byte from every member in every round keeps a link busy for as many as cross it.
        whole = len(rate) / (crossed / capacity).max() if kind == "all-to-all" else 1 / (share / rate).sum()
        return Pace(level, float(whole), float(np.average(latency, weights=times)), int(np.argmin(rate)))

    def _ways(self, one: Round) -> topology.Ways:
        return self.topology.ways(one.src.ravel(), one.dst.ravel())

    def _rounds(self, axis: str, kind: str, whole: bool = False) -> Iterator[Round]:
        """The patterns of a transfer one after the other."""
        if kind in ("tree", "halving-doubling"):
            yield from self._doubling(axis, kind, whole)
            return
        n = self.members(axis)
        some = self._sampled(axis, n)
        groups = self.groups(axis) if whole else some
        if kind == "ring":
            yield Round(1.0, groups, np.roll(groups, -1, axis=1))
        elif kind == "send":
            wraps = self.job.virtual_pp > 1
            yield Round(1.0, groups if wraps else groups[:, :-1], np.roll(groups, -1, 1) if wraps else groups[:, 1:])
        elif kind == "all-to-all":
            # Rounds of an all-to-all are shifts 1 … n-1; evenly spread ones stand for all.
            many = min(n - 1, max(FEWEST_ROUNDS, MOST_FLOWS // some.size))
            for shift in 1 + (np.arange(many) * 2 + 1) * (n - 1) // (2 * many):
                yield Round(1.0, groups, np.roll(groups, -shift, axis=1))
        else:
            raise ValueError(f"{kind}: no pattern of flows is known for this algorithm")

    def _doubling(self, axis: str, kind: str, whole: bool) -> Iterator[Round]:
        """Partners at distance 1, 2, 4 …: near ones exchange the large halves; in a tree one of them sends all it has."""
        n, apart = self.members(axis), self._apart(axis)
        total, last = (n - 1).bit_length(), (n - 1).bit_length() - 1
        if self._scattered:  # partners on other nodes are as good as drawn: a few such rounds stand for the others
            inside = sum((2 << k) * apart <= self.topology.node for k in range(total))
            last = min(last, inside + max(FEWEST_ROUNDS, SCATTERED_FLOWS // self.groups(axis).size) - 1)
        for k in range(last + 1):
            stands = range(k, total if k == last else k + 1)
            share = sum(1.0 if kind == "tree" else 0.5 ** (i + 1) for i in stands)
            groups = self.groups(axis) if whole else self._sampled(axis, 2 << k)
            place = np.arange(groups.shape[1])
            partner = place ^ (1 << k)
            there = (partner < len(place)) & ((kind != "tree") | (partner < place))
            yield Round(share, groups[:, place[there]], groups[:, partner[there]], len(stands))

    @property
    def _scattered(self) -> bool:
        return self.fabric.placement == "scattered"

    def _sampled(self, axis: str, span: int) -> Ints:
        """Groups, or parts of them that are a multiple of ``span`` members long, that stand for all."""
        groups, apart = self.groups(axis), self._apart(axis)
        if self._scattered and span * apart > self.topology.node:
            return groups
        members = min(groups.shape[1], -(-SAMPLE // (span * apart)) * span)
        bundles = -(-SAMPLE // (members * apart))
        return groups[: bundles * apart, :members]


def _supports(one: Protocol, verb: str) -> bool:
    return one.algorithm != "in-switch" or verb not in ("send", "all-to-all")
