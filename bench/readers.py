"""How fast each reader reads, in MB of inflated bytes per second of CPU: ``python bench/readers.py FILE… [--repeat 5]``.

Every file is opened as ``taut analyze`` would open it, in this process; the first reading, which may compile, is not counted.
"""

from __future__ import annotations

import argparse
import gzip
import time
from pathlib import Path

from taut.core.errors import InputRefused
from taut.read.load import load_file


def main() -> None:
    """Print one line a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    print("| file | MB | MB/s, median | spread | what it is |\n|---|---:|---:|---|---|")
    for path in given.files:
        data = path.read_bytes()
        size = len(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data) / 1e6
        parts = load_file(str(path)).parts
        rates = sorted(size / _seconds(path) for _ in range(given.repeat))
        found = parts[0].found if parts else None
        what = f"refused: {found.why}" if isinstance(found, InputRefused) else type(found).__module__.rpartition(".")[2]
        middle, low, high = rates[len(rates) // 2], rates[0], rates[-1]
        print(f"| `{path.name}` | {size:.1f} | {middle:.0f} | {low:.0f}–{high:.0f} | {what} |", flush=True)


def _seconds(path: Path) -> float:
    begin = time.process_time()
    load_file(str(path))
    return time.process_time() - begin


if __name__ == "__main__":
    main()
