"""What recording costs a job: lab runs with and without the flight recorder by turns, and the time a step log takes itself.

    sudo python bench/lab_overhead.py [--pairs 6] [--jobs ddp,fsdp]

The profiler's cost is in every lab run already (its plain steps against its healthy parts). A pair of runs differs in the
flight recorder alone; the median step of one over that of the other says what it costs, with the spread over pairs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from taut.lab.case import Spec
from taut.lab.run_case import Lab
from taut.lab.truth import load

ENTRIES = {"without": "0", "with": "20000"}
LINES = 100_000


def step_ms(job: str, recorder: str, seed: int) -> tuple[float, float]:
    """Median step of a healthy run, ms: as it is, and under the profiler."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = ENTRIES[recorder]
    with tempfile.TemporaryDirectory() as folder, Lab() as lab:
        lab.run(Spec(job=job, fault="none", seed=seed, steps=12, folder=f"{folder}/run"))
        known = load(Path(folder) / "run").overhead
    return known["plain_ms"], known["profiled_ms"]


def log_ns() -> float:
    """What noting one step takes: four readings of clocks and a row."""
    rows: list[tuple[int, int, int, int]] = []
    began = time.perf_counter_ns()
    for _ in range(LINES):
        begin, own = time.monotonic_ns(), time.time_ns()
        end = time.monotonic_ns()
        rows.append((begin, end, own, own + end - begin))
    return (time.perf_counter_ns() - began) / LINES


def main() -> None:
    """Print one line per job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--jobs", default="ddp,fsdp,pipeline")
    options = parser.parse_args()
    print(f"step log: {log_ns() / 1e3:.2f} µs a step and rank")
    for job in options.jobs.split(","):
        shares, profiled = [], []
        for pair in range(options.pairs):
            order = ("without", "with") if pair % 2 else ("with", "without")
            took = {recorder: step_ms(job, recorder, pair) for recorder in order}
            shares += [with_ / without - 1 for with_, without in zip(took["with"], took["without"], strict=True)]
            profiled.append(took["with"][1] / took["with"][0] - 1)
        mean, error = float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
        print(
            f"{job}: flight recorder {100 * mean:+.2f} % (± {196 * error:.2f}) of a step over {len(shares)} comparisons; "
            f"profiler {100 * float(np.median(profiled)):+.1f} %"
        )


if __name__ == "__main__":
    main()
