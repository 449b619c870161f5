"""Where one more accelerator stops paying: the scale beyond which it brings less than it must, and what dominates around it.

Scales are doubled from the smallest whole job on until accelerators do not pay even on average; then the place is bisected.
``docs/threshold.md`` derives the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, inf, log, sqrt
from typing import Generic

import numpy as np
from msgspec import UNSET, UnsetType, structs

from taut.core.array_types import Floats
from taut.core.student import student_quantile
from taut.project.marginal_gain import ANOTHER, PAYS, Curve, Rule, crossing, error, rule
from taut.project.mechanisms import Around, elasticities, made_by, without
from taut.project.policy import S
from taut.project.training.model_error import CHANCES, EXACT, factors
from taut.project.workload import DEFAULT, Sampling, Workload
from taut.result.types import CurvePoint, Forecast, IntervalParts, Side, Threshold

# The largest scale tried; more where larger ones are asked for.
MOST_RANKS = 1 << 16
# Scales on both sides of the threshold come as near to each other as this, if ranks can be dealt so.
NEAR = 1.5


def threshold(
    kind: Workload[S], s: S, how: Sampling = DEFAULT, *, pays: float = PAYS, decision: Rule[S] | None = None, largest: int = 0
) -> Threshold:
    """The scale beyond which one more accelerator does not pay, and what another seed says; ``decision``: its rule.

    Scales are tried to twice the scenario's own, and to twice the ``largest`` that anybody asked for.
    """
    return _search(kind, s, how, decision or rule(kind, s, how, pays), largest).result()


def place(kind: Workload[S], s: S, how: Sampling, decision: Rule[S], largest: int = 0) -> tuple[int | None, int]:
    """(ranks of the threshold, the largest scale tried), without its interval and what lies around it."""
    search = _search(kind, s, how, decision, largest)
    found = crossing(search.points, search.least)[0] if search.points else inf
    return None if found == inf else round(exp(found)), search.tried


def explained_threshold(kind: Workload[S], s: S, how: Sampling, decision: Rule[S], largest: int = 0) -> Threshold:
    """The same, with where it lies when each mechanism is switched off, and how far each moves it."""
    search = _search(kind, s, how, decision, largest)
    found, mechanisms = search.result(), kind.mechanisms(s)
    if not mechanisms:
        return found
    if found.ranks is None:  # taking a loss away brings no limit nearer
        none = dict.fromkeys(mechanisms)
        return structs.replace(found, without=none, elasticity=dict(none), made_by=None)
    around = Around(search.curve, decision, search.points, search.least)
    moved = without(around, mechanisms)
    found = structs.replace(found, without=moved, elasticity=elasticities(around, mechanisms))
    return structs.replace(found, made_by=made_by(found))


@dataclass
class Search(Generic[S]):
    """What was asked to find a threshold."""

    curve: Curve[S]
    decision: Rule[S]
    least: int
    points: dict[int, Floats]
    """Ranks → what one more adds over what it must, up to twice as many."""
    tried: int
    most: int
    """No larger scale is tried."""
    sides: dict[int, Forecast] = field(default_factory=dict)
    """Forecasts of mean values at some of the scales."""

    def result(self) -> Threshold:
        """The threshold, if there is one, with its interval."""
        points, decision = self.points, self.decision
        found = crossing(points, self.least) if points else np.full(1, inf)
        rows = [CurvePoint(ranks=a * sqrt(2), marginal_return=float(points[a][0]) * decision.share) for a in sorted(points)]
        lo, hi, parts = self._interval(found)
        if found[0] == inf:
            known = self._in_range(self.tried)
            return Threshold(
                ranks=None,
                lo=lo,
                hi=None,
                parts=parts,
                rule=decision.text,
                tried=self.tried,
                in_range=known,
                before=None,
                after=None,
                curve=rows,
            )
        ranks = exp(found[0])
        return Threshold(
            ranks=round(ranks),
            lo=lo,
            hi=hi,
            parts=parts,
            rule=decision.text,
            tried=self.tried,
            in_range=self._in_range(round(ranks)),
            before=self._dominates(ranks * 0.5),
            after=self._dominates(ranks * 2.0),
            curve=rows,
        )

    def _known_at(self, ranks: float) -> Forecast:
        """The forecast at the scale nearest to so many ranks that was asked."""
        kind, s = self.curve.kind, self.curve.scenario
        asked = [n for n, rates in self.curve.known.items() if rates is not None] or [self.least]
        near = min(asked, key=lambda n: abs(log(n / ranks)))
        if near not in self.sides:
            self.sides[near] = kind.sketch(kind.at(s, near), replace(self.curve.how, count=None)).entry()
        return self.sides[near]

    def _dominates(self, ranks: float) -> Side:
        """What dominates at about so many ranks."""
        made = self._known_at(ranks)
        return Side(ranks=made.ranks, dominant=made.dominant, terms=made.terms if isinstance(made.terms, dict) else None)

    def _in_range(self, ranks: float) -> bool:
        """Whether the fabric is known to be that large: as of the scales asked above it and below."""
        asked = sorted(n for n, rates in self.curve.known.items() if rates is not None)
        above, below = [n for n in asked if n >= ranks], [n for n in asked if n <= ranks]
        if above and self._known_at(above[0]).in_range:
            return True
        if not below or not self._known_at(below[-1]).in_range:
            return False
        whole = max(round(ranks / self.least), 1) * self.least
        return self.curve.rates(whole) is None or self._known_at(whole).in_range

    def _interval(self, found: Floats) -> tuple[int | None, int | None, IntervalParts | UnsetType]:
        """Ends between which it lies in 80 of 100: with other seeds, and other values of what is uncertain."""
        drawn = self._drawn() if self.points else None
        if found[0] == inf:
            early = -inf if drawn is None else float(np.quantile(drawn, 0.1, method="lower"))
            return (round(exp(early)) if np.isfinite(early) else None), None, UNSET
        ranks, strays = exp(found[0]), error(found)
        given = np.ones(1) if drawn is None else np.exp(np.minimum(drawn, log(2 * self.most)) - found[0])
        if not np.isfinite(strays):
            return None, None, UNSET
        if strays == 0 and np.ptp(given) == 0:
            return round(ranks), round(ranks), UNSET
        at = factors(np.exp(ANOTHER * strays * _student(len(found) - 2)), EXACT, given)
        lo, hi = max(self.least, round(ranks * min(at.lo, 1.0))), round(ranks * max(at.hi, 1.0))
        open_ended = drawn is not None and hi >= self.most and bool(np.isinf(drawn).any())
        return lo, None if open_ended else hi, at.parts

    def _drawn(self) -> Floats | None:
        """Log thresholds for each draw of what the scenario gives as ranges; None where nothing is given so."""
        kind, s = self.curve.kind, self.curve.scenario
        if kind.uncertain_rates(s, self.curve.how) is None:
            return None
        curve = DrawnCurve(kind, s, self.curve.how, base=self.curve)
        points = {a: back for a in sorted(self.points) if (back := self.decision.gain(curve, a)) is not None}
        ranks = 2 * max(points)
        # Some draws may pay farther than the scenario as it stands was asked.
        while points[ranks // 2].max() >= 1 and 2 * ranks <= self.most and self.decision.mean_gain(curve, ranks).max() >= 1:
            back = self.decision.gain(curve, ranks)
            if back is None:
                break
            points[ranks], ranks = back, 2 * ranks
        return crossing(points, self.least)


@dataclass
class DrawnCurve(Curve[S]):
    """Rates of a scenario by its scale for each draw of what it gives as ranges."""

    base: Curve[S] | None = None

    def _draw(self, ranks: int) -> Floats | None:
        known = self.base.rates(ranks) if self.base else None
        ratios = None if known is None else self.kind.uncertain_rates(self.kind.at(self.scenario, ranks), self.how)
        return None if known is None or ratios is None else known[0] * ratios


def _student(free: int) -> Floats:
    """Quantiles of Student's distribution at ``CHANCES``."""
    upper = [student_quantile(1 - chance, free) for chance in CHANCES if chance > 0.5]
    return np.array([*(-t for t in reversed(upper)), 0.0, *upper])


