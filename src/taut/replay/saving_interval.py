"""How sure a saving is that was replayed: the error of its steps, and how far such predictions were off in the lab."""

from __future__ import annotations

from math import expm1, hypot, log1p

from taut.core.interval import Z
from taut.replay.whatif import MEASURED
from taut.result.types import Estimate, Finding, Range

NINE_OF_TEN = 1.645
"""Standard errors on either side that hold nine of ten, as the lab's errors do."""


def lab_error(finding: Finding) -> Range | None:
    """How far such a saving was off in nine of ten lab runs; None where the lab has not measured it."""
    if not (finding.links or finding.ranks):
        return None
    lo, hi = MEASURED["link" if finding.links else "rank"]
    return Range(lo=lo, hi=hi)


def replayed_saving(share: Estimate, error: Range) -> Estimate:
    """A share that was replayed, with how far such were off in the lab."""
    lo, hi = _end(share.value, share.lo, error.lo), _end(share.value, share.hi, error.hi)
    return Estimate(value=share.value, lo=lo, hi=min(hi, 1.0))


def _end(value: float, end: float | None, error: float) -> float:
    """An end as far off as steps and replay make it together: both err independently. The lab's error is one of shares
    that are real over shares that were predicted, stretched from nine of ten to the 95 % of all intervals."""
    replayed = value * expm1(log1p(error) * Z / NINE_OF_TEN)
    reach = hypot(replayed, 0.0 if end is None else end - value)
    return value + (reach if error > 0 else -reach)
