"""Energy feedback loops: found where a governor closes one, silent where power and step time only look alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from governor import Accelerator, Played, play, red
from taut.core.lagged import goes_with, leads
from taut.diagnose.energy import FALSE_ALARMS, MODE, loops
from taut.diagnose.finding import Finding
from taut.diagnose.metric_steps import Steps
from taut.run import analyze

BEGIN_NS = 1_700_000_000_000_000_000


def written(folder: Path, ranks: list[Played], names: tuple[str, ...], every: int = 1) -> Path:
    """Step times and metrics as files: four samples a step, or one in ``every`` steps."""
    steps, samples = ["worker,step,step_time_ms,start_ns"], ["time_ns,component,metric,value"]
    for rank, one in enumerate(ranks):
        begin = BEGIN_NS
        for step, took in enumerate(one.step_ms.tolist()):
            steps.append(f"{rank},{step},{took:.6f},{begin}")
            for part in range(4) if every == 1 else range(step % every == 0):
                at = begin + int((0.1 + 0.2 * part) * took * 1e6)
                samples += [f"{at},rank {rank},{name},{getattr(one, name)[step]:.4f}" for name in names]
            begin += int(max(r.step_ms[step] for r in ranks) * 1e6)
    (folder / "steps.csv").write_text("\n".join(steps))
    (folder / "metrics.csv").write_text("\n".join(samples))
    return folder


def found(folder: Path) -> list[Finding]:
    return [f for f in analyze([folder]).findings if f.mode == MODE]


POWER, CLOCK = ("power_w",), ("power_w", "clock_mhz")


@pytest.mark.parametrize(("governor", "gain", "names"), [("clock", 0.8, CLOCK), ("duty", 1.6, POWER), ("duty", 1.6, CLOCK)])
def test_a_governor_that_swings_is_found_on_its_rank(
    tmp_path: Path, governor: Any, gain: float, names: tuple[str, ...]
) -> None:
    swings = play(Accelerator(governor=governor, gain=gain), 200, seed=1)
    calm = play(Accelerator(), 200, seed=2)
    (finding,) = found(written(tmp_path, [calm, swings], names))
    assert finding.ranks == (1,)
    assert finding.confidence > 0.99
    assert finding.recoverable_wall_ns > 0
    assert "gain of" in finding.because


def test_the_gain_is_that_of_the_governor() -> None:
    """Power falls with the 2.5th power of the clock but busy time grows: about 1.25 per share of clock at this load."""
    for gain in (0.2, 0.4, 0.8):
        one = play(Accelerator(governor="clock", gain=gain), 600, seed=3)
        by_clock = loops(Steps(one.step_ms, one.step_ms, {name: getattr(one, name) for name in CLOCK}, np.arange(600)))[1]
        assert by_clock.gain["lo"] <= by_clock.gain["value"] <= by_clock.gain["hi"]
        assert by_clock.gain["value"] == pytest.approx(1.25 * gain, rel=0.15)


@pytest.mark.parametrize("names", [POWER, CLOCK])
def test_power_that_follows_the_load_is_silent(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Near-miss: step time and power both follow a slow load, and nobody governs."""
    assert found(written(tmp_path, [play(Accelerator(load=0.1, load_red=0.9), 200, seed) for seed in (1, 2)], names)) == []


def test_a_governor_that_settles_is_silent(tmp_path: Path) -> None:
    """Near-miss: a power cap that holds the clock down without swinging is a cap, not a loop near its edge."""
    assert found(written(tmp_path, [play(Accelerator(governor="clock", gain=0.1), 200, seed=1)], CLOCK)) == []


def test_a_clock_that_does_not_matter_is_silent() -> None:
    """Near-miss: the governor closes its loop, but the step is bound by memory: no step gets longer."""
    one = play(Accelerator(governor="clock", gain=0.8), 200, seed=1)
    step = 200 + red(np.random.default_rng(5), 200, 0.5, 5.0)
    tested = loops(Steps(step, step, {name: getattr(one, name) for name in CLOCK}, np.arange(200)))
    assert min(loop.chance for loop in tested) > FALSE_ALARMS


def test_sensors_slower_than_steps_are_read_in_blocks(tmp_path: Path) -> None:
    slow = play(Accelerator(governor="clock", gain=0.8, average=4), 200, seed=1)
    assert found(written(tmp_path, [slow], CLOCK, every=8)) == []  # 25 blocks tell nothing


def test_no_metrics_no_finding(tmp_path: Path) -> None:
    folder = written(tmp_path, [play(Accelerator(governor="clock", gain=0.8), 100, seed=1)], CLOCK)
    (folder / "metrics.csv").unlink()
    assert found(folder) == []


@pytest.mark.parametrize("null", ["red", "heavy", "square"])
def test_an_edge_keeps_its_size_on_series_that_share_nothing(null: str) -> None:
    """At 5 %, over 200 seeds: at most 7.5 %, and what chance adds to that."""
    rng = np.random.default_rng(0)
    n, alarms = 150, 0
    for _ in range(200):
        if null == "red":
            x, y = (red(rng, n, 0.8, 1.0) for _ in range(2))
        elif null == "heavy":
            x, y = rng.standard_t(2, (2, n))
        else:
            lag = rng.integers(0, 20, 2)
            x, y = (np.where((np.arange(n) + k) % 20 < 10, 1.0, -1.0) + rng.normal(size=n) for k in lag)
            from taut.core.lagged import without_period

            x, y = without_period([x, y])
        alarms += leads(x, y, 1).chance <= 0.05
    assert alarms <= 0.075 * 200 + 8


def test_an_edge_is_found_with_its_slope_and_its_sign() -> None:
    rng = np.random.default_rng(1)
    x = red(rng, 300, 0.5, 1.0)
    y = np.concatenate([[0.0], 0.5 * x[:-1]]) + 0.5 * rng.normal(size=300)
    lead = leads(x, y, 1)
    assert lead.chance < 1e-6
    assert lead.slope == pytest.approx(0.5, abs=3 * lead.error)
    assert leads(x, y, -1).chance > 0.5
    assert goes_with(x, x + rng.normal(size=300), 1).chance < 1e-6
