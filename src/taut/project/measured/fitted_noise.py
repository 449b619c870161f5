"""The noise of a measured run in the keys of a scenario's ``[noise]``, with how well the run tells them.

Hiccups are arrivals far beyond the variation of the others, with next to nothing between. How often they begin is known as
well as their number k tells it, Gamma(k + ½) over the steps that were seen; the logarithms of their lengths are normal, with a
mean and a variance that k lengths tell (Student, χ²). Where the ranks of a host hiccup at once more often than by chance, hosts
do. Scenarios and runs are then drawn by the same code (``project/pauses.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log, log1p, sqrt

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask
from taut.diagnose.rank_growth import LEAST_EPISODES, beyond, come_together
from taut.project.pauses import Law, laws
from taut.project.training.scenario import Noise

# Hiccups are told apart where nine of ten are so many times as late as the latest of the others.
FAR_APART = 2.0
# Chances between which the posterior of a key is given.
LEVEL = (0.05, 0.95)


@dataclass(frozen=True)
class FittedNoise:
    """Noise keys as a run tells them, and what is left open."""

    noise: Noise
    hiccups: int
    """Hiccups that were seen …"""
    unit_steps: int
    """… in so many steps of ranks, or of hosts where these hiccup as one."""
    log_ns: tuple[float, float]
    """Mean and standard deviation of the logarithm of their lengths."""
    per_unit: float
    """Replicas that hiccup at once."""

    def drawn(self, rng: np.random.Generator) -> Law | None:
        """One law of hiccups that the run may have had; None where it told none."""
        if not self.hiccups:
            return None
        k, (mean, wide) = self.hiccups, self.log_ns
        variance = wide**2 * (k - 1) / rng.chisquare(k - 1)
        middle = mean + sqrt(variance / k) * rng.standard_normal()
        keys = {
            "hiccups_per_1000_steps": min(1000 * rng.gamma(k + 0.5) / self.unit_steps, 1000.0),
            "hiccup_ms": exp(middle + variance / 2) / 1e6,
            "hiccup_spread": sqrt(expm1(variance)),
        }
        return laws(replace(self.noise, hiccups_together="rank", **keys), 1, 1, 1.0)[0]

    def text(self) -> list[str]:
        """The keys with their intervals, in words."""
        if not self.hiccups:
            return []
        n, rng = self.noise, np.random.default_rng(0)
        some = [law for _ in range(400) if (law := self.drawn(rng)) is not None]
        rate = np.quantile([1000 * law.begins for law in some], LEVEL)
        length = np.quantile([law.mean_ns / 1e6 for law in some], LEVEL)
        lasts = f", over {n.hiccup_steps:.1f} steps" if n.hiccup_steps > 1 else ""
        who = "a host, all its ranks at once" if n.hiccups_together == "host" else "a rank"
        return [
            f"hiccups as in the run: {n.hiccups_per_1000_steps:.3g} ({rate[0]:.3g}–{rate[1]:.3g}) begin in 1000 steps of "
            f"{who}, {n.hiccup_ms:.3g} ms ({length[0]:.3g}–{length[1]:.3g}) each{lasts}"
        ]


def fitted(jitter_ns: Floats, host: Ints) -> tuple[FittedNoise, Mask]:
    """(hiccups in jitter at gates, tracks × windows × replicas; which of it they are). NaN where a replica was not there.

    ``host`` is the host of each replica, -1 where it has several. What strays between hiccups is drawn as it was measured.
    """
    known = np.isfinite(jitter_ns)
    late = _hiccups(jitter_ns, known)
    noise = Noise("measured", step_spread=0.0, ranks_spread=0.0)
    units, per_unit = _units(late, host)
    # A hiccup that lasts is one: it begins where the window before was not late.
    begins = units.copy()
    begins[:, 1:] &= ~units[:, :-1]
    k, size = int(begins.sum()), _lengths(jitter_ns, known & ~late)[late]
    if k < LEAST_EPISODES:
        return FittedNoise(noise, 0, units.size, (0.0, 0.0), 1.0), np.zeros_like(late)
    logs = np.log(size)
    wide = float(logs.std(ddof=1))
    keys = {
        "hiccups_per_1000_steps": 1000 * k / units.size,
        "hiccup_ms": float(size.mean()) / 1e6,
        "hiccup_spread": float(size.std(ddof=1) / size.mean()),
        "hiccup_steps": float(units.sum() / k),
        "hiccups_together": "host" if per_unit > 1 else "rank",
    }
    return FittedNoise(replace(noise, **keys), k, units.size, (float(logs.mean()), wide), per_unit), late


def _lengths(jitter_ns: Floats, others: Mask) -> Floats:
    """How much later each came than those at its gate that had no hiccup: the mean of all has the hiccup in it."""
    many = np.maximum(others.sum(axis=2, keepdims=True), 1)
    usual = np.where(others, jitter_ns, 0.0).sum(axis=2, keepdims=True) / many
    return np.asarray(np.maximum(jitter_ns - usual, 1.0))


def hiccups_among(strays: Floats) -> Mask:
    """Which of some strays, in whatever unit, are hiccups."""
    unit = max(float(np.median(np.abs(strays))), 1e-12) / 1e6 if len(strays) else 1.0
    return _hiccups(strays / unit, np.ones(len(strays), dtype=bool))


def _hiccups(jitter_ns: Floats, known: Mask) -> Mask:
    """Which arrivals are hiccups: as far beyond the others as the tail of these does not tell."""
    none = np.zeros_like(known)
    values = np.sort(jitter_ns[known])
    far = beyond(values) if len(values) else np.zeros(0, bool)
    first = int(np.argmax(far)) if far.any() else len(values)
    stops, limit = values[first:], values[first - 1] if first else 0.0
    if len(stops) < LEAST_EPISODES or np.quantile(stops, 0.1) < FAR_APART * max(limit, 1.0):
        return none
    return np.asarray(known & (np.nan_to_num(jitter_ns, nan=-np.inf) >= stops[0]))


def _units(late: Mask, host: Ints) -> tuple[Mask, float]:
    """(late steps of replicas, or of hosts where these are late at once, tracks × windows × units; replicas of a unit)."""
    windows, hosts = late.shape[1], np.unique(host)
    if len(hosts) < 2 or not come_together(late.transpose(2, 0, 1).reshape(len(host), -1), host):
        return late, 1.0
    together = np.stack([late[:, :, host == h].any(axis=2) for h in hosts], axis=2)
    return together.reshape(-1, windows, len(hosts)), len(host) / len(hosts)


def chance_beyond(law: Law, x_ns: Floats) -> Floats:
    """Chance that a step has a hiccup longer than x."""
    from scipy.special import ndtr

    wide = sqrt(log1p(law.spread**2))
    middle = log(law.mean_ns) - wide * wide / 2
    z = (np.log(np.maximum(x_ns, 1e-9)) - middle) / max(wide, 1e-9)
    found: Floats = min(law.chance, 1.0) * np.where(x_ns <= 0, 1.0, ndtr(-z))
    return found
