"""Joules of many pieces of accelerator time by the best source of each, all sources side by side, and the interval they leave.

A piece has time, what each measured source says of it (joules over all of its time, NaN where that source knows too little),
and what the model of states says (NaN without watts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats, Mask
from taut.ledger.bill.meters import SOURCES, Source
from taut.result.types import EnergySource, Estimate

KNOWN = 0.5
"""Share of a piece's time that a source must know: the rest of the piece is taken at the same power."""
NEARLY = 0.99
"""Share of a piece's time from which on the rest is no matter of states: clocks and edges of samples."""
FILLED = 0.9
"""Share of all time that must be measured for the rest to be taken at the same power, where no watts were given."""
STATES = "states"
ROUNDING = 1e-9
"""Share by which sums of the same joules may differ."""


@dataclass(frozen=True)
class Joules:
    """Energy of pieces."""

    joules: Floats
    """Of each piece; NaN where nobody tells."""
    measured: Mask
    """Pieces whose joules were measured."""
    sources: tuple[EnergySource, ...]
    total: Estimate | None
    """Of all pieces; None where some are unknown."""

    @property
    def coverage(self) -> float:
        """Share of the time of which the measured sources tell."""
        return max((one.coverage for one in self.sources if one.name != STATES), default=0.0)

    @property
    def source(self) -> str | None:
        """The source of most of it."""
        if self.total is None:
            return None
        return next((one.name for one in self.sources if one.name != STATES), STATES)


def best(
    seconds: Floats, measured: Mapping[Source, tuple[Floats, Floats]], modelled: Floats, *, rest_by_states: bool = False
) -> Joules:
    """Pieces by the best source: a counter, else samples, else states.

    ``measured``: joules and known seconds of each piece, by source; ``modelled``: joules by states, NaN where no watts are
    given (pieces without time have 0). ``rest_by_states``: what of a piece was not measured goes by states, where there are
    watts: for pieces that last for hours. Else it is taken at the power of the rest.
    """
    rest = modelled if rest_by_states else np.full(len(seconds), np.nan)
    told = {name: _whole(seconds, *found, rest) for name, found in measured.items()}
    chosen = np.full(len(seconds), np.nan)
    for name in reversed(SOURCES):  # the best is put in last
        if name in told:
            chosen = np.where(np.isfinite(told[name]), told[name], chosen)
    known = np.isfinite(chosen)
    out = np.where(known, chosen, modelled)
    sources = [_entry(name, told[name], np.minimum(measured[name][1], seconds), seconds) for name in SOURCES if name in told]
    if np.isfinite(modelled).any():
        sources.append(_entry(STATES, modelled, seconds, seconds))
    return Joules(out, known, tuple(one for one in sources if one.coverage > 0), _total(out, told, known, modelled))


def filled(found: Joules, seconds: Floats, ratios: Floats) -> Joules:
    """Unknown pieces at the power of the measured ones, by the ratios of states, where nearly all of the time was measured."""
    known = found.measured
    share = float(seconds[known].sum() / max(seconds.sum(), 1e-300))
    if known.all() or share < FILLED or not ratios[known].sum() > 0:
        return found
    scale = float(found.joules[known].sum() / ratios[known].sum())
    joules = np.where(np.isfinite(found.joules), found.joules, scale * ratios)
    return Joules(joules, known, found.sources, Estimate(value=float(joules.sum())))


def _whole(seconds: Floats, joules: Floats, known_s: Floats, modelled: Floats) -> Floats:
    """Joules of all of a piece from those of its known part: the rest by states, else at the same power; NaN where too little
    is known.
    """
    enough = (known_s > 0) & (known_s >= KNOWN * seconds * (1 - 1e-9))
    alike = np.where(enough, joules * seconds / np.where(enough, known_s, 1.0), np.nan)
    share = np.clip(known_s / np.where(seconds > 0, seconds, 1.0), 0.0, 1.0)
    by_states = (known_s > 0) & np.isfinite(modelled) & (share < NEARLY)
    return np.where(by_states, joules + modelled * (1 - share), alike)


def _entry(name: str, joules: Floats, known_s: Floats, seconds: Floats) -> EnergySource:
    known = np.isfinite(joules)
    coverage = float(known_s[known].sum() / max(seconds.sum(), 1e-300))
    return EnergySource(name=name, joules=float(joules[known].sum()), coverage=min(coverage, 1.0))


def _total(joules: Floats, told: Mapping[Source, Floats], known: Mask, modelled: Floats) -> Estimate | None:
    """The sum, between what it were if each source was right where it speaks, and the model wrong by as much as it is there."""
    if not len(joules) or not np.isfinite(joules).all():
        return None
    sums = [float(np.where(np.isfinite(one), one, joules).sum()) for one in told.values()]
    both = known & np.isfinite(modelled)
    if not known.all() and modelled[both].sum() > 0:
        scale = float(joules[both].sum() / modelled[both].sum())
        sums.append(float(joules[known].sum() + scale * joules[~known].sum()))
    value = float(joules.sum())
    return between(value, sums) if len(sums) > 1 else Estimate(value=value)


def between(value: float, ends: Sequence[float]) -> Estimate:
    """A sum with the interval that others leave around it; without one where they differ by no more than rounding."""
    low, high = min(value, *ends), max(value, *ends)
    return Estimate(value=value, lo=low, hi=high) if high - low > ROUNDING * abs(value) else Estimate(value=value)
