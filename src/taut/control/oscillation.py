"""Oscillation: a controller that turns its knob back and forth more often than demand does.

Accounting, where demand is known: each turn of demand forces a reversal; what is beyond is the controller's own. It is
exact, and from few reversals no chance is given.

Statistic, from many reversals: the largest peak of the periodogram of the knob over the frequencies around it, the knob
cleared of what demand explains (its values around the time, as a straight line and by rank) and whitened (AR(1)).
Frequencies at which demand itself has a period, and their multiples, are left out: what recurs with it is forced by it.

Null hypothesis: the knob follows demand, plus red noise (AR(1)). Surrogates of the AR(1) that was fitted go through the
same. (Raw, the largest peak of ordinary red noise looks like a period.) Without demand nothing is listed: a period of
demand would look the same; the count is noted, and the regime is not known.
"""

from __future__ import annotations

import numpy as np

from taut.control.action_log import Demand, Log
from taut.control.relation import Relation, spell, thing
from taut.core.array_types import Floats, Ints, Mask
from taut.core.jit import kernel

KIND = "oscillation"
LEAST = 20
"""Reversals from which a chance is given."""
LISTED = 4
"""Fewer reversals of its own are not listed: two there and two back."""
SURROGATES = (49, 499)
"""Surrogates that are tried one after the other, as long as hardly any of them reaches what was seen."""
REACHED = 5
BINS = 512
"""Places of the periodogram's time axis, at most."""
PER_ACTION = 4
"""Places for each action, at most: an autoscaler is no oscilloscope."""
LAGS = 4
"""Places before and after at which demand may explain the knob."""
AROUND, BESIDE, LEAST_BESIDE = 16, 2, 8
"""Frequencies on each side that a peak is compared with, those next to it that may belong to it, and how many it takes."""
FINER, LOBE = 16, 2
"""How much more exactly the period of demand is taken than the spectrum tells, and how wide the taper makes a line."""
LOG_MEAN = 1.78
"""The mean of an exponential variable over the exponential of its mean logarithm: what power is over its surroundings."""
PEAK = 0.01
"""Chance of a period of demand found by accident, over all frequencies."""
SWING = 0.1
"""A turn of demand is a turn if it swings back by this part of its range (5 to 95 %): less is noise."""
SOMEBODY = "somebody (one controller, or several against each other: the log does not name them)"
MOST = 100
"""Streams that are tested, those with the most reversals."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Every stream that turns back often enough to speak of."""
    out = []
    turned: dict[int, int] = {}
    unknown: list[tuple[Ints, int, Demand | None]] = []
    for rows, turns in reversing(log):
        known = log.demand_of(int(log.target[rows[0]]))
        if known is None or known.own:
            # A job that is started and preempted by turns is judged by whether it gets through (starvation).
            unknown += [] if log.of_job[rows].all() else [(rows, turns, known)]
            continue
        rows = rows[(log.time_ns[rows] >= known.time_ns[0]) & (log.time_ns[rows] <= known.time_ns[-1])]
        if id(known) not in turned:
            turned[id(known)] = turns_of(known)
        found = _found(log, rows, known, turned[id(known)], rng) if len(rows) > LISTED else None
        out += [found] if found else []
    if unknown:
        _note(log, *unknown[0], len(unknown) - 1)
    return out


def reversing(log: Log) -> list[tuple[Ints, int]]:
    """Rows of each stream and how often it turned back, those that did so most first."""
    rows = np.flatnonzero((log.direction != 0) & (log.target >= 0))
    order = rows[np.argsort(log.stream[rows], kind="stable")]
    if len(order) < 2:
        return []
    same = np.diff(log.stream[order]) == 0
    turned = same & (np.diff(log.direction[order]) != 0)
    ends = np.concatenate([[0], np.flatnonzero(~same) + 1, [len(order)]])
    turns = np.add.reduceat(np.append(turned, False), ends[:-1])
    often = np.argsort(-turns, kind="stable")[:MOST]
    return [(order[ends[k] : ends[k + 1]], int(turns[k])) for k in often if turns[k] >= LISTED]


def _note(log: Log, rows: Ints, turns: int, known: Demand | None, others: int) -> None:
    more = f" ({others} others turned back, too)" if others else ""
    seen = "demand"
    if known is not None:
        seen = f"{known.name}, as it saw it when it acted, turned {zigzag(known.value, 0.0)} times, and demand itself"
    text = (
        f"{_reversed(log, rows)} {turns} times; {seen} is not recorded, so whether that is oscillation "
        f"is not known: add the metric that it follows (requests, queue, load) beside the log{more}"
    )
    log.notes.append(text)
    log.unjudged.append(text)


