"""Size and power of the early warning, as Markdown: ``python bench/early_size.py [--series 400]``.

One series at 1 %. Nulls: constant memory, heavy tails, a variance that rises alone, trends and bends, demand, hiccups, a
new level. Power: memory that grows from 0.2 to 0.95 (the variance with it), and to 0.8; beside it, what Kendall's tau of
rolling windows would find of the first, at the same sizes and against the same surrogates.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from taut.diagnose import early_warning as early

LENGTHS = (60, 100, 200, 400)
Draw = Callable[[np.random.Generator, int, int], Any]
"""Series × steps."""


def ar(rng: np.random.Generator, rows: int, n: int, memory: Any, tails: float = 0.0) -> Any:
    """AR(1) noise; memory may change from step to step. Innovations are normal, or Student's with so many degrees."""
    warm = 100
    out = rng.standard_t(tails, (rows, n + warm)) if tails else rng.standard_normal((rows, n + warm))
    memory = np.broadcast_to(memory, n)
    for k in range(1, n + warm):
        out[:, k] += memory[max(k - warm, 0)] * out[:, k - 1]
    return out[:, warm:]


def wave(rng: np.random.Generator, rows: int, n: int) -> Any:
    period, phase = rng.integers(8, 17, (rows, 1)), rng.integers(16, size=(rows, 1))
    return 3.0 * ((np.arange(n) + phase) % period < period // 2)


NULLS: dict[str, Draw] = {
    "white noise": lambda rng, rows, n: ar(rng, rows, n, 0.0),
    "red noise, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5),
    "red noise, ρ = 0.8": lambda rng, rows, n: ar(rng, rows, n, 0.8),
    "red noise, ρ = 0.95": lambda rng, rows, n: ar(rng, rows, n, 0.95),
    "heavy tails (t, 3 degrees)": lambda rng, rows, n: ar(rng, rows, n, 0.0, 3),
    "heavy tails, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5, 3),
    "spread grows fourfold, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5) * np.linspace(1, 4, n),
    "trend of 10 spreads, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5) + np.linspace(0, 10, n),
    "bend of 9 spreads, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5) + 9 * np.linspace(-1, 1, n) ** 2,
    "level 3 spreads higher after 60 %, ρ = 0.5": lambda rng, rows, n: ar(rng, rows, n, 0.5) + 3 * (np.arange(n) > 0.6 * n),
    "square wave of demand": lambda rng, rows, n: ar(rng, rows, n, 0.0) + wave(rng, rows, n),
    "hiccups (1 %)": lambda rng, rows, n: ar(rng, rows, n, 0.0) + 30 * (rng.random((rows, n)) < 0.01),
}
FAULTS: dict[str, Draw] = {
    "memory from 0.2 to 0.95": lambda rng, rows, n: ar(rng, rows, n, np.linspace(0.2, 0.95, n)),
    "memory from 0.2 to 0.8": lambda rng, rows, n: ar(rng, rows, n, np.linspace(0.2, 0.8, n)),
}


def percent(hits: int, of: int) -> str:
    """A share with its interval (Wilson, 95 %)."""
    p, z2 = hits / of, 1.96**2 / of
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return f"{100 * p:.1f} ({100 * max(middle - half, 0):.1f}–{100 * (middle + half):.1f})"


def by_tau(y: Any) -> bool:
    """The warning with Kendall's tau of rolling windows in place of the slopes."""
    rest = early.residuals(y[None])[0]
    null = np.array([early.taus(one) for one in early.residuals(early.surrogates(rest, len(y)))])
    memory, variance = (1 + np.count_nonzero(null >= early.taus(rest), axis=0)) / (1 + len(null))
    return bool(memory < early.FALSE_ALARMS and variance < early.RISES)


def table(head: str, draws: dict[str, Draw], count: int, seed: int, test: Callable[[Any], Any]) -> None:
    print(f"| {head} | " + " | ".join(f"{n} steps" for n in LENGTHS) + " |")
    print("|---|" + "---:|" * len(LENGTHS))
    for k, (name, draw) in enumerate(draws.items()):
        cells = []
        for n in LENGTHS:
            rng = np.random.default_rng((seed, k, n))
            cells.append(percent(sum(bool(test(y)) for y in draw(rng, count, n)), count))
        print(f"| {name} | " + " | ".join(cells) + " |")
        sys.stdout.flush()
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--series", type=int, default=400, help="series for every size; a quarter of them for every power")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    table(f"null, % of {given.series} series warned of (nominal 1)", NULLS, given.series, given.seed, early.slowing)
    some = max(given.series // 4, 10)
    table(f"slowing down, % of {some} series warned of", FAULTS, some, given.seed, early.slowing)
    first = dict(list(FAULTS.items())[:1])
    table(f"the same by Kendall's tau, % of {some // 2} series", first, some // 2, given.seed, by_tau)
