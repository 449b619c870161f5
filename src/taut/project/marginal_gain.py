"""What one accelerator more brings: useful rates of a scenario at its scales, and their slope.

Rates are drawn with several seeds, the same ones at every scale, so that differences between scales are not those between
draws. Everything is computed for the mean over all seeds and over all but one of them; how far the latter lie apart tells
how far another seed would lie (jackknife).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np

from taut.core.errors import UsageError
from taut.project.workload import Workload

PAYS = 0.5
"""The next accelerator pays while it brings at least this share of one without jitter and failures (docs/indices.md)."""
SEEDS = 4
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 6: 2.571}
"""By seeds: of so few, 95 in 100 lie within so many standard errors (Student's t)."""
ANOTHER = sqrt(2.0)
"""An interval that holds what another seed says, not only the mean of all: both stray."""


@dataclass
class Curve:
    """A scenario's useful rate against its scale."""

    kind: Workload
    scenario: Any
    seed: int = 0
    how: dict[str, Any] = field(default_factory=dict)
    """What else ``rate`` is to know, such as measured strays."""
    seeds: int = 0
    """Draws of every rate; 0: as many as the workload says."""
    cores: int = 1
    asked: dict[int, Any] = field(default_factory=dict)
    """Rates by ranks, so far."""

    def rates(self, ranks: int) -> Any:
        """Useful work a second: the mean over all seeds, then over all but each; None where it cannot be dealt."""
        if ranks not in self.asked:
            self.asked[ranks] = self._drawn(ranks)
        return self.asked[ranks]

    def _drawn(self, ranks: int) -> Any:
        try:
            s = self.kind.at(self.scenario, ranks)
        except UsageError:
            return None

        def rate(k: int) -> float:
            return self.kind.rate(s, self.seed * SEEDS + k, **self.how)

        first = rate(0)  # what does not depend on the seed is known to the others
        with ThreadPoolExecutor(self.cores) as pool:
            drawn = np.array([first, *pool.map(rate, range(1, self.seeds or self.kind.seeds))])
        return np.concatenate([[drawn.mean()], (drawn.sum() - drawn) / (len(drawn) - 1)])

    def marginal(self, ranks: int) -> Any:
        """Work a second that one rank more brings between so many ranks and twice as many: at √2 times as many.

        Where few ranks serve next to nothing of a given demand, there is no slope to speak of: what the added ranks bring.
        """
        one, two = self.rates(ranks), self.rates(2 * ranks)
        if one is None or two is None:
            return None
        added = (two - one) / ranks
        one, two = np.maximum(one / ranks, 1e-300), np.maximum(two / (2 * ranks), 1e-300)
        return np.where(2 * one < two, added, np.sqrt(one * two) * (1 + np.log2(two / one)))


def smallest(kind: Workload, s: Any) -> int:
    """The fewest ranks that a scenario makes sense on."""
    if kind.smallest is not None:
        return kind.smallest(s)
    ranks = kind.ranks(s)
    return next(n for n in range(1, ranks + 1) if ranks % n == 0 and _dealt(kind, s, n))


def _dealt(kind: Workload, s: Any, ranks: int) -> bool:
    try:
        kind.at(s, ranks)
    except UsageError:
        return False
    return True


def best(kind: Workload, s: Any, seed: int = 0, **how: Any) -> tuple[float, int]:
    """What an accelerator brings at most where nothing strays and nothing fails, and on how many ranks it does.

    That is in a small job where work grows with the ranks; where demand is given, it is in one that serves it.
    """
    quiet = kind.ideal(s) if kind.ideal is not None else kind.louder(s, 0.0)
    ranks, found = smallest(kind, s), (0.0, smallest(kind, s))
    while ranks < 2 * kind.ranks(s) and _dealt(kind, quiet, ranks):
        found = max(found, (kind.rate(kind.at(quiet, ranks), seed, **how) / ranks, ranks))
        ranks *= 2
    return found


@dataclass(frozen=True)
class Rule:
    """When one accelerator more pays."""

    says: str
    back: Callable[[Curve, int], Any]
    """What it brings over what it must bring, from so many ranks to twice as many; None where they cannot be dealt."""
    level: Callable[[Curve, int], Any]
    """The same of all accelerators on average: where that is below 1, more of them cannot pay."""
    share: float = 1.0
    """What ``back`` is multiplied by to be the marginal return."""


def rule(kind: Workload, s: Any, pays: float = PAYS, seed: int = 0, **how: Any) -> Rule:
    """By money where the scenario says what work is worth and what accelerators cost, else by what one brings at best."""
    worth = kind.money(s)[0] if kind.money is not None else None
    if worth is not None:
        return _by_money(kind, worth)
    brings, ranks = best(kind, s, seed, **how)
    base = max(brings * pays, 1e-300)
    says = (
        f"one accelerator more pays while it brings at least {pays:g} of what one brings at best, without jitter and failures "
        f"({ranks:,} ranks)"
    )

    def back(curve: Curve, ranks: int) -> Any:
        found = curve.marginal(ranks)
        return None if found is None else found / base

    return Rule(says, back, lambda curve, ranks: curve.rates(ranks) / ranks / base, pays)


def _by_money(kind: Workload, worth: float) -> Rule:
    def cost(curve: Curve, ranks: int) -> float:
        assert kind.money is not None
        return kind.money(kind.at(curve.scenario, ranks))[1] or 0.0

    def back(curve: Curve, ranks: int) -> Any:
        found = curve.marginal(ranks)
        return None if found is None else worth * found * ranks / (cost(curve, 2 * ranks) - cost(curve, ranks))

    return Rule(
        "one accelerator more pays while the work it brings is worth more than it and its energy cost",
        back, lambda curve, ranks: worth * curve.rates(ranks) / cost(curve, ranks),
    )  # fmt: skip


def spread(values: Any) -> float:
    """How far another seed may lie from the first of these, which is of all seeds, the others of all but one: 95 of 100."""
    n = len(values) - 1
    if not np.isfinite(values).all():
        return float("inf")
    error = sqrt((n - 1) / n * float(((values[1:] - values[1:].mean()) ** 2).sum()))
    return ANOTHER * STUDENT[n] * error
