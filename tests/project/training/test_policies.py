"""Policies: every key of the table does something, every name applies, and what has a closed form gives it."""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import Any

import numpy as np
import pytest
from msgspec.structs import fields, replace

from grids import harmonic, many_steps, one_op
from taut.core.errors import InputRefused, UsageError
from taut.project.fabric.groups import Net
from taut.project.noise import table
from taut.project.requests.fan_out import fan_out, hedged
from taut.project.training import policy_effects as effects
from taut.project.training.checkpoints import best_s, expected_s, mtbf_s
from taut.project.training.forecast import at, forecast
from taut.project.training.gates import Gate, barrier, fastest, first_of, free, hierarchical, ring, stale
from taut.project.training.grid import Delays, Grid, Sync, steps
from taut.project.training.policies import POLICIES
from taut.project.training.scenario import Fabric, Job, Noise, Policies, Scenario, Tier, parse
from taut.project.training.step_plan import plan
from taut.project.training.workload import WORKLOAD
from taut.read.scenario_file import load

EXPONENTIAL = Noise(distribution="exponential", spread=1.0)


@pytest.fixture(scope="module")
def gpt() -> Scenario:
    found, text = load("gpt-175b")
    s = parse(found, "gpt-175b", text)[0]
    return replace(s, noise=replace(s.noise, step_spread=0.03, slow_share=0.002, slow_factor=1.2))


def mean(grid: Grid, gate: Gate = barrier, count: int = 3000, every: int = 1) -> Any:
    """Mean time of a step, with four standard errors."""
    took = many_steps(grid, count, Sync(gate=gate, every=every))
    error = 4 * float(took.reshape(-1, every).sum(axis=1).std()) / every / sqrt(count / every)
    return pytest.approx(float(took.mean()), abs=error)


def test_every_name_applies_and_says_what_it_does(gpt: Scenario) -> None:
    plain = forecast(gpt, count=8).entry()
    for name, policy in WORKLOAD.policies.items():
        assert name == policy.name
        assert policy.says
        changed = policy.apply(gpt, None)
        entry = forecast(changed, count=8).entry()
        assert entry["tokens_per_s"] > 0.4 * plain["tokens_per_s"], name


TRIED: list[dict[str, Any]] = [
        {"gate": "fastest", "backup_replicas": 2}, {"gate": "ring", "slack": 1}, {"gate": "ring", "slack": 2},
        {"gate": "stale", "slack": 1}, {"gate": "hierarchical", "slack": 1, "group_replicas": 4},
        {"gate": "hierarchical", "slack": 2, "group_replicas": 2}, {"gate": "none"}, {"clones": 2}, {"copy_after": 0.9},
        {"compression_ratio": 2.0}, {"compression_ratio": 2.0, "compression_passes": 8.0}, {"priority": True},
        {"deal_by_speed": True}, {"power_cap_share": 0.7}, {"power_floor_share": 0.6},
]  # fmt: skip


@pytest.mark.parametrize("keys", TRIED, ids=str)
def test_every_key_does_something(gpt: Scenario, keys: dict[str, Any]) -> None:
    base = replace(gpt, job=replace(gpt.job, overlap_share=0.5))
    entries = [forecast(s, count=20).entry() for s in (base, replace(base, policy=Policies(**keys)))]
    assert any(entries[0][name] != entries[1][name] for name in ("tokens_per_s", "extra_work_share", "power_swing_w"))


