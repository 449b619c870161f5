"""How the price of synchrony grows with ranks, from the run itself.

Units (ranks, or hosts where their ranks stray together) are taken to be drawn alike. Their episodes are events of a rate that
is known as well as their number tells it; between episodes they stray as the pool of all units does; they are unequal for good
by a normal spread. New units are joined to the measured ones, step by step, and the latest of all of them decides the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.diagnose.job_regime import FACTORS, regime_of_walls
from taut.diagnose.rank_residuals import Residuals
from taut.result.types import Estimate, Grown, Regime

CHANCE = 0.01
"""That any step of any unit of a run of normal variation is taken for an episode."""
LEAST_EPISODES = 8
"""Fewer tell no rate."""
SCALES = (1, 2, 4)
"""Times as many ranks as were measured."""
DRAWS, LIKE = 200, 16
"""Runs that are drawn, and classes of units by their level."""
LEVEL = (0.05, 0.95)
"""Ends of the interval of another run with so many ranks and as many steps: it covers 90 %."""
SHUFFLES, TOGETHER = 199, 0.01
"""Ranks are dealt anew to hosts so often; episodes come together within hosts if so few of them are as much together."""
UNSEEN = 3.0
"""Hiccups as frequent as three in n steps are missed in n steps with a chance of 5 %."""


class Units(Struct, frozen=True):
    """What may be late by itself."""

    residual_ns: Floats
    """Units × windows, ns."""
    late: Mask
    """Units × windows: in an episode."""
    first: Ints
    """Window in which each episode begins."""
    length: Ints
    """Windows of each episode."""
    unit: Ints
    """Unit of each episode."""
    slack_ns: Floats
    """Per unit: what it may stray by before anybody waits for it, ns."""
    hosts: bool
    """Whether units are hosts."""


def units(residuals: Residuals, host: Ints, joined: Mask) -> Units:
    """The units of a run: ranks, or hosts where episodes of their ranks come together more often than by chance.

    ``host`` is the host of each rank, ``joined`` says of each window whether it follows the one before.
    """
    stray, late, slack = residuals.residual_ns, beyond(residuals.residual_ns), residuals.slack_ns
    together = come_together(late, host)
    if together:
        hosts = np.unique(host)
        stray = np.stack([stray[host == h].max(axis=0) for h in hosts])
        late = np.stack([late[host == h].any(axis=0) for h in hosts])
        slack = np.array([slack[host == h].min() for h in hosts])
    before = np.zeros_like(late)
    before[:, 1:] = late[:, :-1] & joined[1:]
    unit, first = np.nonzero(late & ~before)
    # An episode goes on until a window is not late, or does not follow.
    after = np.zeros_like(late)
    after[:, :-1] = late[:, 1:] & joined[1:]
    last = np.nonzero(late & ~after)[1]
    return Units(stray, late, first, last - first + 1, unit, slack, together)


def beyond(residual_ns: Floats) -> Mask:
    """Units × windows that lie outside normal variation: the spread is that of the middle of all residuals."""
    middle = np.median(residual_ns)
    spread = 1.4826 * float(np.median(np.abs(residual_ns - middle)))
    level = NormalDist().inv_cdf(1 - CHANCE / max(residual_ns.size, 1))
    return np.asarray(residual_ns > middle + max(level * spread, 1.0))


def growth(
    residuals: Residuals, found: Units, ranks: int, scales: Sequence[float] = SCALES, seed: int = 0
) -> list[Grown] | None:
    """Share of the wall that residuals cost at so many times the ranks; None where too few episodes tell."""
    if len(found.first) < LEAST_EPISODES:
        return None
    rng, count = np.random.default_rng(seed), len(found.residual_ns)
    ideal, own = float((residuals.wall_ns - residuals.cost_ns).sum()), float(residuals.mean_ns.sum())
    through = _passed_on(residuals, found)
    pool = _pool(found)
    seen = (found.residual_ns - found.slack_ns[:, None]).max(axis=0)
    out = []
    for scale in scales:
        more = round(scale * count) - count
        drawn = [_latest(found, pool, more, rng) for _ in range(DRAWS)]
        # The measured units are among them: without residuals the slowest of these comes at 0.
        joined = [_share(ideal, own, through, np.maximum(seen, came), max(most, 0.0)) for came, most in drawn] if more else []
        anew = [_share(ideal, own, through, *_latest(found, pool, more + count, rng)) for _ in range(DRAWS)]
        value = float(np.mean(joined)) if more else float(residuals.cost_ns.sum() / max(residuals.wall_ns.sum(), 1.0))
        low, high = np.quantile(anew, LEVEL)
        about = Estimate(value=value, lo=min(float(low), value), hi=max(float(high), value))
        out.append(Grown(ranks=round(scale * ranks), loss_share=about))
    return out


def regime_of_residuals(residuals: Residuals, found: Units, pays: float, seed: int = 0) -> Regime:
    """The regime as residuals tell it: their delay scaled, and that of twice the units.

    Gaps and many gates a step, which the replay at references leaves out or takes one by one, are in it.
    """
    rng, count = np.random.default_rng(seed), len(found.residual_ns)
    delay, through = residuals.cost_ns + residuals.mean_ns, _passed_on(residuals, found)
    pool, seen = _pool(found), (found.residual_ns - found.slack_ns[:, None]).max(axis=0)
    drawn = [_latest(found, pool, count, rng) for _ in range(DRAWS // 4)]
    later = np.mean([np.maximum(np.maximum(seen, came) - max(most, 0.0), 0.0) for came, most in drawn], axis=0)
    ideal, factors = (residuals.wall_ns - delay)[:, None], np.array(FACTORS)
    return regime_of_walls(
        ideal + factors * delay[:, None], ideal + factors * np.maximum(through * later, delay)[:, None], pays
    )


def rarest_seen(found: Units) -> int:
    """One in so many steps of a unit: a rarer hiccup would hardly have been seen."""
    return int(found.residual_ns.size / UNSEEN)


def _share(ideal: float, own: float, through: float, came: Floats, most: float) -> float:
    """What residuals cost, where the latest of each window ``came`` and the slowest unit comes ``most`` late without them, ns.

    ``ideal`` is the run without that cost, ``own`` what units stray on average over it.
    """
    cost = through * float(np.maximum(came - most, 0.0).sum()) - own
    return max(cost, 0.0) / max(ideal + most * len(came) + cost, 1.0)


def _passed_on(residuals: Residuals, found: Units) -> float:
    """The part of a residual that reaches the wall: slack may absorb some of it."""
    latest = np.maximum((found.residual_ns - found.slack_ns[:, None]).max(axis=0), 0.0).sum()
    return float(np.clip((residuals.cost_ns + residuals.mean_ns).sum() / max(latest, 1.0), 0.0, 1.0))


def _pool(found: Units) -> Floats:
    """What units stray between episodes, in order; where everything counts as one, all that they stray."""
    between = found.residual_ns[~found.late]
    return np.sort(between if len(between) else found.residual_ns.ravel())


def _latest(found: Units, pool: Floats, units: int, rng: np.random.Generator) -> tuple[Floats, float]:
    """(when the latest of so many new units comes in every window, when without residuals), ns after the slowest measured one.

    How unequal units are for good, and how often they have episodes, is drawn from what the measured ones tell.
    """
    windows, count = found.residual_ns.shape[1], len(found.residual_ns)
    if units == 0:
        return np.full(windows, -np.inf), -np.inf
    free = max(count - 1, 1)
    spread = float(found.slack_ns.std(ddof=1)) * np.sqrt(free / rng.chisquare(free)) if count > 1 else 0.0
    level = -found.slack_ns.mean() + spread * (rng.normal() / np.sqrt(count) + rng.normal(size=units))
    out = np.full(windows, -np.inf)
    for some in np.array_split(np.sort(level), min(LIKE, units)):  # units of like level are drawn as one
        # The largest of n draws from a sorted pool lies at the u^(1/n) quantile.
        at = rng.random(windows) ** (1 / len(some)) * len(pool)
        np.maximum(out, pool[np.minimum(at.astype(np.int64), len(pool) - 1)] + some.mean(), out=out)
    if not len(found.first):
        return out, float(level.max())
    episodes = rng.poisson(rng.gamma(len(found.first) + 0.5) / count * units)
    which, begin = rng.integers(0, len(found.first), episodes), rng.integers(0, windows, episodes)
    whose = level[rng.integers(0, units, episodes)]
    # Of more episodes the largest is larger than all that were seen: sizes vary about those seen, as a kernel of them does.
    size = np.exp(_width(found) * rng.normal(size=episodes))
    for k in range(int(found.length.max())):
        lasts = found.length[which] > k
        one, at_window = which[lasts], (begin[lasts] + k) % windows
        np.maximum.at(out, at_window, size[lasts] * found.residual_ns[found.unit[one], found.first[one] + k] + whose[lasts])
    return out, float(level.max())


def _width(found: Units) -> float:
    """Width of a kernel over the logarithms of the episodes' sizes (Silverman's rule)."""
    sizes = np.log(np.maximum(found.residual_ns[found.unit, found.first], 1.0))
    return float(0.9 * sizes.std() * len(sizes) ** -0.2)


def come_together(late: Mask, host: Ints, seed: int = 0) -> bool:
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
