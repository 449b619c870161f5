"""Restarts carry state: whether a run that is restarted now and then is steadier than one left alone, or less so.

A step takes, relative to a warm, cool job on average nodes, with x steps since the last restart::

    1 + warm-up · exp(-x/W) + heat · (1 - exp(-x/H)) + drift + slowest node + jitter

A restart begins the warm-up again (caches, allocators, loaders, compilers), cools the machine (heat and its drift, of
standard deviation ``heat_spread``, begin at nothing and come back over H steps), and draws a share of the placement anew;
the slowest of all nodes counts. Restarts come without memory, r per step, so the steps since the last one are exponential,
and everything is in closed form: with u = r·W and v = r·H the mean of what fades is u/(1+u), of what comes 1/(1+v).

So restarts *reset* the mean step while ``warm-up · u/(1+u) < heat · v/(1+v)``, else they *amplify* it: rare ones reset if
the time lost warming up (warm-up·W) is less than that won cool (heat·H), frequent ones only if the first cold step is less
slow than the hot one. Placement does not move the mean, unless today's is known to be lucky or not; it moves the variance.
Variance is reset if the drift that is cut off, ``heat_spread²·v/(2+v)``, is more than the variance that the restarts bring
in: that of warm-up and cooling over the age, and of the slowest node from one placement to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from taut.project.noise import GRID, longest
from taut.project.training.scenario import Failure, Noise

KEPT = np.linspace(0.0, 1.0, 129)
"""Shares of a placement kept, at which its covariance is tabulated."""
RATES = np.geomspace(1e-9, 1.0, 200)
"""Restarts per step between which a boundary is looked for."""


@dataclass(frozen=True)
class Effect:
    """Step time in a run left alone (before) and in the same run with restarts (after), relative to a warm, cool, even job."""

    restarts: float
    """Restarts expected in the run."""
    mean_before: float
    mean_after: float
    variance_before: float
    """Variance over the steps of one run, as a monitor sees it."""
    variance_after: float
    warmup: tuple[float, float]
    """What warming up adds to mean and variance …"""
    heat: tuple[float, float]
    """… what cooling does …"""
    placement: tuple[float, float]
    """… and what drawing nodes anew does."""

    @property
    def mean(self) -> str:
        """``reset``, ``amplify`` or ``neither``."""
        return _verdict(self.mean_before, self.mean_after)

    @property
    def variance(self) -> str:
        """``reset``, ``amplify`` or ``neither``."""
        return _verdict(self.variance_before, self.variance_after)

    @property
    def sentence(self) -> str:
        """What a user reads."""
        change = 100 * (self.mean_after / self.mean_before - 1)
        slower = f"{abs(change):.2g} % {'longer' if change > 0 else 'shorter'}" if self.mean != "neither" else "no longer"
        why = max(
            ("warming up", self.warmup), ("cooling", self.heat), ("placement", self.placement), key=lambda p: abs(p[1][1])
        )
        before, after = sqrt(self.variance_before), sqrt(max(self.variance_after, 0.0))
        return (
            f"{self.restarts:.3g} restarts {_said(self.mean)} the mean step ({slower}) and {_said(self.variance)} its spread "
            f"(from {100 * before:.2g} % to {100 * after:.2g} %, most of it by {why[0]}), against a run left alone."
        )


def _verdict(before: float, after: float) -> str:
    return "neither" if abs(after - before) <= 1e-12 * (1 + before) else "amplify" if after > before else "reset"


def _said(verdict: str) -> str:
    return {"reset": "reset", "amplify": "amplify", "neither": "leave"}[verdict]


def effect(
    f: Failure, nodes: int, per_step: float, steps: float, *, jitter: float = 0.0, placed: float | None = None
) -> Effect:
    """What restarts, so many per step, do to a run of so many steps.

    ``jitter`` is the standard deviation of a step that nothing changes; ``placed`` says where today's placement stands
    among those that could be drawn (0.1: only one in ten is better), if that is known.
    """
    hot = f.heat_share
    warm_mean, warm_square = _faded(per_step, f.warmup_steps), _faded(per_step, f.warmup_steps / 2)
    cool_mean, cool_square = _faded(per_step, f.heat_steps), _faded(per_step, f.heat_steps / 2)
    both = _faded(per_step, 1 / (1 / f.warmup_steps + 1 / f.heat_steps)) if f.warmup_steps and f.heat_steps else 0.0
    warmup = f.warmup_share * warm_mean, f.warmup_share**2 * (warm_square - warm_mean**2)
    cooling = hot**2 * (cool_square - cool_mean**2) - 2 * f.warmup_share * hot * (both - warm_mean * cool_mean)
    heat = -hot * cool_mean, cooling - f.heat_spread**2 * cool_square
    restarts = per_step * steps
    mean, moved, varied = placement(f, nodes, restarts, placed)
    before, spread = 1 + hot + mean, jitter**2 + f.heat_spread**2
    after, spread_after = before + warmup[0] + heat[0] + moved, spread + warmup[1] + heat[1] + varied
    return Effect(restarts, before, after, spread, spread_after, warmup, heat, (moved, varied))


def _faded(per_step: float, over: float) -> float:
    """Mean of exp(-x/over) over the steps since a restart: restart rate × length over one plus it."""
    return per_step * over / (1 + per_step * over)


def placement(f: Failure, nodes: int, restarts: float, placed: float | None = None) -> tuple[float, float, float]:
    """(what the slowest node adds to a step, what redrawing does to its mean, and to its variance over the run).

    Two moments of a run with k restarts between them share a fraction (1 - redrawn)^k of their nodes; the covariance of
    their slowest nodes is exact, and k is Poisson.
    """
    from scipy.special import gammainc

    if not f.placement_spread:
        return 0.0, 0.0, 0.0
    value, below, shared = _drawn(f.placement_spread, nodes)
    average = _mean(value, np.exp(below))
    here = average if placed is None else float(np.interp(np.log(placed) - np.log1p(-placed), GRID, value))
    if restarts <= 0 or f.redrawn_share <= 0:
        return here - 1, 0.0, 0.0
    k = np.arange(int(restarts + 10 * sqrt(restarts) + 20))
    kept = (1 - f.redrawn_share) ** k
    alike = np.interp(kept, KEPT, shared)
    late = gammainc(k + 1, restarts)
    of_mean = 2 / restarts**2 * (alike * (restarts * late - (k + 1) * gammainc(k + 2, restarts))).sum()
    then = average
    if placed is not None:
        later = np.interp(kept, KEPT, [_later(value, below, here, nodes, share) for share in KEPT])
        then = float((later * late).sum() / late.sum())
    return here - 1, then - here, float(alike[0] - of_mean)


@lru_cache(maxsize=64)
def _drawn(spread: float, nodes: int) -> tuple[Any, Any, Any]:
    """Quantiles of the slowest of so many nodes, their log chances, and its covariance by the share KEPT."""
    value = longest(Noise("lognormal", spread), nodes)
    below = -np.log1p(np.exp(-GRID))
    return value, below, np.array([covariance(value, below, share) for share in KEPT])


def covariance(value: Any, below: Any, kept: float) -> float:
    """Covariance of the slowest of two sets of nodes that share a fraction of them (Hoeffding's integral).

    ``value`` are the quantiles of the slowest of one set, ``below`` their log chances.
    """
    chance = np.exp(below)
    step = np.diff(value)
    under = np.concatenate([[0.0], np.cumsum((chance[1:] + chance[:-1]) / 2 * step)])
    return float(2 * np.trapezoid((np.exp((1 - kept) * below) - chance) * under, value))


def _later(value: Any, below: Any, here: float, nodes: int, kept: float) -> float:
    """Mean of the slowest node when this share of a placement whose slowest is known is left."""
    known = np.interp(here, value, below)
    stays = np.where(value >= here, 1.0, 1 - kept)
    others = np.minimum(below - known, 0.0) * kept * (nodes - 1) / nodes
    return _mean(value, np.exp((1 - kept) * below + others) * stays)


def _mean(value: Any, chance: Any) -> float:
    """Mean of what has these chances to be at most these values."""
    return float(value[-1] - np.trapezoid(chance, value))


def mean_boundary(f: Failure) -> float | None:
    """Restart rate × warm-up length at which the mean step turns between reset and amplify; None if it never does."""
    cold, hot = f.warmup_share, f.heat_share
    over, under = hot * f.heat_steps - cold * f.warmup_steps, (cold - hot) * f.heat_steps
    return over / under if over * under > 0 else None


def variance_boundary(f: Failure, nodes: int, steps: float) -> tuple[float, ...]:
    """The same for the variance: every restart rate × warm-up length (per step without one) at which it turns."""
    from scipy.optimize import brentq

    def more(per_step: float) -> float:
        one = effect(f, nodes, per_step, steps)
        return one.variance_after - one.variance_before

    rates = RATES[RATES * steps <= 1e5]
    values = np.array([more(rate) for rate in rates])
    turns = np.flatnonzero(values[1:] * values[:-1] < 0)
    return tuple(float(brentq(more, rates[i], rates[i + 1])) * (f.warmup_steps or 1.0) for i in turns)


def brought(f: Failure, per_s: float, period_s: float, restore_s: float, step_s: float) -> float:
    """Failures that a failure brings: those in the time that it makes the job be at work again (restore, work repeated,
    warming up), to first order. Near one, restarts feed restarts and the job hardly gets on."""
    again = period_s / 2 + f.checkpoint_s * f.checkpoint_overlap
    return per_s * (restore_s + again + f.warmup_share * f.warmup_steps * step_s)
