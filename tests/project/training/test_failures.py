"""Failures and restarts of a job: every node-µs has one fate, and the means are those of the theory."""

from __future__ import annotations

from math import factorial, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.project.noise import longest_mean, table
from taut.project.training import failures as module
from taut.project.training.checkpoints import best_s, expected_s, mtbf_s
from taut.project.training.failures import JobHistories, domains, restore_s, simulate_jobs, work_between_s
from taut.project.training.job_history import FATES, job_histories
from taut.project.training.scenario import Failure, Noise, parse
from taut.read.scenario_file import load

RATES = ("device_per_1000_node_days", "node_per_1000_node_days", "software_per_1000_node_days", "rack_per_1000_rack_days",
         "switch_per_1000_switch_days", "pod_per_1000_pod_days")  # fmt: skip

seconds = st.sampled_from([0.0, 0.5, 30.0, 700.0])
shares = st.sampled_from([0.0, 0.25, 1.0])
failures = st.builds(
    Failure,
    **{rate: st.sampled_from([0.0, 300.0, 30000.0]) for rate in RATES},
    nodes_per_rack=st.integers(1, 3), racks_per_switch=st.integers(1, 2), racks_per_pod=st.integers(1, 4),
    detect_s=seconds, repair_hours=st.sampled_from([0.0, 0.1, 5.0]), outage_hours=st.sampled_from([0.0, 1.0]),
    spares=st.integers(0, 4), reschedule_s=seconds, restore_s=seconds, restore_nodes=st.integers(0, 3),
    checkpoint_s=seconds, checkpoint_overlap=shares, checkpoint_every_s=st.sampled_from([0.0, 900.0, 5000.0]),
    warmup_steps=st.sampled_from([0.0, 5.0, 300.0]), warmup_share=shares, heat_steps=st.sampled_from([0.0, 50.0]),
    heat_share=shares, placement_spread=st.sampled_from([0.0, 0.1]), redrawn_share=shares,
)  # fmt: skip


@settings(max_examples=60)
@given(failures, st.integers(1, 9), st.integers(0, 1 << 40))
def test_every_node_us_has_one_fate(f: Failure, nodes: int, seed: int) -> None:
    them = simulate_jobs(f, nodes, 8, 20_000.0, step_s=3.0, count=2, seed=seed)
    by_fate = them.node_us * them.devices
    assert (by_fate >= 0).all()
    assert by_fate.sum(axis=1).tolist() == them.total_rank_us.tolist()
    assert them.total_rank_us.tolist() == [(nodes + f.spares) * 8 * wall for wall in them.count("wall_us").tolist()]
    done = them.count("finished") == 1
    assert (them.node_us[done, FATES.index("productive")] == nodes * 20_000 * 10**6).all()
    assert sum(them.rank_s.values()) * 1e6 == pytest.approx(them.total_rank_us.mean())


def all_nodes(f: Failure, nodes: int, work_s: float, count: int, seed: int = 1) -> JobHistories:
    return simulate_jobs(f, nodes, 8, work_s, count=count, seed=seed)


def near(values: Any, expected: float) -> bool:
    """Whether a mean is the expected one, within four standard errors."""
    return bool(abs(values.mean() - expected) < 4 * values.std() / sqrt(len(values)))


@pytest.mark.parametrize(("every", "restore"), [(3000.0, 600.0), (1200.0, 0.0)])
def test_the_mean_life_is_the_closed_form(every: float, restore: float) -> None:
    f = Failure(
        node_per_1000_node_days=20.0, spares=500, detect_s=40, reschedule_s=20, restore_s=restore, checkpoint_s=600,
        checkpoint_every_s=every,
    )  # fmt: skip
    mu = mtbf_s(20.0, 1000)
    work = 100 * (every - 600)
    took = all_nodes(f, 1000, work, 400).count("wall_us") / 1e6
    assert near(took, expected_s(work, every, 600, mu, 60, restore))


