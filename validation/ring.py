"""What a structural policy buys: replicas that meet at a barrier, on a ring with slack, or within a bound of staleness.

    python validation/ring.py [--largest 4096]

First the bare theory: exponential work of mean 1. A barrier takes the harmonic number H_N = ln N + 0.58 and so grows
without bound; a ring in which everybody waits for its neighbour's state ``s`` meetings ago takes 1 + (N-1)/(sN), at most 2
however large it is. Then the same on the scenario engine: a job of N replicas (7 B parameters, 8 devices each) whose steps
stray, as multiples of the step without noise. What is transferred at the gate is left out, so that only waiting differs:
a step that strays by 10 % takes 14 % longer on a node of eight whatever the gate, because tensor parallelism is a barrier.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import resources
from math import sqrt
from typing import Any

import msgspec
import numpy as np

from taut.project.noise import table
from taut.project.training.forecast import with_noise
from taut.project.training.grid import Gate, Grid, Sync, barrier, ring, stale, steps
from taut.project.training.pipeline import program
from taut.project.training.scenario import Device, Fabric, Job, Model, Noise, Scenario
from taut.project.training.step_plan import plan
from taut.project.training.step_time import step_ns

COUNT = 1200
"""Steps; the first third is left out, because replicas that start together have not drifted apart yet."""
GATES: dict[str, tuple[Gate, int]] = {
    "barrier": (barrier, 1), "ring, slack 1": (ring(1), 1), "ring, slack 4": (ring(4), 1), "stale, bound 3": (stale(3), 1),
    "barrier every 4": (barrier, 4),
}  # fmt: skip


def shipped(kind: Any, folder: str, name: str) -> Any:
    text = (resources.files("taut") / "scenarios" / folder / f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=kind)


def job(replicas: int, noise: Noise) -> Scenario:
    """A transformer of 7 B parameters, a node for each replica, four micro-batches a step."""
    return Scenario(
        Model(32, 4096, 32, 2048), Job(replicas * 4, dp=replicas, tp=8), shipped(Device, "devices", "a100-80g"),
        shipped(Fabric, "fabrics", "dgx-a100-hdr"), noise=noise,
    )  # fmt: skip


def settled(took: Any) -> tuple[float, float]:
    """Mean of the steps after the first, and its standard error (neighbouring steps depend on each other)."""
    parts = took[len(took) // 3 :].reshape(20, -1).mean(axis=1)
    return float(parts.mean()), float(parts.std()) / sqrt(len(parts) - 1)


def theory(replicas: int) -> Iterator[tuple[str, float | None, float, float]]:
    """(gate, closed form, drawn, its standard error), exponential work of mean 1."""
    one = table(Noise(distribution="exponential", spread=1.0))
    grid = Grid(program("gpipe", 1, 1, 1), np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.stack([one, one]), 0.0, replicas)
    known = {
        "barrier": float((1 / np.arange(1, replicas + 1)).sum()), "ring, slack 1": 1 + (replicas - 1) / replicas,
        "ring, slack 4": 1 + (replicas - 1) / (4 * replicas),
    }  # fmt: skip
    for name, (gate, every) in GATES.items():
        yield name, known.get(name), *settled(steps(grid, 2 * COUNT, 1, sync=Sync(gate=gate, every=every)))


def engine(replicas: int, noise: Noise) -> Iterator[tuple[str, float, float]]:
    """(gate, mean step over the step without noise, its standard error); neither with the synchronisation in it."""
    s = job(replicas, noise)
    p = plan(s)
    alone = step_ns(s, p) - p.sync_ns
    for name, (gate, every) in GATES.items():
        value, error = settled(steps(with_noise(s, p, 1), COUNT, 1, sync=Sync(gate=gate, every=every, after_ns=p.optimiser_ns)))
        yield name, value / alone, error / alone


STRAYS = {
    "steps stray by 10 %": Noise(spread=0.02, step_spread=0.10, ranks_spread=0.0),
    "and replicas differ for good by 2 %": Noise(spread=0.02, step_spread=0.10, ranks_spread=0.02),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--largest", type=int, default=4096)
    sizes = [4**k for k in range(1, 7) if 4**k <= parser.parse_args().largest]
    head = f"| {' | '.join(GATES)} |\n|---|{'---|' * len(GATES)}"
    print(f"Exponential work of mean 1; in brackets the closed form.\n\n| replicas {head}")
    for n in sizes:
        cells = (f"{v:.3f} ± {e:.3f}" + ("" if exact is None else f" ({exact:.3f})") for _, exact, v, e in theory(n))
        print(f"| {n:,} | {' | '.join(cells)} |", flush=True)
    for title, noise in STRAYS.items():
        print(f"\nA job of 7 B parameters, {title}: mean step over the step without noise.\n\n| replicas {head}")
        for n in sizes:
            print(f"| {n:,} | {' | '.join(f'{v:.3f} ± {e:.3f}' for _, v, e in engine(n, noise))} |", flush=True)


if __name__ == "__main__":
    main()
