"""How long a collective takes: closed forms of the algorithms, from latency and bandwidth.

``alpha`` is the time of a message whatever its size, ``beta`` the time of a byte. A member sends and receives at once.
"""

from __future__ import annotations

from functools import cache
from math import ceil, fsum, log2
from typing import Final

ALGORITHMS: Final = (
    "ring",
    "tree",
    "halving-doubling",
)


def rounds(verb: str, algorithm: str, members: int, size: float) -> tuple[float, float]:
    """(messages one after the other, bytes one member sends) of a collective over ``size`` bytes.

    The size is that of the whole vector: what an all-gather ends with, what a reduce-scatter begins with.
    """
    n, deep = members, ceil(log2(max(members, 1)))
    if n <= 1:
        return 0.0, 0.0
    part = (n - 1) / n * size
    if verb == "all-to-all":
        return n - 1, part
    if verb == "send":
        return 1, size
    if algorithm == "in-switch":  # the switch adds up what all send it, and sends each sum to all
        return (2, (1 + 1 / n) * size) if verb == "all-reduce" else (1, part)
    once = {"ring": (n - 1, part), "halving-doubling": (deep, part), "tree": (deep, deep * size)}[algorithm]
    return (2 * once[0], 2 * once[1]) if verb == "all-reduce" else once


def time_ns(verb: str, algorithm: str, members: int, size: float, gb_per_s: float, latency_us: float) -> float:
    """Time of a collective whose members all send at this rate; ``best`` takes the quickest algorithm for the size."""
    if algorithm == "best":
        return min(time_ns(verb, one, members, size, gb_per_s, latency_us) for one in ALGORITHMS)
    messages, sent = rounds(verb, algorithm, members, size)
    return messages * latency_us * 1e3 + sent / gb_per_s


@cache
def last_of(members: int) -> float:
    """Mean of the longest of so many exponential delays of mean one: a harmonic number."""
    return fsum(1 / k for k in range(1, members + 1))
