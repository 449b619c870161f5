"""Reserve and regime of a scenario: how much jitter may still grow before one more accelerator stops paying.

The same rule as for a measured run (``diagnose/job_regime.py``, docs/indices.md), with the jitter of the scenario scaled
instead of a graph's. Where demand is given, it may well be served without one more accelerator; there the reserve is how much
jitter may grow before those that there are do not pay, on average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import Generic

import numpy as np

from taut.core.array_types import Floats
from taut.project.marginal_gain import PAYS, Curve, Rule, rule, spread
from taut.project.policy import S
from taut.project.workload import DEFAULT, Estimate, Sampling, Workload
from taut.result.types import Regime

# Stable: jitter may surely grow this many times. Unstable: one more accelerator does not pay today (reserve below 1).
STABLE = 2.0
# Factors of jitter that are tried; a reserve beyond the last is said to be at least that.
UP, DOWN = (4.0, 16.0), (0.5, 0.25, 0.0)
GIVEN = "accelerators pay while they add on average at least that share of what they add at best, without jitter"
# Factors on both sides of the reserve come as near to each other as this.
NEAR = 2.0


@dataclass
class Jittered(Generic[S]):
    """A scenario with its jitter scaled, at any scale: what scales have in common is drawn once."""

    kind: Workload[S]
    scenario: S
    how: Sampling = DEFAULT
    known: dict[float, Curve[S]] = field(default_factory=dict)
    """Curves by the factor of jitter, so far."""

    def curve(self, factor: float) -> Curve[S]:
        """Rates with so many times the jitter."""
        if factor not in self.known:
            scaled = self.scenario if factor == 1 else self.kind.scale_jitter(self.scenario, factor)
            self.known[factor] = Curve(self.kind, scaled, self.how)
        return self.known[factor]


def reserve(kind: Workload[S], s: S, how: Sampling = DEFAULT, *, pays: float = PAYS, decision: Rule[S] | None = None) -> Regime:
    """The factor of jitter at which one more accelerator stops paying, at its own scale; ``decision``: the rule, if known."""
    return reserve_at(Jittered(kind, s, how), decision or rule(kind, s, how, pays), kind.ranks(s))


def reserve_at(jittered: Jittered[S], decision: Rule[S], own: int) -> Regime:
    """The same on so many ranks."""
    fixed, gain = jittered.kind.has_fixed_demand(jittered.scenario), _gain_at(jittered, decision, own)
    if gain is None:  # the job has one scale, and nothing can be said of one more accelerator
        return Regime(kind=None, reserve=None, marginal_return=None, pays=decision.share, rule=decision.text)
    points = {1.0: gain(1.0)}
    # Upwards where one more pays today, else downwards; the first change of sign ends the search.
    for times in UP if points[1.0][0] >= 1 else DOWN:
        points[times] = gain(times)
        if (points[times][0] >= 1) != (points[1.0][0] >= 1):
            break
    while (middle := _between(points)) is not None:
        points[middle] = gain(middle)
    found = _crossing(points)
    width, today = spread(found), points[1.0] * decision.share
    value = float(found[0])
    estimate = Estimate(value, max(value - width, 0.0), None if value + width >= UP[-1] else value + width)
    near = spread(today)
    return Regime(
        kind=regime(estimate),
        word=word(value),
        reserve=estimate.as_result(),
        marginal_return=Estimate(float(today[0]), float(today[0]) - near, float(today[0]) + near).as_result(),
        pays=decision.share,
        rule=GIVEN if fixed else decision.text,
    )


def _gain_at(jittered: Jittered[S], decision: Rule[S], own: int) -> Callable[[float], Floats] | None:
    """What one more brings over what it must on so many ranks, as a function of how many times the jitter there is.

    None where the job has one scale only.
    """
    fixed = jittered.kind.has_fixed_demand(jittered.scenario)
    scales = () if fixed else _neighbouring_ranks(jittered.curve(1.0), decision, own)
    if not fixed and not scales:
        return None

    def gain(factor: float) -> Floats:
        jittery = jittered.curve(factor)
        if fixed:
            return decision.mean_gain(jittery, own)
        found = [back for ranks in scales if (back := decision.gain(jittery, ranks)) is not None]
        return np.asarray(np.mean(found, axis=0))

    return gain


def regime_at(jittered: Jittered[S], decision: Rule[S], own: int) -> str | None:
    """The class on so many ranks, without the reserve: does one more pay, today and surely with ``STABLE`` times the jitter?"""
    gain = _gain_at(jittered, decision, own)
    if gain is None:
        return None
    if gain(1.0)[0] < 1:
        return "unstable"
    grown = gain(STABLE)
    return "stable" if grown[0] - spread(grown) >= 1 else "marginal"


def regime(found: Estimate) -> str:
    """The class of a reserve."""
    if found.value < 1:
        return "unstable"
    return "stable" if (found.value if found.lo is None else found.lo) >= STABLE else "marginal"


def word(value: float) -> str:
    """The reserve in a word."""
    return "depleted" if value < 1 else "thin" if value < STABLE else "adequate"


def _neighbouring_ranks(curve: Curve[S], decision: Rule[S], ranks: int) -> tuple[int, ...]:
    """Ranks that with twice as many lie around these. Where they cannot be dealt, the two that lie as far below and above:
    their mean is what a threshold takes there. Or the one of them that can; none where the job has this scale only."""
    least = curve.kind.smallest(curve.scenario)
    below = max(round(ranks / sqrt(2) / least), 1) * least
    if decision.gain(curve, below) is not None:
        return (below,)
    beside = [n for n in (max(ranks // 2, least), ranks) if decision.gain(curve, n) is not None]
    return tuple(beside) or ((least,) if decision.gain(curve, least) is not None else ())


def _between(points: dict[float, Floats]) -> float | None:
    """The factor midway between those around the crossing; None where they are near, or nothing is crossed."""
    at = sorted(points)
    paid = [points[k][0] >= 1 for k in at]
    i = next((i for i in range(1, len(at)) if paid[i - 1] and not paid[i]), None)
    if i is None or at[i - 1] == 0 or at[i] / at[i - 1] < NEAR:
        return None
    return sqrt(at[i - 1] * at[i])


def _crossing(points: dict[float, Floats]) -> Floats:
    """The factor at which the return falls below what pays, for each set of seeds, linear between factors."""
    at = np.array(sorted(points))
    back = np.stack([points[k] for k in at])
    out = np.empty(back.shape[1])
    for k in range(back.shape[1]):
        short = np.flatnonzero(back[:, k] < 1)
        if not len(short):
            out[k] = UP[-1] if at[-1] == UP[-1] else at[-1]
        elif short[0] == 0:
            out[k] = at[0]
        else:
            i = short[0]
            out[k] = at[i - 1] + (back[i - 1, k] - 1) / (back[i - 1, k] - back[i, k]) * (at[i] - at[i - 1])
    return out
