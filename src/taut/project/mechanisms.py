"""What makes a threshold: where it lies with each mechanism switched off, how far each moves it, and what each takes.

A mechanism is a way to lose work that grows with the job: jitter, unequal ranks, failures, the interconnect. A workload says
which it has and how each is scaled (``Workload.mechanisms``). All questions are asked with the same seeds as the threshold
itself, at scales whose networks are solved already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, factorial, log
from typing import Generic, TypeAlias

import numpy as np

from taut.core.array_types import Floats
from taut.project.marginal_gain import Curve, Rule, crossing, spread
from taut.project.policy import S
from taut.project.workload import Estimate, Sampling, Workload
from taut.result import types
from taut.result.types import MechanismLoss, Threshold

# Seeds of what is compared with the same seeds: fewer than of a threshold tell as much.
WITHOUT_SEEDS, ELASTICITY_SEEDS, SPLIT_SEEDS = 2, 3, 3
# Share by which an amplitude is changed, either way, to see how the threshold moves.
STEP = 0.1
# A mechanism makes a threshold where its absence moves it by at least this factor.
MOVES = 1.1

# What all of them lose together.
WHOLE = "all"

Mechanisms: TypeAlias = Mapping[str, Callable[[S, float], S]]


@dataclass(frozen=True)
class Around(Generic[S]):
    """A threshold that was found."""

    curve: Curve[S]
    decision: Rule[S]
    points: Mapping[int, Floats]
    least: int

    def asked(self, changed: S, seeds: int) -> Curve[S]:
        """Rates of a changed scenario."""
        return Curve(self.curve.kind, changed, self.curve.how, seeds)

    @property
    def last_paid(self) -> int:
        """Index of the last scale that pays, or -1."""
        paid = [i for i, a in enumerate(sorted(self.points)) if self.points[a][0] >= 1]
        return paid[-1] if paid else -1


def without(around: Around[S], mechanisms: Mechanisms[S]) -> dict[str, int | None]:
    """Mechanism → threshold with that switched off; None where it pays as far as was tried.

    Without a loss the limit lies further out: scales are asked from the threshold on, up to the first that does not pay, and
    downwards only where that is the first.
    """
    scales, s = sorted(around.points), around.curve.scenario
    # The same few seeds say something else than all of them; how far each mechanism moves it they agree on.
    usual = crossing(around.points, around.least)[0] - _end(around, scales, around.asked(s, WITHOUT_SEEDS))
    out: dict[str, int | None] = {}
    for name, scale in mechanisms.items():
        end = _end(around, scales, around.asked(scale(s, 0.0), WITHOUT_SEEDS))
        out[name] = None if end == np.inf else max(round(exp(end + (usual if np.isfinite(usual) else 0.0))), around.least)
    return out


def _end(around: Around[S], scales: list[int], curve: Curve[S]) -> float:
    """Log scale at which rates stop paying, asked from the threshold on; infinite where they pay as far as was tried."""
    found: dict[int, Floats] = {}
    i = max(around.last_paid, 0)
    while 0 <= i < len(scales):
        back = around.decision.gain(curve, scales[i])
        if back is None:
            break
        found[scales[i]] = back
        lowest = min(found) == scales[i]
        if back[0] >= 1 and len(found) > 1 and lowest:
            break  # came down to where it pays
        if back[0] < 1 and (not lowest or i == 0):
            break  # went up to where it does not
        i += 1 if back[0] >= 1 else -1
    return float(crossing(found, around.least)[0]) if found else np.inf


def elasticities(around: Around[S], mechanisms: Mechanisms[S]) -> dict[str, types.Estimate | None]:
    """Mechanism → d ln threshold ÷ d ln amplitude, central differences between the two scales around the threshold."""
    scales, i = sorted(around.points), around.last_paid
    if i < 0 or i + 1 >= len(scales):
        return dict.fromkeys(mechanisms)
    pair = scales[i], scales[i + 1]
    out: dict[str, types.Estimate | None] = {}
    for name, scale in mechanisms.items():
        ends = [
            _crossed(around.asked(scale(around.curve.scenario, 1 + side * STEP), ELASTICITY_SEEDS), around, pair)
            for side in (1, -1)
        ]
        moved = (ends[0] - ends[1]) / (log(1 + STEP) - log(1 - STEP))
        width = spread(moved)
        value = float(moved[0])
        known = np.isfinite(value) and np.isfinite(width)
        out[name] = Estimate(value, value - width, value + width).as_result() if known else None
    return out


def _crossed(curve: Curve[S], around: Around[S], pair: tuple[int, int]) -> Floats:
    """Log scale at which what one more brings falls below what it must, on the line through two scales."""
    low, high = (around.decision.gain(curve, a) for a in pair)
    if low is None or high is None:
        return np.full(ELASTICITY_SEEDS + 1, np.nan)
    fell = np.where(low == high, np.nan, low - high)
    return np.asarray(log(pair[0]) + log(2) / 2 + (low - 1) / fell * log(pair[1] / pair[0]))


def made_by(found: Threshold) -> str | None:
    """The mechanism without which the threshold lies furthest out; None where no absence moves it much."""
    if found.ranks is None or not found.without:
        return None
    far = {name: np.inf if ranks is None else ranks / found.ranks for name, ranks in found.without.items()}
    steep = found.elasticity or {}

    def order(name: str) -> tuple[float, float]:
        moved = steep.get(name)
        return far[name], abs(moved.value) if moved else 0.0

    name = max(far, key=order)
    return name if far[name] >= MOVES else None


def split(kind: Workload[S], s: S, scales: Iterable[int], how: Sampling) -> list[MechanismLoss]:
    """What is lost at each scale, dealt to the mechanisms by their Shapley values over all sets of them that are on.

    Lost is the share of the rate that the same ranks would have with all of them off; the values sum to it exactly.
    """
    mechanisms = kind.mechanisms(s)
    names = list(mechanisms)
    sets = [frozenset(some) for n in range(len(names) + 1) for some in combinations(names, n)]
    curves: dict[frozenset[str], Curve[S]] = {}
    for on in sets:
        changed = s
        for name in names:
            changed = changed if name in on else mechanisms[name](changed, 0.0)
        curves[on] = Curve(kind, changed, how, SPLIT_SEEDS)
    rows = []
    for ranks in dict.fromkeys(scales):
        rates = {on: curve.rates(ranks) for on, curve in curves.items()}
        best = rates[frozenset()]
        if best is None or any(rate is None for rate in rates.values()):
            continue
        lost = {on: 1 - rate / best for on, rate in rates.items() if rate is not None}
        values = {WHOLE: lost[frozenset(names)], **{name: _shapley(name, names, lost) for name in names}}
        rows += [MechanismLoss(ranks=ranks, mechanism=name, loss_share=_estimate(value)) for name, value in values.items()]
    return rows


def _shapley(name: str, names: list[str], lost: Mapping[frozenset[str], Floats]) -> Floats:
    """Mean of what a mechanism adds to the loss over all orders in which they could be switched on."""
    n = len(names)
    total = np.zeros_like(lost[frozenset()])
    for before, value in lost.items():
        if name not in before:
            weight = factorial(len(before)) * factorial(n - len(before) - 1) / factorial(n)
            total = total + weight * (lost[before | {name}] - value)
    return total


def _estimate(values: Floats) -> types.Estimate:
    width = spread(values)
    return Estimate(float(values[0]), float(values[0]) - width, float(values[0]) + width).as_result()
