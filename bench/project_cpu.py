"""CPU seconds (user and system) of ``taut project``: every shipped scenario, and gpt-175b at eight scales.

``python bench/project_cpu.py [NAME ...] [--times 3]``: each is a process of its own, after one that fills the caches of
compiled code; the least of several, because other work on a machine only adds.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys

from taut.read.scenario_file import listed

SCALES = "1536,3072,6144,12288,24576,49152,98304,131040"
EIGHT = f"gpt-175b --ranks {SCALES}"


def cpu_s(words: list[str]) -> float:
    """User and system seconds of one ``taut project``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # As installed: bytecode is kept.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "taut", "project", *words, "--json", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=kept)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """One row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    print("| taut project | CPU, s |\n|---|---|")
    for asked in given.names or [*(one["name"] for one in listed()), EIGHT]:
        words = (EIGHT if asked == "eight" else asked).split()
        cpu_s(words)
        print(f"| {asked} | {min(cpu_s(words) for _ in range(given.times)):.2f} |", flush=True)


if __name__ == "__main__":
    main()
