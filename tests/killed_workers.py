"""A Dask cluster of processes on this machine, a job whose files take a while to read, and kills in the middle of it.

Needs distributed. ``bench/cluster_kills.py`` and ``test_cluster.py`` use it.
"""

from __future__ import annotations

import gzip
import io
import logging
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client, LocalCluster

import taut
from stores import step_times

PADDING_BYTES = 8 << 20
"""Inflated beside the steps of each rank, so that reading a file takes some hundredths of a second."""

LATEST_S = 0.1
"""How long after a file was read a worker may be killed: files are read in less."""


def write_job(folder: Path, ranks: int) -> Path:
    """A folder with an archive for each rank."""
    folder.mkdir()
    for rank in range(ranks):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in ((f"worker{rank}.csv", step_times(rank)), ("padding.bin", bytes(PADDING_BYTES))):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        (folder / f"worker{rank}.tar.gz").write_bytes(gzip.compress(out.getvalue(), 1, mtime=0))
    return folder


class Cluster:
    """A scheduler in this process, and workers in others; one that is killed is followed by another."""

    def __init__(self, cluster: LocalCluster, client: Client, workers: int) -> None:
        self._cluster, self._client = cluster, client
        self.on = str(cluster.scheduler_address).replace("tcp://", "dask://")
        self.workers = [self._started() for _ in range(workers)]

    def _started(self) -> subprocess.Popen[bytes]:
        address = self.on.removeprefix("dask://")
        command = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
        return subprocess.Popen(
            [*command, "--no-nanny", "--no-dashboard"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def wait(self) -> None:
        """Until all workers are there."""
        self._client.wait_for_workers(len(self.workers), timeout=120)

    def kill_one(self, rng: random.Random) -> None:
        """SIGKILL to one of the workers."""
        dead = self.workers.pop(rng.randrange(len(self.workers)))
        dead.kill()
        dead.wait()
        self.workers.append(self._started())

    def tasks_left(self) -> int:
        """Tasks that the scheduler still knows of, after it had a moment to forget them."""
        for _ in range(100):
            left = len(self._cluster.scheduler.tasks)
            if not left:
                break
            time.sleep(0.05)
        return left


@contextmanager
def started(workers: int = 2) -> Iterator[Cluster]:
    """A cluster of so many workers."""
    with (
        LocalCluster(n_workers=0, processes=True, dashboard_address=None, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        found = Cluster(cluster, client, workers)
        try:
            found.wait()
            yield found
        finally:
            for worker in found.workers:
                worker.kill()
                worker.wait()


def analysed_with_kill(cluster: Cluster, job: Path, ranks: int, rng: random.Random) -> str:
    """The result of an analysis during which a worker is killed, a random while after a random number of files."""
    cluster.wait()
    files, late_s = rng.randrange(ranks), rng.uniform(0, LATEST_S)
    after = f"reading {files}/{ranks}" if files else "reading"
    kill = threading.Timer(late_s, cluster.kill_one, [rng])

    def progress(stage: str) -> None:
        if stage == after:
            kill.start()

    result = taut.analyze(job, on=cluster.on, progress=progress).to_json()
    kill.join()
    return result


def command(cluster: Cluster, job: Path, run: Path, *more: str) -> list[str]:
    """``taut analyze`` on the cluster."""
    return [sys.executable, "-m", "taut", "analyze", str(job), "--on", cluster.on, "-o", str(run), "--json", *more]


def stopped(words: list[str], run: Path, files: int, how: Callable[[subprocess.Popen[str]], None]) -> subprocess.Popen[str]:
    """A command that is stopped when it has kept so many files, and has ended."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    kept = run.with_name(f".{run.name}.reading")
    while process.poll() is None and not (kept.exists() and len(os.listdir(kept)) >= files):
        time.sleep(0.005)
    how(process)
    process.wait(timeout=60)
    return process
