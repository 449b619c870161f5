"""Rank hold-out: what some ranks of a run say about the loss of all of them, against what all of them lost.

    python validation/rank_holdout.py --shared ../shared/data [--subsets 40] [--seed 9]

Every run of the shared data whose ranks are replicas of each other: analysed with a random subset of them, the loss at gates
that residuals cause is grown to all of them (``diagnose/rank_growth.py``) and compared with that of the whole run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import taut
from taut.core.tables import Trace
from taut.diagnose.finding import Evidence
from taut.diagnose.instability import host_numbers, successive
from taut.diagnose.rank_growth import growth, units
from taut.diagnose.rank_residuals import Residuals, residuals
from taut.run import Analysis, analyze_trace

RUNS = (
    ("alibaba-pai-steps/job_1_norm.csv", (3, 5)),
    ("alibaba-pai-steps/job_2_norm.csv", (3, 5)),
    ("lab-baseline8", (4,)),
    ("dlrm-8rank", (4,)),
)
"""Runs with at least eight replicas, and how many of these are kept."""


def of(done: Analysis) -> Residuals:
    """Residuals with the findings mended."""
    return residuals(Evidence(done.graph, done.observed, done.blame, done.batch), done.findings)


def some(trace: Trace, ranks: list[int]) -> Trace:
    """The trace of some ranks only."""
    ops, members = trace.ops, trace.members
    rows = np.flatnonzero(np.isin(ops.rank, ranks))
    at = np.full(len(ops), -1, dtype=np.int64)
    at[rows] = np.arange(len(rows))
    kept = ops.take(rows)
    launch = np.where(kept.launch >= 0, at[kept.launch], -1)
    own = np.flatnonzero(np.isin(members.rank, ranks))
    return replace(trace, ops=kept.replace(launch=launch), members=members.take(own), world_size=None, group_ranks={})


def main() -> None:
    """Print one row for each run and number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--subsets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=9)
    given = parser.parse_args()
    if not given.shared.is_dir():
        print(f"skipped: {given.shared} is not here (it is no part of the repository)")
        return
    print("| run | ranks | loss of all | predicted, median | inside its 90 % interval | not told |\n|---|---|---|---|---|---|")
    for name, kept in RUNS:
        trace = taut.read([given.shared / name])
        whole = of(analyze_trace(trace))
        loss = float(whole.cost_ns.sum() / whole.wall_ns.sum())
        ranks = np.unique(trace.ops.rank)
        for few in kept:
            rng = np.random.default_rng(given.seed)
            told, inside, silent = [], 0, 0
            for _ in range(given.subsets):
                part = analyze_trace(some(trace, sorted(rng.choice(ranks, few, replace=False).tolist())))
                found = of(part)
                parts = units(found, host_numbers(part.graph), successive(part.graph))
                grown = growth(found, parts, few, (len(ranks) / few,))
                if grown is None:
                    silent += 1
                    continue
                share = grown[0].loss_share
                told.append(share.value)
                inside += (share.lo or 0.0) <= loss <= (share.hi or 1.0)
            middle = f"{100 * float(np.median(told)):.1f} %" if told else "–"
            print(f"| {name} | {few} → {len(ranks)} | {100 * loss:.1f} % | {middle} | {inside} of {len(told)} | {silent} |",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
