"""Demand: requests that arrive at a rate that changes, whatever the system does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taut.project.loops.scenario import Demand
from taut.project.loops.simulation import Simulation

if TYPE_CHECKING:
    from taut.project.loops.simulation import Process

TINY_S = 1e-6
"""Steps over an edge that rounding puts where the clock already is."""


def rate(d: Demand, at_s: float) -> float:
    """Requests a second at a time."""
    turn, grown = int(at_s // d.period_s), 1 + d.growth_per_hour * at_s / 3600
    if d.shape == "steps":
        return d.steps_per_s[turn % len(d.steps_per_s)] * grown
    if d.shape == "square" and (at_s % d.period_s) >= d.period_s / 2:
        return (d.peak_per_s or d.per_s) * grown
    return d.per_s * grown


def arrive(sim: Simulation, enter: Callable[[], None]) -> Process:
    """Let requests in one by one. Time between two is drawn in units of the rate, so that a change is felt at once."""
    d, env = sim.scenario.demand, sim.env
    gaps = sim.draws("demand", d.spread)
    edge = d.period_s if d.shape == "steps" else d.period_s / 2
    while True:
        left = next(gaps)  # in units of the mean gap: the integral of the rate until the next arrival
        while left > 0:
            now = rate(d, env.now)
            until = max((env.now // edge + 1) * edge - env.now, TINY_S)
            if now * until > left or d.shape == "constant":
                yield env.timeout(left / max(now, 1e-9))
                break
            yield env.timeout(until)
            left -= now * until
        enter()
