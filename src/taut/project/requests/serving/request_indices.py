"""Indices of simulated requests; docs/serving.md defines them."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Mask
from taut.project.figures import variance_index
from taut.project.requests.serving.servers import ServingOutcome


def variance(p: ServingOutcome, some: Mask | slice = slice(None)) -> float | None:
    """Runtime variance index of latency over that of the same request alone: long answers are no jitter."""
    return variance_index((p.took_ns / p.alone_ns)[some])


def fan_out_delay(p: ServingOutcome, some: Mask | slice = slice(None)) -> float | None:
    """Delay of requests over the mean delay of their parts; of requests in one part, requests that a delay delays."""
    if p.parts_ns.shape[1] == 1:
        return p.counts["delayed_ns"] / p.counts["excess_ns"] if p.counts["excess_ns"] > 0 else None
    over = np.maximum(p.parts_ns - p.alone_ns[:, None], 0.0)[some]
    over = over[np.isfinite(over).all(axis=1)]
    own = float(over.mean(axis=1).sum()) if len(over) else 0.0
    return float(over.max(axis=1).sum()) / own if own > 0 else None


def one_decides(parts: Floats) -> Mask:
    """Of each row: whether most of the others would have waited half as long, had the slowest been as quick as the next."""
    parts = np.sort(parts, axis=1)
    wait = parts[:, -1:] - parts[:, :-1]
    return np.asarray(((wait[:, -1:] >= wait / 2) & (wait > 0)).mean(axis=1) > 0.5)


def cascade(p: ServingOutcome, some: Mask | slice = slice(None)) -> float | None:
    """Share of requests in which one slow part (or iteration) makes at least half of the wait; of two parts one always does."""
    if p.parts_ns.shape[1] == 2:
        return None
    if p.parts_ns.shape[1] > 1:
        parts = p.parts_ns[some]
        parts = parts[np.isfinite(parts).all(axis=1)]
        return float(one_decides(parts).mean()) if len(parts) else None
    delay, worst = (p.took_ns - p.alone_ns)[some], p.worst_ns[some]
    there = np.isfinite(delay)
    return float(((worst > 0) & (worst >= delay / 2))[there].mean()) if there.any() else None
