"""Around a scenario: signs and simple limits of the map, the elasticities and capacity held in excess."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from taut.project.training.loss_regions import elasticities, excess_capacity, regimes, scale_synchronisation
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.workload import WORKLOAD, scale_failures
from taut.read.scenario_file import load

change = msgspec.structs.replace
QUIET = Noise("none", step_spread=0.0, ranks_spread=0.0)


@pytest.fixture
def small() -> Scenario:
    """Eight replicas of two stages of two ranks, eight micro-batches, things fail."""
    raw, text = load("gpt-175b")
    raw["model"] = {**raw["model"], "layers": 8, "hidden": 2048, "heads": 16}
    raw["job"] = {"global_batch": 64, "dp": 8, "tp": 2, "pp": 2}
    raw["noise"] = {"step_spread": 0.1, "ranks_spread": 0.05}
    raw["failure"] = {"node_per_1000_node_days": 40.0, "checkpoint_s": 60, "spares": 1, "repair_hours": 48}
    return parse(raw, "small", text)[0]


def gains(s: Scenario) -> dict[str, Any]:
    return {row["knob"]: row["rate"] for row in elasticities(s)}


def test_everything_better_brings_something_or_nothing(small: Scenario) -> None:
    for name, gain in gains(small).items():
        assert gain["hi"] >= -1e-9, name
    brought = gains(small)
    assert brought["jitter"]["lo"] > 0
    assert brought["failure rates"]["lo"] > 0
    assert brought["peak"]["lo"] > 0


def test_shares_of_the_time_add_up(small: Scenario) -> None:
    """Where nothing strays or fails, time is peak, memory, bandwidth, latency and kernels: elasticities sum to at most one."""
    brought = gains(WORKLOAD.ideal(small))
    total = sum(gain["value"] for gain in brought.values())
    assert 0.2 < total <= 1.01


def test_a_job_without_jitter_gains_nothing_from_less(small: Scenario) -> None:
    assert gains(change(small, noise=QUIET))["jitter"]["value"] == pytest.approx(0.0, abs=1e-9)


def test_a_job_that_never_fails_gains_nothing_from_spares_and_quicker_checkpoints(small: Scenario) -> None:
    brought = gains(scale_failures(small, 0.0))
    assert {brought[name]["value"] for name in ("failure rates", "spares", "checkpoint time")} == {0.0}


def test_bandwidth_brings_less_the_more_there_is(small: Scenario) -> None:
    def at(times: float) -> float:
        tiers = tuple(change(tier, gb_per_s=tier.gb_per_s * times, latency_us=0.0) for tier in small.fabric.tiers)
        found = gains(change(small, fabric=change(small.fabric, tiers=tiers)))
        return sum(gain["value"] for name, gain in found.items() if name.startswith("bandwidth"))

    assert at(0.1) > at(1.0) > at(100.0)
    assert at(1e6) == pytest.approx(0.0, abs=1e-4)


def test_spares_cost_even_where_they_bring_nothing(small: Scenario) -> None:
    row = next(row for row in elasticities(scale_failures(small, 0.0)) if row["knob"] == "spares")
    assert row["cost_per_unit"]["value"] > 0


def test_the_map_loses_more_with_scale_heterogeneity_and_intensity(small: Scenario) -> None:
    rows = {(r["ranks"], r["heterogeneity"], r["intensity"]): r for r in regimes(small)}
    assert len(rows) == 27

    def lost(*place: float) -> float:
        return float(rows[place]["loss_share"])

    assert lost(32, 1, 1) < lost(128, 1, 1) < lost(512, 1, 1)
    assert lost(32, 1, 1) < lost(32, 2, 1) < lost(32, 4, 1)
    assert lost(32, 1, 0.25) < lost(32, 1, 1) < lost(32, 1, 4)
    order = ["stable", "marginal", "unstable"]
    assert order.index(rows[512, 4, 4]["class"]) >= order.index(rows[32, 1, 0.25]["class"])


def test_what_dominates_is_what_was_put_there(small: Scenario) -> None:
    unequal = change(scale_failures(small, 0.0), noise=change(QUIET, ranks_spread=0.1))
    assert {row["dominates"] for row in regimes(unequal) if row["intensity"] == 1} == {"jitter"}
    broken = change(scale_failures(small, 4.0), noise=QUIET)
    assert {row["dominates"] for row in regimes(broken) if row["intensity"] == 1 and row["ranks"] > 32} == {"failures"}


def test_intensity_is_synchronisations_a_token(small: Scenario) -> None:
    fewer, more = scale_synchronisation(small, 0.25), scale_synchronisation(small, 4.0)
    assert fewer is not None
    assert more is not None
    assert fewer.job.steps_between_syncs == 4
    assert more.job.global_batch == 16
    assert scale_synchronisation(fewer, 4.0) == small
    assert scale_synchronisation(change(small, job=change(small.job, global_batch=8)), 4.0) is None


def test_replicas_meet_the_target_and_the_cost_of_a_unit_tells(small: Scenario) -> None:
    rows = excess_capacity(small)
    now, more = rows[0], rows[1]
    assert not now["met"]
    assert (more["what"], more["met"]) == ("replicas", True)
    assert more["hides_share"] >= now["hides_share"] > 0
    assert more["cost_per_unit_change"] > 0
    spares = [row for row in rows if row["what"] == "spares"]
    reached = [row["target_share"] for row in spares]
    assert reached == sorted(reached)
    assert spares[0]["target_share"] > now["target_share"]


def test_a_job_as_planned_needs_nothing(small: Scenario) -> None:
    only = excess_capacity(WORKLOAD.ideal(small))
    assert [row["what"] for row in only] == ["as it stands"]
    assert only[0]["hides_share"] == pytest.approx(0.0)
