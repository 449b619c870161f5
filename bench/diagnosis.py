"""Power of the tests behind findings that need step times only, as Markdown: ``python bench/diagnosis.py [--jobs 100]``.

How often, and where, a fault of a given size is found; how often a healthy job gets an alarm is in ``bench/size.py``.
Every job is a table of step times (ranks × steps), read and analysed as a user's would be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from taut.diagnose.detectors import Evidence, diagnose
from taut.graph import link
from taut.read import step_times as steptimes
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay

STEP_MS, NOISE, RANKS, STEPS = 100.0, 0.03, 8, 40
Draw = Callable[[np.random.Generator, int, int], Any]


def red(rng: np.random.Generator, rows: int, n: int, rho: float) -> Any:
    """AR(1) noise of unit spread."""
    out = rng.standard_normal((rows, n))
    for k in range(1, n):
        out[:, k] = rho * out[:, k - 1] + np.sqrt(1 - rho**2) * out[:, k]
    return out


def wave(rng: np.random.Generator, n: int) -> Any:
    """A square wave of demand with a period of 8 to 16 steps."""
    period, phase = rng.integers(8, 17), rng.integers(16)
    return ((np.arange(n) + phase) % period < period // 2) * 8.0


NULLS: dict[str, Draw] = {
    "white noise": lambda rng, r, n: rng.standard_normal((r, n)),
    "red noise, ρ = 0.5": lambda rng, r, n: red(rng, r, n, 0.5),
    "red noise, ρ = 0.8": lambda rng, r, n: red(rng, r, n, 0.8),
    "heavy tails (t, 3 degrees)": lambda rng, r, n: rng.standard_t(3, (r, n)) / np.sqrt(3),
    "hiccups (1 % of steps three times as long)": lambda rng, r, n: (
        rng.standard_normal((r, n)) + 2 / NOISE * (rng.random((r, n)) < 0.01)
    ),
    "unequal ranks (5 %)": lambda rng, r, n: rng.standard_normal((r, n)) + 0.05 / NOISE * rng.standard_normal((r, 1)),
    "shared square wave of demand": lambda rng, r, n: rng.standard_normal((r, n)) + wave(rng, n),
    "shared red demand, ρ = 0.8": lambda rng, r, n: rng.standard_normal((r, n)) + 3 * red(rng, 1, n, 0.8),
}


def evidence(noise: Any) -> Evidence:
    """What detectors get of a job whose step times are noisy in this way."""
    took = STEP_MS * np.maximum(1 + NOISE * noise, 0.2)
    rows = [f"{r},{s},{took[r, s]:.6f}" for r in range(took.shape[0]) for s in range(took.shape[1])]
    graph = link(steptimes.load(("worker,step,step_time_ms\n" + "\n".join(rows)).encode(), "job.csv"))
    observed = replay(graph)
    return Evidence(graph, observed, blame(graph, observed, observed), batch(graph))


def _late(e: Evidence, mode: str, rank: int) -> bool:
    return any(f.mode == mode and f.ranks == (rank,) for f in diagnose(e)[:1])


FAULTS: dict[str, tuple[str, Callable[[Any, np.random.Generator, float], None]]] = {}


def _fault(name: str, mode: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        FAULTS[name] = (mode, function)
        return function

    return add


@_fault("slow since the middle", "straggler cascade")
def _slow(noise: Any, rng: np.random.Generator, size: float) -> None:
    noise[2, STEPS // 2 :] += size


@_fault("slow in ten steps", "straggler cascade")
def _burst(noise: Any, rng: np.random.Generator, size: float) -> None:
    at = int(rng.integers(5, STEPS - 15))
    noise[2, at : at + 10] += size


@_fault("slow in one step of four", "straggler cascade")
def _stall(noise: Any, rng: np.random.Generator, size: float) -> None:
    noise[2, rng.random(STEPS) < 0.25] += size


@_fault("slower with every step since the tenth", "silent degradation")
def _drift(noise: Any, rng: np.random.Generator, size: float) -> None:
    noise[2, 10:] += size * 2 * np.linspace(0, 1, STEPS - 10)


def powers(jobs: int, seed: int) -> None:
    """Table of what is found: first finding, right mode, right rank."""
    strengths = (1, 2, 3, 4, 6, 8)
    print(
        f"\n| fault on one of {RANKS} ranks, mean excess in spreads of a step | " + " | ".join(f"{s}" for s in strengths) + " |"
    )
    print("|---|" + "---:|" * len(strengths))
    for k, (name, (mode, inject)) in enumerate(FAULTS.items()):
        for base in ("white noise", "red noise, ρ = 0.5"):
            found = []
            for size in strengths:
                rng = np.random.default_rng((seed, 100 + k, size))
                hits = 0
                for _ in range(jobs):
                    noise = NULLS[base](rng, RANKS, STEPS)
                    inject(noise, rng, float(size))
                    hits += _late(evidence(noise), mode, 2)
                found.append(hits / jobs)
            print(f"| {name}, {base} | " + " | ".join(f"{100 * f:.0f} %" for f in found) + " |")
            sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="jobs for every cell")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    powers(given.jobs, given.seed)
