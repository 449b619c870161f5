"""What a collector sees now, beside what it closed in the last day and the runs of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from taut.result.types import LiveFinding, LiveState, WatchedJob
from taut.result.view_types import LiveFolder, LiveJob, RunCard

OLD_NS = 10_000_000_000
"""A collector writes once a second; what is older than this is not what is seen now."""
MOST_CLOSED, MOST_RUNS = 100, 5


def live_folder(
    folder: Path, state: LiveState | None, closed: Sequence[LiveFinding], runs: Sequence[RunCard], now_ns: int
) -> LiveFolder:
    """A folder of a collector; ``closed`` are the findings of the last day, ``runs`` those in the list, the newest first."""
    jobs = [] if state is None else sorted(state.jobs, key=lambda job: (not job.findings, job.job))
    return LiveFolder(
        folder=str(folder),
        at_ns=None if state is None else state.at_ns,
        since_ns=None if state is None else state.since_ns,
        old=state is None or now_ns - state.at_ns > OLD_NS,
        jobs=[_job(job, runs) for job in jobs],
        closed=list(closed[:MOST_CLOSED]),
        more_closed=len(closed) > MOST_CLOSED,
        counts={} if state is None else state.counts,
    )


def _job(job: WatchedJob, runs: Sequence[RunCard]) -> LiveJob:
    """The job and its runs, captures among them."""
    mine = (run for run in runs if run.name == job.job or run.name.startswith(f"{job.job}-step-"))
    return LiveJob(watched=job, runs=list(islice(mine, MOST_RUNS)))
