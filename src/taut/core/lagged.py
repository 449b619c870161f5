"""Whether one series of steps leads another: a lagged regression whose null is the same two series, shifted in time.

Null hypothesis: covariates the past of y, what x did before a step tells nothing about y in it. Both are cleared of y's own
past (AR whitening), of any period they share, and of what is covariates; what is left is turned into normal scores, so that
heavy tails weigh no more than others. Their correlation is compared with those of all circular shifts: shifts keep every
series' own rhythm and break only what ties the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, sqrt

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats
from taut.core.normal_score import normal_score
from taut.core.student import fisher_tail, least_fisher_tail

OWN = 3
"""Steps of its own past that a series is cleared of."""
SPANS = (1, 4)
"""Steps over which a cause is averaged: a governor looks at the last sample, or at a moving average."""
GUARD = 5
"""Shifts by fewer steps than this still hold some of the tie, and are no null."""
LONGEST = 256
"""Longest shared period that is looked for, steps; also at most a quarter of the series."""
PERIODIC = 0.01
"""Chance of a period found by accident, over all periods tried."""
FIRST = max(OWN, *SPANS)
"""The first step that has all its past."""


class Edge(Struct, frozen=True):
    """How one series acts on another."""

    chance: float
    """Of such a tie of that sign under the null."""
    slope: float
    error: float
    """Of the slope: units of the effect per unit of the cause, and its standard error."""


def leads(x: Floats, y: Floats, sign: int, covariates: Sequence[Floats] = ()) -> Edge:
    """x in the steps before acts on y; ``covariates`` holds what else is known of the step itself."""
    known = _basis(y, covariates)
    tests = [_test(_lags(x, 1, span).mean(axis=1), y[FIRST:], known, sign) for span in SPANS]
    best = min(tests, key=lambda edge: edge.chance)
    return Edge(min(1.0, len(SPANS) * best.chance), best.slope, best.error)


def goes_with(x: Floats, y: Floats, sign: int) -> Edge:
    """What x is in a step goes with what is new in y in the same step."""
    return _test(x[FIRST:], y[FIRST:], _basis(y, ()), sign)


def without_period(series: Sequence[Floats]) -> list[Floats]:
    """The series less what recurs in them with a common period, if there is one."""
    length = _period([_whitened(_scores(one)) for one in series])
    if not length:
        return list(series)
    phase = np.arange(len(series[0])) % length
    count = np.bincount(phase)
    return [one - (np.bincount(phase, one) / count)[phase] + one.mean() for one in series]


def _lags(x: Floats, first: int, last: int) -> Floats:
    n = len(x)
    return np.stack([x[FIRST - k : n - k] for k in range(first, last + 1)], axis=1)


def _basis(y: Floats, covariates: Sequence[Floats]) -> Floats:
    """Orthonormal basis of a constant, the past of y, and what is covariates of the step itself."""
    columns = [np.ones((len(y) - FIRST, 1)), _lags(y, 1, OWN), *(g[FIRST:, None] for g in covariates)]
    table = np.concatenate(columns, axis=1)
    table[:, 1:] -= table[:, 1:].mean(axis=0)
    scale = np.sqrt((table**2).sum(axis=0))
    basis, triangle = np.linalg.qr(table / np.where(scale > 0, scale, 1.0))
    return basis[:, np.abs(np.diag(triangle)) > 1e-9]


def _test(x: Floats, y: Floats, known: Floats, sign: int) -> Edge:
    # Frisch and Waugh: regressing residuals on residuals gives the slope of the full regression.
    left_x, left_y = x - known @ (known.T @ x), y - known @ (known.T @ y)
    power = float((left_x**2).sum())
    if power <= 1e-18 * float((x**2).sum()) or float((left_y**2).sum()) <= 1e-18 * float((y**2).sum()):
        return Edge(1.0, 0.0, 0.0)  # nothing varies
    slope = float(left_x @ left_y) / power
    rest = left_y - slope * left_x
    error = float(np.sqrt((rest**2).sum() / max(len(y) - known.shape[1] - 1, 1) / power))
    return Edge(_chance(_scores(left_x), _scores(left_y), sign), slope, error)


def _chance(x: Floats, y: Floats, sign: int) -> float:
    """One-sided: how far the correlation stands out of those of all shifts, by their spread."""
    n = len(x)
    # The correlations of all circular shifts at once, by Fourier transform.
    tie = np.fft.irfft(np.fft.rfft(y) * np.conj(np.fft.rfft(x)), n)
    spread = np.sqrt((tie[GUARD + 1 : n - GUARD] ** 2).mean())
    return 0.5 * erfc(sign * float(tie[0] / spread) / sqrt(2))


def _scores(values: Floats) -> Floats:
    """Normal scores; equal values get the mean of their places."""
    distinct, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    # Equal values share the mean of the places they take.
    place = np.cumsum(count) - 0.5 * (count + 1)
    below = (place + 0.5) / len(values)
    return normal_score(below, 1 - below)[inverse] if len(distinct) > 1 else np.zeros(len(values))


def _whitened(values: Floats) -> Floats:
    """Less what the value before tells."""
    power = float((values[:-1] ** 2).sum())
    return values[1:] - (float(values[1:] @ values[:-1]) / power if power > 0 else 0.0) * values[:-1]


def _period(series: Sequence[Floats]) -> int:
    """The period that explains more of one of the series than chance would; 0 if none does."""
    n = len(series[0])
    lengths = range(2, min(LONGEST, n // 4) + 1)
    best, found = PERIODIC / max(len(lengths) * len(series), 1), 0
    for length in lengths:
        phase = np.arange(n) % length
        count = np.bincount(phase)
        for one in series:
            total = float((one**2).sum())
            between = float(((np.bincount(phase, one) ** 2) / count).sum())
            within = max(total - between, 1e-12 * total)
            # F test of the variance between phases against that within them.
            tested = between / (length - 1) / (within / (n - length)) if total else 0.0, length - 1, n - length
            if least_fisher_tail(*tested) < best and (chance := fisher_tail(*tested)) < best:
                best, found = chance, length
    return found
