"""How long it takes to say what an all-reduce takes, where groups meet on the fabric.

    python bench/allreduce.py [--repeat 5]

First 1,024 ranks scattered over an oversubscribed fat-tree with hashed uplinks: ring and halving-doubling, a process each,
everything but imports. ``patterns`` is what taut does: rounds with the same flows are solved once. ``one_by_one`` solves
each of the 2·1023 + 2·10 rounds; the times of the all-reduce must be the same. Then jobs of 131,072 ranks, every axis, in
one process, kernels loaded.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from taut.project.fabric import groups as room
from taut.project.fabric.flow import rates
from taut.project.fabric.groups import Net, net_of
from taut.project.training.scenario import Device, Fabric, Job, Model, Scenario, Tier

TIERS = (
    Tier("node", 8, 450.0, latency_us=1),
    Tier("leaf", 256, 50.0, latency_us=5, striped=True, oversubscription=2, uplinks=64),
    Tier("spine", 4096, 50.0, latency_us=8, oversubscription=2),
)
SIZE = 1e9


def scenario(placement: Any, uplinks: bool = True, **job: Any) -> Scenario:
    tiers = TIERS if uplinks else (TIERS[0], Tier("leaf", 256, 50.0, latency_us=5, striped=True, oversubscription=2), TIERS[2])
    model, device = Model(layers=1, hidden=64, heads=64, sequence=64), Device("d", 989, 80, 3350)
    return Scenario(model, Job(global_batch=job["dp"], **job), device, Fabric("f", tiers, placement=placement))


def small() -> Net:
    return Net(scenario("scattered", dp=1024).job, scenario("scattered", dp=1024).fabric)


def patterns() -> dict[str, float]:
    """Times of the all-reduce, every pattern solved once."""
    net = small()
    return {kind: net._algorithm_ns("all-reduce", "dp", SIZE, kind) / 1e6 for kind in ("ring", "halving-doubling")}


def one_by_one() -> dict[str, float]:
    """The same, round by round."""
    room.FEWEST_ROUNDS = 64
    net, took = small(), {}
    for kind in ("ring", "halving-doubling"):
        total = 0.0
        for one in net._rounds("dp", kind):
            ways = net.topology.route(one.src.ravel(), one.dst.ravel())
            part = SIZE / 1024 if kind == "ring" else SIZE * one.share
            latency = ways.latency_us.mean() if kind == "ring" else ways.latency_us.max()
            for _ in range(2 * 1023 if kind == "ring" else 2):
                rate = rates(ways.start, ways.link, net.topology.capacity)
                total += float(latency) * 1e3 + part / float(rate.min())
        took[kind] = total / 1e6
    return took


def large() -> None:
    print("\n| ranks | placement | axis | transfer | members | GB/s | CPU ms |\n|---|---|---|---|---|---|---|")
    for placement in ("packed", "scattered"):
        for job in ({"dp": 131072}, {"tp": 8, "dp": 2048, "pp": 8, "ep": 64}):
            net = net_of(scenario(placement, uplinks=False, **job))
            asked = [("dp", "ring"), ("dp", "halving-doubling"), ("tp", "ring"), ("pp", "send"), ("ep", "all-to-all")]
            for axis, kind in asked:
                if net.members(axis) == 1:
                    continue
                began = time.process_time()
                pace = net.pace(axis, kind)
                ms = 1e3 * (time.process_time() - began)
                cells = (
                    f"{net.job.world:,}",
                    placement,
                    axis,
                    kind,
                    net.members(axis),
                    f"{pace.gb_per_s:.4g}",
                    f"{ms:.0f}",
                )
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("patterns", "one_by_one"))
    options = parser.parse_args()
    if options.only:
        began, worked = time.perf_counter(), time.process_time()
        took = {"patterns": patterns, "one_by_one": one_by_one}[options.only]()
        print(time.perf_counter() - began, time.process_time() - worked, *(f"{v:.3f}" for v in took.values()))
        return
    print("| 1,024 ranks, contention | wall s | range s | CPU s | ring ms | halving-doubling ms |\n|---|---|---|---|---|---|")
    for name in ("patterns", "one_by_one"):
        runs = [
            subprocess.run(
                [sys.executable, __file__, "--only", name], capture_output=True, text=True, check=True
            ).stdout.split()
            for _ in range(options.repeat)
        ]
        seconds = np.array([float(run[0]) for run in runs])
        spread = f"{seconds.min():.3f}–{seconds.max():.3f}"
        cpu = statistics.median(float(run[1]) for run in runs)
        print(f"| {name} | {statistics.median(seconds):.3f} | {spread} | {cpu:.3f} | {runs[0][2]} | {runs[0][3]} |")
    large()


if __name__ == "__main__":
    main()
