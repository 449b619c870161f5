"""Jobs whose ranks all stop now and then, as Markdown: ``python bench/stops.py [--jobs 60] [--seed 5]``.

Every rank stops in the same share of its steps, each by itself, for once to twice as long as a step takes: as on busy cores.
How often is some rank named all the same, and how often is one that is slower by 60 % since a third of the steps? Intervals are
Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from diagnosis import NOISE, evidence
from together import wilson

from taut.diagnose.detectors import diagnose

STEPS, SLOWER, SINCE = 30, 0.6, 12
RATES = (0.05, 0.12, 0.25, 0.4)
RANKS = (4, 8, 16)


def named(ranks: int, rate: float, slow: bool, seed: int) -> tuple[bool, bool]:
    """Whether a job has a finding with a name, and whether its slow rank, 1, is among those named."""
    rng = np.random.default_rng((seed, ranks, round(1000 * rate), slow))
    noise = rng.standard_normal((ranks, STEPS))
    noise += (rng.random(noise.shape) < rate) * rng.uniform(1, 2, noise.shape) / NOISE
    if slow:
        noise[1, SINCE:] += SLOWER / NOISE
    found = [finding for finding in diagnose(evidence(noise)) if finding.ranks or finding.links]
    return bool(found), any(finding.ranks == (1,) for finding in found)


def main() -> None:
    """Print one row for every number of ranks and share of steps with a stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    asked = parser.parse_args()
    seeds = [1000 * asked.seed + job for job in range(asked.jobs)]
    print("| ranks | steps with a stop, % | somebody is named, % | the slow rank is named, % |\n|---:|---:|---|---|")
    with ProcessPoolExecutor() as pool:
        for ranks in RANKS:
            for rate in RATES:
                hits = [
                    sum(one[at] for one in pool.map(named, *zip(*((ranks, rate, slow, seed) for seed in seeds), strict=True)))
                    for slow, at in ((False, 0), (True, 1))
                ]
                print(f"| {ranks} | {100 * rate:.0f} | {' | '.join(wilson(hit, asked.jobs) for hit in hits)} |", flush=True)


if __name__ == "__main__":
    main()
