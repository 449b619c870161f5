"""Normal scores: the value that a standard normal variable stays below with a given chance, over whole arrays.

Written out here because scipy takes longer to import than a short forecast takes (``tests/core/test_normal_score.py``
compares).
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats

# M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988), PPND16: numerators and
# denominators of rational functions, highest power first, for the middle, the sides, and far out.
MIDDLE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
     1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
     687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
SIDES = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def _ratio(parts: tuple[tuple[float, ...], tuple[float, ...]], x: Floats) -> Floats:
    return np.asarray(np.polyval(parts[0], x) / np.polyval(parts[1], x))


def upper_score(log_upper: Floats) -> Floats:
    """The value that is exceeded with a chance whose logarithm is given: below one half exact however small the chance."""
    upper = np.exp(log_upper)
    off = 0.5 - upper
    # The smaller of both sides keeps its digits.
    r = np.sqrt(-np.where(off > 0, log_upper, np.log1p(-np.minimum(upper, 1 - 1e-16))))
    out = np.where(r <= 5.0, _ratio(SIDES, r - 1.6), _ratio(FAR, r - 5.0))
    return np.where(np.abs(off) <= 0.425, off * _ratio(MIDDLE, 0.180625 - off * off), np.where(off > 0, out, -out))


def normal_score(chance: Floats, upper: Floats) -> Floats:
    """The value that is not exceeded with this chance; ``upper`` is one minus it, where that is known better."""
    below = chance < 0.5
    found = upper_score(np.log(np.where(below, chance, upper)))
    return np.where(below, -found, found)
