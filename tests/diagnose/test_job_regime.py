"""Reserve, regime and envelope against what theory says of barrier-synchronous jobs."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import MS, analyze, barriers, job
from taut.diagnose.failure_envelope import envelope
from taut.diagnose.job_regime import regime
from taut.diagnose.more_ranks import largest
from taut.run import Analysis


def work(noise: float, ranks: int = 32, steps: int = 40, seed: int = 0) -> Any:
    return 10 * MS * np.maximum(1 + noise * np.random.default_rng(seed).standard_normal((steps, ranks)), 0)


def normal_maximum(n: int) -> float:
    """Expected largest of n standard normal draws, by integration."""
    x = np.linspace(-8, 8, 20001)
    cdf = np.array([NormalDist().cdf(v) for v in x])
    return float(np.trapezoid(1 - cdf**n, x) - 8)


@pytest.mark.parametrize(("noise", "ranks"), [(0.02, 32), (0.1, 32), (0.1, 8), (0.25, 64)])
def test_the_next_accelerator_brings_what_theory_says(noise: float, ranks: int) -> None:
    found = analyze(barriers(work(noise, ranks, 60))).result["regime"]["marginal_return"]
    now, twice = (1 + noise * normal_maximum(n) for n in (ranks, 2 * ranks))
    assert found["value"] == pytest.approx((1 - np.log2(twice / now)) / now, abs=0.03)
    assert found["lo"] <= found["value"] <= found["hi"]


@given(noise=st.floats(0.1, 0.3), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_twice_the_jitter_leaves_half_the_reserve(noise: float, seed: int) -> None:
    once, twice = (analyze(barriers(work(n, 16, 40, seed))).result["regime"]["reserve"]["value"] for n in (noise, 2 * noise))
    assert twice == pytest.approx(once / 2, rel=0.3)


@pytest.mark.parametrize(("noise", "kind"), [(0.01, "stable"), (0.25, "marginal"), (1.0, "unstable")])
def test_classes(noise: float, kind: str) -> None:
    rng = np.random.default_rng(4)
    took = 10 * MS * np.exp(noise * rng.standard_normal((60, 32)))
    assert analyze(barriers(took)).result["regime"]["class"] == kind


def test_a_culprit_is_mended_first() -> None:
    took = work(0.02)
    took[:, 3] *= 2
    healthy, slow = analyze(barriers(work(0.02))), analyze(barriers(took))
    assert slow.findings
    assert slow.result["regime"]["class"] == "stable"
    ours, theirs = (a.result["regime"]["marginal_return"]["value"] for a in (slow, healthy))
    assert ours == pytest.approx(theirs, abs=0.02)


def test_what_pays_may_be_asked() -> None:
    done = analyze(barriers(work(0.1)))
    dear, cheap = (regime(done.batch, done.blame, done.findings, pays) for pays in (0.9, 0.1))
    assert dear["class"] == "unstable"
    assert cheap["class"] == "stable"
    assert dear["reserve"]["value"] < cheap["reserve"]["value"]


def test_too_little_tells_no_regime() -> None:
    for done in (analyze(job({0: "fwd 5 | AR 1", 1: "fwd 6 | AR 1"}, 2)), analyze(job({0: "fwd 5"}, 9))):
        assert done.result["regime"]["class"] is None
        assert done.result["regime"]["reserve"] is None
        assert envelope(done.batch, done.blame, done.findings) is None


@pytest.mark.parametrize("n", [2, 8, 64, 2000])
def test_largest_of_many_draws(n: int) -> None:
    pool = np.array([NormalDist().inv_cdf((i + 0.5) / 4000) for i in range(4000)])
    assert largest(pool, n) == pytest.approx(normal_maximum(n), abs=0.12)


def mapped(done: Analysis) -> dict[str, Any]:
    found = envelope(done.batch, done.blame, done.findings)
    assert found is not None
    return found


def test_the_point_is_where_the_job_was_put() -> None:
    rng = np.random.default_rng(2)
    ranks = 1 + 0.08 * rng.standard_normal(64)
    point = mapped(analyze(barriers(10 * MS * ranks * (1 + 0.01 * rng.standard_normal((30, 64))), MS)))["point"]
    assert point["ranks"]["value"] == 64
    assert point["intensity"]["value"] == 1
    assert point["heterogeneity"]["value"] == pytest.approx(0.08, rel=0.25)
    assert point["heterogeneity"]["lo"] <= point["heterogeneity"]["value"] <= point["heterogeneity"]["hi"]


def at(found: dict[str, Any], *place: int) -> dict[str, Any]:
    """Row of the map at the n-th value of each axis."""
    axes = [sorted({row[key] for row in found["map"]}) for key in ("ranks", "heterogeneity", "intensity")]
    wanted = [axis[n] for axis, n in zip(axes, place, strict=True)]
    return next(row for row in found["map"] if [row["ranks"], row["heterogeneity"], row["intensity"]] == wanted)


HERE = (0, 1, 0)
"""The job itself: the ranks it has, as unequal as they are, with the gates it has."""


def test_the_map_names_what_dominates() -> None:
    quiet = mapped(analyze(barriers(work(0.01), 6 * MS)))
    assert at(quiet, *HERE)["dominates"] == "transfer"
    loud = mapped(analyze(barriers(work(0.2), MS // 100)))
    assert at(loud, *HERE)["dominates"] == "jitter wait"
    took = work(0.01)
    took[:, 7] *= 2
    assert at(mapped(analyze(barriers(took, MS))), *HERE)["dominates"] == "fault wait"


def test_losses_grow_along_every_axis() -> None:
    rng = np.random.default_rng(5)
    uneven = 10 * MS * (1 + 0.05 * rng.standard_normal(16)) * (1 + 0.05 * rng.standard_normal((30, 16)))
    found = mapped(analyze(barriers(uneven, MS)))
    here = at(found, *HERE)["loss_share"]
    for further in ((2, 1, 0), (0, 3, 0), (0, 1, 2)):
        assert at(found, *further)["loss_share"] > here + 0.01


def test_the_map_begins_with_the_job_as_it_was() -> None:
    """At the job's own point the wall is the observed one: the losses are shares of it."""
    took = work(0.1)
    done = analyze(barriers(took, MS))
    even = took.mean(axis=1).sum() / done.observed.wall_ns
    assert at(mapped(done), *HERE)["loss_share"] == pytest.approx(1 - even, abs=0.02)


