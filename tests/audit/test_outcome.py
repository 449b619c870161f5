"""What was measured held against what was expected, as intervals."""

from __future__ import annotations

import pytest

from taut.audit.outcome import Source, judged
from taut.result.types import Estimate


def share(value: float, lo: float | None = None, hi: float | None = None) -> Estimate:
    return Estimate(value=value, lo=lo, hi=hi)


@pytest.mark.parametrize(
    ("expected", "source", "measured", "says"),
    [
        (share(0.25, 0.20, 0.40), "finding", share(0.22, 0.15, 0.29), "kept"),
        (share(0.25, 0.20, 0.40), "finding", share(0.60, 0.50, 0.70), "kept"),  # more than was expected
        (share(0.25, 0.20, 0.40), "finding", share(0.02, -0.05, 0.09), "missed"),
        (share(0.25, 0.20, 0.40), "finding", share(0.05, 0.02, 0.08), "missed"),  # something, and surely less
        (share(0.25, 0.20, 0.40), "finding", share(0.15, -0.10, 0.35), "unclear"),
        (share(0.28), "given", share(0.20, 0.15, 0.25), "missed"),  # a share without an end is meant
        (share(0.28), "given", share(0.27, 0.24, 0.30), "kept"),
        (share(0.28), "finding", share(0.10, 0.05, 0.15), "kept"),  # nobody knows how wrong it may be
        (share(0.28), "finding", share(0.02, -0.05, 0.09), "unclear"),
        (share(0.12, -0.01, 0.20), "given", share(0.01, -0.005, 0.03), "unclear"),  # no effect is not excluded
        (share(-0.05, -0.08, -0.02), "given", share(-0.05, -0.06, -0.04), "kept"),  # a price that was accepted
        (share(-0.05, -0.08, -0.02), "given", share(-0.20, -0.22, -0.18), "missed"),
        (None, None, share(0.20, 0.15, 0.25), "unclear"),
        (share(0.25), "given", None, "unclear"),
    ],
)
def test_an_outcome_says(expected: Estimate | None, source: Source, measured: Estimate | None, says: str) -> None:
    assert judged(expected, source, measured) == says
