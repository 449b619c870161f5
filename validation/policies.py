"""What policies buy, drawn on the engine, against their closed forms.

    python validation/policies.py [--steps 4000]

Exponential work has mean 1; Gaussian work has mean 1 and standard deviation 0.05. The grid draws steps, and is held to four
standard errors; checkpoints are drawn as lives. Sources: order statistics (David and Nagaraja), hedged requests (Dean and
Barroso 2013), backup workers (Chen et al. 2016), checkpoint periods (Young 1974; Daly 2006; Aupy et al. 2013), a ring (the
mean of N exponential ones that wait for each other in turn: 1 + (N-1)/(sN)).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from math import exp, sqrt

import numpy as np
from msgspec import structs

from taut.project.noise import GRID, table
from taut.project.requests.fan_out import fan_out, hedged, percentile
from taut.project.training.checkpoints import best_s, expected_s
from taut.project.training.failures import simulate_jobs
from taut.project.training.grid import Gate, Grid, Sync, barrier, fastest, first_of, free, ring, steps
from taut.project.training.job_history import PRODUCTIVE
from taut.project.training.pipeline import program
from taut.project.training.scenario import Failure, Noise

Row = tuple[str, str, float, float, float]
"""(policy, quantity, closed form, ours, what the difference may be)."""
EXPONENTIAL, GAUSSIAN = Noise(distribution="exponential", spread=1.0), Noise(distribution="gaussian", spread=0.05)
LARGEST = {8: 1.4236, 64: 2.3437, 1024: 3.2482}
"""Expected largest of so many normal draws, in standard deviations."""
ERRORS = 4


def grid(noise: Noise, ranks: int) -> Grid:
    """Ranks that do one op a step."""
    one = np.stack([table(noise)] * 2)
    return Grid(program("gpipe", 1, 1, 1), np.zeros((2, 1)), np.array([[1.0], [0.0]]), one, 0.0, ranks)


def drawn(made: Grid, count: int, gate: Gate = barrier, every: int = 1) -> tuple[float, float]:
    """Mean step, and what it may be off by."""
    took = steps(made, count // every * every, 7, sync=Sync(gate=gate, every=every))
    parts = took.reshape(-1, every).mean(axis=1)
    parts = parts[len(parts) % 20 :].reshape(20, -1).mean(axis=1)  # neighbours at a loose gate depend on each other
    return float(parts.mean()), ERRORS * float(parts.std()) / sqrt(19)


def harmonic(n: int) -> float:
    return sum(1 / k for k in range(1, n + 1))


def backups(count: int) -> Iterator[Row]:
    """The k fastest of N."""
    for n, b in ((16, 0), (16, 1), (16, 4), (100, 4)):
        yield (
            "backup-workers",
            f"{n - b} of {n}, exponential",
            harmonic(n) - harmonic(b),
            *drawn(grid(EXPONENTIAL, n), count, fastest(n - b)),
        )


def clones(count: int) -> Iterator[Row]:
    """The first of c, of N/c of them the last."""
    for n, c in ((16, 2), (96, 3)):
        yield (
            "clones",
            f"{n} in {c}s, exponential",
            harmonic(n // c) / c,
            *drawn(grid(EXPONENTIAL, n), count, first_of(c, barrier)),
        )


def speculation(count: int) -> Iterator[Row]:
    """Begun again after the 95th percentile, as hedged requests are."""
    late = percentile(table(EXPONENTIAL), 0.95)
    yield (
        "speculative",
        "one rank, exponential, p95",
        1 - exp(-late) / 2,
        *drawn(replace(grid(EXPONENTIAL, 1), late=late), 20 * count),
    )
    u = (np.arange(1 << 20) + 0.5) / (1 << 20)
    for n in (32, 256):
        slowest = fan_out(hedged(table(EXPONENTIAL), late)[0], n)
        expected = float(np.interp(np.log(u) - np.log1p(-u), GRID, slowest).mean())
        yield "speculative", f"{n} ranks, exponential, p95", expected, *drawn(replace(grid(EXPONENTIAL, n), late=late), count)


def local_steps(count: int) -> Iterator[Row]:
    """Jitter of τ steps added up: μ + σ · a_N ÷ √τ."""
    for n, every in ((8, 4), (64, 1), (64, 4), (64, 16), (1024, 8)):
        expected = 1 + 0.05 * LARGEST[n] / sqrt(every)
        many = max(20 * every, min(count, 4_000_000 // n))
        yield "local-steps", f"{n} ranks, every {every}, Gaussian", expected, *drawn(grid(GAUSSIAN, n), many, every=every)


def loose(count: int) -> Iterator[Row]:
    """Nobody waits; a ring."""
    yield "asynchronous", "32 ranks, exponential", 1.0, *drawn(grid(EXPONENTIAL, 32), count, free)
    for slack in (1, 2):
        yield (
            "ring",
            f"16 ranks, slack {slack}, exponential",
            1 + 15 / (16 * slack),
            *drawn(grid(EXPONENTIAL, 16), count, ring(slack)),
        )


def checkpoints(_: int) -> Iterator[Row]:
    """A job of 1,024 nodes, 6.5 failures per 1000 node-days, saves of a minute: share of the time kept, drawn and exact."""
    nodes, save, down, restore = 1024, 60.0, 300.0, 120.0
    f = Failure(
        software_per_1000_node_days=6.5, checkpoint_s=save, detect_s=120.0, reschedule_s=down - 120.0, restore_s=restore,
    )  # fmt: skip
    mu = 1000 * 86400 / (6.5 * nodes)
    periods = {
        "best": best_s(save, mu), "Young": sqrt(2 * mu * save) + save,
        "Daly": sqrt(2 * (mu + down + restore) * save) + save, "an hour": 3600.0,
    }  # fmt: skip
    for name, period in periods.items():
        made = simulate_jobs(structs.replace(f, checkpoint_every_s=period), nodes, 8, 30 * 86400.0, count=400, seed=1)
        kept = made.node_us[:, PRODUCTIVE] / (nodes * made.count("wall_us"))
        expected = 1 / expected_s(1.0, period, save, mu, down, restore)
        error = ERRORS * float(kept.std()) / sqrt(len(kept))
        yield "checkpoint-interval", f"{name}, {period:,.0f} s: share kept", expected, float(kept.mean()), error


CHECKS = (backups, clones, speculation, local_steps, loose, checkpoints)


def main() -> None:
    """Print the table; exit 1 if a difference is more than chance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4000)
    count, good = parser.parse_args().steps, True
    print("| policy | quantity | closed form | ours | difference | chance |\n|---|---|---:|---:|---:|---:|")
    for check in CHECKS:
        for policy, quantity, theirs, ours, error in check(count):
            good &= abs(ours - theirs) <= error
            off = 100 * (ours / theirs - 1)
            chance = 100 * error / theirs
            print(f"| {policy} | {quantity} | {theirs:.4f} | {ours:.4f} | {off:+.2f} % | ± {chance:.2f} % |", flush=True)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
