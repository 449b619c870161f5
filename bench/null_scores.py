"""How large the largest score of a job gets where there is no fault: limits of findings and suspects.

    python bench/null_scores.py --runs 2400 --jobs 2 --seed 1 -o src/taut/diagnose/effects/null_scores.json

Null runs have equal ranks of one role, habits of 1.5 %, a red core (AR(1), 0 to 0.95) and stalls at a rate of 0 to 0.2, and
go through the same code as jobs. A job is described by what can be measured of it: ranks and steps, and the estimated redness
and rate of stalls. For each size, runs are sorted into cells of these two; of each cell the scores are kept that 1 % and 5 %
of its runs exceed, from an exponential tail above the 80 % quantile where few runs lie in it.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from taut.diagnose.effects.null_scores import RANKS, REDNESS, STALLS, STEPS  # noqa: E402
from taut.diagnose.effects.scores import candidates  # noqa: E402
from taut.diagnose.effects.search import noise_of  # noqa: E402
from taut.diagnose.effects.series import Series  # noqa: E402

HABIT, CORE = 0.015, 0.02
"""Spread of healthy ranks (theory.md: 1–2 %), and of a healthy step (own times of the lab and of four-rank GPU jobs: 1–4 %)."""
RATES, STALL_LENGTH = (0.0, 0.0, 0.01, 0.03, 0.1, 0.2), 0.4
"""Rates of stalls, and their mean length in logarithms: half as long again as the step."""
TAIL, ENOUGH = 0.8, 400


def null_run(ranks: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Own times without a fault, ns."""
    red, rate = rng.uniform(0, 0.97), rng.choice(RATES)
    noise = rng.standard_normal((ranks, steps))
    for step in range(1, steps):
        noise[:, step] = red * noise[:, step - 1] + np.sqrt(1 - red**2) * noise[:, step]
    stalled = (rng.random((ranks, steps)) < rate) * rng.exponential(STALL_LENGTH, (ranks, steps))
    return 1e8 * np.exp(CORE * noise + HABIT * rng.standard_normal((ranks, 1)) + stalled)


def largest(size: tuple[int, int, int, int]) -> list[tuple[float, float, float]]:
    """(redness, rate of stalls, largest score) of so many null runs of a size."""
    ranks, steps, runs, seed = size
    rng, out = np.random.default_rng((seed, ranks, steps)), []
    for _ in range(runs):
        own = null_run(ranks, steps, rng)
        series = Series.of(own, np.zeros(ranks, np.int64))
        out.append((*noise_of(series, own), max((one.score for one in candidates(series, own, [])), default=0.0)))
    return out


def exceeded(scores: np.ndarray, chance: float) -> float:
    """The score that this share of runs exceeds."""
    if len(scores) * chance >= ENOUGH * 0.05:
        return float(np.quantile(scores, 1 - chance))
    base = float(np.quantile(scores, TAIL))
    return base + float((scores[scores > base] - base).mean()) * float(np.log((1 - TAIL) / chance))


def main() -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2400, help="null runs of each size")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    sizes = [(ranks, steps, asked.runs, asked.seed) for ranks in RANKS for steps in STEPS]
    with ProcessPoolExecutor(asked.jobs) as pool:
        found = dict(zip(sizes, pool.map(largest, sizes), strict=True))
    table = {name: np.zeros((len(RANKS), len(STEPS), len(REDNESS), len(STALLS))) for name in ("finding", "suspect")}
    for (ranks, steps, _, _), rows in found.items():
        red, rate, score = np.array(rows).T
        cell = np.digitize(red, REDNESS[1:]), np.digitize(rate, STALLS[1:])
        for i in range(len(REDNESS)):
            for j in range(len(STALLS)):
                some = score[(cell[0] == i) & (cell[1] == j)]
                some = some if len(some) >= 60 else score[cell[1] == j] if (cell[1] == j).sum() >= 60 else score
                at = RANKS.index(ranks), STEPS.index(steps), i, j
                table["finding"][at], table["suspect"][at] = exceeded(some, 0.01), exceeded(some, 0.05)
    asked.output.write_text(json.dumps({name: np.round(values, 2).tolist() for name, values in table.items()}) + "\n")


if __name__ == "__main__":
    main()
