"""Time and memory of ``taut.control`` on a million actions: ``python bench/control_speed.py [--actions 1000000]``.

Half are attempts at linked works (retries of two layers, some hedged), a quarter turns of shared knobs by two controllers
of a hundred pools, the rest preemptions and unlinked retries; demand is sampled each second.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import Any

import numpy as np

import taut
from taut.core.tables import Action, Member, Metric, Op, Table, Trace

SECOND = 1_000_000_000


def words(prefix: str, numbers: Any) -> Any:
    names = np.array([f"{prefix}{k}" for k in range(int(numbers.max()) + 1)], dtype=object)
    return names[numbers]


def made(n: int, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    span = 86_400 * SECOND
    kind = rng.choice(4, n, p=(0.5, 0.25, 0.125, 0.125))
    at = np.sort(rng.integers(0, span, n))
    work = rng.integers(0, n // 3, n)

    def pick(*options: str) -> Any:
        return np.array(options, dtype=object)[kind]

    controller = pick("client", "hpa", "engine", "sdk")
    controller[(kind == 1) & (rng.random(n) < 0.5)] = "operator"
    pools = words("pool", rng.integers(0, 100, n))
    target = np.where(kind == 1, pools, np.where(kind == 2, words("r", work % 50_000), pick("call", "", "", "api")))
    columns = {
        "time_ns": at, "layer": pick("retry", "autoscaler", "scheduler", "retry"), "controller": controller, "target": target,
        "knob": pick("attempt", "replicas", "preemption", "attempt"),
        "direction": np.where(kind == 1, rng.choice([-1, 1], n), np.where(kind == 2, -1, 0)),
        "work": np.where(kind == 0, words("w", work), np.where(kind == 2, words("r", work % 50_000), "")),
        "attempt": np.where(kind == 0, np.minimum(rng.geometric(0.8, n) - 1, 3), -1),
        "outcome": np.where(kind == 0, rng.choice(np.array(["kept", "failed"], dtype=object), n), ""),
        "busy_ns": np.where(kind == 0, rng.lognormal(17, 1, n).astype(np.int64), -1),
        "tokens_in": np.where(kind == 0, rng.integers(10, 5000, n), -1),
    }  # fmt: skip
    seconds = np.arange(0, 86_400)
    demand = {"time_ns": seconds * SECOND, "component": np.full(len(seconds), "all", object),
              "metric": np.full(len(seconds), "demand", object), "value": 5 + 3 * np.sin(seconds / 3000)}  # fmt: skip
    return Trace(ops=Table(Op, {}, 0), names=[], lanes=[], groups=[], members=Table(Member, {}, 0),
                 actions=Table(Action, columns, n), metrics=Table(Metric, demand))  # fmt: skip


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=1_000_000)
    given = parser.parse_args()
    trace = made(given.actions)
    before = peak_gib()
    begin, cpu = time.perf_counter(), time.process_time()
    found = taut.control(trace)
    wall, used = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{found['actions']:,} actions: {wall:.1f} s wall, {used:.1f} s CPU, peak {peak_gib():.2f} GiB ({before:.2f} before)")
    for relation in found["relations"]:
        print(f"  {relation['kind']}: {relation['because']}")


if __name__ == "__main__":
    sys.exit(main())
