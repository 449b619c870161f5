"""What is done to all ranks alike: hiccups of one law, speeds of one distribution, a slowdown that everybody shares.

Nobody is the culprit of these. When the law (see ``case.law``) strikes whom follows from the seed alone: the recorded job
and the same job with local steps have the same hiccups at the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats
from taut.lab.case import PIECES, Spec, law
from taut.lab.truth import HICCUPS


@dataclass(frozen=True)
class Load:
    """What is done to one rank, step by step."""

    factor: Floats
    """How many times as long its work takes."""
    pause_ms: Floats
    """Hiccups, ms."""
    piece: Floats
    """Which piece of the step's work a hiccup falls into, counted from 0."""


def load(spec: Spec, rank: int) -> Load:
    """What is done to a rank in every step of the recorded job, and of its counterfactual."""
    steps, s = spec.steps, law(spec).strength
    rng = np.random.default_rng((spec.seed, 17, rank, spec.ranks))
    factor, pause, piece = np.ones(steps), np.zeros(steps), rng.integers(PIECES, size=steps).astype(np.float64)
    match law(spec).fault:
        case "unequal":
            factor *= np.exp(s["spread"] * rng.standard_normal())
        case "drift-all":
            factor += s["share"] * np.arange(steps) / max(steps - 1, 1)
        case fault if fault in HICCUPS:
            lasting = int(s["steps"])
            for step in np.flatnonzero(rng.random(steps) < s["rate"]).tolist():
                pause[step : step + lasting] += s["ms"] * np.exp(s["tail"] * rng.standard_normal())
    return Load(factor, pause, piece)
