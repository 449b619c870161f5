"""Metastability: a load that retries keep up after what caused it has gone.

Each work arrives at λ; an attempt that takes longer than T is made again, at most R times; the server serves μ a second
(M/M/1). An attempt is late with p = min(1, exp(−(μ−λₑ)T)), and the load is λₑ = λ(1−p^{R+1})/(1−p), or with a budget of b
retries a work at most λ(1+b). Two stable solutions mean: one stall, however short, may leave the system in the upper one.
Exact: no test; what is estimated has an interval.

From a log: λ is estimated by first attempts in calm windows, μ by answers that follow each other while the server is full
(``server_capacity.py``), T by a spike of the durations, R by the largest number of an attempt. A budget shows where much is
late: if only a share r of what may be tried again is, then when everything is late a work makes Σ rᵏ attempts.

The equation holds where late attempts are served as others are: a server that hears when its callers hang up goes on
answering in time. So it is listed where answers in time became rare when most was late; where nothing shows that, it is noted.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import inf

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, spell, thing
from taut.control.server_capacity import Capacity, observed_capacity
from taut.control.timeout import constants, done
from taut.core.array_types import Floats, Ints, Mask

KIND = "metastability"
POINTS = 20_001
"""Places at which the equation is looked at."""
WINDOWS = 64
LEAST = 50
"""Works, and attempts kept, from which rates are estimated."""
MOST = 20
"""Targets that are looked at, the busiest."""
CALM, TROUBLE = 0.05, 0.5
"""Windows with a smaller share of late attempts tell how quickly the server serves, those with a larger one what is tried
again when most is late."""
IN_VAIN = 0.5
"""Where most is late, answers in time come at less than this share of what is served: the rest is served in vain."""
FULL, REFUSED = 30, 20
"""Answers of a full server, and late attempts that may be tried again, from which these are estimated."""
DRAWS = 200
SURE = 0.95
"""Share of the draws that must have two stable solutions for a system to be called vulnerable."""


@dataclass(frozen=True)
class Point:
    """One solution of the retry-load equation."""

    rate: float
    """Attempts per second."""
    late: float
    """Share of the attempts that come too late."""
    stable: bool


@dataclass(frozen=True)
class System:
    """A server and its callers, as the retry-load equation sees them."""

    per_s: float
    """Works that arrive a second."""
    serves_per_s: float
    timeout_s: float
    retries: int
    budget: float = inf
    """Retries that may be spent for a first attempt, averaged."""

    def late(self, attempts: Floats) -> Floats:
        """Share of the attempts that come too late where so many are made a second."""
        return np.exp(np.minimum(0.0, -(self.serves_per_s - attempts) * self.timeout_s))

    def load(self, attempts: Floats) -> Floats:
        """The load that a load of attempts brings about: λ(1−p^{R+1})/(1−p) at p of those attempts, at most λ(1+b)."""
        late = self.late(attempts)
        return self.per_s * np.minimum(sum(late**k for k in range(self.retries + 1)), 1 + self.budget)

    def grid(self) -> Floats:
        """Loads at which the equation is looked at; none where there is no such system."""
        if not (self.per_s > 0 and self.serves_per_s > 0 and self.timeout_s > 0 and self.retries >= 0 and self.budget >= 0):
            return np.zeros(0)
        most = self.per_s * (1 + min(self.retries, self.budget))
        even, more = np.linspace(0, most * (1 + 1e-9), POINTS), [min(self.serves_per_s, most), most]
        grid: Floats = np.insert(even, np.searchsorted(even, more), more)  # in order: ``np.unique`` would sort all of them
        once: Floats = grid[np.append(True, grid[1:] != grid[:-1])]
        return once

    def stable(self) -> int:
        """How many stable solutions there are."""
        grid = self.grid()
        above = self.load(grid) > grid
        return int((above[:-1] & ~above[1:]).sum())


def fixed_points(per_s: float, serves_per_s: float, timeout_s: float, retries: int, budget: float = inf) -> list[Point]:
    """All solutions for arrivals and service a second, a timeout and so many retries, in order of load.

    ``budget``: retries that may be spent for a first attempt, averaged. A solution is stable where the load that it brings
    about grows more slowly than the load.
    """
    system = System(per_s, serves_per_s, timeout_s, retries, budget)
    grid = system.grid()
    above = system.load(grid) - grid > 0
    out = []
    for k in np.flatnonzero(above[:-1] != above[1:]):
        low, high = grid[k], grid[k + 1]
        for _ in range(60):  # bisection, to the last bit
            middle = (low + high) / 2
            low, high = (middle, high) if (system.load(middle) - middle > 0) == above[k] else (low, middle)
        at = (low + high) / 2
        out.append(Point(float(at), float(system.late(at)), bool(above[k])))
    return out


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Targets of which rates, timeout and retries are known, if they have two stable loads."""
    rows = np.flatnonzero((log.attempt >= 0) & (log.busy_ns > 0))
    found = [_relation(log, mine, rng) for mine in log.groups(log.target, rows, 2 * LEAST, MOST)]
    return [one for one in found if one]


@dataclass(frozen=True)
class Estimates:
    """What a log tells of the attempts at one target; arrays have the value as seen, and in every draw."""

    per_s: Floats
    """Works a second."""
    serves_per_s: Floats
    budget: Floats
    """Retries that were spent for a work when most was late; infinite where that is not seen."""
    beside: int
    """Served at once, at least."""
    timeout_s: float
    delay_s: float
    """The least that an attempt takes."""
    retries: int
    late: Mask
    """The late attempts."""
    useful: float | None
    """Answers in time where most was late, as a share of what is served; None where that never was so."""

    def systems(self) -> list[System]:
        """As seen, and in every draw."""
        patience = max(self.timeout_s - self.delay_s, 1e-9)
        rates = np.stack([self.per_s, self.serves_per_s, self.budget], axis=1).tolist()
        return [System(arrive, serve, patience, self.retries, budget) for arrive, serve, budget in rates]


