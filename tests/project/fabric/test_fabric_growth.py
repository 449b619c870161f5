"""Money questions of a fabric: rows whose figures follow from what is written down elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from taut.project.fabric import fabric_growth as growth
from taut.project.fabric.traffic import traffic
from taut.project.training.forecast import forecast
from taut.project.training.scenario import Device, Fabric, Job, Model, Noise, Scenario, Tier
from taut.project.training.step_time import step_ns


def scenario(latency_us: float = 5.0, tiers: int = 4, **job: Any) -> Scenario:
    """A small transformer with a replica in every node of eight, ports of 1,000 and 10 W."""
    port: dict[str, Any] = {"port_price": 1000.0, "port_w": 10.0, "latency_us": latency_us}
    fabric = (
        Tier("node", 8, 400.0, latency_us / 5, pj_per_bit=1.0), Tier("leaf", 256, 50.0, pj_per_bit=20.0, **port),
        Tier("spine", 4096, 50.0, **port), Tier("core", 65_536, 50.0, **port),
    )  # fmt: skip
    cut = {"global_batch": 4 * job.get("dp", 32), "dp": 32, "tp": 8, **job}
    return Scenario(
        Model(layers=8, hidden=4096, heads=32, sequence=2048), Job(**cut),
        Device("device", 312, 80, 2039, price_per_hour=2.0), Fabric("fabric", fabric[:tiers]), noise=Noise(distribution="none"),
    )  # fmt: skip


def test_a_fabric_is_chosen_by_what_a_unit_costs_on_it() -> None:
    s = scenario(dp=128)
    rows = growth.choices(s, ["fat-tree", "rail-only", "dragonfly", "torus"], [1.0, 8.0], [1.0, 10.0])
    assert [row["cost_per_unit"] for row in rows] == sorted(row["cost_per_unit"] for row in rows)
    assert {(row["topology"], row["oversubscription"]) for row in rows if row["topology"] == "torus"} == {("torus", 1.0)}
    found = {(row["topology"], row["oversubscription"], row["latency_times"]): row for row in rows}
    plain, thin, slow = (found["fat-tree", *key] for key in ((1.0, 1.0), (8.0, 1.0), (1.0, 10.0)))
    assert thin["network_price"] == 1000.0 * 2 * (1024 + 1024 / 8)
    assert plain["network_price"] == 1000.0 * 2 * (1024 + 1024)
    assert slow["step_ns"] > plain["step_ns"]
    inside = replace(s.job, dp=1, global_batch=4)
    near = [row["step_ns"] for row in growth.choices(replace(s, job=inside), ["fat-tree"], latency_times=[1.0, 10.0])]
    assert near[0] == near[1], "latency inside a node is not the network's"
    assert thin["step_ns"] >= plain["step_ns"]
    assert plain["cost_per_unit"] == pytest.approx(plain["device_cost_per_unit"] + plain["network_cost_per_unit"])
    assert plain["device_cost_per_unit"] == pytest.approx(2.0 * 1024 / 3600 * plain["step_ns"] * 1e-9 / (512 * 2048 / 1e6))


def test_what_is_not_priced_is_ranked_by_its_step_and_too_few_tiers_are_left_out() -> None:
    s = replace(scenario(tiers=2), device=Device("device", 312, 80, 2039))
    rows = growth.choices(s, ["fat-tree", "dragonfly", "torus"], latency_times=[3.0, 1.0])
    assert {row["topology"] for row in rows} == {"fat-tree", "torus"}
    assert [row["step_ns"] for row in rows] == sorted(row["step_ns"] for row in rows)
    assert {row["cost_per_unit"] for row in rows} == {None}


@pytest.mark.parametrize(("nodes", "sides"), [(512, (8, 8, 8)), (192, (4, 6, 8)), (7, (1, 1, 7)), (1, (1, 1, 1))])
def test_a_torus_is_as_near_to_a_cube_as_it_can_be(nodes: int, sides: tuple[int, ...]) -> None:
    made = growth.shaped(scenario().fabric, "torus", nodes)
    assert made is not None
    assert tuple(sorted(made.torus)) == sides


def test_growing_needs_a_tier_more_at_some_size_and_pays_for_it_there() -> None:
    rows = growth.growth(scenario(), [256, 512, 4096, 8192])
    assert [row["new_tiers"] for row in rows] == [["node", "leaf"], ["spine"], [], ["core"]]
    assert [row["network_price"] / row["ranks"] for row in rows] == [2000.0, 4000.0, 4000.0, 6000.0]
    assert [row["added_price"] for row in rows] == [512e3, 2048e3 - 512e3, 16384e3 - 2048e3, 49152e3 - 16384e3]
    assert all(row["scaling"] <= 1 for row in rows[1:])
    assert all(row["in_range"] for row in rows)


def test_bytes_are_those_of_the_collectives_at_the_tier_they_reach() -> None:
    s = scenario(dp=64, pp=2)
    rows = {(row["kind"], row["tier"]): row for row in traffic(s)}
    ranks, activation = 1024, 2 * 2048 * 4096
    tensor = rows["tensor parallel", "node"]
    assert tensor["bytes_per_step"] == pytest.approx(ranks * 2 * 2 * 7 / 8 * activation * 4 * 4 * 2)
    assert tensor["joules_per_step"] == pytest.approx(tensor["bytes_per_step"] * 8e-12)
    assert rows["pipeline hops", "spine"]["bytes_per_step"] == pytest.approx(64 * 8 * 2 * 4 * activation / 8)
    assert rows["pipeline hops", "spine"]["joules_per_step"] is None, "the spine does not say what a bit takes"
    data = {tier: rows["data parallel", tier]["bytes_per_step"] for tier in ("leaf", "spine")}
    assert data["leaf"] / data["spine"] == pytest.approx(31), "of 32 nodes of a leaf one sends to the next leaf"


def test_a_forecast_has_the_energy_of_its_bytes_where_every_tier_says_it() -> None:
    s = scenario(dp=16)
    entry = forecast(s, count=3).entry()
    units = 4 * 16 * 2048 / 1e6
    assert entry["movement_energy_per_unit_j"] == pytest.approx(sum(row["joules_per_step"] for row in traffic(s)) / units)
    assert forecast(scenario(dp=64), count=3).entry()["movement_energy_per_unit_j"] is None


def test_scattered_ranks_move_the_same_bytes_further() -> None:
    near = scenario(dp=128)
    far = replace(near, fabric=replace(near.fabric, placement="scattered"))
    total, spine = ([sum(r["bytes_per_step"] for r in traffic(s) if r["tier"] in tiers) for s in (near, far)]
                    for tiers in (("node", "leaf", "spine"), ("spine",)))  # fmt: skip
    assert total[0] == pytest.approx(total[1])
    assert spine[1] > 10 * spine[0]


@pytest.mark.parametrize("times", [2.0, 4.0])
def test_without_latency_the_network_must_be_as_many_times_as_fast_as_the_devices(times: float) -> None:
    (row,) = growth.bandwidth_needed(scenario(latency_us=0.0), [256], [times])
    assert row["exposed_on_todays_network"] > row["exposed_today"] > 0
    assert row["bandwidth_times"] == pytest.approx(times, rel=2e-3)
    assert row["gb_per_s_per_tflops"] == pytest.approx(row["gb_per_s_per_tflops_today"], rel=2e-3)


def test_latency_makes_the_gap_wider_until_no_bandwidth_closes_it() -> None:
    few, many = growth.bandwidth_needed(scenario(latency_us=1.0), [64, 2048], [2.0])
    assert few["bandwidth_times"] > 2.0
    assert many["bandwidth_times"] is None or many["bandwidth_times"] > few["bandwidth_times"]
    assert growth.exposed(scenario(dp=1, tp=1, global_batch=4)) == 0.0


def test_a_device_twice_as_fast_halves_what_is_computed() -> None:
    s = scenario(dp=1, tp=1, global_batch=4)
    assert step_ns(replace(s, device=growth.faster(s.device, 2.0))) == pytest.approx(step_ns(s) / 2)
