"""What makes a threshold: mechanisms switched off, elasticities, losses split, and uncertain parameters in its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from results import filled
from taut.core.array_types import Floats
from taut.project.about import About
from taut.project.marginal_gain import rule
from taut.project.mechanisms import split
from taut.project.policy import Policy
from taut.project.threshold import explained_threshold, threshold
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_plan import plan
from taut.project.training.uncertain_keys import draws
from taut.project.training.workload import WORKLOAD, scale_growth
from taut.project.workload import DEFAULT, Answer, Estimate, Sampling, Workload
from taut.read.scenario_file import load
from taut.result.types import Forecast, Threshold


class Losses(NamedTuple):
    """So many ranks that lose a · n^k and b · n^2 of what they do."""

    ranks: int = 1
    slow: float = 1e-3
    steep: float = 1e-8
    known: bool = True
    name: str = "losses"
    about: About = About()

    def entry(self) -> Forecast:
        step = {"p10": 1.0, "p50": 1.0, "p90": 1.0}
        found: Forecast = filled(Forecast, {"ranks": self.ranks, "step_ns": step, "dominant": "x", "in_range": True})
        return found

    def indices(self) -> dict[str, Estimate | None]:
        return {}


class Toy(Workload[Losses]):
    """The rate is n ÷ (1 + slow · n) ÷ (1 + steep · n²), a little different with each seed."""

    name = "toy"
    policies: Mapping[str, Policy[Losses]] = {}

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[Losses, list[str]]:
        raise NotImplementedError

    def forecast(self, s: Losses, how: Sampling) -> Answer:
        return s

    def ranks(self, s: Losses) -> int:
        return s.ranks

    def at(self, s: Losses, ranks: int) -> Losses:
        return s._replace(ranks=ranks)

    def scale_jitter(self, s: Losses, factor: float) -> Losses:
        return s._replace(slow=s.slow * factor, steep=s.steep * factor)

    def rate(self, s: Losses, how: Sampling) -> float:
        return s.ranks / (1 + (1 + 0.001 * how.seed) * s.slow * s.ranks) / (1 + s.steep * s.ranks**2)

    def mechanisms(self, s: Losses) -> dict[str, Callable[[Losses, float], Losses]]:
        return {
            "slow": lambda s, f: s._replace(slow=s.slow * f),
            "steep": lambda s, f: s._replace(steep=s.steep * f),
        }

    def uncertain_rates(self, s: Losses, how: Sampling) -> Floats | None:
        if s.known:
            return None
        times = np.exp(np.linspace(-1, 1, 33))
        return (1 + s.slow * s.ranks) / (1 + times * s.slow * s.ranks)


TOY = Toy()


def explained(s: Losses) -> Threshold:
    return explained_threshold(TOY, s, DEFAULT, rule(TOY, s, DEFAULT))


def test_a_mechanism_switched_off_leaves_the_threshold_of_the_others() -> None:
    found = explained(Losses(ranks=8192))
    alone = {"steep": threshold(TOY, Losses(steep=0.0)).ranks, "slow": threshold(TOY, Losses(slow=0.0)).ranks}
    assert found.without == {name: pytest.approx(ranks, rel=0.08) for name, ranks in alone.items()}
    assert found.made_by == "slow"
    assert explained(Losses(slow=1e-6, steep=1e-9)).made_by == "steep"


def test_none_up_to_what_was_tried_where_one_mechanism_makes_all_of_it() -> None:
    found = explained(Losses(steep=0.0))
    assert found.without == {"slow": None, "steep": pytest.approx(found.ranks, rel=0.01)}
    assert found.made_by == "slow"


def test_elasticities_are_those_of_the_closed_form() -> None:
    """With slow alone the threshold is a constant over it; with steep alone over its root."""
    table = ((Losses(steep=0.0), "slow", -1.0), (Losses(slow=0.0), "steep", -0.5))
    for s, name, slope in table:
        found = explained(s).elasticity
        assert found
        moved = found[name]
        assert moved is not None
        assert moved.value == pytest.approx(slope, rel=0.05)
        assert moved.lo is not None
        assert moved.hi is not None
        assert moved.lo <= moved.value <= moved.hi


def test_where_there_is_no_transition_nothing_makes_it() -> None:
    found = explained(Losses(slow=0.0, steep=0.0))
    assert (found.ranks, found.made_by) == (None, None)
    assert found.without == {"slow": None, "steep": None}
    assert found.elasticity == {"slow": None, "steep": None}


def test_a_workload_without_mechanisms_says_nothing_of_them() -> None:
    class Plain(Toy):
        def mechanisms(self, s: Losses) -> dict[str, Callable[[Losses, float], Losses]]:
            return {}

    s = Losses()
    assert "without" not in explained_threshold(Plain(), s, DEFAULT, rule(Plain(), s, DEFAULT))


def test_uncertain_parameters_widen_the_interval_as_far_as_they_move_the_threshold() -> None:
    """The threshold is a constant over ``slow``, which lies within e to either side, even in its logarithm."""
    plain, found = threshold(TOY, Losses(steep=0.0)), threshold(TOY, Losses(steep=0.0, known=False))
    assert found.ranks == plain.ranks
    assert found.ranks
    assert found.lo
    assert found.hi
    assert np.log(found.hi / found.ranks) == pytest.approx(0.8, abs=0.05)
    assert np.log(found.lo / found.ranks) == pytest.approx(-0.8, abs=0.05)
    assert found.parts
    assert found.parts.parameters > 0.99
    assert found.parts.parameters + found.parts.noise + found.parts.model == pytest.approx(1.0)


@pytest.mark.parametrize("times", [0.012, 1e-6])
def test_a_limit_that_only_some_draws_have_is_open_at_its_end(times: float) -> None:
    found = threshold(TOY, Losses(slow=1e-3 * times, steep=0.0, known=False))
    assert found.hi is None
    assert (found.lo is None) is (times == 1e-6)


def test_shapley_values_sum_to_the_loss() -> None:
    rows = split(TOY, Losses(), [16, 256, 4096, 256], DEFAULT)
    assert [(row.ranks, row.mechanism) for row in rows] == [(n, m) for n in (16, 256, 4096) for m in ("all", "slow", "steep")]
    for ranks in (16, 256, 4096):
        lost = {row.mechanism: row.loss_share.value for row in rows if row.ranks == ranks}
        assert lost["slow"] + lost["steep"] == pytest.approx(lost["all"], abs=1e-12)
        slow, steep = 1e-3 * ranks, 1e-8 * ranks**2
        first, last = 1 - 1 / (1 + slow), 1 / (1 + steep) - 1 / (1 + slow) / (1 + steep)
        assert lost["slow"] == pytest.approx((first + last) / 2, rel=0.01)


@pytest.fixture(scope="module")
def job() -> Scenario:
    """A rank is a replica on a flat network, and fails; saves take a minute."""
    raw, text = load("gpt-175b")
    raw["model"] = {"layers": 1, "hidden": 4096, "heads": 16, "sequence": 1024}
    raw["job"] = {"global_batch": 16, "dp": 16}
    raw["fabric"] = {
        "name": "flat",
        "tiers": [{"name": name, "devices": n, "gb_per_s": 1e6} for name, n in (("node", 8), ("net", 1 << 17))],
    }
    raw["noise"] = {"step_spread": 0.0, "ranks_spread": 0.0}
    raw["failure"] = {
        "device_per_1000_node_days": [10, 15, 30], "checkpoint_s": 60, "reschedule_s": [180, 420, 900], "repair_hours": [2, 24],
        "spares_share": 0.1,
    }  # fmt: skip
    return parse(raw, "job", text)[0]


def test_scenarios_drawn_inside_the_ranges_have_thresholds_inside_the_interval(job: Scenario) -> None:
    """As often as it says, 80 of 100: another design of draws, each a scenario of its own with known values."""
    found = threshold(WORKLOAD, job)
    assert found.lo
    assert found.ranks
    assert found.parts
    assert found.parts.parameters > 0.9
    known = replace(job, failure=replace(job.failure, ranges=()))
    there = []
    for values in draws(job.failure.ranges, seed=99, count=40):
        one = threshold(WORKLOAD, replace(known, failure=replace(known.failure, **values)), Sampling(seed=7)).ranks
        there.append(found.lo <= (one or 1 << 30) <= (found.hi or 1 << 31))
    assert 0.65 <= np.mean(there) <= 0.95, "80 of 100, within two standard errors of 40"
    exact = threshold(WORKLOAD, known)
    assert exact.lo
    assert exact.hi
    assert exact.hi / exact.lo < 1.2 < (found.hi or np.inf) / found.lo, "known values tell the scale, ranges do not"


def test_training_names_its_mechanisms(job: Scenario) -> None:
    assert set(WORKLOAD.mechanisms(job)) == {"jitter", "failures", "interconnect"}
    more = replace(job, noise=replace(job.noise, ranks_spread=0.01), failure=replace(job.failure, heat_share=0.1))
    assert set(WORKLOAD.mechanisms(more)) - set(WORKLOAD.mechanisms(job)) == {"unequal ranks", "warm-up and heat"}
    for scale in WORKLOAD.mechanisms(more).values():
        assert scale(more, 1.0) == more


def test_without_its_growth_the_network_costs_what_it_does_in_a_replica_alone() -> None:
    s = parse(load("large-training")[0], "large-training")[0]
    alone, now, off = plan(WORKLOAD.at(s, 128)), plan(s), plan(scale_growth(s, 0.0))
    assert off.sync_ns == alone.sync_ns == 0
    assert off.hop_ns == alone.hop_ns
    assert off.optimiser_ns == now.optimiser_ns
    half = plan(scale_growth(s, 0.5))
    assert half.sync_ns == pytest.approx(now.sync_ns / 2)
    assert half.forward_ns == pytest.approx((alone.forward_ns + now.forward_ns) / 2)
