"""How often the live monitor is wrong, and how soon it is right, on modelled jobs.

    python bench/watch_sequential.py --size 200 --seed 1      # hours of healthy jobs: suspicions, and findings, an hour
    python bench/watch_sequential.py --power 10 --seed 1      # jobs of each kind with a fault from some step on

Jobs are drawn by their seed: 8 to 1,024 ranks, jitter of 1 to 5 % with memory and heavy tails, hiccups, ranks unequal for good,
checkpoints and evaluations. A fault counts among those that matter if the same job without it is at least 3 % shorter.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from taut.lab.live_jobs import LiveJob, Played
from taut.result.types import LiveFinding
from taut.watch.live_findings import MINUTE_S, Live

RANKS = (8, 32, 128, 512, 1024)
HOURS = (0.45, 0.3, 0.17, 0.05, 0.03)
"""Shares of all hours."""
FAULTS = ("slow", "host", "link", "loader", "drift", "stall")
STRENGTHS = (0.05, 0.1, 0.2, 0.4)
AFTER = 160
"""Steps that a fault is given to be found."""
MATTERS = 0.03


def drawn(ranks: int, seed: int, fault: str = "none", strength: float = 0.0) -> LiveJob:
    """A job like no other."""
    rng = np.random.default_rng((seed, ranks, 5))
    sees = "hooks" if rng.random() < 0.5 else "calls"
    return LiveJob(
        ranks, seed, sees=sees, gates=int(rng.integers(3, 9)), step_s=float(rng.uniform(0.3, 0.8)),
        jitter=float(rng.uniform(0.01, 0.05)), memory=float(rng.choice((0.0, 0.4, 0.8))), unequal=float(rng.uniform(0.0, 0.04)),
        hiccups=float(rng.choice((0.0, 0.0005, 0.002))), hiccup_s=float(rng.uniform(0.1, 0.5)), tails=bool(rng.random() < 0.3),
        save_every=int(rng.choice((0, 4, 50, 200))), evaluate_every=int(rng.choice((0, 0, 500))),
        fault=fault, since=int(rng.integers(60, 240)), strength=strength,
    )  # fmt: skip


def size(hours: float, seed: int, minute_s: float) -> None:
    """Healthy jobs: what is suspected and told."""
    print("| ranks | hours | steps | suspicions | not confirmed | findings | an hour | CPU s | of it analyses |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    total, told = 0.0, 0
    for ranks, share in zip(RANKS, HOURS, strict=True):
        left, counts, began, analyses, number = hours * share * 3600, defaultdict[str, int](int), time.process_time(), 0.0, 0
        found: list[str] = []
        while left > 0:
            job = drawn(ranks, seed * 100_000 + number)
            played, number, of_job = Played(job, 32), number + 1, min(left, 4 * 3600.0)
            live = Live(played.new, minute_s=minute_s)
            first = 0
            while not played.now_ns or (played.now_ns - first) / 1e9 < of_job:
                out = live.look(played.now_ns)
                first = first or int(1e12)
                found += [
                    f"{one.mode} {one.ranks[:4]} {one.links[:2]} job {number - 1} step {job.step}"
                    for one in out
                    if one.state == "open"
                ]
            left -= of_job
            analyses += live.analysis_s
            for key, value in live.counts.items():
                counts[key] += value
        span = hours * share
        total, told = total + span, told + len(found)
        print(
            f"| {ranks} | {span:.1f} | {counts['steps']:,} | {counts['suspicions']} | {counts['not confirmed']} | "
            f"{len(found)} | "
            f"{len(found) / span:.3f} | {time.process_time() - began:.0f} | {analyses:.0f} |", flush=True
        )  # fmt: skip
        for line in found[:12]:
            print(f"<!-- {line} -->", flush=True)
    print(f"all: {told} findings in {total:.0f} h, {told / total:.4f} an hour")


def power(jobs: int, seed: int, ranks: Sequence[int], faults: Sequence[str], strengths: Sequence[float]) -> None:
    """Faulty jobs: what is told first, and when."""
    rows = defaultdict[tuple[str, float], list[tuple[bool, bool, float, bool]]](list)
    for fault in faults:
        for strength in strengths:
            for number in range(jobs):
                wide = ranks[number % len(ranks)]
                if fault == "host" and wide < 16:
                    wide = 32
                rows[fault, strength].append(_one(wide, seed * 100_000 + number, fault, strength))
            _print(f"{fault}, {100 * strength:.0f} %", rows[fault, strength])
    print()
    for name, least in (("at least 20 % of a step", 0.2), ("all", 0.0)):
        _print(name, [row for (_, strength), some in rows.items() for row in some if strength >= least])


def _one(ranks: int, seed: int, fault: str, strength: float) -> tuple[bool, bool, float, bool]:
    """(worth it, right place first, delay in steps, something told before)."""
    job, healthy = drawn(ranks, seed, fault, strength), drawn(ranks, seed)
    played = Played(job, max(round(1 / job.step_s), 1))
    live = Live(played.new, minute_s=float("inf"))
    first: LiveFinding | None = None
    early, delay, walls = False, float("inf"), list[float]()
    while job.step < job.since + AFTER:
        out = [one for one in live.look(played.now_ns) if one.state == "open"]
        early |= bool(out) and job.step <= job.since
        if out and job.step > job.since and first is None:
            first, delay = out[0], job.step - job.since
    for one in (drawn(ranks, seed, fault, strength), healthy):
        one.block(job.since)
        block = one.block(60)
        walls.append(float(block.done.max() - block.begin.min()))
    worth = 1 - walls[1] / walls[0] >= MATTERS
    return worth, first is not None and _right(first, job), delay, early


def _right(found: LiveFinding, job: LiveJob) -> bool:
    if job.fault == "link":
        ends = {int(end) for link in found.links for end in link.split(":")}
        return bool(found.links) and job.rank in ends and len(found.links) <= 2
    return set(found.ranks) == set(job.place) and not found.links


def _print(name: str, rows: Sequence[tuple[bool, bool, float, bool]]) -> None:
    worth = [row for row in rows if row[0]]
    told = [row for row in worth if np.isfinite(row[2])]
    delays = [row[2] for row in worth]
    right = sum(row[1] for row in worth)
    quantiles = np.quantile(delays, (0.5, 0.9), method="higher") if delays else (np.nan, np.nan)
    print(
        f"| {name} | {len(rows)} | {len(worth)} | {right} ({100 * right / max(len(worth), 1):.0f} %) | {len(told)} | "
        f"{quantiles[0]:.0f} | {quantiles[1]:.0f} | {sum(row[3] for row in rows)} |", flush=True
    )  # fmt: skip


def main() -> None:
    """Ask what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, help="hours")
    parser.add_argument("--minutes", action="store_true", help="have them looked at once a minute as well, which takes long")
    parser.add_argument("--power", type=int, help="jobs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--faults", nargs="+", default=list(FAULTS))
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS), help="shares of a step")
    asked = parser.parse_args()
    if asked.size:
        size(asked.size, asked.seed, MINUTE_S if asked.minutes else float("inf"))
    if asked.power:
        print("| fault | jobs | worth 3 % | right place first | told | delay, median | p90 | told before |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        power(asked.power, asked.seed, asked.ranks, asked.faults, asked.strengths)


if __name__ == "__main__":
    main()
