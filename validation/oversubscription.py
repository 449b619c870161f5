"""Ring all-reduce under oversubscription 1:1 to 8:1, packed and scattered: locality decides whether it hurts.

    python validation/oversubscription.py

Assumed, and not tuned: one device a node with a port of 50 GB/s, 1 µs a message, leaves of 4 devices (16 ranks) or 16
(128 ranks) below a spine; 1 MiB on 16 ranks, 128 MiB on 128; ranks in their ring side by side (packed), or on nodes drawn
at random (scattered, 25 draws). For orientation: a packet simulator (its sizes and rates are not those) has 94 → 243 µs at
4:1 on 16 ranks that do not lie in ring order, 2.59 times, and 6.20 → 6.23 ms at 8:1 on 128 that do, 1.005 times.

Of a packed ring one flow leaves a leaf, so it feels nothing until the whole trunk carries less than one port (more than
4:1 above leaves of 4). Of a scattered one nearly all leave, and the most crowded trunk sets the pace.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from taut.project.fabric.groups import Net
from taut.project.training.scenario import Fabric, Job, Tier

JOBS = ((16, 4, 2**20), (128, 16, 2**27))
"""Ranks, devices a leaf, bytes."""
OVER, DRAWS = (1, 2, 4, 8), 25


def took_us(ranks: int, leaf: int, size: float, over: float, seed: int | None = None) -> float:
    """Time of the all-reduce; packed without a seed."""
    tiers = (
        Tier("device", 1, 50.0, 1.0), Tier("leaf", leaf, 50.0, 1.0, oversubscription=over), Tier("spine", ranks, 50.0, 1.0),
    )  # fmt: skip
    placed = {} if seed is None else {"placement": "scattered", "placement_seed": seed}
    return Net(Job(ranks, dp=ranks), Fabric("fabric", tiers, **placed)).ns("all-reduce", "dp", size) / 1e3  # type: ignore[arg-type]


def rows() -> Iterator[tuple[int, int, float, float, float, float]]:
    """(ranks, oversubscription, packed µs, scattered µs: median, least, most)."""
    for ranks, leaf, size in JOBS:
        for over in OVER:
            drawn = [took_us(ranks, leaf, size, over, seed) for seed in range(DRAWS)]
            yield ranks, over, took_us(ranks, leaf, size, over), median(drawn), min(drawn), max(drawn)


def main() -> None:
    """Print the table."""
    print("| ranks | oversubscription | packed µs | times 1:1 | scattered µs (least–most) | times 1:1 |")
    print("|---|---|---|---|---|---|")
    first = alike = 0.0
    for ranks, over, packed, middle, low, high in rows():
        if over == 1:
            first, alike = packed, middle
        spread = f"{middle:,.0f} ({low:,.0f}–{high:,.0f})"
        print(f"| {ranks} | {over}:1 | {packed:,.0f} | {packed / first:.2f} | {spread} | {middle / alike:.2f} |")


if __name__ == "__main__":
    main()
