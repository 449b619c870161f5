"""How fast this checkout reads beside another: ``python bench/reader_turns.py PYTHON FILE… [--rounds 15] [--fresh]``.

PYTHON is the interpreter of an environment with the other checkout. Both read each file by turns, so that both meet the
same moods of the machine. CPU of user and system; the ratio is the median of those of single turns, above 1 where this
checkout is quicker. A process reads the file once before it counts, or with ``--fresh`` another small trace only: then every
reading has a process of its own, as ``taut analyze`` has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORKER = """
import sys, time
from taut.read.load import load_file
for path in map(str.strip, sys.stdin):
    begin = time.process_time()
    load_file(path)
    print(time.process_time() - begin, flush=True)
"""
EVENTS = [
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1, "tid": 1, "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 1, "args": {"correlation": 1, "device": 0, "stream": 7}},
]


class Reader:
    """A process that reads files and tells how long each took."""

    def __init__(self, python: str) -> None:
        # A path to this checkout would have the other environment read with this one.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or python == sys.executable}
        # As the command has it: a thread of the library under numpy would spin for 20 ms after it is loaded, whoever reads.
        env["OPENBLAS_NUM_THREADS"] = "1"
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([python, "-c", WORKER], stdin=pipe, stdout=pipe, text=True, env=env)

    def seconds(self, path: Path) -> float:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a process without pipes")
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()


def turns(pythons: tuple[str, str], path: Path, rounds: int, first: Path | None) -> list[tuple[float, float]]:
    """Seconds of the other checkout and of this one, turn by turn; ``first`` is read before by processes that read once."""
    kept = None if first else [Reader(python) for python in pythons]
    for reader in kept or ():
        reader.seconds(path)
    found = []
    for turn in range(rounds):
        took = [0.0, 0.0]
        for k in (0, 1) if turn % 2 == 0 else (1, 0):
            reader = kept[k] if kept else Reader(pythons[k])
            if first:
                reader.seconds(first)
            took[k] = reader.seconds(path)
            if first:
                reader.end()
        found.append((took[0], took[1]))
    for reader in kept or ():
        reader.end()
    return found


def main() -> None:
    """Print one line a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    print("| file | other, ms | this, ms | ratio | middle half |\n|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.json")
        small.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
        for path in given.files:
            took = turns((given.python, sys.executable), path, given.rounds, small if given.fresh else None)
            other, this = (statistics.median(column) * 1e3 for column in zip(*took, strict=True))
            low, middle, high = statistics.quantiles((a / b for a, b in took), n=4)
            print(f"| `{path.name}` | {other:.0f} | {this:.0f} | {middle:.2f} | {low:.2f}–{high:.2f} |", flush=True)


if __name__ == "__main__":
    main()
