"""Noise of series of logarithms: a core (scale and AR(1)) and stalls with a rate."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats

CLIP = 3.0
"""Scales at which innovations are clipped (theory.md, *Noise*)."""
STALL = 5.0
"""Scales above its own level from which a step is a stall: one in 3.5 million of Gaussian steps."""
MIN_SCALE = 1e-3
"""Of the logarithm: clocks and profilers do not resolve a thousandth of a step."""
MAX_REDNESS = 0.95
"""AR(1) coefficient: beyond, a series is a random walk in which no level can be told (theory.md, *Evidence*)."""
NORMAL_MAD, NORMAL_HALF = 1.4826, 1.349
"""σ of a Gaussian over its median absolute deviation, and the length of its shortest half over σ."""


class Core(Struct, frozen=True):
    """Scale of each series, and the redness of all."""

    scale: Floats
    redness: float


def core(series: Floats) -> Core:
    """Scale: the narrower of the shortest half and the differences, at least that of kin. Redness: lower quartile over kin."""
    away = series - np.median(series, axis=1)[:, None]
    steps = series.shape[1]
    if steps < 4:
        return Core(np.full(len(series), max(NORMAL_MAD * float(np.median(np.abs(away))), MIN_SCALE)), 0.0)
    half = steps // 2 + 1
    ordered = np.sort(series, axis=1)
    shortest = (ordered[:, half - 1 :] - ordered[:, : steps - half + 1]).min(axis=1) / NORMAL_HALF
    differences = NORMAL_MAD * np.median(np.abs(np.diff(series, axis=1)), axis=1) / np.sqrt(2)
    own = np.minimum(shortest, np.maximum(differences, 0.5 * shortest))
    scale = np.maximum(np.maximum(own, np.median(own)), MIN_SCALE)
    clipped = np.clip(away / scale[:, None], -CLIP, CLIP)
    lag = (clipped[:, 1:] * clipped[:, :-1]).sum(axis=1) / np.maximum((clipped**2).sum(axis=1), 1e-9)
    lag += (1 + 3 * np.maximum(lag, 0)) / steps  # bias of the estimate in short series (Kendall 1954)
    redness = float(np.clip(np.quantile(lag, 0.25), 0, MAX_REDNESS))
    return Core(scale / np.sqrt(1 - 0.5 * redness), redness)


def whitened(series: Floats, redness: float) -> Floats:
    """Innovations of an AR(1) series, of the scale of the series."""
    if not redness:
        return series
    later = (series[..., 1:] - redness * series[..., :-1]) / np.sqrt(1 - redness**2)
    return np.concatenate([series[..., :1], later], axis=-1)


def stalls(series: Floats, scale: Floats) -> Floats:
    """1 where a step of a series is a stall, against its own level and scale."""
    lower_half = np.sort(series, axis=1)[:, : series.shape[1] // 2 + 1]  # stalls may take nearly the other half
    level = np.median(series, axis=1) if series.shape[1] < 6 else np.quantile(series, 0.4, axis=1)
    found: Floats = (series - np.minimum(level, lower_half[:, -1])[:, None] > STALL * scale[:, None]).astype(np.float64)
    return found