def test_cells_name_failure_modes_and_where_they_overlap() -> None:
    """Ranks that differ by 2 % for good and jitter of 8 %: the price of synchrony here, imbalance where they differ more."""
    rng = np.random.default_rng(5)
    uneven = 10 * MS * (1 + 0.02 * rng.standard_normal(16)) * (1 + 0.08 * rng.standard_normal((40, 16)))
    found = mapped(analyze(barriers(uneven, MS // 100)))
    here, between, beyond = (at(found, 0, spread, 0) for spread in (1, 2, 3))
    assert here["modes"] == ["structural instability"]
    assert between["modes"] == ["structural instability", "work imbalance"]
    assert beyond["modes"] == ["work imbalance"]
    for cell in (here, between, beyond):
        share = cell["losses"]["structural instability"]
        assert share["lo"] <= share["value"] <= share["hi"]
        assert sum(one["value"] for one in cell["losses"].values()) == pytest.approx(cell["loss_share"], abs=0.01)


def test_a_finding_s_own_mode_stands_for_what_mending_it_gives() -> None:
    took = work(0.01)
    took[:, 7] *= 2
    assert at(mapped(analyze(barriers(took, MS))), *HERE)["modes"] == ["straggler cascade"]


def test_nothing_dominates_where_nothing_is_lost() -> None:
    cell = at(mapped(analyze(barriers(work(0.001), 1000))), *HERE)
    assert cell["modes"] == []


@pytest.mark.parametrize("hiccups", [False, True])
def test_the_map_says_of_more_ranks_what_larger_jobs_lose(hiccups: bool) -> None:
    def drawn(ranks: int, steps: int, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        took = 100 * MS * (1 + (0.01 if hiccups else 0.05) * rng.standard_normal((steps, ranks)))
        return took + 150 * MS * (rng.random((steps, ranks)) < (0.003 if hiccups else 0.0))

    found = [mapped(analyze(barriers(drawn(32, 150, seed), MS // 10))) for seed in range(3)]
    for place, ranks in ((1, 128), (2, 512)):
        took = drawn(ranks, 1000, 99)
        lost = 1 - took.mean() / took.max(axis=1).mean()
        said = np.mean([at(one, place, 1, 0)["loss_share"] for one in found])
        assert said == pytest.approx(lost, rel=0.15)
