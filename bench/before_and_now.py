"""User CPU of this checkout over that of another: analyses, and appends to the audit log.

    python bench/before_and_now.py OTHER/src TRACES [--within 1.5] [--most 200]

Both take turns, and who begins changes from turn to turn. The ratio is the mean of those of single turns, with its 95 %
interval; turns are added until the interval is within so many percent. An analysis is a whole command that saves and records
its run; appends are 8,000 records in one open log, in memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APPENDS = """
import resource, sys
from pathlib import Path
from taut.audit.log import open_log
from taut.audit.record import Text
read = [{"name": Text(f"rank{k}.json"), "sha256": f"{k:064x}"} for k in range(2)]
inputs = [{"name": Text("traces"), "what": "folder", "sha256": None}]
with open_log(Path(sys.argv[1]), "1", create=True) as log:
    for k in range(8100):
        if k == 100:
            began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        log.append("verb", {"verb": "analyze", "options": {"quiet": True}, "inputs": inputs, "read": read, "code": 0})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - began)
"""


def analysis_s(src: Path, traces: Path, scratch: Path) -> float:
    """User CPU of one analysis."""
    command = [sys.executable, "-m", "taut", "analyze", str(traces), "-q", "-o", str(scratch / "run")]
    process = subprocess.Popen(command, cwd=scratch, env=_environment(src, scratch), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime


def appends_s(src: Path, _: Path, scratch: Path) -> float:
    """User CPU of many appends."""
    command = [sys.executable, "-c", APPENDS, str(scratch / "log.db")]
    return float(subprocess.run(command, env=_environment(src, scratch), capture_output=True, text=True, check=True).stdout)


def _environment(src: Path, scratch: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(src), "XDG_CONFIG_HOME": str(scratch / "configuration"), "TAUT_AUDIT": "on"}


def ratio(measure: Callable[[Path, Path, Path], float], other: Path, traces: Path, within: float, most: int) -> str:
    """The ratio with its interval, and how many turns it took."""
    ratios: list[float] = []
    while len(ratios) < most:
        sources = [other, ROOT / "src"][:: 1 if len(ratios) % 2 else -1]
        took = {}
        for src in sources:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
                took[src] = measure(src, traces, Path(scratch))
        ratios.append(took[ROOT / "src"] / took[other])
        if len(ratios) >= 8 and half(ratios) <= within / 100:
            break
    mean = statistics.mean(ratios)
    return f"{mean:.4f} ({mean - half(ratios):.4f}-{mean + half(ratios):.4f}), {len(ratios)} turns"


def half(ratios: list[float]) -> float:
    """Half of the 95 % interval of their mean."""
    return 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="src folder of the other checkout")
    parser.add_argument("traces", type=Path, help="what is analyzed")
    parser.add_argument("--within", type=float, default=1.5, help="percent")
    parser.add_argument("--most", type=int, default=200, help="turns at most")
    asked = parser.parse_args()
    for name, measure in (("appends", appends_s), ("analyze", analysis_s)):
        print(name, ratio(measure, asked.other.resolve(), asked.traces.resolve(), asked.within, asked.most), flush=True)


if __name__ == "__main__":
    main()
