"""Correlations that a file uses twice: a profiler that starts again in one process may count from the beginning again."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.ids import distinct
from taut.read.kineto.event_columns import Events
from taut.read.kineto.event_kinds import COPY, DEVICE, RUNTIME

LIMIT = 2**62


def tell_apart(events: Events) -> None:
    """Give calls that use a number again, and what they launched, numbers of their own.

    A call inside another of its number is the same launch. Work belongs to the last call of its number that began before
    the work ended.
    """
    calls = events.rows(RUNTIME)
    calls = calls[events.correlation[calls] > 0]
    if len(distinct(events.correlation[calls])) == len(calls):
        return
    calls = calls[np.lexsort((events.start[calls], events.correlation[calls]))]
    number, start, end = (column[calls] for column in (events.correlation, events.start, events.end))
    again = (number[1:] == number[:-1]) & (start[1:] >= end[:-1])
    if not again.any():
        return
    first = np.concatenate([[True], number[1:] != number[:-1]])
    uses = np.cumsum(np.concatenate([[False], again]))
    turn = uses - uses[np.maximum.accumulate(np.where(first, np.arange(len(calls)), 0))]
    stride = int(events.correlation.max()) + 1
    if stride * (int(turn.max()) + 1) >= LIMIT:
        return
    work = events.rows(DEVICE, COPY)
    work = work[np.isin(events.correlation[work], number[1:][again])]
    last = _last_before(number, start, events.correlation[work], events.end[work])
    events.correlation[work] += stride * turn[last]
    events.correlation[calls] += stride * turn


def _last_before(number: Ints, start: Ints, wanted: Ints, until: Ints) -> Ints:
    """For each wanted number its last call that began until then, else its first; calls are in order."""
    both, at = np.concatenate([number, wanted]), np.concatenate([start, until])
    order = np.lexsort((np.arange(len(both)) >= len(number), at, both))
    seen = np.maximum.accumulate(np.where(order < len(number), order, -1))
    last = np.empty(len(both), dtype=np.int64)
    last[order] = seen
    first = np.searchsorted(number, wanted, "left")
    return np.maximum(last[len(number) :], first)
