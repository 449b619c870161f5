"""Metastability: a load that retries keep up after what caused it has gone.

Each work arrives at λ; an attempt that takes longer than T is made again, at most R times; the server serves μ a second
(M/M/1). An attempt is late with p = min(1, exp(−(μ−λₑ)T)), and the load is λₑ = λ(1−p^{R+1})/(1−p). Two stable solutions
mean: one stall, however short, may leave the system in the upper one. Exact: no test; what is estimated has an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.control.log import Log
from taut.control.relation import Relation, spell
from taut.control.timeout import constants

KIND = "metastability"
POINTS = 20_001
"""Places at which the equation is looked at."""
WINDOWS = 64
LEAST = 50
"""Works, and attempts kept, from which rates are told."""
MOST = 20
"""Targets that are looked at, the busiest."""
CALM = 0.05
"""Windows with a smaller share of late attempts than this tell how quickly the server serves."""
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


def load(rate: float, service: float, timeout: float, retries: int, attempts: Any) -> Any:
    """The load that a load of attempts brings about: λ(1−p^{R+1})/(1−p) at p of those attempts."""
    late = np.exp(np.minimum(0.0, -(service - attempts) * timeout))
    return rate * sum(late**k for k in range(retries + 1))


def fixed_points(rate: float, service: float, timeout: float, retries: int) -> list[Point]:
    """All solutions for arrivals and service a second, a timeout in seconds and so many retries, in order of load.

    A solution is stable where the load that it brings about grows more slowly than the load.
    """
    if not (rate > 0 and service > 0 and timeout > 0 and retries >= 0):
        return []
    most = rate * (retries + 1)
    grid = np.unique(np.concatenate([np.linspace(0, most * (1 + 1e-9), POINTS), [min(service, most), most]]))
    above = load(rate, service, timeout, retries, grid) - grid
    out = []
    for k in np.flatnonzero((above[:-1] > 0) != (above[1:] > 0)):
        low, high = grid[k], grid[k + 1]
        for _ in range(60):
            middle = (low + high) / 2
            inside = load(rate, service, timeout, retries, middle) - middle > 0
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


def _estimated(log: Log, rows: Any, rng: np.random.Generator) -> Relation | None:
    retries = int(log.attempt[rows].max())
    limits = constants(log.busy_ns[rows].astype(np.float64) / 1e9)
    first = log.attempt[rows] == 0
    if retries < 1 or not limits or first.sum() < LEAST:
        return None
    timeout = limits[0].at
    at = (log.time_ns[rows] - log.time_ns[rows[0]]) / 1e9
    windows = np.clip((at / (at[-1] + 1e-9) * WINDOWS).astype(np.int64), 0, WINDOWS - 1)
    width = (at[-1] + 1e-9) / WINDOWS
    late = log.busy_ns[rows] / 1e9 >= timeout * (1 - 1e-3)
    works, attempts, lates = (np.bincount(windows, mask, WINDOWS) for mask in (first, np.ones(len(rows)), late))
    took = np.bincount(windows, np.where(late, 0.0, log.busy_ns[rows] / 1e9), WINDOWS)
    calm = np.flatnonzero((attempts > 0) & (lates <= CALM * attempts))
    if len(calm) < 4:
        return None
    kept = attempts - lates

    def rates(some: Any) -> tuple[Any, Any]:
        sojourn = took[some].sum(axis=-1) / np.maximum(kept[some].sum(axis=-1), 1)
        arrive = works[some].mean(axis=-1) / width
        return arrive, attempts[some].mean(axis=-1) / width + 1 / np.maximum(sojourn, 1e-9)

    arrive, serve = rates(calm)
    draws = rates(calm[rng.integers(0, len(calm), (DRAWS, len(calm)))])
    twice = np.mean([stable(a, s, timeout, retries) > 1 for a, s in zip(*draws, strict=True)])
    points = [point for point in fixed_points(float(arrive), float(serve), timeout, retries) if point.stable]
    if len(points) < 2 or twice < SURE:
        return None
    low, high = np.quantile(draws[1], (0.025, 0.975))
    names = [log.word("controller", c) for c in dict.fromkeys(log.controller[rows].tolist())]
    because = (
        f"{arrive:.3g} works a second, {serve:.3g} served ({low:.3g} to {high:.3g}), a timeout of {spell(timeout * 1e9)} and "
        f"{retries} retries have two stable loads: {points[0].rate:.3g} attempts a second, and {points[-1].rate:.3g} with "
        f"{points[-1].late:.0%} too late; a stall can leave it there (M/M/1 assumed)"
    )
    return Relation(KIND, tuple(names), log.word("target", int(log.target[rows[0]])), "attempt", int(lates.sum()),
                    points[-1].rate / max(float(arrive), 1e-9), None, because, *log.cost(rows[late]))  # fmt: skip


def stable(rate: float, service: float, timeout: float, retries: int) -> int:
    """How many stable solutions there are."""
    return sum(point.stable for point in fixed_points(float(rate), float(service), timeout, retries))
