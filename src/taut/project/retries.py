"""What retries do to a load: closed forms, and the loads at which it stays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, prod
from typing import NamedTuple

STEPS = 4096
"""Points at which the load is looked at for crossings."""


def layered(retries: Sequence[int]) -> int:
    """Attempts of a call that always fails: layers of retries multiply."""
    return prod(1 + one for one in retries)


def expected_attempts(failure: float, attempts: int) -> float:
    """Mean attempts if each fails with this chance and there are at most so many."""
    return float(attempts) if failure >= 1 else (1 - failure**attempts) / (1 - failure)


class Point(NamedTuple):
    """A load at which attempts bring forth as many attempts."""

    per_s: float
    """Attempts a second."""
    failure: float
    """Chance that one is given up."""
    stable: bool
    """Whether a small push dies out."""


def load_points(per_s: float, served_per_s: float, timeout_s: float, attempts: int) -> list[Point]:
    """Where calls that come at a rate, time out and are tried again keep a single server, from the lowest load on.

    λ' = λ (1 − p^n) ÷ (1 − p) attempts a second, of which p = min(1, e^(−(μ−λ')T)) are given up: M/M/1 with a timeout that
    the server does not hear of. Two stable points: a push is enough to go from the good one to the bad one and stay.
    """

    def failure(load: float) -> float:
        return exp(-max((served_per_s - load) * timeout_s, 0.0))

    def above(load: float) -> float:
        return per_s * expected_attempts(failure(load), attempts) - load

    if attempts == 1:
        return [Point(per_s, failure(per_s), True)]
    top = per_s * attempts
    loads = [per_s + (top - per_s) * k / STEPS for k in range(STEPS + 1)]
    out = []
    for low, high in pairwise(loads[:-1]):
        falls = above(low) > 0
        if falls == (above(high) > 0):
            continue
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (above(middle) > 0) == falls else (low, middle)
        out.append(Point(low, failure(low), falls))
    if failure(top) == 1:
        out.append(Point(top, 1.0, True))
    return out
