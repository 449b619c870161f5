"""Pauses come as often, as long and to as many ranks at once as the keys of the noise say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.project.noise import GRID, mixture, odds, scaled
from taut.project.pauses import ALL, Law, Pauses, forced, laws, rare, reach
from taut.project.training.forecast import forecast
from taut.project.training.scenario import Noise, Scenario, parse
from taut.read.scenario_file import load

MS = 1_000_000
NOISE = Noise("none", step_spread=0.0, ranks_spread=0.0, hiccups_per_1000_steps=10.0, hiccup_ms=100.0)


def added(law: Law, shape: tuple[int, int, int], steps: int, seed: int = 0) -> Any:
    """Steps × replicas × stages."""
    pauses = Pauses((law,), shape, seed)
    return np.stack([pauses(k)[0] for k in range(steps)])


def small(**noise: Any) -> Scenario:
    table, text = load("gpt-175b")
    table["model"] = {**table["model"], "layers": 8, "hidden": 2048, "heads": 16}
    table["job"] = {"global_batch": 32, "dp": 8, "tp": 2, "pp": 2}
    table["noise"] = {"distribution": "none", "step_spread": 0.0, "ranks_spread": 0.0, **noise}
    return parse(table, "small", text)[0]


def test_the_keys_become_laws() -> None:
    together = replace(NOISE, hiccups_together="host", hiccups_together_share=0.25)
    assert laws(together, 8, 32, 1e9) == (Law(1, 0.0075, 100 * MS), Law(8, 0.0025, 100 * MS))
    periodic = Noise(periodic_every_s=60.0, periodic_ms=5.0, periodic_together="job")
    assert laws(periodic, 8, 32, 6e9) == (Law(ALL, 0.1, 5 * MS, regular=True),)
    assert laws(scaled(together, 0.0), 8, 32, 1e9) == ()
    assert laws(scaled(NOISE, 3.0), 8, 32, 1e9)[0].mean_ns == 300 * MS


@pytest.mark.parametrize("steps", [1.0, 4.0])
@pytest.mark.parametrize("ranks", [1, 2, 8, 32, ALL])
def test_every_rank_has_its_rate_whoever_pauses_with_it(ranks: int, steps: float) -> None:
    seen = added(Law(ranks, 0.01, 100.0, 0.5, steps), (16, 4, 2), 3000)
    # Pauses of both members of a group add where they come apart, and count once where they come together.
    expected = 100.0 * 0.01 * steps * (2 if ranks == 1 else 1)
    units = max(128 // min(ranks, 128), 1)
    error = expected / np.sqrt(3000 * units * 0.01 / (steps * 1.25)) if units else 0.0
    assert seen.mean() == pytest.approx(expected, abs=4 * error)


def test_those_who_pause_together_are_neighbours() -> None:
    seen = added(Law(8, 0.01, 100.0), (16, 4, 2), 500) > 0
    hosts = seen.transpose(0, 2, 1).reshape(500, 16, 4)  # stages outside, then replicas, four groups to a host
    assert (hosts.any(axis=2) == hosts.all(axis=2)).all()
    assert hosts.any()
    whole = added(Law(ALL, 0.05, 100.0), (16, 4, 2), 500).reshape(500, -1)
    assert (whole == whole[:, :1]).all()


def test_hiccups_that_last_go_on_in_the_next_step() -> None:
    seen = added(Law(1, 0.002, 100.0, steps=5.0), (64, 1, 1), 2000)[:, :, 0] > 0
    stays = (seen[1:] & seen[:-1]).sum() / seen[:-1].sum()
    assert stays == pytest.approx(0.8, abs=0.05)


def test_regular_pauses_are_counted_exactly() -> None:
    for ranks, each in ((1, 2), (2, 1)):
        seen = added(Law(ranks, 0.3, 10.0, regular=True), (4, 2, 2), 1000)
        assert (abs(seen.sum(axis=0) / 10 - 300 * each) <= each).all()
    often = added(Law(1, 2.5, 10.0, regular=True), (4, 1, 1), 10)
    assert set(np.unique(often)) == {20.0, 30.0}


def test_forced_events_have_the_counts_of_those_that_have_any() -> None:
    one = reach(Law(1, 0.1, 1.0), (1000, 3, 2))
    more, _ = forced(rare((one,), 1), (100_000, 3, 2), 1, np.random.default_rng(0))
    per_replica = more[0].sum(axis=1)
    assert (per_replica >= 1).all()
    assert per_replica.mean() == pytest.approx(0.6 / -np.expm1(-0.6), rel=0.01)


def test_a_mixture_has_the_quantiles_of_its_parts() -> None:
    body, other = odds(GRID)[0], 10 + odds(GRID)[0]
    both = mixture(body, other, 0.01)
    at = np.interp(np.log([0.5, 0.98, 0.995]) - np.log1p([-0.5, -0.98, -0.995]), GRID, both)
    assert at == pytest.approx([0.5 / 0.99, 0.98 / 0.99, 10.5], abs=2e-3)


def test_steps_of_a_forecast_have_them() -> None:
    quiet, noisy = forecast(small(), count=4), forecast(small(hiccups_per_1000_steps=5.0, hiccup_ms=200.0), count=2000)
    late = noisy.step_ns - quiet.step_ns[0]
    assert (late > 50 * MS).mean() == pytest.approx(-np.expm1(-0.005 * 32), abs=0.035)
    assert late.max() > 150 * MS
    cascades = noisy.indices()["straggler_cascade_rate"]
    assert cascades is not None
    assert cascades.value == pytest.approx(0.148, abs=0.06)


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        ({"hiccup_ms": 5.0}, "hiccups have a rate and a length"),
        ({"periodic_ms": 5.0}, "regular pauses have a period and a length"),
        ({"hiccups_together": "host"}, "there are no hiccups"),
        ({"hiccup_steps": 0.5, "hiccup_ms": 5.0, "hiccups_per_1000_steps": 1.0}, "hiccup_steps"),
    ],
)
def test_keys_that_do_nothing_are_refused(noise: dict[str, Any], says: str) -> None:
    with pytest.raises(InputRefused, match=says):
        small(**noise)
