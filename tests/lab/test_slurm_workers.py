"""Workers that dask-jobqueue submits to a real private Slurm read the files of an analysis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import taut
from stores import step_times
from taut.lab.control_slurm import NAMESPACES, REAPER, missing

pytest.importorskip("dask_jobqueue", exc_type=ImportError)
SCRIPT = Path(__file__).parents[1] / "slurm_workers.py"


def test_workers_that_slurm_runs_give_the_same_bytes(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(f"a Slurm cluster cannot run here: {why}")
    job = tmp_path / "job"
    job.mkdir()
    for rank in range(8):
        (job / f"worker{rank}.csv").write_bytes(step_times(rank))
    command = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, *REAPER, sys.executable, "-W", "ignore", str(SCRIPT), str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result, jobs = done.stdout.split("\0")
    assert result == taut.analyze(job).to_json()
    assert [line.split()[:2] for line in jobs.splitlines() if line] == [["dask-worker", "RUNNING"]] * 2
