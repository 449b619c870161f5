"""Shapes of time: in which steps an effect acts, and how strongly."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints

Kind = Literal["always", "since", "ramp", "periodic", "intermittent", "span", "single"]
SIMPLEST_FIRST: tuple[Kind, ...] = ("always", "since", "ramp", "periodic", "intermittent", "span", "single")
"""Of shapes that explain nearly as much, the first of these is named: it has fewer numbers to fit."""
ONSETS = 40
"""Onsets that are tried in a first scan of a long run; the chosen one is then refined to the step."""
MAX_PERIOD = 20
"""Steps: checkpoints, logging and collection of garbage that recur less often are intermittent."""
MIN_RAMP = 4
"""Steps of the shortest ramp: fewer cannot be told from a level shift."""


class Shape(Struct, frozen=True, eq=False):
    """When an effect acts: its weight in each step, 1 where it acts fully."""

    kind: Kind
    first: int
    """Index of the first step in which it acts."""
    last: int
    """Index of the step after the last."""
    weight: Floats
    period: int = 0

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What tells shapes apart."""
        return self.kind, self.first, self.last, self.period


def always(steps: int) -> Shape:
    """Every step alike."""
    return Shape("always", 0, steps, np.ones(steps))


def intermittent(stalled: Floats) -> Shape:
    """The steps that are marked: what happens at a rate and in no order."""
    at = np.flatnonzero(stalled)
    return Shape("intermittent", int(at[0]) if len(at) else 0, int(at[-1]) + 1 if len(at) else 0, stalled)


def since(steps: int, first: int) -> Shape:
    """From a step to the end."""
    return span(steps, first, steps)


def span(steps: int, first: int, last: int) -> Shape:
    """From a step up to another."""
    at = np.arange(steps)
    return Shape("since" if last == steps else "span", first, last, ((at >= first) & (at < last)).astype(np.float64))


def ramp(steps: int, first: int) -> Shape:
    """From a step on, growing evenly up to the end."""
    return Shape("ramp", first, steps, np.maximum(0.0, np.arange(steps) - first + 1) / (steps - first))


def periodic(steps: int, first: int, period: int) -> Shape:
    """Every so many steps."""
    return Shape("periodic", first, steps, (np.arange(steps) % period == first).astype(np.float64), period)


class Scan(Struct, frozen=True):
    """The shapes that are scanned, simplest kind first."""

    shapes: tuple[Shape, ...]
    weights: Floats
    """One row for each shape."""
    begins: Ints
    """Row of the first shape of each kind that is there."""


@cache
def scan(steps: int) -> Scan:
    """Level shifts, spans, ramps and periods that can be told apart in so many steps."""
    pitch, found = max(1, steps // ONSETS), list[Shape]()
    for first in range(0, steps - 2, pitch):
        for last in sorted({*range(first + max(3, pitch), steps, pitch), steps}):
            has_past = steps - (last - first) >= 2
            if has_past and not (first == 0 and 2 * last > steps):  # the shorter part is the exception
                found.append(span(steps, first, last))
        if first >= 2 and steps - first >= MIN_RAMP:
            found.append(ramp(steps, first))
    for period in range(2, min(MAX_PERIOD, steps // 3) + 1):
        found += [periodic(steps, first, period) for first in range(period)]
    found.sort(key=lambda one: SIMPLEST_FIRST.index(one.kind))
    kinds = np.array([SIMPLEST_FIRST.index(one.kind) for one in found], np.int64)
    weights = np.array([one.weight for one in found]).reshape(len(found), steps)
    return Scan(tuple(found), weights, np.flatnonzero(np.diff(kinds, prepend=-1)))


def neighbours(shape: Shape, steps: int) -> list[Shape]:
    """The same kind of shape with ends that the first scan did not try."""
    pitch = max(2, steps // ONSETS)
    firsts = [one for one in range(shape.first - pitch, shape.first + pitch + 1) if 0 <= one < steps - 2]
    if shape.kind not in ("since", "ramp", "span"):
        return [shape]
    if shape.kind == "ramp":
        return [ramp(steps, one) for one in firsts if one >= 2 and steps - one >= MIN_RAMP]
    lasts = [shape.last] if shape.kind == "since" else range(shape.last - pitch, shape.last + pitch + 1)
    return [span(steps, one, last) for one in firsts for last in lasts if one + 3 <= last <= steps and last - one < steps]
