"""How often an outcome is kept, missed or unclear where the truth is known: size and power of ``taut audit outcome``.

    python bench/audit_outcomes.py --trials 1000 --seed 1

A job of steps that resemble their neighbours (AR(1), 0.3; spread 10 %, 30 steps, now and then a step twice as long) has a
fault that costs a share of its wall. The finding's prediction is off as the lab's were (nine of ten real savings 0.84 to 1.6
times the predicted one), and its steps agree to a tenth. Runs differ from each other by a spread as a whole. Then the fault
is mended, or nothing changes, and the outcome is judged by the code that the verb uses.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from taut.audit.outcome import judged
from taut.replay.saving_interval import NINE_OF_TEN, replayed_saving
from taut.replay.whatif import MEASURED
from taut.result.decided_saving import measured_saving
from taut.result.types import Estimate, Range

STEPS, SPREAD, MEMORY, LONG = 30, 0.1, 0.3, 0.02


def run(rng: np.random.Generator, level_ns: float, between: float) -> list[int]:
    """Step times of one run."""
    noise = rng.normal(0, SPREAD * np.sqrt(1 - MEMORY**2), STEPS)
    noise[0] /= np.sqrt(1 - MEMORY**2)
    for k in range(1, STEPS):
        noise[k] += MEMORY * noise[k - 1]
    long = 1.0 + (rng.random(STEPS) < LONG)
    return (level_ns * np.exp(rng.normal(0, between) + noise) * long).astype(int).tolist()


def predicted(rng: np.random.Generator, real: float, exact: bool) -> Estimate:
    """What a finding says of a saving, through the code that a decision takes it by."""
    z = abs(rng.normal())
    lo, hi = MEASURED["rank"]
    # Half of the real savings lie on either side of what was predicted.
    ratio = 1.0 if exact else np.exp((np.log1p(hi) if rng.random() < 0.5 else np.log1p(lo)) * z / NINE_OF_TEN)
    value = real / ratio
    share = Estimate(value=value, lo=0.9 * value, hi=1.1 * value)
    return replayed_saving(share, Range(lo=lo, hi=hi))


def trial(rng: np.random.Generator, share: float, mended: bool, between: float, before: int, after: int) -> str:
    expected = predicted(rng, share, exact=not mended)
    faulted, later = 1e8, 1e8 * (1 - share if mended else 1)
    sides = [[run(rng, level, between) for _ in range(n)] for level, n in ((faulted, before), (later, after))]
    found = measured_saving(*sides)
    return judged(expected, "finding", None if found is None else found.saving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    print(f"{asked.trials} trials each, percent kept/missed/unclear; runs before + after")
    sizes = [(1, 1), (1, 2), (1, 3), (2, 2), (3, 3)]
    print("truth             runs differ by " + "".join(f"{f'{a} + {b}':>15}" for a, b in sizes))
    for mended in (True, False):
        for share in (0.1, 0.2, 0.4):
            for between in (0.01, 0.02, 0.05, 0.1):
                cells = []
                for before, after in sizes:
                    says = Counter(trial(rng, share, mended, between, before, after) for _ in range(asked.trials))
                    cells.append("/".join(f"{100 * says[word] / asked.trials:.1f}" for word in ("kept", "missed", "unclear")))
                truth = f"saves {share:.0%}" if mended else f"saves 0, expected {share:.0%}"
                print(f"{truth:<22}{between:>9.0%} " + "".join(f"{cell:>15}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
