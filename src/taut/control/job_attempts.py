"""Attempts of jobs as arrays, where a scheduler's log lies beside the actions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from taut.core.array_types import Codes, Ints, Mask, Texts
from taut.core.ids import word_ids
from taut.core.tables import Table

SECOND = 1_000_000_000
MADE_WAY = ("", "preempted", "pending", "running", "cancelled", "node failed")
"""Outcomes of an attempt that did not run to its own end."""
_TASK = re.compile(r"(\d{1,18})_\d{1,18}(?:\(\d{1,18}\))?")


@dataclass(frozen=True)
class Jobs:
    """Attempts in order of job and time."""

    job: Codes
    names: list[str]
    start_ns: Ints
    end_ns: Ints
    outcome: Texts
    accelerators: Ints
    """-1 where they are not counted, or something else is."""
    last: Mask
    """The attempt was its job's last."""
    rows: Ints
    """Rows of the table."""

    @cached_property
    def array(self) -> Codes:
        """A number per attempt that all tasks of an array of jobs share."""
        names = [task[1] if (task := _TASK.fullmatch(name)) else name for name in self.names]
        return word_ids(np.array(names, dtype=np.object_))[0][self.job] if names else self.job

    @cached_property
    def through(self) -> Mask:
        """Per job: its last attempt is known to have run to an end of its own: done, failed, or at its time limit."""
        out = np.zeros(len(self.names), dtype=np.bool_)
        out[self.job[self.last]] = ~np.isin(self.outcome[self.last], MADE_WAY)
        return out

    @cached_property
    def completed(self) -> Mask:
        """Per job: its last attempt is known to have completed."""
        out = np.zeros(len(self.names), dtype=np.bool_)
        out[self.job[self.last]] = self.outcome[self.last] == "completed"
        return out

    @property
    def known(self) -> Mask:
        """Attempts whose begin and end are recorded."""
        return (self.start_ns >= 0) & (self.end_ns >= self.start_ns)

    @property
    def took_ns(self) -> Ints:
        """How long each took; meaningless where it is not known."""
        return self.end_ns - self.start_ns

    @property
    def restarted(self) -> int:
        """Jobs of more than one attempt."""
        return int((np.bincount(self.job) > 1).sum())

    @property
    def counted(self) -> bool:
        """Every attempt's accelerators are recorded."""
        return bool((self.accelerators >= 0).all() and (self.accelerators > 0).any())

    def held_ns(self, rows: Ints) -> int:
        """Time that attempts held accelerators, or where these are not counted, time alone."""
        weight = self.accelerators[rows] if self.counted else 1
        return int((self.took_ns[rows] * weight)[self.known[rows]].sum())

    def rank_ns(self, rows: Ints) -> int | None:
        """Time × accelerators of some attempts; None where these are not counted."""
        held = self.accelerators[rows]
        return (
            int((self.took_ns[rows] * held)[self.known[rows]].sum()) if len(rows) and (held >= 0).all() and held.any() else None
        )

    def ended_at(self, name: str, times_ns: Ints) -> Ints:
        """Attempts of a job that ended when something was done, to the second that logs may differ."""
        if name not in self.names or not len(times_ns):
            return np.zeros(0, dtype=np.int64)
        mine = np.flatnonzero((self.job == self.names.index(name)) & self.known)
        times = np.sort(times_ns)
        near = np.searchsorted(times, self.end_ns[mine] - SECOND) < np.searchsorted(times, self.end_ns[mine] + SECOND, "right")
        return mine[near]

    def gaps_ns(self) -> Ints:
        """Time from the end of an attempt to the begin of the next of its job."""
        following = np.flatnonzero(~self.last)
        gap = self.start_ns[following + 1] - self.end_ns[following]
        return gap[self.known[following] & (self.start_ns[following + 1] >= 0) & (gap >= 0)]


def jobs(attempts: Table) -> Jobs:
    """The attempts of a trace; a job that waits, or was cancelled while it did, was not tried again."""
    job, names = word_ids(attempts.job)
    waited = (attempts.start_ns < 0) & np.isin(attempts.outcome, ("pending", "cancelled"))
    order = np.lexsort((attempts.attempt, job))
    order = order[~waited[order] | (attempts.attempt[order] <= 1)]
    job = job[order]
    last = np.append(np.diff(job) != 0, True)[: len(job)]
    held = np.where(attempts.unit == "accelerator", attempts.accelerators, -1)[order].astype(np.int64)
    return Jobs(job, names, attempts.start_ns[order], attempts.end_ns[order], attempts.outcome[order], held, last, order)
