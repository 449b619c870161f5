"""Jobs whose ranks all stop now and then, as Markdown: ``python bench/stops.py [--jobs 60] [--seed 5] [--since 12]``.

Every rank stops in the same share of its steps, each by itself, for once to twice as long as a step takes: as on busy cores.
How often is some rank named all the same, how often is one that is slower by 60 % since a third of the steps (or another one),
and what is it said to cost? Truth is the same job without it, with the same stops. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from diagnosis import NOISE, evidence
from together import wilson

from taut.diagnose.detectors import diagnose

STEPS, SLOWER = 30, 0.6
RATES = (0.05, 0.12, 0.25, 0.4)
RANKS = (4, 8, 16)


def named(ranks: int, rate: float, since: int, seed: int) -> tuple[bool, float | None]:
    """Whether a job has a finding with a name; of rank 1, slow since a step (below 0: never), predicted ÷ true saving."""
    rng = np.random.default_rng((seed, ranks, round(1000 * rate), since >= 0))
    noise = rng.standard_normal((ranks, STEPS))
    noise += (rng.random(noise.shape) < rate) * rng.uniform(1, 2, noise.shape) / NOISE
    slow = noise.copy()
    if since >= 0:
        slow[1, since:] += SLOWER / NOISE
    seen = evidence(slow)
    found = [finding for finding in diagnose(seen) if finding.ranks or finding.links]
    mine = [finding.recoverable_wall_ns for finding in found if finding.ranks == (1,) and since >= 0]
    saved = seen.observed.wall_ns - evidence(noise).observed.wall_ns if mine else 0
    return bool(found), max(mine) / saved if mine else None


def main() -> None:
    """Print one row for every number of ranks and share of steps with a stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--since", type=int, default=12, help="first slow step of the slow rank")
    asked = parser.parse_args()
    seeds = [1000 * asked.seed + job for job in range(asked.jobs)]
    print("| ranks | steps with a stop, % | somebody is named, % | the slow rank is named, % | its saving, predicted ÷ true |")
    print("|---:|---:|---|---|---|")
    with ProcessPoolExecutor() as pool:
        for ranks in RANKS:
            for rate in RATES:
                quiet, slow = (
                    list(pool.map(named, *zip(*((ranks, rate, since, seed) for seed in seeds), strict=True)))
                    for since in (-1, asked.since)
                )
                ratios = [ratio for _, ratio in slow if ratio is not None]
                low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9)) if ratios else [np.nan] * 3
                hits = wilson(sum(some for some, _ in quiet), asked.jobs), wilson(len(ratios), asked.jobs)
                print(f"| {ranks} | {100 * rate:.0f} | {' | '.join(hits)} | {middle:.2f} ({low:.2f}–{high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
