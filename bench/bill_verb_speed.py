"""How fast `taut bill` is as people run it: files on disk, one process; seconds of CPU and of the clock, peak memory.

python bench/bill_verb_speed.py [--jobs 100000] [--rows 1000000] [--keep FOLDER]

Makes a month of hosts with eight accelerators (`sacct --duplicates -P`: jobs on one to sixteen hosts, every tenth of which lost
a node and began again) and a FOCUS 1.2 bill of hourly rows as CSV, at a quarter, a half and all, and bills each once.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bill_speed import BEGIN, HOURS, charges
from pyarrow import csv

MONTH_S, BEGIN_S = HOURS * 3600, BEGIN // 10**9
TIMES = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
HEADER = "JobID|JobName|Account|State|Submit|Start|End|ExitCode|AllocTRES|NodeList"


def iso(second: int) -> str:
    return datetime.fromtimestamp(BEGIN_S + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def placed(jobs: int, hosts: int, rng: np.random.Generator) -> Iterator[tuple[int, int, int]]:
    """(turn, first host, hosts) of every job: side by side until the hosts are full, then in the next turn."""
    turn, at = 0, 0
    for wide in np.minimum(2 ** rng.integers(0, 5, jobs), hosts).tolist():
        if at + wide > hosts:
            turn, at = turn + 1, 0
        yield turn, at, wide
        at += wide


def sacct(path: Path, jobs: int, hosts: int) -> None:
    """The log of all jobs."""
    rng = np.random.default_rng(1)
    places = list(placed(jobs, hosts, rng))
    turn_s = MONTH_S // (places[-1][0] + 1)
    with path.open("w", encoding="utf-8") as out:
        print(HEADER, file=out)
        for number, (turn, at, wide) in enumerate(places):
            begin, end = turn * turn_s, turn * turn_s + turn_s * 9 // 10
            failed = begin + turn_s // 2
            tries = [("NODE_FAIL", begin, failed), ("COMPLETED", failed + 60, end)] if number % 10 == 0 else [
                ("COMPLETED", begin, end)]  # fmt: skip
            for state, start, stop in tries:
                nodes = f"gpu-[{at:04}-{at + wide - 1:04}]" if wide > 1 else f"gpu-{at:04}"
                times = f"{iso(max(begin - 60, 0))}|{iso(start)}|{iso(stop)}"
                print(f"{number}|train|team{number % 50}|{state}|{times}|0:0|gres/gpu={8 * wide}|{nodes}", file=out)


def focus(path: Path, rows: int, hosts: int) -> None:
    """The bill."""
    table = charges(rows, hosts, np.random.default_rng(2)).table.drop_columns(["row", "file"])
    columns = {name: table[name] for name in table.column_names if table[name].null_count < len(table)}
    for name in TIMES:
        columns[name] = pc.strftime(columns[name].cast(pa.timestamp("us")).cast(pa.timestamp("s")), "%Y-%m-%dT%H:%M:%SZ")
    texts = {name: column.cast(pa.string()) for name, column in columns.items()}
    csv.write_csv(pa.table(texts), path)


def measure(jobs: int, rows: int, folder: Path) -> None:
    """Make the files, bill them once, and print a row of the table."""
    hosts = rows // HOURS - 1
    log, bill = folder / f"sacct-{jobs}.txt", folder / f"bill-{jobs}.csv"
    sacct(log, jobs, hosts)
    focus(bill, (hosts + 1) * HOURS, hosts)
    begin = time.monotonic()
    with (folder / "out.json").open("w") as out:
        subprocess.run([sys.executable, "-m", "taut", "bill", log, "--focus", bill, "--json"], stdout=out, check=True)
    wall, used = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    print(f"| {jobs:,} | {(hosts + 1) * HOURS:,} | {used.ru_utime + used.ru_stime:.1f} | {wall:.1f} | "
          f"{used.ru_maxrss / 2**20:.2f} | {found['accrual']['closes']} | {len(found['defects'])} |", flush=True)  # fmt: skip


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--keep", type=Path, help="where the files are left")
    options.add_argument("--once", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        folder = given.keep or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        if given.once:
            measure(given.jobs, given.rows, folder)
            return
        print(
            "| jobs | charges | s of CPU | s | GiB at most | closes | defects |\n|---:|---:|---:|---:|---:|---|---:|",
            flush=True,
        )
        for part in (4, 2, 1):
            size = ["--jobs", str(given.jobs // part), "--rows", str(given.rows // part), "--keep", str(folder)]
            subprocess.run([sys.executable, __file__, "--once", *size], check=True)


if __name__ == "__main__":
    main()