def estimated(log: Log, rows: Ints, rng: np.random.Generator) -> Estimates | None:
    """Rates, timeout and retries behind the attempts at a target; None where the log does not tell one of them."""
    retries = int(log.attempt[rows].max())
    took = log.busy_ns[rows] / 1e9
    limits = constants(took[~done(log)[rows]])  # constant durations of what was answered are equal work
    first = log.attempt[rows] == 0
    if retries < 1 or not limits or first.sum() < LEAST:
        return None
    timeout = limits[0].at
    at = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    width = (at[-1] + 1e-9) / WINDOWS
    windows = np.clip((at / width).astype(np.int64), 0, WINDOWS - 1)
    late = took >= timeout * (1 - 1e-3)  # clocks of client and log differ a little
    works, attempts, lates = (np.bincount(windows, mask, WINDOWS) for mask in (first, np.ones(len(rows)), late))
    calm = np.flatnonzero((attempts > 0) & (lates <= CALM * attempts))
    if len(calm) < 4 or (~late).sum() < LEAST:
        return None
    found = observed_capacity(at[~late], (at + took)[~late])
    draws = calm[rng.integers(0, len(calm), (DRAWS, len(calm)))]
    rates = _rates(found, width, calm, draws)
    if rates is None:
        return None
    arrive = np.append(works[calm].mean(), works[draws].mean(axis=1)) / width
    trouble = lates > TROUBLE * attempts
    budget = _budget(log, rows, late & trouble[windows], retries, rng)
    kept = float((attempts - lates)[trouble].sum()) / (width * max(int(trouble.sum()), 1))
    useful = kept / float(rates[0]) if trouble.any() else None
    return Estimates(arrive, rates, budget, found.beside, timeout, found.delay_s, retries, late, useful)


def _rates(found: Capacity, width: float, calm: Ints, draws: Ints) -> Floats | None:
    """Answers a second of a full server in the calm windows, and in every draw of them; None where it was hardly ever full."""
    at = np.clip((found.begin_s / width).astype(np.int64), 0, WINDOWS - 1)
    count, gaps = np.bincount(at, minlength=WINDOWS), np.bincount(at, found.gap_s, WINDOWS)
    if count[calm].sum() < FULL or not gaps[calm].sum() > 0:
        return None
    counts, gaps_s = (np.append(each[calm].sum(), each[draws].sum(axis=1)) for each in (count, gaps))
    rates: Floats = counts / np.maximum(gaps_s, 1e-12)
    return rates


def _budget(log: Log, rows: Ints, late: Mask, retries: int, rng: np.random.Generator) -> Floats:
    """Retries a work when everything is late, from the share of what was late in trouble and might have been tried again."""
    again = rows[log.attempt[rows] > 0]
    known = again[log.parent[again] >= 0]
    unknown = np.full(DRAWS + 1, inf)
    if not len(again) or len(known) < SURE * len(again):
        return unknown
    at = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    pause = float(np.quantile(log.time_ns[known] - log.time_ns[log.parent[known]], SURE)) / 1e9
    # What was late shortly before the end may have been tried again after it.
    may = late & (log.attempt[rows] < retries) & (at < at[-1] - 2 * pause)
    of, hits = int(may.sum()), int((may & np.isin(rows, log.parent[known])).sum())
    if of < REFUSED or hits >= SURE * of:
        return unknown
    # Draws of a share: Jeffreys' prior, Beta(1/2, 1/2).
    share = np.append(hits / of, rng.beta(hits + 0.5, of - hits + 0.5, DRAWS))
    spent: Floats = np.sum([share**k for k in range(1, retries + 1)], axis=0)
    return spent


def _relation(log: Log, rows: Ints, rng: np.random.Generator) -> Relation | None:
    found = estimated(log, rows, rng)
    if found is None:
        return None
    system, *draws = found.systems()
    points = [point for point in fixed_points(*astuple(system)) if point.stable]
    if len(points) < 2 or np.mean([draw.stable() > 1 for draw in draws]) < SURE:
        return None
    names, target = log.controllers(rows), log.name("target", rows[0])
    if found.useful is None:
        log.notes.append(
            f"{thing(target)} would have two stable loads if late attempts are served as others are; most were never late"
        )
    if found.useful is None or found.useful >= IN_VAIN:
        return None
    low, high = np.quantile(found.serves_per_s[1:], (0.025, 0.975))
    beside = f", {found.beside} at once" if found.beside > 1 else ""
    spent = f" (of which {system.budget:.2g} a request were made when most was late)" if system.budget < inf else ""
    because = (
        f"a stall of {thing(target)} can leave it overloaded by retries of {joined(names)}: {points[-1].rate:.3g} attempts a "
        f"second with {points[-1].late:.0%} too late, instead of {points[0].rate:.3g}; {system.per_s:.3g} requests a second, "
        f"{system.serves_per_s:.3g} served ({low:.3g} to {high:.3g}{beside}), a timeout of {spell(found.timeout_s * 1e9)} and "
        f"{found.retries} retries{spent} have two stable loads (M/M/1 assumed)"
    )
    times, cost = points[-1].rate / max(system.per_s, 1e-9), log.cost(rows[found.late])
    return Relation(KIND, names, target, "attempt", int(found.late.sum()), times, None, because, *cost)
