"""What is followed from run to run, and its trends."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import numpy as np
from msgspec.structs import replace

from taut.core.errors import RunError
from taut.core.trend import corrected, trend
from taut.result.types import ComparedRun, Estimate, Trend
from taut.stored import Run

QUANTITIES = (
    "step_ns", "runtime_variance_index", "effective_throughput_ratio", "waiting_share", "recoverable_share", "rerun_share",
    "energy_per_kept_step_j", "cost_per_kept_step",
)  # fmt: skip
"""Each is a key of a run's row and has one trend test."""
EPOCH_NS = 10**18
"""Times before this (the year 2001) are no dates: such traces count from zero or from the start of the machine."""


def quantities(run: Run) -> ComparedRun:
    """One run as a row; what was not measured is None. Re-runs are told by the other runs (``rerun``)."""
    result, job = run.result, run.result.job
    indices, ledger, waits = result.indices, result.ledger, result.waits
    if indices is None or ledger is None or waits is None:  # ``open_run`` refuses such a run
        raise RunError(f"{run.folder}: made of logs alone, it has nothing to compare")
    joules = [entry.joules for entry in ledger.entries if entry.joules is not None]
    money = [Decimal(entry.money) for entry in ledger.entries if entry.money is not None]
    return ComparedRun(
        run=str(run.folder),
        job=job.name,
        time_ns=_time(run),
        ranks=job.ranks,
        steps=job.steps,
        first_step=job.first_step or 0,
        last_step=job.last_step or 0,
        step_ns=float(np.median([window.wall_ns for window in result.windows])),
        runtime_variance_index=indices.runtime_variance_index,
        effective_throughput_ratio=indices.effective_throughput_ratio,
        waiting_share=waits.exposed_rank_ns / ledger.total_rank_ns if ledger.total_rank_ns else None,
        recoverable_share=(result.recoverable_wall_ns or 0) / job.wall_ns if job.wall_ns else None,
        rerun_share=None,
        kept_steps=float(job.steps),
        energy_j=float(sum(joules)) if joules else None,
        cost=str(sum(money, Decimal(0))) if money else None,
        currency=ledger.currency,
        energy_per_kept_step_j=None,
        cost_per_kept_step=None,
    )


def _time(run: Run) -> int | None:
    """When the run began, ns since 1970, if its clock tells."""
    graph = run.graph
    begin = int(np.min(graph.origin_ns)) if len(graph.origin_ns) and not graph.trace.relative else 0
    return begin if begin >= EPOCH_NS else None


def in_order(rows: Sequence[ComparedRun], as_given: bool = False) -> tuple[list[int], Literal["time", "given"]]:
    """The order of the runs, by their time if all have one, else, or if so asked, as given; and which of the two."""
    times = [row.time_ns for row in rows if row.time_ns is not None]
    if as_given or len(set(times)) < len(rows):
        return list(range(len(rows))), "given"
    return sorted(range(len(rows)), key=lambda i: times[i]), "time"


def with_reruns(rows: Sequence[ComparedRun], jobs: Sequence[str]) -> list[ComparedRun]:
    """The rows with the share of steps that a later run of the job executes again, and what each kept step took.

    Runs of exactly the same steps are repeats of an experiment: both are kept. The last run of a job is not judged yet.
    """
    out = []
    for i, row in enumerate(rows):
        later = [other for other, job in zip(rows[i + 1 :], jobs[i + 1 :], strict=True) if job == jobs[i]]
        share = _steps_again(row, later) / (row.last_step - row.first_step + 1)
        kept = row.steps * (1 - share)
        joules, cost = (row.energy_j, row.cost) if kept > 0 else (None, None)
        out.append(
            replace(
                row,
                rerun_share=share if later else None,
                kept_steps=kept,
                energy_per_kept_step_j=None if joules is None else joules / kept,
                cost_per_kept_step=None if cost is None else str(Decimal(cost) / Decimal(kept)),
            )
        )
    return out


def _steps_again(row: ComparedRun, later: Sequence[ComparedRun]) -> int:
    """How many steps of a run's range lie in that of a later run that is no repeat of it."""
    first, last = row.first_step, row.last_step
    ranges = {(other.first_step, other.last_step) for other in later} - {(first, last)}
    count, counted_to = 0, first - 1
    for begin, end in sorted(ranges):
        end = min(end, last)
        count += max(end - max(begin - 1, counted_to), 0)
        counted_to = max(counted_to, end)
    return count


def trends(rows: Sequence[ComparedRun]) -> list[Trend]:
    """The trend of every quantity over the runs that have it, corrected over all quantities."""
    found = []
    for quantity in QUANTITIES:
        values = [_value(getattr(row, quantity)) for row in rows]
        if quantity == "cost_per_kept_step" and len({row.currency for row in rows} - {None}) > 1:
            values = []
        known = [value for value in values if value is not None]
        found.append((quantity, len(known), trend(known)))
    q = corrected([None if t is None else t.p for *_, t in found])
    return [
        Trend(
            quantity=quantity,
            runs=count,
            p=None if t is None else t.p,
            q=q[i],
            slope=None if t is None else Estimate(value=t.slope, lo=t.lo, hi=t.hi),
        )
        for i, (quantity, count, t) in enumerate(found)
    ]


def _value(value: Estimate | str | float | None) -> float | None:
    """A quantity as a number: the middle of an estimate, an amount of money."""
    if isinstance(value, Estimate):
        value = value.value
    return None if value is None else float(value)
