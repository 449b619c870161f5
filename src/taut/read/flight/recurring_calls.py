"""Steps of a job out of the order of its calls: which sequence of calls recurs, and which call belongs to which turn of it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.tables import NULL

# A sequence recurs if it comes at least so often in a row.
LEAST = 3
# Calls of a rank among which the sequence is looked for, the newest.
MOST_CALLS = 1 << 13
# Calls that are not part of the sequence end a stretch of steps if they take longer than this many steps.
PAUSE = 3.0
# The last stretch is taken if it is at least this share of the longest one.
ENOUGH = 0.5


class Turns(Struct, frozen=True):
    """The recurring sequence of a rank's calls, and the turn of every call, -1 for none."""

    sequence: Ints
    turn: Ints


class Run(Struct, frozen=True):
    """Calls that repeat the sequence without a break: the first, how many, and the place of the first in the sequence."""

    first: int
    calls: int
    place: int

    def turns(self, begin: int, period: int) -> range:
        """First calls of the whole turns in it, if a turn begins at this place of the sequence."""
        at = self.first + (begin - self.place) % period
        return range(at, at + max(self.first + self.calls - at, 0) // period * period, period)


def turns(token: Ints, time: Ints) -> Turns | None:
    """Steps of the rank that made these calls; None if no sequence of calls recurs.

    The sequence is the one that covers most calls without a break, the shortest among equals. Where it begins does not
    follow from the order: so that most of its turns are whole, and else after the longest pause between two calls.
    """
    period = _period(token[-MOST_CALLS:])
    if period is None:
        return None
    first, calls = _longest(token, period)
    runs = _runs(token, token[first : first + period])
    begin = _begin(runs, period, first, calls, time)
    turn, starts = _numbered(runs, begin, period, len(token))
    _last_stretch(turn, starts, period, time)
    return Turns(np.roll(token[first : first + period], -begin), turn)


def turns_of(sequence: Ints, token: Ints) -> Ints:
    """Turns of a sequence that is known from another rank among the calls of this one, -1 for calls outside them."""
    return _numbered(_runs(token, sequence), 0, len(sequence), len(token))[0]


def between(turn: Ints) -> None:
    """Calls between two turns, which the sequence does not have, belong to the turn after them."""
    known = np.flatnonzero(turn >= 0)
    if len(known):
        inner = slice(int(known[0]), int(known[-1]) + 1)
        turn[inner] = turn[known[np.searchsorted(known, np.arange(inner.start, inner.stop))]]


def _period(token: Ints) -> int | None:
    """Length of the sequence that covers most calls in a row."""
    best, covered = None, 0
    # Quadratic in the calls that are looked at, which MOST_CALLS bounds.
    for period in range(1, len(token) // LEAST + 1):
        calls = _longest(token, period)[1]
        if calls >= LEAST * period and calls > covered:
            best, covered = period, calls
    return best


def _breaks(token: Ints, period: int) -> Ints:
    """Calls that differ from the one a period before them, with both ends: between two of them everything repeats."""
    return np.flatnonzero(np.concatenate([[True], token[period:] != token[:-period], [True]]))


def _longest(token: Ints, period: int) -> tuple[int, int]:
    """(first call, number of calls) of the longest stretch in which everything repeats."""
    breaks = _breaks(token, period)
    repeated = np.diff(breaks) - 1
    at = int(np.argmax(repeated))
    return int(breaks[at]), int(repeated[at]) + period


def _runs(token: Ints, sequence: Ints) -> list[Run]:
    """Every stretch of at least two turns."""
    period, twice, out = len(sequence), np.concatenate([sequence, sequence]), []
    breaks = _breaks(token, period) if len(token) > period else np.zeros(0, dtype=np.int64)
    for first, stop in zip(breaks[:-1].tolist(), (breaks[1:] - 1 + period).tolist(), strict=True):
        if stop - first < 2 * period:
            continue
        window = token[first : first + period]
        places = np.flatnonzero(sequence == window[0]).tolist()
        place = next((p for p in places if np.array_equal(twice[p : p + period], window)), None)
        if place is not None:
            out.append(Run(first, stop - first, place))
    return out


def _begin(runs: list[Run], period: int, first: int, calls: int, time: Ints) -> int:
    """Place in the sequence at which a turn begins."""
    # A sequence that recurs has no beginning of its own: take one that leaves most turns whole.
    whole = np.array([sum(len(run.turns(place, period)) for run in runs) for place in range(period)])
    rows = np.arange(max(first, 1), first + calls)
    pause = np.full((calls // period + 2, period), np.nan)
    pause[(rows - first) // period, (rows - first) % period] = time[rows] - time[rows - 1]
    usual = np.nanmedian(pause, axis=0)
    best = np.flatnonzero(whole >= whole.max() - (first == 0))  # the recorder may have lost what came before
    return int(best[np.argmax(usual[best])])


def _numbered(runs: list[Run], begin: int, period: int, calls: int) -> tuple[Ints, Ints]:
    """(turn of every call, first call of every turn)."""
    starts = np.array([at for run in runs for at in run.turns(begin, period)], dtype=np.int64)
    turn = np.full(calls, NULL)
    turn[(starts[:, None] + np.arange(period)).ravel()] = np.repeat(np.arange(len(starts)), period)
    return turn, starts


def _last_stretch(turn: Ints, starts: Ints, period: int, time: Ints) -> None:
    """Keep the last stretch of turns that is long enough: after a long pause the job may have become another."""
    # A pause counts only where calls outside the sequence lie between two turns (checkpoints, evaluation).
    took, clean = np.diff(time[starts]), np.diff(starts) == period
    cuts = np.flatnonzero(~clean & (took > PAUSE * np.median(took[clean]))) + 1
    bounds = np.concatenate([[0], cuts, [len(starts)]])
    last = np.flatnonzero(np.diff(bounds) >= ENOUGH * np.diff(bounds).max())[-1]
    inside = (turn >= bounds[last]) & (turn < bounds[last + 1])
    turn[:] = np.where(inside, turn - bounds[last], NULL)
    between(turn)
