"""Progress logs without traces → attempts: one ends where a later line has an earlier step."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.reporting import FIRST_DATE_NS
from taut.core.tables import NULL, Table
from taut.read.contents import JobLog
from taut.read.jobs.job_words import table
from taut.read.jobs.training_log import job_of


def attempts(steps: Table, label: str) -> JobLog:
    """The attempts that one log shows; of several ranks the first is followed."""
    mine = steps.take(steps.rank == steps.rank[0])
    begins = np.flatnonzero(np.concatenate([[True], np.diff(mine.step) < 0]))
    ends = np.append(begins[1:], len(mine)) - 1
    timed = bool((mine.end_ns >= 0).all())
    dated = timed and bool((mine.end_ns >= FIRST_DATE_NS).all())
    at = _running(mine.end_ns) if timed and not dated else mine.end_ns
    count, none = len(begins), np.full(len(begins), NULL)
    started = np.where(mine.start_ns[begins] >= 0, mine.start_ns[begins], at[begins]) if dated else np.append(0, at[ends[:-1]])
    found = {
        "job": [job_of(label.removesuffix(".csv").removesuffix(".jsonl").removesuffix(".json"))] * count,
        "start_ns": started if timed else none,
        "end_ns": at[ends] if timed else none,
        "dated": [int(dated)] * count,
        "first_step": mine.step[begins],
        "first_step_ns": at[begins] if timed else none,
        "last_step": mine.step[ends],
        "last_step_ns": at[ends] if timed else none,
    }
    partial = [] if dated else [f"{label} has no dates" + ("" if timed else ": how long its attempts took is not known")]
    return JobLog(label, table(found, label), inside=True, partial=partial)


def _running(clock_ns: Ints) -> Ints:
    """A clock that begins anew with every attempt, as one that goes on."""
    back = np.concatenate([[0], np.where(np.diff(clock_ns) < 0, clock_ns[:-1], 0)])
    return np.asarray(clock_ns + np.cumsum(back), dtype=np.int64)
