"""A job larger than memory on a Dask cluster of this machine, and the bytes of its result beside those without one.

    python bench/on_cluster.py [--ranks 1024] [--steps 500] [--gib 4]      (needs distributed; root, for a control group)

A modelled job (bench/generate_job.py), a Parquet file for each rank. Two workers read them; ``taut analyze --on dask://…`` runs
in a control group of so much memory, if one can be made (its peak has pages of files, which the system may let go), then the
same job without a cluster and without the limit. Exits 1 if the results differ, or if a worker took more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from generate_job import table
from measure import load
from pyarrow import parquet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from killed_workers import started

GROUPS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))
"""Where control groups lie, and what sets their limit."""
OPS_OF_A_STEP = 100


def written(folder: Path, ranks: int, steps: int) -> None:
    """The job, a file for each rank."""
    every = table(ranks, steps, 37 % ranks, 1)
    for rank in range(ranks):
        parquet.write_table(every.take(np.arange(rank, len(every), ranks)), folder / f"rank{rank}.parquet", compression="zstd")


@contextmanager
def control_group(most: int) -> Iterator[Path | None]:
    """A control group of so many bytes; None where none can be made."""
    for root, limit in GROUPS:
        group = root / f"taut-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(most))
        except OSError:
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


def analyzed(job: Path, out: Path, group: Path | None, more: Sequence[str]) -> str:
    """A row of the table about an analysis, whose JSON goes to a file: wall, user and system CPU, peak memory."""

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-m", "taut", "analyze", str(job), "--no-save", "-q", "--json", *more]
    began = time.perf_counter()
    with out.open("wb") as sink, subprocess.Popen(command, stdout=sink, preexec_fn=enter) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall, peak = time.perf_counter() - began, usage.ru_maxrss / (1 << 20)
    ended = "" if process.returncode == 0 else f", exit {process.returncode}"
    return f"{wall:.0f} | {usage.ru_utime:.0f}, {usage.ru_stime:.0f} | {peak:.2f}{ended}"


def peak_gib(pid: int) -> float:
    """The most memory that a process had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / (1 << 20)


def main() -> None:
    """Write the job, analyze it both ways, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--gib", type=float, default=4.0)
    args = parser.parse_args()
    most = int(args.gib * (1 << 30))
    with tempfile.TemporaryDirectory() as folder, started() as cluster, control_group(most) as group:
        job, place = Path(folder) / "job", Path(folder)
        job.mkdir()
        written(job, args.ranks, args.steps)
        print(f"{args.ranks * args.steps * OPS_OF_A_STEP / 1e6:.1f} million ops, {args.ranks} files; {load()}\n")
        print("| | wall s | user, system CPU s | peak GiB |\n|---|---:|---:|---:|")
        within = f"within {args.gib:g} GiB" if group is not None else "no control group here"
        row = analyzed(job, place / "there", group, ["--on", cluster.on])
        print(f"| two workers, taut {within} | {row} |", flush=True)
        workers = [peak_gib(process.pid) for process in cluster.workers]
        row = analyzed(job, place / "here", None, [])
        print(f"| without a cluster, all memory | {row} |", flush=True)
        same = (place / "there").read_bytes() == (place / "here").read_bytes()
    told = "the same bytes" if same else "OTHER BYTES"
    print(f"\nworkers took {' and '.join(f'{one:.2f}' for one in workers)} GiB; {told}; {load()}")
    sys.exit(0 if same and max(workers) <= args.gib else 1)


if __name__ == "__main__":
    main()
