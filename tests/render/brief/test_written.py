"""Estimates as a briefing writes them."""

from __future__ import annotations

import pytest

from taut.render.brief.written import cash, percent, plain, share, times, worth
from taut.result.types import Estimate


def of(value: float, lo: float | None = None, hi: float | None = None) -> Estimate:
    return Estimate(value=value, lo=lo, hi=hi)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (of(0.28, 0.24, 0.33), "28 % (24–33)"),
        (of(0.074, 0.061, 0.086), "7.4 % (6.1–8.6)"),
        (of(0.28), "28 %"),
        (of(0.28, 0.279, 0.281), "28 %"),
        (of(1.0, 0.999, 1.0), "at least 99.9 %"),
        (of(0.0, 0.0, 0.034), "at most 3.4 %"),
        (of(0.5, 0.0, 1.0), "not decided: 0–100 %"),
        (of(-0.014, -0.039, 0.011), "−1.4 % (−3.9 to 1.1)"),
        (of(0.3, 0.2), "30 % (at least 20)"),
        (of(0.3, 0.3), "at least 30 %"),
        (None, "–"),
    ],
)
def test_shares(given: Estimate | None, text: str) -> None:
    assert share(given) == text


def test_factors_numbers_and_money() -> None:
    assert times(of(4.37, 3.95, 4.88)) == "4.37 × (3.95–4.88)"
    assert plain(of(5.0, 3.2, 6.2), "days") == "5.00 days (3.20–6.20)"
    assert worth(of(884, 730, 1021), "EUR") == "884 EUR (730–1,021)"
    assert [cash(one) for one in (1234.5, 12.345, 0.0123, 0)] == ["1,234", "12.35", "0.012", "0.00"]
    assert [percent(one) for one in (0.5477, 0.02, 0.0001, None)] == ["55 %", "2 %", "<0.1 %", "–"]
