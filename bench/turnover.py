"""Size and power of the test of critical-path turnover: how often p ≤ 0.05, over seeds.

    python bench/turnover.py [--seeds 400]

Barrier-synchronous jobs of 20 steps. Nulls: independent jitter, Gaussian, heavy-tailed, and on top of a demand that all
ranks share. Alternatives: a rank whose pace, or two ranks that in turn, are slower by so many standard deviations of the
jitter, and ranks whose jitter lasts from step to step (red noise, AR(1) 0.7).
"""

from __future__ import annotations

import argparse

import numpy as np
from size import barriers

from taut.graph import link
from taut.replay.timeline import replay
from taut.replay.turnover import turnover

STEPS = 20


def draw(kind: str, ranks: int, rng: np.random.Generator) -> np.ndarray:
    """Steps × ranks of compute, in units of which one step has ten."""
    work = 10 + rng.normal(0, 0.5, (STEPS, ranks))
    name, _, size = kind.partition(" +")
    if name == "heavy tails":
        return 10 + rng.pareto(1.5, (STEPS, ranks))
    if name == "shared demand":
        return work * rng.lognormal(0, 0.5, (STEPS, 1))
    if name == "red noise":
        for k in range(1, STEPS):
            work[k] = 10 + 0.7 * (work[k - 1] - 10) + 0.71 * (work[k] - 10)
    if name in ("one slow", "two in turn"):
        slow = np.arange(STEPS) % 2 if name == "two in turn" else np.zeros(STEPS, dtype=int)
        work[np.arange(STEPS), slow] += 0.5 * float(size)
    return work


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    seeds = parser.parse_args().seeds
    kinds = ("gaussian", "heavy tails", "shared demand", "red noise")
    kinds += tuple(f"{name} +{size}" for name in ("one slow", "two in turn") for size in (1, 2, 4))
    print("| job | 4 ranks | 16 ranks |\n|---|---|---|")
    for kind in kinds:
        cells = []
        for ranks in (4, 16):
            hits = 0
            for seed in range(seeds):
                took = np.rint(1e7 * draw(kind, ranks, np.random.default_rng(seed))).astype(np.int64)
                graph = link(barriers(took))
                hits += (turnover(graph, replay(graph, gaps=False)).p or 1.0) <= 0.05
            cells.append(f"{100 * hits / seeds:.1f} %")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
