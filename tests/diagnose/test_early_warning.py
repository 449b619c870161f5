"""Early warning: a series that loses its restoring force is warned of, one that is merely red or merely wild is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau

from build import MS, Do, analyze, barriers, play
from taut.diagnose.early_warning import FALSE_ALARMS, LEAST_STEPS, POINTS, WINDOW, residuals, slowing
from taut.render.analysis_screen import render
from taut.render.terminal import Screen
from taut.run import Analysis


def ar(seed: int, memory: Any, n: int, spread: Any = 1.0) -> Any:
    """AR(1) noise whose memory and innovations may change from step to step."""
    out = np.random.default_rng(seed).standard_normal(n) * spread
    memory = np.broadcast_to(memory, n)
    for k in range(1, n):
        out[k] += memory[k] * out[k - 1]
    return out


def weakening(seed: int, n: int) -> Any:
    return ar(seed, np.linspace(0.2, 0.95, n), n)


def share(seeds: int, series: Any) -> float:
    return float(np.mean([slowing(series(seed)) is not None for seed in range(seeds)]))


def test_a_memory_that_grows_is_warned_of_the_longer_the_surer() -> None:
    found = [share(30, lambda seed, n=n: weakening(seed, n)) for n in (100, 200, 400)]
    assert found[0] < found[1] < found[2]
    assert found[2] > 0.8


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("n", [60, 200])
def test_constant_redness_is_not(memory: float, n: int) -> None:
    """At 1 %, five of 120 have a chance below 1 %."""
    assert share(120, lambda seed: ar(seed, memory, n + 50)[50:]) <= 4 / 120


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_a_variance_that_rises_alone_is_not_both(memory: float) -> None:
    assert share(120, lambda seed: ar(seed, memory, 200) * np.linspace(1, 4, 200)) <= 4 / 120


def test_a_trend_is_taken_out_and_hiccups_are_passed_over() -> None:
    """Neither a drift nor one step of a hundred that takes far longer is a loss of restoring force."""
    assert share(60, lambda seed: ar(seed, 0.5, 200) + np.linspace(0, 10, 200)) <= 2 / 60
    assert share(60, lambda seed: ar(seed, 0.0, 200) + 30 * (np.random.default_rng(seed + 99).random(200) < 0.01)) <= 2 / 60


def test_nothing_leaks_back() -> None:
    """What comes later changes no earlier residual but by the scale of all."""
    y = ar(1, 0.5, 120)
    longer = np.concatenate([y, 50 + y[:30]])
    short, long = residuals(y[None])[0], residuals(longer[None])[0, : len(y) - 10]
    assert np.corrcoef(short, long)[0, 1] > 0.99


def test_taus_are_kendall_s_of_rolling_windows() -> None:
    """Against scipy's, on windows cut by hand."""
    one = slowing(weakening(3, 400))
    assert one is not None
    rest = residuals(weakening(3, 400)[None])[0]
    width = int(WINDOW * len(rest))
    windows = [rest[end - width : end] for end in np.unique(np.linspace(width, len(rest), POINTS).astype(int))]
    memory = [(w[1:] * w[:-1]).sum() / (w * w).sum() for w in windows]
    power = [(w * w).mean() for w in windows]
    expected = [kendalltau(range(len(windows)), values).statistic for values in (memory, power)]
    assert one.tau == pytest.approx(tuple(expected))
    assert one.chance < FALSE_ALARMS


RANKS, STEPS = 4, 300


def job(seed: int, rank: int | None, steps: int = STEPS) -> Analysis:
    """Four ranks that compute and reduce; one of them, or all together, recover ever more slowly."""
    work = 100 + 0.1 * np.random.default_rng(seed).standard_normal((steps, RANKS))
    weak = 0.5 * weakening(seed + 1, steps)
    work[:, range(RANKS) if rank is None else [rank]] += weak[:, None]
    return analyze(barriers(MS * work, 5 * MS))


@pytest.mark.parametrize("rank", [None, 2])
def test_the_result_says_whose_series_it_is(rank: int | None) -> None:
    entries = [job(seed, rank).result["early_warning"] for seed in range(6)]
    named = [entry[0]["rank"] for entry in entries if entry]
    assert len(named) >= 2
    assert set(named) == {rank}


def test_a_warning_is_no_finding_and_one_quiet_line() -> None:
    done = next(done for done in (job(seed, 2) for seed in range(6)) if done.result["early_warning"])
    entry = done.result["early_warning"][0]
    first, last = entry["steps"]
    assert first == 0
    assert last >= STEPS // 2
    assert entry["autocorrelation"][1] > entry["autocorrelation"][0]
    assert entry["variance_ratio"] > 1
    assert entry["confidence"] > 0.99
    assert done.findings == []
    text = " ".join(render(done.result, Screen(width=120)).split())
    assert f"early warning, no finding yet: rank 2 (node), steps 0–{last}: from one step" in text


def test_short_runs_are_not_tested() -> None:
    assert job(1, 2, LEAST_STEPS - 1).result["early_warning"] is None
    assert job(1, None, LEAST_STEPS).result["early_warning"] is not None


def test_a_degradation_after_an_early_warning_says_so() -> None:
    """The memory of rank 2 grows for 250 steps, then its work does: what is known to have changed is not looked at."""
    warned = []
    for seed in range(6):
        work = 100 + 0.5 * np.random.default_rng(seed).standard_normal((STEPS, RANKS))
        work[:250, 2] += 0.5 * weakening(seed + 1, 250)
        work[250:, 2] += np.arange(1, STEPS - 249)
        found = analyze(barriers(MS * work, 5 * MS)).findings
        assert [(f.mode, f.ranks) for f in found] == [("silent degradation", (2,))]
        warned.append("there was an early warning" in found[0].because)
    assert sum(warned) >= 2


def test_a_lone_rank_has_a_job_series_only() -> None:
    entry = analyze(play([Do(0, "fwd", round(100 * MS + MS * y), step=k) for k, y in enumerate(weakening(3, 400))]))
    assert [one["rank"] for one in entry.result["early_warning"]] == [None]
