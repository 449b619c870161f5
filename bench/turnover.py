"""Size and power of the test of critical-path turnover: how often p ≤ 0.05, over seeds.

    python bench/turnover.py [--seeds 400]

Barrier-synchronous jobs of 20 steps. Nulls: independent jitter, Gaussian, heavy-tailed, and on top of a demand that all
ranks share. Alternatives: a rank whose pace, or two ranks that in turn, are slower by so many standard deviations of the
jitter, and ranks whose jitter lasts from step to step (red noise, AR(1) 0.7).
"""

from __future__ import annotations

import argparse

import numpy as np

from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.graph import link
from taut.replay.timeline import replay
from taut.replay.turnover import turnover

STEPS = 20


def barriers(took: np.ndarray) -> Trace:
    """Steps × ranks of compute in ns, each step ended by a barrier."""
    shape = took.shape
    opens = np.broadcast_to(took.max(axis=1, keepdims=True), shape)
    step, rank = (a.ravel() for a in np.indices(shape))

    def both(a: object, b: object) -> np.ndarray:
        return np.concatenate([np.broadcast_to(a, took.size), np.broadcast_to(b, took.size)])

    ops = Table(
        Op,
        {
            "rank": both(rank, rank),
            "lane": both(0, 0),
            "step": both(step, step),
            "name": both(0, 1),
            "kind": both(Kind.COMPUTE, Kind.SYNCHRONISE),
            "verb": both(Verb.NONE, Verb.BARRIER),
            "start_ns": both(0, took.ravel()),
            "end_ns": both(took.ravel(), opens.ravel()),
            "group": both(-1, 0),
            "seq": both(-1, step),
        },
    )
    members = Table(Member, {"rank": np.arange(shape[1])})
    return Trace(ops, ["step", "barrier"], ["worker"], ["all"], members, relative=True)


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
