"""Who ended an attempt of a job, so that another had to begin: a controller, where its log or the scheduler's tells.

A preemption, a requeue, a time limit, an eviction are decisions; so is a launcher's restart because a timeout ran out. A
failed node is none, nor is what a person cancelled.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict

import numpy as np

from taut.core.array_types import Texts
from taut.core.tables import NULL, Table

NEAR_NS = 1_000_000_000
"""Logs of one decision differ by less than this."""
_FAULT = re.compile(r"failed node|node.?fail|node.?lost|not.?ready|unreachable", re.IGNORECASE)
_PERSON = re.compile(r"user|uid \d+")
_LIMIT = re.compile(r"time ?out|time limit", re.IGNORECASE)


def ended_by(attempts: Table, actions: Table) -> Texts:
    """Of each attempt the controller that ended it (empty where the log does not name it); None where nobody decided it."""
    out = np.full(len(attempts), None, dtype=object)
    against, restarts = _decisions(actions)
    job, start = [*attempts.job.tolist(), None], [*attempts.start_ns.tolist(), NULL]
    for row, (end, outcome) in enumerate(zip(attempts.end_ns.tolist(), attempts.outcome.tolist(), strict=True)):
        if outcome == "completed" or end < 0:
            continue
        mine = against.get(job[row], [])
        near = mine[bisect_left(mine, (end - NEAR_NS, "")) : bisect_left(mine, (end + NEAR_NS + 1, ""))]
        if near:
            out[row] = min(near, key=lambda one: abs(one[0] - end))[1]
        elif job[row + 1] == job[row]:
            out[row] = restarts.get((job[row], start[row + 1]))
    return out


def _decisions(actions: Table) -> tuple[dict[str, list[tuple[int, str]]], dict[tuple[str, int], str]]:
    """Decisions against jobs as (time, controller), and restarts because of a limit by job and time."""
    against: dict[str, list[tuple[int, str]]] = defaultdict(list)
    restarts: dict[tuple[str, int], str] = {}
    keys = ("work", "target", "time_ns", "controller", "attempt", "direction", "trigger")
    for work, target, at, who, attempt, way, why in zip(*(actions.columns[key].tolist() for key in keys), strict=True):
        # A restart names its own trigger; what acts against a job has a direction below zero.
        if attempt > 0 and _LIMIT.match(why):
            restarts[work or target, int(at)] = who
        elif attempt < 0 and way < 0 and not _FAULT.search(why) and not _PERSON.fullmatch(who):
            against[work or target].append((int(at), who))
    return {job: sorted(times) for job, times in against.items()}, restarts
