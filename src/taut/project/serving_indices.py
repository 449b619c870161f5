"""Indices of requests that were played; docs/serving.md defines them."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from taut.project.serving_run import Played
from taut.project.workload import Estimate

COUNT, STUDENT = 8, 2.365
"""Parts of the window that tell how far a number strays, and Student's t for them."""


class Blocks:
    """The window cut into parts one after the other: what differs between them says how sure the whole is."""

    def __init__(self, p: Played) -> None:
        self.played = p
        begin, end = p.window_ns
        self.of = np.clip((p.came_ns - begin) / (end - begin) * COUNT, 0, COUNT - 1).astype(int)

    def good_share(self, k: int) -> float:
        """Requests of a part that were answered as promised."""
        p = self.played
        here = (p.asked_ns >= p.window_ns[0]) & (p.asked_ns < p.window_ns[1])
        mine = p.kept[here][self.of == k]
        return float(mine.mean()) if len(mine) else 0.0

    def estimate(self, value: float | None, part: Callable[[int], float | None]) -> Estimate | None:
        """A value with its interval, from the same of every part."""
        if value is None:
            return None
        each = [one for k in range(COUNT) if (one := part(k)) is not None]
        if len(each) < COUNT:
            return Estimate(value)
        error = STUDENT * float(np.std(each, ddof=1)) / sqrt(COUNT)
        return Estimate(value, max(value - error, 0.0), value + error)


def variance(p: Played, some: Any = slice(None)) -> float | None:
    """Runtime variance index of latency over that of the same request alone: long answers are no jitter."""
    took = (p.latency_ns / p.alone_ns)[some]
    took = took[np.isfinite(took)]
    if len(took) < 8:
        return None
    low, middle, high = np.quantile(took, (0.05, 0.5, 0.95))
    return float((high - low) / (3.29 * middle))


def fan_out_delay(p: Played, some: Any = slice(None)) -> float | None:
    """Delay of requests over the mean delay of their parts; of requests in one part, requests that a delay delays."""
    if p.parts_ns.shape[1] == 1:
        return p.counts["delayed_ns"] / p.counts["excess_ns"] if p.counts["excess_ns"] > 0 else None
    over = np.maximum(p.parts_ns - p.alone_ns[:, None], 0.0)[some]
    over = over[np.isfinite(over).all(axis=1)]
    own = float(over.mean(axis=1).sum()) if len(over) else 0.0
    return float(over.max(axis=1).sum()) / own if own > 0 else None


def cascade(p: Played, some: Any = slice(None)) -> float | None:
    """Share of requests in which one slow part (or iteration) makes at least half of the wait.

    In parts: if the slowest had been as quick as the next, at least half of the others would have waited half as long.
    """
    if p.parts_ns.shape[1] > 1:
        parts = p.parts_ns[some]
        parts = np.sort(parts[np.isfinite(parts).all(axis=1)], axis=1)
        if not len(parts):
            return None
        gain, others = parts[:, -1] - parts[:, -2], parts[:, :-1]
        wait = parts[:, -1:] - others
        hit = ((gain[:, None] >= wait / 2) & (wait > 0)).mean(axis=1) >= 0.5
        return float(hit.mean())
    delay, worst = (p.latency_ns - p.alone_ns)[some], p.worst_ns[some]
    there = np.isfinite(delay)
    return float(((worst > 0) & (worst >= delay / 2))[there].mean()) if there.any() else None
