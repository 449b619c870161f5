"""How the price of synchrony grows with ranks, from the run itself.

Units (ranks, or hosts where their ranks stray together) are taken to be alike. Their episodes are events of a rate that is
known as well as their number tells it; between episodes they stray as the pool of all units does. New units are joined to the
measured ones, step by step, and the latest of all of them decides the step.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.diagnose.strays import Strays
from taut.result.types import Estimate, Grown

CHANCE = 0.01
"""That any step of any unit of a run of normal variation is taken for an episode."""
LEAST_EPISODES = 8
"""Fewer tell no rate."""
SCALES = (1, 2, 4)
"""Times as many ranks as were measured."""
DRAWS = 400
LEVEL = (0.05, 0.95)
"""Ends of the interval of another run with so many ranks and as many steps: it covers 90 %."""
SHUFFLES, TOGETHER = 199, 0.01
"""Ranks are dealt anew to hosts so often; episodes come together within hosts if so few of them are as much together."""
UNSEEN = 3.0
"""Of what has not been seen in n steps, n ÷ 3 is the rate at which it would have been, with a chance of 95 %."""


class Units(Struct, frozen=True):
    """What may be late by itself."""

    stray_ns: Floats
    """Units × windows, ns."""
    late: Mask
    """Units × windows: in an episode."""
    first: Ints
    """Window in which each episode begins."""
    length: Ints
    """Windows of each episode."""
    unit: Ints
    """Unit of each episode."""
    hosts: bool
    """Whether units are hosts."""


def units(strays: Strays, host: Ints, joined: Mask) -> Units:
    """The units of a run: ranks, or hosts where episodes of their ranks come together more often than by chance.

    ``host`` is the host of each rank, ``joined`` says of each window whether it follows the one before.
    """
    stray, late = strays.stray_ns, beyond(strays.stray_ns)
    together = _together(late, host)
    if together:
        hosts = np.unique(host)
        stray = np.stack([stray[host == h].max(axis=0) for h in hosts])
        late = np.stack([late[host == h].any(axis=0) for h in hosts])
    before = np.zeros_like(late)
    before[:, 1:] = late[:, :-1] & joined[1:]
    unit, first = np.nonzero(late & ~before)
    # An episode goes on until a window is not late, or does not follow.
    after = np.zeros_like(late)
    after[:, :-1] = late[:, 1:] & joined[1:]
    last = np.nonzero(late & ~after)[1]
    return Units(stray, late, first, last - first + 1, unit, together)


def beyond(stray_ns: Floats) -> Mask:
    """Units × windows that lie outside normal variation: the spread is that of the middle of all strays."""
    middle = np.median(stray_ns)
    spread = 1.4826 * float(np.median(np.abs(stray_ns - middle)))
    level = NormalDist().inv_cdf(1 - CHANCE / max(stray_ns.size, 1))
    return np.asarray(stray_ns > middle + max(level * spread, 1.0))


def growth(strays: Strays, found: Units, ranks: int, seed: int = 0) -> list[Grown] | None:
    """Share of the wall that strays cost at SCALES times the ranks; None where too few episodes tell."""
    if len(found.first) < LEAST_EPISODES:
        return None
    rng = np.random.default_rng(seed)
    ideal = strays.wall_ns - strays.cost_ns
    through = _passed_on(strays, found)
    # Strays of one unit of a step are in the pool with the sign they have: a unit may be early.
    pool = np.sort(found.stray_ns[~found.late])
    out = []
    for scale in SCALES:
        more = (scale - 1) * len(found.stray_ns)
        joined = [_share(ideal, np.maximum(strays.cost_ns, through * _drawn(found, pool, more, rng))) for _ in range(DRAWS)]
        anew = [_share(ideal, np.maximum(through * _drawn(found, pool, scale * len(found.stray_ns), rng), 0.0))
                for _ in range(DRAWS)]  # fmt: skip
        value = float(np.mean(joined))
        low, high = np.quantile(anew, LEVEL)
        about = Estimate(value=value, lo=min(float(low), value), hi=max(float(high), value))
        out.append(Grown(ranks=scale * ranks, loss_share=about))
    return out


def rarest_seen(found: Units) -> int:
    """One in so many steps of a unit: a rarer hiccup would hardly have been seen."""
    return int(found.stray_ns.size / UNSEEN)


def _share(ideal: Floats, cost: Floats) -> float:
    return float(cost.sum() / max(ideal.sum() + cost.sum(), 1.0))


def _passed_on(strays: Strays, found: Units) -> float:
    """The part of a stray that reaches the wall: slack may absorb some of it."""
    latest = np.maximum(found.stray_ns.max(axis=0), 0.0).sum()
    return float(np.clip(strays.cost_ns.sum() / max(latest, 1.0), 0.0, 1.0))


def _drawn(found: Units, pool: Floats, more: int, rng: np.random.Generator) -> Floats:
    """Latest stray of so many new units in every window, ns; the rate of episodes is drawn from what their number tells."""
    windows = found.stray_ns.shape[1]
    if more == 0:
        return np.zeros(windows)
    # The largest of n draws from a sorted pool lies at the u^(1/n) quantile.
    at = rng.random(windows) ** (1 / more) * len(pool)
    out: Floats = pool[np.minimum(at.astype(np.int64), len(pool) - 1)]
    rate = rng.gamma(len(found.first) + 0.5) / len(found.stray_ns)
    count = rng.poisson(rate * more)
    which = rng.integers(0, len(found.first), count)
    begin = rng.integers(0, windows, count)
    for k in range(int(found.length.max())):
        lasts = found.length[which] > k
        one, at_window = which[lasts], (begin[lasts] + k) % windows
        np.maximum.at(out, at_window, found.stray_ns[found.unit[one], found.first[one] + k])
    return out


def _together(late: Mask, host: Ints, seed: int = 0) -> bool:
    """Whether ranks of one host are late in the same windows more often than ranks dealt to hosts at random."""
    hosts = len(np.unique(host))
    if hosts < 2 or hosts == len(host) or (host < 0).any():
        return False
    rank, window = np.nonzero(late)
    rng = np.random.default_rng(seed)

    def pairs(host: Ints) -> int:
        counts = np.unique(host[rank].astype(np.int64) * late.shape[1] + window, return_counts=True)[1]
        return int((counts * (counts - 1)).sum())

    seen = pairs(host)
    as_much = sum(pairs(rng.permutation(host)) >= seen for _ in range(SHUFFLES))
    return seen > 0 and (1 + as_much) / (1 + SHUFFLES) <= TOGETHER
