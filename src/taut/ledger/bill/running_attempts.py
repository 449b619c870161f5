"""Attempts whose logs tell no end: those that still run hold their accelerators up to the last moment that is known of."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Mask
from taut.core.reporting import dated
from taut.core.tables import Table

RUNS = ("running", "")
NEVER_RAN = ("pending",)


class Ended(Struct, frozen=True):
    """Attempts that all have an end, and what was decided on the way."""

    attempts: Table
    notes: list[str]


def ended(attempts: Table, name: str, until_ns: int | None) -> Ended:
    """Attempts with an end for those that run: ``until_ns``, where a bill tells, else the last moment that the logs name."""
    open_ = (attempts.start_ns >= 0) & (attempts.end_ns < 0) & ~np.isin(attempts.outcome.astype(np.str_), NEVER_RAN)
    runs = open_ & np.isin(attempts.outcome.astype(np.str_), RUNS) & (attempts.dated == 1)
    if not open_.any():
        return Ended(attempts, [])
    times = attempts.dated == 1
    last = max(int(column[times].max(initial=-1)) for column in (attempts.start_ns, attempts.end_ns, attempts.submit_ns))
    at = last if until_ns is None else until_ns
    notes = []
    if runs.any():
        who = "of the bill" if until_ns is not None else "that the logs name"
        ran = f"{_jobs(attempts, runs)} still ran"
        notes.append(f"{name}: {ran}: taken to hold accelerators until {dated(at)}, the last moment {who}")
    dark = open_ & ~runs
    if dark.any():
        notes.append(f"{name}: {_jobs(attempts, dark)} ended at a time that the logs do not tell: left out")
    end = np.where(runs, np.maximum(at, attempts.start_ns), attempts.end_ns)
    return Ended(attempts.replace(end_ns=end), notes)


def _jobs(attempts: Table, some: Mask) -> str:
    number = len(set(attempts.job[some].tolist()))
    return f"{number:,} job" + ("" if number == 1 else "s")
