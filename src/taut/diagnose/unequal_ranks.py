"""Ranks that are unequal for good: more than devices of one model are, and what dealing work by speed would save.

Null hypothesis: ranks differ by no more than ``ORDINARY`` for the same work. How much they differ for good is told by what
their levels in one half of the run have in common with those in the other, so that chance does not count; its 95 % lower bound
(chi-squared, one degree of freedom less than there are ranks) must be above that. Nobody is accused: whoever is far slower than
most others is a finding by itself.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.interval import share_of
from taut.core.reporting import LISTED_SHARE
from taut.diagnose.slow_sets import LEAST_RANKS
from taut.graph import Graph
from taut.replay.bounded_policies import LEAST_STEPS, deal_by_speed, own_times
from taut.replay.exact_policies import Measured, measured
from taut.result.types import Estimate

ORDINARY = 0.04
"""Devices of one model differ by a spread of 1 to 4 % in surveys of large clusters."""
LEVEL = 0.95
"""Of the lower bound of the spread."""


class Unequal(Struct, frozen=True):
    """Ranks of like work that differ in speed."""

    spread: Estimate
    """Standard deviation of what replicas differ by for good, as a share of their step."""
    saved_share: Estimate
    """Of the wall, if work were dealt by speed in any shares."""

    @property
    def ordinary(self) -> bool:
        """Whether devices of one model may differ as much."""
        return (self.spread.lo or 0.0) <= ORDINARY


def unequal_ranks(graph: Graph) -> Unequal | None:
    """How unequal ranks are for good; None where that is not known, or dealing work by speed would save too little."""
    job = measured(graph, graph.work_ns, graph.gap_ns)
    if job.met.refused or job.met.units < LEAST_RANKS or len(job.window_ns) < LEAST_STEPS:
        return None
    dealt = deal_by_speed(job)
    saved = None if dealt.most_ns is None else share_of(dealt.without_ns - dealt.most_ns, dealt.without_ns)
    return None if saved is None or (saved.lo or 0.0) < LISTED_SHARE else Unequal(_spread(job), saved)


def _spread(job: Measured) -> Estimate:
    """Standard deviation of the levels that both halves of a run agree on, with its lower and upper bound."""
    from scipy.special import chdtri

    own = own_times(job)
    one, other = (half.mean(axis=0) / half.mean() for half in np.array_split(own, 2))
    free = job.met.units - 1
    shared = max(float(np.cov(one, other)[0, 1]), 0.0)
    lo, hi = (float(np.sqrt(shared * free / chdtri(free, chance))) for chance in (1 - LEVEL, LEVEL))
    return Estimate(value=float(np.sqrt(shared)), lo=min(lo, hi), hi=max(lo, hi))
