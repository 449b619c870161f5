"""Workers of Dask that a private Slurm runs: an analysis on them, in namespaces of its own (``taut.lab.control_slurm``).

    setpriv --pdeathsig KILL unshare --net --pid --mount --uts --fork --kill-child --mount-proc python slurm_workers.py JOB

Prints what the analysis gives as JSON and, behind a zero byte, the jobs that Slurm ran. Needs root, Slurm, munge and
dask-jobqueue.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from taut.lab import control_cluster
from taut.lab.control_slurm import Plan


def main(job: Path) -> None:
    """Start Slurm, have it run two workers, and analyse."""
    control_cluster._enclose()
    control_cluster._start(Plan(name="workers"))
    from dask_jobqueue import SLURMCluster

    import taut

    with SLURMCluster(
        queue=control_cluster.LOW, cores=1, processes=1, memory="1GB", job_mem="90MB", walltime="00:10:00",
        scheduler_options={"host": control_cluster.ADDRESS, "dashboard_address": None}, log_directory=str(job.parent / "logs"),
    ) as cluster:  # fmt: skip
        cluster.scale(jobs=2)
        cluster.wait_for_workers(2, timeout=120)
        print(taut.analyze(job, on=cluster.scheduler_address.replace("tcp://", "dask://")).to_json(), end="\0")
        print(subprocess.run(["squeue", "-h", "-o", "%j %T %N"], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
