"""How replicas meet: what each kind of synchronisation makes of their arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from taut.core.array_types import Floats


@dataclass(frozen=True)
class Gate:
    """A synchronisation: what it makes of the replicas' arrivals."""

    opens: Callable[[Sequence[Floats]], Floats]
    """Arrivals (replicas × stages) at the last ``past`` meetings, the latest last → when each may go on."""
    past: int = 1
    counts: Callable[[Floats], float] = np.ndarray.max
    """When a step counts as done, of when the replicas have done it."""


# What gates open by: functions of this module, so that a forecast can travel between processes.
Arrivals = Sequence[Floats]


def _of_fastest(count: int, met: Arrivals) -> Floats:
    # A partition finds the count-th arrival without sorting the others.
    return np.broadcast_to(np.partition(met[-1], count - 1, axis=0)[count - 1], met[-1].shape)


def _of_neighbour(slack: int, met: Arrivals) -> Floats:
    return np.maximum(met[-1], np.roll(met[0], 1, axis=0)) if len(met) == slack else met[-1]


def _of_slowest(bound: int, met: Arrivals) -> Floats:
    return np.maximum(met[-1], met[0].max(axis=0)) if len(met) == bound + 1 else met[-1]


def _of_oneself(met: Arrivals) -> Floats:
    return met[-1]


def _of_groups(group: int, bound: int, met: Arrivals) -> Floats:
    now = np.repeat(met[-1].reshape(-1, group, met[-1].shape[1]).max(axis=1), group, axis=0)
    return np.maximum(now, met[0].max(axis=0)) if len(met) == bound + 1 else now


def _of_first(clones: int, gate: Gate, met: Arrivals) -> Floats:
    firsts = [arrived.reshape(-1, clones, arrived.shape[1]).min(axis=1) for arrived in met]
    return np.repeat(gate.opens(firsts), clones, axis=0)


def fastest(count: int) -> Gate:
    """Everybody waits for the ``count`` fastest; the others are cancelled."""
    return Gate(partial(_of_fastest, count))


def ring(slack: int) -> Gate:
    """Everybody waits for its neighbour only, and only for what that had done ``slack`` meetings ago (1: at this one)."""
    return Gate(partial(_of_neighbour, slack), slack)


def stale(bound: int) -> Gate:
    """Nobody is more than ``bound`` meetings ahead of the slowest: everybody waits for what all had done so long ago."""
    return Gate(partial(_of_slowest, bound), bound + 1)


# Everybody waits for the last.
barrier = stale(0)
# Nobody waits: replicas run apart, and as much work as a step has is done when it is on average.
free = Gate(_of_oneself, counts=np.mean)


def hierarchical(group: int, bound: int) -> Gate:
    """Groups of neighbours wait for their last, and for what all had done ``bound`` meetings ago."""
    return Gate(partial(_of_groups, group, bound), bound + 1)


def first_of(clones: int, gate: Gate) -> Gate:
    """So many neighbours do the same: the first of them counts at the gate, and all go on when it may."""
    return Gate(partial(_of_first, clones, gate), gate.past, gate.counts)
