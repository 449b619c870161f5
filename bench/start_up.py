"""Whole commands of two checkouts by turns: user CPU, peak memory and modules imported, median and range of the rounds.

    python bench/start_up.py OTHER FILE… [--rounds 9]

OTHER is the ``src`` folder of another commit (``git archive COMMIT src | tar -x -C FOLDER``). Each round runs ``taut --help``
and ``taut analyze FILE`` of both, kernels and bytecode warm.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from measure import Cost, load, run, spread

SOURCE = str(Path(__file__).parents[1] / "src")


def cost_of(source: str, command: list[str]) -> Cost:
    """What a command of the checkout with this source costs."""
    os.environ["PYTHONPATH"] = source
    cost = run([sys.executable, "-m", "taut", *command])
    assert cost.code == 0, (source, command)
    return cost


def modules(source: str, command: list[str]) -> int:
    """How many modules the command imports."""
    environment = {**os.environ, "PYTHONPATH": source}
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "taut", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stderr.count("import time:") - 1


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the src folder of another commit")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    os.environ["TAUT_AUDIT"] = "off"
    print(load() + "\n")
    print("| command | other: modules | user CPU s | peak MB | this: modules | user CPU s | peak MB | CPU, this to other |")
    print("|---|---:|---|---|---:|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        commands = {"--help": ["--help"]}
        commands |= {path.name: ["analyze", str(path), "-o", f"{scratch}/run"] for path in args.files}
        for name, command in commands.items():
            sources = args.other, SOURCE
            for source in sources:
                cost_of(source, command)
            found: tuple[list[Cost], list[Cost]] = ([], [])
            for _ in range(args.rounds):
                for source, costs in zip(sources, found, strict=True):
                    costs.append(cost_of(source, command))
            cells = []
            for source, costs in zip(sources, found, strict=True):
                peak = spread([c.peak_mb for c in costs], 0)
                cells += [str(modules(source, command)), spread([c.user_s for c in costs]), peak]
            ratio = median(c.user_s for c in found[1]) / median(c.user_s for c in found[0])
            print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)
    print("\n" + load())


if __name__ == "__main__":
    main()
