"""Kill workers of a Dask cluster, and taut itself, in the middle of analyses, and compare the bytes of the results.

    python bench/cluster_kills.py --kills 50 --seed 1      (needs distributed)

A real cluster of two worker processes reads a job of 64 files. A worker is killed (SIGKILL) a random while after a random
number of files; every fifth time taut itself is killed instead, after a random number of files, and started again with
--resume. Every result must have the bytes of an analysis without a cluster, and nothing may be left: no task on the
scheduler, no folder.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import taut
from killed_workers import Cluster, analysed_with_kill, command, started, stopped, write_job

RANKS = 64
OWN_KILL_EVERY = 5


def killed_itself(cluster: Cluster, job: Path, place: Path, rng: random.Random) -> tuple[str, str]:
    """(what became of the killed command, what the one with --resume printed)."""
    run = place / "run"
    first = stopped(command(cluster, job, run, "-q"), run, rng.randrange(1, RANKS), lambda process: process.kill())
    fate = "killed" if first.returncode < 0 else "finished before it was killed"
    again = subprocess.run(command(cluster, job, run, "--resume", "-q"), capture_output=True, text=True, check=False)
    return fate, again.stdout.removesuffix("\n") if again.returncode == 0 else again.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    os.environ["TAUT_AUDIT"] = "off"
    rng, counts, began = random.Random(asked.seed), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as place, started() as cluster:
        job = write_job(Path(place) / "job", RANKS)
        here = taut.analyze(job).to_json()
        for number in range(asked.kills):
            if number % OWN_KILL_EVERY == OWN_KILL_EVERY - 1:
                with tempfile.TemporaryDirectory() as scratch:
                    fate, there = killed_itself(cluster, job, Path(scratch), rng)
                    left = [name for name in os.listdir(scratch) if name != "run"]
                what = f"taut {fate}, resumed"
            else:
                there, left, what = analysed_with_kill(cluster, job, RANKS, rng), [], "worker killed"
            tasks = cluster.tasks_left()
            good = there == here and not left and not tasks
            print(f"{number + 1}/{asked.kills} {what}", file=sys.stderr, flush=True)
            counts[f"{what}: {'same bytes' if good else f'BAD, left {left}, {tasks} tasks, {there[:200]}'}"] += 1
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    bad = sum(count for what, count in counts.items() if "BAD" in what)
    print(f"{asked.kills} kills, {bad} bad, {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