def _search(kind: Workload[S], s: S, how: Sampling, decision: Rule[S], largest: int) -> Search[S]:
    """Scan, and bisect around the crossing."""
    curve, least, own = Curve(kind, s, how), kind.smallest(s), max(kind.ranks(s), largest)
    points, tried = _scanned(curve, decision, least, own)
    while points and (middle := _between(points, crossing(points, least)[0], least)) is not None:
        back = decision.gain(curve, middle)
        if back is None:
            break
        points[middle] = back
    return Search(curve, decision, least, points, tried, max(MOST_RANKS, 2 * own, tried))


def _scanned(curve: Curve[S], decision: Rule[S], least: int, own: int) -> tuple[dict[int, Floats], int]:
    """Ranks → what one more adds over what it must, doubled until nothing can pay; and the largest scale tried.

    Below the scale that is asked about nothing is settled: where demand is given, few ranks may serve none of it.
    """
    points: dict[int, Floats] = {}
    ranks = least
    # Doubling from the smallest job; the return may dip and recover (a new tier), so the last crossing counts.
    while ranks < 2 * own or 2 * ranks <= MOST_RANKS or not points:
        back = decision.gain(curve, ranks)
        if back is None:
            break
        points[ranks] = back
        ranks *= 2
        if ranks > own and decision.mean_gain(curve, ranks)[0] < 1:
            break
    return points, ranks


def _between(points: dict[int, Floats], found: float, least: int) -> int | None:
    """Ranks midway between the neighbours of the crossing; None where they are near enough, or nothing lies between."""
    at = np.array(sorted(points))
    i = int(np.searchsorted(np.log(at) + log(2) / 2, found))
    if i == 0 or i >= len(at) or at[i] / at[i - 1] < NEAR:
        return None
    middle = round(sqrt(at[i - 1] * at[i]) / least) * least
    return middle if at[i - 1] < middle < at[i] else None
