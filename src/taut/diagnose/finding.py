"""What every detector gets (evidence) and gives (findings: failure mode, place, time, cost and confidence)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.graph import Graph
from taut.replay import Batch, Blame, Timeline

LISTED_SHARE = 0.03
"""A finding recovers at least this share of the wall …"""
EPISODE_SHARE = 0.10
"""… or this share of its own steps, if there are at least EPISODE_STEPS of them, and says so."""
EPISODE_STEPS = 3
LEAST_EPISODE = 0.05
"""Spans with less than this share of the whole score are noise around the others."""
NOISE = 1.5
"""Spreads of ordinary variation taken off a window's excess before spans are cut."""


@dataclass(frozen=True)
class Evidence:
    """What every detector gets."""

    graph: Graph
    observed: Timeline
    blame: Blame
    batch: Batch


@dataclass(frozen=True)
class Finding:
    """One failure mode at one place in one span of steps."""

    mode: str
    ranks: tuple[int, ...]
    links: tuple[str, ...]
    stages: tuple[int, ...]
    classes: tuple[str, ...]
    steps: tuple[int, int]
    lost_rank_ns: int
    recoverable_wall_ns: int
    confidence: float
    because: str

    @property
    def id(self) -> str:
        """Stays the same for the same input."""
        place = f"{self.mode}|{self.ranks}|{self.links}|{self.stages}|{self.steps}"
        return "f-" + hashlib.sha256(place.encode()).hexdigest()[:10]


def spell(ns: float) -> str:
    """A duration in the unit a person would use."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.1f} {unit}" if abs(ns) < 100 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def episodes(score: Any, most: int = 4) -> list[tuple[int, int]]:
    """Spans of windows with the largest sums of a signed score (what was seen minus what noise would bring).

    Quiet windows count against a span, so a single blip far from the others does not stretch it.
    """
    left = np.asarray(score, dtype=np.float64).copy()
    whole = left[left > 0].sum()
    out: list[tuple[int, int]] = []
    for _ in range(most):
        best, best_sum, begin, running = (0, -1), 0.0, 0, 0.0
        for i, value in enumerate(left):
            if running <= 0:
                begin, running = i, 0.0
            running += value
            if running > best_sum:
                best, best_sum = (begin, i), running
        if best[1] < 0 or best_sum < LEAST_EPISODE * whole:
            break
        out.append(best)
        left[best[0] : best[1] + 1] = -np.inf
    return sorted(out)