def test_the_best_interval_is_taken_if_none_is_given() -> None:
    f = Failure(node_per_1000_node_days=10.0, checkpoint_s=60)
    per_s = 1 / mtbf_s(10.0, 256)
    assert work_between_s(f, per_s, 1e6, 1.0) == pytest.approx(best_s(60, 1 / per_s) - 60)
    hidden = Failure(node_per_1000_node_days=10.0, checkpoint_s=600, checkpoint_overlap=1.0)
    assert work_between_s(hidden, per_s, 1e6, 1.0) == 600, "a save cannot begin before the last one is written"
    assert work_between_s(f, 0.0, 1e6, 1.0) == 1e6, "nothing fails: one save, at the end"


def test_a_checkpoint_that_hides_costs_less_but_loses_more() -> None:
    blocking = Failure(node_per_1000_node_days=30.0, spares=300, checkpoint_s=300, checkpoint_every_s=1800)
    ours, theirs = (all_nodes(replace(blocking, checkpoint_overlap=share), 1000, 2e5, 100) for share in (0.0, 1.0))
    assert theirs.rank_s["checkpoint save"] < 0.01 * ours.rank_s["checkpoint save"]
    each, other = ((x.rank_s["discarded"] / x.count("failures").mean() / 8000) for x in (ours, theirs))
    assert other - each == pytest.approx(300, rel=0.3), "work while the save was being written is lost as well"
    assert theirs.kept.mean > ours.kept.mean


def test_failures_that_find_no_spare_wait_for_a_repair() -> None:
    """Nothing fails while the job waits, so broken nodes are the calls of a loss system with a line for each spare: a failure
    finds none with Erlang's chance."""
    rate, repair_h = 10.0, 12.0
    busy = 2048 * rate / 1000 * repair_h / 24
    few = Failure(
        node_per_1000_node_days=rate, repair_hours=repair_h, spares=14, detect_s=0, reschedule_s=0, restore_s=0,
        checkpoint_s=1, checkpoint_every_s=300,
    )  # fmt: skip
    them = all_nodes(few, 2048, 60 * 86400.0, 40)
    weights = [busy**k / factorial(k) for k in range(few.spares + 1)]
    erlang = weights[-1] / sum(weights)
    waited = them.count("waited") / them.count("failures")
    assert near(waited, erlang)
    many = all_nodes(replace(few, spares=100), 2048, 60 * 86400.0, 40)
    assert many.count("waited").sum() == 0
    assert many.rank_s["hold/init"] == 0
    assert many.rank_s["down"] / 8 / (many.count("wall_us").mean() / 1e6) == pytest.approx(busy, rel=0.05)
    assert 14 < many.count("broken").max() < 60, "so many spares would have been enough"


def test_what_a_domain_takes_with_it() -> None:
    f = Failure(
        device_per_1000_node_days=1, software_per_1000_node_days=1, rack_per_1000_rack_days=1, switch_per_1000_switch_days=1,
        pod_per_1000_pod_days=1, nodes_per_rack=4, racks_per_switch=2, racks_per_pod=8,
    )  # fmt: skip
    found = {d.name: (d.units, d.nodes) for d in domains(f, 100)}
    assert found == {
        "device": (100, 1),
        "node": (100, 1),
        "software": (100, 0),
        "rack": (25, 4),
        "switch": (13, 8),
        "pod": (4, 32),
    }
    rates = {d.name: d.per_s * 86400 * 1000 for d in domains(f, 100)}
    assert rates == pytest.approx({"device": 100, "node": 0, "software": 100, "rack": 25, "switch": 13, "pod": 4})
    one = all_nodes(
        Failure(pod_per_1000_pod_days=3000, nodes_per_rack=4, racks_per_pod=8, outage_hours=1, spares=100), 100, 2e5, 50
    )
    assert one.count("broken").max() >= 32
    assert one.count("taken").sum() / one.count("failures").sum() == pytest.approx(25, rel=0.1), "100 nodes in 4 pods"
    soft = all_nodes(Failure(software_per_1000_node_days=300), 100, 2e5, 10)
    assert soft.count("failures").sum() > 0
    assert (soft.count("taken") == 0).all()
    assert soft.rank_s["down"] == 0


def test_restoring_nodes_share_the_storage() -> None:
    assert restore_s(Failure(restore_s=100), 5000) == 100
    assert restore_s(Failure(restore_s=100, restore_nodes=1000), 500) == 100
    assert restore_s(Failure(restore_s=100, restore_nodes=1000), 5000) == 500


