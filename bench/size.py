"""False alarms on healthy jobs: how often blame finds fault, and how often a finding is listed, over seeds.

    python bench/size.py [--seeds 200] [--steps 30]

Barrier-synchronous jobs. Nulls: equal ranks with 5 % Gaussian noise, equal ranks with lognormal noise
(σ = 0.1), and stable but unequal ranks (±10 %, uniform) with 2 % noise.
"""

from __future__ import annotations

import argparse

import numpy as np
from modes import percent

from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.run import analyze_trace


def job(ranks: int, null: str, seed: int, steps: int = 30, slower: float = 0.0) -> Trace:
    """One healthy job: a compute and a barrier on every rank in every step; or one whose last rank is slower all along."""
    rng = np.random.default_rng(seed)
    pace = rng.uniform(0.9, 1.1, ranks) if null == "unequal" else np.ones(ranks)
    shape = (steps, ranks)
    draw = {
        "gaussian": lambda: rng.normal(1, 0.05, shape),
        "lognormal": lambda: rng.lognormal(0, 0.1, shape),
        "unequal": lambda: rng.normal(1, 0.02, shape),
    }[null]()
    draw[:, -1] *= 1 + slower
    return barriers(np.rint(1e8 * pace * draw).astype(np.int64))


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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    print("| null | ranks | runs with any fault | runs with a finding |\n|---|---|---|---|")
    for null in ("gaussian", "lognormal", "unequal"):
        for ranks in (2, 4, 8, 16, 64):
            results = [analyze_trace(job(ranks, null, seed, given.steps)) for seed in seeds]
            fault = np.mean([a.blame.totals["fault_ns"] > 0 for a in results])
            found = np.mean([bool(a.findings) for a in results])
            cells = " | ".join(percent(round(share * len(seeds)), len(seeds)) for share in (fault, found))
            print(f"| {null} | {ranks} | {cells} |", flush=True)
    print("\n| gaussian, the last rank slower by | ranks | named |\n|---|---|---|")
    for slower in (0.2, 0.4, 0.8):
        for ranks in (2, 4, 8, 64):
            results = [analyze_trace(job(ranks, "gaussian", seed, given.steps, slower)) for seed in seeds]
            named = sum(bool(a.findings) and a.findings[0].ranks == (ranks - 1,) for a in results)
            print(f"| {slower:.0%} | {ranks} | {percent(named, len(seeds))} |", flush=True)


if __name__ == "__main__":
    main()
