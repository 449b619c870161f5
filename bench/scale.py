"""Cost against size: modelled jobs from 0.5 to 20 million ops, and the 1,024-rank job; fits cost = a + b·ops.

python bench/scale.py [--least 0] [--most 20] [--save] [--on local] [--rounds 1]

With ``--on`` every job is analyzed there as well, by turns; what is printed is the round of the median wall.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import load, run

HERE = Path(__file__).parent


def main() -> None:
    """Generate, analyze, print the table and the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=20, help="largest job, million ops")
    parser.add_argument("--least", type=float, default=0, help="smallest job, million ops")
    parser.add_argument("--on", help="analyze every job there, too: local, or dask://HOST:PORT")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="write run folders, too")
    args = parser.parse_args()
    sizes = [(64, 78), (64, 156), (64, 390), (64, 780), (64, 1560), (64, 3120), (1024, 50)]
    print(f"{load()}\n\n| on | ranks | steps | million ops | wall s | CPU s | peak MB | bytes an op | µs of CPU per op |")
    print("|---|---|---|---|---|---|---|---|---|")
    points = []
    with tempfile.TemporaryDirectory() as scratch:
        job = f"{scratch}/job.parquet"
        for ranks, steps in sizes:
            ops = ranks * steps * 100 / 1e6
            if not args.least <= ops <= args.most:
                continue
            assert (
                run([sys.executable, str(HERE / "generate_job.py"), job, "--ranks", str(ranks), "--steps", str(steps)]).code
                == 0
            )
            where = ["-o", f"{scratch}/run"] if args.save else ["--no-save"]
            if not points:
                run([sys.executable, "-m", "taut", "analyze", job, *where])
            places = [[], ["--on", args.on]] if args.on else [[]]
            rounds = [
                [run([sys.executable, "-m", "taut", "analyze", job, *where, *at]) for at in places] for _ in range(args.rounds)
            ]
            for at, costs in zip(places, zip(*rounds, strict=True), strict=True):
                assert not any(cost.code for cost in costs), costs
                cost = sorted(costs, key=lambda cost: cost.wall_s)[len(costs) // 2]
                cpu = cost.user_s + cost.system_s
                if ranks == 64 and not at:
                    points.append((ops, cpu))
                mb, place = 1.048576 * cost.peak_mb, at[-1] if at else "none"
                about = f"| {place} | {ranks:,} | {steps:,} | {ops:.2f} | {cost.wall_s:.1f} | {cpu:.1f} | {mb:,.0f} "
                print(about + f"| {mb / ops:.0f} | {cpu / ops:.2f} |", flush=True)
    print(f"\n{load()}")
    if len(points) > 2:
        x, y = np.array(points).T
        slope, base = np.polyfit(x, y, 1)
        exponent = np.polyfit(np.log(x), np.log(np.maximum(y - base, 1e-9)), 1)[0] if base < y.min() else float("nan")
        r2 = 1 - ((y - base - slope * x) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        print(
            f"\nfit over {len(x)} jobs of 64 ranks: CPU = {base:.2f} s + {slope:.2f} s per million ops, "
            f"R² = {r2:.4f}; exponent {exponent:.2f}"
        )


if __name__ == "__main__":
    main()
