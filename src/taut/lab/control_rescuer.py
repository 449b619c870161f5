"""A rescuer of Slurm jobs, as sites write them: what waits for its begin time is started now. A process of its own.

It keeps a log of what it did, and tells the same to whoever started it: the job, and how often that was requeued before.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

FIELDS = "JobID:20,StateCompact:8,Reason:40,Partition:20,RestartCnt:10"
"""Of ``squeue``, in columns without blanks."""
LOW, HIGH = "low", "high"


def queue() -> Iterator[list[str]]:
    """Job, state, reason, partition and requeues of all jobs that wait or run."""
    listing = subprocess.run(["squeue", "-h", "-O", FIELDS], capture_output=True, text=True, check=False).stdout
    return (line.split() for line in listing.splitlines() if len(line.split()) == 5)


def watch(log: Path, poll_s: float, quiet_s: float) -> None:
    """Until it is killed: start every low job that waits for its begin time, once for each time it came to wait."""
    rescued: set[tuple[str, str]] = set()
    busy = time.monotonic() - quiet_s
    while True:
        jobs = list(queue())
        if any(partition == HIGH for _, _, _, partition, _ in jobs):
            busy = time.monotonic()
        waiting = [
            (job, times)
            for job, state, why, partition, times in jobs
            if (state, why, partition) == ("PD", "BeginTime", LOW) and (job, times) not in rescued
        ]
        if quiet_s and time.monotonic() - busy < quiet_s:
            waiting = []
        for job, times in waiting:
            command = ["scontrol", "update", f"jobid={job}", "StartTime=now"]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                continue
            rescued.add((job, times))
            with log.open("a") as notes:
                notes.write(f"{datetime.now().isoformat(timespec='milliseconds')} rescuer StartTime=now {job}\n")
            print(job, times, flush=True)
        time.sleep(poll_s)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
