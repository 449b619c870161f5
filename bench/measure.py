"""Run a command and say what it cost: user CPU, system CPU, wall clock, peak memory of the process tree."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Cost:
    """What one run of a command cost."""

    user_s: float
    system_s: float
    wall_s: float
    peak_mb: float
    code: int


def run(command: Sequence[str], cwd: str | None = None) -> Cost:
    """Run a command to its end, output thrown away; compiled bytecode is kept, as after any installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    return Cost(usage.ru_utime, usage.ru_stime, wall, usage.ru_maxrss / 1024, process.returncode)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median and range: ``1.23 (1.20–1.31)``."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def load() -> str:
    """How busy the machine is: ``load averages 0.52 0.80 1.10 on 2 cores``."""
    return f"load averages {' '.join(f'{one:.2f}' for one in os.getloadavg())} on {os.cpu_count()} cores"
