"""What one more accelerator adds: useful rates of a scenario at its scales, and their slope.

Rates are drawn with several seeds, the same ones at every scale, so that differences between scales are not those between
draws. Everything is computed for the mean over all seeds and over all but one of them; how far the latter lie apart tells
how far another seed would lie (jackknife).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import log, sqrt
from typing import Generic

import numpy as np

from taut.core.array_types import Floats
from taut.core.errors import UsageError
from taut.project.policy import S
from taut.project.workload import DEFAULT, Sampling, Workload

# One more accelerator pays while it adds at least this share of one without jitter and failures (docs/indices.md).
PAYS = 0.5
SEEDS = 4
# By seeds: of so few, 95 in 100 lie within so many standard errors (Student's t).
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 6: 2.571}
# An interval that holds what another seed says, not only the mean of all: both stray.
ANOTHER = sqrt(2.0)


@dataclass
class Curve(Generic[S]):
    """A scenario's useful rate against its scale."""

    kind: Workload[S]
    scenario: S
    how: Sampling = DEFAULT
    seeds: int = 0
    """Draws of every rate; 0: as many as the workload says."""
    known: dict[int, Floats | None] = field(default_factory=dict)
    """Rates by ranks, so far."""

    def rates(self, ranks: int) -> Floats | None:
        """Useful work a second: the mean over all seeds, then over all but each; None where the ranks do not fit the job."""
        if ranks not in self.known:
            self.known[ranks] = self._draw(ranks)
        return self.known[ranks]

    def _draw(self, ranks: int) -> Floats | None:
        try:
            s = self.kind.at(self.scenario, ranks)
        except UsageError:
            return None

        def rate(k: int) -> float:
            return self.kind.rate(s, replace(self.how, seed=self.how.seed * SEEDS + k))

        many, first = self.seeds or self.how.seeds or self.kind.seeds, rate(0)  # the first fills caches that seeds share
        if self.kind.long_rates and self.how.cores > 1:
            with ThreadPoolExecutor(self.how.cores) as pool:
                drawn = np.array([first, *pool.map(rate, range(1, many))])
        else:
            drawn = np.array([first, *map(rate, range(1, many))])
        return np.concatenate([[drawn.mean()], (drawn.sum() - drawn) / (len(drawn) - 1)])

    def known_rates(self, ranks: int) -> Floats:
        """Rates at a scale that the job is known to fit."""
        found = self.rates(ranks)
        assert found is not None
        return found

    def marginal(self, ranks: int) -> Floats | None:
        """Work a second that one rank more brings between so many ranks and twice as many: at √2 times as many.

        Where few ranks serve next to nothing of a given demand, there is no slope to speak of: what the added ranks bring.
        """
        one, two = self.rates(ranks), self.rates(2 * ranks)
        if one is None or two is None:
            return None
        added = (two - one) / ranks
        # With X = n · x(n), dX/dn = x · (1 + d ln x / d ln n); x at √2·n is the geometric mean of both ends.
        one, two = np.maximum(one / ranks, 1e-300), np.maximum(two / (2 * ranks), 1e-300)
        return np.where(2 * one < two, added, np.sqrt(one * two) * (1 + np.log2(two / one)))


def best(kind: Workload[S], s: S, how: Sampling) -> tuple[float, int]:
    """The most that an accelerator brings without jitter and failures, and on how many ranks it does.

    That is in a small job where work grows with the ranks; where demand is given, it is in one that serves it.
    """
    quiet, ranks = kind.ideal(s), kind.smallest(s)
    found = (0.0, ranks)
    while ranks < 2 * kind.ranks(s) and kind.can_run_on(quiet, ranks):
        found = max(found, (kind.rate(kind.at(quiet, ranks), how) / ranks, ranks))
        ranks *= 2
    return found


@dataclass(frozen=True)
class Rule(Generic[S]):
    """When one more accelerator pays."""

    text: str
    gain: Callable[[Curve[S], int], Floats | None]
    """What it brings over what it must bring, from so many ranks to twice as many; None where the ranks do not fit the job."""
    mean_gain: Callable[[Curve[S], int], Floats]
    """The same of all accelerators on average: where that is below 1, more of them cannot pay."""
    share: float = 1.0
    """What ``gain`` is multiplied by to be the marginal return."""


def rule(kind: Workload[S], s: S, how: Sampling, pays: float = PAYS) -> Rule[S]:
    """By money where the scenario says what work is worth and what accelerators cost, else by what one brings at best."""
    worth = kind.value_and_cost(s)[0]
    if worth is not None:
        return _by_money(kind, worth)
    brings, ranks = best(kind, s, how)
    base = max(brings * pays, 1e-300)
    says = (
        f"one more accelerator pays while it adds at least {100 * pays:g} % of what one adds at best, "
        f"without jitter and failures ({ranks:,} {kind.noun}{'s' if ranks > 1 else ''})"
    )

    def gain(curve: Curve[S], ranks: int) -> Floats | None:
        found = curve.marginal(ranks)
        return None if found is None else found / base

    return Rule(says, gain, lambda curve, ranks: curve.known_rates(ranks) / ranks / base, pays)


def _by_money(kind: Workload[S], worth: float) -> Rule[S]:
    def cost(curve: Curve[S], ranks: int) -> float:
        return kind.value_and_cost(kind.at(curve.scenario, ranks))[1] or 0.0

    def gain(curve: Curve[S], ranks: int) -> Floats | None:
        found = curve.marginal(ranks)
        return None if found is None else worth * found * ranks / (cost(curve, 2 * ranks) - cost(curve, ranks))

    says = "one more accelerator pays while the work it adds is worth more than it and its energy cost"
    return Rule(says, gain, lambda curve, ranks: worth * curve.known_rates(ranks) / cost(curve, ranks))


def error(values: Floats) -> float:
    """Standard error of the first of these, which is of all seeds, from the others, of all but one (jackknife)."""
    n = len(values) - 1
    if not np.isfinite(values).all():
        return float("inf")
    return sqrt((n - 1) / n * float(((values[1:] - values[1:].mean()) ** 2).sum()))


def spread(values: Floats) -> float:
    """How far another seed may lie from the first of these, which is of all seeds, the others of all but one: 95 of 100."""
    return ANOTHER * STUDENT[len(values) - 1] * error(values)


def crossing(points: Mapping[int, Floats], least: int) -> Floats:
    """Log scale beyond which one more never pays again, for each column; infinite where it pays to the end.

    ``points`` are what one more brings over what it must, from so many ranks to twice as many, which belongs to √2 times as
    many. Between two scales it is linear in the log of the scale.
    """
    at = sorted(points)
    back, place = np.stack([points[a] for a in at]), np.log(at) + log(2) / 2
    out = np.full(back.shape[1], log(least))
    for k in range(back.shape[1]):
        paid = np.flatnonzero(back[:, k] >= 1)
        if len(paid) and paid[-1] == len(at) - 1:
            out[k] = np.inf
        elif len(paid):
            i = paid[-1]
            part = (back[i, k] - 1) / (back[i, k] - back[i + 1, k])
            out[k] = place[i] + part * (place[i + 1] - place[i])
    return out
