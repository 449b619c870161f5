"""Cases of ranks that all stop now and then, and of one that stops more or is slow, simulated, and held against the truth.

    python validation/stop_cases.py --seed 1 [--only NAME …] [--keep FOLDER]

Stops that come to every rank alike are nobody's; they are played in both runs of a case, so the truth is what mending the fault
alone saves. The simulator, the writers and the judge are those of `fault_cases.py` and `accident_cases.py`, names are exact as
in `ring_cases.py`; nothing of taut is imported. A case's name has ranks x steps and the share of the steps, in percent, in
which a rank stops. The exit status is 1 where a case is wrong.
"""

from __future__ import annotations

import sys

import numpy as np
from accident_cases import Accident, Ground, anybody, stops
from fault_cases import World, fsdp, kineto, main, slow, step_times
from ring_cases import Named, judged_by_name


def everybody(c: Named, ranks: int, steps: int, percent: float, least: float = 100, most: float = 200) -> Ground:
    """Stops of every rank, of `least` to `most` ms, in so many of a hundred steps."""
    return anybody(ranks, steps, percent / 100, c.seed * 101 + 7, (least, most))


def heavy_tailed(c: Named, ranks: int, steps: int, percent: float, ms: float) -> Ground:
    """As everybody, with a median of `ms` and a long tail."""
    g = np.random.default_rng(c.seed * 101 + 7)
    hit = g.random((ranks, steps)) < percent / 100
    lost = np.where(hit, ms * np.exp(g.standard_normal((ranks, steps))), 0.0)
    return Ground(pause=lambda r, s: float(lost[r, s]))


def bursts(c: Named, ranks: int, steps: int, percent: float, ms: float = 120) -> Ground:
    """Stops that last: who stopped in a step stops in the next four times of five."""
    g, rate = np.random.default_rng(c.seed * 103 + 3), percent / 100
    lost = np.zeros((ranks, steps))
    now = g.random(ranks) < rate
    for s in range(steps):
        lost[:, s] = np.where(now, ms, 0.0)
        now = np.where(now, g.random(ranks) < 0.8, g.random(ranks) < 0.2 * rate / (1 - rate))
    return Ground(pause=lambda r, s: float(lost[r, s]))


def one(c: Named, rank: int, steps: int, percent: float, least: float, most: float) -> Ground:
    """Stops of one rank."""
    g = np.random.default_rng(c.seed * 107 + rank * 17 + steps)
    return stops(rank, {s: float(g.uniform(least, most)) for s in range(steps) if g.random() < percent / 100})


def inside(ground: World, where: str) -> Ground:
    """The same stops, in a class of ops."""
    return Ground(inside=lambda r, s, name: ground.pause(r, s) if name == where else 0.0)


def of_hosts(ground: World, per_host: int) -> Ground:
    """Stops of ranks, taken for those of hosts."""
    return Ground(pause=lambda r, s: ground.pause(r // per_host, s))


def nobodys(c: Named) -> None:
    """Everybody stops alike, at any time, in bursts, or in turn: nobody is to be accused."""
    for ranks, steps, percent in ((4, 30, 20), (8, 6, 40), (4, 5, 45)):
        c.case(f"everybody-{ranks}x{steps}-{percent}", "nobody", ranks, steps, ground=everybody(c, ranks, steps, percent))
    c.case("everybody-8x40-45-heavy-tailed", "nobody", 8, 40, ground=heavy_tailed(c, 8, 40, 45, 60))
    c.case("everybody-16x40-30-equal", "nobody", 16, 40, ground=everybody(c, 16, 40, 30, 100, 100))
    c.case("everybody-4x40-20-equal-kineto", "nobody", 4, 40, ground=everybody(c, 4, 40, 20, 100, 100), write=kineto)
    backward = inside(everybody(c, 4, 30, 45), "backward1")
    c.case("everybody-4x30-45-in-backward-kineto", "nobody", 4, 30, ground=backward, write=kineto)
    c.case("everybody-8x40-30-hosts-of-2", "nobody", 8, 40, ground=of_hosts(everybody(c, 4, 40, 30), 2), per_host=2)
    c.case("everybody-8x40-40-step-times", "nobody", 8, 40, ground=everybody(c, 8, 40, 40), write=step_times)
    c.case("everybody-8x30-40-fsdp", "nobody", 8, 30, ground=everybody(c, 8, 30, 40), shape=fsdp)
    c.case("bursts-4x100-25", "nobody", 4, 100, ground=bursts(c, 4, 100, 25))
    c.case("bursts-8x60-40", "nobody", 8, 60, ground=bursts(c, 8, 60, 40))
    turns = Ground(pause=lambda r, s: 120.0 if s % 3 == r % 3 else 0.0)
    c.case("turns-6x36-33", "nobody", 6, 36, ground=turns, note="two ranks stop in every step, each rank in every third")


def slow_beside_stops(c: Named) -> None:
    """A rank that is slow, while everybody stops: what its own stops cost is not to be had back."""
    c.case("slow-8x40-30-150ms", "find", 8, 40, slow([5], 0.4), ground=everybody(c, 8, 40, 30), who=[5])
    c.case("slow-8x40-30-25ms", "find", 8, 40, slow([5], 0.4), ground=everybody(c, 8, 40, 30, 20, 30), who=[5])
    c.case("slow-4x60-20-100ms", "find", 4, 60, slow([2], 0.4), ground=everybody(c, 4, 60, 20, 80, 120), who=[2])
    since = slow([5], 0.6, since=20)
    c.case("slow-since-half-8x40-30-60ms", "find", 8, 40, since, ground=everybody(c, 8, 40, 30, 40, 80), who=[5])
    short = everybody(c, 16, 24, 30, 20, 30)
    c.case("slow-16x24-30-25ms-kineto", "find", 16, 24, slow([11], 0.4), ground=short, who=[11], write=kineto)


def one_stops_more(c: Named) -> None:
    """A rank, or a host, that stops more often or for longer than the others."""
    often = one(c, 3, 40, 70, 100, 200)
    c.case("one-70-others-8x40-10", "find", 8, 40, often, ground=everybody(c, 8, 40, 10), who=[3])
    c.case("one-70-others-4x30-10", "find", 4, 30, one(c, 3, 30, 70, 100, 200), ground=everybody(c, 4, 30, 10), who=[3])
    c.case("one-60-others-8x60-20", "find", 8, 60, one(c, 3, 60, 60, 100, 200), ground=everybody(c, 8, 60, 20), who=[3])
    longer = one(c, 3, 40, 30, 250, 350)
    c.case("one-300ms-others-30ms-8x40-30", "find", 8, 40, longer, ground=everybody(c, 8, 40, 30, 20, 40), who=[3])
    always = one(c, 3, 40, 95, 60, 70)
    c.case("one-95-others-8x40-30-65ms", "find", 8, 40, always, ground=everybody(c, 8, 40, 30, 55, 70), who=[3])
    host = Ground(pause=lambda r, s: 120.0 if 4 <= r < 8 and s * 7 % 10 < 6 else 0.0)
    c.case(
        "host-60-others-16x40-5",
        "find",
        16,
        40,
        host,
        ground=everybody(c, 16, 40, 5, 100, 150),
        per_host=4,
        who=range(4, 8),
    )


def cases(seed: int) -> dict[str, Accident]:
    """All of them; `seed` moves every random number."""
    c = Named(seed)
    for some in (nobodys, slow_beside_stops, one_stops_more):
        some(c)
    return c.made


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", cases, judged_by_name))
