"""How much a server serves when it is full, estimated from when attempts began and were answered.

A queue is known by its order. Whoever is answered before another who came earlier was served beside it: the most that one
overtook, and one, is the least number that is served at once (*beside*). While at least as many are inside, answers follow
each other as quickly as the server can, whatever a single one takes: their distances tell its capacity. No distribution of
service is assumed, nor that it is one server, and a constant delay on the way moves begin and end alike.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats

MOST = 50_000
"""Of more attempts than these the first are looked at: it bounds the time."""
UNDERWAY = 0.25
"""Attempts count as waiting at the server when they have been under way for as long as this share of all takes at most:
who has just begun may still be on the way there. Longer is safe, shorter takes the way for a queue."""


@dataclass(frozen=True)
class Capacity:
    """Answers that followed each other while the server was full, by the place where the first of the two fell."""

    beside: int
    """The least number that is served at once."""
    begin_s: Floats
    gap_s: Floats
    delay_s: float
    """The least that an attempt takes, less what the least of so many is above it: on the way, or of constant service."""


def observed_capacity(begin_s: Floats, end_s: Floats) -> Capacity:
    """The capacity behind attempts that were answered, given in order of their begin."""
    begin, end = begin_s[:MOST], end_s[:MOST]
    took = end - begin
    beside = overtaken(begin, end) + 1
    ends, least = np.sort(end), float(took.min())
    usual = np.quantile(took, UNDERWAY)
    slow = took >= usual  # nobody else is under way for so long
    # How many are waiting at each answer: begun long enough ago, less those answered since.
    inside = np.searchsorted(np.sort(begin[slow] + usual), ends) - np.searchsorted(np.sort(end[slow]), ends, side="right")
    full = np.flatnonzero(inside[:-1] >= beside)
    # The least of n exponential times lies their mean over n above the shortest possible one.
    delay = least - (float(took.mean()) - least) / max(len(took) - 1, 1)
    return Capacity(beside, ends[full], np.diff(ends)[full], max(delay, 0.0))


def overtaken(begin: Floats, end: Floats) -> int:
    """The most that one overtook: begun before it, and answered after it."""
    inside: list[float] = []
    most, last = 0, -np.inf
    for at, until in zip(begin.tolist(), end.tolist(), strict=True):
        # Of those that began at the same time none overtook another.
        del inside[: bisect_right(inside, at)]
        if at > last:
            most = max(most, len(inside) - bisect_right(inside, until))
        insort(inside, until)
        last = at
    return most
