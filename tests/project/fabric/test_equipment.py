"""What a fabric is built of: the counts of the textbooks, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from taut.project.fabric.equipment import YEAR_S, parts, whole
from taut.project.fabric.groups import Net
from taut.project.training.forecast import forecast
from taut.project.training.scenario import Fabric, Job, Price, Scenario, Tier, parse
from taut.project.training.workload import WORKLOAD
from taut.read.scenario_file import load


def clos(k: int, **topology: Any) -> Fabric:
    """Three tiers of switches of k ports, as in Al-Fares et al. 2008."""
    sizes = (1, k // 2, k * k // 4, k**3 // 4)
    tiers = tuple(Tier(f"tier {i}", size, 12.5, radix=k) for i, size in enumerate(sizes))
    return Fabric("clos", tiers, **topology)


def leaf_spine(devices: int = 4096, spine: dict[str, Any] | None = None, **leaf: Any) -> Fabric:
    """Nodes of 8, leaves of 256 devices and a spine, 2 money and 3 W a port."""
    priced: dict[str, Any] = {"port_price": 2.0, "port_w": 3.0}
    above = priced if spine is None else spine
    tiers = (Tier("node", 8, 400.0), Tier("leaf", 256, 50.0, **{**priced, **leaf}), Tier("spine", devices, 50.0, **above))
    return Fabric("leaf-spine", tiers)


def test_a_fat_tree_has_the_switches_of_the_textbook() -> None:
    built = parts(clos(48), 27_648)
    assert [p.switches for p in built] == [0, 48 * 24, 48 * 24, 24 * 24]
    assert [p.cables for p in built] == [0, 27_648, 27_648, 27_648]
    assert sum(p.spare_ports for p in built) == 0


def test_a_dragonfly_has_the_ports_of_the_textbook() -> None:
    """Kim et al. 2008: 16 devices, 31 routers of the group and 16 other groups on each of the routers, 262,656 devices."""
    tiers = (Tier("device", 1, 12.5), Tier("router", 16, 12.5, radix=64), Tier("group", 512, 12.5))
    built = parts(Fabric("dragonfly", tiers, "dragonfly"), 262_656)
    assert [p.cables for p in built] == [0, 262_656, 513 * 32 * 31 // 2, 513 * 512 // 2]
    assert built[1].switches == 513 * 32
    assert built[1].spare_ports == 513 * 32, "63 of 64 ports are used"


def test_a_torus_has_a_cable_a_dimension_and_node() -> None:
    fabric = Fabric("torus", (Tier("node", 4, 100.0), Tier("link", 4096, 25.0)), "torus", (8, 8, 8))
    assert [p.cables for p in parts(fabric, 2048)] == [2048, 3 * 512]


def test_oversubscription_saves_cables_and_tiers_come_with_the_scale() -> None:
    def cables(devices: int, over: float) -> list[int]:
        return [p.cables for p in parts(leaf_spine(oversubscription=over), devices)]

    assert cables(1024, 1.0) == [1024, 1024, 1024]
    assert cables(1024, 4.0) == [1024, 1024, 256]
    assert cables(256, 1.0) == [256, 256], "one leaf needs no spine"
    assert cables(8, 1.0) == [8], "one node needs no network"
    assert [p.tier for p in parts(leaf_spine(), 8192)] == ["node", "leaf", "spine", "core"]


def test_rails_that_are_not_joined_need_no_spine() -> None:
    tiers = (Tier("node", 8, 400.0), Tier("rail", 512, 50.0, radix=64), Tier("spine", 4096, 50.0, radix=64))
    joined, apart = Fabric("rails", tiers, "rail-optimised"), Fabric("rails", tiers, "rail-only")
    assert parts(apart, 512) == parts(joined, 512), "within one island rails need nothing above them"
    assert [p.switches for p in parts(apart, 512)] == [None, 8], "64 nodes on each of eight switches"
    assert [p.switches for p in parts(joined, 1024)] == [None, 2 * 8 * 2, 16]
    assert [p.switches for p in parts(apart, 1024)] == [None, 2 * 8 * 2, 8 * 2]


def test_a_switch_is_bought_whole() -> None:
    used, bought = (parts(leaf_spine(radix=radix), 264)[1] for radix in (0, 64))
    assert used.price == 2.0 * 2 * 264
    assert bought.switches == 10, "each of two leaves has 132 devices and as many cables above"
    assert bought.price == 2.0 * (2 * 264 + 10 * 64 - 2 * 264)
    assert used.watts == bought.watts == 3.0 * 2 * 264


@pytest.fixture
def gpt() -> Scenario:
    table, text = load("gpt-175b")
    return parse(table, "gpt-175b", text)[0]


def test_a_network_is_paid_off_and_draws_power(gpt: Scenario) -> None:
    bare = forecast(replace(gpt, fabric=leaf_spine(port_price=None, port_w=None, spine={})), count=3).entry()
    assert bare["network_cost_per_unit"] is bare["network_w"] is None
    wired = replace(gpt, fabric=leaf_spine(), price=Price(amortisation_years=5.0, pue=1.5))
    made = forecast(wired, count=3)
    entry = made.entry()
    price, watts = whole(wired)
    assert (price, watts) == (2.0 * 4 * 1536, 3.0 * 4 * 1536)
    seconds = float(made.step_ns.mean()) * 1e-9 / (1536 * 2048 / 1e6) / made.kept
    assert entry["network_w"] == watts
    assert entry["network_cost_per_unit"] == pytest.approx(2.0 * 4 * 1536 * seconds / (5 * YEAR_S))
    without = forecast(replace(wired, fabric=leaf_spine(port_w=0.0)), count=3).entry()
    assert entry["energy_per_unit_j"] - without["energy_per_unit_j"] == pytest.approx(3.0 * 2 * 1536 * 1.5 * seconds)


def test_a_job_pays_for_its_share_of_a_larger_machine(gpt: Scenario) -> None:
    alone = replace(gpt, fabric=leaf_spine())
    shared = replace(alone, fabric=replace(alone.fabric, nodes=384))
    assert whole(shared) == whole(alone)


@pytest.mark.parametrize("members", [2, 64, 1024])
def test_a_collective_waits_for_the_last_of_its_members(members: int) -> None:
    job, calm = Job(members, dp=members), leaf_spine()
    shaky = replace(calm, tiers=tuple(replace(tier, jitter_us=20.0) for tier in calm.tiers))
    late = Net(job, shaky).ns("all-reduce", "dp", 1e8) - Net(job, calm).ns("all-reduce", "dp", 1e8)
    drawn = np.random.default_rng(0).exponential(20e3, (2000, members)).max(axis=1)
    assert late == pytest.approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(2000))


def test_jitter_of_the_network_is_scaled_too(gpt: Scenario) -> None:
    shaky = replace(gpt, fabric=leaf_spine(jitter_us=5.0))
    assert WORKLOAD.scale_jitter(shaky, 3.0).fabric.tiers[1].jitter_us == 15.0
    assert WORKLOAD.scale_jitter(shaky, 0.0).fabric == replace(shaky.fabric, tiers=leaf_spine().tiers)


@pytest.mark.parametrize(("devices", "price", "switches"), [(1_024, 4_349_440, 48), (32_768, 216_678_400, 2_560)])
def test_the_shipped_fabric_costs_what_the_sheet_says(devices: int, price: float, switches: int) -> None:
    """A public cost sheet of H100 clusters (validation/network.py): 8.6 % of all at 1,024 devices, 12.8 % at 32,768."""
    table, text = load("large-training")
    built = parts(parse(table, "large-training", text)[0].fabric, devices)
    assert sum(part.price or 0.0 for part in built) == pytest.approx(price)
    assert sum(part.switches or 0 for part in built) == switches


def test_prices_of_ports_in_another_currency_are_not_added(gpt: Scenario) -> None:
    def price(own: str, ports: str) -> float | None:
        s = replace(gpt, fabric=replace(leaf_spine(), currency=ports), price=Price(currency=own))
        return whole(s)[0]

    assert price("EUR", "USD") is None
    assert price("USD", "USD") == price("EUR", "") == price("", "USD") == 2.0 * 4 * 1536
    alone = forecast(replace(gpt, fabric=replace(leaf_spine(), currency="USD")), count=3).entry()
    assert alone.currency == "USD", "where nothing else has a price, it is that of the ports"


def test_moving_data_takes_the_power_of_ports_and_the_energy_of_bits(gpt: Scenario) -> None:
    bits = tuple(replace(tier, pj_per_bit=10.0) for tier in leaf_spine().tiers)
    made = forecast(replace(gpt, fabric=replace(leaf_spine(), tiers=bits), price=Price(pue=1.5)), count=3)
    found = made.entry()
    seconds = float(made.step_ns.mean()) * 1e-9 / (1536 * 2048 / 1e6) / made.kept
    moved, together = found.movement_energy_per_unit_j, found.network_energy_per_unit_j
    assert moved
    assert together
    assert found.energy_per_unit_j
    assert together == pytest.approx((3.0 * 4 * 1536 * seconds + moved) * 1.5)
    assert found.movement_share == pytest.approx(together / found.energy_per_unit_j)
    unknown = forecast(replace(gpt, fabric=leaf_spine()), count=3).entry()
    assert unknown.movement_share is unknown.network_energy_per_unit_j is None, "no energy of a bit is not none"
