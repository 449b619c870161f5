"""The grid at scale, and sweeps over parallelism.

python bench/grid.py [--cores 2] [--steps 1000]

131,072 ranks (dp 1,024 × pp 16 × tp 8), 32 micro-batches under 1f1b, a draw for every tensor-parallel group, micro-batch
and direction.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from taut.project.noise import table
from taut.project.training import grid
from taut.project.training.pipeline import program
from taut.project.training.scenario import Device, Fabric, Job, Model, Noise, Scenario, Tier
from taut.project.training.step_time import step_ns

DP, PP, TP, MICRO = 1024, 16, 8, 32


def large() -> grid.Grid:
    noise = Noise(distribution="lognormal", spread=0.02)
    fixed, drawn = np.full((2, PP), 1e6), np.stack([np.full(PP, 10e6), np.full(PP, 20e6)])
    tables = np.stack([table(noise, TP, parts) for parts in (12, 12)])
    return grid.Grid(program("1f1b", PP, 1, MICRO), fixed, drawn, tables, 0.0, DP)


def cost(name: str, work: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    out = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"| {name} | {wall:.2f} | {cpu:.1f} | {peak:.2f} |", flush=True)
    return out


def configurations() -> list[Scenario]:
    device = Device(name="device", peak_tflops=312, memory_gb=80, memory_gb_per_s=2039)
    tiers = (Tier(name="island", devices=8, gb_per_s=300, latency_us=2), Tier(name="net", devices=1 << 20, gb_per_s=25))
    fabric, model = Fabric(name="fabric", tiers=tiers), Model(layers=96, hidden=12288, heads=96, sequence=2048)
    out = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            for dp in (4, 8, 12, 16, 24, 32, 48, 64):
                for micro in (1, 2, 4):
                    for schedule, virtual in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)):
                        job = Job(
                            global_batch=1536, micro_batch=micro, dp=dp, tp=tp, pp=pp, virtual_pp=virtual,
                            schedule=schedule, overlap_share=0.5,
                        )  # fmt: skip
                        whole = 96 % (pp * virtual) == 0 and 1536 % (dp * micro) == 0
                        if whole and (virtual == 1 or job.micro_batches % pp == 0):
                            out.append(Scenario(model=model, job=job, device=device, fabric=fabric))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    job = large()
    print("| what | wall s | CPU s | peak GiB |\n|---|---|---|---|")
    grid.steps(job, 2, 1)
    name = f"{DP * PP * TP:,} ranks × {args.steps:,} steps, {args.cores} cores"
    cost(name, lambda: grid.steps(job, args.steps, 1, cores=args.cores))
    scenarios = configurations()
    step_ns(scenarios[0])
    cpu = time.process_time()
    cost(f"{len(scenarios):,} configurations", lambda: [step_ns(s) for s in scenarios])
    print(f"\n{len(scenarios) / (time.process_time() - cpu):,.0f} configurations a second and core")


if __name__ == "__main__":
    main()
