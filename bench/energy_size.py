"""False alarms and power of the energy feedback loop's test, over seeds.

    python bench/energy_size.py [--seeds 400]

One rank, its power, clock, temperature and step time per step. Nulls: independent red noise (0.8 and 0.95 of the value
before is kept); independent heavy tails (Student's t with 2 degrees of freedom); a shared periodic demand that all follow,
sine or square, with lags of their own; and the modelled accelerator of ``taut.lab.governor`` without a governor, whose
power and step time both follow a red load. Power: the same with a governor that moves the clock or the duty cycle by
power, or the clock by heat. Size counts a loop of whatever gain; power counts what the detector would report: at 1 %, with
a gain whose interval reaches 0.5.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from taut.diagnose.energy import FALSE_ALARMS, NEAR, loops
from taut.diagnose.metric_steps import Steps

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from governor import Accelerator, Played, play, red


def red_noise(seed: int, n: int, memory: float) -> Played:
    rng = np.random.default_rng(seed)
    return Played(*(mean + red(rng, n, memory, spread) for mean, spread in ((500, 20), (1900, 20), (200, 5), (60, 3))))


def heavy(seed: int, n: int) -> Played:
    power, clock, step, heat = np.random.default_rng(seed).standard_t(2, (4, n))
    return Played(500 + 5 * power, 1900 + 5 * clock, 200 + step, 60 + heat)


def demand(seed: int, n: int, square: bool) -> Played:
    rng = np.random.default_rng(seed)
    period = int(rng.integers(6, 16))
    wave = np.sin(2 * np.pi * (np.arange(n)[None] - rng.integers(0, 3, (4, 1))) / period)
    wave = np.where(wave >= 0, 1.0, -1.0) if square else wave
    noise = rng.normal(size=(4, n))
    spread = ((500, 20, 10), (1900, -20, 10), (200, 5, 2), (60, 3, 1))
    return Played(*(mean + swing * w + rest * e for (mean, swing, rest), w, e in zip(spread, wave, noise, strict=True)))


def governed(seed: int, n: int, **what: object) -> Played:
    return play(Accelerator(**what), n, seed)  # type: ignore[arg-type]


NULLS = {
    "red noise, 0.8": lambda s, n: red_noise(s, n, 0.8),
    "red noise, 0.95": lambda s, n: red_noise(s, n, 0.95),
    "heavy tails": heavy,
    "shared sine": lambda s, n: demand(s, n, False),
    "shared square wave": lambda s, n: demand(s, n, True),
    "no governor, load 0.5 red": lambda s, n: governed(s, n),
    "no governor, load 0.9 red": lambda s, n: governed(s, n, load_red=0.9),
    "no governor, load 0.9 red, much jitter": lambda s, n: governed(s, n, load_red=0.9, jitter=0.1),
}
LENGTHS = (60, 200)


def tested(played: Played, clock: bool) -> list[object]:
    metrics = {"power_w": played.power_w}
    metrics |= {"clock_mhz": played.clock_mhz, "temperature_c": played.temperature_c} if clock else {}
    n = len(played.step_ms)
    return loops(Steps(played.step_ms * 1e6, played.step_ms * 1e6, metrics, np.arange(n)))


def chance(played: Played, clock: bool) -> float:
    """Of the surest loop, corrected for the loops tested."""
    found = tested(played, clock)
    return min(1.0, len(found) * min(one.chance for one in found))


def reported(played: Played, clock: bool) -> bool:
    found = tested(played, clock)
    return any(len(found) * one.chance <= FALSE_ALARMS and one.gain["hi"] >= NEAR for one in found)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=400)
    seeds = parser.parse_args().seeds
    print(f"Size, {seeds} seeds; share of runs with a loop at 5 % and at 1 %.\n")
    print("| null | clock known | " + " | ".join(f"{n} steps" for n in LENGTHS) + " |\n|---|---|" + "---|" * len(LENGTHS))
    for name, make in NULLS.items():
        for clock in (True, False):
            cells = []
            for n in LENGTHS:
                chances = np.array([chance(make(seed, n), clock) for seed in range(seeds)])
                cells.append(" / ".join(f"{100 * (chances <= level).mean():.1f} %" for level in (0.05, 0.01)))
            print(f"| {name} | {'yes' if clock else 'no'} | {' | '.join(cells)} |", flush=True)
    print(f"\nPower, {seeds // 4} seeds; share of runs reported.\n")
    print("| governor | averages over | gain | " + " | ".join(f"{n} steps" for n in LENGTHS) + " |")
    print("|---|---|---|" + "---|" * len(LENGTHS))
    for lever, average in (("clock", 1), ("clock", 4), ("duty", 1), ("duty", 4), ("heat", 1)):
        for gain in (0.1, 0.2, 0.4, 0.8, 1.6):
            what = {"governor": lever, "gain": gain, "average": average}
            rates = [np.mean([reported(governed(s, n, **what), True) for s in range(seeds // 4)]) for n in LENGTHS]
            cells = " | ".join(f"{100 * rate:.0f} %" for rate in rates)
            print(f"| {lever} | {average} | {gain} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