def test_a_cold_start_and_heat_are_slow_compute() -> None:
    f = Failure(warmup_share=0.5, warmup_steps=100, heat_share=0.1, heat_steps=1000)
    them = simulate_jobs(f, 4, 8, 1e5, step_s=2.0, count=1)
    warm, hot = 0.5 * 200, 0.1 * (1e5 - 2000)
    assert them.rank_s["slow compute"] / 32 == pytest.approx(warm + hot, rel=1e-6)
    assert them.kept.mean == pytest.approx(1.0)


def test_the_slowest_node_is_drawn_anew_or_stays() -> None:
    """Over many restarts the slowest of n is at its mean, however few nodes each of them redraws."""
    for share in (0.1, 1.0):
        f = Failure(software_per_1000_node_days=3000, placement_spread=0.05, redrawn_share=share, checkpoint_every_s=100,
                    detect_s=0, reschedule_s=0, restore_s=0)  # fmt: skip
        them = all_nodes(f, 64, 40 * 86400.0 / 64, 200)
        slow = them.node_us[:, FATES.index("slow compute")] / them.node_us[:, FATES.index("productive")]
        assert near(slow, longest_mean(table(Noise("lognormal", 0.05)), 64) - 1)


def test_a_job_that_fails_faster_than_it_gets_on_is_given_up() -> None:
    f = Failure(
        node_per_1000_node_days=1e6, spares=50, restore_s=600, checkpoint_s=60, checkpoint_every_s=3600, repair_hours=0.1
    )
    them = all_nodes(f, 100, 1e5, 2)
    assert them.unfinished == 2
    assert them.kept.mean == 0
    assert (them.node_us.sum(axis=1) == 150 * them.count("wall_us")).all()


def test_the_same_seed_gives_the_same_lives_compiled_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    f = Failure(node_per_1000_node_days=100, rack_per_1000_rack_days=30, spares=3, checkpoint_s=30, checkpoint_overlap=0.5,
                warmup_share=0.3, warmup_steps=20, placement_spread=0.05, redrawn_share=0.2)  # fmt: skip
    few = all_nodes(f, 50, 1e6, 3)
    many = all_nodes(f, 50, 1e6, 400)
    assert (many.node_us[:3] == few.node_us).all()
    assert (all_nodes(f, 50, 1e6, 3, seed=2).node_us != few.node_us).any()
    monkeypatch.setattr(module, "job_histories", job_histories.plain)
    assert (all_nodes(f, 50, 1e6, 3).node_us == few.node_us).all()


def test_nothing_and_too_much_are_refused() -> None:
    with pytest.raises(UsageError, match="more than nothing"):
        simulate_jobs(Failure(), 4, 8, 0.0)
    with pytest.raises(UsageError, match="give less work"):
        simulate_jobs(Failure(), 1 << 20, 8, 1e10)


def test_lives_are_summed_up_with_an_interval() -> None:
    f = Failure(node_per_1000_node_days=6.5, spares=40, checkpoint_s=60)
    kept = all_nodes(f, 2048, 20 * 86400.0, 100).kept
    assert 0 < kept.low < kept.mean < kept.high < 1
    assert np.isfinite(kept).all()


def test_llama_3_is_interrupted_as_often_as_published() -> None:
    """419 unexpected interruptions of 16,384 devices in 54 days (arXiv:2407.21783, table 5): 7.76 a day."""
    nodes, days = 16384 // 8, 54
    f = Failure(software_per_1000_node_days=419 / days / nodes * 1000, detect_s=0, reschedule_s=0, restore_s=0)
    assert sum(one.per_s for one in domains(f, nodes)) * 86400 == pytest.approx(7.76, abs=0.005)
    them = simulate_jobs(f, nodes, 8, days * 86400.0, count=40)
    a_day = them.count("failures") / (them.count("wall_us") / 86400e6)
    assert near(a_day, 419 / 54)
    shipped = parse(load("large-training")[0], "large-training")[0]
    assert sum(one.per_s for one in domains(shipped.failure, nodes)) * 86400 == pytest.approx(419 / 54, rel=0.005)
