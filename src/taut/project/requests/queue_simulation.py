"""What simulations of requests and of tasks have in common: the window, settings, draws, and what came out of them.

A few servers stand for all, and a window without its edges for all time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Mask
from taut.core.normal_score import normal_score
from taut.project.noise import GRID, longest, odds
from taut.project.requests.batch_means import Blocks
from taut.project.requests.iteration_time import Pace
from taut.project.requests.replica_pool import ReplicaPool
from taut.project.training.grid import mix
from taut.project.training.scenario import Noise

# Servers that are simulated: more are alike, and these stand for them.
MOST_SERVERS = 8
# Requests or tasks arrive for at least this many times as long as one takes alone.
SPANS = 20.0
# Of the time in which requests arrive: what lies before fills the servers, what lies behind has no successors.
WINDOW = 0.2, 0.95
# Of the time in which requests arrive: when a stall begins.
STALL_AT = 1 / 3
# Times that span after which what is left unanswered stays so.
PATIENCE = 3.0
# Below this share of answers for requests, servers fall behind; above it is chance.
SATURATED = 0.95


@dataclass(frozen=True)
class Outcome:
    """What became of the requests or tasks that came inside the window: one row for each."""

    window_ns: tuple[float, float]
    came_ns: Floats
    took_ns: Floats
    """Until its answer, or until it was given up; NaN where neither had happened in the end."""
    answered: Mask
    good: Mask
    """Whether it was answered rightly and as promised."""
    flow: float
    """What ended in the window over what came in it: below one where servers fall behind …"""
    good_flow: float
    """… and the same of what was answered rightly and as promised."""
    busy: float
    """Share of the window in which servers worked."""
    discarded: float
    """Share of the work whose result nobody took."""
    counts: Mapping[str, float]

    @property
    def blocks(self) -> Blocks:
        """The parts of the window, for intervals."""
        return Blocks(self.window_ns, self.came_ns)

    @property
    def saturated(self) -> bool:
        """Whether servers fall behind what comes, or fail it."""
        return self.flow < SATURATED

    @property
    def answered_share(self) -> float:
        """Share that is answered; where servers fall behind, what ends counts."""
        return self.flow if self.saturated or not len(self.answered) else float(self.answered.mean())

    @property
    def good_share(self) -> float:
        """Share that is answered rightly and as promised; where servers fall behind, what ends counts."""
        return self.good_flow if self.saturated or not len(self.good) else float(self.good.mean())

    @property
    def attained(self) -> float:
        """Share that ends as promised."""
        return self.good_share


def window_of(span_ns: float) -> tuple[float, float]:
    """The part of a span of arrivals that is counted."""
    return WINDOW[0] * span_ns, WINDOW[1] * span_ns


def within(window_ns: tuple[float, float], at_ns: Floats) -> Mask:
    """Which times lie in the window."""
    return (at_ns >= window_ns[0]) & (at_ns < window_ns[1])


def flows(window_ns: tuple[float, float], came: int, ended_ns: Floats, good: Mask) -> tuple[float, float]:
    """What ended in the window, and what of it was good, over what came in it; NaN for what never ended."""
    ended = within(window_ns, ended_ns)
    return float(ended.sum()) / max(came, 1), float((ended & good).sum()) / max(came, 1)


def busy_share(busy_ns: float, servers: int, window_ns: tuple[float, float]) -> float:
    """Share of the window in which servers worked."""
    seconds = (window_ns[1] - window_ns[0]) * 1e-9
    return min(busy_ns / (servers * seconds * 1e9), 1.0)


def settings_of(names: Sequence[str], pool: ReplicaPool, pace: Pace, span_ns: float, own: Mapping[str, float]) -> Floats:
    """The settings of a kernel in the order of their names: those of the pool and of the window, and its own."""
    values = {
        "retry_budget": 1e9 if pool.retry_budget is None else pool.retry_budget, "cancels": pool.cancels,
        "stall_from_ns": STALL_AT * span_ns, "stall_to_ns": STALL_AT * span_ns + pool.stall_s * 1e9, "kv_ns": pace.kv_ns,
        "score_ns": pace.score_ns, "until_ns": PATIENCE * span_ns, "from_ns": WINDOW[0] * span_ns, "to_ns": WINDOW[1] * span_ns,
        **own,
    }  # fmt: skip
    return np.array([float(values[name]) for name in names])


def key_of(seed: int, stream: int) -> int:
    """Where a kernel's draws begin."""
    return int(mix(mix(seed & 0xFFFFFFFF) ^ stream))


def spread_arrivals(at_s: Floats, factor: float) -> Floats:
    """Arrivals with their distance from even spacing scaled, in order."""
    if factor == 1 or len(at_s) < 2:
        return at_s
    # Sorting keeps arrivals in order where a factor above 1 makes them overtake each other.
    even = np.linspace(at_s[0], at_s[-1], len(at_s))
    spread = np.sort(even + factor * (at_s - even))
    return np.asarray(spread - min(spread[0], 0.0))


@lru_cache(maxsize=64)
def noise_tables(n: Noise, tp: int) -> Floats:
    """Quantiles of an iteration's work over its mean, of what its step adds (longest of tp devices each), and of a drift."""
    quiet = n.distribution == "none" or n.step_spread == 0
    drift = normal_score(*odds(GRID))
    return np.stack([longest(n, tp), longest(Noise("none" if quiet else "gaussian", n.step_spread), tp), drift])


def server_factors(n: Noise, devices: int, servers: int, seed: int) -> Floats:
    """Lasting speed factor of each server (2: twice as long as others): the slowest of its devices counts."""
    rng = np.random.default_rng((seed, 12))  # 11 to 13 and 21 are the streams of this room: arrivals, servers, drift, tasks
    factor = np.ones((servers, devices))
    if n.distribution != "none":
        factor += n.ranks_spread * rng.standard_normal(factor.shape)
    factor *= np.where(rng.random(factor.shape) < n.slow_share, n.slow_factor, 1.0)
    return np.asarray(np.maximum(factor, 0.0).max(axis=1))


def without_noise(n: Noise) -> Noise:
    """The same devices, all alike and none with jitter."""
    return replace(n, distribution="none", slow_share=0.0)
