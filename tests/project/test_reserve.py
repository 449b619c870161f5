"""How much jitter a scenario still bears."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest

from taut.project.about import About
from taut.project.policy import Policy
from taut.project.reserve import regime, reserve, word
from taut.project.threshold import threshold
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.workload import WORKLOAD
from taut.project.workload import Answer, Estimate, Sampling, Workload
from taut.read.scenario_file import load

change = msgspec.structs.replace


@pytest.fixture
def one() -> Scenario:
    """A rank is a replica that draws twice a step; transfers take nothing."""
    raw, text = load("gpt-175b")
    raw["model"] = {"layers": 1, "hidden": 4096, "heads": 16, "sequence": 1024}
    raw["job"] = {"global_batch": 16, "dp": 16}
    raw["fabric"] = {"name": "flat", "tiers": [{"name": "flat", "devices": 4096, "gb_per_s": 1e6}]}
    raw["noise"] = {"distribution": "exponential", "spread": 0.3, "step_spread": 0.0, "ranks_spread": 0.0}
    raw["failure"] = {}
    return parse(raw, "one", text)[0]


class Ranks(NamedTuple):
    """So many ranks with so much jitter."""

    ranks: int
    jitter: float = 1.0
    name: str = "ranks"
    about: About = About()


class Slope(Workload[Ranks]):
    """A job whose every rank takes 1 + slope × jitter."""

    name = "slope"
    policies: Mapping[str, Policy[Ranks]] = {}

    def __init__(self, slope: float) -> None:
        self.slope = slope

    def parse(self, table: Mapping[str, Any], label: str, text: str) -> tuple[Ranks, list[str]]:
        raise NotImplementedError

    def forecast(self, s: Ranks, how: Sampling) -> Answer:
        raise NotImplementedError

    def ranks(self, s: Ranks) -> int:
        return s.ranks

    def at(self, s: Ranks, ranks: int) -> Ranks:
        return s._replace(ranks=ranks)

    def scale_jitter(self, s: Ranks, factor: float) -> Ranks:
        return s._replace(jitter=s.jitter * factor)

    def rate(self, s: Ranks, how: Sampling) -> float:
        return s.ranks / (1 + self.slope * s.jitter)

    def smallest(self, s: Ranks) -> int:
        return 1


class Demand(Slope):
    """A demand of 32 that 32 ranks serve whatever is added, and half of it at four times the jitter."""

    def rate(self, s: Ranks, how: Sampling) -> float:
        return min(32.0 / (1 + (s.jitter > 0) * s.jitter / 4), s.ranks)

    def has_fixed_demand(self, s: Ranks) -> bool:
        return True

    def smallest(self, s: Ranks) -> int:
        return 32


@pytest.mark.parametrize(("slope", "bears"), [(0.1, 10.0), (0.5, 2.0), (0.8, 1.25), (2.0, 0.5), (4.0, 0.25)])
def test_jitter_that_doubles_the_step_is_the_reserve(slope: float, bears: float) -> None:
    """T = 1 + slope · k, the same on any number of ranks: half of T(0) ÷ T is reached at k = 1 ÷ slope."""
    found = reserve(Slope(slope), Ranks(64))
    assert found.reserve.value == pytest.approx(bears, rel=0.05)
    assert found.word == ("adequate" if bears >= 2 else "thin" if bears >= 1 else "depleted")
    assert (found.kind == "unstable") is (bears < 1)


def test_a_job_that_jitter_does_not_touch_bears_the_most_that_is_tried() -> None:
    found = reserve(Slope(0.0), Ranks(64))
    assert found.reserve == Estimate(16.0, 16.0, None).as_result()
    assert found.kind == "stable"


def test_the_reserve_is_one_at_the_threshold(one: Scenario) -> None:
    loud = change(one, noise=change(one.noise, spread=0.6))
    ranks = threshold(WORKLOAD, loud).ranks
    assert ranks is not None
    assert reserve(WORKLOAD, WORKLOAD.at(loud, ranks)).reserve.value == pytest.approx(1.0, abs=0.05)


def test_twice_the_jitter_is_half_the_reserve(one: Scenario) -> None:
    once, twice = (reserve(WORKLOAD, WORKLOAD.scale_jitter(one, times)).reserve.value for times in (1.0, 2.0))
    assert once == pytest.approx(2 * twice, rel=0.05)


def test_pareto_noise_grows_too(one: Scenario) -> None:
    found = reserve(WORKLOAD, change(one, noise=Noise("pareto", tail=2.5, step_spread=0.0, ranks_spread=0.0)))
    assert found.reserve.value < 16


def test_classes_and_words() -> None:
    assert [regime(Estimate(*e)) for e in ((0.9, 0.5, 2.5), (3.0, 1.9, 4.0), (3.0, 2.1, 4.0))] == [
        "unstable", "marginal", "stable",
    ]  # fmt: skip
    assert [word(v) for v in (0.5, 1.0, 1.99, 2.0)] == ["depleted", "thin", "thin", "adequate"]


def test_demand_that_is_served_needs_no_further_accelerator_to_be_stable() -> None:
    found = reserve(Demand(0.0), Ranks(32))
    assert found.reserve.value == pytest.approx(4.0, rel=0.1)
    assert found.kind == "stable"