def _reversed(log: Log, rows: Ints) -> str:
    who, knob, target = (log.name(column, rows[0]) for column in ("controller", "knob", "target"))
    return f"{who or SOMEBODY} reversed {knob} of {thing(target)}"


def _found(log: Log, rows: Ints, known: Demand, of_demand: int, rng: np.random.Generator) -> Relation | None:
    way, at = log.direction[rows], log.time_ns[rows]
    turned = np.flatnonzero(np.diff(way) != 0) + 1
    forced = (known.at(at[turned]) - known.at(at[turned - 1])) * way[turned] > 0
    count, own, more = len(turned), int((~forced).sum()), len(turned) - of_demand
    who, knob, target = (log.name(column, rows[0]) for column in ("controller", "knob", "target"))
    because = (
        f"{_reversed(log, rows)} {count} times in {spell(at[-1] - at[0])}, while demand ({known.name}) turned {of_demand} times"
    )
    cost = log.cost(rows[turned[~forced]])
    if count < LEAST:
        because += f"; demand forces that many at most, and {more} reversals are its own; too few for a p-value"
        return Relation(KIND, (who,), target, knob, count, more / count, None, because, *cost) if more >= LISTED else None
    statistic, period_ns, p = period(at, level(log, rows), known, rng)
    because += (
        f"; demand had moved the same way before {int(forced.sum())} of the reversals and not before {own}; what demand does "
        f"not explain has a period of {spell(period_ns)}"
    )
    return Relation(KIND, (who,), target, knob, count, statistic, p if own >= LISTED else 1.0, because, *cost)


def level(log: Log, rows: Ints) -> Floats:
    """The knob after each action: its value, or where that is no number, ups less downs."""
    known = log.level[rows]
    return known if np.isfinite(known).all() else np.cumsum(log.direction[rows]).astype(np.float64)


def turns_of(known: Demand) -> int:
    """Turns of demand that are more than noise."""
    low, high = np.quantile(known.value, (0.05, 0.95))
    return int(zigzag(known.value, SWING * float(high - low)))


@kernel(lists=True)
def zigzag(values: Floats, swing: float) -> int:
    """How often a series turns back by more than a swing."""
    turns, way, extreme = 0, 0, values[0]
    for value in values:
        if way == 0:  # no direction yet: wait until the series has left its first value by a swing
            if abs(value - extreme) > swing:
                way = 1 if value > extreme else -1
                extreme = value
        elif (value - extreme) * way > 0:
            extreme = value
        elif abs(value - extreme) > swing:
            turns, way, extreme = turns + 1, -way, value
    return turns


def period(at: Ints, values: Floats, known: Demand, rng: np.random.Generator) -> tuple[float, float, float]:
    """(the largest peak over its surroundings, its period, its chance)."""
    bins = int(min(BINS, PER_ACTION * len(at)))
    step = float(at[-1] - at[0]) / bins
    times = at[0] + step * (np.arange(bins) + 0.5)
    knob = values[np.maximum(np.searchsorted(at, times, side="right") - 1, 0)]
    wanted = known.at(times)
    basis = _explained(wanted, bins)
    # What demand explains is taken out by projection; surrogates go through the same, which keeps the test fair.
    rest = knob - basis @ (basis.T @ knob)
    free = _free(wanted)
    if not free.any() or not (rest**2).sum() > 1e-12 * (knob**2).sum():
        return 0.0, 0.0, 1.0
    rho = float(_rho(rest[None])[0])
    score, where = _peak(rest[None], free)
    p = 1.0
    for count in SURROGATES:  # more of them only where p may still come out small
        noise = _autoregressive(rng.standard_normal((count, bins)), rho)
        null, _ = _peak(noise - (noise @ basis) @ basis.T, free)
        reached = int((null >= score[0] - 1e-12).sum())
        p = (1 + reached) / (1 + count)
        if reached > REACHED:
            break
    return float(score[0]), float(bins * step / (where[0] + 1)), p


def _autoregressive(noise: Floats, rho: float) -> Floats:
    """White noise, a series in each row, as AR(1); scipy's filter takes longer to import than all of this."""
    along = np.ascontiguousarray(noise.T)
    for k in range(1, len(along)):
        along[k] += rho * along[k - 1]
    return np.ascontiguousarray(along.T)


