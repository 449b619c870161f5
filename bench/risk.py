"""How often a series of steps without a trend is said to rise, and how often one that rises is found.

python bench/risk.py --draws 1500
"""

from __future__ import annotations

import argparse

import numpy as np

from taut.core.array_types import Floats
from taut.result.risk_profile import drift

STEPS = (20, 60, 200)
REDNESS = (0.0, 0.5, 0.7, 0.85)
RISES = (0.05, 0.1, 0.2)
NULL_SPREAD, POWER_SPREAD = 0.05, 0.03


def red(rng: np.random.Generator, steps: int, memory: float) -> Floats:
    """A stationary AR(1) series of unit variance."""
    out = rng.standard_normal(steps)
    for k in range(1, steps):
        out[k] = memory * out[k - 1] + np.sqrt(1 - memory**2) * out[k]
    return out


def found(series: Floats) -> bool:
    """Whether the series is said to rise."""
    one = drift(series, float(np.median(series)))
    return one is not None and one.rises


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1500)
    draws, rng = parser.parse_args().draws, np.random.default_rng(0)
    print("| job | " + " | ".join(f"{steps} steps" for steps in STEPS) + " |\n|---|" + "---|" * len(STEPS))
    for memory in REDNESS:
        shares = [np.mean([found(1 + NULL_SPREAD * red(rng, n, memory)) for _ in range(draws)]) for n in STEPS]
        print(f"| no trend, AR(1) {memory:g} | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |")
    for rise in RISES:
        lines = [np.linspace(1, 1 + rise, n) for n in STEPS]
        shares = [
            np.mean([found(line * (1 + POWER_SPREAD * red(rng, len(line), 0.0))) for _ in range(draws)]) for line in lines
        ]
        print(f"| rises by {100 * rise:.0f} %, jitter 3 % | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |")


if __name__ == "__main__":
    main()
