"""Cost against size: modelled jobs from 0.5 to 20 million ops, and the 1,024-rank job; fits cost = a + b·ops.

python bench/scale.py [--most 20] [--save]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import run

HERE = Path(__file__).parent


def main() -> None:
    """Generate, analyze, print the table and the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=20, help="largest job, million ops")
    parser.add_argument("--save", action="store_true", help="write run folders, too")
    args = parser.parse_args()
    sizes = [(64, 78), (64, 156), (64, 390), (64, 780), (64, 1560), (64, 3120), (1024, 50)]
    print("| ranks | steps | million ops | wall s | CPU s | peak MB | bytes an op | µs of CPU per op |")
    print("|---|---|---|---|---|---|---|---|")
    points = []
    with tempfile.TemporaryDirectory() as scratch:
        job = f"{scratch}/job.parquet"
        for ranks, steps in sizes:
            ops = ranks * steps * 100 / 1e6
            if ops > args.most:
                continue
            assert (
                run([sys.executable, str(HERE / "generate_job.py"), job, "--ranks", str(ranks), "--steps", str(steps)]).code
                == 0
            )
            where = ["-o", f"{scratch}/run"] if args.save else ["--no-save"]
            if not points:
                run([sys.executable, "-m", "taut", "analyze", job, *where])
            cost = run([sys.executable, "-m", "taut", "analyze", job, *where])
            assert cost.code == 0, cost
            cpu = cost.user_s + cost.system_s
            if ranks == 64:
                points.append((ops, cpu))
            print(
                f"| {ranks:,} | {steps:,} | {ops:.2f} | {cost.wall_s:.1f} | {cpu:.1f} | {1.048576 * cost.peak_mb:,.0f} "
                f"| {1.048576 * cost.peak_mb / ops:.0f} | {cpu / ops:.2f} |", flush=True,
            )  # fmt: skip
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
