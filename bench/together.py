"""Power of finding ranks that are slow together, as Markdown: ``python bench/together.py [--jobs 100] [--seed 1]``.

How often a set of ranks that is slower from the start, or since some step, is the first finding, exactly. Jobs are
tables of step times under nulls that are not kind, and modelled jobs with transfers, pipelines and hops. Intervals are
Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from diagnosis import NOISE, NULLS, evidence

from taut.core.interval import Z
from taut.core.tables import Trace
from taut.diagnose.detectors import Evidence, diagnose
from taut.graph import link
from taut.lab.modelled import JOBS, with_faults
from taut.lab.truth import Injected
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay

STEPS = 40
SETS = ((2, 8), (2, 16), (4, 16), (2, 32), (8, 32), (8, 64))
HARD = ("white noise", "red noise, ρ = 0.5", "red noise, ρ = 0.8", "heavy tails (t, 3 degrees)", "unequal ranks (5 %)")


def wilson(hits: int, jobs: int) -> str:
    """A share in per cent with its interval."""
    p, z2 = hits / jobs, Z * Z / jobs
    middle, half = (p + z2 / 2) / (1 + z2), np.sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return f"{100 * p:.1f} ({100 * max(middle - half, 0):.1f}–{100 * min(middle + half, 1):.1f})"


def traced(trace: Trace) -> Evidence:
    """What detectors get of a trace."""
    graph = link(trace)
    observed = replay(graph)
    return Evidence(graph, observed, blame(graph, observed, replay(graph, gaps=False)), batch(graph))


def _slowed(null: str, size: tuple[int, int], share: float, since: int, seed: int) -> tuple[Evidence, tuple[int, ...]]:
    """A job in which some ranks take longer by a share of their work from some step on, and those ranks."""
    places, ranks = size
    rng = np.random.default_rng((seed, places, ranks, since, round(1000 * share)))
    chosen = tuple(sorted(rng.choice(ranks, places, replace=False).tolist()))
    if null in JOBS:
        fault = Injected(fault="set", ranks=chosen, first_step=since, last_step=STEPS - 1, strength={"share": share})
        return traced(with_faults(null, ranks, seed, (fault,), STEPS)[0]), chosen
    noise = NULLS[null](rng, ranks, STEPS)
    noise[list(chosen), since:] += share / NOISE
    return evidence(noise), chosen


def _hit(asked: tuple[str, tuple[int, int], float, int, Sequence[int]]) -> int:
    null, size, share, since, seeds = asked
    jobs = (_slowed(null, size, share, since, seed) for seed in seeds)
    return sum([f.ranks for f in diagnose(e)[:1]] == [chosen] for e, chosen in jobs)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="jobs for every cell of step times")
    parser.add_argument("--modelled", type=int, default=40, help="modelled jobs for every cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.2, 0.4], help="by how much slow ranks take longer")
    given = parser.parse_args()
    tables, models = (range(1000 * given.seed, 1000 * given.seed + n) for n in (given.jobs, given.modelled))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for since in (0, STEPS // 3):
            powers(pool, tables, models, (since, given.shares))


def powers(pool: Any, tables: range, models: range, how: tuple[int, Sequence[float]]) -> None:
    """Table of what is found: the set exactly, as first finding."""
    since, shares = how
    when = f"since step {since}" if since else "from the start"
    print(f"\n| set found exactly, as first finding, %: {when} | of ranks | ", end="")
    print(" | ".join(f"+{100 * share:.0f} %" for share in shares) + " |")
    print("|---|---:|" + "---:|" * len(shares))
    rows = [(null, size, tables) for null in HARD for size in SETS]
    rows += [(job, size, models) for job in JOBS for size in SETS if size[1] >= 16]
    asked = [(null, size, share, since, seeds) for null, size, seeds in rows for share in shares]
    found = pool.map(_hit, asked)
    for null, size, seeds in rows:
        cells = " | ".join(wilson(next(found), len(seeds)) for _ in shares)
        print(f"| {null} | {size[0]} of {size[1]} | {cells} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
