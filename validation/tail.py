"""Published tails of a large fan-out service against those of independent leaves.

    python validation/tail.py --shared ../shared/validation

Source: Dean and Barroso, "The tail at scale" (2013), table 1 and the text on hedged requests. The table is not part of this
repository. One leaf's three percentiles are all that is fitted; the number of leaves is not published, and is taken such
that the median of the slowest leaf is theirs.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from taut.core.array_types import Floats
from taut.project.noise import GRID
from taut.project.requests.fan_out import TAILS, fan_out, hedged, percentile, through

Row = tuple[str, float, float]
"""(quantity, theirs, ours), ms."""
CHANCES = (0.5, 0.95, 0.99)


def leaves_for(table: Floats, chance: float, value: float) -> float:
    """How many independent leaves make the slowest of them take this long at this chance."""
    at = np.interp(value, table, GRID)
    return float(np.log(chance) / -np.log1p(np.exp(-at)))


def at_most(table: Floats, share: float, chance: float) -> float:
    """The longest time that this share of the leaves can take at this chance, whatever they have in common.

    Markov: if some part of the leaves is late in some part of the requests, then the product of both parts is late of all.
    """
    late = (1 - share) * (1 - chance)
    return percentile(table, 1 - late)


def fanned(folder: Path) -> Iterator[Row]:
    """Percentiles of requests to all leaves."""
    rows = csv.DictReader((folder / "tail_at_scale_table1.csv").read_text(encoding="utf-8").splitlines())
    one, most, every = ([float(row[f"p{100 * c:.0f}_ms"]) for c in CHANCES] for row in rows)
    for tail in TAILS:
        leaf = through(dict(zip(CHANCES, one, strict=True)), tail)
        leaves = round(leaves_for(leaf, 0.5, every[0]))
        for share, theirs in ((1.0, every), (0.95, most)):
            slow = fan_out(leaf, leaves, share)
            for chance, value in zip(CHANCES, theirs, strict=True):
                yield f"{tail}, {leaves} leaves: {100 * share:.0f} % done, p{100 * chance:.0f}", value, percentile(slow, chance)
        for chance, value in zip(CHANCES, most, strict=True):
            yield f"{tail}, however dependent: 95 % done, p{100 * chance:.0f} at most", value, at_most(leaf, 0.95, chance)


def hedging(_: Path) -> Iterator[Row]:
    """1,000 values from 100 servers; a second request after 10 ms: 2 % more of them, p99.9 from 1,800 to 74 ms.

    Fitted: that 2 % take longer than 10 ms, and that the slowest does 1,800 ms at p99.9 without hedging.
    """
    for tail in TAILS:
        for asked in (1000, 100):
            leaf = through({0.98: 10.0, 0.999 ** (1 / asked): 1800.0}, tail)
            soon, extra = hedged(leaf, 10.0)
            yield (
                f"{tail}, {asked} requests: p99.9 hedged ({100 * extra:.1f} % more)",
                74.0,
                percentile(fan_out(soon, asked), 0.999),
            )


CHECKS = (fanned, hedging)


def main() -> None:
    """Print the table; nothing is judged: independent leaves are not expected to give what dependent ones did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    folder = parser.parse_args().shared
    if not folder.is_dir():
        raise SystemExit(f"{folder}: not here; the published tables are not part of this repository")
    print("| quantity | theirs, ms | ours, ms | difference |\n|---|---|---|---|")
    for check in CHECKS:
        for quantity, theirs, ours in check(folder):
            print(f"| {quantity} | {theirs:g} | {ours:.1f} | {100 * (ours / theirs - 1):+.0f} % |")


if __name__ == "__main__":
    main()
