"""Published availability and tails, held against taut (the tables of validation/)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.project.noise import table
from taut.project.requests.fan_out import fan_out, percentile, through
from taut.project.training.forecast import forecast
from taut.project.training.scenario import Noise

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

import availability
import network
import oversubscription
import step_times
import tail

EXPONENTIAL = table(Noise("exponential", 1.0))


@pytest.fixture
def published(shared: Path) -> Path:
    return shared.parent / "validation"


@pytest.mark.parametrize("check", availability.CHECKS, ids=lambda c: c.__name__)
def test_published_availability_is_reproduced(published: Path, check: Callable[[Path], Iterator[availability.Row]]) -> None:
    wrong = [line for line, right in map(availability.shown, check(published)) if not right]
    assert not wrong


def test_more_than_nine_tenths_of_the_time_are_kept_under_the_stated_assumptions(published: Path) -> None:
    kept = {quantity.partition(" (")[0]: ours for _, quantity, _, ours, _ in availability.llama(published)}
    assert kept["effective time, assumed: saves of 10 s, 2 min to detect, 64 spares"] > 0.9
    assert kept["effective time, assumed: no spares"] < 0.3


@pytest.mark.parametrize(
    ("kind", "count", "most"),
    [("dense, sixteen bits", 28, 0.05), ("dense, eight bits", 28, 0.12), ("mixture of few experts", 6, 0.15)],
)
def test_steps_on_h100_are_met_with_the_default_noise(published: Path, kind: str, count: int, most: float) -> None:
    chosen = [row for row in step_times.dgx_cloud(published) if row.kind == kind]
    off = [float(forecast(row.scenario(), count=5).step_ns.mean()) / 1e9 / row.seconds - 1 for row in chosen]
    assert len(off) == count
    assert sum(map(abs, off)) / len(off) < most


def test_a_row_is_a_scenario_file_and_its_interval_is_scored(tmp_path: Path) -> None:
    table = {"model": {"layers": 2, "hidden": 512, "heads": 8, "sequence": 512, "flash_attention": True}, "fabric": "h100-ndr",
             "job": {"global_batch": 16, "dp": 8, "sharding": "zero3"}, "device": "h100-80g"}  # fmt: skip
    (held,) = step_times.held_against([step_times.Row("a paper", "a job", table, 1.0)], tmp_path)
    low, high = held.interval
    assert (held.row.kind, held.row.device) == ("sharded parameters", "H100")
    assert held.scored(held.interval) == pytest.approx((0, log(high / low) + 10 * log(1.0 / high)))
    assert 'class = "sharded parameters"' in step_times.errors_toml([held])


def test_independent_leaves_fall_short_of_measured_ones(published: Path) -> None:
    rows = {quantity: (theirs, ours) for quantity, theirs, ours in tail.fanned(published)}
    theirs, most = rows["lognormal, however dependent: 95 % done, p50 at most"]
    assert theirs > most, "not even leaves that are late together explain it"
    theirs, ours = next(v for k, v in rows.items() if k.startswith("lognormal") and k.endswith("leaves: 100 % done, p99"))
    assert 0.7 * theirs < ours < theirs


@given(st.integers(1, 100_000), st.sampled_from([0.1, 0.5, 0.99]))
def test_leaves_are_found_again_from_the_slowest(leaves: int, chance: float) -> None:
    assert tail.leaves_for(EXPONENTIAL, chance, percentile(fan_out(EXPONENTIAL, leaves), chance)) == pytest.approx(
        leaves, rel=1e-2
    )


def test_leaves_that_are_late_together_are_not_late_more_often() -> None:
    """Twenty leaves that are all late in the same twentieth of the requests: the bound is reached, not passed."""
    late = through({0.5: 1.0, 0.95: 10.0})
    assert tail.at_most(late, 0.95, 0.5) == pytest.approx(percentile(late, 0.975))
    assert tail.at_most(late, 0.0, 0.5) == pytest.approx(percentile(late, 0.5)), "late together"


def test_hedging_is_bracketed_by_two_tails_through_the_same_points(published: Path) -> None:
    ours = [row[2] for row in tail.hedging(published) if "1000 requests" in row[0]]
    assert min(ours) < 74 < max(ours)


def test_a_cost_sheet_of_clusters_is_reproduced_at_every_size() -> None:
    for devices, theirs, ours, share, counted, _ in network.rows():
        assert ours == theirs
        assert devices in network.CALIBRATED or counted == pytest.approx(share)


def test_locality_decides_whether_oversubscription_hurts() -> None:
    """A packet simulator: 2.59 times as long at 4:1 for ranks out of ring order, 1.005 times at 8:1 for ranks in order."""
    times = {(ranks, over): (packed, scattered) for ranks, over, packed, scattered, *_ in oversubscription.rows()}
    assert times[16, 4][1] / times[16, 1][1] == pytest.approx(2.59, rel=0.1)
    assert times[128, 8][0] / times[128, 1][0] == pytest.approx(1.005, rel=0.01)
    assert times[128, 8][1] > 6 * times[128, 1][1]
