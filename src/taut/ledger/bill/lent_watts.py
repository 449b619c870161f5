"""Watts that were fitted to one run's own power, for time that nobody measured on the same hardware in the same bill.

The same hardware is a host of the run, a host that the prices say has the run's model of accelerators, and the rest of the
run's own job. Watts that the prices give count before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Mask, Texts
from taut.core.prices import Prices
from taut.core.tables import Table
from taut.ledger.bill.fate_power import POWER, by_fate
from taut.result.types import Estimate, StateWatts


class Lender(Struct, frozen=True):
    """A run whose accelerators told what they draw."""

    name: str
    job: str
    hosts: frozenset[str]
    models: frozenset[str]
    watts: StateWatts


class Lent(Struct, frozen=True):
    """Joules of rows by watts of a run, between the ends of their intervals; NaN where no run lends any."""

    joules: Floats
    low: Floats
    high: Floats
    origin: Texts

    def widened(self, total: Estimate, rows: Mask) -> Estimate:
        """A sum with what the watts of some of its rows leave open."""
        some = rows & np.isfinite(self.joules)
        if not some.any():
            return total
        below, above = (float(np.abs(end - self.joules)[some].sum()) for end in (self.low, self.high))
        low, high = (total.value if end is None else end for end in (total.lo, total.hi))
        return Estimate(value=total.value, lo=max(low - below, 0.0), hi=high + above)


def lent(held: Table, lenders: Sequence[Lender], prices: Prices) -> Lent | None:
    """What runs lend to a bill; None where watts are given, or no run has any."""
    if not lenders or prices.watts is not None:
        return None
    seconds = held.rank_ns.astype(np.float64) * 1e-9
    ends, origin = np.full((3, len(held)), np.nan), np.full(len(held), "", dtype=object)
    for one in reversed(lenders):  # the first counts
        rows = _alike(held, one, prices)
        for end, watts in zip(ends, _watts(one.watts), strict=True):
            end[rows] = (by_fate(held, watts) * seconds)[rows]
        origin[rows] = f"run {one.name}: watts fitted to its power"
    return Lent(ends[0], ends[1], ends[2], origin)


def _alike(held: Table, one: Lender, prices: Prices) -> Mask:
    names, code = np.unique(held.host.astype(np.str_), return_inverse=True)
    known = [bool(name) and (name in one.hosts or prices.hosts.model_of.get(name, "") in one.models) for name in names.tolist()]
    found: Mask = np.array(known, dtype=np.bool_)[code] | ((held.job == one.job) & (held.host == ""))
    return found


def _watts(told: StateWatts) -> list[dict[str, float]]:
    """Watts by fate, and at both ends of their intervals."""
    states = {"load": told.load, "stall": told.stall, "idle": told.idle}
    ends = [
        {name: one.value for name, one in states.items()},
        {name: one.value if one.lo is None else one.lo for name, one in states.items()},
        {name: one.value if one.hi is None else one.hi for name, one in states.items()},
    ]
    return [{fate: one[state] for fate, state in POWER.items()} for one in ends]
