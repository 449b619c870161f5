"""Is a quantity above zero step after step? Student's test on a series whose neighbours may resemble each other.

Null hypothesis: the series is red noise around zero, or below. Its mean wanders more than that of independent steps, by the
redness of the series: as AR(1), from its correlation at lag 1 or from that at lag 2, whichever is redder (red noise under
white shows less at lag 1 than it is); without their bias, and raised by their standard error, because they are known from
few steps and underrating them is what raises false alarms. Symmetric heavy tails make the test milder, not wilder.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from taut.core.array_types import Floats, Numbers

LEAST = 5
"""Steps below which nothing is reported."""
LEAST_FREE = 2.0
"""Degrees of freedom that the reddest series is left with: what stands fifty standard errors high needs no more steps."""
MOST_AUTOCORRELATED = 0.95
"""Beyond this a series wanders so much that nothing can be concluded, and reporting that needs a finite number."""


def above_zero(series: Numbers) -> tuple[float, float]:
    """(mean in standard errors, chance of such a mean without a reason)."""
    y = np.asarray(series, dtype=np.float64)
    n = len(y)
    if n < LEAST:
        return 0.0, 1.0
    rest = y - y.mean()
    power = float((rest**2).sum())
    rho = max(_autocorrelation(rest, power, lag) for lag in (1, 2))
    wider = (1 + rho) / (1 - rho)
    score = float(y.mean()) / max(float(np.sqrt(power / (n - 1) / n * wider)), 1e-12)
    return score, student(score, max(n / wider - 1, LEAST_FREE))


def _autocorrelation(rest: Floats, power: float, lag: int) -> float:
    """Memory of AR(1) noise with such a correlation at a lag, as large as it may well be."""
    n = len(rest)
    seen = float((rest[lag:] * rest[:-lag]).sum()) / power if power > 0 else 0.0
    # AR(1) noise has correlation ρᵏ at lag k; 1/√n is the standard error of a correlation.
    raised = max(seen + 1 / np.sqrt(n), 0.0) ** (1 / lag)
    return float(np.clip(raised + (1 + 4 * raised) / n, 0.0, MOST_AUTOCORRELATED))


def student(t: float, free: float) -> float:
    """Chance of a larger t with so many degrees of freedom (Wallace's normal approximation, good to a few per cent).

    The exact one would cost every analysis an import that takes longer than most of them do.
    """
    z = float(np.sqrt(free * np.log1p(t * t / free))) * (8 * free + 1) / (8 * free + 3)
    return NormalDist().cdf(-z if t > 0 else z)
