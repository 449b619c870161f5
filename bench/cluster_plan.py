"""A large job on paper, from unit costs that are measured here: bytes, core-hours, memory, wall, money; and a check of it.

    python bench/cluster_plan.py [--ranks 16384] [--steps 1000] [--cores 10 100 1000] [--check] [--core-hour 0.05]

Reading costs what the demo's Kineto files cost an op; linking, replaying, blaming and all else what op tables of two sizes
cost, by their difference, their columns in files. Reading is spread over the cores (``--on``), the rest is one process, on all
cores of this machine: its wall clock is that of as many cores as there are here, its CPU does not depend on them. With
``--check`` a job of a hundredth of the ops is predicted, then analyzed, and both are printed.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import taut
from taut.core.tables import Trace
from taut.read.load import load_file

HERE = Path(__file__).parent
OPS = 100
"""Of a rank and step."""
SIZES = ((64, 300), (64, 900))
TRAVEL_GB_S = 1.0
"""A network of 10 Gbit/s into the machine where all meet."""


@dataclass(frozen=True)
class Run:
    """What one analysis took."""

    ops: int
    cpu_s: float
    wall_s: float
    memory: float
    """Bytes of memory at most, without pages of files."""
    disk: float
    """Bytes of columns in files at most."""


def analyzed(folder: Path, ranks: int, steps: int) -> Run:
    """Analyze a modelled job, its columns in files."""
    job = folder / "job.parquet"
    make = [sys.executable, str(HERE / "generate_job.py"), str(job), "--ranks", str(ranks), "--steps", str(steps)]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    how = ["--no-save", "--memory", "64", "-q", "--json", "--on", "local"]
    command = [sys.executable, "-m", "taut", "analyze", str(job), *how]
    memory = disk = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            memory, disk = max(memory, _anonymous(process.pid)), max(disk, _in_files(process.pid))
            time.sleep(0.05)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(ranks * steps * OPS, cpu, time.perf_counter() - began, memory, disk)


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def _in_files(pid: int) -> int:
    """Bytes of files without a name that a process has mapped."""
    try:
        lines = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith("(deleted)")]
    except OSError:
        return 0
    edges = [line.split()[0].split("-") for line in lines]
    return sum(int(end, 16) - int(begin, 16) for begin, end in edges)


@dataclass(frozen=True)
class Units:
    """What an op costs."""

    read_us: float
    file_bytes: float
    travel_bytes: float
    rest_us: float
    rest_wall_us: float
    memory_bytes: float
    disk_bytes: float
    base_s: float
    base_bytes: float

    def plan(self, ops: int, cores: int) -> tuple[float, float, float, float, float]:
        """(core-hours, wall in h, memory, disk, bytes that travel)."""
        reading, rest = ops * self.read_us * 1e-6, self.base_s + ops * self.rest_us * 1e-6
        travel = ops * self.travel_bytes
        wall = reading / cores + travel / (TRAVEL_GB_S * 1e9) + self.base_s + ops * self.rest_wall_us * 1e-6
        return (
            (reading + rest) / 3600, wall / 3600, self.base_bytes + ops * self.memory_bytes, ops * self.disk_bytes, travel,
        )  # fmt: skip


def measured(folder: Path) -> Units:
    """Unit costs on this machine."""
    files = sorted(Path(taut.__file__).parent.joinpath("demo").glob("rank*.json.gz"))
    for path in files:  # once before, so that code is loaded
        load_file(str(path))
    began = time.process_time()
    found = [part.found for path in files for part in load_file(str(path)).parts if isinstance(part.found, Trace)]
    spent, ops = time.process_time() - began, sum(len(trace.ops) for trace in found)
    travel = sum(len(pickle.dumps(trace.ops)) for trace in found)
    small, large = (analyzed(folder, *size) for size in SIZES)
    more = large.ops - small.ops
    cpu_us = 1e6 * (large.cpu_s - small.cpu_s) / more
    return Units(
        read_us=1e6 * spent / ops, file_bytes=sum(path.stat().st_size for path in files) / ops, travel_bytes=travel / ops,
        rest_us=cpu_us, rest_wall_us=1e6 * (large.wall_s - small.wall_s) / more,
        memory_bytes=(large.memory - small.memory) / more, disk_bytes=(large.disk - small.disk) / more,
        base_s=max(small.cpu_s - small.ops * cpu_us * 1e-6, 0.0),
        base_bytes=max(small.memory - small.ops * (large.memory - small.memory) / more, 0.0),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--core-hour", type=float, default=0.05, help="price of a core for an hour, USD (assumed)")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        analyzed(folder, *SIZES[0])  # code is compiled
        unit = measured(folder)
        print(
            f"an op: {unit.file_bytes:.0f} bytes of Kineto (gz), {unit.read_us:.2f} µs to read, {unit.travel_bytes:.0f} bytes "
            f"that travel; then {unit.rest_us:.2f} µs of CPU, {unit.rest_wall_us:.2f} µs of wall, "
            f"{unit.memory_bytes:.0f} bytes of memory, {unit.disk_bytes:.0f} of disk\n"
        )
        ops = asked.ranks * asked.steps * OPS
        print("| cores | ops, 10⁹ | traces, GB | core-hours | wall, h | travels, GB | memory where all meet, GiB | "
              "disk there, GB | USD |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|")  # fmt: skip
        for cores in asked.cores:
            hours, wall, memory, disk, travel = unit.plan(ops, cores)
            print(
                f"| {cores:,} | {ops / 1e9:.2f} | {ops * unit.file_bytes / 1e9:.0f} | {hours:.1f} | {wall:.2f} "
                f"| {travel / 1e9:.0f} | {memory / 2**30:.0f} | {disk / 1e9:.0f} | {hours * asked.core_hour:.2f} |"
            )
        if asked.check:
            steps = max(ops // 100 // (1024 * OPS), 1)
            run = analyzed(folder, 1024, steps)
            said = unit.base_s + run.ops * unit.rest_us * 1e-6
            memory, disk = unit.base_bytes + run.ops * unit.memory_bytes, run.ops * unit.disk_bytes
            print(
                f"\ncheck, {run.ops / 1e6:.1f} million ops (1,024 ranks × {steps} steps), said and seen: CPU {said:.0f} and "
                f"{run.cpu_s:.0f} s, memory {memory / 2**30:.2f} and {run.memory / 2**30:.2f} GiB, disk {disk / 1e9:.1f} and "
                f"{run.disk / 1e9:.1f} GB; wall {run.wall_s:.0f} s"
            )


if __name__ == "__main__":
    main()
