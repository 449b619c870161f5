"""Metastability: a load that retries keep up after what caused it has gone.

Each work arrives at λ; an attempt that takes longer than T is made again, at most R times; the server serves μ a second
(M/M/1). An attempt is late with p = min(1, exp(−(μ−λₑ)T)), and the load is λₑ = λ(1−p^{R+1})/(1−p), or with a budget of b
retries a work at most λ(1+b). Two stable solutions mean: one stall, however short, may leave the system in the upper one.
Exact: no test; what is estimated has an interval.

From a log: λ is told by first attempts in calm windows, μ by answers that follow each other while the server is full
(``served.py``), T by a spike of the durations, R by the largest number of an attempt. A budget shows where much is late: if
only a share r of what may be tried again is, then when everything is late a work makes Σ rᵏ attempts.

The equation holds where late attempts are served as others are: a server that hears when its callers hang up goes on
answering in time. So it is listed where answers in time became rare when most was late; where nothing shows that, it is noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.capacity import Served, served
from taut.control.relation import Relation, spell
from taut.control.timeout import DONE, constants

KIND = "metastability"
POINTS = 20_001
"""Places at which the equation is looked at."""
WINDOWS = 64
LEAST = 50
"""Works, and attempts kept, from which rates are told."""
MOST = 20
"""Targets that are looked at, the busiest."""
CALM, TROUBLE = 0.05, 0.5
"""Windows with a smaller share of late attempts tell how quickly the server serves, those with a larger one what is tried
again when most is late."""
IN_VAIN = 0.5
"""Where most is late, answers in time come at less than this share of what is served: the rest is served in vain."""
FULL, REFUSED = 30, 20
"""Answers of a full server, and late attempts that may be tried again, from which these are told."""
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


def load(rate: float, service: float, timeout: float, retries: int, attempts: Any, budget: float = inf) -> Any:
    """The load that a load of attempts brings about: λ(1−p^{R+1})/(1−p) at p of those attempts, at most λ(1+b)."""
    late = np.exp(np.minimum(0.0, -(service - attempts) * timeout))
    return rate * np.minimum(sum(late**k for k in range(retries + 1)), 1 + budget)


def fixed_points(rate: float, service: float, timeout: float, retries: int, budget: float = inf) -> list[Point]:
    """All solutions for arrivals and service a second, a timeout in seconds and so many retries, in order of load.

    ``budget``: retries that may be spent for a first attempt, averaged. A solution is stable where the load that it brings
    about grows more slowly than the load.
    """
    grid, above = _grid(rate, service, timeout, retries, budget)
    out = []
    for k in np.flatnonzero((above[:-1] > 0) != (above[1:] > 0)):
        low, high = grid[k], grid[k + 1]
        for _ in range(60):
            middle = (low + high) / 2
            inside = load(rate, service, timeout, retries, middle, budget) - middle > 0
            low, high = (middle, high) if inside == (above[k] > 0) else (low, middle)
        at = float((low + high) / 2)
        late = float(np.exp(min(0.0, -(service - at) * timeout)))
        out.append(Point(at, late, bool(above[k] > 0)))
    return out


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Targets of which rates, timeout and retries can be told, if they have two stable loads."""
    out = []
    rows = np.flatnonzero((log.attempt >= 0) & (log.busy_ns > 0))
    for mine in log.groups(log.target, rows, 2 * LEAST, MOST):
        found = _estimated(log, mine, rng)
        out += [found] if found else []
    return out


def stable(rate: float, service: float, timeout: float, retries: int, budget: float = inf) -> int:
    """How many stable solutions there are."""
    above = _grid(rate, service, timeout, retries, budget)[1] > 0
    return int((above[:-1] & ~above[1:]).sum())


def _grid(rate: float, service: float, timeout: float, retries: int, budget: float) -> tuple[Any, Any]:
    """Loads, and how much more each brings about; none where there is no such system."""
    if not (rate > 0 and service > 0 and timeout > 0 and retries >= 0 and budget >= 0):
        return np.zeros(0), np.zeros(0)
    most = rate * (1 + min(retries, budget))
    grid = np.unique(np.concatenate([np.linspace(0, most * (1 + 1e-9), POINTS), [min(service, most), most]]))
    return grid, load(rate, service, timeout, retries, grid, budget) - grid


@dataclass(frozen=True)
class Told:
    """What a log tells of the attempts at one target."""

    per_s: Any
    """Works a second, as seen and in every draw …"""
    serves_per_s: Any
    """… and what is served, the same."""
    beside: int
    """Served at once, at least."""
    timeout_s: float
    delay_s: float
    """The least that an attempt takes."""
    retries: int
    budget: Any
    """Retries that were spent for a work when most was late, as seen and in every draw; infinite where that is not seen."""
    late: Any
    """Mask of the late attempts."""
    useful: float | None
    """Answers in time where most was late, as a share of what is served; None where that never was so."""


