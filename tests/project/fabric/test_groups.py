"""Groups on a fabric: what they share, what placement does to them, and how long their collectives take."""

from __future__ import annotations

import sys
import tomllib
from importlib import resources
from math import log2
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from taut.core.errors import InputRefused
from taut.project.fabric import groups as room
from taut.project.fabric.collective_time import ALGORITHMS, rounds, time_ns
from taut.project.fabric.groups import Net, net_of
from taut.project.training.scenario import Fabric, Job, Protocol, Tier, parse

sys.path.insert(0, str(Path(__file__).parents[3] / "validation"))

import allreduce

NVLINK, NIC = 300.0, 25.0


def net(*tiers: Tier, fabric: dict[str, Any] | None = None, **job: Any) -> Net:
    """A job on nodes of eight devices below leaves of 64, or on the tiers given."""
    known = tiers or (node(), leaf())
    return Net(Job(global_batch=job.get("dp", 1), **job), Fabric("f", known, **(fabric or {})))


def node(**more: Any) -> Tier:
    return Tier("node", 8, NVLINK, latency_us=1, **more)


def leaf(**more: Any) -> Tier:
    return Tier("leaf", **{"devices": 64, "gb_per_s": NIC, "latency_us": 5, "striped": True, **more})


def gb_per_s(n: Net, axis: str) -> float:
    return n.rate(axis)[1]


