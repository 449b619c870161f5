"""Topologies: each reproduces a number that is known of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.fabric.flow import rates
from taut.project.fabric.topology import Dragonfly, Topology, Torus, lay
from taut.project.training.scenario import Fabric, Tier


def tree(
    topology: str = "fat-tree", *, node: int = 1, leaf: int = 8, pod: int = 64, nvlink: float = 450.0, **leaves: Any
) -> Fabric:
    """Nodes, leaves, pods of devices that each send 25 GB/s."""
    tiers = (
        Tier("node", node, nvlink, latency_us=1),
        Tier("leaf", leaf, 25.0, latency_us=4, **leaves),
        Tier("pod", pod, 25.0, latency_us=8),
    )
    return Fabric("t", tiers, topology)  # type: ignore[arg-type]


def sent(t: Topology, src: Any, dst: Any) -> Any:
    way = t.route(src, dst)
    return rates(way.start, way.link, t.capacity)


def crossed(t: Topology, src: int, dst: int) -> int:
    return len(t.route(src, dst).link)


@pytest.mark.parametrize("seed", range(3))
def test_a_fat_tree_has_full_bisection_bandwidth(seed: int) -> None:
    # Al-Fares et al. 2008: k = 16 ports, k³/4 = 1024 hosts; any permutation of hosts at the speed of their links.
    t = lay(tree(), 1024)
    to = np.random.default_rng(seed).permutation(1024)
    here = np.flatnonzero(to != np.arange(1024))
    assert sent(t, here, to[here]) == pytest.approx(25.0)
    assert t.route([0, 0, 0], [1, 9, 900]).level.tolist() == [1, 2, 3], "leaf, pod, core"
    assert t.route([0, 0, 0], [1, 9, 900]).latency_us.tolist() == [4, 8, 8]


def test_oversubscription_is_felt_by_what_leaves_the_switch() -> None:
    t = lay(tree(oversubscription=4), 64)
    devices = np.arange(64)
    assert sent(t, devices, devices ^ 1) == pytest.approx(25.0)
    assert sent(t, devices, devices ^ 8) == pytest.approx(25 / 4)
    alone = sent(t, [0], [8])
    assert alone == pytest.approx(25.0), "when nobody else does"


def test_incast_comes_from_the_pattern_alone() -> None:
    assert sent(lay(tree(), 64), np.arange(1, 17), np.zeros(16, int)) == pytest.approx(25 / 16)


def test_hashed_flows_collide_where_spread_ones_do_not() -> None:
    devices = np.arange(64)
    hashed = sent(lay(tree(uplinks=8), 64), devices, (devices + 8) % 64)
    assert hashed.max() == pytest.approx(25.0)
    # Eight flows thrown at eight cables: the fullest usually has two or three.
    assert 25 / 5 < hashed.min() < 25 / 1.5
    assert sent(lay(tree(), 64), devices, (devices + 8) % 64) == pytest.approx(25.0)


def test_a_striped_flow_has_the_ports_of_its_node() -> None:
    apart, striped = (lay(tree(node=8, leaf=64, pod=512, striped=yes), 128) for yes in (False, True))
    assert sent(apart, [0], [8]) == pytest.approx(25.0)
    assert sent(striped, [0], [8]) == pytest.approx(200.0)
    assert sent(striped, np.arange(8), np.arange(8) + 8) == pytest.approx(25.0), "eight at once have one each"
    assert sent(lay(tree(node=8, leaf=64, pod=512, striped=True, nvlink=150.0), 128), [0], [8]) == pytest.approx(150.0)


def test_rail_optimised_keeps_a_rail_on_one_switch() -> None:
    # A scalable unit of 32 nodes has 8 leaves, one for each rail: 1 switch within a rail, 3 between rails.
    t = lay(tree("rail-optimised", node=8, leaf=256, pod=1024, oversubscription=2), 512)
    same, other = t.route([0], [8]), t.route([0], [9])
    assert (same.level[0], other.level[0]) == (1, 2)
    assert len(other.link) - len(same.link) == 2, "up to the spine and down"
    node = np.arange(256) // 8
    rail = np.arange(256) % 8
    along, between = (node + 1) % 32 * 8 + rail, (node + 1) % 32 * 8 + (rail + 1) % 8
    assert sent(t, np.arange(256), along) == pytest.approx(25.0)
    assert sent(t, np.arange(256), between) == pytest.approx(12.5), "the spine is oversubscribed"


def test_rail_only_forwards_inside_the_node() -> None:
    t = lay(tree("rail-only", node=8, leaf=256, pod=1024), 512)
    way = t.route([0], [9])
    assert (way.level[0], way.latency_us[0]) == (1, 5), "one switch after one hop inside the node"
    assert set(way.link) == set(t.route([0], [1]).link) | set(t.route([1], [9]).link)


@pytest.mark.parametrize(("nvlink", "nic", "expected"), [(300.0, 25.0, 0.073), (450.0, 50.0, 0.097)])
def test_rail_only_pays_little_for_an_all_to_all(nvlink: float, nic: float, expected: float) -> None:
    # Wang et al. 2023 (arXiv 2307.12169) report 8.2 % to 11.2 % longer all-to-alls. Here: how long forwarding keeps the ports
    # inside the nodes busy, against the network's ports; seven of eight flows change rails.
    fabric = Fabric("r", (Tier("node", 8, nvlink), Tier("rail", 512, nic)), "rail-only")
    t = lay(fabric, 512)
    src, dst = (a.ravel() for a in np.meshgrid(np.arange(512), np.arange(512)))
    far = src // 8 != dst // 8
    way = t.route(src[far], dst[far])
    busy = np.bincount(way.link, minlength=len(t.capacity)) / t.capacity
    inside, outside = busy[: 2 * 512].max(), busy[2 * 512 :].max()
    assert inside / outside == pytest.approx(expected, abs=0.001)


def dragonfly(p: int, a: int, groups: int) -> Dragonfly:
    """The balanced dragonfly: p devices a router, a = 2p routers a group, all channels alike."""
    tiers = (Tier("node", 1, 100), Tier("router", p, 25), Tier("group", p * a, 25))
    made = lay(Fabric("d", tiers, "dragonfly"), p * a * groups)
    assert isinstance(made, Dragonfly)
    return made


def test_a_dragonfly_of_radix_64_routers_reaches_256k_devices_in_three_hops() -> None:
    # Kim et al. 2008: p = h = 16, a = 32: a·p·(a·h + 1) = 262,656 terminals, at most local, global, local.
    t = dragonfly(16, 32, 32 * 16 + 1)
    assert t.nodes == 262_656
    assert t.capacity[t.globe] == pytest.approx(25.0), "one channel between two groups"
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, t.nodes, (2, 2000))
    between = np.diff(t.route(src, dst).start) - 2 - 2
    assert between[src != dst].max() == 3


def test_a_dragonfly_collapses_when_a_group_sends_to_one_other() -> None:
    # Kim et al. 2008: minimal routing sustains 1/(a·h) of the worst pattern, since one channel carries all of it.
    t = dragonfly(4, 8, 33)
    src = np.arange(33 * 32)
    assert sent(t, src, (src + 32) % len(src)).min() == pytest.approx(25 / 32)


def torus(*sides: int) -> Torus:
    made = lay(Fabric("t", (Tier("chip", 1, 1000), Tier("links", 1, 300, latency_us=1)), "torus", torus=sides), 1)
    assert isinstance(made, Torus)
    return made


def test_a_torus_has_the_bisection_and_the_distances_of_the_textbook() -> None:
    # Dally and Towles: a k-ary n-cube has 4k^(n−1) channels across its middle and n·k/4 hops between two nodes on average.
    k, n = 8, 3
    t = torus(k, k, k)
    node = np.arange(k**n)
    src, dst = (x.ravel() for x in np.meshgrid(node, node))
    way = t.route(src, dst)
    assert way.latency_us.mean() == pytest.approx(n * k / 4)
    half = (src < len(node) // 2) != (dst < len(node) // 2)
    crossing = t.route(src[half], dst[half])
    load = np.bincount(crossing.link, minlength=len(t.capacity))[t.hop :].reshape(k, -1, n, 2)
    middle = load[[k // 2 - 1, k - 1], :, 0, 0].size + load[[k // 2, 0], :, 0, 1].size
    assert middle == 4 * k ** (n - 1)
    assert load[[k // 2 - 1, k - 1], :, 0, 0].sum() + load[[k // 2, 0], :, 0, 1].sum() == half.sum(), "no other way across"
    assert t.capacity[t.hop] == 50.0, "six links of a chip"


def test_neighbours_of_a_torus_have_a_link_of_their_own() -> None:
    t = torus(4, 4)
    nodes = np.arange(16)
    assert sent(t, nodes, nodes // 4 * 4 + (nodes + 1) % 4) == pytest.approx(75.0)


FABRICS = [
    tree(node=4, leaf=16, pod=64),
    tree(node=4, leaf=16, pod=64, striped=True, uplinks=4),
    tree("rail-optimised", node=4, leaf=16, pod=64),
    tree("rail-only", node=4, leaf=16, pod=64),
    Fabric("d", (Tier("n", 2, 300.0), Tier("r", 8, 25.0), Tier("g", 32, 25.0)), "dragonfly"),
    Fabric("t", (Tier("n", 4, 300.0), Tier("l", 128, 25.0)), "torus", torus=(4, 8)),
]


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda f: f.topology)
@given(st.integers(0, 127), st.integers(0, 127))
def test_every_pair_has_a_way_over_links_that_are_there(fabric: Fabric, src: int, dst: int) -> None:
    if src == dst:
        return
    t = lay(fabric, 128)
    way = t.route([src], [dst])
    assert way.link.min() >= 0
    assert way.link.max() < len(t.capacity)
    assert (way.level[0] == 0) == (src // fabric.node == dst // fabric.node)
    assert sent(t, [src], [dst])[0] > 0
    assert crossed(t, src, dst) >= 2


def test_one_tier_joins_everybody() -> None:
    t = lay(Fabric("one", (Tier("switch", 8, 300.0),)), 32)
    assert sent(t, np.arange(32), (np.arange(32) + 1) % 32) == pytest.approx(300.0)
