"""Where the next accelerator stops paying: how much another seed moves it, and whether full graphs give the same scale.

python bench/threshold.py [--seeds 100] [--graph | --grid | --ranges]

Of every scenario the threshold is computed with each seed. ``inside`` is the share of (seed, other seed) pairs in which the
other's threshold lies in the interval of the first. With ``--graph``, small jobs are generated as full graphs and replayed;
with ``--grid``, mean steps of the sampled replica stand beside those of the grid; with ``--ranges``, shipped scenarios stand
beside as many drawn inside their ranges, each with known values and a seed of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from taut.project.noise import table
from taut.project.reserve import reserve
from taut.project.threshold import threshold
from taut.project.training.forecast import at, forecast, with_noise
from taut.project.training.sampled_replica import mean_step_ns, rate
from taut.project.training.scenario import Scenario, parse
from taut.project.training.step_plan import plan
from taut.project.training.uncertain_keys import draws
from taut.project.training.workload import WORKLOAD, Training
from taut.project.workload import Sampling
from taut.read.scenario_file import load
from taut.replay.timeline import replay

change = msgspec.structs.replace


def shipped(**tables: Any) -> Scenario:
    raw, text = load("gpt-175b")
    for name, values in tables.items():
        raw[name] = {**(raw.get(name) or {}), **values} if name != "failure" else values
    return parse(raw, "gpt-175b", text)[0]


def known(name: str) -> Scenario:
    s = parse(*load(name)[:1], name)[0]
    return change(s, failure=change(s.failure, ranges=()))


SCENARIOS = {
    "large-training, known values": known("large-training"),
    "uneven-batches, known values": known("uneven-batches"),
    "gpt-175b, no failures, jitter × 12": shipped(
        failure={}, noise={"spread": 0.24, "step_spread": 0.12, "ranks_spread": 0.06}
    ),
    "13 B, hybrid sharding, exponential": shipped(
        failure={}, model={"layers": 40, "hidden": 5120, "heads": 40},
        job={"global_batch": 64, "dp": 64, "tp": 1, "pp": 1, "sharding": "hsdp"},
        noise={"distribution": "exponential", "spread": 1.0, "step_spread": 0.1},
    ),
}  # fmt: skip

FLAT = {
    "name": "flat",
    "tiers": [{"name": "node", "devices": 8, "gb_per_s": 1e6}, {"name": "net", "devices": 4096, "gb_per_s": 1e6}],
}


def small(spread: float, **job: Any) -> Scenario:
    raw, text = load("gpt-175b")
    raw["model"] = {"layers": job.get("pp", 1), "hidden": 4096, "heads": 16, "sequence": 1024}
    raw["job"] = {"global_batch": 16, **job}
    raw["noise"] = {"distribution": "exponential", "spread": spread, "step_spread": 0.0, "ranks_spread": 0.0}
    raw.update(fabric=FLAT, failure={})
    return parse(raw, "small", text)[0]


def by_graph(s: Scenario, seed: int) -> float:
    import full_graph

    if s.noise.distribution == "none":
        return rate(s, seed)
    p = plan(s)
    made = full_graph.graph(s, with_noise(s, p, seed), 200, seed, by="layer", p=p, one=table(s.noise))
    return s.job.global_batch * s.model.sequence * 1e9 / float(replay(made).window_ns.mean())


class Replayed(Training):
    def rate(self, s: Scenario, how: Sampling) -> float:
        return by_graph(s, how.seed)


def beside(s: Scenario, seeds: int) -> None:
    quick = [mean_step_ns(s, plan(s), seed) / 1e6 for seed in range(seeds)]
    grid = [float(forecast(s, count=8, seed=1000 + seed).step_ns.mean()) / 1e6 for seed in range(seeds)]
    cells = (f"{np.mean(them):,.0f} ± {1.96 * np.std(them) / np.sqrt(seeds - 1):.0f}" for them in (quick, grid))
    print(f"| {s.job.world:,} | {' | '.join(cells)} | {np.mean(quick) / np.mean(grid) - 1:+.2%} |", flush=True)


def drawn(name: str, count: int) -> None:
    """How many scenarios drawn inside the ranges have their threshold inside the interval."""
    s = parse(*load(name)[:1], name)[0]
    found, exact = threshold(WORKLOAD, s), threshold(WORKLOAD, known(name))
    there, inside = [], 0
    for k, values in enumerate(draws(s.failure.ranges, seed=1000, count=count)):
        one = change(s, failure=change(s.failure, ranges=(), **values))
        ranks = threshold(WORKLOAD, one, Sampling(seed=k + 1)).ranks
        there.append(ranks or float("inf"))
        inside += (found.lo or 0) <= there[-1] <= (found.hi or float("inf"))
    low, high = np.quantile(there, (0.1, 0.9), method="nearest")
    print(
        f"| {name} | {found.ranks:,} ({found.lo:,}–{f'{found.hi:,}' if found.hi else 'open'}) | {exact.lo:,}–{exact.hi:,} "
        f"| {low:,.0f}–{high:,.0f} | {inside / count:.0%} |", flush=True,
    )  # fmt: skip


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--seeds", type=int, default=100)
    ask.add_argument("--graph", action="store_true")
    ask.add_argument("--grid", action="store_true")
    ask.add_argument("--ranges", action="store_true")
    asked = ask.parse_args()
    if asked.grid:
        for ranks in (96, 384, 1536, 6144, 24576):
            beside(at(shipped(), ranks), asked.seeds)
        return
    if asked.ranges:
        for name in ("large-training", "audit-cloud", "uneven-batches", "fixed-batch"):
            drawn(name, asked.seeds)
        return
    if asked.graph:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        for name, s in {
            "dp 16": small(0.6, dp=16), "dp 8, tp 2": small(0.8, dp=8, tp=2), "dp 4, pp 2": small(1.2, dp=4, pp=2),
        }.items():  # fmt: skip
            grid, graph = threshold(WORKLOAD, s), threshold(Replayed(), s, Sampling(seed=1))
            print(f"| {name} | {grid.ranks} ({grid.lo}–{grid.hi}) | {graph.ranks} ({graph.lo}–{graph.hi}) |", flush=True)
        return
    for name, s in SCENARIOS.items():
        begun = time.process_time()
        found = [threshold(WORKLOAD, s, Sampling(seed=seed)) for seed in range(asked.seeds)]
        took = (time.process_time() - begun) / asked.seeds
        place, lo, hi = (np.array([getattr(one, key) for one in found], float) for key in ("ranks", "lo", "hi"))
        inside = (np.where(np.isnan(lo), 0, lo)[:, None] <= place) & (place <= np.where(np.isnan(hi), np.inf, hi)[:, None])
        share = inside[~np.eye(len(place), dtype=bool)].mean()
        first = found[0]
        sides = [side["dominant"] if side else None for side in (first.before, first.after)]
        held = reserve(WORKLOAD, s)
        print(
            f"| {name} | {first.ranks} ({first.lo}–{first.hi}) | {np.nanmin(place):.0f}–{np.nanmax(place):.0f} | {share:.0%} | "
            f"{sides[0]} → {sides[1]} | {held.reserve.value:.3g} ({held.kind}) | {took:.2f} s |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