def test_a_data_parallel_ring_has_as_many_ports_as_members_on_a_node() -> None:
    assert gb_per_s(net(tp=8, dp=32), "dp") == NIC
    assert gb_per_s(net(tp=1, dp=256), "dp") == 8 * NIC
    assert gb_per_s(net(node(), leaf(gb_per_s=100.0), tp=1, dp=256), "dp") == NVLINK
    assert gb_per_s(net(node(), leaf(striped=False), tp=1, dp=256), "dp") == NIC
    assert gb_per_s(net(tp=8, dp=32), "tp") == NVLINK
    assert gb_per_s(net(tp=8, dp=32), "pp") == NVLINK, "alone"


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("dp", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("pp", [1, 4])
def test_packed_on_full_bisection_is_counting(tp: int, dp: int, pp: int) -> None:
    tier, rate = net(tp=tp, dp=dp, pp=pp).rate("dp")
    crosses = tp * dp > 8
    assert rate == (min(NVLINK, NIC * min(dp, 8 // tp)) if crosses else NVLINK)
    assert tier.name == ("leaf" if crosses else "node")


def test_rings_leave_a_node_once() -> None:
    for placement in ("packed", "scattered"):
        n = net(tp=2, dp=64, fabric={"placement": placement})
        nodes = n.groups("dp") // 8
        left = (nodes != np.roll(nodes, -1, axis=1)).sum(axis=1)
        assert (left == [len(set(row)) for row in nodes.tolist()]).all()


def test_groups_hold_every_rank_once() -> None:
    n = net(tp=2, cp=2, dp=12, pp=3, ep=4, shard=6)
    expected = {
        "tp": (2, 72),
        "cp": (2, 72),
        "dp": (24, 6),
        "pp": (3, 48),
        "ep": (4, 36),
        "expert": (6, 24),
        "shard": (6, 24),
        "replica": (4, 36),
    }
    for axis, (members, groups) in expected.items():
        found = n.groups(axis)
        assert found.shape == (groups, members), axis
        assert sorted(found.ravel().tolist()) == list(range(144)), axis
    assert n.groups("dp")[0].tolist() == list(range(0, 48, 2)), "context-parallel ranks hold the same weights"


def test_scattered_nodes_meet_on_oversubscribed_trunks() -> None:
    def rate(placement: str, oversubscription: float, seed: int = 0, dp: int = 128) -> float:
        where = {"placement": placement, "placement_seed": seed}
        return gb_per_s(net(node(), leaf(oversubscription=oversubscription), tp=8, dp=dp, fabric=where), "dp")

    assert rate("packed", 1) == rate("scattered", 1) == NIC, "full bisection bandwidth forgives any placement"
    assert rate("packed", 4) == NIC, "one ring in eight nodes leaves a packed leaf, on a quarter of its ports"
    assert NIC / 4 <= rate("scattered", 4) < NIC / 2
    assert rate("scattered", 4, 1) == rate("scattered", 4, 1)
    assert len({rate("scattered", 4, seed, dp=16) for seed in range(6)}) > 1, "a matter of luck"


def test_nodes_drawn_from_a_larger_machine_lie_on_more_leaves() -> None:
    n = net(tp=8, dp=16, fabric={"placement": "scattered", "nodes": 512})
    assert n.groups("dp").max() >= 16 * 8
    assert len(set((n.groups("dp") // 64).ravel().tolist())) > 8


def test_ring_takes_its_hops_one_after_the_other() -> None:
    n = net(tp=1, dp=64)
    # 8 of 64 hops leave a node.
    latency = (56 * 1 + 8 * 5) / 64
    assert n.ns("all-reduce", "dp", 1e6) == pytest.approx(time_ns("all-reduce", "ring", 64, 1e6, 8 * NIC, latency))


def test_halving_doubling_adds_up_its_rounds() -> None:
    n = net(node(), leaf(algorithm="halving-doubling", oversubscription=2), tp=1, dp=128)
    # Three rounds inside the node, three below a leaf (all eight members at once: one port each), one above it.
    size = 1e9
    by_hand = sum(
        2 * (a * 1e3 + size / 2 ** (k + 1) / rate)
        for k, (a, rate) in enumerate([(1, NVLINK)] * 3 + [(5, NIC)] * 3 + [(5, NIC / 2)])
    )
    assert n.ns("all-reduce", "dp", size) == pytest.approx(by_hand)


def test_equal_rates_give_the_closed_form() -> None:
    n = net(Tier("switch", 64, 100.0, latency_us=2, algorithm="halving-doubling"), dp=64)
    assert n.ns("all-reduce", "dp", 1e8) == pytest.approx(2 * log2(64) * 2e3 + 2 * 63 / 64 * 1e8 / 100)
    tree = net(Tier("switch", 64, 100.0, latency_us=2, algorithm="tree"), dp=64)
    assert tree.ns("all-reduce", "dp", 1e8) == pytest.approx(time_ns("all-reduce", "tree", 64, 1e8, 100.0, 2))


def test_hierarchical_goes_inside_across_inside() -> None:
    n = net(node(), leaf(algorithm="hierarchical"), tp=2, dp=64)
    size, here = 1e9, 4
    halves = sum(time_ns(v, "ring", here, size, NVLINK, 1) for v in ("reduce-scatter", "all-gather"))
    across = time_ns("all-reduce", "ring", 16, size / here, NIC, 5)
    assert n.ns("all-reduce", "dp", size) == pytest.approx(halves + across)
    assert n.ns("all-gather", "dp", size) == pytest.approx(
        time_ns("all-gather", "ring", here, size, NVLINK, 1) + time_ns("all-gather", "ring", 16, size / here, NIC, 5)
    )
    one_each = net(node(), leaf(algorithm="hierarchical"), tp=8, dp=16)
    assert one_each.ns("all-reduce", "dp", size) == pytest.approx(time_ns("all-reduce", "ring", 16, size, NIC, 5))


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_best_is_the_quickest_for_the_size(size: float) -> None:
    each = {name: net(node(), leaf(algorithm=name), tp=1, dp=256).ns("all-reduce", "dp", size) for name in ALGORITHMS}
    net_of_best = net(node(), leaf(algorithm="best"), tp=1, dp=256)
    # Of a hierarchy too, the quickest goes across.
    across = net_of_best.ns("all-reduce", "dp/across", size / 8)
    hierarchical = sum((net_of_best.ns(half, "dp/inside", size) for half in ("reduce-scatter", "all-gather")), across)
    best = net_of_best.ns("all-reduce", "dp", size)
    assert best == min(*each.values(), hierarchical)
    assert each["ring"] > best or size == 1e9


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "hierarchical"])
def test_bytes_are_those_of_the_algorithm(algorithm: str) -> None:
    n, size = net(node(), leaf(algorithm=algorithm), tp=8, dp=64), 1e9
    counted = "ring" if algorithm in ("hierarchical", "tree") else algorithm
    sent = rounds("all-reduce", counted, 64, size)[1]
    assert n.bytes_per_tier("all-reduce", "dp", size).tolist() == pytest.approx([0.0, 8 * 64 * sent])


def test_an_all_to_all_pays_for_every_neighbour_beyond_the_node() -> None:
    inside, beyond = net(tp=1, dp=64, ep=8), net(tp=1, dp=64, ep=16)
    assert inside.ns("all-to-all", "ep", 1e8) == pytest.approx(time_ns("all-to-all", "ring", 8, 1e8, NVLINK, 1))
    # By its k-th neighbour a member of the 16 sends past the node in the rounds that at least one of 8 does: all of them;
    # min(k, 16 - k) of a node's 8 flows share its ports.
    per_byte = np.mean([1 / min(NVLINK, 8 * NIC / min(k, 16 - k)) for k in range(1, 16)])
    assert beyond.pace("ep", "all-to-all").gb_per_s == pytest.approx(1 / per_byte)


@pytest.mark.parametrize("nodes", [2, 8])
@pytest.mark.parametrize("inner", [100.0, 20.0])
def test_copies_of_an_all_to_all_that_stay_in_the_node_go_beside_the_others(nodes: int, inner: float) -> None:
    n, size = 8 * nodes, 1e8
    two = net(Tier("node", 8, inner), Tier("leaf", 4096, NIC), tp=1, dp=n, ep=n)
    gate = min(inner, NIC)
    inside, across = 7 / n * size / inner, (n - 8) / n * size / gate
    assert two.ns("all-to-all", "ep", size) == pytest.approx(max(inside, across))


def test_stages_send_at_once() -> None:
    n = net(node(), leaf(oversubscription=4), tp=8, dp=8, pp=4)
    assert gb_per_s(n, "pp") == NIC / 4, "a stage fills a leaf, and all of it goes to the next leaf"
    assert n.ns("send", "pp", 1e8) == pytest.approx(5e3 + 1e8 / (NIC / 4))
    assert net(tp=8, dp=8, pp=1).ns("send", "pp", 1e8) == 0.0


def test_what_goes_on_at_the_same_time_shares() -> None:
    n = net(tp=8, dp=8, pp=4)
    assert n.shared([("dp", "all-reduce")]) == {("dp", "all-reduce"): NIC}
    both = n.shared([("dp", "all-reduce"), ("pp", "send"), ("cp", "all-gather")])
    assert both == {("dp", "all-reduce"): NIC / 2, ("pp", "send"): NIC / 2}, "a group of one sends nothing"
    tp = n.shared([("tp", "all-reduce"), ("dp", "all-reduce")])
    assert tp[("tp", "all-reduce")] == NVLINK - NIC, "striped flows pass through the node's switch"
    assert n.shared([]) == {}


@pytest.mark.parametrize("kind", [*ALGORITHMS, "all-to-all", "send"])
def test_the_groups_of_some_ranks_stand_for_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    axis = {"all-to-all": "ep", "send": "pp"}.get(kind, "dp")
    job = {"tp": 4, "dp": 256, "pp": 4, "ep": 8}
    tiers = (node(), leaf(oversubscription=2), Tier("pod", 512, NIC, latency_us=8, oversubscription=4))
    monkeypatch.setattr(room, "SAMPLE", 128)
    some = net(*tiers, **job).pace(axis, kind)
    monkeypatch.setattr(room, "SAMPLE", 1 << 30)
    everyone = net(*tiers, **job).pace(axis, kind)
    assert (some.gb_per_s, some.latency_us, some.level) == pytest.approx(
        (everyone.gb_per_s, everyone.latency_us, everyone.level)
    )


def test_some_rounds_stand_for_all_of_a_scattered_job(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers, where = (node(), leaf(oversubscription=4)), {"placement": "scattered"}
    every = {kind: net(*tiers, tp=1, dp=1024, fabric=where).pace("dp", kind) for kind in ("tree", "all-to-all")}
    monkeypatch.setattr(room, "MOST_FLOWS", 1)
    for kind, whole in every.items():
        some = net(*tiers, tp=1, dp=1024, fabric=where).pace("dp", kind)
        assert some.gb_per_s == pytest.approx(whole.gb_per_s, rel=0.15)
        assert some.latency_us == pytest.approx(whole.latency_us, rel=0.05)


def test_protocols_are_taken_by_size() -> None:
    low = Protocol("low", start_us=2, bandwidth_share=0.25)
    high = Protocol("high", start_us=10, latency_times=3)
    switch = Protocol("switch", "in-switch", start_us=20, bandwidth_share=0.9)
    n = net(node(protocols=(low, high, switch)), tp=8, dp=1)

    def sizes(verb: str) -> list[float]:
        return [n.ns(verb, "tp", size) for size in (8.0, 1e8)]

    assert sizes("all-reduce") == [
        pytest.approx(2e3 + 14e3 + 2 * 7 / 8 * 8 / (NVLINK / 4)),
        pytest.approx(20e3 + 2e3 + 9 / 8 * 1e8 / (0.9 * NVLINK)),
    ]
    assert sizes("all-to-all")[1] == pytest.approx(10e3 + 7 * 3e3 + 7 / 8 * 1e8 / NVLINK), "no switch adds up an all-to-all"


SCENARIO = """\
model = {layers = 8, hidden = 64, heads = 8, sequence = 64, experts = 8, experts_per_token = 1}
job = {global_batch = 64, dp = 64}
device = {name = "d", peak_tflops = 300, memory_gb = 80, memory_gb_per_s = 2000}
[fabric]
name = "f"
topology = "fat-tree"
[[fabric.tiers]]
name = "node"
devices = 8
gb_per_s = 300
[[fabric.tiers]]
name = "leaf"
devices = 32
gb_per_s = 25
protocols = [{name = "only"}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dp = 64}", "dp = 2, ep = 4}", "job.ep: experts over 4 ranks, and dp × cp = 2 is no multiple of it"),
        ("devices = 32", "devices = 12", "the devices of a tier are no multiple of those of the tier inside it"),
        ('"fat-tree"', '"dragonfly"', "a dragonfly has nodes, routers and groups"),
        ('"fat-tree"', '"torus"\ntorus = [2, 2]', "s.toml:7: fabric.torus: a torus of 4 nodes for 8"),
        ('"fat-tree"', '"ring"', "fabric.topology: invalid enum value 'ring'"),
        (
            'name = "only"',
            'name = "only", speed = 1',
            "no such key: fabric.tiers[1].protocols[0].speed; known here: name, algo",
        ),
    ],
)
def test_a_fabric_that_cannot_be_is_refused(old: str, new: str, message: str) -> None:
    scenario, defaults = parse(tomllib.loads(SCENARIO), "s.toml", SCENARIO)
    assert net_of(scenario).ns("all-reduce", "dp", 1e6) > 0
    assert "fabric.tiers[1].protocols[0].start_us" in defaults
    text = SCENARIO.replace(old, new)
    with pytest.raises(InputRefused) as caught:
        parse(tomllib.loads(text), "s.toml", text)
    assert message in str(caught.value)


def test_shipped_fabrics_are_fabrics() -> None:
    folder = resources.files("taut") / "scenarios" / "fabrics"
    found = {f.name: msgspec.convert(tomllib.loads(f.read_text("utf-8")), Fabric) for f in folder.iterdir()}
    assert {"h100-ndr.toml", "dgx-a100-hdr.toml"} <= set(found)
    for name, fabric in found.items():
        assert f"{fabric.name}.toml" == name
        assert net(*fabric.tiers, tp=8, dp=64).ns("all-reduce", "dp", 1e9) > 0


def test_an_all_reduce_on_eight_h100_takes_what_was_measured(shared: Path) -> None:
    off = [abs(difference) for *_, difference, fitted in allreduce.rows(shared.parent / "validation") if not fitted]
    assert np.mean(off) < 0.05
    assert max(off) < 0.10


@pytest.mark.parametrize("job", [{"tp": 8, "dp": 16}, {"tp": 4, "dp": 32, "pp": 2}, {"tp": 2, "cp": 4, "dp": 8}, {"dp": 8}])
def test_rings_inside_a_node_need_no_flows(job: dict[str, int]) -> None:
    here = net(**job)
    for axis, (members, _) in here.axes.items():
        if members > 1:
            assert here.pace(axis, "ring") == here._solved(axis, "ring"), axis
