"""How much jitter a scenario still bears."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from taut.project.reserve import regime, reserve, word
from taut.project.threshold import threshold
from taut.project.training.scenario import Noise, Scenario, parse
from taut.project.training.workload import WORKLOAD
from taut.project.workload import Estimate, Workload
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


def job(slope: float) -> Workload:
    """A job whose every rank takes 1 + slope × jitter."""

    def nothing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def at(s: tuple[int, float], ranks: int) -> tuple[int, float]:
        return ranks, s[1]

    return Workload(
        "job", lambda *_: ((1, 1.0), []), lambda s: s[0], at, nothing, lambda s, times: (s[0], s[1] * times),
        lambda s, seed: s[0] / (1 + slope * s[1]), smallest=lambda s: 1,
    )  # fmt: skip


@pytest.mark.parametrize(("slope", "bears"), [(0.1, 10.0), (0.5, 2.0), (0.8, 1.25), (2.0, 0.5), (4.0, 0.25)])
def test_jitter_that_doubles_the_step_is_the_reserve(slope: float, bears: float) -> None:
    """T = 1 + slope · k, the same on any number of ranks: half of T(0) ÷ T is reached at k = 1 ÷ slope."""
    found = reserve(job(slope), (64, 1.0))
    assert found.reserve.value == pytest.approx(bears, rel=0.05)
    assert found.word == ("adequate" if bears >= 2 else "thin" if bears >= 1 else "depleted")
    assert (found.kind == "unstable") is (bears < 1)


def test_a_job_that_jitter_does_not_touch_bears_the_most_that_is_tried() -> None:
    found = reserve(job(0.0), (64, 1.0))
    assert found.reserve == Estimate(16.0, 16.0, None)
    assert found.kind == "stable"


def test_the_reserve_is_one_at_the_threshold(one: Scenario) -> None:
    loud = change(one, noise=change(one.noise, spread=0.6))
    ranks = threshold(WORKLOAD, loud).ranks
    assert ranks is not None
    assert reserve(WORKLOAD, WORKLOAD.at(loud, ranks)).reserve.value == pytest.approx(1.0, abs=0.05)


def test_twice_the_jitter_is_half_the_reserve(one: Scenario) -> None:
    once, twice = (reserve(WORKLOAD, WORKLOAD.louder(one, times)).reserve.value for times in (1.0, 2.0))
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
    """Thirty-two ranks serve a demand of 32 whatever is added, and half of it at four times the jitter."""
    served = dataclasses.replace(
        job(0.0), rate=lambda s, seed: min(32.0 / (1 + (s[1] > 0) * s[1] / 4), s[0]), demand=lambda s: True,
        smallest=lambda s: 32,
    )  # fmt: skip
    found = reserve(served, (32, 1.0))
    assert found.reserve.value == pytest.approx(4.0, rel=0.1)
    assert found.kind == "stable"