def test_every_key_is_tried() -> None:
    tried = {key for keys in TRIED for key in keys}
    assert tried == {field.name for field in fields(Policies)}, "give TRIED a row for the new key"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("backup_replicas = 1", r"policy\.backup_replicas: go with the gate of the fastest"),
        ('gate = "fastest"\nbackup_replicas = 16', "16 of 16 replicas"),
        ("slack = 2", "does nothing at a gate 'barrier'"),
        ('gate = "ring"', "a gate 'ring' needs 1 or more"),
        ('gate = "hierarchical"\nslack = 1\ngroup_replicas = 3', "16 replicas cannot meet in groups of 3"),
        ("clones = 3", "16 replicas cannot be divided into groups of 3 clones"),
        ("priority = true", "nothing overlaps"),
        ("power_cap_share = 0.1", "leaves a device"),
        ("power_cap_share = 0.5\npower_floor_share = 0.6", "lies above the cap"),
        ("copy_after = 1.0", "copy_after"),
        ("spares = 1", "no such key: policy.spares"),
    ],
)
def test_what_cannot_be_or_would_do_nothing_is_refused(policy: str, message: str) -> None:
    import tomllib

    found, text = load("gpt-175b")
    with pytest.raises(InputRefused, match=message):
        parse({**found, "policy": tomllib.loads(policy)}, "gpt-175b", f"{text}\n[policy]\n{policy}\n")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("packed", 1.0, "policy packed=1: it takes no value"),
        ("clones", 1.5, r"policy clones=1\.5: give a whole number from 2 to 100000"),
        ("local-steps", 1e5, r"policy local-steps=100000: give a whole number from 1 to 1000"),
        ("semi-synchronous", 1e9, r"policy semi-synchronous=1e\+09: give a whole number from 1 to 1000"),
        ("overlap", 2.0, "policy overlap=2: give a number from 0 to 1"),
        ("backup-workers", 16.0, "policy backup-workers: policy.backup_replicas: 16 of 16 replicas; wait for at least one"),
    ],
)
def test_values_that_a_policy_cannot_take_are_refused(gpt: Scenario, name: str, value: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        POLICIES[name].apply(gpt, value)


def test_scales_at_which_a_gate_cannot_be_are_refused(gpt: Scenario) -> None:
    grouped = POLICIES["hierarchical-barrier"].apply(gpt, 4)
    assert at(grouped, 8 * 96).policy.group_replicas == 4
    with pytest.raises(UsageError, match=r"576 ranks: policy\.group_replicas: 6 replicas cannot meet in groups of 4"):
        at(grouped, 6 * 96)
    with pytest.raises(UsageError, match=r"96 ranks: policy\.backup_replicas: 1 of 1 replicas"):
        at(POLICIES["backup-workers"].apply(gpt, 1), 96)


def test_one_gate_takes_the_place_of_another(gpt: Scenario) -> None:
    s = POLICIES["ring"].apply(POLICIES["backup-workers"].apply(gpt, 3), 2)
    assert (s.policy.gate, s.policy.backup_replicas, s.policy.slack) == ("ring", 0, 2)


def test_what_is_dropped_or_done_twice_does_not_count(gpt: Scenario) -> None:
    both = POLICIES["backup-workers"].apply(POLICIES["clones"].apply(gpt, 2), 2)
    assert effects.batch_share(both) == pytest.approx(6 / 16)
    made = forecast(both, count=10)
    tokens = gpt.job.global_batch * gpt.model.sequence * 6 / 16 / (made.step_ns.mean() * 1e-9) * made.kept
    assert made.entry()["tokens_per_s"] == pytest.approx(tokens)


def test_spares_and_copies_are_paid_for(gpt: Scenario) -> None:
    priced = replace(gpt, device=replace(gpt.device, price_per_hour=2.0))
    plain, spare, copied = (
        forecast(s, count=10).entry()
        for s in (priced, POLICIES["spares"].apply(priced, 104), POLICIES["speculative"].apply(priced, 0.5))
    )
    assert spare["cost_per_unit"] * spare["tokens_per_s"] == pytest.approx(
        plain["cost_per_unit"] * plain["tokens_per_s"] * (192 + 104) / (192 + 10)
    )
    assert copied["extra_work_share"] > 0
    assert copied["cost_per_unit"] * copied["tokens_per_s"] > plain["cost_per_unit"] * plain["tokens_per_s"]


def test_gates_that_are_the_same_open_alike() -> None:
    grid = one_op(Noise(distribution="lognormal", spread=0.2), 12)
    for same in ((hierarchical(1, 2), stale(2)), (hierarchical(12, 3), barrier), (first_of(1, ring(2)), ring(2))):
        assert (steps(grid, 50, 3, sync=Sync(gate=same[0])) == steps(grid, 50, 3, sync=Sync(gate=same[1]))).all()


def test_looser_gates_wait_less() -> None:
    grid = one_op(Noise(distribution="lognormal", spread=0.2), 16)
    gates = (free, stale(4), hierarchical(4, 4), hierarchical(4, 1), barrier)
    means = [float(steps(grid, 2000, 3, sync=Sync(gate=gate)).mean()) for gate in gates]
    assert means == sorted(means)


def test_nobody_waits_in_an_asynchronous_job() -> None:
    assert mean(one_op(EXPONENTIAL, 32), free, 500) == 1.0


@pytest.mark.parametrize(("ranks", "dropped"), [(16, 1), (16, 4), (64, 3)])
def test_backup_workers_are_an_order_statistic(ranks: int, dropped: int) -> None:
    assert mean(one_op(EXPONENTIAL, ranks), fastest(ranks - dropped)) == harmonic(ranks) - harmonic(dropped)


@pytest.mark.parametrize(("ranks", "clones"), [(16, 2), (48, 3)])
def test_the_first_of_several_clones_is_as_much_sooner(ranks: int, clones: int) -> None:
    assert mean(one_op(EXPONENTIAL, ranks), first_of(clones, barrier)) == harmonic(ranks // clones) / clones


@pytest.mark.parametrize("late", [0.2, 1.0, 3.0])
def test_a_late_op_begun_again_takes_the_sooner_of_two(late: float) -> None:
    """One rank: 1 − e⁻ᵈ ÷ 2; many: the slowest of as many hedged draws."""
    assert mean(one_op(EXPONENTIAL, 1, late=late), count=20_000) == 1 - exp(-late) / 2
    slowest = fan_out(hedged(table(EXPONENTIAL), late)[0], 32)
    drawn = np.random.default_rng(1).logistic(size=200_000)
    from taut.project.noise import GRID

    assert mean(one_op(EXPONENTIAL, 32, late=late)) == float(np.interp(drawn, GRID, slowest).mean())


def test_copies_are_counted() -> None:
    """Of exponential work that is late at 1, the copy and the rest of it race: half of the rest, and e⁻¹ of the ops."""
    grid = one_op(EXPONENTIAL, 20_000, late=1.0)
    made = grid.simulate(np.zeros(20_000), 0, 3, Delays(np.ones((20_000, 1))))
    assert made.copied.mean() == pytest.approx(exp(-1) / 2, abs=4 * made.copied.std() / sqrt(20_000))


@pytest.mark.parametrize("every", [4, 16])
def test_local_steps_divide_gaussian_jitter_by_their_root(every: int) -> None:
    noise = Noise(distribution="gaussian", spread=0.05)
    assert mean(one_op(noise, 64), every=every, count=3200) == 1 + 0.05 * 2.3437 / sqrt(every)


def test_work_dealt_by_speed_takes_the_harmonic_mean(gpt: Scenario) -> None:
    noise = Noise(distribution="none", spread=0.0, step_spread=0.0, ranks_spread=0.0, slow_share=0.5, slow_factor=2.0)
    job = replace(gpt.job, dp=64, tp=1, pp=1, sharding="zero3", global_batch=64, micro_batch=1)
    s = replace(gpt, job=job, noise=noise)
    grids = [forecast(one, count=2).record for one in (s, POLICIES["deal-by-speed"].apply(s, None))]
    plain, dealt = (record.kept[0].delays.slow for record in grids)
    assert plain.max() == 2
    assert dealt == pytest.approx(1 / (1 / plain).mean())


def test_a_capped_device_is_slower_by_the_cube_root(gpt: Scenario) -> None:
    d = effects.capped_device(POLICIES["power-smoothing"].apply(gpt, 0.8))
    left = (0.8 * gpt.device.load_w - gpt.device.stall_w) / (gpt.device.load_w - gpt.device.stall_w)
    assert d.peak_tflops == pytest.approx(gpt.device.peak_tflops * left ** (1 / 3))
    assert d.load_w == pytest.approx(0.8 * gpt.device.load_w)
    assert effects.capped_device(gpt) == gpt.device


def test_fewer_bytes_take_less_time_and_cost_passes_through_memory(gpt: Scenario) -> None:
    plain, small = plan(gpt), plan(POLICIES["compression"].apply(gpt, 4))
    free_of_cost = plan(replace(gpt, policy=Policies(compression_ratio=4.0, compression_passes=0.0)))
    assert plain.sync_ns / 4 <= free_of_cost.sync_ns < plain.sync_ns / 3.9
    assert free_of_cost.sync_ns < small.sync_ns < plain.sync_ns


def test_priorities_hide_more_and_never_more_than_there_is(gpt: Scenario) -> None:
    overlap, priority = (plan(POLICIES[name].apply(gpt, None)) for name in ("overlap", "priority"))
    assert 0 < overlap.hidden_ns < priority.hidden_ns
    assert priority.hidden_ns + priority.sync_ns == pytest.approx(plan(gpt).sync_ns)


def test_a_weak_cable_slows_its_flows_until_they_go_round_it() -> None:
    def rate(weak: float, reroute: bool) -> float:
        tiers = (
            Tier(name="node", devices=8, gb_per_s=300),
            Tier(name="leaf", devices=32, gb_per_s=10, uplinks=32, weak_share=weak),
            Tier(name="spine", devices=1024, gb_per_s=10),
        )
        fabric = Fabric(name="f", tiers=tiers, reroute=reroute)
        return Net(Job(global_batch=64, dp=64, tp=8), fabric).rate("dp")[1]

    whole, weak, rerouted = rate(1.0, False), rate(0.05, False), rate(0.05, True)
    assert weak < 0.5 * whole
    assert rerouted > 0.9 * whole
    assert rate(1.0, True) == whole


def test_the_best_interval_keeps_what_its_closed_form_says(gpt: Scenario) -> None:
    """Failures without memory, no waiting for nodes: kept = work ÷ expected time, at the best interval and at others."""
    often = replace(gpt.failure, checkpoint_overlap=0.0, software_per_1000_node_days=200.0, device_per_1000_node_days=0.0,
                    node_per_1000_node_days=0.0)  # fmt: skip
    s = replace(gpt, failure=often)
    mu = mtbf_s(200.0, 192)
    kept = {}
    for given in (0.0, 600.0, 6000.0):
        made = forecast(POLICIES["checkpoint-interval"].apply(s, given), count=4)
        period = given or best_s(60.0, mu)
        expected = 1 / expected_s(1.0, period, 60.0, mu, often.detect_s + often.reschedule_s, often.restore_s)
        kept[given] = made.kept
        assert made.kept == pytest.approx(expected, rel=0.01)
    assert kept[0.0] == max(kept.values())


def test_amplification_of_gaussian_jitter_falls_with_the_gate(gpt: Scenario) -> None:
    s = replace(gpt, noise=Noise(distribution="none", spread=0.0, step_spread=0.03, ranks_spread=0.0))
    found = [
        forecast(one, count=100).indices()["sync_delay_amplification"] for one in (s, POLICIES["asynchronous"].apply(s, None))
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1].value < found[0].value
    assert sqrt(2 * pi) < found[0].value
