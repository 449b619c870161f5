"""Requests of a scenario, drawn: when they come, how long they are, what leaves they wait for first."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from taut.core.array_types import Floats, Ints
from taut.project.noise import GRID
from taut.project.requests.fan_out import fan_out, hedged, through
from taut.project.requests.queue_simulation import spread_arrivals
from taut.project.requests.serving.scenario import Arrivals, Leaves, ServingScenario


class Requests(NamedTuple):
    """One row for each request, in the order in which they come to the servers."""

    came_ns: Floats
    asked_ns: Floats
    """When they came to a server, their leaves having answered."""
    prompt: Ints
    fresh: Ints
    """Prompt tokens that are in no cache."""
    output: Ints


def draw(s: ServingScenario, count: int, share: float, seed: int) -> Requests:
    """So many requests, of which the simulated servers get this share."""
    a, v = s.arrivals, s.serving
    rng = np.random.default_rng((seed, 11))
    if a.process == "recorded":
        at_s, prompt, output = _recorded(s, count, share, rng)
    else:
        at_s = _modulated(s, count, share, rng) if a.dispersion > 1 else rng.exponential(1 / (s.per_s * share), count).cumsum()
        prompt = _lengths(a.prompt_tokens, a.prompt_spread, count, rng)
        output = _lengths(a.generated_tokens, a.generated_spread, count, rng)
    output = np.minimum(output, max(s.model.sequence - 1, 1))
    prompt = np.maximum(np.minimum(prompt, s.model.sequence - output), 1)
    cached = v.prefix_cache_share + (v.session_cache_share if v.routing == "session" else 0.0)
    fresh = np.maximum(np.round(prompt * (1 - min(cached, 1.0))), 1).astype(np.int64)
    came = spread_arrivals(at_s, a.stray) * 1e9
    asked = came + leaf_ns(s.leaves, count, rng)
    order = np.argsort(asked, kind="stable")
    return Requests(came[order], asked[order], prompt[order], fresh[order], output[order])


def modulation(a: Arrivals, per_s: float) -> tuple[float, float]:
    """(how far the rate swings as a share of it, mean time of a swing) that give the index of dispersion.

    A rate that jumps between 1 + a and 1 − a times its mean, staying τ on average, adds λ a² τ to an index of one. Where
    a would have to be more than one, swings last longer instead.
    """
    swing = sqrt((a.dispersion - 1) / (per_s * a.burst_s))
    return (swing, a.burst_s) if swing <= 1 else (1.0, (a.dispersion - 1) / per_s)


def _modulated(s: ServingScenario, count: int, share: float, rng: Generator) -> Floats:
    """A share of arrivals whose rate jumps up and down: as many arrivals, thinned, keep the rate's swings."""
    swing, mean_s = modulation(s.arrivals, s.per_s)
    rate = s.per_s * share
    need = rng.exponential(1.0, count).cumsum()
    many = int(need[-1] / (rate * mean_s) * 1.2 + 20 * sqrt(need[-1] / (rate * mean_s) + 1)) + 20
    dwell = rng.exponential(mean_s, many)
    high = (np.arange(many) + rng.integers(2)) % 2 == 0
    used = 2 * max(round(need[-1] / (rate * mean_s) / 2), 1)
    for side in (high[:used], ~high[:used]):  # as much time above as below: what is drawn is when, not how much
        dwell[:used][side] *= used / 2 * mean_s / dwell[:used][side].sum()
    passed = np.concatenate([[0.0], (dwell * rate * np.where(high, 1 + swing, 1 - swing)).cumsum()])
    return np.asarray(np.interp(need, passed + np.arange(many + 1) * 1e-12, np.concatenate([[0.0], dwell.cumsum()])))


def _lengths(mean: float, spread: float, count: int, rng: Generator) -> Ints:
    """Lognormal token counts of this mean; ``spread`` is their standard deviation over it."""
    wide = log(1 + spread * spread)
    drawn = mean * np.exp(sqrt(wide) * rng.standard_normal(count) - wide / 2)
    return np.maximum(np.round(drawn), 1).astype(np.int64)


def _recorded(s: ServingScenario, count: int, share: float, rng: Generator) -> tuple[Floats, Ints, Ints]:
    """Recorded requests from a drawn place on, round and round, at the rate of the servers that are simulated.

    A lower rate than recorded leaves requests out, so that bursts last as long as they did; a higher one takes less time.
    """
    a = s.arrivals
    at, prompt, output = np.array(a.time_s), np.array(a.prompts, np.int64), np.array(a.generated, np.int64)
    at -= at[0]
    span = at[-1] * len(at) / (len(at) - 1)
    wanted, recorded = s.per_s * share, len(at) / span
    thin = min(wanted / recorded, 1.0)
    first = int(rng.integers(len(at)))
    row = first + rng.geometric(thin, count).cumsum() - 1  # how many others' requests lie between
    time = row // len(at) * span + at[row % len(at)] - at[first]
    row %= len(at)
    return time * recorded * thin / wanted, prompt[row], output[row]


def leaf_ns(leaves: Leaves, count: int, rng: Generator) -> Floats:
    """How long requests wait for the last of their leaves."""
    if not leaves.count:
        return np.zeros(count)
    u = rng.random(count)
    return np.asarray(np.interp(np.log(u) - np.log1p(-u), GRID, leaf_table(leaves)) * 1e6)


def leaf_table(leaves: Leaves) -> Floats:
    """Quantiles at GRID of the wait for all leaves, ms."""
    one = through({0.5: leaves.p50_ms, 0.99: leaves.p99_ms}, leaves.tail)
    if leaves.hedge_ms is not None:
        one = hedged(one, leaves.hedge_ms)[0]
    return fan_out(one, leaves.count)
