"""Where one more accelerator stops paying: the scale beyond which it brings less than it must, and what dominates around it.

Scales are doubled from the smallest whole job on until accelerators do not pay even on average; then the place is bisected.
``docs/threshold.md`` derives the rule.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt

import numpy as np

from taut.core.array_types import Floats
from taut.project.marginal_gain import PAYS, Curve, Rule, rule, spread
from taut.project.policy import S
from taut.project.workload import DEFAULT, Sampling, Workload
from taut.result.types import CurvePoint, Side, Threshold

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
    curve, least = Curve(kind, s, how), kind.smallest(s)
    decision = decision or rule(kind, s, how, pays)
    points, tried = _scanned(curve, decision, least, max(kind.ranks(s), largest))
    found = _crossed(points, least)
    while found is not None and (middle := _between(points, found, least)) is not None:
        back = decision.gain(curve, middle)
        if back is None:
            break
        points[middle] = back
        found = _crossed(points, least)
    rows = [CurvePoint(ranks=a * sqrt(2), marginal_return=float(points[a][0]) * decision.share) for a in sorted(points)]
    if found is None or not points:
        known = _side(curve, tried, least)[1]
        return Threshold(
            ranks=None, lo=None, hi=None, rule=decision.text, tried=tried, in_range=known, before=None, after=None, curve=rows
        )
    ranks, width = exp(found[0]), spread(found)
    lo, hi = (max(least, round(ranks * exp(side * width))) if np.isfinite(width) else None for side in (-1, 1))
    return Threshold(
        ranks=round(ranks),
        lo=lo,
        hi=hi,
        rule=decision.text,
        tried=tried,
        in_range=_side(curve, ranks, least)[1],
        before=_side(curve, ranks * 0.5, least)[0],
        after=_side(curve, ranks * 2.0, least)[0],
        curve=rows,
    )


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


def _crossed(points: dict[int, Floats], least: int) -> Floats | None:
    """Log scale beyond which one more never pays again, for each set of seeds; None where it pays to the end.

    Between two scales the return is linear in the log of the scale; a set of seeds that pays to the end crosses nowhere.
    """
    at = sorted(points)
    if not at or points[at[-1]][0] >= 1:
        return None
    back, place = np.stack([points[a] for a in at]), np.log(at) + log(2) / 2
    out = np.full(back.shape[1], log(least))
    for k in range(back.shape[1]):
        paid = np.flatnonzero(back[:, k] >= 1)
        if len(paid) == len(at) or (len(paid) and paid[-1] == len(at) - 1):
            out[k] = np.inf
        elif len(paid):
            i = paid[-1]
            # Linear interpolation in the log of the scale.
            part = (back[i, k] - 1) / (back[i, k] - back[i + 1, k])
            out[k] = place[i] + part * (place[i + 1] - place[i])
    return out


def _between(points: dict[int, Floats], found: Floats, least: int) -> int | None:
    """Ranks midway between the neighbours of the crossing; None where they are near enough, or nothing lies between."""
    at = np.array(sorted(points))
    i = int(np.searchsorted(np.log(at) + log(2) / 2, found[0]))
    if i == 0 or i >= len(at) or at[i] / at[i - 1] < NEAR:
        return None
    middle = round(sqrt(at[i - 1] * at[i]) / least) * least
    return middle if at[i - 1] < middle < at[i] else None


def _side(curve: Curve[S], ranks: float, least: int) -> tuple[Side, bool | None]:
    """What dominates at about so many ranks, and whether the fabric is known to be that large."""
    kind, whole = curve.kind, max(round(ranks / least), 1) * least
    near = next((n for n in (whole, *sorted(curve.known, key=lambda n: abs(n - whole))) if curve.rates(n) is not None), whole)
    made = kind.sketch(kind.at(curve.scenario, near), replace(curve.how, count=None)).entry()
    return Side(ranks=near, dominant=made.dominant, terms=made.terms if isinstance(made.terms, dict) else None), made.in_range