def _explained(wanted: Floats, bins: int) -> Floats:
    """Orthonormal basis of a constant, a trend, and demand and its ranks around the time."""
    ranks = np.argsort(np.argsort(wanted, kind="stable"), kind="stable").astype(np.float64)
    columns = [np.ones(bins), np.linspace(-1, 1, bins)]
    for one in (wanted, ranks):
        columns += [one[np.clip(np.arange(bins) - lag, 0, bins - 1)] for lag in range(-1, LAGS + 1)]
    table = np.stack(columns, axis=1)
    table[:, 1:] -= table[:, 1:].mean(axis=0)
    scale = np.sqrt((table**2).sum(axis=0))
    left, size, _ = np.linalg.svd(table / np.where(scale > 0, scale, 1.0), full_matrices=False)
    return left[:, size > 1e-6 * size[0]]


def _rho(series: Floats) -> Floats:
    """How much of each value the one before tells (AR(1)); at most 0.99, beyond which a series hardly ever comes back."""
    power = (series[:, :-1] ** 2).sum(axis=1)
    rho: Floats = np.clip((series[:, 1:] * series[:, :-1]).sum(axis=1) / np.where(power > 0, power, 1.0), 0.0, 0.99)
    return rho


def _spectrum(series: Floats) -> Floats:
    """Periodogram of each series less what the value before tells, tapered (Hann), zero frequency left out."""
    white = series[:, 1:] - _rho(series)[:, None] * series[:, :-1]
    white = (white - white.mean(axis=1, keepdims=True)) * np.hanning(white.shape[1])
    return np.abs(np.fft.rfft(white, axis=1)[:, 1:]) ** 2


def _peak(series: Floats, free: Mask) -> tuple[Floats, Ints]:
    """The largest of the free frequencies over those around it, and which it is."""
    over = _over(_spectrum(series), free)
    where = over.argmax(axis=1)
    return np.exp(np.minimum(over[np.arange(len(over)), where], 300.0)), where


def _over(power: Floats, free: Mask) -> Floats:
    """Logarithm of each free frequency's power over that of those around it.

    A knob is not quite AR(1) (it is rounded, and looked at now and then), so its spectrum is not quite flat when whitened.
    """
    logs = np.where(free, np.log(power + 1e-300), 0.0)
    # Sums over a range of frequencies are differences of running sums.
    count = np.cumsum(np.concatenate([[0], free]))
    total = np.cumsum(np.concatenate([np.zeros((len(logs), 1)), logs], axis=1), axis=1)
    at = np.arange(len(free))
    beside = np.zeros_like(logs)
    number = np.zeros(len(free))
    for low, high in ((at - AROUND, at - BESIDE), (at + BESIDE + 1, at + AROUND + 1)):
        low, high = np.clip(low, 0, len(free)), np.clip(high, 0, len(free))
        beside += total[:, high] - total[:, low]
        number += count[high] - count[low]
    return np.where(free & (number >= LEAST_BESIDE), logs - beside / np.maximum(number, 1), -np.inf)


def _free(wanted: Floats) -> Mask:
    """Frequencies at which demand has no period, nor a multiple of one."""
    bins = len(wanted)
    level = wanted - wanted.mean()
    power = _spectrum(level[None])
    free = np.ones(power.shape[1], dtype=bool)
    if not power.mean() > 0:
        return free
    tapered = level[1:] * np.hanning(bins - 1)
    raw = np.abs(np.fft.rfft(tapered)[1:]) ** 2
    # A periodogram of noise is exponential: the largest of n exceeds its mean log(n / chance) times with that chance.
    many = np.log(len(free) / PEAK)
    lines = (power[0] > many * power.mean()) | (_over(raw[None], free)[0] > np.log(LOG_MEAN * many))
    fine = np.abs(np.fft.rfft(tapered, FINER * (bins - 1)))  # zero-padded, to place a line between two frequencies
    for line in np.flatnonzero(lines).tolist():
        begin = max(FINER * line, 1)
        exact = (begin + int(np.argmax(fine[begin : FINER * (line + 2) + 1]))) / FINER
        for k in range(1, int(len(free) / exact) + 2):
            reach = LOBE + k / FINER
            free[max(int(np.ceil(k * exact - reach)) - 1, 0) : max(int(np.floor(k * exact + reach)), 0)] = False
    return free
