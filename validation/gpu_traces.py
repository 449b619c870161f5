"""Traces of a GPU in many ways of working, recorded with CUDA events beside them, and what taut makes of them.

    python validation/gpu_traces.py record FOLDER     on a machine with a GPU: torch, JAX and what else is installed
    python validation/gpu_traces.py check FOLDER      anywhere with taut: one row a trace

Of every trace ``device`` is held to plain unions of the raw file (``device.py``), and step times to CUDA events between the
same profiled steps, or to the time of all steps by the host's clock for JAX. Nothing of taut is imported. A library that is
not installed costs its jobs only. The step in which the profiler writes its trace is left out of the events.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import device

GROUPS = {
    "gpu_torch_jobs": ("training", "serving", "streams", "compiled", "distributed"),
    "gpu_library_jobs": ("libraries",),
    "gpu_jax_jobs": ("jax_jobs",),
}
"""Modules and their groups of jobs; every group runs in a process of its own."""


def record(folder: Path) -> None:
    """Every group in a process of its own: profilers and allocators do not share one well."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, groups in GROUPS.items():
        for group in groups:
            done = subprocess.run([sys.executable, __file__, "group", str(folder), "--name", f"{module}.{group}"])
            print(f"{group}: exit {done.returncode}", flush=True)


def record_group(folder: Path, name: str) -> None:
    """The jobs of one group; a job that fails is told, and the others go on."""
    module, group = name.split(".")
    truth: dict[str, Any] = {}
    for job, run in getattr(importlib.import_module(module), group)().items():
        try:
            truth |= run(folder, job)
        except Exception:
            print(f"{job} failed:\n{traceback.format_exc(limit=3)}", flush=True)
    (folder / f"{group}.truth.json").write_text(json.dumps(truth))


def check(folder: Path, taut: str) -> int:
    """Print a row for every trace; 1 where a share or a step time of a marked step is off."""
    head = ("trace", "steps", "of", "taut, ms", "measured, ms", "off by", "busy %", "farthest share off by", "agrees")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    missed = 0
    truth = {name: one for file in sorted(folder.glob("*.truth.json")) for name, one in json.loads(file.read_text()).items()}
    for name, one in truth.items():
        if not (folder / name).exists():
            continue
        raws = device.load(folder / name)
        reported = device.taut(taut, [folder / name])
        if isinstance(raws, str) or isinstance(reported, str) or not raws:
            print(f"| {name} | – | – | – | – | – | – | – | {reported if isinstance(reported, str) else raws} |")
            missed += bool(raws) and isinstance(reported, str)
            continue
        (row,) = device.check_job(name, raws, reported)
        windows = reported["windows"]
        read, true, of = stepped(windows, one)
        off = max(map(abs, row.off.values()), default=0.0)
        missed += bool(row.misses)
        cells = [name, str(len(windows)), str(of), f"{read:.3f}", f"{true:.3f}", f"{read / true - 1:+.2%}"]
        print("| " + " | ".join([*cells, f"{row.reported['busy']:.1f}", f"{off:.2f}", "; ".join(row.misses) or "yes"]) + " |")
    print(f"\n{missed} of {len(truth)} traces with a miss")
    return int(missed > 0)


def stepped(windows: list[dict[str, Any]], truth: dict[str, Any]) -> tuple[float, float, int]:
    """(taut's mean step, the measured one, measured steps): of the same steps where they are numbered alike, else medians."""
    times, wide = truth["ms"], truth.get("wide", 1)
    lengths = {one["step"]: (one["end_ns"] - one["start_ns"]) / 1e6 for one in windows}
    if not truth["marked"]:
        return median(lengths.values()), median(times), len(times)
    # Behind the last step of a cycle the profiler writes its file.
    known = [step for step in lengths if step + wide < len(times) and step + wide - 1 not in truth.get("written", ())]
    known = known or [min(lengths)]
    return mean(lengths[step] for step in known), mean(sum(times[step : step + wide]) for step in known), len(times) // wide


def main() -> int:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "group", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", help="the group to record")
    parser.add_argument("--taut", default="taut", help="how to run taut")
    given = parser.parse_args()
    if given.what == "check":
        return check(given.folder, given.taut)
    run: Callable[[], None] = (
        (lambda: record(given.folder)) if given.what == "record" else (lambda: record_group(given.folder, given.name))
    )
    run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
