"""A modelled accelerator under a power governor, step by step: what an energy feedback loop looks like, and what does not.

Power, clock, temperature and step time of one rank. Load and power vary from step to step; a governor, if there is one,
compares a moving average of power (or the temperature) with its set point after every step and moves the clock, or the
idle time it inserts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np

from taut.core.array_types import Floats

IDLE, STEEP = 0.15, 2.5
"""Share of the board's power that it draws without work; exponent of power over clock."""
BUSY = 0.8
"""Share of a step that the accelerator computes, at full clock and mean load."""
BOARD_W, FULL_MHZ, STEP_MS = 700.0, 1980.0, 200.0
SET_POINT = 0.6
"""Share of the board's power that the governor holds."""
COOL_C, RISE_C, SLUGGISH = 30.0, 60.0, 6.0
"""Temperature without power, what the board's whole power adds to it, and the steps in which it follows."""


@dataclass(frozen=True)
class Accelerator:
    """What varies, and who governs; spreads are shares."""

    governor: Literal["none", "clock", "duty", "heat"] = "none"
    gain: float = 0.0
    """Share by which the clock falls (or a step grows) per share of power above the set point, and step."""
    average: int = 1
    """Steps that the governor averages power over."""
    load: float = 0.05
    load_red: float = 0.5
    jitter: float = 0.02
    power: float = 0.03


@dataclass(frozen=True)
class Played:
    """One value per step."""

    power_w: Floats
    clock_mhz: Floats
    step_ms: Floats
    temperature_c: Floats


def play(what: Accelerator, steps: int, seed: int) -> Played:
    """The steps of an accelerator."""
    rng = np.random.default_rng(seed)
    load, unlike = 1 + red(rng, steps, what.load_red, what.load), red(rng, steps, 0.3, what.power)
    jitter, sensor = what.jitter * np.abs(rng.normal(size=steps)), 0.003 * rng.normal(size=steps)
    power, clock, took = np.zeros(steps), np.zeros(steps), np.zeros(steps)
    heat, felt = np.zeros(steps), SET_POINT
    lever, idle = 1.0, 0.0
    for t in range(steps):
        clock[t] = lever
        busy = BUSY * load[t] / lever
        took[t] = busy + (1 - BUSY) + jitter[t] + idle
        power[t] = IDLE + busy / took[t] * (1 - IDLE) * lever**STEEP * (1 + unlike[t])
        above = power[max(0, t + 1 - what.average) : t + 1].mean() / SET_POINT - 1
        felt += (power[t] - felt) / SLUGGISH
        heat[t] = felt
        if what.governor in ("clock", "heat"):
            above = above if what.governor == "clock" else felt / SET_POINT - 1
            lever = float(np.clip(lever - what.gain * above, 0.4, 1.0))
        elif what.governor == "duty":
            idle = float(np.clip(idle + what.gain * above, 0.0, 3.0))
    return Played(BOARD_W * power, FULL_MHZ * clock * (1 + sensor), STEP_MS * took, COOL_C + RISE_C * heat)


def red(rng: np.random.Generator, steps: int, memory: float, spread: float) -> Floats:
    """Red noise: each value keeps a share of the one before."""
    noise, out = rng.normal(size=steps + 50), np.zeros(steps + 50)
    for t in range(1, steps + 50):
        out[t] = memory * out[t - 1] + noise[t]
    return spread * sqrt(1 - memory**2) * out[50:]
