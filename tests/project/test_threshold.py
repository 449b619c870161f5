"""Where one more accelerator stops paying: the rule, its limits, and the same scale from full graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from results import filled
from taut.project.about import About
from taut.project.noise import table
from taut.project.policy import Policy
from taut.project.threshold import threshold
from taut.project.training import full_graph
from taut.project.training.forecast import with_noise
from taut.project.training.sampled_replica import rate
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.step_plan import plan
from taut.project.training.workload import WORKLOAD, Training
from taut.project.workload import Answer, Estimate, Sampling, Workload
from taut.read.scenario_file import load
from taut.replay.timeline import replay
from taut.result.types import Forecast

change = msgspec.structs.replace


@pytest.fixture
def one() -> Scenario:
    """A rank is a replica: two draws of work a step, then all of them meet; transfers take nothing."""
    raw, text = load("gpt-175b")
    raw["model"] = {"layers": 1, "hidden": 4096, "heads": 16, "sequence": 1024, "tied_embeddings": True}
    raw["job"] = {"global_batch": 16, "dp": 16}
    raw["fabric"] = {
        "name": "flat",
        "tiers": [{"name": name, "devices": n, "gb_per_s": 1e6} for name, n in (("node", 8), ("net", 4096))],
    }
    raw["noise"] = {"distribution": "exponential", "spread": 0.6, "step_spread": 0.0, "ranks_spread": 0.0}
    raw["failure"] = {}
    return parse(raw, "one", text)[0]


class Ranks(NamedTuple):
    """So many ranks; also what they give."""

    ranks: int
    name: str = "ranks"
    about: About = About()

    def entry(self) -> Forecast:
        step = {"p10": 1.0, "p50": 1.0, "p90": 1.0}
        found: Forecast = filled(Forecast, {"ranks": self.ranks, "step_ns": step, "dominant": "x", "in_range": True})
        return found

    def indices(self) -> dict[str, Estimate | None]:
        return {}


class Speed(Workload[Ranks]):
    """A workload whose rate at n ranks is given, whatever the seed."""

    name = "speed"
    policies: Mapping[str, Policy[Ranks]] = {}

    def __init__(self, speed: Callable[[int], float]) -> None:
        self.speed = speed

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[Ranks, list[str]]:
        raise NotImplementedError

    def forecast(self, s: Ranks, how: Sampling) -> Answer:
        return s

    def ranks(self, s: Ranks) -> int:
        return s.ranks

    def at(self, s: Ranks, ranks: int) -> Ranks:
        return Ranks(ranks)

    def scale_jitter(self, s: Ranks, factor: float) -> Ranks:
        return s

    def rate(self, s: Ranks, how: Sampling) -> float:
        return float(self.speed(s.ranks))


ONE = Ranks(1)


def by_graph(s: Scenario, seed: int) -> float:
    """The rate of a job whose every rank, op and gate is replayed."""
    if s.noise.distribution == "none":
        return rate(s, seed)
    p = plan(s)
    made = full_graph.graph(s, with_noise(s, p, seed), 120, seed, by="layer", p=p, one=table(s.noise))
    return s.job.global_batch * s.model.sequence * 1e9 / float(replay(made).window_ns.mean())


class Replayed(Training):
    """Training whose rates come from full graphs."""

    def rate(self, s: Scenario, how: Sampling) -> float:
        return by_graph(s, how.seed)


def test_half_of_a_linear_job_at_the_scale_where_its_slope_is_half() -> None:
    """X = n ÷ (1 + n ÷ 1000): dX/dn = 1 ÷ (1 + n ÷ 1000)², which is a half at n = 414."""
    found = threshold(Speed(lambda n: n / (1 + n / 1000)), ONE)
    assert found.ranks == pytest.approx(414, rel=0.03)
    assert (found.lo, found.hi) == (found.ranks, found.ranks)
    back = [row["marginal_return"] for row in found.curve]
    assert back == sorted(back, reverse=True)


def test_a_job_that_loses_nothing_pays_as_far_as_was_tried() -> None:
    found = threshold(Speed(lambda n: n), ONE)
    assert found.ranks is None
    assert found.tried >= 65_536


def test_a_dip_that_is_made_good_is_no_threshold() -> None:
    """The first doubling costs a third of the rate for good (a network comes in), and nothing after it."""
    found = threshold(Speed(lambda n: n if n == 1 else n / 1.5 / (1 + n / 10_000)), ONE)
    assert found.curve[0]["marginal_return"] < 0.5
    assert found.ranks == pytest.approx(1547, rel=0.04)


def test_a_job_that_never_pays_has_its_threshold_at_the_smallest_scale() -> None:
    assert threshold(Speed(lambda n: n**0.1), ONE).ranks == 1


def test_full_graphs_give_the_same_scale(one: Scenario) -> None:
    """Every rank, every op, every gate, replayed, against the sampled replica: the same rule, within a fifth."""
    quick = threshold(WORKLOAD, one)
    graph = threshold(Replayed(), one, Sampling(seed=1))
    assert quick.ranks is not None
    assert graph.ranks is not None
    assert 16 < quick.ranks <= 64
    assert graph.ranks == pytest.approx(quick.ranks, rel=0.2)


def test_another_seed_lies_in_the_interval(one: Scenario) -> None:
    first = threshold(WORKLOAD, one)
    others = np.array([threshold(WORKLOAD, one, Sampling(seed=seed)).ranks for seed in range(1, 20)])
    assert first.lo is not None
    assert first.hi is not None
    assert ((first.lo <= others) & (others <= first.hi)).mean() >= 0.8
    assert first.hi < 2 * first.lo


def test_more_jitter_stops_paying_sooner(one: Scenario) -> None:
    def at(spread: float) -> int:
        return threshold(WORKLOAD, change(one, noise=change(one.noise, spread=spread))).ranks or 1 << 30

    assert at(0.9) < at(0.6) < at(0.5)
    quiet = threshold(WORKLOAD, change(one, noise=Noise("none", step_spread=0.0, ranks_spread=0.0)))
    assert quiet.ranks is None


def test_failures_that_outrun_the_spares_end_it_and_are_named() -> None:
    gpt = parse(*load("gpt-175b")[:1], "gpt-175b")[0]
    gpt = change(gpt, failure=change(gpt.failure, spares=8, ranges=()))
    found = threshold(WORKLOAD, gpt)
    assert found.ranks is not None
    assert found.before is not None
    assert found.after is not None
    assert (found.before["dominant"], found.after["dominant"]) == ("compute", "failures")
    assert found.in_range is (found.ranks <= 4096)
    more = threshold(WORKLOAD, change(gpt, failure=change(gpt.failure, spares=32)))
    assert more.ranks is None or more.ranks > 1.2 * found.ranks


def test_money_is_the_rule_where_work_has_a_price(one: Scenario) -> None:
    def at(value: float) -> int | None:
        price = change(one.price, value_per_unit=value)
        return threshold(WORKLOAD, change(one, price=price, device=change(one.device, price_per_hour=2.0))).ranks

    tokens = rate(WORKLOAD.at(change(one, noise=Noise("none", step_spread=0.0, ranks_spread=0.0)), 1), 0)
    even = 2.0 / 3600 / tokens * 1e6  # what a million tokens must be worth for an accelerator without jitter to pay
    half = at(2 * even)
    assert half == pytest.approx(threshold(WORKLOAD, one).ranks, rel=0.1)
    assert (at(1.5 * even) or 0) < (half or 0)
    assert (
        "worth more"
        in threshold(
            WORKLOAD, change(one, price=change(one.price, value_per_unit=1.0), device=change(one.device, price_per_hour=2.0))
        ).rule
    )


def test_strong_scaling_stops_where_the_batch_cannot_be_dealt(one: Scenario) -> None:
    found = threshold(
        WORKLOAD, change(one, noise=Noise("none", step_spread=0.0, ranks_spread=0.0), job=change(one.job, scaling="strong"))
    )
    assert found.tried <= 16
