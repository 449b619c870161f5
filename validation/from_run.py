"""A job measured on few ranks against the same job measured on more: forecast, measured, difference.

    python validation/from_run.py --shared ../shared/data [--pairs FOLDER]

The pair in the shared data was recorded on one idle machine of two cores, so the further ranks share its host. ``--pairs``
takes recordings of your own: folders JOB-RANKS-SEED made by ``taut lab run --job JOB --fault none --ranks RANKS --seed
SEED``, with 4 and 8 ranks of each job and seed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import taut
from taut.project.measured.scaled_run import Forecast, learn

LIMIT = 0.10
APART = {"hsdp": 1}
"""The lab grows hsdp by its shard groups, whose ranks are neighbours; elsewhere the groups farthest apart grow."""

Row = tuple[str, float, Forecast, float]
"""(job, ms measured on few, forecast, ms measured on more)."""


def row(name: str, few: Path, many: Path, apart: int | None = None) -> Row:
    """Forecast from few ranks, and what more of them took."""
    small, large = taut.analyze([few]), taut.analyze([many])
    ranks = len(large.graph.ranks)
    got = learn(small.graph, small.findings, apart=apart).forecasts([ranks], same_hosts=True)[0]
    return name, small.observed.window_ns.mean() / 1e6, got, large.observed.window_ns.mean() / 1e6


def rows(shared: Path, pairs: Path | None = None) -> Iterator[Row]:
    """The shared pair, then the pairs in a folder."""
    yield row("lab-baseline (ddp)", shared / "lab-baseline", shared / "lab-baseline8")
    for many in sorted(pairs.glob("*-8-*")) if pairs is not None else ():
        job, seed = many.name.split("-8-")
        few = many.with_name(f"{job}-4-{seed}")
        if (few / "faulted").is_dir():
            yield row(f"{job}, seed {seed}", few / "faulted", many / "faulted", APART.get(job))


def main() -> None:
    """Print the table; exit 1 if the shared pair is off by more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--pairs", type=Path)
    given = parser.parse_args()
    if not given.shared.is_dir():
        print(f"skipped: {given.shared} is not here (it is no part of the repository)")
        return
    right = True
    print(
        "| job | 4 ranks, ms | forecast for 8 | interval | measured on 8 | difference | inside |\n|---|---|---|---|---|---|---|"
    )
    for name, few, got, real in rows(given.shared, given.pairs):
        value, low, high = (ns / 1e6 for ns in got.mean_ns)
        off = value / real - 1
        right &= abs(off) <= LIMIT or not name.startswith("lab-baseline")
        inside = "yes" if low <= real <= high else "no"
        print(
            f"| {name} | {few:.1f} | {value:.1f} | {low:.1f}–{high:.1f} | {real:.1f} | {100 * off:+.1f} % | {inside} |",
            flush=True,
        )
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()