def told(log: Log, rows: Any, rng: np.random.Generator) -> Told | None:
    """Rates, timeout and retries behind the attempts at a target; None where the log does not tell one of them."""
    retries = int(log.attempt[rows].max())
    took = log.busy_ns[rows].astype(np.float64) / 1e9
    done = log.holding("outcome", rf"^({'|'.join(DONE)})$")[rows]
    limits = constants(took[~done])  # constant durations of what was answered are equal work
    first = log.attempt[rows] == 0
    if retries < 1 or not limits or first.sum() < LEAST:
        return None
    timeout = limits[0].at
    at = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    width = (at[-1] + 1e-9) / WINDOWS
    windows = np.clip((at / width).astype(np.int64), 0, WINDOWS - 1)
    late = took >= timeout * (1 - 1e-3)
    works, attempts, lates = (np.bincount(windows, mask, WINDOWS) for mask in (first, np.ones(len(rows)), late))
    calm = np.flatnonzero((attempts > 0) & (lates <= CALM * attempts))
    if len(calm) < 4 or (~late).sum() < LEAST:
        return None
    found = served(at[~late], (at + took)[~late])
    some = calm[rng.integers(0, len(calm), (DRAWS, len(calm)))]
    rates = _capacity(found, width, calm, some)
    if rates is None:
        return None
    arrive = np.append(works[calm].mean(), works[some].mean(axis=1)) / width
    trouble = lates > TROUBLE * attempts
    budget = _budget(log, rows, late & trouble[windows], at, retries, rng)
    kept = float((attempts - lates)[trouble].sum()) / (width * max(int(trouble.sum()), 1))
    useful = kept / float(rates[0]) if trouble.any() else None
    return Told(arrive, rates, found.beside, timeout, found.delay_s, retries, budget, late, useful)


def _capacity(found: Served, width: float, calm: Any, draws: Any) -> Any:
    """Answers a second of a full server in the calm windows, and in every draw of them; None where it was hardly ever full."""
    at = np.clip((found.begin_s / width).astype(np.int64), 0, WINDOWS - 1)
    count, gaps = np.bincount(at, minlength=WINDOWS), np.bincount(at, found.gap_s, WINDOWS)
    if count[calm].sum() < FULL or not gaps[calm].sum() > 0:
        return None
    every = np.concatenate([[count[calm].sum()], count[draws].sum(axis=1)])
    return every / np.maximum(np.concatenate([[gaps[calm].sum()], gaps[draws].sum(axis=1)]), 1e-12)


def _budget(log: Log, rows: Any, late: Any, at: Any, retries: int, rng: np.random.Generator) -> Any:
    """Retries a work when everything is late, from the share of what was late in trouble and might have been tried again."""
    again = rows[log.attempt[rows] > 0]
    unknown = np.full(DRAWS + 1, inf)
    if not len(again) or (log.parent[again] >= 0).mean() < SURE:
        return unknown
    known = again[log.parent[again] >= 0]
    followed = np.isin(rows, log.parent[known])
    pause = float(np.quantile(log.time_ns[known] - log.time_ns[log.parent[known]], SURE)) / 1e9
    may = late & (log.attempt[rows] < retries) & (at < at[-1] - 2 * pause)
    of, hits = int(may.sum()), int((may & followed).sum())
    if of < REFUSED or hits >= SURE * of:
        return unknown
    share = np.append(hits / of, rng.beta(hits + 0.5, of - hits + 0.5, DRAWS))
    return sum(share**k for k in range(1, retries + 1))


def _estimated(log: Log, rows: Any, rng: np.random.Generator) -> Relation | None:
    found = told(log, rows, rng)
    if found is None:
        return None
    patience = max(found.timeout_s - found.delay_s, 1e-9)
    rates = np.stack([found.per_s, found.serves_per_s, found.budget], axis=1)
    arrive, serve, budget = map(float, rates[0])
    points = [point for point in fixed_points(arrive, serve, patience, found.retries, budget) if point.stable]
    if len(points) < 2 or np.mean([stable(a, s, patience, found.retries, b) > 1 for a, s, b in rates[1:]]) < SURE:
        return None
    target = log.word("target", int(log.target[rows[0]]))
    if found.useful is None:
        log.notes.append(
            f"{target} would have two stable loads if late attempts are served as others are; most were never late"
        )
    if found.useful is None or found.useful >= IN_VAIN:
        return None
    low, high = np.quantile(found.serves_per_s[1:], (0.025, 0.975))
    names = [log.word("controller", c) for c in dict.fromkeys(log.controller[rows].tolist())]
    beside = f", {found.beside} at once" if found.beside > 1 else ""
    spent = f" (of which {budget:.2g} a work were made when most was late)" if budget < inf else ""
    because = (
        f"{arrive:.3g} works a second, {serve:.3g} served ({low:.3g} to {high:.3g}{beside}), a timeout of "
        f"{spell(found.timeout_s * 1e9)} and {found.retries} retries{spent} have two stable loads: {points[0].rate:.3g} "
        f"attempts a second, and {points[-1].rate:.3g} with {points[-1].late:.0%} too late; a stall can leave it there "
        f"(M/M/1 assumed)"
    )
    return Relation(KIND, tuple(names), target, "attempt", int(found.late.sum()), points[-1].rate / max(arrive, 1e-9), None,
                    because, *log.cost(rows[found.late]))  # fmt: skip
