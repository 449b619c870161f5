"""Kill writers of an audit log at random moments, and at every system call, and count what is lost.

    python bench/audit_kills.py --kills 1000 --seed 1

Two writers append to one log, one record after the other, and say so after each; both are killed (SIGKILL) after a random
while. Afterwards the log must verify, hold every record that was acknowledged, at the place that was told, and take another.
Then one append is killed before each of its system calls (tests/killed_writer.py).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import rfc8785  # noqa: F401  (before the fork: the writers are to write, not to import)

from taut.audit.log import open_log
from taut.audit.verify import verify

STEPPED = Path(__file__).resolve().parents[1] / "tests" / "killed_writer.py"
NEW_LOG_EVERY = 50
"""A log starts anew after so many kills, so that beginnings are hit too and verifying stays quick."""


def writer(path: Path, mark: str) -> tuple[int, int]:
    """A child that appends until it is killed; (its process, where it says what it has appended)."""
    reader, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        return child, reader
    number = 0
    while True:
        with open_log(path, "1", create=True) as log:
            index = log.append("verb", {"mark": f"{mark}-{number}", "long": "x" * random.randrange(3000)}).index
        os.write(told, f"{index} {mark}-{number}\n".encode())
        number += 1


def killed(path: Path, mark: str, after_s: float) -> dict[int, str]:
    """Records that two writers acknowledged before they were killed."""
    writers = [writer(path, f"{mark}{name}") for name in "ab"]
    time.sleep(after_s)
    for child, _ in writers:
        os.kill(child, signal.SIGKILL)
    told = {}
    for child, reader in writers:
        os.waitpid(child, 0)
        with os.fdopen(reader) as stream:
            told.update({int(index): name for index, name in (line.split() for line in stream.read().splitlines())})
    return told


def judge(path: Path, told: dict[int, str], counts: Counter[str]) -> None:
    if path.exists() and path.stat().st_size:
        counts["hot journals"] += path.with_name(f"{path.name}-journal").exists()
        with open_log(path, "1", create=True) as log:
            counts["appended after"] += log.append("verb", {"next": True}).index > max(told, default=-1)
            there = {entry.index: entry.record.details.get("mark") for entry in log.entries() if entry.record is not None}
        counts["damaged"] += not verify(path).ok
        counts["lost"] += sum(there.get(index) != mark for index, mark in told.items())
    else:
        counts["killed before the first"] += 1
        counts["lost"] += len(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng, counts = random.Random(asked.seed), Counter({"lost": 0, "damaged": 0})
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=".") as place:
        told: dict[int, str] = {}
        for k in range(asked.kills):
            path = Path(place) / f"{k // NEW_LOG_EVERY}.db"
            if k % NEW_LOG_EVERY == 0:
                told = {}
            new = killed(path, f"{k}", rng.uniform(0, 0.04))
            counts["acknowledged"] += len(new)
            told |= new
            judge(path, told, counts)
    print(f"{asked.kills} kills of two writers, seed {asked.seed}: {dict(counts)}; {time.monotonic() - began:.0f} s")
    with tempfile.TemporaryDirectory(dir=".") as place:
        print("at every system call:", subprocess.check_output([sys.executable, STEPPED, place], text=True).strip())


if __name__ == "__main__":
    main()
