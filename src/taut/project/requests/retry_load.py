"""What retries do to a load, in closed form; the loads at which it stays are in ``control/metastability.py``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def layered(retries: Sequence[int]) -> int:
    """Attempts of a call that always fails: layers of retries multiply."""
    return prod(1 + one for one in retries)


def expected_attempts(failure: float, attempts: int) -> float:
    """Mean attempts if each fails with this chance and there are at most so many."""
    return float(attempts) if failure >= 1 else (1 - failure**attempts) / (1 - failure)
